"""The public face of the samplers: arguments, sources, samplers by name, and what is refused."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from margrave.errors import MeasurementError
from margrave.privacy.entropy import InsecureSeededSource, SystemEntropy, Words
from margrave.privacy.noise import (
    deviation_above,
    discrete_gaussian,
    discrete_laplace,
    gaussian_sampler,
    opendp_discrete_gaussian,
)

DRAW = {"variance": discrete_gaussian, "scale": discrete_laplace}
RECORDED = [2, 0, 1, 1, 0, -1, -1, 2]


@pytest.mark.parametrize("draw", DRAW.values(), ids=DRAW)
@pytest.mark.parametrize("count", [0, 1, 7, 100_000])
def test_samples_come_as_whole_numbers_in_the_number_asked(draw, count):
    samples = draw(Fraction(7, 2), count)
    assert samples.dtype == np.int64
    assert samples.shape == (count,)


def test_whole_numbers_of_any_kind_are_exact_variances():
    expected = discrete_gaussian(Fraction(9), 100, source=InsecureSeededSource(1))
    for variance in (9, np.int64(9), np.uint8(9)):
        assert np.array_equal(discrete_gaussian(variance, 100, source=InsecureSeededSource(1)), expected)


def test_samples_are_written_where_they_are_wanted():
    whole = np.full(30, 10**6, dtype=np.int64)
    part = whole[10:20]
    assert discrete_gaussian(4, 10, source=InsecureSeededSource(5), out=part) is part
    assert np.array_equal(part, discrete_gaussian(4, 10, source=InsecureSeededSource(5)))
    assert (whole[:10] == 10**6).all()
    assert (whole[20:] == 10**6).all()


def test_a_call_may_have_the_widest_and_the_narrowest_noise():
    assert np.abs(discrete_gaussian(10**30, 1000)).max() < 10**17
    assert not discrete_gaussian(Fraction(1, 10**30), 1000).any()
    assert np.abs(discrete_laplace(10**15, 1000)).max() < 10**18
    assert not discrete_laplace(Fraction(1, 10**15), 1000).any()


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize(
    "value", [0.5, math.nan, math.inf, np.float64(2), Decimal("0.5"), "1", None, True, 1 + 0j], ids=repr
)
def test_a_parameter_that_is_not_exact_is_refused_and_never_rounded(name, value):
    with pytest.raises(
        MeasurementError, match=rf"the {name} must be a Fraction or a whole number, got .*never rounds: write Fr"
    ):
        DRAW[name](value, 1)


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("value", [0, -1, Fraction(-1, 3)], ids=str)
def test_noise_that_protects_nobody_is_refused(name, value):
    with pytest.raises(
        MeasurementError, match=rf"the {name} must be positive, got {value}; noise of {name} 0 would not protect anyone"
    ):
        DRAW[name](value, 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("variance", 10**30 + 1, r"variance 10\^30 or more is not representable: .* from 1e-30 to 1e\+30"),
        ("variance", Fraction(1, 10**30 + 1), "less than 1/1000000000000000000000000000001 is not representable"),
        (
            "scale",
            10**16,
            r"scale 10\^16 or more is not representable: .* from 1e-15 to 1e\+15; measure in other units",
        ),
        ("scale", Fraction(1, 10**16), "less than 1/10000000000000000 is not representable"),
    ],
)
def test_noise_that_cannot_be_represented_is_refused(name, value, text):
    with pytest.raises(MeasurementError, match=text):
        DRAW[name](value, 1)


@pytest.mark.parametrize("count", [-1, 1.5, True, "3"], ids=repr)
def test_a_count_is_a_whole_number_of_at_least_zero(count):
    for draw in (discrete_gaussian, discrete_laplace, opendp_discrete_gaussian):
        with pytest.raises(MeasurementError, match="count of samples must be a whole number of at least 0, got"):
            draw(1, count)


def test_an_array_that_does_not_fit_is_refused():
    read_only = np.empty(4, dtype=np.int64)
    read_only.flags.writeable = False
    for out in (np.empty(4), np.empty(5, dtype=np.int64), np.empty(8, dtype=np.int64)[::2], read_only, [0] * 4):
        with pytest.raises(MeasurementError, match=r"contiguous, writeable int64 array of shape \(4,\); leave it out"):
            discrete_gaussian(1, 4, out=out)


def test_a_seed_in_place_of_a_source_is_refused():
    for ask in (lambda: discrete_gaussian(1, 4, source=7), lambda: gaussian_sampler(source=7)):
        with pytest.raises(MeasurementError, match=r"is SystemEntropy\(\) or InsecureSeededSource\(seed\), got 7"):
            ask()


@pytest.mark.parametrize("seed", [-1, 0.5, "a", True, None], ids=repr)
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(MeasurementError, match="a seed is a whole number of at least 0, got"):
        InsecureSeededSource(seed)


def test_sources_say_what_they_are():
    assert (SystemEntropy().name, SystemEntropy().private) == ("system entropy", True)
    assert (InsecureSeededSource(1).name, InsecureSeededSource(1).private) == ("insecure seeded source", False)
    with pytest.raises(AttributeError):
        InsecureSeededSource(1).private = True
    with pytest.raises(TypeError):
        SystemEntropy(private=False)


def test_the_system_never_repeats_itself_and_a_seed_always_does():
    assert not np.array_equal(discrete_gaussian(10**20, 50), discrete_gaussian(10**20, 50))
    first, again, other = (discrete_gaussian(10**20, 50, source=InsecureSeededSource(seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_seed_gives_the_same_noise_on_every_machine():
    """Recorded once; a change here changes every experiment that was published with a seed."""
    recorded = discrete_gaussian(Fraction(64, 9), 8, source=InsecureSeededSource(2024)).tolist()
    assert recorded == RECORDED


def test_a_source_goes_on_where_the_call_before_ended():
    source = InsecureSeededSource(1)
    assert not np.array_equal(
        discrete_gaussian(10**20, 50, source=source), discrete_gaussian(10**20, 50, source=source)
    )


def test_spawned_sources_repeat_and_differ():
    first, again = (InsecureSeededSource(1).spawn(3) for _ in range(2))
    words = [source.words(4).tolist() for source in first]
    assert words == [source.words(4).tolist() for source in again]
    assert len({tuple(row) for row in [*words, InsecureSeededSource(1).words(4).tolist()]}) == 4
    assert not any(source.private for source in first)
    parent = InsecureSeededSource(1)
    assert parent.spawn(1)[0].words(4).tolist() != parent.spawn(1)[0].words(4).tolist()
    assert SystemEntropy().spawn(2) == [SystemEntropy(), SystemEntropy()]


def test_threads_with_spawned_sources_draw_what_one_thread_draws():
    variances = [Fraction(10**k, 3) for k in range(16)]

    def task(case):
        return discrete_gaussian(case[0], 20_000, source=case[1]).tolist()

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(task, zip(variances, InsecureSeededSource(3).spawn(16), strict=True)))
    assert together == [task(case) for case in zip(variances, InsecureSeededSource(3).spawn(16), strict=True)]


def test_words_are_read_once_each_whatever_the_blocks():
    expected = InsecureSeededSource(1).words(200).tolist()
    words = Words(InsecureSeededSource(1), 10_000)
    read = []
    for block in (1, 50, 3, 0, 80):
        words.fetch(block)
        read += [words.take() for _ in range(20)]
    assert read == expected[:100]


def test_a_source_that_gives_the_wrong_words_is_refused():
    class Short(InsecureSeededSource):
        def words(self, count):
            return super().words(count - 1)

    class Signed(InsecureSeededSource):
        def words(self, count):
            return super().words(count).astype(np.int64)

    for source in (Short(1), Signed(1)):
        with pytest.raises(
            MeasurementError, match=r"must give \d+ words as an array of uint64, it gave something else"
        ):
            discrete_gaussian(1, 10, source=source)


def test_samplers_are_known_by_name_and_say_what_they_are():
    default, seeded = gaussian_sampler(), gaussian_sampler("margrave", source=InsecureSeededSource(4))
    assert (default.name, default.private) == ("margrave (system entropy)", True)
    assert (seeded.name, seeded.private) == ("margrave (insecure seeded source)", False)
    expected = discrete_gaussian(Fraction(64, 9), 100, source=InsecureSeededSource(4))
    assert np.array_equal(seeded.draw(Fraction(64, 9), 100), expected)
    spawned, sources = seeded.spawn(2), InsecureSeededSource(4).spawn(2)
    for sampler, source in zip(spawned, sources, strict=True):
        assert not sampler.private
        assert np.array_equal(sampler.draw(Fraction(9), 50), discrete_gaussian(9, 50, source=source))


def test_an_unknown_sampler_is_refused_with_the_names_there_are():
    with pytest.raises(
        MeasurementError, match=r"no sampler 'margarve'; did you mean 'margrave'\? \(there are margrave and op"
    ):
        gaussian_sampler("margarve")
    with pytest.raises(MeasurementError, match=r"no sampler None \(there are margrave and opendp\)"):
        gaussian_sampler(None)


def test_opendp_takes_no_source():
    with pytest.raises(
        MeasurementError, match="sampler 'opendp' takes its random bits from OpenDP; leave the source out"
    ):
        gaussian_sampler("opendp", source=InsecureSeededSource(1))


def test_a_missing_opendp_is_said_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr("margrave.privacy.noise.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "opendp", None)
    for ask in (lambda: gaussian_sampler("opendp"), lambda: opendp_discrete_gaussian(1, 1)):
        with pytest.raises(
            MeasurementError, match=r"not installed; run pip install 'margrave\[opendp\]', or use sampler"
        ):
            ask()


def test_opendp_refuses_what_it_cannot_draw():
    for variance in (Fraction(1, 10**7), 10**30 + 1, 0, -1):
        with pytest.raises(
            MeasurementError, match=r"takes a variance from 1e-06 to 1e\+30, this one is outside; use sampler"
        ):
            opendp_discrete_gaussian(variance, 1)
    with pytest.raises(MeasurementError, match=r"the variance must be a Fraction or a whole number, got 0\.5"):
        opendp_discrete_gaussian(0.5, 1)


@pytest.mark.parametrize(
    "variance", [Fraction(2), Fraction(64, 9), Fraction(1, 10**6), Fraction(10**30), Fraction(4)], ids=str
)
def test_the_deviation_that_opendp_gets_is_rounded_up(variance):
    assert variance <= Fraction(deviation_above(variance)) ** 2 <= variance * (1 + Fraction(1, 2**51))


def test_opendp_draws_by_name():
    pytest.importorskip("opendp", reason="OpenDP is the oracle: pip install opendp")
    sampler = gaussian_sampler("opendp")
    assert (sampler.name, sampler.private) == ("opendp (system entropy)", True)
    assert sampler.spawn(2) == [sampler, sampler]
    for variance in (Fraction(1, 10**6), Fraction(100), Fraction(10**30)):
        samples = sampler.draw(variance, 100)
        assert (samples.dtype, samples.shape) == (np.int64, (100,))
        assert np.abs(samples).max() < 20 * float(variance) ** 0.5 + 1
    assert len(np.unique(sampler.draw(Fraction(10**30), 100))) == 100, "nothing piles up at the ends of 32 bits"

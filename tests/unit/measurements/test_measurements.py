"""Collecting measurements: what is combined, what is kept, what is refused."""

import dataclasses
import re
import time
from itertools import combinations

import numpy as np
import pytest
from discrete_sums import slow_variance

from margrave.algebra.layout import Layout
from margrave.algebra.transform import corner, difference, integrate, integrate_corners
from margrave.domain import Domain
from margrave.errors import DomainError, MeasurementError
from margrave.measurements import Gaussian, Laplace, Measurements

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "one": 1, "region": 3})
GENERATOR = np.random.default_rng(5)
AGE, AGE_REGION = GENERATOR.normal(size=3), GENERATOR.normal(size=(3, 2))


class Own:
    def loss(self, residual, observed):
        return float(((residual - observed) ** 4).sum())

    def gradient(self, residual, observed):
        return 4 * (residual - observed) ** 3


def refused(text):
    return pytest.raises(MeasurementError, match=re.escape(text))


def residual_values(measurements, *names):
    layout = measurements.layout
    return layout.view(measurements.values, layout.places[measurements.domain.positions(names)])


# What is combined and what is kept


def test_a_single_residual_is_kept_as_it_came():
    measurements = Measurements.from_residuals(DOMAIN, [(("age", "region"), AGE_REGION, Gaussian(2.0))])
    assert measurements.sets == (("age", "region"),)
    assert len(measurements) == 1
    assert measurements.count("region", "age") == 1
    assert measurements.precision("age", "region") == 0.5
    assert measurements.count("age") == measurements.precision("age") == measurements.count("sex") == 0
    np.testing.assert_allclose(residual_values(measurements, "age", "region"), integrate(AGE_REGION), atol=1e-14)
    assert not residual_values(measurements, "age").any()


def test_repeated_residuals_are_weighted_by_inverse_variance():
    entries = [(("age",), AGE, Gaussian(2.0)), (["age"], 3 * AGE, Gaussian(0.5)), (("age",), -AGE, Gaussian(1.0))]
    measurements = Measurements.from_residuals(DOMAIN, entries)
    assert measurements.count("age") == 3
    assert measurements.precision("age") == 3.5
    mean = (0.5 + 2 * 3 - 1) / 3.5 * AGE
    np.testing.assert_allclose(difference(residual_values(measurements, "age")), mean, rtol=1e-13)


def test_axes_follow_the_names_given():
    straight = Measurements.from_residuals(DOMAIN, [(("age", "region"), AGE_REGION, Gaussian(2.0))])
    turned = Measurements.from_residuals(DOMAIN, [(("region", "age"), AGE_REGION.T, Gaussian(2.0))])
    assert np.array_equal(straight.values, turned.values)
    table = GENERATOR.normal(size=(4, 2, 3))
    straight = Measurements.from_marginals(DOMAIN, [(("age", "sex", "region"), table, 2.0)])
    turned = Measurements.from_marginals(DOMAIN, [(("region", "age", "sex"), table.transpose(2, 0, 1), 2.0)])
    assert np.array_equal(straight.values, turned.values)


def test_other_noise_is_kept_one_by_one_and_counted():
    noise, matrix = Own(), np.diag([1.0, 2, 3, 4, 5, 6])
    entries = [
        (("age",), AGE, Laplace(2.0)),
        (("age",), AGE, Gaussian(4.0)),
        (("region", "age"), AGE_REGION.T, Gaussian(covariance=matrix)),
        ((), 7, noise),
    ]
    measurements = Measurements.from_residuals(DOMAIN, entries)
    assert measurements.count("age") == 2
    assert measurements.precision("age") == 0.25
    assert measurements.count() == 1
    assert measurements.precision() == 0
    assert [one.positions for one in measurements.others] == [(0,), (0, 3), ()]
    assert measurements.others[2].noise is noise
    assert measurements.others[2].values == 7
    # The first axis of the covariance was region: its entries come in the order of the transposed array.
    assert np.diag(measurements.others[1].noise.covariance).tolist() == [1, 4, 2, 5, 3, 6]
    assert np.array_equal(measurements.others[1].values, AGE_REGION)
    assert repr(measurements) == "Measurements(3 residuals, measured 4 times, 3 with other noise)"
    assert repr(Measurements.from_residuals(DOMAIN, entries[1:2])) == "Measurements(1 residual, measured 1 times)"


def test_residuals_without_entries_are_ignored():
    entries = [(("one",), np.zeros(0), Laplace(1.0)), (("age", "one"), np.zeros((3, 0)), Gaussian(1.0))]
    measurements = Measurements.from_residuals(DOMAIN, [*entries, ((), 3.0, Gaussian(1.0))])
    assert measurements.sets == ((),)
    assert measurements.count("one") == 0
    with refused("all of these residuals are empty (an attribute of one value); measure others"):
        Measurements.from_residuals(DOMAIN, entries)


def test_a_marginal_with_an_attribute_of_one_value_measures_nothing_of_it():
    measurements = Measurements.from_marginals(DOMAIN, [(("one", "sex"), GENERATOR.normal(size=(1, 2)), 1.0)])
    assert measurements.sets == ((), ("sex",))
    assert not residual_values(measurements, "sex", "one").any()
    assert measurements.precision("sex") == 1.0


def test_measured_sets_come_in_canonical_order():
    entries = [(("sex", "region"), np.zeros((2, 3)), 1.0), (("age",), np.zeros(4), 1.0)]
    sets = Measurements.from_marginals(DOMAIN, entries).sets
    assert sets == ((), ("age",), ("sex",), ("region",), ("sex", "region"))


def test_values_are_frozen_and_do_not_follow_the_callers_arrays():
    given = AGE.copy()
    measurements = Measurements.from_residuals(DOMAIN, [(("age",), given, Laplace(1.0)), ((), 1.0, Gaussian(1.0))])
    given[:] = 0
    assert np.array_equal(measurements.others[0].values, AGE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        measurements.domain = None
    for array in (measurements.values, measurements.precisions, measurements.counts, measurements.others[0].values):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


def test_very_different_variances_lose_neither_measurement():
    entries = [(("age",), np.full(4, 8.0), 1e-150), (("sex",), np.array([1.0, 2.0]), 1e150)]
    measurements = Measurements.from_marginals(DOMAIN, entries)
    assert measurements.precision("sex") == pytest.approx(1e-150)
    np.testing.assert_allclose(residual_values(measurements, "sex"), [-0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (5,), (1,), (3, 4), (2, 1, 3), (2, 3, 2, 4)])
def test_tables_integrated_together_are_those_integrated_one_by_one(shape):
    layout = Layout.of(shape, [tuple(range(len(shape)))])
    buffer, expected = np.zeros(layout.cells), np.zeros(layout.cells)
    for place in range(len(layout.sets)):
        z = GENERATOR.normal(size=[n - 1 for n in layout.shape(place)])
        corner(layout.view(buffer, place))[...] = z
        layout.view(expected, place)[...] = integrate(z)
    integrate_corners(layout, buffer)
    np.testing.assert_allclose(buffer, expected, atol=1e-13)


def test_all_triples_of_a_hundred_attributes_are_collected_in_seconds():
    domain = Domain.fromdict({f"a{k}": 3 for k in range(100)})
    noise = Gaussian(1.0)
    entries = [(s, np.ones((2,) * k), noise) for k in range(4) for s in combinations(domain.attributes, k)]
    begin = time.perf_counter()
    assert len(Measurements.from_residuals(domain, entries)) == 166_751
    assert time.perf_counter() - begin < 30  # about 3 s on a quiet machine


# From centred arrays


def centered():
    layout = Layout.of(DOMAIN.shape, [(0, 1)])
    values = np.zeros(layout.cells)
    layout.view(values, layout.places[(1,)])[...] = [2.0, -2.0]
    precisions = np.zeros(len(layout.sets))
    precisions[layout.places[(1,)]] = 4.0
    return layout, values, precisions


def test_centred_arrays_are_taken_without_copying():
    layout, values, precisions = centered()
    measurements = Measurements.from_centered(DOMAIN, layout, values=values, precisions=precisions)
    assert np.shares_memory(measurements.values, values)
    assert measurements.sets == (("sex",),)
    assert measurements.counts.sum() == 1
    twice = Measurements.from_centered(
        DOMAIN, layout, values=values, precisions=precisions, counts=2 * measurements.counts
    )
    assert twice.count("sex") == 2


def test_centred_arrays_that_do_not_fit_are_refused():
    layout, values, precisions = centered()
    other = Layout.of((2, 2), [(0, 1)])
    with refused("the layout has sizes (2, 2), the domain (4, 2, 1, 3); make the layout from the domain"):
        Measurements.from_centered(DOMAIN, other, values=np.zeros(other.cells), precisions=np.ones(4))
    with pytest.raises(MeasurementError, match="a buffer of this workload has shape"):
        Measurements.from_centered(DOMAIN, layout, values=values[:-1], precisions=precisions)
    with pytest.raises(MeasurementError, match="one number per table has shape"):
        Measurements.from_centered(DOMAIN, layout, values=values, precisions=precisions[:-1])
    for wrong in (-1.0, np.nan, np.inf):
        with refused("a precision is negative, NaN or infinite; give 1/variance, or 0 if not measured"):
            Measurements.from_centered(DOMAIN, layout, values=values, precisions=np.full(4, wrong))
    with refused("sex has precision 0 and values; give its precision, or zeros"):
        Measurements.from_centered(DOMAIN, layout, values=values, precisions=np.zeros(4))
    for wrong in (np.zeros(4), np.full(4, -1), np.ones(3)):
        with refused("counts must be one whole number a table, at least 1 where a precision is above 0"):
            Measurements.from_centered(DOMAIN, layout, values=values, precisions=precisions, counts=wrong)
    with refused("there are no measurements; give at least one"):
        Measurements.from_centered(DOMAIN, layout, values=np.zeros(layout.cells), precisions=np.zeros(4))
    with refused("the measurements hold NaN, infinity, or numbers too large to add up"):
        Measurements.from_centered(DOMAIN, layout, values=np.full(layout.cells, np.nan), precisions=precisions)


# What is refused


BOTH = pytest.mark.parametrize("make", [Measurements.from_residuals, Measurements.from_marginals])


@BOTH
def test_no_measurements_are_refused(make):
    with refused("there are no measurements; give at least one"):
        make(DOMAIN, [])


@BOTH
@pytest.mark.parametrize("entry", [(("sex",), 1.0), 3, "abc", (("sex",), 1, 2, 3)])
def test_an_entry_that_is_no_triple_is_refused(make, entry):
    with refused("a measurement is a triple (names, "):
        make(DOMAIN, [entry])


@BOTH
def test_names_that_are_none_are_refused(make):
    with refused("a measurement names its attributes by a collection, got 'sex'; write ('sex',) for one attribute"):
        make(DOMAIN, [("sex", [0.0], 1.0)])
    with refused("a measurement names its attributes by a collection, got 7"):
        make(DOMAIN, [(7, [0.0], 1.0)])
    with pytest.raises(DomainError, match=r"no attribute 'agee' in the domain; did you mean 'age'\?"):
        make(DOMAIN, [(("agee",), [0.0], 1.0)])
    with refused("a measurement of age × age names an attribute twice; name each once"):
        make(DOMAIN, [(("age", "age"), [0.0], 1.0)])


def test_wrong_shapes_are_refused_with_the_right_one():
    with refused(
        "the measurement of region × age has shape (3, 2); it must have (2, 3): "
        "differences have one entry less per axis than the table"
    ):
        Measurements.from_residuals(DOMAIN, [(("region", "age"), AGE_REGION, Gaussian(1.0))])
    with refused("the measurement of age has shape (3,); it must have (4,): a table has one entry for each value"):
        Measurements.from_marginals(DOMAIN, [(("age",), AGE, 1.0)])
    with refused("the measurement of the total has shape (1,); it must have ()"):
        Measurements.from_residuals(DOMAIN, [((), [1.0], Gaussian(1.0))])


@BOTH
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(make, bad):
    with refused("the measurement of the total holds NaN or infinity; give finite numbers"):
        make(DOMAIN, [((), bad, Gaussian(1.0))])
    with refused("the measurement of the total must be an array of numbers ("):
        make(DOMAIN, [((), "many", Gaussian(1.0))])


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_too_large_to_add_are_refused():
    with refused("the measurements hold NaN, infinity, or numbers too large to add up"):
        Measurements.from_marginals(DOMAIN, [(("age",), np.full(4, 1.7e308), 1.0)])


@pytest.mark.parametrize("variance", [0, -1, np.nan, np.inf, True, "1", None])
def test_a_marginals_variance_must_be_positive(variance):
    with refused(f"the variance of sex is {variance!r}; give a positive finite number"):
        Measurements.from_marginals(DOMAIN, [(("sex",), [0.0, 1.0], variance)])


def test_noise_that_is_none_is_refused():
    for noise in (2.0, None, "Gaussian"):
        with refused(f"the noise of sex is {noise!r}; give Gaussian(variance), Laplace(scale), or an object with"):
            Measurements.from_residuals(DOMAIN, [(("sex",), [0.0], noise)])
    with refused("the covariance of age has shape (2, 2); it must have (3, 3)"):
        Measurements.from_residuals(DOMAIN, [(("age",), AGE, Gaussian(covariance=np.eye(2)))])


# The plain mean of what was measured more than once


def test_averages_are_kept_for_what_was_measured_more_than_once_with_any_noise():
    entries = [(("age",), AGE, Gaussian(1.0)), (("age",), 3 * AGE, Laplace(7.0)), (("sex",), [5.0], Gaussian(2.0))]
    found = Measurements.from_residuals(DOMAIN, entries)
    np.testing.assert_allclose(found.averages, integrate(2 * AGE), rtol=1e-12)
    assert not found.averages.flags.writeable
    assert Measurements.from_residuals(DOMAIN, entries[1:]).averages is None


def test_averages_of_marginals_do_not_depend_on_their_variances():
    one, other = GENERATOR.normal(size=(4, 2)), GENERATOR.normal(size=(2, 3))
    found = Measurements.from_marginals(DOMAIN, [(("age", "sex"), one, 1e-3), (("sex", "region"), other, 1e3)])
    total, sex = (one.sum() + other.sum()) / 2, (one.sum(axis=0) + other.sum(axis=1)) / 2
    np.testing.assert_allclose(found.averages, [total, *(sex - sex.mean())], rtol=1e-12)
    assert Measurements.from_marginals(DOMAIN, [((), 3.0, 1.0)]).averages is None


def test_averages_of_another_shape_or_without_numbers_are_refused():
    layout = Layout.of(DOMAIN.shape, [(0,)])
    given = {"values": np.zeros(layout.cells), "precisions": np.ones(2), "counts": np.array([1, 2])}
    made = Measurements.from_centered(DOMAIN, layout, **given, averages=np.arange(4.0))
    assert made.averages.tolist() == [0, 1, 2, 3]
    text = "averages have shape (3,); give one number for every cell that was measured more than once, (4,)"
    with refused(text):
        Measurements.from_centered(DOMAIN, layout, **given, averages=np.arange(3.0))
    with refused("the measurements hold NaN, infinity, or numbers too large to add up; give finite ones"):
        Measurements.from_centered(DOMAIN, layout, **given, averages=np.full(4, np.nan))


# Discrete noise


def test_large_discrete_noise_keeps_nothing_but_the_table_it_is_on(tmp_path):
    plain = Measurements.from_marginals(DOMAIN, [(("sex", "age"), np.ones((2, 4)), 9.0)])
    found = Measurements.from_marginals(DOMAIN, [(("sex", "age"), np.ones((2, 4)), 9.0)], discrete=True)
    assert plain.direct is plain.variances is found.variances is None
    assert found.direct == ((0, 1), 9.0)
    assert np.array_equal(found.precisions, plain.precisions)
    found.save(tmp_path / "noisy.npz")
    assert Measurements.load(tmp_path / "noisy.npz").direct == ((0, 1), 9.0)


def test_small_discrete_noise_keeps_its_exact_variance(tmp_path):
    given = [(("age",), np.ones(4), 0.25), (("age",), np.ones(4), 0.5), (("sex",), np.ones(2), 0.25)]
    found = Measurements.from_marginals(DOMAIN, given, discrete=True)
    assert found.direct is None
    # Of age: two measurements with weights 4 and 2 and variances slow_variance(0.25) and slow_variance(0.5).
    expected = (16 * slow_variance(0.25) + 4 * slow_variance(0.5)) / 36
    assert found.variances[found.layout.places[(0,)]] == pytest.approx(expected, rel=1e-14)
    found.save(tmp_path / "noisy.npz")
    assert np.array_equal(Measurements.load(tmp_path / "noisy.npz").variances, found.variances)


def test_impossible_variances_and_direct_tables_are_refused():
    layout, values, precisions = centered()
    given = {"values": values, "precisions": precisions}
    place = layout.places[(1,)]
    fitting = np.where(np.arange(4) == place, 0.2, 0.0)
    assert Measurements.from_centered(DOMAIN, layout, **given, variances=fitting).variances[place] == 0.2
    for wrong in (-fitting, fitting + 1, np.full(4, np.nan), 2 * fitting):
        with refused("a variance is negative, NaN, or larger than 1/precision"):
            Measurements.from_centered(DOMAIN, layout, **given, variances=wrong)
    with refused("variances must be an array of numbers (these are complex; give real ones)"):
        Measurements.from_centered(DOMAIN, layout, **given, variances=fitting + 0j)
    assert Measurements.from_centered(DOMAIN, layout, **given, direct=((1,), 0.25)).direct == ((1,), 0.25)
    with refused("no table over the attributes at (0, 1, 2) was measured; give one that was"):
        Measurements.from_centered(DOMAIN, layout, **given, direct=((0, 1, 2), 0.25))
    with refused("the noise of the direct table is 0.5, its precision 4.0; one is the inverse of the other"):
        Measurements.from_centered(DOMAIN, layout, **given, direct=((1,), 0.5))
    with refused("the noise of the direct table is 'much'; give a positive finite number"):
        Measurements.from_centered(DOMAIN, layout, **given, direct=((1,), "much"))


# Complex numbers


def test_complex_numbers_are_refused_wherever_they_stand():
    text = "the measurement of age must be an array of numbers (these are complex; give real ones)"
    for table in (np.ones(4, dtype=complex), [1j, 0, 0, 0], np.array([1 + 1j] * 4)):
        with refused(text):
            Measurements.from_marginals(DOMAIN, [(("age",), table, 1.0)])
    with refused(text):
        Measurements.from_residuals(DOMAIN, [(("age",), AGE + 0j, Gaussian(1.0))])
    with refused("the variance of age is (1+0j); give a positive finite number"):
        Measurements.from_marginals(DOMAIN, [(("age",), np.ones(4), 1 + 0j)])
    with refused("a covariance must be a square array of numbers (these are complex; give real ones)"):
        Gaussian(covariance=np.eye(2, dtype=complex))
    layout, values, precisions = centered()
    for given in ({"values": values + 0j, "precisions": precisions}, {"values": values, "precisions": precisions + 0j}):
        with pytest.raises(MeasurementError, match="complex numbers; give real ones"):
            Measurements.from_centered(DOMAIN, layout, **given)
    with refused("counts must be one whole number a table, at least 1 where a precision is above 0"):
        Measurements.from_centered(DOMAIN, layout, values=values, precisions=precisions, counts=np.ones(4) + 0j)
    with refused("averages must be an array of numbers (these are complex; give real ones)"):
        Measurements.from_centered(
            DOMAIN, layout, values=values, precisions=precisions, counts=2 * (precisions > 0), averages=[1j, 2]
        )

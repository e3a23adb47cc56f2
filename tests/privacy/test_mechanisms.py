"""What the mechanisms spend, in which order, what they return, and that no count gets out by any door."""

import gc
import math
from fractions import Fraction
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import numpy as np
import pytest
from boundary import (
    DOMAIN,
    SIZES,
    CountsSource,
    ScriptedSampler,
    WitnessEntropy,
    WitnessLedger,
    WitnessSampler,
    recognisable,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import families, seeds

from margrave import CodedTable, boundary
from margrave.algebra import transform
from margrave.algebra.layout import Layout
from margrave.data.counting.tally import Tally
from margrave.domain import Domain
from margrave.errors import (
    BudgetRefusedError,
    DataError,
    DomainError,
    LedgerError,
    MargraveError,
    MeasurementError,
    PlanError,
)
from margrave.measurements import Measurements
from margrave.mechanisms import Run
from margrave.mechanisms import scalable_mwem as mwem
from margrave.mechanisms.adaptive_planner import adaptive_planner
from margrave.mechanisms.gaussian_marginals import gaussian_marginals, marginal_cost
from margrave.mechanisms.residual_planner import measure, residual_planner
from margrave.mechanisms.scalable_mwem import GRID_BITS, _RunningEstimate, scalable_mwem
from margrave.mechanisms.spending import spending
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.privacy.ledger import Ledger
from margrave.privacy.noise import (
    InsecureSeededSource,
    LazySampler,
    SystemEntropy,
    described_sampler,
    gaussian_sampler,
)
from margrave.privacy.selection import selection_cost, selection_epsilon
from margrave.release.publication import reconstruct
from margrave.workload import Workload

BUDGET = Budget.zcdp(rho="0.5")
PAIRS = Workload.all_kway(DOMAIN, 2)
CAP, BOUND, UNITS = 2**61, 2**37, 2**GRID_BITS


def by_plan(source, budget=BUDGET, workload=PAIRS, **options):
    return measure(plan(workload, budget, contributions=1), source, **options)


def by_marginals(source, budget=BUDGET, **options):
    variance = 3 / (2 * budget.rho)
    tables = [("age", "sex"), ("region",), ()]
    domain = getattr(source, "domain", None)
    options = options if isinstance(domain, Domain) else {"domain": DOMAIN} | options
    return gaussian_marginals(source, variances=dict.fromkeys(tables, variance), contributions=1, **options)


def by_rounds(source, budget=BUDGET, workload=PAIRS, **options):
    options = {"contributions": 1, "rounds": 4} | options
    if "sampler" in options:
        options = {"entropy": InsecureSeededSource(1)} | options
    return scalable_mwem(source, workload, budget, **options)


MECHANISMS = {"plan": by_plan, "marginals": by_marginals, "rounds": by_rounds}
every_mechanism = pytest.mark.parametrize("run", MECHANISMS.values(), ids=MECHANISMS)


def seeded(seed=0):
    return gaussian_sampler(source=InsecureSeededSource(seed))


def marginal_of(whole, names, domain=DOMAIN):
    members = domain.positions(names)
    return whole.sum(axis=tuple(k for k in range(len(domain)) if k not in members))


# ρ → ∞: noise of variance 10⁻¹⁸ or less on integers is zero but for odds of e^(−10¹⁷).
ENDLESS = Budget.zcdp(rho=10**20)


@pytest.mark.parametrize("run", [by_plan, lambda source, budget: by_rounds(source, budget, rounds=3, repeat=False)])
def test_an_endless_budget_gives_the_truth(run):
    whole = recognisable()
    release = reconstruct(run(CountsSource(whole), ENDLESS), PAIRS, method="mle")
    for names in PAIRS:
        # counts below 2³⁰; a few roundings of 2⁻⁵³ of that
        np.testing.assert_allclose(release.table(*names).values, marginal_of(whole, names), atol=1e-5)


def test_marginals_with_hardly_any_noise_are_the_truth():
    whole = recognisable()
    noisy = gaussian_marginals(CountsSource(whole), variances={("sex", "age"): "1e-20"}, contributions=1)
    release = reconstruct(noisy, Workload(DOMAIN, [("age", "sex")]), method="mle")
    np.testing.assert_allclose(release.table("age", "sex").values, marginal_of(whole, ("age", "sex")), atol=1e-5)


def test_an_endless_budget_chooses_the_worst_table_first():
    """With exact scores the choice is the largest L1 distance to the table that only the total is known of."""
    whole = np.zeros((3, 2, 4), dtype=int)
    whole[0] = 1000
    workload = Workload(DOMAIN, [("sex",), ("age",), ("region",)])
    noisy = scalable_mwem(CountsSource(whole), workload, ENDLESS, contributions=1, rounds=1)
    assert [step.purpose for step in noisy.provenance.steps] == ["total", "choice of a table, round 1", "table age"]


@every_mechanism
def test_the_record_says_what_was_done(run):
    import margrave

    noisy = run(CountsSource(recognisable()))
    record = noisy.provenance
    assert record.contributions == 1
    assert record.contributions_bounded == "declared"
    assert record.neighbours == "add or remove one person"
    assert record.version == margrave.__version__
    assert record.sampler.startswith("margrave (system entropy)")
    assert record.private is True
    budget = Budget.zcdp(rho=record.rho)
    assert (record.epsilon, record.delta) == (budget.epsilon(), budget.delta)
    assert sum(step.rho for step in record.steps) == record.rho


def test_a_plan_is_charged_as_a_whole_and_its_noise_is_the_plan_s():
    made = plan(PAIRS, BUDGET, contributions=2)
    noisy = measure(made, CountsSource(recognisable()))
    assert noisy.provenance.mechanism == "residual planner"
    assert noisy.provenance.rho == Fraction(1, 2)
    assert noisy.provenance.contributions == 2
    assert sum(made.cost(table) for table in range(len(made.layout.sets))) <= Fraction(1, 2)
    assert np.array_equal(noisy.precisions, made.precisions)


def test_a_plan_that_was_tampered_with_is_refused_before_anything_is_read(tmp_path):
    """The sum of the exact costs is compared with the budget again: it does not rest on how the plan was made."""
    source, ledger = CountsSource(recognisable()), Ledger(tmp_path / "ledger", cap=10)
    made = plan(PAIRS, BUDGET, contributions=1)
    measure(made, source)
    for name, value in [
        ("integer_variances", made.integer_variances * (1 - 2.0**-16)),
        ("contributions", 2),
        ("budget", Budget.zcdp(rho=BUDGET.rho * Fraction(999, 1000))),
    ]:
        forged = plan(PAIRS, BUDGET, contributions=1)
        object.__setattr__(forged, name, value)
        with pytest.raises(PlanError, match=r"the noise of this plan costs more than its budget, .*; make plans with"):
            measure(forged, source, ledger=ledger)
    assert (ledger.spent, source.events) == (0, ["count"])


def test_marginals_cost_contributions_squared_over_twice_the_variance():
    assert marginal_cost(Fraction(4), 3) == Fraction(9, 8)
    noisy = gaussian_marginals(CountsSource(recognisable()), variances={("age", "sex"): 4, (): "0.5"}, contributions=3)
    assert [(step.purpose, step.rho) for step in noisy.provenance.steps] == [
        ("table age × sex", Fraction(9, 8)),
        ("table total", Fraction(9)),
    ]
    assert noisy.provenance.rho == Fraction(81, 8)
    assert noisy.precision("age", "sex") == 0.25


def test_the_sum_of_many_long_fractions_is_rounded_up_so_that_a_ledger_can_keep_it(tmp_path):
    sizes = {f"a{k}": 2 for k in range(80)}
    domain = Domain.fromdict(sizes)
    source = CodedTable(domain, {name: [0, 1] for name in sizes})
    ledger = Ledger(tmp_path / "ledger", cap=1000)
    variances = {(name,): 10 + math.pi / (k + 1) for k, name in enumerate(sizes)}
    noisy = gaussian_marginals(source, variances=variances, contributions=1, ledger=ledger)
    spent = sum(step.rho for step in noisy.provenance.steps)
    assert spent == sum(1 / (2 * Fraction(value)) for value in variances.values())
    assert spent <= ledger.spent == noisy.provenance.rho <= spent * (1 + Fraction(1, 2**199))


@given(
    st.fractions(min_value="1/1000", max_value=10).filter(lambda rho: rho > 0),
    st.fractions(min_value="1/100", max_value="99/100"),
    st.integers(1, 7),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=25)
def test_the_rounds_spend_the_budget_exactly(rho, share, rounds, contributions):
    source = CountsSource(recognisable())
    record = scalable_mwem(
        source,
        PAIRS,
        Budget.zcdp(rho=rho),
        contributions=contributions,
        rounds=rounds,
        initial_share=share,
    ).provenance
    assert sum(step.rho for step in record.steps) == record.rho == rho
    assert [step.purpose for step in record.steps[1::2]] == [f"choice of a table, round {k + 1}" for k in range(rounds)]
    assert record.steps[0].rho == rho * share
    each = rho * (1 - share) / (2 * rounds)
    assert {step.rho for step in record.steps[1:]} == {each}
    epsilon = selection_epsilon(each)
    assert each * (1 - Fraction(1, 2**60)) <= selection_cost(epsilon) <= each


def test_a_round_measures_with_the_noise_that_its_share_buys():
    """Each noisy table has variance c²/2ρ_step: the precisions of the residuals are those of the tables chosen."""
    noisy = by_rounds(CountsSource(recognisable()), contributions=3)
    each, first = Fraction(9, 20) / 8, Fraction(1, 20)
    chosen = [step.purpose.removeprefix("table ").split(" × ") for step in noisy.provenance.steps[2::2]]
    precision = 2 * float(first) / 9
    for names in chosen:
        precision += 2 * float(each) / 9 / DOMAIN.cells(names)
    assert noisy.precision() == pytest.approx(precision, rel=1e-12)
    assert len(chosen) == 4


@pytest.mark.parametrize("seed", range(5))
def test_without_repeats_every_table_is_chosen_at_most_once(seed):
    """Of an empty table with so little budget every choice is nearly even: repeats would show in 7 of 9 runs."""
    noisy = by_rounds(
        CountsSource(np.zeros((3, 2, 4), dtype=int)),
        Budget.zcdp(rho="1e-16"),
        rounds=3,
        repeat=False,
        sampler=seeded(seed),
        entropy=InsecureSeededSource(seed),
    )
    assert sorted(step.purpose for step in noisy.provenance.steps[2::2]) == sorted(
        f"table {' × '.join(names)}" for names in PAIRS
    )


def test_the_sampler_is_asked_for_exactly_the_noise_that_is_recorded():
    """Every cell of a table at cost ρ gets a sample of variance c²/2ρ, exactly, and nothing else is drawn."""
    for contributions in (1, 3):
        sampler = ScriptedSampler()
        noisy = by_rounds(CountsSource(recognisable()), contributions=contributions, sampler=sampler)
        tables = [step for step in noisy.provenance.steps if step.purpose.startswith("t")]
        assert [pair for pair in sampler.asked if pair[1]] == [asked_for(step, contributions) for step in tables]
        sampler = ScriptedSampler()
        variances = {("age", "sex"): 4, ("region",): "2.5", (): 9}
        noisy = gaussian_marginals(
            CountsSource(recognisable()), variances=variances, contributions=contributions, sampler=sampler
        )
        asked = [pair for pair in sampler.asked if pair[1]]
        assert asked == [asked_for(step, contributions) for step in noisy.provenance.steps]
        assert asked == [(4, 6), (Fraction(5, 2), 4), (9, 1)]
    sampler, made = ScriptedSampler(), plan(PAIRS, BUDGET, contributions=3)
    measure(made, CountsSource(recognisable()), sampler=sampler)
    tables = range(len(made.layout.sets))
    assert sorted(pair for pair in sampler.asked if pair[1]) == sorted(
        (made.noise(table), math.prod(made.layout.shape(table))) for table in tables
    )


def asked_for(step, contributions):
    """The variance and the number of samples that a step must have drawn."""
    names = [name for name in step.purpose.removeprefix("table ").split(" × ") if name != "total"]
    return contributions**2 / (2 * step.rho), DOMAIN.cells(names)


def test_a_workload_of_the_total_alone_can_be_chosen_from():
    noisy = by_rounds(CountsSource(recognisable()), workload=Workload(DOMAIN, [()]), rounds=2)
    assert noisy.count() == 3


def test_progress_counts_rounds_and_nothing_else():
    seen = []
    by_rounds(CountsSource(recognisable()), rounds=np.int64(3), progress=lambda *numbers: seen.append(numbers))
    assert seen == [(1, 3), (2, 3), (3, 3)]


# --- the order of events ---------------------------------------------------------------------------------------


@every_mechanism
def test_check_then_count_then_charge_then_draw(run):
    events = []
    ledger = WitnessLedger(events)
    options = {"entropy": WitnessEntropy(events)} if run is by_rounds else {}
    noisy = run(CountsSource(recognisable(), events=events), ledger=ledger, sampler=WitnessSampler(events), **options)
    assert events[:4] == ["check", "count", "charge", "draw"]
    assert set(events[4:]) <= {"draw", "bits"}
    assert [rho for rho, _ in ledger.charged] == [noisy.provenance.rho]


@every_mechanism
def test_a_source_that_fails_is_not_paid_for(run, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10)
    source = CountsSource(recognisable())

    def fail(layout):
        raise OSError("the disk is gone")

    source.count = fail
    text = r"^the private table could not be read and counted \(OSError\); check that it is complete and reachable"
    with pytest.raises(DataError, match=text) as caught:
        run(source, ledger=ledger)
    assert "the disk is gone" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert ledger.spent == 0


@every_mechanism
@pytest.mark.parametrize(
    "counts",
    [
        lambda layout: np.zeros(layout.cells),
        lambda layout: np.zeros(layout.cells, dtype=np.uint64),
        lambda layout: np.zeros(layout.cells + 1, dtype=np.int64),
        lambda layout: [0] * layout.cells,
    ],
    ids=["floats", "unsigned", "too many", "list"],
)
def test_a_source_that_hands_over_anything_but_whole_numbers_is_refused(run, counts, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10)
    source = CountsSource(recognisable())
    source.count = counts
    text = r"must count into one int64 array of shape \(\d+,\), one number for each cell of the closure, and gave"
    with pytest.raises(DataError, match=text):
        run(source, ledger=ledger)
    assert ledger.spent == 0


@every_mechanism
def test_a_sampler_that_fails_after_the_charge_is_paid_for(run, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10)
    with pytest.raises(RuntimeError, match="out of order"):
        run(CountsSource(recognisable()), ledger=ledger, sampler=WitnessSampler(fails=True))
    assert ledger.spent > 0


@every_mechanism
def test_a_budget_that_is_spent_is_refused_before_the_table_is_read(run, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap="0.6")
    ledger.charge("0.3", "something before")
    source = CountsSource(recognisable())
    with pytest.raises(BudgetRefusedError, match=r"ρ = .* is asked for and .* has no room for it; nothing was read"):
        run(source, ledger=ledger)
    assert source.events == []
    assert ledger.spent == Fraction(3, 10)


@every_mechanism
def test_what_is_charged_is_what_is_recorded(run, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10)
    noisy = run(CountsSource(recognisable()), ledger=ledger)
    assert ledger.spent == noisy.provenance.rho
    assert len(ledger.entries()) == 1


# Noise of a standard deviation of 10⁸ and more: fewer than one in 10⁴ seeds make one of 60 noisy numbers equal to one
# of the 120 true ones by chance, and these do not.
FAINT = Budget.zcdp(rho="1e-16")


# --- seeds -----------------------------------------------------------------------------------------------------


@every_mechanism
def test_a_seed_marks_the_measurements_for_ever(run, tmp_path):
    noisy = run(CountsSource(recognisable()), sampler=seeded())
    assert noisy.provenance.private is False
    assert "insecure seeded source" in noisy.provenance.sampler
    noisy.save(tmp_path / "noisy.npz")
    loaded = Measurements.load(tmp_path / "noisy.npz")
    assert loaded.provenance == noisy.provenance
    assert loaded.provenance.private is False


def test_a_seed_for_the_choices_alone_marks_them_too():
    noisy = by_rounds(CountsSource(recognisable()), entropy=InsecureSeededSource(0))
    assert noisy.provenance.private is False
    assert noisy.provenance.sampler == "margrave (system entropy); choices: insecure seeded source"


@every_mechanism
def test_a_seed_repeats_and_the_system_does_not(run):
    source = CountsSource(recognisable())
    first, second = (run(source, sampler=seeded(3)) for _ in range(2))
    assert np.array_equal(first.values, second.values)
    assert first.provenance == second.provenance
    assert not np.array_equal(run(source, FAINT).values, run(source, FAINT).values)


# --- scores ----------------------------------------------------------------------------------------------------


def whole_score(counts, estimates):
    """Equation (1) of scalable_mwem in Python's integers."""
    total = 0
    for count, estimate in zip(counts.ravel().tolist(), estimates.ravel().tolist(), strict=True):
        total += abs(min(max(count, 0), BOUND) * UNITS - round(min(max(estimate, -BOUND), BOUND) * UNITS))
    return min(total, CAP)


def estimate_from(layout, seed, rounds=3):
    """A running estimate from noisy measurements of a few tables of the closure."""
    generator = np.random.default_rng(seed)
    estimate, sampler = _RunningEstimate(layout), seeded(seed)
    counts = counts_of(layout, generator.integers(0, 50, size=layout.sizes))
    for _ in range(rounds):
        members = layout.sets[generator.integers(len(layout.sets))]
        estimate.measure(members, counts, Fraction(int(generator.integers(1, 100)), 3), sampler)
    return estimate


def counts_of(layout, whole):
    return CountsSource(whole).count(layout)


@given(families(), seeds)
@settings(deadline=None, max_examples=40)
def test_scores_are_the_distance_of_the_tables_on_the_grid(shape_and_family, seed):
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    estimate = estimate_from(layout, seed)
    counts = counts_of(layout, np.random.default_rng(seed).integers(0, 50, size=sizes))
    tables = transform.reconstruct(layout, estimate._values)
    scores = estimate.scores(counts)
    for place, (_, exact) in enumerate(layout.views(counts)):
        reconstructed = layout.view(tables, place)
        assert int(scores[place]) == whole_score(exact, reconstructed)
        # half a unit of the grid for each cell
        plain = np.abs(exact - reconstructed).sum()
        assert abs(int(scores[place]) / UNITS - plain) <= exact.size / UNITS


def test_scores_of_large_tables_do_not_depend_on_the_threads(monkeypatch):
    layout = Layout.of((40, 50, 30, 7), [(0, 1, 2), (1, 2, 3), (0, 3)])
    estimate = estimate_from(layout, 3)
    counts = counts_of(layout, np.random.default_rng(1).integers(0, 3, size=layout.sizes))
    monkeypatch.setenv("MARGRAVE_THREADS", "1")
    alone = estimate.scores(counts)
    monkeypatch.setenv("MARGRAVE_THREADS", "3")
    assert np.array_equal(alone, estimate.scores(counts))
    tables = transform.reconstruct(layout, estimate._values)
    for place, (_, exact) in enumerate(layout.views(counts)):
        assert int(alone[place]) == whole_score(exact, layout.view(tables, place))


@given(families(), seeds, st.integers(1, 5), st.sampled_from([5, 2**36, 2**37 - 2, 2**50]))
@settings(deadline=None, max_examples=60)
def test_one_person_moves_no_score_by_more_than_their_rows(shape_and_family, seed, contributions, most):
    """Exactly, in whole numbers, also for tables with more rows than anyone has, where counts are cut off."""
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(seed)
    whole = generator.integers(0, most, size=sizes)
    person = np.zeros(sizes, dtype=np.int64)
    np.add.at(person, tuple(generator.integers(0, sizes, size=(contributions, len(sizes))).T), 1)
    estimate = estimate_from(layout, seed)
    without = estimate.scores(counts_of(layout, whole))
    with_person = estimate.scores(counts_of(layout, whole + person))
    assert (without >= 0).all()
    assert int(np.abs(with_person - without).max()) <= contributions * UNITS


@given(families(), seeds, st.integers(1, 5), st.sampled_from([2**37, 2**62, 2**63, 2**64]))
@settings(deadline=None, max_examples=60)
def test_one_person_in_a_column_of_counts_moves_no_score_by_more_than_their_rows(
    shape_and_family, seed, contributions, total
):
    """Where all counts add up to a cut, or to where 64 bits end: wrapped around, a score would move by 2⁵³."""
    sizes, family = shape_and_family
    layout = Layout.of(sizes, family)
    generator = np.random.default_rng(seed)
    codes = np.ascontiguousarray(generator.integers(0, sizes, size=(30, len(sizes))).T, dtype=np.uint8)
    without = np.full(30, (total - 1) // 30)
    without[0] += (total - 1) % 30
    with_person = without.copy()
    np.add.at(with_person, generator.integers(0, 30, size=contributions), 1)
    counts = []
    for weights in (without, with_person):
        tally = Tally(layout)
        tally.add(codes, weights)
        counts.append(tally.counts())
    for (_, first), (_, second) in zip(*map(layout.views, counts), strict=True):
        assert int(np.abs(second - first).sum()) <= contributions
    estimate = estimate_from(layout, seed)
    scores = [estimate.scores(each) for each in counts]
    assert int(np.abs(scores[1] - scores[0]).max()) <= contributions * UNITS


@given(st.integers(1, 700), seeds, st.floats(0, 300))
@settings(deadline=None, max_examples=40)
def test_scores_stay_within_64_bits_whatever_is_estimated_and_counted(size, seed, magnitude):
    layout = Layout.of((size,), [(0,)])
    generator = np.random.default_rng(seed)
    estimate = _RunningEstimate(layout)
    estimate._values[:] = generator.normal(size=layout.cells) * 10**magnitude
    tables = transform.reconstruct(layout, estimate._values)
    for counts in (
        generator.integers(0, 2**62, size=layout.cells),
        np.full(layout.cells, 2**63 - 1),
        generator.integers(-(2**63), 0, size=layout.cells),
    ):
        scores = estimate.scores(counts)
        for place, (_, exact) in enumerate(layout.views(counts)):
            assert 0 <= int(scores[place]) == whole_score(exact, layout.view(tables, place)) <= CAP


def test_an_estimate_that_is_no_number_is_cut_off_like_any_other():
    layout = Layout.of((4,), [(0,)])
    estimate = _RunningEstimate(layout)
    estimate._values[:] = np.nan
    scores = [estimate.scores(np.full(layout.cells, count)) for count in (0, 1)]
    assert [int(score) for score in np.abs(scores[1] - scores[0])] == [UNITS, 4 * UNITS]


def test_the_terms_between_two_cuts_fit():
    """The claim of scalable_mwem, in its own constants."""
    assert (mwem._CAP, mwem._BOUND, mwem._UNITS) == (CAP, BOUND, UNITS)
    assert mwem._CAP + mwem._TERMS * 2 * mwem._BOUND * mwem._UNITS < 2**63
    assert boundary.MOST_ROWS < mwem._BOUND


@given(families(), seeds, st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_the_running_estimate_is_the_reconstruction_from_all_tables_so_far(shape_and_family, seed, rounds):
    sizes, family = shape_and_family
    domain = Domain.fromdict({f"a{k}": size for k, size in enumerate(sizes)})
    workload = Workload(domain, [domain.names(members) for members in family])
    layout = Layout.of(sizes, workload.positions)
    estimate = estimate_from(layout, seed, rounds)
    measured = Measurements.from_marginals(domain, estimate.measured(workload))
    release = reconstruct(measured, workload, method="mle")
    tables = transform.reconstruct(layout, estimate._values)
    for names in workload:
        view = layout.view(tables, layout.places[domain.positions(names)])
        np.testing.assert_allclose(release.table(*names).values, view, atol=1e-8)


# --- no count gets out -----------------------------------------------------------------------------------------


def reachable(root):
    """All objects that can be reached from one, but for what modules, classes and plain functions share."""
    seen, waiting = {}, [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | BuiltinFunctionType):
            continue
        seen[id(one)] = one
        if isinstance(one, FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()] + list(one.__defaults__ or ())
        elif isinstance(one, MethodType):
            waiting += [one.__self__, one.__func__]
        elif isinstance(one, np.ndarray):
            # Arrays tell the collector nothing about what they stand on.
            waiting += [one.base, *(one.ravel().tolist() if one.dtype == object else [])]
        else:
            waiting += gc.get_referents(one)
    return list(seen.values())


def secrets(source):
    """Every count of every table, and every entry of every true residual that is not zero."""
    layout = Layout.of(tuple(SIZES.values()), [(0, 1, 2)])
    counts = counts_of(layout, source.whole)
    residuals = transform.center(layout, counts.astype(float))
    values = np.concatenate([counts.astype(float), residuals])
    return np.unique(values[np.abs(values) > 1])


def found_in(one, source):
    """Whether an object gives away a count or a true residual."""
    hidden = secrets(source)
    if one is source or one is source.whole:
        return True
    if isinstance(one, np.ndarray) and one.dtype.kind in "iuf":
        shared = any(np.shares_memory(one, counts) for counts in [*source.handed_out, source.whole])
        near = np.abs(one.astype(float).ravel()[:, None] - hidden).min(initial=np.inf)
        return shared or bool(near < 1e-6)
    if isinstance(one, int | float | Fraction) and not isinstance(one, bool):
        return bool(np.abs(float(one) - hidden).min() < 1e-6) if abs(one) < 1e15 else False
    if isinstance(one, str):
        return any(str(int(value)) in one for value in hidden if value == int(value) and value > 10**5)
    return False


@every_mechanism
def test_no_true_count_can_be_reached_from_what_a_mechanism_returns(run):
    source = CountsSource(recognisable())
    noisy = run(source, FAINT, sampler=seeded(5))
    objects = reachable(noisy)
    assert any(one is noisy.layout for one in objects)
    assert any(isinstance(one, np.ndarray) and one.size == noisy.layout.cells for one in objects)
    assert not [type(one) for one in objects if found_in(one, source)]


@every_mechanism
def test_no_true_count_is_in_the_saved_file(run, tmp_path):
    source = CountsSource(recognisable())
    run(source, FAINT, sampler=seeded(5)).save(tmp_path / "noisy.npz")
    with np.load(tmp_path / "noisy.npz") as archive:
        assert not [name for name in archive.files if found_in(archive[name], source)]


@pytest.mark.parametrize(
    "hide",
    [
        lambda source, counts: source,
        lambda source, counts: {"deep": [(counts[3:5],)]},
        lambda source, counts: lambda: counts,
        lambda source, counts: source.count,
        lambda source, counts: counts.astype(float).reshape(-1, 1)[::-1],
        lambda source, counts: np.array([counts[-1] / 1], dtype=object),
        lambda source, counts: f"there are {counts[0]} rows",
        lambda source, counts: int(counts[0]),
        lambda source, counts: counts.view(np.uint8)[8:].base,
    ],
)
def test_the_search_finds_counts_wherever_they_are_hidden(hide):
    source = CountsSource(recognisable())
    counts = source.count(Layout.of(tuple(SIZES.values()), [(0, 1, 2)]))
    assert any(found_in(one, source) for one in reachable([hide(source, counts)]))


def chain(error):
    """An exception with all that it was raised from or beside."""
    found, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        if one is not None and all(one is not other for other in found):
            found.append(one)
            waiting += [one.__cause__, one.__context__]
    return found


def assert_silent(error, source):
    for one in chain(error):
        for text in (str(one), repr(one), *map(str, getattr(one, "__notes__", []))):
            assert not found_in(text, source)


@every_mechanism
def test_no_failure_tells_a_count(run, tmp_path):
    spent = Ledger(tmp_path / "spent", cap="0.1")
    torn = Ledger(tmp_path / "torn", cap=10)
    torn.charge("0.1", "before")
    with (tmp_path / "torn").open("ab") as file:
        file.write(b'{"number":2,')

    def failing(*arguments):
        raise RuntimeError("out of order")

    source = CountsSource(recognisable())
    wrong = WitnessSampler()
    wrong.draw = lambda variance, count: np.zeros(count, dtype=np.int64) if not count else np.zeros(count + 1)
    floats = WitnessSampler()
    floats.draw = lambda variance, count: np.zeros(count) + 0.5
    witness = WitnessLedger([])
    witness.charge = failing
    cases = [{"ledger": spent}, {"ledger": torn}, {"ledger": witness}, {"sampler": WitnessSampler(fails=True)}]
    cases += [{"sampler": wrong}, {"sampler": floats}] if run is by_plan else [{"sampler": wrong}]
    if run is by_rounds:
        cases.append({"progress": failing})
    for options in cases:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is, it must be silent
            run(source, **options)
        assert_silent(caught.value, source)


def test_no_failure_of_a_table_in_memory_tells_its_rows():
    rows = 123_457
    source = CountsSource(np.full((3, 2, 4), rows))
    whole = {name: np.zeros(rows, dtype=int) for name in SIZES}
    ragged: list[object] = [[0]] * (rows - 1)
    ragged.append([0, 0])
    for name, column in [
        ("age", None),
        ("age", np.full(rows, rows)),
        ("age", np.zeros(rows)),
        ("age", np.zeros((rows, 1), dtype=int)),
        ("age", np.zeros(rows - 1, dtype=int)),
        ("age", ragged),
        ("age", ["0"] * rows),
    ]:
        columns = {**whole, name: column}
        if column is None:
            del columns[name]
        with pytest.raises(DataError) as caught:
            CodedTable(DOMAIN, columns)
        assert_silent(caught.value, source)


class Frame:
    """Like a frame: it can count, and it shows a column of the name ``domain``."""

    domain = "123457 private values"

    def count(self, layout):
        raise AssertionError("a frame must not be read as a source")


@every_mechanism
@pytest.mark.parametrize("source", [Frame(), [1, 2], None], ids=["frame", "list", "None"])
def test_what_is_no_source_is_refused_without_a_look_inside(run, source):
    with pytest.raises(DataError, match=r"is not a table; give a path, .* or a CodedTable") as caught:
        run(source)
    assert "123457" not in str(caught.value)


def test_only_what_counts_is_counted():
    layout = Layout.of(DOMAIN.shape, PAIRS.positions)
    with pytest.raises(DataError, match="expected a source of counts, got a Frame; open it with open_source"):
        spending(Frame(), PAIRS, layout, BUDGET, run=Run(), purpose="none").__enter__()


# --- bad input -------------------------------------------------------------------------------------------------

OTHER = Domain.fromdict({"age": 3, "sex": 2, "region": 5})
SMALL, LARGE = Budget.zcdp(rho="1e-40"), Budget.zcdp(rho="1e40")
BAD = {
    "contributions 0": (by_rounds, {"contributions": 0}, PlanError, "contributions is 0; give the most rows"),
    "contributions True": (by_rounds, {"contributions": True}, PlanError, "contributions is True; give the most rows"),
    "contributions 1.5": (by_rounds, {"contributions": 1.5}, PlanError, "contributions is 1.5; give the most rows"),
    "rounds 0": (by_rounds, {"rounds": 0}, PlanError, "rounds is 0; give a whole number of at least 1"),
    "rounds 2.0": (by_rounds, {"rounds": 2.0}, PlanError, "rounds is 2.0; give a whole number of at least 1"),
    "rounds True": (by_rounds, {"rounds": True}, PlanError, "rounds is True; give a whole number of at least 1"),
    "too many rounds": (
        by_rounds,
        {"rounds": 4, "repeat": False},
        PlanError,
        "4 rounds without repeats need as many tables, the workload has 3; do fewer",
    ),
    "share 0": (by_rounds, {"initial_share": 0}, PlanError, "initial_share is 0; give a number between 0 and 1"),
    "share 1": (by_rounds, {"initial_share": 1}, PlanError, "initial_share is 1; give a number between 0 and 1"),
    "share text": (by_rounds, {"initial_share": "x"}, PlanError, "initial_share must be a finite number"),
    "no workload": (by_rounds, {"workload": "age"}, PlanError, "expected a Workload, got a str"),
    "no budget": (by_rounds, {"budget": 0.5}, PlanError, "expected a Budget, got a float"),
    "another domain": (
        by_rounds,
        {"workload": Workload.all_kway(OTHER, 2)},
        DataError,
        "the table is over .* and the plan over .*; use one domain for both",
    ),
    "another domain, plan": (
        by_plan,
        {"workload": Workload.all_kway(OTHER, 2)},
        DataError,
        "the table is over .* and the plan over .*; use one domain for both",
    ),
    "seed for entropy": (by_rounds, {"entropy": 7}, MeasurementError, "a source of random bits is .* got 7"),
    "variance too large": (
        by_rounds,
        {"budget": SMALL},
        MeasurementError,
        "is not representable: the variance must be from",
    ),
    "variance too small": (
        by_rounds,
        {"budget": LARGE},
        MeasurementError,
        "is not representable: the variance must be from",
    ),
}
for run_name, run_bad in MECHANISMS.items():
    BAD[f"no such sampler, {run_name}"] = (
        run_bad,
        {"sampler": "margrav"},
        MeasurementError,
        "no sampler 'margrav'; did you",
    )
    BAD[f"seed for sampler, {run_name}"] = (run_bad, {"sampler": 7}, MeasurementError, "expected a sampler, got a int")
    BAD[f"source for sampler, {run_name}"] = (
        run_bad,
        {"sampler": InsecureSeededSource(7)},
        MeasurementError,
        r"expected a sampler, got a InsecureSeededSource; give 'margrave', 'opendp' or gaussian_sampler\(source=…\)",
    )


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_read_or_charged(case, tmp_path):
    run, options, error, text = BAD[case]
    ledger, source = Ledger(tmp_path / "ledger", cap=10**50), CountsSource(recognisable())
    with pytest.raises(error, match=text) as caught:
        run(source, ledger=ledger, **options)
    assert isinstance(caught.value, MargraveError)
    assert ledger.spent == 0
    assert source.events == []


@pytest.mark.parametrize(
    ("variances", "error", "text"),
    [
        ({}, PlanError, r"there is no table to measure; name at least one, as in \{\('age', 'sex'\): 100\}"),
        ([("age",)], PlanError, "there is no table to measure"),
        ({("age",): 0}, PlanError, "the variance of age is 0; give a positive number"),
        ({(): -1}, PlanError, "the variance of the total is -1; give a positive number"),
        ({("age",): "much"}, PlanError, "a variance must be a finite number"),
        ({("age",): 1, ("sex",): 10**31}, MeasurementError, "is not representable: the variance must be from"),
        ({("age",): 1, ("sex",): "1e-31"}, MeasurementError, "is not representable: the variance must be from"),
        ({"age": 1}, DomainError, r"attributes are a list of names, got 'age'; write \('age',\) for one"),
        ({("age", "age"): 1}, PlanError, "the table age × age names an attribute twice; name each once"),
        ({("agee",): 1}, DomainError, "no attribute 'agee' in the domain; did you mean 'age'"),
    ],
)
def test_bad_variances_are_refused_before_anything_is_read(variances, error, text, tmp_path):
    ledger, source = Ledger(tmp_path / "ledger", cap=10**50), CountsSource(recognisable())
    with pytest.raises(error, match=text):
        gaussian_marginals(source, variances=variances, contributions=1, ledger=ledger)
    with pytest.raises(PlanError, match="contributions is None"):
        gaussian_marginals(source, variances={("age",): 1}, contributions=None, ledger=ledger)
    with pytest.raises(PlanError, match="delta must be above 0 and below 1"):
        gaussian_marginals(source, variances={("age",): 1}, contributions=1, delta=2, ledger=ledger)
    assert (ledger.spent, source.events) == (0, [])


def test_contributions_have_no_default():
    with pytest.raises(TypeError, match="contributions"):
        scalable_mwem(CountsSource(recognisable()), PAIRS, BUDGET)
    with pytest.raises(TypeError, match="contributions"):
        gaussian_marginals(CountsSource(recognisable()), variances={(): 1})


def test_what_is_no_plan_or_no_ledger_is_refused_before_the_table_is_read():
    source = CountsSource(recognisable())
    with pytest.raises(PlanError, match="expected a Plan, got a Workload; make one with plan"):
        measure(PAIRS, source)
    with pytest.raises(LedgerError, match="expected a Ledger, got a str; give Ledger"):
        by_plan(source, ledger="adult.ledger")
    assert source.events == []


def test_a_table_too_large_to_measure_exactly_is_refused_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(boundary, "MOST_ROWS", 2**59)
    ledger, source = Ledger(tmp_path / "ledger", cap=10), CountsSource(recognisable())
    with pytest.raises(MeasurementError, match="has 12 cells; at most 8 can be measured exactly"):
        by_plan(source, ledger=ledger)
    assert (ledger.spent, source.events) == (0, [])


def test_attributes_of_one_value_are_planned_measured_and_chosen():
    domain = Domain.fromdict({"one": 1, "two": 2})
    workload = Workload.all_kway(domain, 2)
    source = CountsSource(np.array([[100_003, 200_003]]), domain)
    for noisy in (by_plan(source, ENDLESS, workload), by_rounds(source, ENDLESS, workload)):
        table = reconstruct(noisy, workload, method="mle").table("one", "two").values
        np.testing.assert_allclose(table, [[100_003, 200_003]], atol=1e-6)
        assert noisy.count("one") == 0


def test_a_torn_ledger_is_explained_before_anything_is_read(tmp_path):
    path = tmp_path / "torn.ledger"
    Ledger(path, cap=10).charge(1, "first")
    with path.open("ab") as file:
        file.write(b'{"half a li')
    domain = Domain.fromdict({"a": 2})
    layout_plan = plan(Workload.all_kway(domain, 1), Budget.zcdp(rho=1), contributions=1)
    with pytest.raises(LedgerError, match="repair"):
        measure(layout_plan, CodedTable(domain, {"a": [0, 1]}), ledger=Ledger(path))


SMALL = Domain.fromdict({"a": 2, "b": 3})
SMALL_TABLE = {"a": [0, 1, 1], "b": [0, 2, 1]}


def small_plan():
    return plan(Workload.all_kway(SMALL, 2), Budget.zcdp(rho=1), contributions=1)


def test_memory_is_checked_before_anything_is_charged(tmp_path, monkeypatch):
    from margrave import memory
    from margrave.errors import MemoryLimitError

    ledger = Ledger(tmp_path / "l", cap=10)
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    with pytest.raises(MemoryLimitError, match=r"counting and measuring needs .* the largest tables are a × b"):
        measure(small_plan(), CodedTable(SMALL, SMALL_TABLE), ledger=ledger)
    assert ledger.spent == 0


def test_memory_is_asked_for_the_arrays_of_the_mechanism_and_copies_of_the_largest_table(monkeypatch):
    """The tables inside have 1, 3, 4, 2 and 12 cells, of eight bytes each."""
    monkeypatch.setenv("MARGRAVE_THREADS", "2")
    asked = []
    monkeypatch.setattr("margrave.mechanisms.spending.require_memory", lambda needed, *_, **__: asked.append(needed))
    domain = Domain.fromdict({"a": 3, "b": 4, "c": 2})
    table = CodedTable(domain, {"a": [0], "b": [0], "c": [0]})
    workload = Workload(domain, [("a", "b"), ("c",)])
    for mechanism in (residual_planner, adaptive_planner, gaussian_marginals, scalable_mwem):
        mechanism(table, workload, Budget.zcdp(rho=1), contributions=1)
    cells = 1 + 3 + 4 + 2 + 12
    assert asked == [8 * (arrays * cells + 4 * 2 * 12) for arrays in (4, 8, 5.5, 3)]


@pytest.mark.parametrize("missing", ["check", "charge", "require_domain", "torn"])
def test_what_lacks_a_part_of_a_ledger_is_refused_before_the_table_is_read(missing):
    parts = {"check": lambda *_: True, "charge": lambda *_, **__: None, "require_domain": lambda *_: None, "torn": None}
    ledger = type("Partly", (), {name: part for name, part in parts.items() if name != missing})()
    with pytest.raises(LedgerError, match="expected a Ledger, got a Partly; give Ledger"):
        measure(small_plan(), CodedTable(SMALL, SMALL_TABLE), ledger=ledger)


def test_noise_in_floating_point_is_refused_whoever_draws_it():
    class Floating:
        name, private = "floating", True

        def draw(self, variance, count):
            return np.zeros(count)

        def spawn(self, count):
            return [self] * count

    with pytest.raises(MeasurementError, match=r"sampler 'floating' did not give 1 whole numbers \(int64\)"):
        gaussian_marginals(CodedTable(SMALL, SMALL_TABLE), variances={(): 4}, contributions=1, sampler=Floating())


def test_a_class_in_place_of_a_source_is_refused_before_the_charge():
    with pytest.raises(MeasurementError, match=r"a source of random bits is SystemEntropy\(\)"):
        gaussian_sampler(source=SystemEntropy)


class Boastful:
    """Draws no noise at all, and says of itself what ours says."""

    name, private = "margrave (system entropy)", True

    def draw(self, variance, count):
        return np.zeros(count, dtype=np.int64)

    def spawn(self, count):
        return [self] * count


class Extended(LazySampler):
    """One of ours with another draw."""

    def draw(self, variance, count):
        return np.zeros(count, dtype=np.int64)


class LoadedDice(SystemEntropy):
    """One of our sources with other words."""

    def words(self, count):
        return np.zeros(count, dtype=np.uint64)


def patched(sampler, **methods):
    for name, method in methods.items():
        object.__setattr__(sampler, name, method)
    return sampler


FOREIGN = {
    "a type of somebody's own": (Boastful(), "foreign: margrave (system entropy)"),
    "a type that extends ours": (Extended(), "foreign: margrave (system entropy)"),
    "one of ours with a method replaced": (
        patched(LazySampler(), draw=lambda variance, count: np.zeros(count, dtype=np.int64)),
        "foreign: margrave (system entropy)",
    ),
    "ours on a source that extends ours": (LazySampler(LoadedDice()), "margrave (foreign: system entropy)"),
    "ours on a source with a method replaced": (
        LazySampler(patched(SystemEntropy(), words=lambda count: np.zeros(count, dtype=np.uint64))),
        "margrave (foreign: system entropy)",
    ),
    "ours on a source with another name": (
        LazySampler(patched(LoadedDice(), name="the best there is")),
        "margrave (foreign: the best there is)",
    ),
}


@pytest.mark.parametrize(("sampler", "name"), FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_sampler_is_named_as_such_and_is_not_private_whatever_it_says(sampler, name):
    assert (sampler.private, described_sampler(sampler)) == (True, (name, False))


@every_mechanism
def test_the_record_names_a_foreign_sampler(run):
    record = run(CountsSource(recognisable()), sampler=Boastful()).provenance
    assert record.private is False
    assert record.sampler.startswith("foreign: margrave (system entropy)")


def test_a_foreign_source_of_choices_is_named_and_marks_the_whole():
    class Source(InsecureSeededSource):
        name, private = "system entropy", True

    record = by_rounds(CountsSource(recognisable()), entropy=Source(3)).provenance
    assert record.private is False
    assert record.sampler == "margrave (system entropy); choices: foreign: system entropy"


def test_a_name_that_is_no_text_is_replaced_by_the_type_and_a_long_one_is_cut():
    sampler = Boastful()
    sampler.name = ["margrave"]
    assert described_sampler(sampler) == ("foreign: Boastful", False)
    sampler.name = "m" * 10_000
    assert described_sampler(sampler) == (f"foreign: {'m' * 100}", False)


def test_an_empty_table_fits_and_an_unreadable_column_tells_nothing():
    assert len(measure(small_plan(), CodedTable(SMALL, {"a": [], "b": []}))) == 4

    class Secret:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("row 12345 secret")

    with pytest.raises(DataError, match="column 'a' is not a list of whole numbers") as caught:
        CodedTable(SMALL, {"a": Secret(), "b": [0]})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_delta_that_rounds_to_one_is_refused_before_anything_is_read():
    source, ledger = CountsSource(recognisable()), WitnessLedger([])
    budget = Budget.zcdp(rho="0.5", delta="0.99999999999999999")
    with pytest.raises(PlanError, match="delta must be above 0 and below 1"):
        by_plan(source, budget, ledger=ledger)
    assert source.events == ledger.events == []


@every_mechanism
def test_the_ledger_is_told_what_was_measured(run, tmp_path):
    ledger = Ledger(tmp_path / "ledger", cap=10, notes={"title": "A survey"})
    noisy = run(CountsSource(recognisable()), ledger=ledger)
    (entry,) = ledger.entries()
    assert (noisy.provenance.ledger_entry, noisy.provenance.ledger_hash) == (1, entry.hash)
    assert (entry.details["domain"], entry.details["title"]) == (DOMAIN.fingerprint, "A survey")
    assert entry.details["workload"].startswith("Workload(")
    assert entry.details["epsilon"] == noisy.provenance.epsilon
    assert run(CountsSource(recognisable())).provenance.ledger_entry is None


@every_mechanism
def test_another_domain_is_refused_before_the_table_is_read(run, tmp_path):
    Ledger(tmp_path / "ledger", cap=10).charge("0.1", "before", domain="0" * 64)
    source = CountsSource(recognisable())
    with pytest.raises(LedgerError, match="nothing was read or charged: one ledger is for one data set"):
        run(source, ledger=Ledger(tmp_path / "ledger"))
    assert source.events == []
    run(source, ledger=Ledger(tmp_path / "ledger", any_domain=True))
    assert len(Ledger(tmp_path / "ledger").entries()) == 2

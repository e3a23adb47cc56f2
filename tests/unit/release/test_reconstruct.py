"""The verb: which method runs with which arguments, and which requests are refused before anything is done."""

import re

import numpy as np
import pytest

import margrave
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import (
    ConvergenceError,
    DomainError,
    MemoryLimitError,
    ReconstructionError,
    ReleaseError,
    WorkloadError,
)
from margrave.measurements import Measurements
from margrave.reconstruction.automatic import automatic
from margrave.reconstruction.linear import maximum_likelihood
from margrave.reconstruction.losses import estimate_residuals
from margrave.reconstruction.nonnegative import Status
from margrave.release import reconstruct as module
from margrave.release.reconstruct import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "region": 3})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region")])
NOISY = Measurements.from_marginals(DOMAIN, [(("age", "sex"), np.random.default_rng(1).normal(2, 2, (4, 2)), 1.0)])
LAYOUT = Layout.of(DOMAIN.shape, WORKLOAD.positions)


def refused(text):
    return pytest.raises(ReleaseError, match=re.escape(text))


@pytest.fixture
def solver(monkeypatch):
    """Stand in for the solver and keep what it was given; it answers with truncated tables."""
    calls = []

    class Answer:
        def __init__(self, layout, marginals):
            self.marginals, self.multipliers = marginals, np.ones(layout.cells - layout.inner_cells)
            self.status = Status.SOLVED

    def solve(estimates, **arguments):
        calls.append(arguments)
        return Answer(estimates.layout, np.maximum(maximum_likelihood(estimates), 0))

    monkeypatch.setattr(module, "reconstruct_nonnegative", solve)
    return calls


def test_the_default_is_the_non_negative_solver_with_what_the_automatic_rule_chooses(solver):
    release = reconstruct(NOISY, WORKLOAD)
    assert release.method == "lnn"
    assert np.shares_memory(release.solution.marginals, release.marginals)
    estimates = estimate_residuals(NOISY, LAYOUT)
    choice = automatic(estimates)
    given = solver[0]
    np.testing.assert_array_equal(given["weights"], choice.weights)
    assert given["hold"] == choice.hold
    assert (given["eta"], given["tolerance"], given["max_steps"]) == (None, choice.tolerance, 20_000)
    # Error bars and every later reconstruction stand on what was measured.
    np.testing.assert_array_equal(release.estimates.values, estimates.values)


def test_the_automatic_rule_holds_what_it_is_told_to(solver):
    reconstruct(NOISY, WORKLOAD, hold=[("sex",)], eta=0.5)
    given = solver[0]
    assert given["hold"] == (LAYOUT.places[(1,)],)
    assert given["weights"][LAYOUT.places[(1, 2)]] == 0.5
    reconstruct(NOISY, WORKLOAD, hold=[])
    assert solver[1]["hold"] == ()


def test_with_the_total_held_the_automatic_rule_completes_all_the_same():
    release = reconstruct(NOISY, WORKLOAD, hold=[()])
    total = float(estimate_residuals(NOISY, LAYOUT).values[0])
    assert release.table("sex").values.sum() == pytest.approx(total)
    # Regions were never measured: each table of them is the table of the sexes, spread evenly.
    spread = np.repeat(release.table("sex").values[:, None] / 3, 3, axis=1)
    np.testing.assert_allclose(release.table("sex", "region").values, spread, rtol=1e-3)


def test_the_papers_weights_hold_nothing_unless_told_to(solver):
    reconstruct(NOISY, WORKLOAD, weights="paper")
    assert solver == [
        {
            "weights": "paper",
            "eta": None,
            "hold": (),
            "tolerance": 1e-4,
            "most_negative": np.inf,
            "max_steps": 20_000,
            "progress": None,
            "start": None,
        }
    ]


def test_options_reach_the_solver_in_its_own_terms(solver):
    first = reconstruct(NOISY, WORKLOAD)

    def report(steps, gap):
        return None

    hold = [(), ("sex", "age"), ("age", "sex")]
    reconstruct(
        NOISY, WORKLOAD, weights=2, eta=0.5, hold=hold, tolerance=1e-6, max_steps=10, progress=report, start=first
    )
    given = solver[1]
    assert given["weights"] == 2.0
    assert isinstance(given["weights"], float)
    assert given["hold"] == tuple(sorted([LAYOUT.places[()], LAYOUT.places[(0, 1)]]))
    assert given["start"] is first.solution.multipliers
    assert (given["eta"], given["tolerance"], given["max_steps"], given["progress"]) == (0.5, 1e-6, 10, report)
    reconstruct(NOISY, WORKLOAD, weights="noise")
    assert solver[2]["weights"] == "noise"


def test_a_mapping_gives_each_measured_residual_its_weight(solver):
    weights = {(): np.inf, ("age",): 2, ("sex",): 3.0, ("sex", "age"): 4.0}
    reconstruct(NOISY, WORKLOAD, weights=weights)
    given = solver[0]["weights"]
    assert given.dtype == np.float64
    assert [given[LAYOUT.places[s]] for s in [(), (0,), (1,), (0, 1)]] == [np.inf, 2, 3, 4]
    assert np.isnan(given[LAYOUT.places[(1, 2)]])  # never measured: the solver's eta
    with refused("no weight for the residual of age × sex; give one for every measured residual"):
        reconstruct(NOISY, WORKLOAD, weights={(): 1, ("age",): 2, ("sex",): 3.0})
    with refused("no weight for the residual of the total; give one for every measured residual"):
        reconstruct(NOISY, WORKLOAD, weights={("age",): 2})
    with refused("a weight is given for age × region, which no table of the workload contains; leave it out"):
        reconstruct(NOISY, WORKLOAD, weights={("region", "age"): 2})
    with refused("a weight is given for the text 'age'; write ('age',) for the set of one attribute"):
        reconstruct(NOISY, WORKLOAD, weights={"age": 2})


def test_a_function_gives_each_residual_its_weight(solver):
    seen = []
    reconstruct(NOISY, WORKLOAD, weights=lambda names: seen.append(names) or 1.0 + len(names))
    assert seen == [DOMAIN.names(members) for members in LAYOUT.sets]
    assert solver[0]["weights"].tolist() == [1.0 + len(names) for names in seen]


@pytest.mark.parametrize("weight", [0, -1.0, np.nan, None, True, "2"])
def test_a_weight_that_is_not_positive_is_refused(solver, weight):
    with refused(f"the weight of the total is {weight!r}; give a positive number, or infinity to hold it"):
        reconstruct(NOISY, WORKLOAD, weights=lambda names: weight)
    assert not solver


def test_weights_that_are_none_are_refused(solver):
    with refused("no weights 'papper'; did you mean 'paper'? (there are auto, paper, noise, or give a number)"):
        reconstruct(NOISY, WORKLOAD, weights="papper")
    for weights in (0, -2.0, np.nan, np.inf, True, None, np.ones(8)):
        with refused(
            f"weights is {weights!r}; give 'auto', 'paper', 'noise', a positive number b for b^(−|τ|), a mapping"
        ):
            reconstruct(NOISY, WORKLOAD, weights=weights)
    assert not solver


def test_holds_that_the_workload_does_not_contain_are_refused(solver):
    with refused("hold names age × region, which no table of the workload contains; leave it out"):
        reconstruct(NOISY, WORKLOAD, hold=[("age", "region")])
    with refused("hold names the text 'age'; write ('age',) for the set of one attribute"):
        reconstruct(NOISY, WORKLOAD, hold=["age"])
    with pytest.raises(DomainError, match="no attribute 'agee' in the domain"):
        reconstruct(NOISY, WORKLOAD, hold=[("agee",)])
    assert not solver


def test_a_start_must_be_a_solution_of_the_same_workload(solver):
    linear = reconstruct(NOISY, WORKLOAD, method="mle")
    with refused("the release to start from was made by 'mle'; start from one by 'lnn'"):
        reconstruct(NOISY, WORKLOAD, start=linear)
    other = reconstruct(NOISY, Workload(DOMAIN, [("age",)]))
    with refused("the release to start from has other tables; start from one of the same workload"):
        reconstruct(NOISY, WORKLOAD, start=other)


@pytest.mark.parametrize("method", ["mle", "trunc", "trunc+rescale"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("weights", 2.0),
        ("weights", "noise"),
        ("weights", "paper"),
        ("eta", 1.0),
        ("hold", [()]),
        ("tolerance", 1e-3),
        ("max_steps", 5),
        ("progress", print),
        ("start", object()),
    ],
)
def test_options_of_the_solver_are_refused_with_other_methods(method, option, value):
    with refused(f"method {method!r} has no {option}; leave it out, or use method='lnn'"):
        reconstruct(NOISY, WORKLOAD, method=method, **{option: value})


def test_a_method_that_is_not_there_is_refused_with_a_suggestion():
    with refused("no method 'trunk'; did you mean 'trunc'? (there are mle, lnn, trunc, trunc+rescale)"):
        reconstruct(NOISY, WORKLOAD, method="trunk")
    with refused("no method 3 (there are mle, lnn, trunc, trunc+rescale)"):
        reconstruct(NOISY, WORKLOAD, method=3)


def test_a_workload_over_another_domain_is_refused():
    other = Domain.fromdict({"age": 4, "sex": ["F", "M"], "region": 3})
    text = "the workload is over Domain(age: 4, sex: 2, region: 3) and the measurements over Domain("
    with pytest.raises(WorkloadError, match=re.escape(text)):
        reconstruct(NOISY, Workload(other, [("age",)]), method="mle")


@pytest.mark.parametrize(("method", "arrays"), [("mle", 2.5), ("trunc", 2.5), ("trunc+rescale", 2.5), ("lnn", 6.5)])
def test_memory_is_checked_before_anything_is_laid_out(method, arrays):
    domain = Domain.fromdict({"a": 10**6, "b": 10**6})
    noisy = Measurements.from_marginals(domain, [((), 3.0, 1.0)])
    needed = f"{8 * arrays:.3g} TB"
    text = f"reconstruction of 1 tables by {method!r} needs {needed} of memory"
    with pytest.raises(MemoryLimitError, match=re.escape(text)):
        reconstruct(noisy, Workload(domain, [("a", "b")]), method=method)


def test_the_public_names_are_there():
    assert margrave.reconstruct is reconstruct
    assert margrave.Measurements is Measurements
    assert {"Gaussian", "Laplace", "Release", "reconstruct"} <= set(dir(margrave))
    with pytest.raises(AttributeError, match="module 'margrave' has no attribute 'nothing'"):
        _ = margrave.nothing


def test_an_unfinished_solve_raises_unless_told_not_to():
    text = r"the solver stopped at max_steps before the tolerance was reached; .* in 1 steps \(strict=False returns"
    with pytest.raises(ConvergenceError, match=text):
        reconstruct(NOISY, WORKLOAD, weights="paper", tolerance=1e-12, max_steps=1)
    release = reconstruct(NOISY, WORKLOAD, weights="paper", tolerance=1e-12, max_steps=1, strict=False)
    assert release.solution.status is Status.MAX_STEPS
    assert (release.marginals >= 0).all()


def test_arguments_of_the_wrong_kind_are_named():
    with pytest.raises(ReleaseError, match=r"str holds no measurements; give Measurements"):
        reconstruct("noisy.npz", WORKLOAD)
    with pytest.raises(ReleaseError, match=r"list is no workload; give a Workload"):
        reconstruct(NOISY, [("age", "sex")])
    for hold in ("sex", 3):
        with refused(f"hold is {hold!r}; give a list of attribute sets, as in [()] for the total"):
            reconstruct(NOISY, WORKLOAD, hold=hold)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("eta", 0, "eta is 0; give a positive number, or None for the default"),
        ("eta", np.nan, "eta is nan; give a positive number"),
        ("tolerance", "x", "tolerance is 'x'; give a positive number, such as 1e-4"),
        ("tolerance", True, "tolerance is True; give a positive number"),
        ("most_negative", -1.0, "most_negative is -1.0; give a number from 0 on"),
        ("most_negative", np.nan, "most_negative is nan; give a number from 0 on"),
        ("max_steps", "x", "max_steps is 'x'; give a whole number of at least 1"),
        ("max_steps", 1.5, "max_steps is 1.5; give a whole number of at least 1"),
    ],
)
def test_numbers_of_the_solver_are_refused_before_anything_is_done(solver, option, value, text):
    for weights in ("auto", "paper", 2.0):
        with pytest.raises(ReconstructionError, match=re.escape(text)):
            reconstruct(NOISY, Workload(DOMAIN, [("age", "sex")]), weights=weights, **{option: value})
    assert not solver


WAYS = ["auto", "paper", "noise", 2.0, {(): np.inf, ("age",): 1, ("sex",): 1, ("age", "sex"): 1}, lambda names: 1.0]


@pytest.mark.parametrize("weights", WAYS, ids=["auto", "paper", "noise", "number", "mapping", "function"])
@pytest.mark.parametrize("tables", [WORKLOAD.sets[:1], WORKLOAD.sets], ids=["measured", "completed"])
def test_a_total_of_zero_can_be_held_and_gives_tables_of_nobody(weights, tables):
    """The noisy table adds up to zero exactly; all-zero tables are the only ones with that total."""
    table = np.array([[3, -3], [2, -2], [0, 5], [-5, 0.0]])
    noisy = Measurements.from_marginals(DOMAIN, [(("age", "sex"), table, 1.0)])
    assert noisy.values[0] == 0
    release = reconstruct(noisy, Workload(DOMAIN, tables), weights=weights, hold=[()])
    assert release.solution.status is Status.SOLVED
    assert not release.marginals.any()
    assert release.table("age").values.tolist() == [0, 0, 0, 0]
    # The unbiased estimate beside it is what was measured.
    assert release.table("age", "sex").to_arrow().column("estimate").to_pylist()[:2] == pytest.approx([3, -3])


def test_an_attribute_named_twice_is_refused(solver):
    with refused("hold names age × age, with an attribute twice; name each once"):
        reconstruct(NOISY, WORKLOAD, hold=[("age", "age")])
    with refused("a weight is given for sex × age × sex, with an attribute twice; name each once"):
        reconstruct(NOISY, WORKLOAD, weights={("sex", "age", "sex"): 1.0})
    assert not solver

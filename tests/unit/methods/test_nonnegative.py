"""NonNegative: which options it takes, what the solver is given, and that a method is a value that can be recorded."""

import json
import pickle
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from margrave import methods
from margrave.algebra.layout import Layout
from margrave.domain import Domain
from margrave.errors import ConvergenceError, DomainError, ReleaseError
from margrave.measurements import Measurements
from margrave.methods import NonNegative
from margrave.options import OptionKind, options_of
from margrave.reconstruction import nonnegative as solver_module
from margrave.reconstruction.estimates import estimate_residuals, maximum_likelihood
from margrave.reconstruction.nonnegative import State, Status
from margrave.reconstruction.prior import automatic
from margrave.release.publication import reconstruct
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"age": 4, "sex": 2, "region": 3})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region")])
NOISY = Measurements.from_marginals(DOMAIN, [(("age", "sex"), np.random.default_rng(1).normal(2, 2, (4, 2)), 1.0)])
LAYOUT = Layout.of(DOMAIN.shape, WORKLOAD.positions)


def made(workload=WORKLOAD, *, noisy=NOISY, **options):
    return reconstruct(noisy, workload, method=NonNegative(**options))


def refused(text):
    return pytest.raises(ReleaseError, match=re.escape(text))


@pytest.fixture
def solver(monkeypatch):
    """Stand in for the solver and keep what it was given; it answers with truncated tables."""
    calls = []

    class Answer:
        def __init__(self, layout, marginals):
            self.marginals, self.state = marginals, State(np.ones(layout.cells - layout.inner_cells), np.ones(1))
            self.status = Status.SOLVED

    def solve(estimates, **arguments):
        calls.append(arguments)
        return Answer(estimates.layout, np.maximum(maximum_likelihood(estimates), 0))

    monkeypatch.setattr(solver_module, "reconstruct_nonnegative", solve)
    return calls


def test_the_default_is_the_non_negative_solver_with_what_the_automatic_rule_chooses(solver):
    release = reconstruct(NOISY, WORKLOAD)
    assert release.method == NonNegative()
    assert release.method.name == str(release.method) == "lnn"
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
    made(hold=[("sex",)], eta=0.5)
    given = solver[0]
    assert given["hold"] == (LAYOUT.places[(1,)],)
    assert given["weights"][LAYOUT.places[(1, 2)]] == 0.5
    made(hold=[])
    assert solver[1]["hold"] == ()


def test_with_the_total_held_the_automatic_rule_completes_all_the_same():
    release = made(hold=[()])
    total = float(estimate_residuals(NOISY, LAYOUT).values[0])
    assert release.table("sex").values.sum() == pytest.approx(total)
    # Regions were never measured: each table of them is the table of the sexes, spread evenly.
    spread = np.repeat(release.table("sex").values[:, None] / 3, 3, axis=1)
    np.testing.assert_allclose(release.table("sex", "region").values, spread, rtol=1e-3)


def test_the_papers_weights_hold_nothing_unless_told_to(solver):
    made(weights="paper")
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
            "workers": None,
        }
    ]


def test_options_reach_the_solver_in_its_own_terms(solver):
    first = reconstruct(NOISY, WORKLOAD)

    def report(steps, gap):
        return None

    hold = [(), ("sex", "age"), ("age", "sex")]
    method = NonNegative(weights=2, eta=0.5, hold=hold, tolerance=1e-6, max_steps=10)
    reconstruct(NOISY, WORKLOAD, method=method, progress=report, start=first)
    given = solver[1]
    assert given["weights"] == 2.0
    assert isinstance(given["weights"], float)
    assert given["hold"] == tuple(sorted([LAYOUT.places[()], LAYOUT.places[(0, 1)]]))
    assert given["start"] is first.solution.state
    assert (given["eta"], given["tolerance"], given["max_steps"], given["progress"]) == (0.5, 1e-6, 10, report)
    made(weights="noise")
    assert solver[2]["weights"] == "noise"


def test_a_mapping_gives_each_measured_residual_its_weight(solver):
    weights = {(): np.inf, ("age",): 2, ("sex",): 3.0, ("sex", "age"): 4.0}
    made(weights=weights)
    given = solver[0]["weights"]
    assert given.dtype == np.float64
    assert [given[LAYOUT.places[s]] for s in [(), (0,), (1,), (0, 1)]] == [np.inf, 2, 3, 4]
    assert np.isnan(given[LAYOUT.places[(1, 2)]])  # never measured: the solver's eta
    with refused("no weight for the residual of age × sex; give one for every measured residual"):
        made(weights={(): 1, ("age",): 2, ("sex",): 3.0})
    with refused("no weight for the residual of the total; give one for every measured residual"):
        made(weights={("age",): 2})
    with refused("a weight is given for age × region, which no table of the workload contains; leave it out"):
        made(weights={("region", "age"): 2})
    with refused("a weight is given for the text 'age'; write ('age',) for the set of one attribute"):
        made(weights={"age": 2})


def test_a_function_gives_each_residual_its_weight(solver):
    seen = []
    made(weights=lambda names: seen.append(names) or 1.0 + len(names))
    assert seen == [DOMAIN.names(members) for members in LAYOUT.sets]
    assert solver[0]["weights"].tolist() == [1.0 + len(names) for names in seen]


@pytest.mark.parametrize("weight", [0, -1.0, np.nan, None, True, "2"])
def test_a_weight_that_is_not_positive_is_refused(solver, weight):
    with refused(f"the weight of age × sex is {weight!r}; give a positive number, or infinity to hold it"):
        NonNegative(weights={("age", "sex"): weight})
    with refused(f"the weight of the total is {weight!r}; give a positive number, or infinity to hold it"):
        made(weights=lambda names: weight)
    assert not solver


def test_weights_that_are_none_are_refused(solver):
    with refused(
        "no weights 'papper'; did you mean 'paper'? (the names are auto, paper, noise; a number is taken too)"
    ):
        made(weights="papper")
    for weights in (0, -2.0, np.nan, np.inf, True, None, np.ones(8)):
        with refused(
            f"weights is {weights!r}; give 'auto', 'paper', 'noise', a positive number b for b^(−|τ|), a mapping"
        ):
            made(weights=weights)
    assert not solver


def test_holds_that_the_workload_does_not_contain_are_refused(solver):
    with refused("hold names age × region, which no table of the workload contains; leave it out"):
        made(hold=[("age", "region")])
    with refused("hold names the text 'age'; write ('age',) for the set of one attribute"):
        made(hold=["age"])
    with pytest.raises(DomainError, match="no attribute 'agee' in the domain"):
        made(hold=[("agee",)])
    assert not solver


def test_an_unfinished_solve_raises_unless_told_not_to():
    text = r"the solver stopped at max_steps before the tolerance was reached; .* in 1 steps \(strict=False returns"
    with pytest.raises(ConvergenceError, match=text):
        made(weights="paper", tolerance=1e-12, max_steps=1)
    release = made(weights="paper", tolerance=1e-12, max_steps=1, strict=False)
    assert release.solution.status is Status.MAX_STEPS
    assert (release.marginals >= 0).all()


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
        ("max_steps", True, "max_steps is True; give a whole number of at least 1"),
        ("strict", 1, "strict is 1; give True, False, or None for the default"),
        ("hold", "sex", "hold is 'sex'; give a list of attribute sets, as in [()] for the total"),
        ("hold", 3, "hold is 3; give a list of attribute sets"),
        ("hold", [3], "hold names 3; give a set of attribute names, as in ('age', 'sex')"),
        ("hold", [("age", 3)], "hold names ('age', 3); give a set of attribute names"),
    ],
)
def test_numbers_that_are_not_allowed_are_refused_when_the_method_is_made(option, value, text):
    for weights in ("auto", "paper", 2.0):
        with pytest.raises(ReleaseError, match=re.escape(text)):
            NonNegative(weights=weights, **{option: value})


WAYS = ["auto", "paper", "noise", 2.0, {(): np.inf, ("age",): 1, ("sex",): 1, ("age", "sex"): 1}, lambda names: 1.0]


@pytest.mark.parametrize("weights", WAYS, ids=["auto", "paper", "noise", "number", "mapping", "function"])
@pytest.mark.parametrize("tables", [WORKLOAD.sets[:1], WORKLOAD.sets], ids=["measured", "completed"])
def test_a_total_of_zero_can_be_held_and_gives_tables_of_nobody(weights, tables):
    """The noisy table adds up to zero exactly; all-zero tables are the only ones with that total."""
    table = np.array([[3, -3], [2, -2], [0, 5], [-5, 0.0]])
    noisy = Measurements.from_marginals(DOMAIN, [(("age", "sex"), table, 1.0)])
    assert noisy.values[0] == 0
    release = made(Workload(DOMAIN, tables), noisy=noisy, weights=weights, hold=[()])
    assert release.solution.status is Status.SOLVED
    assert not release.marginals.any()
    assert release.table("age").values.tolist() == [0, 0, 0, 0]
    # The unbiased estimate beside it is what was measured.
    assert release.table("age", "sex").to_arrow().column("estimate").to_pylist()[:2] == pytest.approx([3, -3])


def test_an_attribute_named_twice_is_refused(solver):
    with refused("hold names age × age, with an attribute twice; name each once"):
        made(hold=[("age", "age")])
    with refused("a weight is given for sex × age × sex, with an attribute twice; name each once"):
        made(weights={("sex", "age", "sex"): 1.0})
    assert not solver


def test_a_set_named_twice_in_a_mapping_is_refused():
    with refused("a weight is given twice for sex × age; give one"):
        NonNegative(weights={("age", "sex"): 1.0, ("sex", "age"): 2.0})


def test_a_method_is_a_frozen_value_in_one_form_whatever_it_was_made_from():
    method = NonNegative(
        weights={frozenset({"b", "a"}): 2, (): np.inf}, hold=([name] for name in "ab"), max_steps=np.int64(7)
    )
    assert method.weights == ((("a", "b"), 2.0), ((), np.inf))
    assert method.hold == (("a",), ("b",))
    assert type(method.max_steps) is int
    assert method == replace(method) == pickle.loads(pickle.dumps(method))
    assert hash(method) == hash(replace(method))
    assert method != replace(method, eta=1.0)
    with pytest.raises(AttributeError):
        method.eta = 1.0


METHODS = [
    NonNegative(),
    NonNegative(weights="paper", tolerance=1e-6, max_steps=50, strict=True),
    NonNegative(weights=8, eta=0.5, most_negative=3),
    NonNegative(weights={(): np.inf, ("age", "sex"): 0.1}, hold=[(), ("sex",)], strict=False),
    NonNegative(hold=[]),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.options_text())
def test_the_dictionary_form_survives_json_and_gives_the_same_method(method):
    text = json.dumps(method.to_dict(), allow_nan=False)
    assert methods.read(json.loads(text)) == method


def test_the_dictionary_form_is_plain():
    method = NonNegative(weights={("age", "sex"): np.inf}, hold=[()])
    assert method.to_dict() == {
        "name": "lnn",
        "options": {
            "weights": [{"attributes": ["age", "sex"], "weight": "infinity"}],
            "hold": [[]],
            "eta": None,
            "tolerance": None,
            "most_negative": "infinity",
            "max_steps": 20_000,
            "strict": None,
            "whole_numbers": False,
        },
    }


def test_a_function_is_not_recorded_and_the_record_says_so():
    method = NonNegative(weights=lambda names: 1.0, eta=2.0)
    document = method.to_dict()
    assert document["note"] == "weights was a function, which cannot be recorded"
    assert "weights" not in document["options"]
    read = methods.read(json.loads(json.dumps(document)))
    assert isinstance(read, methods.Unrecorded)
    assert (read.name, read.agree, read.nonnegative) == ("lnn", True, True)
    assert read.words == method.words
    assert read.to_dict() == document
    assert "eta=2.0" in read.options_text()
    assert read.options_text().endswith("weights was a function, which cannot be recorded")
    assert method.options_text() == "weights=a function, eta=2.0"
    text = (
        "not all options of this 'lnn' are recorded (weights was a function, which cannot be recorded); give the method"
    )
    with refused(text):
        reconstruct(NOISY, WORKLOAD, method=read)


PLAIN = NonNegative().to_dict()["options"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"weigths": 1},
            "NonNegative has no option 'weigths'; did you mean 'weights'? (its options are weights, hold,",
        ),
        ({"weights": {"age": 1}}, "weights is recorded as a JSON object, which it never is"),
        ({"weights": [["age", 1]]}, "a weight is recorded as attributes and weight; this one is not"),
        ({"weights": [{"attributes": ["a"], "weight": -1}]}, "the weight of a is -1; give a positive number"),
        ({"weights": [{"attributes": "a", "weight": 1}]}, "a weight is given for the text 'a'; write ('a',)"),
        ({"weights": "x" * 10_001}, "weights is a text of 10,001 characters; at most 10,000 are read"),
        ({"hold": [["a"]] * 1_000_001}, "hold is recorded with 1,000,001 sets; at most 1,000,000 are read"),
        ({"hold": [[1]]}, "hold names [1]; give a set of attribute names"),
        ({"max_steps": None}, "max_steps is None; give a whole number of at least 1"),
        ({"tolerance": "1e-3"}, "tolerance is '1e-3'; give a positive number"),
        ({"strict": 0}, "strict is 0; give True, False, or None"),
    ],
)
def test_a_record_that_is_not_a_method_is_refused(changes, text):
    with refused(text):
        methods.read({"name": "lnn", "options": {**PLAIN, **changes}})


def test_an_option_that_a_record_does_not_have_is_the_default():
    assert methods.read({"name": "lnn", "options": {"weights": "noise"}}) == NonNegative(weights="noise")


def test_options_of_the_command_line_are_declared_and_texts_of_numbers_are_numbers():
    declared = {one.name: one.kind for one in options_of(NonNegative)}
    assert declared == {
        "weights": OptionKind.TEXT,
        "hold": OptionKind.TABLES,
        "eta": OptionKind.NUMBER,
        "tolerance": OptionKind.NUMBER,
        "max_steps": OptionKind.WHOLE,
        "whole_numbers": OptionKind.FLAG,
    }
    assert NonNegative(weights="8") == NonNegative(weights=8)
    with refused("weights is '-8'; give 'auto', 'paper', 'noise', a positive number"):
        NonNegative(weights="-8")


def wide(size, attributes):
    """All triples of attributes of one size, from noisy tables of all of them; and all but the last triple."""
    domain = Domain.fromdict({f"attribute{k}": size for k in range(attributes)})
    every, generator = Workload.all_kway(domain, 3), np.random.default_rng(0)
    tables = [(names, generator.normal(50, 30, (size,) * 3), 900.0) for names in every]
    return Measurements.from_marginals(domain, tables), Workload(domain, every.sets[:-1])


@pytest.mark.parametrize(
    ("size", "attributes", "slack"), [(12, 16, 1.2), (2, 30, 2.0)], ids=["large tables", "small tables"]
)
@pytest.mark.parametrize("weights", ["auto", "paper", 2.0])
def test_the_memory_that_is_asked_for_is_what_is_used(weights, size, attributes, slack, monkeypatch):
    """Peak of all arrays, against the ask: never too little, and at most a fifth too much; for tables of eight cells,
    which take less than what is known about them, at most twice as much."""
    noisy, workload = wide(size, attributes)
    method, asked = NonNegative(weights=weights, strict=False), []
    monkeypatch.setattr("margrave.workload.require_memory", lambda needed, *rest, **named: asked.append(needed))
    first = Workload(workload.domain, workload.sets[:2])
    reconstruct(noisy, first, method=method)  # what is compiled or imported is not an array
    tracemalloc.start()
    release = reconstruct(noisy, workload, method=method)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert release.solution.marginals.min() >= 0
    assert asked[-1] / slack <= peak <= asked[-1]


def test_less_is_asked_for_where_arrays_are_elsewhere():
    """In arrays of the workload's size; a table of 10 × 10 × 10 has facets of 0.3, of which there are two buffers."""
    workload = Workload(Domain.fromdict({"a": 10, "b": 10, "c": 10}), [("a", "b", "c")])
    number, paper, auto = (NonNegative(weights=one).arrays_for for one in (2.0, "paper", "auto"))
    assert number(workload) == pytest.approx(1.05 * 3.6)
    assert paper(workload) == pytest.approx(1.05 * 4.6)
    # The rule's own grids take 5.2 MB, however small the tables are.
    assert auto(workload) == auto(workload, workers=True) == pytest.approx(1.05 * 4.6 + 5_200_000 / 8_000)
    assert (number(workload, workers=True), paper(workload, workers=True)) == (2.0, 3.0)
    assert [one(workload, scratch=True) for one in (number, paper, auto)] == [0.0, 1.0, 3.0]

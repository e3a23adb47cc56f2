"""The numbers of a report are those of slow and obvious loops over all tables."""

import math
from fractions import Fraction

import numpy as np
import pytest

import margrave as mg
from margrave.domain import Attribute, Domain
from margrave.measurements import Measurements, Provenance, Step
from margrave.release.publication import reconstruct
from margrave.release.report import statements
from margrave.release.report.findings import Headline, find, headline
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"a": 3, "b": 2, "one": 1, "c": 4})
WORKLOAD = Workload(DOMAIN, [("a", "b"), ("b", "one", "c"), ("c",)])
# Costs of marginals, c²/2σ² with c = 2: they add up to 2.2.
VARIANCES = {("a", "b"): 2.0, ("b", "c"): 4.0, ("c",): 4.0, (): 10.0}
RHO = Fraction(22, 10)


def released(method="lnn", *, rho=RHO, workload=WORKLOAD, adaptive=False, errors=False):
    generator = np.random.default_rng(8)
    tables = [(n, generator.normal(2, 3, [DOMAIN[k].size for k in n]), v) for n, v in VARIANCES.items()]
    record = Provenance(
        mechanism="Gaussian marginals",
        steps=(Step("all", RHO),),
        rho=rho,
        epsilon=50.0,
        delta=1e-9,
        contributions=2,
        sampler="none",
        private=True,
        version="0",
        adaptive=adaptive,
    )
    noisy = Measurements.from_marginals(DOMAIN, tables).with_provenance(record)
    return reconstruct(noisy, workload, method=method, errors=errors)


def tables_of(release, order):
    closure = release.workload.closure if release.method.name in ("mle", "lnn") else release.workload.sets
    return [release.table(*names) for names in closure if len(names) == order]


@pytest.mark.parametrize("method", ["lnn", "mle", "trunc", "trunc+rescale"])
def test_findings_are_those_of_plain_loops(method):
    release = released(method)
    findings = find(release)
    assert [one.order for one in findings.orders] == [0, 1, 2, 3]
    for one in findings.orders:
        tables = tables_of(release, one.order)
        assert one.tables == len(tables)
        assert one.cells == sum(table.values.size for table in tables)
        if not tables:
            assert one.margins is one.negative is one.distance is one.noise is None
            continue
        margins = [1.959963984540054 * table.std_error for table in tables]
        wanted = (min(margins), np.median(margins), max(margins))
        assert (one.margins.smallest, one.margins.median, one.margins.largest) == pytest.approx(wanted, rel=1e-12)
        cells = np.concatenate([table.estimate.ravel() for table in tables])
        values = np.concatenate([table.values.ravel() for table in tables])
        assert one.negative == pytest.approx((cells < 0).mean())
        assert one.negative_sum == pytest.approx(cells[cells < 0].sum() / len(tables))
        assert one.distance is None if method == "mle" else one.distance == pytest.approx(abs(values - cells).mean())
        assert one.noise == pytest.approx(np.mean(margins) / 1.959963984540054 * np.sqrt(2 / np.pi))
    assert findings.undetermined == 0
    assert findings.unbiased_total == pytest.approx(float(release.table().estimate))
    assert findings.total == pytest.approx(float(release.table().values))
    assert findings.total_margin == pytest.approx(1.959963984540054 * release.table().std_error)


def test_the_parts_of_the_budget_add_up_to_the_cost_of_the_measured_tables():
    findings = find(released())
    # The total is measured by itself, and is one cell of each of the other tables.
    costs = {names: 4 / (2 * variance) for names, variance in VARIANCES.items()}
    total = costs[()] + costs["a", "b"] / 6 + costs["b", "c"] / 8 + costs["c",] / 4
    assert findings.orders[0].share == pytest.approx(total / 2.2)
    assert sum(one.share for one in findings.orders) == pytest.approx(1)
    assert findings.remainder == pytest.approx(0, abs=1e-12)


def test_what_went_elsewhere_is_the_remainder():
    assert find(released(rho=2 * RHO)).remainder == pytest.approx(0.5)
    part = find(released(workload=Workload(DOMAIN, [("c",)]), method="mle"))
    assert part.remainder == pytest.approx(1 - sum(one.share for one in part.orders))
    assert part.remainder > 0.3


def test_what_was_measured_again_is_part_of_the_shares_and_no_remainder(tmp_path):
    """The whole budget went into these tables; what their first measurements cost is summed one by one."""
    generator = np.random.default_rng(2)
    codes = generator.integers(0, 3, 3_000)
    table = mg.CodedTable(DOMAIN, {"a": codes, "b": codes // 2, "one": 0 * codes, "c": 3 - codes})
    noisy = mg.adaptive_planner(table, WORKLOAD, mg.Budget.zcdp(rho=0.5), contributions=2)
    again = sum(step.rho for step in noisy.provenance.steps if step.purpose.endswith("measured again"))
    release = reconstruct(noisy, WORKLOAD, method="mle")
    sets, first = release.estimates.layout.sets, release.estimates.precisions
    degrees = [math.prod(1 - 1 / DOMAIN.shape[k] for k in members) for members in sets]
    once = sum(2**2 / 2 * p * degree for p, degree in zip(first, degrees, strict=True)) / 0.5
    release.save(tmp_path / "release")
    for whole in (release, mg.load(tmp_path / "release")):
        findings = find(whole)
        # Noise is rounded up to a variance that can be drawn, by less than a thousandth.
        assert findings.again == pytest.approx(1 - once, rel=1e-3)
        assert findings.again >= again / noisy.provenance.rho - 1e-3  # the total may be measured again before that
        assert sum(one.share for one in findings.orders) == pytest.approx(1, rel=1e-3)
        said = statements.remainder(whole, findings)
        assert said.startswith(f"{statements.percent(findings.again)} of it measured again where the first values")
        assert "does not use" not in said
    part = find(reconstruct(noisy, Workload(DOMAIN, [("c",)]), method="mle"))
    assert part.remainder == pytest.approx(1 - sum(one.share for one in part.orders))
    assert find(released()).again == 0


def test_without_a_record_there_is_no_budget():
    noisy = Measurements.from_marginals(DOMAIN, [(("a", "b"), np.ones((3, 2)), 1.0)])
    findings = find(reconstruct(noisy, Workload(DOMAIN, [("a", "b"), ("a", "c")]), method="mle"))
    assert findings.remainder is None
    assert [one.share for one in findings.orders] == [None, None, None]
    assert findings.undetermined == 1


def test_adaptive_measurements_have_no_margins():
    findings = find(released(adaptive=True))
    assert all(one.margins is None and one.noise is None for one in findings.orders)
    assert findings.total_margin is None


def test_the_margin_of_a_total_measured_by_itself_is_a_whole_number():
    noisy = Measurements.from_marginals(DOMAIN, [((), 40.0, 0.25)], discrete=True)
    findings = find(reconstruct(noisy, Workload(DOMAIN, [()]), method="mle"))
    assert findings.total_margin == 1.0


@pytest.mark.parametrize("method", ["lnn", "mle", "trunc"])
def test_reliable_counts_are_those_of_plain_loops(method):
    release = released(method, errors=True)
    findings = find(release)
    for one in findings.orders:
        tables = tables_of(release, one.order)
        words = np.concatenate([table.reliability().ravel() for table in tables]) if tables else np.array([])
        if not tables:
            assert one.reliability is None
            continue
        assert one.reliability.cells == words.size
        assert one.reliability.reliable == (words == "reliable").sum()
        assert one.reliability.care == (words == "use with care").sum()
        errors = sum(float(table.count_error.sum()) for table in tables)
        assert one.reliability.typical == pytest.approx(errors / sum(float(table.values.sum()) for table in tables))
    pair = release.table("a", "b")
    assert findings.relative[(0, 1)] == pytest.approx(float(pair.count_error.sum() / pair.values.sum()))
    assert findings.larger.keys() == {(1, 2), (1, 3), (2, 3)}
    assert findings.larger[(1, 3)] == findings.relative[(1, 2, 3)]
    assert findings.total_interval == (float(release.table().count_low), float(release.table().count_high))


def test_without_errors_of_counts_the_map_is_that_of_the_estimates():
    release = released()
    findings = find(release)
    assert findings.tables == {}
    assert findings.total_interval is None
    pair = release.table("a", "b")
    assert findings.relative[(0, 1)] == pytest.approx(pair.std_error / pair.estimate.mean())


def town(counts, variance=1.0):
    """Age by work, with another table of the total; missing values are in the last row."""
    domain = Domain([Attribute("age", labels=("young", "old"), missing="?"), Attribute("work", labels=("yes", "no"))])
    noisy = Measurements.from_marginals(domain, [(("age", "work"), np.array(counts, dtype=float), variance)])
    return reconstruct(noisy, Workload.all_kway(domain, 2), errors=True)


def test_the_headline_is_the_group_that_is_furthest_from_everybody():
    release = town([[3_000, 2_000], [1_000, 2_900], [500, 400]])
    found = headline(release, [(0, 1)])
    counts = release.table("age", "work")
    assert (found.group, found.group_label, found.name, found.label) == ("age", "old", "work", "no")
    assert found.share == pytest.approx(counts.values[1, 1] / counts.values[1].sum())
    assert found.overall == pytest.approx(counts.values[:, 1].sum() / counts.values.sum())
    assert (found.count, found.low, found.high) == (
        counts.values[1, 1],
        counts.count_low[1, 1],
        counts.count_high[1, 1],
    )


@pytest.mark.parametrize(
    ("counts", "variance"),
    [
        ([[1_000, 1_000], [1_000, 1_000], [5, 95]], 1.0),  # only missing values stand out
        ([[1_000, 50], [20, 1_000], [0, 0]], 1.0),  # nearly all of a group
        ([[60, 40], [45, 55], [3, 3]], 400.0),  # within the noise
    ],
)
def test_what_is_no_finding_is_no_headline(counts, variance):
    assert headline(town(counts, variance), [(0, 1)]) is None


def test_without_errors_there_is_no_headline():
    assert headline(released(), [(0, 1)]) is None
    assert isinstance(headline(town([[3_000, 2_000], [1_000, 2_900], [500, 400]]), [(0, 1)]), Headline)

"""The numbers of a report are those of slow and obvious loops over all tables."""

from fractions import Fraction

import numpy as np
import pytest

from margrave.domain import Domain
from margrave.measurements import Measurements, Provenance, Step
from margrave.release.publication import reconstruct
from margrave.release.report.findings import find
from margrave.workload import Workload

DOMAIN = Domain.fromdict({"a": 3, "b": 2, "one": 1, "c": 4})
WORKLOAD = Workload(DOMAIN, [("a", "b"), ("b", "one", "c"), ("c",)])
# Costs of marginals, c²/2σ² with c = 2: they add up to 2.2.
VARIANCES = {("a", "b"): 2.0, ("b", "c"): 4.0, ("c",): 4.0, (): 10.0}
RHO = Fraction(22, 10)


def released(method="lnn", *, rho=RHO, workload=WORKLOAD, adaptive=False):
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
    return reconstruct(noisy, workload, method=method)


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

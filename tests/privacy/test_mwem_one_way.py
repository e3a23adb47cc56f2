"""Scalable MWEM with a share for the tables of one attribute: what it costs, what it measures, what it refuses."""

from fractions import Fraction

import pytest
from boundary import DOMAIN, CountsSource, recognisable
from hypothesis import given, settings
from hypothesis import strategies as st

from margrave.errors import PlanError
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.privacy.budget import Budget
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler
from margrave.workload import Workload

PAIRS = Workload.all_kway(DOMAIN, 2)


def measured(workload=PAIRS, *, rho="0.5", rounds=2, contributions=1, **options):
    source, budget = CountsSource(recognisable()), Budget.zcdp(rho=rho)
    return scalable_mwem(source, workload, budget, contributions=contributions, rounds=rounds, **options)


@given(
    st.fractions(min_value="1/1000", max_value=10).filter(lambda rho: rho > 0),
    st.fractions(min_value="1/100", max_value="49/100"),
    st.fractions(min_value="1/100", max_value="1/2"),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=25)
def test_all_shares_together_spend_the_budget_exactly(rho, initial, single, contributions):
    shares = {"initial_share": initial, "one_way_share": single}
    record = measured(rho=rho, contributions=contributions, **shares).provenance
    assert sum(step.rho for step in record.steps) == record.rho == rho
    names = ["total", "table age", "table sex", "table region"]
    assert [step.purpose for step in record.steps[:4]] == names
    assert [step.rho for step in record.steps[:4]] == [rho * initial, *[rho * single / 3] * 3]
    assert {step.rho for step in record.steps[4:]} == {rho * (1 - initial - single) / 4}


def test_every_attribute_of_the_workload_is_measured_and_no_other():
    noisy = measured(Workload(DOMAIN, [("age", "sex")]), rounds=1, one_way_share="1/4")
    assert [noisy.count(name) for name in DOMAIN.attributes] == [2, 2, 0]


def test_the_noise_of_a_table_is_what_its_share_buys():
    noisy = measured(Workload(DOMAIN, [("age",)]), rounds=1, contributions=3, one_way_share="1/4", rho="0.5")
    # One table with ρ/4 = 1/8 and variance 9/(2 · 1/8) = 36, the round's with 0.65/2 ρ = 0.1625 and variance 9/0.325.
    assert noisy.precision("age") == pytest.approx(1 / 36 + 0.325 / 9, rel=1e-15)


def test_without_the_share_nothing_changes():
    draws = [
        measured(entropy=InsecureSeededSource(1), sampler=gaussian_sampler(source=InsecureSeededSource(2)), **options)
        for options in ({}, {"one_way_share": 0})
    ]
    assert (draws[0].values == draws[1].values).all()
    assert [step.purpose for step in draws[0].provenance.steps[:2]] == ["total", "choice of a table, round 1"]


def test_a_workload_of_the_total_alone_has_no_table_of_one_attribute_to_spend_on():
    record = measured(Workload(DOMAIN, [()]), rounds=1, one_way_share="1/4").provenance
    assert [step.rho for step in record.steps] == [Fraction(1, 20), Fraction(9, 40), Fraction(9, 40)]


@pytest.mark.parametrize("share", [-0.1, "9/10", 1])
def test_a_share_that_leaves_nothing_for_the_rounds_is_refused(share):
    with pytest.raises(PlanError) as refusal:
        measured(one_way_share=share)
    assert str(refusal.value) == (
        f"one_way_share is {share!r}; give a number from 0 on that leaves, with initial_share, a part of the budget "
        "for the rounds"
    )

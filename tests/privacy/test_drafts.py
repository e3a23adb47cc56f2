"""Nothing is measured with a domain that was drafted from the table and that nobody has reviewed."""

import pytest
from boundary import DOMAIN, CountsSource, WitnessLedger, recognisable

from margrave.domain import Domain
from margrave.errors import DomainError
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.mechanisms.spending import refuse_draft
from margrave.planning.plan import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

DRAFT = Domain(DOMAIN, draft="read from private data")
REVIEWED = Domain(DOMAIN, draft="read from private data", reviewed=True)
BUDGET = Budget.zcdp(rho=1)


def by_plan(source, domain, **options):
    return measure(plan(Workload.all_kway(domain, 2), BUDGET, contributions=1), source, **options)


def by_rounds(source, domain, **options):
    return scalable_mwem(source, Workload.all_kway(domain, 2), BUDGET, contributions=1, rounds=2, **options)


def by_marginals(source, domain, **options):
    return gaussian_marginals(source, {("age", "sex"): 4}, contributions=1, **options)


@pytest.mark.parametrize("run", [by_plan, by_rounds])
@pytest.mark.parametrize(
    ("planned", "counted"), [(DRAFT, DRAFT), (DRAFT, REVIEWED), (REVIEWED, DRAFT), (DOMAIN, DRAFT)]
)
def test_a_draft_is_refused_before_anything_is_read_or_charged(run, planned, counted):
    events = []
    source = CountsSource(recognisable(), counted, events)
    with pytest.raises(
        DomainError, match=r"^the domain is a draft that was read from private data and not yet reviewed;"
    ):
        run(source, planned, ledger=WitnessLedger(events))
    assert events == []


def test_marginals_of_a_draft_are_refused_too():
    events = []
    with pytest.raises(DomainError, match=r"^the domain is a draft"):
        by_marginals(CountsSource(recognisable(), DRAFT, events), None, ledger=WitnessLedger(events))
    assert events == []


@pytest.mark.parametrize("run", [by_plan, by_rounds, by_marginals])
def test_a_reviewed_draft_is_a_domain_like_any_other(run):
    assert run(CountsSource(recognisable(), REVIEWED), REVIEWED).domain == DOMAIN


def test_the_message_says_what_to_do():
    with pytest.raises(
        DomainError, match=r'check every attribute of it, write "reviewed": true in its file, and plan with'
    ):
        refuse_draft(DRAFT)
    refuse_draft(REVIEWED)
    refuse_draft(DOMAIN)

"""Nothing is measured with a domain that was drafted from the table and that nobody has reviewed."""

import copy
import pickle

import pytest
from boundary import DOMAIN, CountsSource, WitnessLedger, recognisable

from margrave.domain import Attribute, Domain
from margrave.errors import DomainError
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.mechanisms.spending import refuse_draft
from margrave.planning.plans import plan
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
    return gaussian_marginals(source, variances={("age", "sex"): 4}, contributions=1, **options)


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


REBUILT = {
    "a list of its attributes": lambda draft: Domain(list(draft)),
    "some of its attributes": lambda draft: Domain([draft["sex"]]),
    "its attributes by name": lambda draft: Domain([draft[name] for name in reversed(draft.attributes)], "my survey"),
    "one of its attributes beside another": lambda draft: Domain([Attribute("income", size=3), draft["age"]]),
    "a projection": lambda draft: draft.project(["age"]),
    "a list of a projection": lambda draft: Domain(draft.project(["age", "sex"])),
    "a copy": lambda draft: Domain(copy.copy(attribute) for attribute in draft),
    "a deep copy": lambda draft: Domain(copy.deepcopy(list(draft))),
    "a pickle": lambda draft: Domain(list(pickle.loads(pickle.dumps(draft)))),
    "a pickle of its attributes": lambda draft: Domain(pickle.loads(pickle.dumps(tuple(draft)))),
    "its file": lambda draft: Domain(list(Domain.from_json(draft.to_json()))),
    "an empty warning": lambda draft: Domain(draft, draft=""),
}


@pytest.mark.parametrize("rebuild", REBUILT.values(), ids=REBUILT)
def test_a_domain_made_of_a_drafts_attributes_is_a_draft(rebuild):
    rebuilt = rebuild(DRAFT)
    assert rebuilt.unreviewed
    assert rebuilt.draft == DRAFT.draft
    assert Domain.from_json(rebuilt.to_json()).unreviewed
    with pytest.raises(DomainError, match=r"^the domain is a draft"):
        refuse_draft(rebuilt)


@pytest.mark.parametrize("rebuild", REBUILT.values(), ids=REBUILT)
def test_a_domain_made_of_reviewed_attributes_is_none(rebuild):
    assert not rebuild(REVIEWED).unreviewed
    assert not rebuild(Domain(list(DRAFT), reviewed=True)).unreviewed


def test_the_mark_does_not_tell_attributes_or_domains_apart():
    assert list(DRAFT) == list(DOMAIN)
    assert DRAFT == DOMAIN
    assert hash(DRAFT["age"]) == hash(DOMAIN["age"])
    assert repr(DRAFT["age"]) == repr(DOMAIN["age"])
    assert [attribute.draft for attribute in DOMAIN] == [""] * len(DOMAIN), "the original is not marked"

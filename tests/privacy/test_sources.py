"""Whatever counts a private table: its bound on a person's rows is that of the plan, and no word passes for it."""

import pyarrow as pa
import pytest

from margrave import CodedTable
from margrave.data.source import Data, TableSource, open_source
from margrave.domain import Attribute, Domain
from margrave.errors import DataError, LedgerError
from margrave.mechanisms.gaussian_marginals import gaussian_marginals
from margrave.mechanisms.residual_planner import measure
from margrave.mechanisms.scalable_mwem import scalable_mwem
from margrave.planning.plans import plan
from margrave.privacy.budget import Budget
from margrave.workload import Workload

DOMAIN = Domain([Attribute("x", size=2)])
WORKLOAD, BUDGET = Workload(DOMAIN, [("x",)]), Budget.zcdp(rho=1)
TABLE = pa.table({"x": [1] * 50, "p": [7] * 50})
RUNS = {
    "plan": lambda data, **options: measure(plan(WORKLOAD, BUDGET, contributions=1), data, **options),
    "rounds": lambda data, **options: scalable_mwem(data, WORKLOAD, BUDGET, contributions=1, rounds=1, **options),
    "marginals": lambda data, **options: gaussian_marginals(
        data, variances={("x",): 4}, contributions=1, domain=DOMAIN, **options
    ),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_table_opened_for_other_contributions_is_refused(run):
    opened = open_source(Data(TABLE, privacy_id="p"), DOMAIN, contributions=50)
    assert opened.contributions == 50
    text = "^the table was opened for 50 rows of one person and is to be measured for 1; open it for as many, or give"
    with pytest.raises(DataError, match=text):
        run(opened)
    same = open_source(Data(TABLE, privacy_id="p"), DOMAIN, contributions=1)
    assert run(same).provenance.contributions_bounded == "enforced"


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_only_a_table_of_ours_can_say_that_it_enforced_anything(run):
    class Boasting(CodedTable):
        contributions_bounded = "enforced"

    class Idle(TableSource):
        def count(self, layout):
            return CodedTable(DOMAIN, {"x": [1] * 50}).count(layout)

    assert run(Boasting(DOMAIN, {"x": [1] * 50})).provenance.contributions_bounded == "declared"
    idle = Idle(Data(TABLE, privacy_id="p"), DOMAIN, contributions=1)
    assert run(idle).provenance.contributions_bounded == "declared"


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_what_is_no_ledger_is_refused_before_anything_is_read(run):
    class NoLedger:
        def check(self, budget):
            return True

        def charge(self, budget, purpose):
            raise OSError

    with pytest.raises(LedgerError, match=r"^expected a Ledger, got a NoLedger; give Ledger\(path, cap=…\)$"):
        run(TABLE, ledger=NoLedger())

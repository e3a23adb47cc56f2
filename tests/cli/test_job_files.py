"""Job files and the command line over them: every key, every slip, and what overrides what."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from margrave.domain import Domain
from margrave.errors import BudgetRefusedError, DataError, JobError, LedgerError, PlanError
from margrave.job import Job
from margrave.privacy.budget import Budget

DOMAIN = Domain.fromdict({"age": 3, "sex": 2, "region": 4})


def written(tmp_path, text):
    file = tmp_path / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_job_file_is_read_with_paths_from_its_own_folder(tmp_path):
    text = 'data = "people.csv"\ndomain = "d.json"\nkway = 2\nepsilon = 1\ndelta = 1e-9\nprivacy-id = "person"\n'
    job = Job.read(written(tmp_path, text))
    assert job.data == str(tmp_path / "people.csv")
    assert job.domain == str(tmp_path / "d.json")
    assert (job.kway, job.epsilon, job.delta, job.privacy_id, job.out) == (2, 1, 1e-9, "person", None)


def test_a_url_and_an_absolute_path_stay_as_they_are(tmp_path):
    text = 'data = "postgresql://host/db"\ndomain = "/d.json"\n'
    job = Job.read(written(tmp_path, text))
    assert (job.data, job.domain) == ("postgresql://host/db", "/d.json")


def test_the_command_line_overrides_the_file(tmp_path):
    file = written(tmp_path, "kway = 3\nepsilon = 1.0\ndelta = 1e-9\ncontributions = 4\n")
    job = Job.of(file, {"up_to": 2, "rho": 0.5, "contributions": None})
    assert (job.kway, job.up_to, job.epsilon, job.rho, job.contributions) == (None, 2, None, 0.5, 4)
    assert Job.of(file, {}).kway == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilonn = 1\n", "unknown key 'epsilonn'; did you mean 'epsilon'?"),
        ('kway = "three"\n', "kway = 'three'; give a whole number"),
        ("kway = true\n", "kway = True; give a whole number"),
        ('epsilon = "1"\n', "epsilon = '1'; give a number"),
        ("csv = 1\n", "csv = 1; give true or false"),
        ("title = 3\n", "title = 3; give a text"),
        ('tables = "age"\n', "tables = 'age'; give a list"),
        ('tables = ["age"]\n', "'age' in tables; write each table as a list of names"),
        ("tables = [[1]]\n", "[1] in tables"),
        ("kway = \n", "is not TOML in UTF-8"),
        ("[budget]\nepsilon = 1\n", "unknown key 'budget'"),
    ],
)
def test_slips_in_a_job_file_are_named(tmp_path, text, message):
    with pytest.raises(JobError) as caught:
        Job.read(written(tmp_path, text))
    assert message in str(caught.value)
    assert "job.toml" in str(caught.value)


URL = "postgresql://user:secret@db.example/survey"


@pytest.mark.parametrize(
    "text", [f'data = ["{URL}"]\n', f'kway = "{URL}"\n', f'tables = ["{URL}"]\n', f'"{URL}" = 1\n', f"{URL}\n"]
)
def test_a_slip_in_a_job_file_shows_no_password(tmp_path, text):
    with pytest.raises(JobError) as caught:
        Job.read(written(tmp_path, text))
    assert "secret" not in str(caught.value)
    assert "job.toml" in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"cap_rho": 1.0}, {"cap_rho": 1.0, "rho": 2.0}])
def test_a_url_is_no_ledger_and_its_password_is_not_shown(tmp_path, more):
    job = replace(Job.read(written(tmp_path, f'ledger = "{URL}"\n')), **more)
    with pytest.raises(
        LedgerError, match=r"^the ledger is given as a URL, and it is a file on this machine; give its path$"
    ):
        job.open_ledger()


def test_a_job_says_whether_its_query_is_published(tmp_path):
    text = 'data = "people.duckdb"\nquery = "SELECT 1 AS x"\n'
    assert not Job.read(written(tmp_path, text)).source().publish_query
    assert Job.read(written(tmp_path, text + "publish-query = true\n")).source().publish_query
    with pytest.raises(DataError, match=r"^publish_query \(--publish-query\) is given without a query; give query=…"):
        Job.read(written(tmp_path, 'data = "people.csv"\npublish-query = true\n')).source()


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(JobError, match="cannot be read"):
        Job.read(tmp_path / "none.toml")
    (tmp_path / "job.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(JobError, match="not UTF-8 at byte 0"):
        Job.read(tmp_path / "job.toml")


def test_an_option_that_is_needed_and_missing():
    with pytest.raises(JobError, match=r"--out is missing; give it on the command line, or out = … in a job file"):
        Job().need("out")
    with pytest.raises(JobError, match=r"the private table \(DATA\) is missing"):
        Job().source()


@pytest.mark.parametrize("options", [{}, {"kway": 2, "up_to": 2}, {"kway": 2, "tables": (("age",),)}])
def test_the_tables_are_said_in_one_way(options):
    with pytest.raises(JobError, match="choose the tables by one of --kway K, --up-to K and --tables age,sex"):
        Job(**options).workload(DOMAIN)


def test_workloads():
    assert len(Job(kway=2).workload(DOMAIN)) == 3
    assert len(Job(up_to=1).workload(DOMAIN)) == 4
    assert Job(tables=(("sex", "age"),)).workload(DOMAIN).sets == (("age", "sex"),)
    assert Job(kway=2, max_cells=8).workload(DOMAIN).sets == (("age", "sex"), ("sex", "region"))
    with pytest.raises(PlanError):
        Job(kway=9).workload(DOMAIN)


def test_budgets():
    assert Job(epsilon=1.0, delta=1e-9).budget() == Budget.approx(epsilon=1.0, delta=1e-9)
    assert Job(rho=0.5).budget().rho == Fraction(1, 2)
    assert Job(rho=0.5, delta=1e-6).budget().delta == 1e-6
    with pytest.raises(JobError, match="neither of --epsilon and --rho given"):
        Job().budget()
    with pytest.raises(JobError, match="both of --epsilon and --rho given"):
        Job(epsilon=1.0, rho=1.0).budget()
    with pytest.raises(JobError, match="--epsilon needs --delta as well"):
        Job(epsilon=1.0).budget()
    with pytest.raises(PlanError):
        Job(rho=-1.0).budget()


def test_a_ledger_begins_with_a_cap_and_goes_on_without(tmp_path):
    file = str(tmp_path / "people.ledger")
    assert Job().open_ledger() is None
    with pytest.raises(JobError, match="there is no ledger"):
        Job(ledger=file).open_ledger()
    begun = Job(ledger=file, cap_rho=0.5, title="Survey", out="out").open_ledger()
    assert (begun.cap, Path(file).exists()) == (Fraction(1, 2), False)
    assert dict(begun.charge("0.1", "x").details) == {"title": "Survey", "release": str(Path("out").absolute())}
    assert Job(ledger=file).open_ledger().cap == Fraction(1, 2)
    with pytest.raises(LedgerError, match="a cap is fixed when a ledger is created"):
        Job(ledger=file, cap_rho=0.6).open_ledger()
    with pytest.raises(JobError, match="a cap is given and no ledger"):
        Job(cap_rho=0.5).open_ledger()
    with pytest.raises(JobError, match="--ledger-any-domain is given and no ledger; name its file with --ledger"):
        Job(ledger_any_domain=True).open_ledger()
    with pytest.raises(JobError, match="--cap-epsilon needs --delta"):
        Job(ledger=file, cap_epsilon=1.0).open_ledger()


def test_a_budget_above_the_cap_begins_no_ledger(tmp_path):
    file = tmp_path / "people.ledger"
    with pytest.raises(BudgetRefusedError, match="no ledger was created and nothing was read: ask for less"):
        Job(ledger=str(file), cap_rho=0.5, rho=0.6).open_ledger()
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a." * 3000 + "a = 1", "it has more than 2,000 full stops"),
        ("a = " + "[" * 100_000, "is not TOML"),
        ("a = " + "1" * 100_000, "is not TOML"),
        ("# long\n" * 50_000, "larger than 262,144 bytes; give a smaller file"),
    ],
    ids=["dots", "lists", "digits", "long"],
)
def test_a_job_file_is_read_within_limits(tmp_path, text, message):
    with pytest.raises(JobError, match=message):
        Job.read(written(tmp_path, text))

"""Weights, targets and budgets on the command line and in job files; two plans side by side."""

import json

import pytest

import margrave as mg
from margrave.cli.app import run
from margrave.job import Job

DOMAIN = mg.Domain.fromdict({"age": 6, "sex": 2, "region": 9, "work": 5})
# Errors of the objective "counts" can be predicted for a stated number of rows only.
STATIC = ("--objective", "nonnegative")


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "domain.json"
    DOMAIN.write(path)
    return ["plan", "--domain", str(path), "--epsilon", "1", "--delta", "1e-9", "--contributions", "1"]


def shown(words, capsys, code=0):
    assert run(words) == code
    streams = capsys.readouterr()
    return streams.out if code == 0 else streams.err


def test_weights_and_targets_show_the_margins_of_their_tables(words, capsys):
    steered = ["--kway", "3", "--weight", "sex=20", "--weight", "age,work=5", "--target", "total=20"]
    document = json.loads(shown([*words, *steered, "--json"], capsys))
    margins = {tuple(one["attributes"]): one["margin"] for one in document["margins"]}
    assert set(margins) == {("sex",), ("age", "work"), ()}
    assert margins[()] <= 20
    assert "total: ± " in shown([*words, *steered], capsys)


def test_up_to_plans_small_tables_as_tables(words, capsys):
    margin = ["--margin", "age", "--json"]
    alone = json.loads(shown([*words, *STATIC, "--kway", "3", *margin], capsys))["margins"][0]["margin"]
    together = json.loads(shown([*words, *STATIC, "--up-to", "3", *margin], capsys))["margins"][0]["margin"]
    assert together < 0.9 * alone


def test_two_plans_side_by_side(words, capsys, tmp_path):
    page = shown(
        [*words, *STATIC, "--kway", "3", "--compare-with", "objective=total_variance", "--margin", "age"], capsys
    )
    assert "objective=total_variance" in page
    assert "2 attributes" in page
    job = tmp_path / "other.toml"
    job.write_text(
        'domain = "domain.json"\nup-to = 2\nepsilon = 2.0\ndelta = 1e-9\ncontributions = 1\n'
        'objective = "nonnegative"\n[weight]\n"age,sex" = 3\n',
        encoding="utf-8",
    )
    document = json.loads(shown([*words, *STATIC, "--kway", "2", "--compare-with", str(job), "--json"], capsys))
    rows = document["compared"]
    assert [row["tables"] for row in rows] == ["0 attributes", "1 attribute", "2 attributes"]
    assert all(row["other_error"] < row["error"] for row in rows)


def test_the_other_plan_may_ask_for_other_tables(words, capsys):
    document = json.loads(shown([*words, *STATIC, "--kway", "2", "--compare-with", "up-to=2", "--json"], capsys))
    assert document["compared"][1]["other_error"] < document["compared"][1]["error"]


def test_the_budget_for_a_margin(words, capsys):
    document = json.loads(shown([*words, "--kway", "2", "--budget-for", "age,sex=15", "--json"], capsys))
    budget = mg.Budget.zcdp(rho=document["rho"])
    made = mg.plan(mg.Workload.all_kway(DOMAIN, 2), budget, contributions=1)
    assert 15 * (1 - 1e-4) <= made.margin_of_error("age", "sex") <= 15 * (1 + 1e-9)
    assert "--rho" in shown([*words, "--kway", "2", "--budget-for", "age,sex=15"], capsys)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--weight", "age"], "--weight is 'age'; give a table and a number, as in --weight age,sex=5"),
        (["--weight", "age=x"], "--weight is 'age=x'; give a table and a number, as in --weight age,sex=5"),
        (["--weight", "agee=2"], "no attribute 'agee' in the domain; did you mean 'age'?"),
        (["--weight", "age=-2"], "a weight is -2.0; give a positive finite number"),
        (["--target", "age=0.001"], "no plan within"),
        (["--target", "age=9", "--objective", "counts"], "--target is given for the objective counts"),
        (["--target", "age=9", "--mechanism", "marginals"], "only the mechanism planner plans for margins"),
        (["--budget-for", "age=9", "--mechanism", "marginals"], "no budget can be found for the mechanism marginals"),
        ([*STATIC, "--compare-with", "objektive=x"], "unknown key 'objektive'; did you mean 'objective'?"),
        ([*STATIC, "--compare-with", "kway=x"], "--compare-with has kway = 'x'; give a whole number"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(words, capsys, more, message):
    assert message in shown([*words, "--kway", "2", *more], capsys, code=2)


def test_numbers_by_table_in_a_job_file(tmp_path, capsys):
    path = tmp_path / "job.toml"
    path.write_text('kway = 2\nweight = {sex = 20, "age,sex" = 5}\n[target]\ntotal = 9.5\n', encoding="utf-8")
    job = Job.read(path)
    assert job.weight == {("sex",): 20, ("age", "sex"): 5}
    assert job.target == {("total",): 9.5}
    assert "--weight" in Job.of(path, {"out": "x"}).reconstruct_words()
    path.write_text('weight = {sex = "much"}\n', encoding="utf-8")
    assert run(["plan", "--job", str(path)]) == 2
    assert "give a number for each table" in capsys.readouterr().err


def test_an_attribute_called_total_is_that_attribute(tmp_path):
    domain = mg.Domain.fromdict({"total": 3, "sex": 2})
    path = tmp_path / "job.toml"
    path.write_text("kway = 2\nweight = {total = 7}\n", encoding="utf-8")
    assert ("total",) in Job.read(path).workload(domain)
    assert () in Job.read(path).workload(DOMAIN)


def test_targets_hold_with_the_objective_counts_for_a_stated_number_of_rows(words, capsys):
    counts = ["--kway", "3", "--objective", "counts", "--target", "age,sex=25"]
    document = json.loads(shown([*words, *counts, "--rows", "4000", "--json"], capsys))
    (margin,) = document["margins"]
    assert margin["margin"] <= 25
    told = shown([*words, *counts], capsys, code=2)
    assert "--target is given for the objective counts without --rows" in told

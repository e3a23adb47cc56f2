"""A job run in Python: what the command line does, the measurements kept, and the same sentences when it fails."""

import signal
from dataclasses import replace

import numpy as np
import pytest

import margrave as mg
from margrave.errors import InterruptionError, JobError, StoreError
from margrave.release.store import saving

DOMAIN = mg.Domain.fromdict({"age": 3, "sex": 2, "region": 4})
FILE = """
data = "people.csv"
domain = "domain.json"
kway = 2
rho = 0.4
contributions = 1
ledger = "people.ledger"
cap-rho = 1.0
out = "release"
report = false
errors = false
"""


@pytest.fixture
def job(tmp_path):
    codes = np.random.default_rng(0).integers(0, DOMAIN.shape, (300, 3))
    lines = ["age,sex,region", *(",".join(map(str, row)) for row in codes.tolist())]
    (tmp_path / "people.csv").write_text("\n".join(lines))
    DOMAIN.write(tmp_path / "domain.json")
    (tmp_path / "job.toml").write_text(FILE)
    return mg.Job.read(str(tmp_path / "job.toml"))


def fail(*_, **__):
    raise StoreError("the disk is full", remedy="free some space")


def test_a_job_measures_charges_and_writes(job, tmp_path):
    stages, notes = [], []
    release = job.run(progress=lambda stage: stages.append(stage) or (lambda *_: None), notify=notes.append)
    assert {"counting", "measuring", "reconstructing", "writing"} <= set(stages)
    saved = mg.load(tmp_path / "release")
    assert np.array_equal(saved.table("age", "sex").values, release.table("age", "sex").values)
    (entry,) = mg.Ledger(tmp_path / "people.ledger").entries()
    assert entry.rho == release.provenance.rho == mg.Budget.zcdp(rho=0.4).rho
    assert not list(tmp_path.glob("*.npz"))


def test_preparing_reads_and_charges_nothing(job, tmp_path):
    (tmp_path / "people.csv").unlink()
    prepared = job.prepare()
    assert prepared.begins_ledger
    assert prepared.ledger_note().startswith(f"ledger: a new ledger is created, {tmp_path / 'people.ledger'}, with the")
    assert prepared.kept.path is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["domain.json", "job.toml"]


def test_a_ledger_that_exists_needs_no_note(job):
    job.run()
    assert replace(job, overwrite=True).prepare().ledger_note() is None
    assert replace(job, overwrite=True, ledger=None, cap_rho=None).prepare().ledger_note() is None


def test_a_job_that_cannot_be_run_is_refused_before_anything_is_read(job, tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "mine.txt").touch()
    with pytest.raises(StoreError, match=r"release"):
        job.prepare()
    with pytest.raises(JobError, match=r"^--out is missing; give it on the command line, or out = … in a job file$"):
        replace(job, out=None).prepare()


def test_measurements_that_are_paid_for_outlive_an_error_and_make_the_release(job, tmp_path, monkeypatch):
    prepared = job.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saving, "_write_tables", fail)
        with pytest.raises(StoreError) as caught:
            prepared.run()
    kept = prepared.kept.path
    assert kept.is_file()
    assert caught.value.problem == "the disk is full"
    continuation = f"the measurements are paid for and kept in {kept}; to continue from them at no cost: margrave"
    assert caught.value.remedy.startswith(f"free some space; {continuation} reconstruct ")
    with pytest.raises(mg.MargraveError, match="the measurements of a run that did not finish"):
        job.prepare()
    noisy = job.read_measurements([kept])
    release = job.publish(noisy)
    assert np.array_equal(mg.load(tmp_path / "release").marginals, release.marginals)
    assert len(mg.Ledger(tmp_path / "people.ledger").entries()) == 1


def test_an_error_before_the_charge_says_nothing_of_measurements(job, tmp_path):
    (tmp_path / "people.csv").write_text("age,sex\n0,1\n")
    with pytest.raises(mg.MargraveError) as caught:
        job.run()
    assert "paid for" not in str(caught.value)
    assert not (tmp_path / "people.ledger").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_says_what_was_charged_and_how_to_continue(job, monkeypatch, number):
    prepared = job.prepare()
    monkeypatch.setattr(saving, "_write_tables", lambda *_: signal.raise_signal(number))
    with pytest.raises(InterruptionError, match="is charged; the measurements are paid for"):
        prepared.run()
    assert prepared.kept.path.is_file()


def test_an_interruption_before_the_charge_costs_nothing(job, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("margrave.data.source.TableSource.count", interrupted)
    with pytest.raises(InterruptionError, match=r"^interrupted; nothing was charged$"):
        job.run()


def test_errors_are_predicted_without_data_where_a_plan_is_made_before(job, tmp_path):
    (tmp_path / "people.csv").unlink()
    assert job.predict() is None
    expected = replace(job, rows=300).predict()
    planned = replace(job, mechanism="planner", mechanism_options={"objective": "nonnegative"}).predict()
    assert expected.standard_error("age", "sex") > 0
    by_hand = mg.plan(mg.Workload.all_kway(DOMAIN, 2), mg.Budget.zcdp(rho=0.4), contributions=1)
    assert planned.standard_error("age", "sex") == pytest.approx(by_hand.standard_error("age", "sex"))


def test_the_budget_for_margins_is_that_of_the_hardest(job):
    found = job.budget_for({("age", "sex"): 20.0, ("region",): 50.0})
    workload = mg.Workload.all_kway(DOMAIN, 2)
    by_hand = [
        mg.budget_for_margin(workload, attributes=names, margin=margin, contributions=1).rho
        for names, margin in ((("age", "sex"), 20.0), (("region",), 50.0))
    ]
    assert found.rho == max(by_hand)
    with pytest.raises(mg.MargraveError, match="no budget can be found for the mechanism mwem; leave out"):
        replace(job, mechanism="mwem").budget_for({("age",): 1.0})


def test_noisy_tables_need_a_domain_and_no_other_files(job, tmp_path):
    with pytest.raises(JobError, match="noisy tables need their domain; give its file with --domain"):
        replace(job, domain=None).read_measurements([tmp_path / "age.csv"])
    with pytest.raises(JobError, match=r"an \.npz file or a folder is given with other files; give it alone"):
        job.read_measurements([tmp_path / "age.csv", tmp_path / "kept.npz"])

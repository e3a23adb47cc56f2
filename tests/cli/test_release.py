"""``margrave release`` and what follows it, as whole runs of the command: from a CSV file to a publication."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from command_line import command

import margrave as mg
from margrave.privacy.ledger import Ledger

DOMAIN = mg.Domain(
    [
        mg.Attribute("âge", cuts=(17, 64)),
        mg.Attribute("sex", labels=("female", "male")),
        mg.Attribute("région", labels=("Île-de-France", "日本", "north")),
        mg.Attribute("health", labels=("good", "poor"), missing="not stated"),
    ],
    description="a survey",
)
ROWS = [
    (str(i % 90), ("female", "male")[i % 2], ("Île-de-France", "日本", "north")[i % 3], ("good", "", "poor")[i % 3])
    for i in range(600)
]
OPTIONS = ("--kway", "2", "--epsilon", "1", "--delta", "1e-9", "--contributions", "1")


def process(*words, folder, **options):
    """As `command`, by a process of its own."""
    line = [sys.executable, "-m", "margrave", *map(str, words)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, encoding="utf-8", **options)


def write_table(folder, name="people.csv", end="\n"):
    lines = [",".join(row) for row in [("âge", "sex", "région", "health"), *ROWS]]
    (folder / name).write_bytes((end.join(lines) + end).encode())


@pytest.fixture
def survey(tmp_path):
    write_table(tmp_path)
    DOMAIN.write(tmp_path / "domain.json")
    return tmp_path


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A finished release with a ledger; not to be changed."""
    folder = tmp_path_factory.mktemp("published")
    write_table(folder)
    DOMAIN.write(folder / "domain.json")
    done = release(folder, "--ledger", "people.ledger", "--cap-epsilon", "1.2", "--csv")
    assert done.returncode == 0, done.stderr
    return folder


def words_of(*more, data="people.csv", out="release"):
    return ("release", data, "--domain", "domain.json", *OPTIONS, "--out", out, *more)


def release(folder, *more, **options):
    return command(*words_of(*more, **options), folder=folder)


def test_a_release_from_a_csv_file(published):
    released = mg.load(published / "release")
    assert len(released.workload) == 6
    assert released.provenance.private
    assert released.provenance.contributions_bounded == "declared"
    assert released.table("région").to_pandas()["région"].tolist() == ["Île-de-France", "日本", "north"]
    assert (released.table("âge", "health").values >= 0).all()
    assert Ledger(published / "people.ledger").spent == released.provenance.rho
    assert not list(published.glob("*.measurements.npz"))
    assert (published / "release" / "report.html").stat().st_size > 10_000
    assert len(list((published / "release" / "tables").glob("*.csv"))) == 6


def test_nothing_goes_to_standard_error_and_the_screen_says_where_to_look(survey):
    done = process(*words_of("--no-report"), folder=survey)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 tables in release" in done.stdout
    assert "No ledger was named" in done.stdout


def test_json_for_programs(survey):
    done = release(survey, "--no-report", "--json")
    result = json.loads(done.stdout)
    assert (result["folder"], result["tables"], result["method"], result["report"]) == ("release", 6, "lnn", None)
    assert result["epsilon"] == 1.0


def test_bounds_of_reliability_are_options(survey):
    done = release(survey, "--no-report", "--reliable", "0.01", "--care", "0.02", "--reliable-within", "0")
    assert done.returncode == 0, done.stderr
    strict = mg.load(survey / "release").table("sex")
    assert strict.reliability().tolist() == strict.bounds.judge(strict.values, strict.count_error).tolist()
    assert (strict.bounds.reliable, strict.bounds.care, strict.bounds.floor) == (0.01, 0.02, 0)
    refused = release(survey, "--reliable", "0.5", "--care", "0.2", out="other")
    assert refused.returncode == 2
    assert "the bounds are 0.5, 0.2, 1" in refused.stderr


def test_a_job_file_does_the_same_and_options_override_it(survey):
    text = 'data = "people.csv"\ndomain = "domain.json"\nkway = 2\nepsilon = 1.0\ndelta = 1e-9\ncontributions = 1\n'
    (survey / "job.toml").write_text(text + 'out = "from-job"\nreport = false\n', encoding="utf-8")
    assert command("release", "--job", "job.toml", folder=survey).returncode == 0
    assert len(mg.load(survey / "from-job").workload) == 6
    done = command("release", "--job", "job.toml", "--kway", 1, "--method", "mle", "--out", "second", folder=survey)
    assert done.returncode == 0
    second = mg.load(survey / "second")
    assert (len(second.workload), second.method.name) == (4, "mle")


def test_the_text_of_a_query_is_in_the_ledger_and_is_published_only_if_asked_for(survey):
    import duckdb

    with duckdb.connect(str(survey / "people.duckdb")) as database:
        rows = f"read_csv('{survey / 'people.csv'}')"
        database.execute(f"CREATE TABLE people AS SELECT *, row_number() OVER () % 400 AS person FROM {rows}")
    query = "SELECT *\nFROM people -- all of 'them'"
    asked = ["--query", query, "--privacy-id", "person", "--kway", 1, "--method", "mle", "--no-report"]
    ledger = ["--ledger", "people.ledger", "--cap-epsilon", 5]
    done = release(survey, *asked, *ledger, data="people.duckdb")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "margrave counted at most one row of each person in the query's result (enforced before counting)"
        in done.stdout
    )
    record = mg.load(survey / "release").provenance
    assert (record.queried, record.query, record.contributions_bounded) == (True, None, "enforced")
    assert not any(b"all of 'them'" in file.read_bytes() for file in (survey / "release").rglob("*") if file.is_file())
    assert release(survey, *asked, *ledger, "--publish-query", data="people.duckdb", out="told").returncode == 0
    assert mg.load(survey / "told").provenance.query == query
    assert [entry.details["query"] for entry in Ledger(survey / "people.ledger").entries()] == [query, query]


def test_windows_line_ends_make_no_difference(survey):
    write_table(survey, "windows.csv", end="\r\n")
    done = release(survey, "--no-report", "--epsilon", "100000", data="windows.csv")
    assert done.returncode == 0, done.stderr
    # So much budget that the noise is far below one person.
    assert mg.load(survey / "release").table("sex").values.round().tolist() == [300, 300]


def test_the_plan_opens_no_data(survey):
    (survey / "people.csv").unlink()
    done = command(
        "plan", "--domain", "domain.json", *OPTIONS, "--rows", "600", "--margin", "âge,sex", "--json", folder=survey
    )
    plan = json.loads(done.stdout)
    assert (plan["tables"], plan["epsilon"], plan["errors_are"]) == (
        6,
        1.0,
        "standard errors of the unbiased estimates",
    )
    assert plan["margins"][0]["margin"] > 0
    assert (
        "± "
        in command(
            "plan", "--domain", "domain.json", *OPTIONS, "--rows", "600", "--margin", "âge", folder=survey
        ).stdout
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epsilon", "-1"), "epsilon"),
        (("--kway", "9"), "k is 9"),
        (("--tables", "âge,sexe", "--kway", "1"), "choose the tables by one of"),
        (("--method", "best"), "no method 'best'"),
        (("--objective", "best"), "no objective 'best'"),
        (("--domain", "none.json"), "none.json cannot be read"),
        (("--contributions", "0"), "contributions"),
        (("--ledger", "new.ledger"), "there is no ledger new.ledger"),
        (("--privacy-id", "person"), "person"),
        (("--counting", "guess"), "no counting 'guess'"),
        (("--table", "people"), "table"),
        (("--out", "no/such/release"), "is not a folder"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(survey, words, message):
    before = sorted(path.name for path in survey.iterdir())
    done = release(survey, *words)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert sorted(path.name for path in survey.iterdir()) == before


def test_a_table_that_does_not_fit_is_refused_and_nothing_is_charged(survey):
    (survey / "people.csv").write_text("âge,sex,région,health\n3,secret-value,north,good\n", encoding="utf-8")
    done = release(survey, "--ledger", "people.ledger", "--cap-rho", "1")
    assert done.returncode == 2
    assert "secret-value" not in done.stderr + done.stdout
    assert "'sex'" in done.stderr
    assert not (survey / "people.ledger").exists()


def test_an_existing_folder_is_refused_before_anything_is_spent(published):
    spent = Ledger(published / "people.ledger").spent
    done = release(published, "--ledger", "people.ledger")
    assert done.returncode == 2
    assert "already exists" in done.stderr
    assert Ledger(published / "people.ledger").spent == spent


def test_overwrite_replaces_a_release_and_nothing_else(survey):
    assert release(survey, "--no-report").returncode == 0
    assert release(survey, "--no-report", "--overwrite", "--kway", "1").returncode == 0
    assert len(mg.load(survey / "release").workload) == 4
    (survey / "precious").mkdir()
    (survey / "precious" / "letter.txt").write_text("dear", encoding="utf-8")
    done = release(survey, "--overwrite", out="precious")
    assert done.returncode == 2
    assert (survey / "precious" / "letter.txt").read_text(encoding="utf-8") == "dear"


def test_workers_and_a_folder_for_large_arrays(survey):
    """Two processes make and write the tables of a job; what is in them is not changed by who made them."""
    pytest.importorskip("distributed")
    lines = ['data = "people.csv"', 'domain = "domain.json"', "kway = 2", "epsilon = 1", "delta = 1e-9"]
    lines += ["contributions = 1", 'out = "release"', "workers = 2", 'scratch = "."', "report = false"]
    (survey / "job.toml").write_text("\n".join(lines), encoding="utf-8")
    done = command("release", "--job", "job.toml", folder=survey)
    assert (done.returncode, done.stderr) == (0, "")
    again = command("reconstruct", "release", "--kway", "2", "--out", "again", "--no-report", folder=survey)
    assert again.returncode == 0, again.stderr
    one, other = mg.load(survey / "release"), mg.load(survey / "again")
    assert abs(one.marginals - other.marginals).max() <= 1e-12 * one.marginals[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "0"), "workers is 0; give a number of processes from 1 to 1,024"),
        (("--workers", "host:8786"), "workers is 'host:8786'; give a number"),
        (("--workers", "2", "--method", "mle"), "method 'mle' does not use workers; leave out --workers"),
        (("--scratch", "nowhere"), "nowhere is not a folder that can be written to"),
    ],
)
def test_workers_that_cannot_be_are_refused_before_the_charge(survey, words, message):
    done = release(survey, "--ledger", "people.ledger", "--cap-epsilon", "1.2", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (survey / "people.ledger").exists()


def test_a_spent_budget_is_exit_code_3(published):
    done = release(published, "--ledger", "people.ledger", out="again")
    assert done.returncode == 3
    assert "nothing was read or charged" in done.stderr
    assert not (published / "again").exists()


def test_a_name_that_is_too_long_for_the_measurements_is_refused_before_the_charge(survey):
    done = release(survey, "--ledger", "people.ledger", "--cap-rho", "1", out="o" * 245)
    assert (done.returncode, "is too long for a file" in done.stderr) == (2, True)
    assert not (survey / "people.ledger").exists()
    assert "already exists" in release(survey, out=".").stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused_before_the_charge(survey):
    locked = survey / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    done = release(survey, "--ledger", "people.ledger", "--cap-rho", "1", out="locked/release")
    assert done.returncode == 2
    assert not (survey / "people.ledger").exists()


def test_a_full_disk_leaves_no_half_release_and_keeps_what_was_paid_for(survey):
    """A file-size limit between the kept measurements and the report: writing fails after the charge."""
    words = words_of("--ledger", "people.ledger", "--cap-rho", "1")
    limit = (100_000, 100_000)
    done = process(*words, folder=survey, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "margrave reconstruct release.measurements.npz --kway 2 --method lnn --out release" in done.stderr
    assert not (survey / "release").exists()
    assert len(Ledger(survey / "people.ledger").entries()) == 1
    kept = survey / "release.measurements.npz"
    assert kept.exists()
    again = release(survey, "--ledger", "people.ledger")
    assert again.returncode == 2
    assert "they are paid for" in again.stderr
    done = command("reconstruct", kept, "--domain", "domain.json", "--kway", 2, "--out", "release", folder=survey)
    assert done.returncode == 0, done.stderr
    assert mg.load(survey / "release").provenance.private


@pytest.mark.parametrize("delay", [0.2, 0.8, 1.5, 2.5, 4.0])
def test_ctrl_c_at_any_moment_leaves_nothing_half_written_and_charges_at_most_once(survey, delay):
    words = ["release", "people.csv", "--domain", "domain.json", *OPTIONS, "--out", "release"]
    words += ["--ledger", "people.ledger", "--cap-rho", "1"]
    line = [sys.executable, "-m", "margrave", *words]
    with subprocess.Popen(line, cwd=survey, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        time.sleep(delay)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    # While Python itself starts, Ctrl-C ends it with a trace of its own; nothing of ours runs then.
    assert running.returncode in (0, 130, 1, -signal.SIGINT), errors
    charged = len(Ledger(survey / "people.ledger").entries()) if (survey / "people.ledger").exists() else 0
    assert charged <= 1
    if (survey / "release").exists():
        assert len(mg.load(survey / "release").workload) == 6
    assert not [path for path in survey.iterdir() if "draft" in path.name]


def test_query_answers_from_the_folder(published):
    done = command("query", "release", "âge > 64 and sex = 'female'", "--json", folder=published)
    answer = json.loads(done.stdout)
    assert len(answer["rows"]) == 1
    assert answer["rows"][0]["std_error"] > 0
    shown = command("query", "release", "--by", "région", folder=published).stdout
    assert "日本" in shown
    share = command("query", "release", "sex = 'male'", "--share-of", "âge <= 17", "--json", folder=published)
    assert json.loads(share.stdout)["of"] == "âge <= 17"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("query", "nowhere"), "nowhere"),
        (("query", "release", "sexe = 'male'"), "sexe"),
        (("query", "release", "sex ="), "sex"),
        (("query", "release", "--by", "âge,sex,région"), "no table of this release covers"),
        (("query", "release", "--level", "2"), "level"),
        (("report", "nowhere"), "nowhere"),
        (("export", "release", "--out", "domain.json"), "already exists"),
        (("export", "release", "--form", "sdmx", "--out", "x.csv"), "--agency"),
        (("ledger", "nowhere.ledger"), "nowhere.ledger"),
        (("reconstruct", "none.csv", "--domain", "domain.json", "--kway", "1", "--out", "x"), "none.csv"),
    ],
)
def test_wrong_input_of_the_other_commands(published, words, message):
    done = command(*words, folder=published)
    assert done.returncode == 2
    assert (done.stderr.startswith("error: "), done.stderr.count("\n")) == (True, 1)
    assert message in done.stderr


def test_the_report_of_a_folder_is_renewed_without_harm(survey):
    assert release(survey, "--title", "First").returncode == 0
    assert command("report", "release", "--title", "Second", folder=survey).returncode == 0
    assert "Second" in (survey / "release" / "report.html").read_text(encoding="utf-8")
    assert len(mg.load(survey / "release", strict=True).workload) == 6
    done = command("report", "release", "--out", "release/other.html", folder=survey)
    assert done.returncode == 2
    assert command("export", "release", "--out", "release/csv", folder=survey).returncode == 2


def test_the_folder_keeps_who_publishes_it_for_reports_that_are_written_again(survey, tmp_path):
    said = ("--title", "Survey of towns", "--publisher", "Office <b>", "--licence", "CC BY 4.0", "--date", "2026-05-01")
    assert release(survey, *said, "--no-report").returncode == 0
    assert command("report", "release", folder=survey).returncode == 0
    page = (survey / "release" / "report.html").read_text(encoding="utf-8")
    for text in ("Survey of towns", "Office &lt;b&gt;", "CC BY 4.0", "2026-05-01"):
        assert text in page
    again = command("report", "release", "--date", "2026-06-01", "--contact", "desk", folder=survey)
    assert again.returncode == 0
    assert command("report", "release", "--out", tmp_path / "r.html", folder=survey).returncode == 0
    for page in (survey / "release" / "report.html", tmp_path / "r.html"):
        text = page.read_text(encoding="utf-8")
        assert "2026-06-01" in text
        assert "2026-05-01" not in text
        assert "Survey of towns" in text
        assert "desk" in text
    assert mg.verify(survey / "release") == ()
    assert command("report", "release", "--out", tmp_path / "s.html", "--title", "Other", folder=survey).returncode == 0
    assert "Survey of towns" not in (tmp_path / "s.html").read_text(encoding="utf-8")


def test_an_imprint_that_somebody_changed_is_refused(survey):
    assert release(survey, "--title", "Survey of towns").returncode == 0
    (survey / "release" / "imprint.json").write_text('{"title": "Another"}', encoding="utf-8")
    done = command("report", "release", folder=survey)
    assert done.returncode == 2
    assert "imprint.json is damaged: it is not the texts that were written" in done.stderr


def test_report_and_export(published, tmp_path):
    assert command("report", "release", "--out", tmp_path / "r.html", folder=published).returncode == 0
    assert "日本" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert command("export", "release", "--out", tmp_path / "csv", folder=published).returncode == 0
    assert len(list((tmp_path / "csv").glob("*.csv"))) == 6
    words = ("export", "release", "--form", "sdmx", "--agency", "STAT", "--dataflow", "SURVEY")
    assert command(*words, "--out", tmp_path / "sdmx.csv", folder=published).returncode == 0
    assert (tmp_path / "sdmx.csv").read_text(encoding="utf-8").startswith("STRUCTURE,STRUCTURE_ID,ACTION")
    words = ("export", "release", "--form", "registry", "--name", "Survey", "--out", tmp_path / "entry.yaml")
    assert command(*words, folder=published).returncode == 0
    assert "Survey" in (tmp_path / "entry.yaml").read_text(encoding="utf-8")


def test_the_ledger_is_shown(published):
    shown = command("ledger", "people.ledger", folder=published).stdout
    assert "adaptive planner" in shown
    told = json.loads(command("ledger", "people.ledger", "--json", folder=published).stdout)
    assert len(told["entries"]) == 1
    assert told["torn"] is None


def test_noisy_tables_from_elsewhere(survey):
    (survey / "a.csv").write_text("sex,count\nfemale,310\nmale,-4\n", encoding="utf-8")
    (survey / "b.csv").write_text(
        "région,sex,count,variance\n"
        + "".join(
            f"{r},{s},{50 + i},4\n"
            for i, r in enumerate(("Île-de-France", "日本", "north"))
            for s in ("male", "female")
        ),
        encoding="utf-8",
    )
    words = ("reconstruct", "a.csv", "b.csv", "--variance", 25, "--domain", "domain.json")
    done = command(*words, "--tables", "sex,région", "--out", "release", "--no-report", folder=survey)
    assert done.returncode == 0, done.stderr
    released = mg.load(survey / "release")
    assert released.provenance is None
    assert (released.table("sex").values >= 0).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sex,number\nmale,1\n", "has no column 'count'"),
        ("sexe,count\nmale,1\n", "'sexe', which is not an attribute of the domain; did you mean 'sex'?"),
        ("sex,count\nmale,1\n", "1 rows for 2 cells"),
        ("sex,count\nmale,1\nmale,2\n", "or some cell twice"),
        ("sex,count\nmale,1\nFemale,2\n", "value 'Female' in column 'sex'"),
        ("sex,count\nmale,1\nfemale,many\n", "column 'count' that is not a number"),
        ("sex,count\nmale,1\nfemale,2\n", "no column 'variance'; add one, or give --variance"),
        ("sex,count,variance\nmale,1,2\nfemale,2,3\n", "2 different variances"),
    ],
)
def test_noisy_tables_that_cannot_be_used(survey, text, message):
    (survey / "a.csv").write_text(text, encoding="utf-8")
    words = ("reconstruct", "a.csv", "--domain", "domain.json", "--tables", "sex", "--out", "release", "--no-report")
    done = command(*words, folder=survey)
    assert done.returncode == 2
    assert message in done.stderr

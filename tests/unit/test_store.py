"""What is saved comes back bit by bit, whatever the release; the papers say what it is."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt
from releases import DOMAIN, WORKLOAD, adaptive, foreign, laplace, made, measured, same

import margrave as mg
from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError, MeasurementError, ReleaseError, StoreError
from margrave.escaping import unguarded
from margrave.measurements import Measurements
from margrave.privacy.entropy import InsecureSeededSource
from margrave.privacy.noise import gaussian_sampler
from margrave.release.facts import covered, kept_rows
from margrave.release.publication import reconstruct
from margrave.release.store.loading import load
from margrave.release.store.saving import save
from margrave.release.store.tables import table_stems
from margrave.workload import Workload

NOISY = measured()


def refused(text, error=StoreError):
    return pytest.raises(error, match=re.escape(text))


def document(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("method", mg.methods.names())
@pytest.mark.parametrize(
    "source", [lambda: NOISY, foreign, laplace, adaptive], ids=["own", "foreign", "laplace", "mwem"]
)
def test_every_release_comes_back_bit_by_bit(tmp_path, method, source):
    before = made(source(), method)
    before.save(tmp_path / "out", csv=True)
    after = mg.load(tmp_path / "out")
    assert same(before, after)
    assert after.estimates.values.tobytes() == before.estimates.values.tobytes()
    assert after.marginals.tobytes() == before.marginals.tobytes()
    assert after.measurements.values.tobytes() == before.measurements.values.tobytes()


def test_what_the_solver_reported_comes_back_but_not_where_it_stood(tmp_path):
    before = made(NOISY, "lnn")
    save(before, tmp_path / "out")
    after = load(tmp_path / "out")
    for name in ("status", "gap", "steps", "violation", "lift"):
        assert getattr(after.solution, name) == getattr(before.solution, name)
    with refused("the release to start from was loaded, or made by workers, and does not record", ReleaseError):
        reconstruct(NOISY, WORKLOAD, method=mg.methods.NonNegative(weights="paper"), start=after)


def test_a_loaded_release_can_be_saved_again(tmp_path):
    before = made(NOISY, "trunc")
    before.save(tmp_path / "one")
    load(tmp_path / "one").save(tmp_path / "two")
    assert same(before, load(tmp_path / "two"))


def test_queries_and_other_levels_work_on_a_loaded_release(tmp_path):
    before = made(NOISY, "lnn")
    before.save(tmp_path / "out")
    after = load(str(tmp_path / "out"))
    one, other = (release.query("sex = 'F'", by=["age"], level=0.8) for release in (before, after))
    assert other.to_arrow().equals(one.to_arrow())


def test_tables_are_plain_parquet_and_csv_in_tidy_long_form(tmp_path):
    release = made(NOISY, "lnn")
    release.save(tmp_path / "out", csv=True)
    table = pq.read_table(tmp_path / "out" / "tables" / "age.regio_n.parquet")
    assert table.column_names == ["age", "régio/n", "count", "estimate", "std_error", "ci_low", "ci_high"]
    assert table.drop_columns([]).equals(release.table("age", "régio/n").to_arrow())
    assert json.loads(table.schema.metadata[b"margrave"]) == {"margrave": "table", "method": "lnn", "private": True}
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    rows = pyarrow.csv.read_csv(tmp_path / "out" / "tables" / "age.regio_n.csv", parse_options=options)
    for name in table.column_names:
        cells = rows[name].cast(pa.string() if name in DOMAIN else pa.float64()).to_pylist()
        assert [unguarded(cell) if name in DOMAIN else cell for cell in cells] == table[name].to_pylist()
    assert "'=1+1" in rows["régio/n"].to_pylist()


def formulas(file):
    """The cells of a CSV file that a spreadsheet would compute, numbers apart."""
    with file.open(encoding="utf-8", newline="") as stream:
        cells = {cell for row in csv.reader(stream) for cell in row}
    number = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")
    return {cell for cell in cells if re.match(r"\s*[=+\-@]\S", cell) and not number.fullmatch(cell)}


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(tmp_path):
    names, labels = ("=name", "plain"), ("=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "-5", "-", "'=2")
    domain = Domain([Attribute(name, labels=labels) for name in names])
    counts = np.arange(64.0).reshape(8, 8) - 40.5
    release = reconstruct(
        Measurements.from_marginals(domain, [(names, counts, 4.0)]), Workload(domain, [names]), method="mle"
    )
    release.save(tmp_path / "out", csv=True)
    (entry,) = document(tmp_path / "out", "manifest.json")["tables"]
    file = tmp_path / "out" / entry["csv"]
    assert formulas(file) == set()
    with file.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header[:3] == ["'=name", "plain", "count"]
    assert [row[1] for row in rows[:8]] == [
        *("'=1+1", "'+cmd|' /C calc'!A0", "'-x", "'@SUM(A1)", "'\t=1", "-5", "-", "''=2")
    ]
    assert [unguarded(row[0]) for row in rows[::8]] == list(labels)
    np.testing.assert_array_equal([float(row[2]) for row in rows], release.table(*names).values.ravel())
    assert min(float(row[3]) for row in rows) < 0
    # Metadata and the page speak of the file as it is; Parquet has the labels themselves.
    (described,) = document(tmp_path / "out", "csvw-metadata.json")["tables"]
    assert [column["titles"] for column in described["tableSchema"]["columns"]] == header
    assert "has an apostrophe in front" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert pq.read_table(tmp_path / "out" / entry["file"])["=name"].to_pylist()[::8] == list(labels)
    assert same(release, load(tmp_path / "out"))


def page_tokens(page):
    """The blocks of a page in Markdown, and what stands in its lines."""
    parsed = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page)
    inline = [child for token in parsed for child in token.children or ()]
    return (
        [token.type for token in parsed],
        {child.type for child in inline},
        "".join(child.content for child in inline),
    )


def test_the_page_for_readers_escapes_markdown_and_html(tmp_path):
    attack = (
        "<script>alert(1)</script> [x](javascript:alert(1)) `code` *b* | a | b | ![i](http://evil/x.png) \u202e &lt;"
    )
    pages = []
    for folder, text in (("plain", "words"), ("hostile", attack)):
        names = (f"# {text}", text)
        domain = Domain(
            [Attribute(name, size=2) for name in names], f"{text}\n---\n\n# {text}\n\n    {text}\n1. {text}"
        )
        record = replace(NOISY.provenance, mechanism=text)
        noisy = Measurements.from_marginals(domain, [(names, np.ones((2, 2)), 1.0)]).with_provenance(record)
        release = reconstruct(noisy, Workload(domain, [names]), method="mle")
        release.save(tmp_path / folder, title=f"{text}\n# {text} ##")
        pages.append(page_tokens((tmp_path / folder / "README.md").read_text(encoding="utf-8")))
    (plain_blocks, plain_kinds, _), (blocks, kinds, content) = pages
    assert blocks == plain_blocks
    assert kinds - plain_kinds <= {"text_special"}
    # In the heading twice, in the description four times, in the list twice and in the statement of privacy once.
    assert content.count(attack.replace("\u202e", "\\u202e")) == 9
    assert "\u202e" not in content


def test_nothing_in_the_folder_needs_pickle(tmp_path):
    made(NOISY).save(tmp_path / "out")
    for name in ("measurements.npz", "subtables.npz"):
        with np.load(tmp_path / "out" / name, allow_pickle=False) as archive:
            assert all(archive[key].dtype != object for key in archive.files)


def test_privacy_is_stated_exactly(tmp_path):
    made(NOISY).save(tmp_path / "out")
    privacy, record = document(tmp_path / "out", "privacy.json"), NOISY.provenance
    assert privacy["rho"] == str(record.rho)
    assert privacy["rho_decimal"] >= record.rho
    assert (privacy["epsilon"], privacy["delta"]) == (record.epsilon, record.delta)
    assert privacy["private"] is True
    assert privacy["known"] is True
    assert privacy["contributions"] == 2
    assert privacy["unit"] == "one person with at most 2 rows"
    assert privacy["steps"][0]["purpose"].startswith("residual planner: ")
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    person = "one person more or less, with at most 2 rows in the table (declared by the publisher, not checked)"
    assert f"{person}: ε = 1 at δ = 10⁻⁹, from ρ = 0.01497" in page
    assert "a survey of \\{nobody\\}" in page
    assert "`tables/age.sex.parquet`: age × sex" in page


def test_noise_from_a_seed_is_marked_everywhere(tmp_path):
    release = made(measured(sampler=gaussian_sampler(source=InsecureSeededSource(3))))
    release.save(tmp_path / "out")
    assert document(tmp_path / "out", "privacy.json")["private"] is False
    assert "NOT PRIVATE. The noise in these tables came from a seed" in (tmp_path / "out" / "README.md").read_text(
        encoding="utf-8"
    )
    metadata = pq.read_schema(tmp_path / "out" / "tables" / "sex.parquet").metadata
    assert json.loads(metadata[b"margrave"])["private"] is False
    assert not load(tmp_path / "out").provenance.private


def test_numbers_from_elsewhere_say_so(tmp_path):
    made(foreign(), "lnn").save(tmp_path / "out")
    privacy = document(tmp_path / "out", "privacy.json")
    assert privacy["private"] is None
    assert privacy["known"] is False
    assert "came from elsewhere" in privacy["statement"]
    assert load(tmp_path / "out").provenance is None


def test_adaptive_measurements_have_no_intervals_and_the_page_says_why(tmp_path):
    made(adaptive()).save(tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "There are no intervals: which tables were measured depended on earlier noise" in page
    assert pq.read_table(tmp_path / "out" / "tables" / "sex.parquet")["ci_low"].null_count == 2


@pytest.mark.parametrize("csv", [False, True])
def test_csv_on_the_web_names_every_table_and_column(tmp_path, csv):
    made(NOISY).save(tmp_path / "out", csv=csv)
    metadata = document(tmp_path / "out", "csvw-metadata.json")
    assert metadata["@context"][0] == "http://www.w3.org/ns/csvw"
    assert len(metadata["tables"]) == len(WORKLOAD)
    for names, table in zip(WORKLOAD, metadata["tables"], strict=True):
        file = tmp_path / "out" / table["url"]
        assert file.suffix == (".csv" if csv else ".parquet")
        header = pq.read_schema(file.with_suffix(".parquet")).names
        columns = table["tableSchema"]["columns"]
        assert [column["titles"] for column in columns] == header
        assert all(re.fullmatch(r"[A-Za-z0-9_]+", column["name"]) for column in columns)
        assert len({column["name"] for column in columns}) == len(columns)
        assert len(table["tableSchema"]["primaryKey"]) == len(names)


def test_progress_counts_tables(tmp_path):
    seen = []
    made(NOISY).save(tmp_path / "out", progress=lambda done, tables: seen.append((done, tables)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    seen.clear()
    release = load(tmp_path / "out", progress=lambda done, tables: seen.append((done, tables)))
    assert seen == []
    release.table("sex")
    release.table("sex")
    assert seen == [(1, 4)]
    assert len(release.marginals) == release.estimates.layout.cells
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    seen.clear()
    load(tmp_path / "out", strict=True, progress=lambda done, tables: seen.append((done, tables)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_documents_travel_with_the_release(tmp_path):
    release = made(NOISY)
    release.save(tmp_path / "out", documents={"report.html": "<p>ä</p>"})
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8") == "<p>ä</p>"
    assert same(release, load(tmp_path / "out"))
    for name in ("README.md", "Manifest.JSON", "../x", "tables", ".hidden", "a/b", "ä", ""):
        with refused(f"a document cannot be called {name!r}; use ASCII letters"):
            release.save(tmp_path / "other", documents={name: ""})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("csv", "documents", "title"),
    [(False, {}, None), (True, {"report.html": "x", "notes.txt": "y"}, "Census\n of {2026}")],
)
def test_the_page_for_readers_lists_what_is_there_under_its_title(tmp_path, csv, documents, title):
    made(NOISY).save(tmp_path / "out", csv=csv, documents=documents, title=title)
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert page.startswith("# Census of \\{2026\\}\n" if title else "# Cross-tabulations\n")
    assert ("- `report.html`: what was released, how private and how exact it is" in page) is bool(documents)
    assert ("- `notes.txt`: put here by the publisher" in page) is bool(documents)
    assert ("- `tables/sex.csv` and so on: the same tables as CSV" in page) is csv
    assert "registry" not in page
    assert document(tmp_path / "out", "csvw-metadata.json")["dc:title"] == (
        title or "4 cross-tabulations of age, sex, régio/n, one"
    )


@pytest.mark.parametrize("title", ["half \ud800", 7])
def test_a_title_that_cannot_be_written_is_refused_at_once(tmp_path, title):
    with refused(
        "the title must be text that can be written as UTF-8; it is something else, or has an unpaired surrogate"
    ):
        made(NOISY).save(tmp_path / "out", title=title)
    with refused("the document 'a.txt' must be text that can be written as UTF-8"):
        made(NOISY).save(tmp_path / "out", documents={"a.txt": title})
    assert not list(tmp_path.iterdir())


def test_intervals_are_of_the_rows_that_were_kept(tmp_path):
    made(NOISY).save(tmp_path / "all")
    page = (tmp_path / "all" / "README.md").read_text(encoding="utf-8")
    assert "`ci_low` to `ci_high` covers the true count in 95 of 100" in page
    assert "kept" not in page
    enforced = replace(NOISY.provenance, contributions_bounded="enforced")
    made(NOISY.with_provenance(enforced)).save(tmp_path / "some")
    page = (tmp_path / "some" / "README.md").read_text(encoding="utf-8")
    assert "Counts and intervals are of the rows that were kept: at most 2 rows of each person. The table may" in page
    assert "`ci_low` to `ci_high` covers the true count of the rows that were kept in 95 of 100" in page
    assert "is from the true count of the rows that were kept;" in page
    assert "one person more or less, with at most 2 rows counted in the table (enforced before counting): ε = 1" in page


def test_the_guarantee_of_a_query_is_about_its_result(tmp_path):
    asked = replace(NOISY.provenance, contributions_bounded="enforced", queried=True)
    made(NOISY.with_provenance(asked)).save(tmp_path / "hidden")
    page = (tmp_path / "hidden" / "README.md").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "hidden" / "privacy.json").read_text(encoding="utf-8"))
    assert "with at most 2 rows counted in the query's result (enforced before counting): ε = 1" in page
    assert "kept: at most 2 rows of the query's result of each person." in page
    assert "result of a query, whose text is not published. Rows of a person are rows of that result" in page
    assert (document["queried"], document["query"]) == (True, None)
    assert document["unit"] == "one person with at most 2 rows of the query's result"
    told = replace(asked, contributions_bounded="declared", query="SELECT * FROM people")
    made(NOISY.with_provenance(told)).save(tmp_path / "told")
    document = json.loads((tmp_path / "told" / "privacy.json").read_text(encoding="utf-8"))
    assert document["query"] == "SELECT * FROM people"
    assert "with at most 2 rows in the query's result (declared by the publisher, not checked)" in document["statement"]
    assert "whose text is part of this record" in document["statement"]
    assert mg.load(tmp_path / "told").provenance == told


def test_a_domain_that_drops_rows_leaves_them_out_of_the_counts():
    drops = mg.Domain([mg.Attribute("sex", labels=("F", "M"), outside="drop"), mg.Attribute("one", size=1)])
    dropped = "no row with a value that the domain drops. The table may hold more."
    assert kept_rows(drops, None) == f"Counts and intervals are of the rows that were kept: {dropped}"
    enforced = replace(NOISY.provenance, contributions=1, contributions_bounded="enforced")
    assert kept_rows(drops, enforced).endswith(f"kept: at most one row of each person, and {dropped}")
    assert kept_rows(DOMAIN, NOISY.provenance) == ""
    assert covered(drops, None) == "the true count of the rows that were kept"
    assert covered(DOMAIN, None) == "the true count"


def test_a_release_without_measurements_is_refused(tmp_path):
    release = made(NOISY)
    object.__setattr__(release, "measurements", None)
    with refused("the release has no measurements, without which no error bar can be checked; reconstruct it"):
        release.save(tmp_path / "out")


def test_noise_of_ones_own_cannot_be_saved_and_leaves_nothing(tmp_path):
    class Own:
        def loss(self, residual, observed):
            return float(np.square(residual - observed).sum())

        def gradient(self, residual, observed):
            return 2 * (residual - observed)

    release = made(Measurements.from_residuals(DOMAIN, [((), 5.0, Own())]))
    with refused("the noise of the total is an object of your own, which no file can hold", MeasurementError):
        release.save(tmp_path / "out")
    assert not list(tmp_path.iterdir())


NAMES = [
    "a/b",
    "a b",
    "A_B",
    "..",
    "CON",
    "nul",
    "é",
    "年齢",
    "x" * 300,
    "x" * 301,
    "total",
    ".hidden",
    "-",
    "count",
    "\n",
]


def test_file_names_are_safe_unique_and_short_for_any_attributes(tmp_path):
    domain = mg.Domain.fromdict(dict.fromkeys(NAMES, 2))
    workload = mg.Workload.up_to(domain, 2)
    stems = table_stems(domain, workload.sets)
    assert len({stem.casefold() for stem in stems}) == len(workload)
    for stem in stems:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", stem)
        assert len(stem) < 200
        assert stem.split(".")[0].casefold() not in ("con", "nul")
    assert stems[0] == "total"
    release = reconstruct(Measurements.from_marginals(domain, [((), 5.0, 1.0)]), workload, method="trunc")
    release.save(tmp_path / "out", csv=True)
    assert same(release, load(tmp_path / "out"))


def test_labels_that_read_the_same_are_told_apart(tmp_path):
    domain = mg.Domain(
        [mg.Attribute("answer", labels=("1", 1, "1 (code 1)")), mg.Attribute("empty", labels=("", "null"))]
    )
    workload = mg.Workload(domain, [("answer", "empty")])
    table = np.arange(6.0).reshape(3, 2)
    release = reconstruct(
        Measurements.from_marginals(domain, [(("answer", "empty"), table, 1.0)]), workload, method="mle"
    )
    release.save(tmp_path / "out")
    assert same(release, load(tmp_path / "out"))


def test_the_total_alone_can_be_saved(tmp_path):
    workload = mg.Workload(DOMAIN, [()])
    release = reconstruct(foreign(), workload, method="mle")
    release.save(tmp_path / "out", csv=True)
    assert (tmp_path / "out" / "tables" / "total.csv").exists()
    assert same(release, load(tmp_path / "out"))


def test_a_table_of_several_row_groups_comes_back(tmp_path):
    domain = mg.Domain.fromdict({"a": 1100, "b": 1000})
    table = np.random.default_rng(0).normal(size=(1100, 1000))
    noisy = Measurements.from_marginals(domain, [(("a", "b"), table, 1.0)])
    release = reconstruct(noisy, mg.Workload(domain, [("a", "b")]), method="mle")
    release.save(tmp_path / "out")
    assert pq.ParquetFile(tmp_path / "out" / "tables" / "a.b.parquet").num_row_groups > 1
    assert load(tmp_path / "out").marginals.tobytes() == release.marginals.tobytes()


def test_a_release_that_does_not_fit_in_memory_is_refused(tmp_path, monkeypatch):
    made(NOISY).save(tmp_path / "out")
    monkeypatch.setattr("margrave.memory.available_bytes", lambda: 100)
    with refused("read single tables from its Parquet files", MargraveError):
        load(tmp_path / "out")

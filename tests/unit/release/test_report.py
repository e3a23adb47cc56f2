"""The report says what was released and how private it is, loudly when it is not, and lets no label out of its text."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

from margrave.domain import Attribute, Domain
from margrave.errors import ReleaseError, StoreError
from margrave.measurements import Laplace, Measurements, Provenance, Step
from margrave.release.publication import reconstruct
from margrave.release.report import charts, report, write_report
from margrave.release.store.folder import replace_document
from margrave.release.store.loading import verify
from margrave.workload import Workload

HOSTILE = '</script><script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)> & "quotes"'
DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 64)),
        Attribute("sex", labels=("female", "male")),
        Attribute(HOSTILE, labels=(HOSTILE, "__proto__", "\u2028", "<!--"), description=HOSTILE),
    ],
    description="a <b>small</b> place",
)
WORKLOAD = Workload.all_kway(DOMAIN, 2)


def record(**changes):
    plain = {
        "mechanism": "residual planner",
        "steps": (Step("all", Fraction(1, 8)),),
        "rho": Fraction(1, 8),
        "epsilon": 3.23456,
        "delta": 1e-9,
        "contributions": 1,
        "sampler": "margrave (system entropy)",
        "private": True,
        "version": "1.2.3",
    }
    return Provenance(**{**plain, **changes})


def released(provenance, *, method="lnn", workload=WORKLOAD, mean=10.0, errors=False):
    generator = np.random.default_rng(3)
    tables = [(names, generator.normal(mean, 8, [DOMAIN[name].size for name in names]), 16.0) for names in WORKLOAD]
    noisy = Measurements.from_marginals(DOMAIN, tables)
    return reconstruct(
        noisy if provenance is None else noisy.with_provenance(provenance), workload, method=method, errors=errors
    )


class Reader(HTMLParser):
    """Collects the elements, the visible text and the scripts of a page."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.texts, self.scripts, self._inside = [], [], [], None
        self.feed(page)
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._inside = (tag, dict(attributes))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside is None:
            self.texts.append(data)
        elif self._inside[0] == "script":
            self.scripts.append((self._inside[1], data))

    @property
    def data(self):
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == "data"))


@pytest.fixture(scope="module")
def page():
    return report(released(record()))


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


def test_says_what_was_released_and_how_private_it_is(read):
    for text in (
        "3 tables",
        "3 tables of 2 attributes, 26 cells in all, over 3 attributes",
        "ε = 3.235",
        "δ = 10⁻⁹",
        "1 in 1,000,000,000",
        "ρ = 0.125",
        "at most a factor of 25.4",
        "add or remove one person",
        "as long as each person has at most one row in the table (declared by the publisher, not checked)",
        "margrave (system entropy)",
        "margrave, version 1.2.3",
        "It is not the error: that would need the true counts",
        "arXiv:2410.01091",
    ):
        assert text in read.text, text


def test_the_same_release_makes_the_same_page(page):
    assert report(released(record())) == page


def test_a_private_release_has_no_warning(read):
    assert ("p", {"class": "strip", "role": "note"}) not in read.elements
    assert "Not private" not in read.text
    assert "Origin unknown" not in read.text


@pytest.mark.parametrize(
    ("provenance", "word"),
    [(record(private=False, sampler="margrave (insecure seeded source)"), "Not private"), (None, "Origin unknown")],
)
def test_what_is_not_private_says_so_in_title_strip_and_banner(provenance, word):
    text = report(released(provenance))
    read = Reader(text)
    assert f"<title>{word} – " in text
    assert ("p", {"class": "strip", "role": "note"}) in read.elements
    assert ("section", {"class": "warning", "aria-labelledby": "warning"}) in read.elements
    assert read.text.count(word) >= 3
    assert "do not publish" in read.text.lower()
    assert "protects each person" not in read.text
    assert "ε = 3.235 (epsilon)" in read.text if provenance else "ε =" not in read.text


def test_a_seeded_release_is_not_cited_as_a_private_one():
    text = Reader(report(released(record(private=False)))).text
    assert "Experiment without private noise" in text
    assert "What follows would hold if the noise had been private. It was not." in text
    assert "Private noise NO" in text


def test_rows_of_a_person_are_those_of_the_query_s_result():
    asked = record(contributions=4, contributions_bounded="enforced", queried=True)
    text = Reader(report(released(asked))).text
    assert "margrave counted at most 4 rows of each person in the query's result (enforced before counting)" in text
    assert "Rows of a person at most 4 of the query's result, enforced before counting" in text
    assert "Query given; its text is not published" in text
    told = replace(asked, contributions_bounded="declared", query="SELECT '<b>' FROM people")
    text = Reader(report(released(told))).text
    assert "as long as each person has at most 4 rows in the query's result (declared by" in text
    assert "Query SELECT '<b>' FROM people" in text


def test_contributions_say_how_they_are_known():
    text = Reader(report(released(record(contributions=4, contributions_bounded="enforced")))).text
    assert "at most 4 rows of each person in the table (enforced before counting) and left out the others." in text
    assert "Records counted, estimated" in text
    assert (
        "at most one row in the table (by law)."
        in Reader(report(released(record(contributions_bounded="by law")))).text
    )


def test_where_rows_were_left_out_the_intervals_are_of_those_that_were_kept(read):
    text = Reader(report(released(record(contributions=4, contributions_bounded="enforced")))).text
    kept = (
        "Counts and intervals are of the rows that were kept: at most 4 rows of each person. The table may hold more."
    )
    assert text.count(kept) == 2
    assert ", noise is the only error that the release adds" not in text
    assert "To the unbiased estimates for the rows that were kept, noise is the only error added" in text
    assert "its 95 % interval covers the true count of the rows that were kept in 95 of 100" in text
    assert "records of the true count of the rows that were kept, whether that is 10" in text
    assert "the unbiased estimate, which covers the true count of the rows that were kept in 95 of 100" in text
    assert "rows that were kept" not in read.text
    assert "To the unbiased estimates, noise is the only error that the release adds" in read.text


def test_a_domain_that_drops_rows_says_so_too():
    domain = Domain([Attribute("sex", labels=("female", "male"), outside="drop")])
    noisy = Measurements.from_marginals(domain, [(("sex",), [50.0, 60.0], 4.0)]).with_provenance(record())
    text = Reader(report(reconstruct(noisy, Workload(domain, [("sex",)]), method="mle"))).text
    assert "of the rows that were kept: no row with a value that the domain drops. The table may" in text
    assert "covers the true count of the rows that were kept in 95" in text


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([()], "1 table: the total, 1 cell in all"),
        ([("age",)], "1 table of 1 attribute, 3 cells in all"),
        ([(), ("age",), ("sex",), ("age", "sex")], "4 tables: the total, 2 of 1 attribute and 1 of 2 attributes, 12"),
    ],
)
def test_tables_are_counted_by_their_attributes(sets, said):
    assert f"The release holds {said}" in Reader(report(released(record(), workload=Workload(DOMAIN, sets)))).text


def test_the_record_has_words_and_decimals_first(read):
    text = Reader(report(released(record(rho=Fraction(1, 3), epsilon=5.23456, contributions_bounded="enforced")))).text
    for row in (
        "Tables 3 tables of 2 attributes; 26 cells in all",
        "Counts non-negative counts (lnn)",
        "Guarantee zero-concentrated differential privacy, ρ ≈ 0.333333 (exactly 1/3)",
        "Stated as ε = 5.23456 at δ = 10⁻⁹",
        "Rows of a person at most 1, enforced before counting",
        "Solver solved to the tolerance asked for Certificate within",
    ):
        assert row in text, row
    assert "Guarantee zero-concentrated differential privacy, ρ = 0.125 Stated" in read.text
    assert "Rows of a person at most 1, declared by the publisher, not checked" in read.text
    assert "Workload(" not in text


def test_a_weak_guarantee_is_called_weak():
    text = Reader(report(released(record(epsilon=30.0)))).text
    assert "An ε as large as this one promises little in the worst case." in text
    assert "at most a factor of 10¹⁴" in text


def test_labels_never_become_elements(page, read):
    assert "<b>" not in page
    assert not [tag for tag, _ in read.elements if tag in ("img", "iframe", "object", "embed", "link", "base")]
    assert [attributes for tag, attributes in read.elements if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
        {},
    ]
    assert HOSTILE in read.data["attributes"][2]["labels"]
    assert HOSTILE in " ".join(read.texts)
    assert not [name for _, attributes in read.elements for name in attributes if name.startswith("on")]


def test_nothing_is_fetched(read):
    for tag, attributes in read.elements:
        for name in ("src", "srcset", "action", "data", "poster", "xlink:href"):
            assert name not in attributes, (tag, attributes)
        assert tag == "a" or "href" not in attributes
        assert attributes.get("href", "#").startswith("#")


def test_the_page_forbids_connections_and_every_script_but_its_own(page, read):
    policy = next(a["content"] for tag, a in read.elements if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert page.index("Content-Security-Policy") < page.index("<script")
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_there_is_one_copy_of_the_libraries_and_the_page_is_small(page, read):
    assert sum(len(text) > 500_000 for _, text in read.scripts) == 1
    assert len(page.encode()) < 1_300_000


def test_the_tables_in_the_page_are_those_of_the_release(read):
    release = released(record())
    for key, entry in read.data["tables"].items():
        names = DOMAIN.names(int(position) for position in key.split(",") if position)
        table = release.table(*names)
        assert entry["count"] == np.round(table.values).ravel().tolist()
        assert entry["estimate"] == np.round(table.estimate).ravel().tolist()
        assert entry["low"] == np.round(table.ci_low, 1).ravel().tolist()
        assert entry["high"] == np.round(table.ci_high, 1).ravel().tolist()
    assert set(read.data["tables"]) == {"", "0", "1", "2", "0,1", "0,2", "1,2"}


def test_the_first_table_stands_in_the_page_without_a_script(read):
    table = released(record()).table(*DOMAIN.names([0, 2]))
    assert read.data["first"] == "0,2"
    assert f"{round(table.values[0, 0]):,} {table.ci_low[0, 0]:g} to {table.ci_high[0, 0]:g}" in read.text


def test_the_limit_leaves_out_the_largest_tables_and_says_so():
    read = Reader(report(released(record()), most_bytes=700))
    assert set(read.data["tables"]) == {"", "0", "1", "2", "0,1"}
    assert read.data["leftOut"] == ["1,2", "0,2"]
    assert "2 tables of 2 attributes were left out of it. The folder of the release holds them" in read.text
    bare = Reader(report(released(record()), most_bytes=0))
    assert "The release holds the total alone" not in bare.text
    assert bare.scripts == []
    assert "3 tables of 1 attribute and 3 tables of 2 attributes were left out" in bare.text


def test_a_release_of_the_total_alone_has_no_pickers():
    read = Reader(report(released(record(), workload=Workload(DOMAIN, [()]))))
    assert "The release holds the total alone" in read.text
    assert read.scripts == []


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("mle", "its counts are the unbiased estimates themselves"),
        ("lnn", "In the published counts no cell is below zero"),
        ("lnn", "agree with each other, no cell is below zero, and noise is smoothed"),
        ("trunc", "The truncated count is the same with zero in place of what is below zero. Tables truncated"),
        ("trunc+rescale", "each table then scaled to the estimated total"),
    ],
)
def test_each_method_is_described(method, said):
    assert said in Reader(report(released(record(), method=method))).text


def test_where_nothing_is_below_zero_nothing_is_said_to_have_changed():
    text = Reader(report(released(record(), method="mle", mean=1000.0))).text
    assert "Here it did not, and nothing had to be changed." in text


def test_missing_error_bars_are_explained():
    adaptive = Reader(report(released(record(adaptive=True))))
    assert "There are no intervals: which tables were measured depended on earlier noise" in adaptive.text
    assert "The errors of these tables are not known" in adaptive.text
    assert "low" not in adaptive.data["tables"]["0,1"]
    some = Measurements.from_marginals(DOMAIN, [(("age",), [5.0, 6, 7], 1.0)])
    partly = Reader(report(reconstruct(some, WORKLOAD, method="mle")))
    assert "Not determined by what was measured: 3 of 3 tables." in partly.text
    residuals = [((), 90.0, Laplace(2.0)), (("age",), [1.0, 2.0], Laplace(1.0))]
    laplace = reconstruct(Measurements.from_residuals(DOMAIN, residuals), Workload(DOMAIN, [("age",)]), method="mle")
    assert "The errors of these tables are not known" in Reader(report(laplace)).text


def test_the_title_is_asked_for_or_the_description_of_the_domain(read):
    assert "A <b>small</b> place" in read.text
    assert Reader(report(released(record()), title="Census & more")).text.startswith("Census & more")


def test_the_file_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "report.html"
    file.write_text("old")
    write_report(released(record()), file)
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_report_is_not_written_into_a_release(tmp_path, monkeypatch):
    release = released(record())
    release.save(tmp_path / "out", documents={"report.html": "its own"})
    with pytest.raises(StoreError, match=re.escape(f"lies in the release {tmp_path / 'out'}")):
        write_report(release, tmp_path / "out" / "report.html")
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(StoreError, match=r"'report\.html' lies in the release"):
        write_report(release, "report.html")
    replace_document(".", "report.html", report(release))
    assert verify(tmp_path / "out") == ()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    missing = tmp_path / "missing" / "report.html"
    with pytest.raises(StoreError, match=re.escape(f"{missing} cannot be written (No such file or directory)")):
        write_report(released(record()), missing)


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (["report"], {}, "expected a Release, got a str; give what reconstruct() returns"),
        ([None], {"title": 7}, "the title is 7; give text that can be written as UTF-8, or leave it out"),
        ([None], {"title": "half \ud800"}, "the title is 'half \\ud800'; give text that can be written as UTF-8"),
        ([None], {"most_bytes": -1}, "most_bytes is -1; give a whole number of at least 0"),
        ([None], {"most_bytes": True}, "most_bytes is True; give a whole number of at least 0"),
    ],
)
def test_what_cannot_be_reported_is_refused(arguments, options, said):
    with pytest.raises(ReleaseError, match=re.escape(said)):
        report(arguments[0] or released(record()), **options)


@pytest.mark.parametrize("package", ["altair", "vl_convert", "jinja2"])
def test_a_missing_package_is_named_with_the_extra(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ReleaseError, match=re.escape(f"needs {package}, which is not installed; install the extra: pip")
    ):
        charts.require_packages()


def test_nothing_heavy_is_imported_before_a_report_is_asked_for():
    code = "import sys, margrave.release.report; print('altair' in sys.modules, 'vl_convert' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]


IMPRINT = {"publisher": "Office <i>", "licence": "CC BY 4.0", "contact": "data@example.org", "date": "2026-11-18"}


def test_who_publishes_stands_at_the_head_and_in_the_citation():
    text = Reader(report(released(record()), title="A place", **IMPRINT)).text
    assert "Publisher Office <i> Licence CC BY 4.0 Contact data@example.org Date 2026-11-18" in text
    assert "Office <i> (2026-11-18). A place. Cross-tabulations under differential privacy" in text
    assert "Licence: CC BY 4.0." in text
    assert "for the custodian of the data to state" not in text
    bare = Reader(report(released(record()))).text
    assert "Publisher" not in bare
    assert "The licence is for the custodian of the data to state." in bare


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"date": 2026}, "the date is 2026; give text"),
        ({"publisher": "\ud800"}, "the publisher is '\\ud800'; give text"),
        ({"publishr": "x"}, "the page has no place for 'publishr'; give publisher, licence, contact, date or title"),
    ],
)
def test_an_imprint_is_text(told, said):
    with pytest.raises(ReleaseError, match=re.escape(said)):
        report(released(record()), **told)


@pytest.fixture(scope="module")
def learned():
    return Reader(report(released(record(), mean=300.0, errors=True)))


def test_counts_have_their_own_intervals_and_marks_where_errors_were_learned(learned):
    release = released(record(), mean=300.0, errors=True)
    for key, entry in learned.data["tables"].items():
        table = release.table(*DOMAIN.names(int(position) for position in key.split(",") if position))
        assert entry["countLow"] == table.count_low.ravel().tolist()
        assert entry["countHigh"] == table.count_high.ravel().tolist()
        words = [learned.data["words"]["flags"][int(flag)] for flag in entry["flag"]]
        assert words == table.reliability().ravel().tolist()
    assert "Below it is its own 95 % interval" in learned.text
    assert "Its interval and its reliability are its own." in learned.text
    assert "not its own" not in learned.text


def test_no_sentence_gives_a_count_the_error_of_an_estimate(read, learned):
    assert "The intervals on this page are those of the unbiased estimate, not its own." in read.text
    assert "Below it is the 95 % interval of the unbiased estimate" in read.text
    for page in (read, learned):
        assert "People counted" in page.text
        assert "To the unbiased estimates, noise is the only error" in page.text
    total = released(record(), mean=300.0, errors=True).table()
    assert f"{round(float(total.values)):,} {total.count_low:,.0f} to {total.count_high:,.0f}" in learned.text


def test_privacy_is_told_in_words_on_the_first_screen(read):
    said = "holds it 10 % likely that a given person is in the data can become 73.9 % sure of it"
    assert said in read.text
    assert read.text.index("Privacy in words") < read.text.index("Look at a table")
    seeded = Reader(report(released(record(private=False)))).text
    assert "Privacy in words" not in seeded


def test_the_map_has_every_table_of_one_and_two_attributes(learned):
    links = [attributes["href"] for tag, attributes in learned.elements if tag == "a" and "href" in attributes]
    shown = {link.removeprefix("#table=") for link in links if link.startswith("#table=")}
    assert shown == {"0", "1", "2", "0,1", "0,2", "1,2"}
    assert "Map of errors: the typical error of the published counts" in learned.text


def test_whole_numbers_are_offered_and_described(learned):
    assert "margrave reconstruct with --whole-numbers" in learned.text
    whole = Reader(report(released(record(), mean=300.0, errors=True).integers())).text
    assert "--whole-numbers" not in whole
    assert "rows and columns may miss their sum" not in whole
    assert "rows and columns may miss their sum" in learned.text


def test_the_square_root_scale_is_said(page):
    assert "on a square-root scale: twice as far along the scale is four times as many" in page

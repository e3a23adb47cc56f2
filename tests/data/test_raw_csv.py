"""CSV files as they are downloaded: blanks after commas, ``?`` for missing values, no header."""

import gzip

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.data.draft import draft_domain
from margrave.data.source import Data, open_source
from margrave.data.validation import validate
from margrave.domain import Attribute, Domain
from margrave.errors import DataError

PEOPLE = np.random.default_rng(17)
EDUCATION = [("HS-grad", 9), ("Bachelors", 13), ("Masters", 14), ("Doctorate", 16)]
NAMES = ("age", "work", "education", "years", "country", "income")


def adult(rows=3_000):
    """Rows like those of the census file that everybody tries first."""
    lines = []
    for _ in range(rows):
        education, years = EDUCATION[min(int(PEOPLE.exponential(1)), 3)]
        country = "Here" if PEOPLE.random() < 0.97 else f"There-{PEOPLE.integers(0, 60)}"
        work = PEOPLE.choice(["Private", "State-gov", "?"])
        age, income = PEOPLE.integers(17, 91), PEOPLE.choice(["<=50K", ">50K"])
        lines.append(f"{age}, {work}, {education}, {years}, {country}, {income}")
    return "\n".join(lines) + "\n\n"


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    path = tmp_path_factory.mktemp("raw") / "adult.csv"
    path.write_text(adult(), encoding="utf-8")
    return path


def counted(source, domain, **options):
    layout = Layout.of(domain.shape, [tuple(range(len(domain)))])
    counts = open_source(Data(source, **options), domain, contributions=1).count(layout)
    return counts[-np.prod(domain.shape) :].reshape(domain.shape).tolist()


WORK = Domain([Attribute("work", labels=("Private", "State"), missing="unknown")])


@pytest.mark.parametrize("packed", [False, True])
def test_blanks_signs_for_missing_and_no_header(tmp_path, packed):
    text = b"39, Private\n40,\tState \n41, ?\n42, NA\n43,\n44,  \n"
    path = tmp_path / ("work.csv.gz" if packed else "work.csv")
    path.write_bytes(gzip.compress(text) if packed else text)
    options = {"trim": True, "null": ["?", "NA"], "names": ["age", "work"]}
    assert counted(path, WORK, **options) == [1, 1, 4]


def test_a_sign_is_compared_as_it_stands_unless_fields_are_trimmed(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("work\nPrivate\n?\n", encoding="utf-8")
    assert counted(path, WORK, null="?") == [1, 0, 1]
    path.write_text("work\nPrivate\n ?\n", encoding="utf-8")
    with pytest.raises(DataError, match="work"):
        counted(path, WORK, null="?")
    assert counted(path, WORK, null="?", trim=True) == [1, 0, 1]


def test_names_of_a_header_are_trimmed_too(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("age, work\n39, Private\n", encoding="utf-8")
    assert counted(path, WORK, trim=True) == [1, 0, 0]


def test_columns_without_names_are_numbered(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("39,Private\n40,State\n", encoding="utf-8")
    domain = Domain([Attribute("column2", labels=("Private", "State"))])
    assert counted(path, domain, header=False) == [1, 1]


def test_several_files_without_a_header(tmp_path):
    for k in range(2):
        (tmp_path / f"work-{k}.csv").write_text(f"{k},Private\n", encoding="utf-8")
    assert counted(f"{tmp_path}/work-*.csv", WORK, names=("age", "work")) == [2, 0, 0]
    (tmp_path / "work-2.csv").write_text("1,2,3\n", encoding="utf-8")
    with pytest.raises(DataError, match="the files have rows of different lengths"):
        counted(f"{tmp_path}/work-*.csv", WORK, names=("age", "work"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ("a",)}, "1 names .--names. for the 2 columns of the file; give one for each column"),
        ({"names": ("a", "a")}, "names .--names. has an empty name, or one twice"),
        ({"names": ("a", "b"), "header": True}, "names .--names. are given for a file with a header"),
        ({"trim": "yes"}, "trim .--trim. is 'yes'; give True or False"),
        ({"header": 1}, "header .--header. is 1; give True or False"),
        ({"null": 7}, "null .--null. is a int; give a text, or a list of texts"),
        ({"null": [7]}, "null .--null. has values that are not texts"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, options, message):
    path = tmp_path / "work.csv"
    path.write_text("39,Private\n40,State\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        counted(path, WORK, **options)


@pytest.mark.parametrize(("option", "value"), [("trim", True), ("null", "?"), ("header", False), ("names", ("a",))])
def test_they_are_for_csv_files(option, value):
    with pytest.raises(DataError, match=f"{option} .--{option}. is for CSV files"):
        Data("people.parquet", **{option: value})


def test_a_draft_sees_how_a_file_is_written(raw):
    draft = draft_domain(Data(raw, names=NAMES))
    assert draft.reading == {"trim": True, "null": ("?",)}
    assert draft_domain(raw).reading == {"trim": True, "header": False, "null": ("?",)}
    assert draft_domain(raw).domain.attributes == tuple(f"column{k}" for k in range(1, 7))
    assert draft.domain["age"].cuts is not None
    assert draft.domain["work"] == Attribute("work", labels=("Private", "State-gov"), missing="missing")
    assert draft.domain["income"] == Attribute("income", labels=("<=50K", ">50K"))


def test_a_draft_names_columns_that_determine_each_other(raw):
    assert set(draft_domain(Data(raw, names=NAMES)).determined) == {("education", "years"), ("years", "education")}


def test_a_column_may_determine_another_one_way(tmp_path):
    path = tmp_path / "towns.csv"
    rows = [f"{town},{'NS'[town % 2]},{k % 3}" for k in range(100) for town in range(4)]
    path.write_text("\n".join(["town,region,x", *rows]), encoding="utf-8")
    assert draft_domain(path).determined == (("town", "region"),)


def test_rare_texts_are_put_together(raw):
    draft = draft_domain(Data(raw, names=NAMES))
    rare = draft.rare["country"]
    assert len(rare) >= 3
    assert draft.domain["country"].other == "other"
    assert not set(rare) & set(draft.domain["country"].labels)
    assert validate(Data(raw, names=NAMES, **draft.reading), draft.domain).fits


def test_one_rare_text_is_only_named(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("\n".join(["work", *["Private", "State"] * 1000, "Never"]), encoding="utf-8")
    draft = draft_domain(path)
    assert draft.rare == {"work": ("Never",)}
    assert draft.domain["work"] == Attribute("work", labels=("Never", "Private", "State"))


@pytest.mark.parametrize(
    "text",
    [
        "region,2019,2020\nnorth,3,4\nsouth,5,6\neast,7,8\n",
        "a,b\n1,2\n3,4\n5,6\n",
        "name,town\nAnna,Bern\nBea,Bern\nCleo,Chur\n",
        "x,y\n1,a\n",
    ],
)
def test_a_header_is_not_taken_for_a_row(tmp_path, text):
    path = tmp_path / "people.csv"
    path.write_text(text, encoding="utf-8")
    assert draft_domain(path).reading == {}


def test_what_was_said_about_a_file_is_not_looked_for(raw):
    said = Data(raw, header=True, trim=False, null="none at all")
    assert draft_domain(said).reading == {}


def test_validate_says_which_options_are_missing(raw):
    domain = Domain([Attribute("work", labels=("Private", "State-gov"), missing="missing")])
    fit = validate(Data(raw, names=NAMES), domain)
    assert fit.attributes[0].hint == (
        "some have blanks around them: give trim=True (--trim); '?' seems to say that there is none: give null='?' "
        "(--null '?')"
    )
    assert validate(Data(raw, names=NAMES, trim=True, null="?"), domain).fits


def test_a_file_of_any_name_is_csv_where_a_delimiter_is_given(tmp_path):
    path = tmp_path / "adult.data"
    path.write_text("".join(f"{k % 60 + 18}, {('Private', '?')[k % 2]}\n" for k in range(200)) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"if it is a CSV file of another name, say .* delimiter=',' \(--delimiter ,\)"):
        draft_domain(path)
    draft = draft_domain(Data(path, delimiter=","))
    assert draft.reading == {"trim": True, "header": False, "null": ("?",)}
    for name in ("people.json", "people.parquet", "people.xlsx"):
        with pytest.raises(DataError):
            Data(tmp_path / name, delimiter=",")


@pytest.mark.parametrize("first", ["|1x3 Cross validator", "People of a town; 1994"])
def test_a_remark_before_the_rows_is_not_taken_for_a_header(tmp_path, first):
    path = tmp_path / "adult.csv"
    path.write_text(f"{first}\n25, Private, F\n38, State, M\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"is one field and the second line is 3 fields; the first line must be"):
        draft_domain(path)
    # Names say that there is no header; the line is no row either, and is not counted as one.
    for options in ({"names": ("age", "work", "sex")}, {"header": False}):
        with pytest.raises(DataError, match=r"the first line must be a row: remove .* as in: tail -n \+2 OLD > NEW$"):
            draft_domain(Data(path, trim=True, **options))


def test_names_for_a_file_of_one_column_lead_to_what_separates_its_fields(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("39;Private\n40;State\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"2 names .* for the one column .* separates them: delimiter=';' \("):
        counted(path, WORK, names=("age", "work"))
    assert counted(path, WORK, names=("age", "work"), delimiter=";") == [1, 1, 0]


@pytest.mark.parametrize("options", [{"names": NAMES}, {"trim": True}, {"null": "?"}, {"header": False}])
def test_how_text_is_written_without_what_separates_it_is_no_other_kind_of_table(tmp_path, options):
    """The name ends in .data, as that of the census file does, and what it lacks is said whatever else is given."""
    with pytest.raises(DataError, match=r"if it is a CSV file of another name, say .* delimiter=',' \(--delimiter ,\)"):
        Data(tmp_path / "adult.data", **options)


def test_two_files_whose_labels_differ_by_a_dot_are_one_table(tmp_path):
    """The second part of the census file has a dot after each label; a group takes both."""
    (tmp_path / "adult.data").write_text("39, <=50K\n50, >50K\n\n", encoding="utf-8")
    (tmp_path / "adult.test").write_text("25, <=50K.\n38, >50K.\n28, >50K.\n\n", encoding="utf-8")
    incomes = {"up to 50K": ("<=50K", "<=50K."), "more": (">50K", ">50K.")}
    domain = Domain([Attribute("income", groups=incomes)])
    options = {"delimiter": ",", "trim": True, "names": ("age", "income")}
    assert counted(f"{tmp_path}/adult.*", domain, **options) == [2, 3]


def test_a_forgotten_mark_of_missing_is_noticed_where_other_values_are_counted_as_other(raw):
    domain = Domain([Attribute("work", labels=("Private",), other="other")])
    fit = validate(Data(raw, names=NAMES, trim=True), domain)
    assert fit.fits
    assert fit.attributes[0].hint == "'?' seems to say that there is none: give null='?' (--null '?')"

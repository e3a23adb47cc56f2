"""What is known about a release is said in one way, wherever it is said."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from releases import DOMAIN, adaptive, foreign, made, measured

from margrave.cli.release import _say_privacy
from margrave.release import facts
from margrave.release.export.registry import registry_entry
from margrave.release.export.sdmx import MEASURES
from margrave.release.report import report

NOISY = measured()


def texts(release, folder):
    """The report, README.md, privacy.json and the registry entry of a release, each on one line."""
    release.save(folder)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    statement = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))["statement"]
    pages = {"report": report(release).replace("&#39;", "'"), "readme": readme, "privacy": statement}
    if release.provenance is None or release.provenance.private:
        pages["registry"] = registry_entry(release)
    return {name: " ".join(text.split()) for name, text in pages.items()}


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, "at most 2 rows in the table (declared by the publisher, not checked)"),
        ({"queried": True}, "at most 2 rows in the query's result (declared by the publisher, not checked)"),
        ({"contributions": 1, "contributions_bounded": "by law"}, "at most one row in the table (by law)"),
    ],
)
def test_whom_a_release_protects_is_said_in_the_same_words_everywhere(tmp_path, changes, limit):
    release = made(NOISY.with_provenance(replace(NOISY.provenance, **changes)))
    for name, text in texts(release, tmp_path / "out").items():
        assert limit in text.replace("\\(", "(").replace("\\)", ")"), name


def test_a_limit_that_was_enforced_is_said_to_be():
    record = replace(NOISY.provenance, contributions=1, contributions_bounded="enforced")
    assert facts.person(record) == "with at most one row counted in the table (enforced before counting)"
    assert facts.row_limit(record) == (
        "margrave counted at most one row of each person in the table (enforced before counting) and left out "
        "the others"
    )
    assert facts.unit(record) == "one person with at most one row"


def test_what_an_interval_covers_is_said_in_the_same_words_everywhere(tmp_path):
    said = texts(made(NOISY), tmp_path / "out")
    for name in ("report", "readme", "registry"):
        assert "covers the true count in 95 of 100 such releases" in said[name], name


def test_where_there_are_no_intervals_nobody_says_that_there_are(tmp_path):
    said = texts(made(adaptive()), tmp_path / "out")
    for name in ("report", "readme", "registry"):
        assert facts.NO_INTERVALS in said[name], name
        assert "covers the true count in 95 of 100" not in said[name], name
    assert "standard error" not in said["registry"].lower()


@pytest.mark.parametrize("found", [facts.NOT_PRIVATE, facts.UNKNOWN], ids=lambda found: found.word)
def test_a_release_that_is_not_private_is_called_so_in_the_same_words_everywhere(tmp_path, found):
    seeded = replace(NOISY.provenance, private=False)
    release = made(NOISY.with_provenance(seeded) if found is facts.NOT_PRIVATE else foreign())
    assert facts.caution(release.provenance) is found
    said = texts(release, tmp_path / "out")
    for name in ("report", "readme", "privacy"):
        for sentence in found.sentences:
            assert sentence in said[name], name
    assert said["privacy"].startswith(f"{found.word.upper()}. ")


def test_a_private_release_has_no_caution():
    assert facts.caution(NOISY.provenance) is None


def test_a_guarantee_never_looks_better_than_it_is():
    record = replace(NOISY.provenance, epsilon=1.0000001, delta=1.0000001e-9)
    assert facts.stated(record) == "ε = 1.00001 at δ = 1.00001 × 10⁻⁹"


def test_columns_are_described_in_the_same_words_everywhere(tmp_path):
    made(NOISY).save(tmp_path / "out")
    table = json.loads((tmp_path / "out" / "csvw-metadata.json").read_text(encoding="utf-8"))["tables"][0]
    described = [column["dc:description"] for column in table["tableSchema"]["columns"][-len(facts.COLUMNS) :]]
    for column, text, label in zip(facts.COLUMNS.values(), described, MEASURES.values(), strict=True):
        assert label == column.name
        assert text.startswith(f"the {column.name}")


def test_people_are_counted_where_each_has_one_row():
    assert facts.noun(replace(NOISY.provenance, contributions=1)) == "people"
    assert facts.noun(NOISY.provenance) == facts.noun(None) == "records"
    assert facts.coverage(DOMAIN, None) == "covers the true count in 95 of 100 such releases"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"private": False},
            ["Not private: The noise came from a seed, or from a sampler that margrave does not"],
        ),
        ({}, ["privacy: ε = 1 at δ = 10⁻⁹ (ρ = 0.01497", "rows: each person has at most 2 rows in the table"]),
        ({"cut_short": "after 1 round"}, ["privacy", "rows", "The run was cut short after 1 round; its whole budget"]),
    ],
)
def test_the_screen_says_it_in_the_same_words(changes, said):
    lines = []
    screen = SimpleNamespace(print=lambda *words: lines.append(" ".join(map(str, words))))
    _say_privacy(replace(NOISY.provenance, **changes), screen, measured=True)
    assert len(lines) == len(said)
    for line, begin in zip(lines, said, strict=True):
        assert line.startswith(begin)


def test_noise_of_unknown_origin_is_said_on_the_screen_and_not_praised_in_the_readme(tmp_path):
    lines = []
    screen = SimpleNamespace(print=lambda *words: lines.append(" ".join(map(str, words))))
    _say_privacy(None, screen, measured=False)
    assert lines == [f"Origin unknown: {facts.UNKNOWN.reason}"]
    made(foreign()).save(tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "ORIGIN UNKNOWN" in text
    assert "protects the people" not in text

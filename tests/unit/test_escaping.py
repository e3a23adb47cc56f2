"""Texts from outside, made harmless: for terminals, in JSON, in Markdown, in spreadsheets."""

import json
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from margrave.domain import Attribute, Domain
from margrave.errors import MargraveError, StoreError
from margrave.escaping import (
    JOINERS,
    guarded,
    markdown,
    markdown_paragraphs,
    unguarded,
    visible,
    visible_json,
    without_passwords,
)

# Texts of what matters here, much denser than chance would have it.
HOSTILE = st.text(st.sampled_from("\x1b\x9b\x7f\t\r\n\u2028\u200b\u202e\u2069\ud800\U000e0041\u3164a[/red]: "))
MARKS = st.text(st.sampled_from("\\`*_[](){}<>#+-.!|~^$&;:=%'\"@/ \n\ta1é\u202e\u200d"), max_size=30)
CELLS = st.text(st.sampled_from("'=+-@＝ \t\r\n1.e–a,\"|"), max_size=8)


# --- terminals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\u202elortnoc\u202c", r"\u202elortnoc\u202c"),
        ("no\u200bwidth\u2060\ufeff\u00ad", r"no\u200bwidth\u2060\ufeff\xad"),
        ("half \udcff, private \ue000, tag \U000e0041", r"half \udcff, private \ue000, tag \U000e0041"),
        ("line\u2028end\u2029", r"line\u2028end\u2029"),
        ("filler \u3164\u115f", r"filler \u3164\u115f"),
        ("[/red] :smile: C:\\new", "[/red] :smile: C:\\new"),
        ("Île 東京\u3000都 a\u00a0b ❤\ufe0f ε", "Île 東京\u3000都 a\u00a0b ❤\ufe0f ε"),
    ],
)
def test_what_acts_without_being_seen_is_written_out_and_all_else_stays(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


def test_every_character_of_a_harmful_category_is_written_out():
    harmful = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        if category(one) in harmful:
            shown = visible(one)
            assert (shown.isascii(), shown.isprintable(), shown[0]) == (True, True, "\\"), hex(code)


def test_joiners_stay_where_they_are_asked_for_and_overrides_do_not():
    assert visible("می\u200cخواهم", keep=JOINERS) == "می\u200cخواهم"
    assert visible("\u202e\u2066\u2069" + JOINERS, keep=JOINERS) == r"\u202e\u2066\u2069" + JOINERS


@given(HOSTILE)
def test_the_text_of_an_error_is_one_visible_line(text):
    for error in (MargraveError(text), StoreError(f"{text} is missing")):
        assert all(one.isprintable() for one in str(error))
        assert str(type(error)(f"{error}; and more")) == f"{error}; and more"


def test_what_stands_for_a_value_at_a_prompt_is_visible():
    domain = Domain([Attribute("\x1b[31mred", size=2), Attribute("a\u202eb", size=3)])
    assert repr(domain) == r"Domain(\x1b[31mred: 2, a\u202eb: 3)"


@given(st.one_of(HOSTILE, st.text()))
def test_json_reads_back_as_it_was_and_nothing_in_it_acts(text):
    written = visible_json(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert json.loads(written) == {text: [text]}
    assert visible(written, keep="\n") == written


# --- Markdown ---------------------------------------------------------------------------------------------------


def tokens(page):
    """The structure of a page, and what stands in its lines: kinds and texts."""
    parsed = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page)
    blocks = [token.type for token in parsed]
    lines = [[(child.type, child.content) for child in token.children] for token in parsed if token.type == "inline"]
    return blocks, lines


@given(MARKS)
def test_no_text_is_a_mark_of_markdown_or_html(text):
    plain = visible(" ".join(text.split()), keep=JOINERS)
    expected = [("text", plain)] if plain else []
    escaped = markdown(text)
    assert not {"<", "\n"} & set(escaped)
    blocks, lines = tokens(f"# {escaped}\n\nbefore\n\n{escaped}\n\n- `file`: {escaped} end\n")
    assert blocks == tokens("# x\n\nbefore\n\nx\n\n- `file`: x end\n" if plain else "#\n\nbefore\n\n- `file`: end\n")[0]
    assert joined(lines[0]) == expected
    assert not plain or joined(lines[2]) == expected
    assert joined(lines[-1])[1:] == [("text", f": {plain} end" if plain else ":  end")]


def joined(children):
    """Pieces of text in a row as one piece: a parser may part them at escapes."""
    pieces = []
    for kind, content in children:
        kind = "text" if kind == "text_special" else kind
        if kind == "text" and pieces and pieces[-1][0] == "text":
            pieces[-1] = ("text", pieces[-1][1] + content)
        else:
            pieces.append((kind, content))
    return [piece for piece in pieces if piece != ("text", "")]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("[x](javascript:alert(1))", r"\[x\](javascript:alert(1))"),
        (
            "{{ site.secret }} {% include x %} {: onclick=x}",
            r"\{\{ site.secret \}\} \{\% include x %\} \{: onclick=x\}",
        ),
        ("marital_status _and_ R&D &amp; &#60;", r"marital_status \_and\_ R&D &amp;amp; &amp;#60;"),
        ("Census of 2026 (first part), 95 % – $5", r"Census of 2026 (first part), 95 % – \$5"),
        ("1. first", r"1\. first"),
        ("a\u202eb", r"a\\u202eb"),
    ],
)
def test_markdown_stays_readable_as_it_is(text, escaped):
    assert markdown(text) == escaped


def test_paragraphs_stay_paragraphs():
    assert markdown_paragraphs("one\ntwo\n \n# three\n\n\n") == "one two\n\n\\# three"
    assert markdown_paragraphs(" \n\n ") == ""


# --- spreadsheets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "+cmd|' /C calc'!A0", "-1+1", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n", " =1", "'=1", "''-5", "'-5", "＝1"],
)
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(cell):
    assert guarded(cell) == f"'{cell}"
    assert unguarded(guarded(cell)) == cell


@pytest.mark.parametrize(
    "cell", ["", "-", "+", "a=b", "-5", "+3.25", "-1e-05", "-4–5", "-10–-5", "≤ -3", "(-3.5, 17]", "−5", "'x", "x\n=1"]
)
def test_numbers_ranges_and_other_texts_stay(cell):
    assert guarded(cell) == unguarded(cell) == cell


@given(CELLS)
def test_a_guarded_cell_is_no_formula_and_reads_back(cell):
    written = guarded(cell)
    assert unguarded(written) == cell
    harmless = written.lstrip()[:1] not in tuple("=+-@＝") or len(written.lstrip()) == 1
    assert harmless or set(written) <= set("0123456789.e+-–")
    assert not written.startswith(("\t", "\r", "\n"))


@given(st.sets(CELLS))
def test_no_two_cells_become_the_same(cells):
    assert len({guarded(cell) for cell in cells}) == len(cells)


# --- passwords --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no ledger postgresql://me:secret@db:5/x; begin", "no ledger postgresql://***@db:5/x; begin"),
        ("no ledger 'postgresql:/me:secret@db/x'", "no ledger 'postgresql:/***@db/x'"),
        ("['postgresql://me:sec ret@db/x']", "['postgresql://***@db/x']"),
        ("postgresql://me:s'e/c@r:et@db/x", "postgresql://***@db/x"),
        ("host=db password=secret dbname=x", "host=db password=*** dbname=x"),
        ("host=db PASSWORD = 'sec ret' dbname=x", "host=db PASSWORD = *** dbname=x"),
        (
            "postgresql://db/x?user=me&password=secret&sslmode=require",
            "postgresql://db/x?user=me&password=***&sslmode=require",
        ),
        ("write postgresql://user@host:port/db", "write postgresql://user@host:port/db"),
        ("C:/people:1/me@home.csv, user and password", "C:/people:1/me@home.csv, user and password"),
        ("the cuts are 1:2", "the cuts are 1:2"),
    ],
)
def test_an_address_is_shown_without_its_password(text, shown):
    assert without_passwords(text) == shown
    assert without_passwords(shown) == shown
    assert str(StoreError(text)) == shown
    assert text == shown or text not in repr(StoreError(text))

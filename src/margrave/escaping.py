"""Texts from outside, made harmless where they are shown: names, labels, titles, paths, and messages of other programs.

A label can hold anything: sequences that clear a terminal, marks that turn the reading direction around, Markdown,
HTML, a spreadsheet's formula. In margrave, in Parquet and in JSON files it stays as it is. Where it is shown it passes

- `visible`: terminals, messages, logs, and pages in a browser;
- `without_passwords`: messages, which quote addresses that were given in the wrong place;
- `visible_json`: JSON that is printed on a terminal; it reads back as the same value;
- `markdown`: pages in Markdown;
- `html_table`: values in notebooks;
- `guarded`: cells of CSV files, which people open in spreadsheets; `unguarded` undoes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from unicodedata import category

# Joiners and directional marks: they cannot reorder what stands around a text that is isolated, and the words of some
# languages need them. Pages keep them; a terminal does not isolate anything, and shows them.
JOINERS = "\u061c\u200c\u200d\u200e\u200f"
# Letters and marks by name, and nothing to see: fillers of Hangul and Khmer, and the joiner of graphemes.
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")

# Two forms of the address of a database: a URL, whose slashes a path may have merged into one, and words with "=". A
# password may hold any character, so everything up to the last @ goes. A user without a password stays.
# The texts may come from others: no part of one is looked at twice.
_CREDENTIALS = re.compile(r"(?<=[A-Za-z0-9]{2}:/)(/{0,2})[^@:]*+:")
_PASSWORD_WORD = re.compile(r"\b(pass\w*|pwd)(\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'\"&]+)", re.IGNORECASE)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# Marks within a line, as CommonMark, GitHub, kramdown and Pandoc read them. An underscore between two letters is none.
_INLINE = re.compile(r"[\\`*\[\]{}|~^$]|(?<={)%|(?<![^\W_])_|_(?![^\W_])|(?<!\S)#")
# Marks at the beginning of a line: lists, underlines of headings, definitions.
_LINE_START = re.compile(r"[-+=:]|\d+(?=[.)])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_HTML = str.maketrans({"<": "&lt;", ">": "&gt;"})

# What a spreadsheet takes for the beginning of a formula. The wide forms are those of East Asian keyboards.
_FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠](?=.)|'*[\t\r\n]", re.DOTALL)
# A number, or a range of numbers as bins have it, is shown as it is and computes nothing.
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBERS = re.compile(f"{_NUMBER}(?:–{_NUMBER})?", re.ASCII)


def visible(text: str, *, keep: str = "") -> str:
    r"""Return a text with everything in it that acts without being seen written out, as in ``\x1b`` and ``\u202e``.

    These are control characters, line ends among them; format characters, such as bidirectional marks and those of no
    width; halves of characters, private and unassigned ones. Blanks of every width stay. A backslash stays as it is, so
    that paths can be read: what is shown is for people, and not to be read back. Doing it twice changes nothing.

    Parameters
    ----------
    text
        The text.
    keep
        Characters that stay as they are, such as `JOINERS`.
    """
    if text.isprintable() and _FILLERS.isdisjoint(text):
        return text
    return "".join(_written_out(one) if _is_hidden(one) and one not in keep else one for one in text)


def without_passwords(text: str) -> str:
    """Return a text with ``***`` in place of user and password of an address in it.

    An address belongs where the private table is named. One that is given as a ledger, as a domain file or in a list
    is quoted by the message that refuses it, and must not take its password into a log. Doing it twice changes nothing.
    """
    last = text.rfind("@")
    found = _CREDENTIALS.search(text, 0, last) if last > 0 else None
    if found is not None:
        text = f"{text[: found.end(1)]}***{text[last:]}"
    return _PASSWORD_WORD.sub(r"\1\2***", text)


def visible_json(text: str) -> str:
    """Return a JSON text in which everything that `visible` writes out stands as an escape of JSON.

    Parameters
    ----------
    text
        A JSON document. Line ends stay: outside of strings they are its layout, and inside of strings there are none.
    """
    return "".join(_utf16(one) if one != "\n" and _is_hidden(one) else one for one in text)


def markdown(text: str) -> str:
    """Return Markdown that shows a text as it is, in one line; nothing in it is a mark, a link or HTML.

    Parameters
    ----------
    text
        The text; blanks and line ends in a row become one blank.
    """
    line = visible(" ".join(text.split()), keep=JOINERS)
    escaped = _INLINE.sub(r"\\\g<0>", _ENTITY.sub("&amp;", line)).translate(_HTML)
    start = _LINE_START.match(escaped)
    if start is None:
        return escaped
    # ``1\.`` does not number a list, while ``\1.`` is not an escape.
    before = start.end() if start[0][0].isdigit() else 0
    return f"{escaped[:before]}\\{escaped[before:]}"


def markdown_paragraphs(text: str) -> str:
    """Return Markdown that shows a text as it is, with a paragraph where the text has an empty line.

    Parameters
    ----------
    text
        The text.
    """
    return "\n\n".join(filter(None, map(markdown, _BLANK_LINE.split(text))))


def html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a small table of texts as HTML, as notebooks show it; nothing in a text acts.

    Parameters
    ----------
    caption
        What stands above it.
    headings
        The heading of each column.
    rows
        The cells of each row.
    note
        What stands below it; nothing if empty.
    """

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(f"<{tag} style='text-align:left'>{escape(visible(text))}</{tag}>" for text in texts)

    head = f"<thead><tr>{cells('th', headings)}</tr></thead>" if headings else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    below = f"<p>{escape(visible(note))}</p>" if note else ""
    title = f"<caption style='text-align:left'>{escape(visible(caption))}</caption>"
    return f"<div><table>{title}{head}<tbody>{body}</tbody></table>{below}</div>"


def guarded(cell: str) -> str:
    """Return the text of a CSV cell so that no spreadsheet takes it for a formula.

    A text that begins like a formula, with = + - @ and more behind it, or with a tab or a line end, gets an apostrophe
    in front. So does one that begins like that after apostrophes or blanks: so `unguarded` can tell all texts apart.
    Plain numbers, and ranges of them such as -4–5, stay.

    Parameters
    ----------
    cell
        A label or a name. Cells of numbers are not texts and need no guard.
    """
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBERS.fullmatch(cell) else cell


def unguarded(cell: str) -> str:
    """Return the text that a cell of `guarded` stands for."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


def _is_hidden(one: str) -> bool:
    """Tell whether a character acts without being seen."""
    return (not one.isprintable() and category(one) != "Zs") or one in _FILLERS


def _written_out(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _utf16(one: str) -> str:
    """Return a character as JSON writes it in ASCII: one escape, or two beyond U+FFFF."""
    units = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))

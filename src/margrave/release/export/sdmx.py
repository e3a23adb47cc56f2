"""SDMX-CSV 2.0: the tables of a release as one data set of the statistical offices' exchange format.

All tables of a release are one cube with all attributes as dimensions: where a table does not have an attribute, it is
summed over it, and the code there is ``_T``, SDMX's total. One row is one cell:

    STRUCTURE,STRUCTURE_ID,ACTION,AGE,SEX,REGION,OBS_VALUE,ESTIMATE,STD_ERROR,CI_LOW,CI_HIGH
    dataflow,OFFICE:SURVEY(1.0.0),I,3,F,_T,1204.5,1198.25,14.5,1170,1226

Identifiers in SDMX are letters, digits, ``_``, ``-``, ``@`` and ``$``. The identifier of an attribute is its name in
upper case with all else as ``_``. A category whose labels are all identifiers keeps them as codes, otherwise the codes
are 0, 1, … in the order of domain.json; ``labels="both"`` writes the label after each. Codes that a spreadsheet would
read as formulas, such as ``@A1``, are numbered too, so that no cell of the file is one. After version 2.0.0 of the
SDMX-CSV field guide of the SDMX technical working group.

Where errors of the counts were learned, COUNT_ERROR, COUNT_LOW, COUNT_HIGH and OBS_STATUS follow. The last has codes of
SDMX's code list CL_OBS_STATUS: A (normal value) for a reliable count, U (low reliability) for one to use with care, and
N (not significant) for one that is too uncertain to quote.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from margrave.errors import MargraveError, StoreError
from margrave.escaping import guarded
from margrave.release.count_errors import Reliability
from margrave.release.facts import COLUMNS, COUNT_COLUMNS
from margrave.release.store.tables import safe_word

if TYPE_CHECKING:
    from margrave.domain.attribute import Attribute
    from margrave.domain.domain import Domain
    from margrave.release.release import Release
    from margrave.release.table import Table

Names = tuple[str, ...]

TOTAL = "_T"
MEASURES = {
    "OBS_VALUE": COLUMNS["count"].name,
    "ESTIMATE": COLUMNS["estimate"].name,
    "STD_ERROR": COLUMNS["std_error"].name,
    "CI_LOW": COLUMNS["ci_low"].name,
    "CI_HIGH": COLUMNS["ci_high"].name,
}
COUNT_MEASURES = {
    "COUNT_ERROR": COUNT_COLUMNS["count_error"].name,
    "COUNT_LOW": COUNT_COLUMNS["count_low"].name,
    "COUNT_HIGH": COUNT_COLUMNS["count_high"].name,
    "OBS_STATUS": COUNT_COLUMNS["reliability"].name,
}
STATUS = {
    Reliability.RELIABLE.value: ("A", "Normal value"),
    Reliability.CARE.value: ("U", "Low reliability"),
    Reliability.UNCERTAIN.value: ("N", "Not significant"),
}
_FIXED = ("STRUCTURE", "STRUCTURE_ID", "ACTION")
_TIME = "TIME_PERIOD"
_LABELS = ("id", "both")
_CODE = re.compile(r"[A-Za-z0-9_@$-]+")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_AGENCY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z][A-Za-z0-9_-]*)*")
_PERIOD = re.compile(r"[0-9]{4}[0-9A-Za-z:/.+-]*")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,2}(?:-[A-Za-z0-9.-]+)?")


def write_sdmx(
    release: Release,
    path: str | os.PathLike[str],
    *,
    agency: str,
    dataflow: str,
    version: str = "1.0.0",
    time_period: str | None = None,
    tables: Iterable[Iterable[str]] | None = None,
    labels: str = "id",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write tables of a release to one file in SDMX-CSV 2.0, replaced as a whole or, on failure, left as it was.

    Parameters
    ----------
    release
        The release.
    path
        The file.
    agency, dataflow, version
        The identifier of the data set in SDMX, ``AGENCY:DATAFLOW(VERSION)``.
    time_period
        What the column TIME_PERIOD says, as in "2024" or "2024-Q1"; without it there is no such column.
    tables
        Which tables to write, by names of attributes, each inside a table of the workload; by default the workload.
    labels
        "id" for codes alone; "both" for codes with their labels, as in ``F: female``.
    progress
        Called with the number of tables written and the number of all tables.
    """
    structure = _structure(agency, dataflow, version)
    if labels not in _LABELS:
        raise StoreError(f"no labels {labels!r} in SDMX-CSV", remedy="give 'id' or 'both'")
    if time_period is not None and not (isinstance(time_period, str) and _PERIOD.fullmatch(time_period)):
        raise StoreError(
            f"the time period is {time_period!r}",
            remedy="give one of SDMX, such as '2026', '2026-Q1' or '2026-01-01/P1Y'",
        )
    domain = release.workload.domain
    chosen = _chosen(release, tables)
    columns = _Columns(domain, labels, time_period, structure, errors=release.errors is not None)
    file = Path(path)
    draft = file.parent / f".{file.name[:40]}.{uuid4().hex}.draft"
    try:
        with draft.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)  # ends lines as RFC 4180 wants
            writer.writerow(columns.header)
            for done, names in enumerate(chosen, start=1):
                writer.writerows(columns.rows(release.table(*names)))
                if progress is not None:
                    progress(done, len(chosen))
        draft.replace(file)
    except MargraveError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(f"{file} cannot be written ({error})", remedy="name another file") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def sdmx_codes(attribute: Attribute) -> Names:
    """Return the code of each category of an attribute in SDMX."""
    categories = attribute.categories
    plain = all(_CODE.fullmatch(one) and one != TOTAL and guarded(one) == one for one in categories)
    return categories if plain and len(set(categories)) == len(categories) else tuple(map(str, range(attribute.size)))


def sdmx_dimensions(domain: Domain) -> Names:
    """Return the identifier of each attribute in SDMX, in domain order, no two alike."""
    taken = {*_FIXED, *MEASURES, *COUNT_MEASURES, _TIME}
    found: list[str] = []
    for place, name in enumerate(domain.attributes, start=1):
        word = safe_word(name).upper().replace("-", "_")
        base = word if _IDENTIFIER.fullmatch(word) else f"D_{word}" if word else f"D_{place}"
        identifier, repeat = base, 1
        while identifier in taken:
            repeat += 1
            identifier = f"{base}_{repeat}"
        taken.add(identifier)
        found.append(identifier)
    return tuple(found)


class _Columns:
    """How cells become rows: the header, and the texts of each attribute's codes."""

    def __init__(self, domain: Domain, labels: str, time_period: str | None, structure: str, *, errors: bool) -> None:
        both = labels == "both"
        self._status = {word: ": ".join(code if both else code[:1]) for word, code in STATUS.items()}
        self._time = () if time_period is None else (time_period,)
        title = domain.description or "cross-tabulations"
        self._head = ("dataflow", f"{structure}: {title}" if both else structure, "I")
        self._names = domain.attributes
        self._codes = {member.name: _coded(member, both=both) for member in domain}
        self._total = f"{TOTAL}: Total" if both else TOTAL
        components = dict(zip(sdmx_dimensions(domain), domain.attributes, strict=True))
        components |= {_TIME: "time period"} if self._time else {}
        components |= {**MEASURES, **COUNT_MEASURES} if errors else MEASURES
        self.header = (*_FIXED, *(f"{one}: {name}" if both else one for one, name in components.items()))

    def rows(self, table: Table) -> Iterator[tuple[object, ...]]:
        """Iterate over the rows of a table; numbers that do not exist are empty."""
        size, axes = table.values.size, dict(zip(table.attributes, range(table.values.ndim), strict=True))
        places = np.indices(table.values.shape, sparse=True)
        dimensions: list[list[str]] = []
        for name in self._names:
            if name in axes:
                codes: list[int] = np.broadcast_to(places[axes[name]], table.values.shape).ravel().tolist()
                dimensions.append([self._codes[name][code] for code in codes])
            else:
                dimensions.append([self._total] * size)
        fixed = [[text] * size for text in self._head]
        time = [[text] * size for text in self._time]
        numbers = [_numbers(one, table) for one in _measures(table)]
        words = table.reliability()
        if words is not None:
            numbers.append([self._status[word] for word in words.ravel().tolist()])
        return zip(*fixed, *dimensions, *time, *numbers, strict=True)


def _measures(table: Table) -> tuple[object, ...]:
    numbers = (table.values, table.estimate, table.std_error, table.ci_low, table.ci_high)
    return numbers if table.count_error is None else (*numbers, table.count_error, table.count_low, table.count_high)


def _numbers(measure: object, table: Table) -> list[object]:
    if measure is None:
        return [""] * table.values.size
    flat: list[object] = np.broadcast_to(np.asarray(measure), table.values.shape).ravel().tolist()
    return flat


def _coded(attribute: Attribute, *, both: bool) -> Names:
    codes = sdmx_codes(attribute)
    return tuple(f"{code}: {text}" for code, text in zip(codes, attribute.categories, strict=True)) if both else codes


def _chosen(release: Release, tables: Iterable[Iterable[str]] | None) -> list[Names]:
    """Return the tables to write, attributes in domain order, each once."""
    if tables is None:
        return list(release.workload.sets)
    if isinstance(tables, str):
        raise StoreError(f"tables is the text {tables!r}", remedy="give a list of tables, as in [('age', 'sex')]")
    domain = release.workload.domain
    return list(dict.fromkeys(domain.names(domain.positions(names)) for names in tables))


def _structure(agency: str, dataflow: str, version: str) -> str:
    """Return ``AGENCY:DATAFLOW(VERSION)`` if all three are identifiers."""
    for what, value, form in (
        ("agency", agency, _AGENCY),
        ("dataflow", dataflow, _IDENTIFIER),
        ("version", version, _VERSION),
    ):
        if not isinstance(value, str) or not form.fullmatch(value):
            raise StoreError(
                f"the {what} is {value!r}",
                remedy="give an SDMX identifier of ASCII letters, digits, '_' and '-' that begins "
                "with a letter, and a version such as 1.0.0",
            )
    return f"{agency}:{dataflow}({version})"

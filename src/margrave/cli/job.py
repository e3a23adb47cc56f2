"""Job files: all options of ``plan`` and ``release`` in one TOML file that can be reviewed and kept.

A key is the name of the option without its dashes in front:

    data = "people.parquet"
    domain = "domain.json"
    kway = 3
    epsilon = 1.0
    delta = 1e-9
    contributions = 1
    ledger = "people.ledger"
    cap-epsilon = 2.0
    out = "release"

Paths are relative to the folder of the job file. An option that is given on the command line overrides its key.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave.cli.options import text_options
from margrave.errors import BudgetRefusedError, DomainError, JobError, suggestion
from margrave.strict_json import MOST_BYTES_BY_HAND, read_text

if TYPE_CHECKING:
    from margrave.data.source import Data
    from margrave.domain import Domain
    from margrave.planning.plans import Plan
    from margrave.privacy.budget import Budget
    from margrave.privacy.ledger import Ledger
    from margrave.workload import Workload

_PATHS = ("data", "domain", "ledger", "out")
_KINDS: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "table": (str,),
    "query": (str,),
    "publish_query": (bool,),
    "privacy_id": (str,),
    "counts": (str,),
    "counting": (str,),
    "delimiter": (str,),
    "encoding": (str,),
    "decimal": (str,),
    "domain": (str,),
    "kway": (int,),
    "up_to": (int,),
    "tables": (list,),
    "max_cells": (int,),
    "epsilon": (float, int),
    "delta": (float,),
    "rho": (float, int),
    "contributions": (int,),
    "objective": (str,),
    "method": (str,),
    "ledger": (str,),
    "cap_epsilon": (float, int),
    "cap_rho": (float, int),
    "ledger_any_domain": (bool,),
    "out": (str,),
    "overwrite": (bool,),
    "csv": (bool,),
    "report": (bool,),
    "title": (str,),
}
# The parser takes memory with the square of the dots in a key.
_MOST_DOTS = 2000
_SPOKEN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


@dataclass(frozen=True)
class Job:
    """What is to be done; None where nothing was said.

    Attributes
    ----------
    data, table, query, publish_query, privacy_id, counts, counting, delimiter, encoding, decimal
        The private table, as `margrave.Data` takes it.
    domain
        The domain file.
    kway, up_to, tables, max_cells
        The tables wanted: all of k attributes, all of at most k, or a list of them; and the most cells of a table.
    epsilon, delta, rho
        The budget, (ε, δ) or ρ.
    contributions
        The most rows of one person.
    objective, method
        How to plan and how to reconstruct.
    ledger, cap_epsilon, cap_rho, ledger_any_domain
        The ledger, the cap that it begins with, and whether it may be charged for another domain than before.
    out, overwrite, csv, report, title
        The folder to write, and what goes into it.
    """

    data: str | None = None
    table: str | None = None
    query: str | None = None
    publish_query: bool | None = None
    privacy_id: str | None = None
    counts: str | None = None
    counting: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    domain: str | None = None
    kway: int | None = None
    up_to: int | None = None
    tables: tuple[tuple[str, ...], ...] | None = None
    max_cells: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    contributions: int | None = None
    objective: str | None = None
    method: str | None = None
    ledger: str | None = None
    cap_epsilon: float | None = None
    cap_rho: float | None = None
    ledger_any_domain: bool | None = None
    out: str | None = None
    overwrite: bool | None = None
    csv: bool | None = None
    report: bool | None = None
    title: str | None = None

    @classmethod
    def read(cls, path: Path) -> Job:
        """Read a job file."""
        try:
            text = read_text(path, most_bytes=MOST_BYTES_BY_HAND)
            if text.count(".") > _MOST_DOTS:
                raise ValueError(f"it has more than {_MOST_DOTS:,} full stops")
            document = tomllib.loads(text)
        except OSError as error:
            raise JobError(f"{path} cannot be read ({error.strerror}); give the path of a job file") from error
        except DomainError as error:
            raise JobError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise JobError(f"{path} is not TOML in UTF-8 ({error}); see `margrave release --help`") from None
        values = {_field(path, key): _value(path, key, value) for key, value in document.items()}
        for name in _PATHS:
            if name in values and "://" not in values[name]:
                values[name] = str(path.parent / values[name])
        return cls(**values)

    @classmethod
    def of(cls, file: Path | None, options: Mapping[str, Any]) -> Job:
        """Return the job of a file, if there is one, with the options of the command line over it."""
        job = cls() if file is None else cls.read(file)
        given = {name: value for name, value in options.items() if value is not None}
        for one, others in (
            ("kway", ("up_to", "tables")),
            ("up_to", ("kway", "tables")),
            ("tables", ("kway", "up_to")),
        ):
            if one in given and not any(other in given for other in others):
                job = replace(job, **dict.fromkeys(others))
        if "rho" in given or "epsilon" in given:
            job = replace(job, rho=None, epsilon=None)
        return replace(job, **given)

    def need(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of an option that must be there."""
        value = getattr(self, name)
        if value is None:
            option = name.replace("_", "-")
            words = "the private table (DATA)" if name == "data" else f"--{option}"
            raise JobError(f"{words} is missing; give it on the command line, or {option} = … in a job file")
        return value

    def read_domain(self) -> Domain:
        """Read the domain file."""
        from margrave.domain import Domain

        return Domain.read(self.need("domain"))

    def workload(self, domain: Domain) -> Workload:
        """Return the tables wanted."""
        from margrave.workload import Workload

        given = [name for name in ("kway", "up_to", "tables") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(f"--{name.replace('_', '-')}" for name in given) or "no tables"
            raise JobError(f"{said} given; say which tables by one of --kway K, --up-to K and --tables age,sex")
        if self.tables is not None:
            workload = Workload(domain, self.tables)
        elif self.kway is not None:
            workload = Workload.all_kway(domain, self.kway)
        else:
            workload = Workload.up_to(domain, self.need("up_to"))
        return workload if self.max_cells is None else workload.filter(max_cells=self.max_cells)

    def budget(self) -> Budget:
        """Return what may be spent."""
        return budget_of(self.epsilon, self.rho, self.delta, "")

    def plan(self, workload: Workload) -> Plan:
        """Make the plan."""
        from margrave.planning.plans import OBJECTIVE, plan

        contributions = self.need("contributions")
        return plan(workload, self.budget(), contributions=contributions, objective=self.objective or OBJECTIVE)

    def source(self) -> Data:
        """Return the description of the private table; nothing is opened."""
        from margrave.data.source import Data

        names = ("table", "query", "publish_query", "privacy_id", "counts", "counting")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Data(self.need("data"), **options, **text_options(self.delimiter, self.encoding, self.decimal))

    def workload_options(self) -> list[str]:
        """Return the words of the command line that ask for the same tables again."""
        words = [word for names in self.tables or () for word in ("--tables", ",".join(names))]
        for name in ("kway", "up_to", "max_cells"):
            value = getattr(self, name)
            words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
        return words

    def open_ledger(self) -> Ledger | None:
        """Open the ledger; one that is not there yet will be begun, with the cap that was given, by its first charge.

        What the ledger's entry says of a release, its folder and its title, is taken from the job.
        """
        from margrave.privacy.ledger import Ledger, require_local

        capped = self.cap_epsilon is not None or self.cap_rho is not None
        if self.ledger is None:
            if capped:
                raise JobError("a cap is given and no ledger; name its file with --ledger")
            if self.ledger_any_domain:
                raise JobError("--ledger-any-domain is given and no ledger; name its file with --ledger")
            return None
        require_local(self.ledger)
        if not capped and not Path(self.ledger).exists():
            raise JobError(
                f"there is no ledger {self.ledger}; to begin one give its cap for the life of the data set, "
                "--cap-epsilon (at --delta) or --cap-rho"
            )
        cap = budget_of(self.cap_epsilon, self.cap_rho, self.delta, "cap-") if capped else None
        asked = None if self.epsilon is None and self.rho is None else self.budget()
        if cap is not None and asked is not None and asked.rho > cap.rho and not Path(self.ledger).exists():
            raise BudgetRefusedError(
                f"{asked!r} is asked for and the cap is {cap!r}; no ledger was begun and nothing was read: ask for less"
            )
        release = None if self.out is None else os.path.abspath(self.out)  # noqa: PTH100 — links are kept
        notes = {name: text for name, text in (("title", self.title), ("release", release)) if text is not None}
        return Ledger(self.ledger, cap, any_domain=bool(self.ledger_any_domain), notes=notes)


def budget_of(epsilon: float | None, rho: float | None, delta: float | None, prefix: str) -> Budget:
    """Return the budget of ε and δ, or of ρ, whichever was given."""
    from margrave.privacy.budget import Budget

    if (epsilon is None) == (rho is None):
        said = "both" if rho is not None else "neither"
        raise JobError(f"{said} of --{prefix}epsilon and --{prefix}rho given; give one of them")
    if rho is not None:
        return Budget.zcdp(rho=rho) if delta is None else Budget.zcdp(rho=rho, delta=delta)
    if delta is None:
        raise JobError(f"--{prefix}epsilon needs --delta beside it; 1e-9 is usual")
    return Budget.approx(epsilon=epsilon, delta=delta)  # type: ignore[arg-type]


def _field(path: Path, key: str) -> str:
    """Return the field that a key of a job file stands for."""
    known = [field.name.replace("_", "-") for field in fields(Job)]
    if key not in known:
        hint = suggestion(key, known)
        raise JobError(f"{path} has the unknown key {key!r}{hint} (it may have {', '.join(known)})")
    return key.replace("-", "_")


def _value(path: Path, key: str, value: object) -> Any:  # noqa: ANN401
    """Return the value of a key if it is of the right kind."""
    kinds = _KINDS[key.replace("-", "_")]
    # True is an int in Python, and is not one to people.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise JobError(f"{path} has {key} = {value!r}; give {_SPOKEN[kinds[0]]}")
    return _table_list(path, value) if isinstance(value, list) else value


def _table_list(path: Path, value: Sequence[object]) -> tuple[tuple[str, ...], ...]:
    """Return a list of tables, each a list of names."""
    tables = []
    for names in value:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise JobError(
                f"{path} has {names!r} among its tables; write each as a list of names, as in ['age', 'sex']"
            )
        tables.append(tuple(names))
    return tuple(tables)

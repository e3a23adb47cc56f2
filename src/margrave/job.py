"""Jobs: a whole release, from the private table to the folder, declared by options and run as one.

`Job` declares every option once. The command line's options, the keys of job files (TOML) and the table in docs/cli.md
are made from its fields and from the options of mechanisms and methods. A key is the name of the option without its
dashes:

    data = "people.parquet"
    domain = "domain.json"
    kway = 3
    epsilon = 1.0
    delta = 1e-9
    contributions = 1
    ledger = "people.ledger"
    cap-epsilon = 2.0
    out = "release"

Paths are relative to the folder of the job file. An option on the command line overrides its key. `Job.run` does what
``margrave release`` does; the command adds progress, words and exit codes.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margrave import methods
from margrave.errors import (
    BudgetRefusedError,
    DomainError,
    InterruptionError,
    JobError,
    MargraveError,
    PlanError,
    suggestion,
)
from margrave.files import MOST_BYTES_BY_HAND, read_text
from margrave.mechanisms import DEFAULT as USUAL_MECHANISM
from margrave.mechanisms import DEFAULT_FOR_PLANS, MECHANISMS, mechanism_class
from margrave.methods import DEFAULT as USUAL_METHOD
from margrave.methods import Method, find
from margrave.methods import names as method_names
from margrave.options import Names, Option, OptionKind, option, options_of

if TYPE_CHECKING:
    from margrave.data.source import Data
    from margrave.domain.domain import Domain
    from margrave.measurements.archive import KeptFile
    from margrave.measurements.measurements import Measurements
    from margrave.mechanisms import Mechanism
    from margrave.planning.expectation import Expectation
    from margrave.privacy.budget import Budget
    from margrave.privacy.ledger import Ledger
    from margrave.release.count_errors import Bounds
    from margrave.release.facts import Imprint
    from margrave.release.publication import Publication, Tick
    from margrave.release.release import Release
    from margrave.workload import Workload

_DATA, _TABLES, _BUDGET = "The private table", "The tables wanted", "The budget"
MEASURING, WRITING = "How it is measured", "What is written"
# Commands that read the private table, that know which tables are wanted, that spend, and that write a release.
_READ, _ASK, _SPEND, _WRITE = (
    ("domain", "validate", "release", "evaluate"),
    ("plan", "release", "reconstruct"),
    ("plan", "release"),
    ("release", "reconstruct"),
)
_REPORT = (*_WRITE, "report")
# The parser takes memory with the square of the dots in a key.
_MOST_DOTS = 2000
_RELEASE = ("release",)
# What plans with targets minimise, where nothing else is asked for.
TARGET_OBJECTIVE = "nonnegative"
# A larger δ is more than one over the number of people in most tables.
_LARGE_DELTA = 1e-5

# Fields of a job by what they are about: the private table, the tables wanted, the budget, the folder and its report.
_reading = partial(option, None, group=_DATA, commands=_READ)
_releasing = partial(option, None, group=_DATA, commands=_RELEASE)
_wanted = partial(option, None, group=_TABLES, commands=_ASK)
_spending = partial(option, None, group=_BUDGET, commands=_SPEND)
_charging = partial(option, None, group=_BUDGET, commands=_RELEASE)
_writing = partial(option, None, group=WRITING, commands=_WRITE)
_reporting = partial(option, None, group=WRITING, commands=_REPORT)


@dataclass(frozen=True)
class Job:
    """A whole release: what is read, measured, charged and written; None where nothing was given.

    Options that the command line calls ``--up-to`` and a job file ``up-to`` are called ``up_to`` here.

    Attributes
    ----------
    data, table, query, publish_query, privacy_id, counts, counting, rows, delimiter, encoding, decimal, trim, null,
    header, names
        The private table, as `margrave.Data` takes it.
    domain
        The domain file.
    kway, up_to, tables, max_cells
        The tables wanted: all of k attributes, all of at most k, or a list of them; and the most cells of a table.
    weight, target
        How much tables matter, and the margins of error that they must have.
    epsilon, delta, rho
        The budget, (ε, δ) or ρ.
    contributions
        The most rows of one person.
    ledger, cap_epsilon, cap_rho, ledger_any_domain
        The ledger, the cap that it begins with, and whether it may be charged for another domain than before.
    mechanism, mechanism_options
        How to measure, with the options of the mechanism by name.
    method, method_options
        How to reconstruct, with the options of the method by name.
    out, overwrite, csv, report, errors, reliable, care, reliable_within, title
        The folder to write, and what goes into it.
    publisher, licence, contact, date
        Who publishes it, for the report.
    workers, scratch
        Processes that divide the work after measuring, and where large arrays are kept.
    """

    data: str | None = option(
        None,
        "The private table: CSV, Parquet or JSON file, glob, .duckdb file, or postgresql:// URL.",
        commands=("domain", "validate", "release"),
        path=True,
    )
    table: str | None = _reading("The table of a database.")
    query: str | None = _reading("One SELECT; rows of a person are those of its result.")
    publish_query: bool | None = _releasing("Publish the text of the query with the release.")
    delimiter: str | None = _reading("The delimiter of a CSV file, such as ';' or tab.")
    encoding: str | None = _reading("The encoding of a CSV file: utf-8, windows-1252, latin-1, utf-16 …")
    decimal: str | None = _reading("The decimal mark in a CSV file: . or ,")
    trim: bool | None = _reading("Strip the blanks around the fields of a CSV file.", negatable=True)
    null: tuple[str, ...] | None = _reading(
        "A text that marks a missing value in a CSV file, such as '?'; may be repeated.", kind=OptionKind.TEXTS
    )
    header: bool | None = _reading("Whether the first row of a CSV file holds the column names.", negatable=True)
    names: tuple[str, ...] | None = _reading(
        "The names of the columns of a CSV file without a header, such as age,sex.", kind=OptionKind.NAMES
    )
    privacy_id: str | None = _reading("The column that identifies the person of each row.")
    counts: str | None = _releasing("The column of counts, if each row is a count made elsewhere.")
    counting: str | None = _releasing("Where rows are counted: auto, fetch or push-down.")
    rows: int | None = option(
        None,
        "About how many rows the table has, if that is public; else the number is measured first.",
        group=_DATA,
        commands=_SPEND,
    )
    domain: str | None = _wanted("The domain file, declared and reviewed.", path=True)
    kway: int | None = _wanted("All tables of K attributes.")
    up_to: int | None = _wanted("All tables of at most K attributes.")
    tables: tuple[Names, ...] | None = _wanted("One table, such as age,sex; may be repeated.", kind=OptionKind.TABLES)
    weight: Mapping[Names, float] | None = _wanted(
        "The weight of a table, such as income=20 or age,sex=5; others have 1; may be repeated.",
        kind=OptionKind.NUMBERS,
    )
    target: Mapping[Names, float] | None = option(
        None,
        "The 95 % margin of error that a table must have, such as age,sex=50; may be repeated.",
        kind=OptionKind.NUMBERS,
        group=_TABLES,
        commands=_SPEND,
    )
    max_cells: int | None = _wanted("Leave out tables with more cells.")
    epsilon: float | None = _spending("ε, together with --delta.")
    delta: float | None = option(None, "δ; 1e-9 is usual.", group=_BUDGET, commands=(*_SPEND, "create"))
    rho: float | None = _spending("ρ of zCDP, instead of ε.")
    contributions: int | None = _spending("The maximum number of rows per person.")
    ledger: str | None = _charging("The spending record of the data set.", path=True)
    cap_epsilon: float | None = option(
        None, "Create the ledger with this cap (at --delta).", group=_BUDGET, commands=(*_RELEASE, "create")
    )
    cap_rho: float | None = option(None, "The same cap, given as ρ.", group=_BUDGET, commands=(*_RELEASE, "create"))
    ledger_any_domain: bool | None = _charging(
        "Charge a ledger that was charged for another domain: the same people, declared differently."
    )
    mechanism: str | None = option(
        None,
        f"How to measure: {', '.join(MECHANISMS)}; {USUAL_MECHANISM} by default, {DEFAULT_FOR_PLANS} with --target, "
        "--objective or another method than lnn.",
        group=MEASURING,
        commands=_SPEND,
    )
    method: str | None = option(
        None,
        f"How to reconstruct: {', '.join(method_names())}; {USUAL_METHOD} by default.",
        group=WRITING,
        commands=_ASK,
    )
    out: str | None = _writing("The folder to write.", path=True)
    overwrite: bool | None = _writing("Replace a release that exists.")
    csv: bool | None = _writing("Write tables as CSV too.", negatable=True)
    report: bool | None = _writing("Write report.html; on by default.", negatable=True)
    errors: bool | None = _writing(
        "Estimate the error of every published count; on by default, takes a few more reconstructions.", negatable=True
    )
    workers: int | str | None = _writing(
        "Divide the work among N processes, or those of a Dask scheduler, as tcp://host:8786.",
        kind=OptionKind.WHOLE_OR_TEXT,
    )
    scratch: str | None = _writing("A folder for large arrays, where they do not fit into memory.", path=True)
    reliable: float | None = _writing(
        "The largest relative error of a count that is called reliable; 0.12 by default.", kind=OptionKind.NUMBER
    )
    care: float | None = _writing(
        "The largest relative error of a count to use with care; 0.4 by default.", kind=OptionKind.NUMBER
    )
    reliable_within: float | None = _writing(
        "An error of at most this many people is reliable whatever the count; 1 by default.", kind=OptionKind.NUMBER
    )
    title: str | None = _reporting("The title of the report.")
    publisher: str | None = _reporting("For the report: who publishes the release.")
    licence: str | None = _reporting("For the report: the licence of the tables, as 'CC BY 4.0'.")
    contact: str | None = _reporting("For the report: whom to ask.")
    date: str | None = _reporting("For the report: when it is published, as 2026-11-18.")
    mechanism_options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """Read a job file."""
        path = Path(path)
        try:
            text = read_text(path, most_bytes=MOST_BYTES_BY_HAND)
            if text.count(".") > _MOST_DOTS:
                raise ValueError(f"it has more than {_MOST_DOTS:,} full stops")
            document = tomllib.loads(text)
        except OSError as error:
            raise JobError(f"{path} cannot be read ({error.strerror})", remedy="give the path of a job file") from error
        except DomainError as error:
            raise JobError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise JobError(f"{path} is not TOML in UTF-8 ({error})", remedy="see `margrave release --help`") from None
        declared = {one.key: one for one in options_of(cls)}
        if set(document) - set(declared):
            declared = {one.key: one for one in all_options()}
        values = {}
        for key, value in document.items():
            one = _declared(path, key, declared)
            values[one.name] = one.checked(value, str(path))
            if one.path and "://" not in value:
                values[one.name] = str(path.parent / value)
        return cls()._with(values)

    def changed(self, text: str) -> Job:
        """Return the job with one option changed, as in ``objective=total_variance`` or ``weight={income = 20}``."""
        where = Path("--compare-with")
        key, _, value = text.partition("=")
        declared = {one.key: one for one in all_options()}
        one = _declared(where, key.strip(), declared)
        try:
            document = tomllib.loads(f"value = {value}")
        except (ValueError, RecursionError):
            document = {"value": value.strip()}  # a text need not be quoted here
        return self._overridden({one.name: one.checked(document["value"], str(where))})

    @classmethod
    def of(cls, file: Path | None, options: Mapping[str, Any]) -> Job:
        """Return the job of a file, if there is one, overridden by the options of the command line.

        Parameters
        ----------
        file
            A job file.
        options
            Values by name; None for an option that was not given.
        """
        job = cls() if file is None else cls.read(file)
        return job._overridden({name: value for name, value in options.items() if value is not None})

    def _overridden(self, given: Mapping[str, Any]) -> Job:
        """Return the job with the values given, and without those that they replace."""
        job = self
        for one, others in (
            ("kway", ("up_to", "tables")),
            ("up_to", ("kway", "tables")),
            ("tables", ("kway", "up_to")),
        ):
            if one in given and not any(other in given for other in others):
                job = replace(job, **dict.fromkeys(others))  # type: ignore[arg-type]
        if "rho" in given or "epsilon" in given:
            job = replace(job, rho=None, epsilon=None)
        # The options of another mechanism or method do not apply to the one given here.
        if given.get("mechanism", job.mechanism) != job.mechanism:
            job = replace(job, mechanism_options={})
        if given.get("method", job.method) != job.method:
            job = replace(job, method_options={})
        return job._with(given)

    def _with(self, values: Mapping[str, Any]) -> Job:
        """Return the job with these values over its own; options of mechanisms and methods go where they belong."""
        declared = {one.name for one in options_of(Job)}
        own = {name: value for name, value in values.items() if name in declared}
        of_methods = {name: values[name] for name in values.keys() - declared & method_options().keys()}
        of_mechanisms = {name: values[name] for name in values.keys() - declared - of_methods.keys()}
        return replace(
            self,
            **own,
            mechanism_options={**self.mechanism_options, **of_mechanisms},
            method_options={**self.method_options, **of_methods},
        )

    def need(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of an option that must be given."""
        value = getattr(self, name)
        if value is None:
            key = name.replace("_", "-")
            words = "the private table (DATA)" if name == "data" else f"--{key}"
            raise JobError(f"{words} is missing", remedy=f"give it on the command line, or {key} = … in a job file")
        return value

    def read_domain(self) -> Domain:
        """Read the domain file."""
        from margrave.domain.domain import Domain

        return Domain.read(self.need("domain"))

    def workload(self, domain: Domain) -> Workload:
        """Return the tables wanted."""
        from margrave.workload import Workload

        given = [name for name in ("kway", "up_to", "tables") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(f"--{name.replace('_', '-')}" for name in given) or "no tables"
            raise JobError(
                f"{said} given", remedy="choose the tables by one of --kway K, --up-to K and --tables age,sex"
            )
        if self.tables is not None:
            workload = Workload(domain, self.tables)
        elif self.kway is not None:
            workload = Workload.all_kway(domain, self.kway)
        else:
            workload = Workload.up_to(domain, self.need("up_to"))
        if self.max_cells is not None:
            workload = workload.filter(max_cells=self.max_cells)
        # Small tables that are asked for get weight; equal weights would plan them only as parts of the large ones.
        workload = workload if self.up_to is None else workload.graded()
        return workload if self.weight is None else workload.weighted(by_table(domain, self.weight))

    def targeted(self, workload: Workload) -> Workload:
        """Return the workload with the weights by which the tables have the margins of error asked for."""
        if self.target is None:
            return workload
        if self.mechanism_name != DEFAULT_FOR_PLANS:
            raise JobError(
                f"--target is given for the mechanism {self.mechanism}",
                remedy=f"only the mechanism {DEFAULT_FOR_PLANS} plans for margins: leave out one of the two",
            )
        from margrave.planning.plans import plan_for_targets

        objective = self.mechanism_options.get("objective", TARGET_OBJECTIVE)
        if objective == "counts" and self.rows is None:
            raise JobError(
                "--target is given for the objective counts without --rows: its plan follows from what is measured",
                remedy=f"give --rows, about how many rows there are, or leave out --objective (it is then "
                f"{TARGET_OBJECTIVE})",
            )
        return plan_for_targets(
            workload,
            self.budget(),
            by_table(workload.domain, self.target),
            contributions=self.need("contributions"),
            objective=objective,
            rows=self.rows if objective == "counts" else None,
        ).workload

    def budget(self) -> Budget:
        """Return what may be spent."""
        return budget_of(self.epsilon, self.rho, self.delta, "")

    @property
    def mechanism_name(self) -> str:
        """The mechanism named, or the usual one.

        That is the planner for margins and objectives, which are those of a plan, and for methods that need another
        objective than the error of non-negative counts.
        """
        if self.mechanism is not None:
            return self.mechanism
        planned = self.target is not None or "objective" in self.mechanism_options
        another = self.reconstructing().objective != find(USUAL_METHOD).objective
        return DEFAULT_FOR_PLANS if planned or another else USUAL_MECHANISM

    def measuring(self) -> Mechanism:
        """Return the mechanism, with its options."""
        name = self.mechanism_name
        chosen = mechanism_class(name)
        options = dict(_own(self.mechanism_options, name, _mechanism_classes(), "mechanism"))
        if self.target is not None:
            # The weights by which targets are met are those of this objective.
            options.setdefault("objective", TARGET_OBJECTIVE)
        # A stated number of rows also helps to choose how to count, so it is not an option of a mechanism.
        plans = "rows" in {one.name for one in fields(chosen)} and options.get("objective", "counts") == "counts"
        if plans and self.rows is not None:
            options["rows"] = self.rows
        return chosen(**options)

    def reconstructing(self) -> Method:
        """Return the method, with its options; it always gives tables, because the budget is spent by then."""
        usual = find(self.method or USUAL_METHOD)
        return replace(usual, **_own(self.method_options, usual.name, _method_classes(), "method")).lenient()

    def _bounds(self) -> Bounds:
        """Return where counts stop being reliable."""
        from margrave.release.count_errors import BOUNDS, Bounds

        given = (self.reliable, self.care, self.reliable_within)
        usual = astuple(BOUNDS)
        return Bounds(*(one if value is None else value for value, one in zip(given, usual, strict=True)))

    def publication(self) -> Publication:
        """Return what to publish, and where."""
        from margrave.release.publication import Publication

        return Publication(
            self.need("out"),
            self.reconstructing(),
            overwrite=bool(self.overwrite),
            csv=bool(self.csv),
            report=self.report is None or self.report,
            errors=self.errors is None or self.errors,
            bounds=self._bounds(),
            title=self.title,
            imprint=self.imprint,
            workers=self.workers,
            scratch=self.scratch,
        )

    @property
    def imprint(self) -> Imprint:
        """Who publishes the release, as far as it is told."""
        return {"publisher": self.publisher, "licence": self.licence, "contact": self.contact, "date": self.date}

    def source(self) -> Data:
        """Return the description of the private table; nothing is opened."""
        from margrave.data.source import Data

        given = {one.name: getattr(self, one.name, None) for one in fields(Data) if one.name != "source"}
        return Data(self.need("data"), **{name: value for name, value in given.items() if value is not None})

    def reconstruct_words(self) -> list[str]:
        """Return the words of ``margrave reconstruct`` that ask for the same tables, made in the same way."""
        # Paths as seen from here, and the method by its name even if it is the default.
        shown = {"method": self.method or USUAL_METHOD, "out": os.path.relpath(Path(self.need("out")).resolve())}
        words: list[str] = []
        for one in options_of(Job):
            if "reconstruct" in one.commands and one.name != "domain":
                words += one.words(shown.get(one.name, getattr(self, one.name)))
        for name, value in self.method_options.items():
            words += method_options()[name].words(value)
        return words

    def open_ledger(self) -> Ledger | None:
        """Open the ledger; a new one is created, with the cap that was given, by its first charge.

        What the ledger's entry says about a release, its folder and its title, is taken from the job.
        """
        from margrave.privacy.budget import format_budget
        from margrave.privacy.ledger import Ledger, require_local

        capped = self.cap_epsilon is not None or self.cap_rho is not None
        if self.ledger is None:
            if capped:
                raise JobError("a cap is given and no ledger", remedy="name its file with --ledger")
            if self.ledger_any_domain:
                raise JobError("--ledger-any-domain is given and no ledger", remedy="name its file with --ledger")
            return None
        require_local(self.ledger)
        if not capped and not Path(self.ledger).exists():
            raise JobError(
                f"there is no ledger {self.ledger}",
                remedy="to create one, give its cap for the life of the data set, "
                "--cap-epsilon (at --delta) or --cap-rho",
            )
        cap = budget_of(self.cap_epsilon, self.cap_rho, self.delta, "cap-") if capped else None
        asked = None if self.epsilon is None and self.rho is None else self.budget()
        if cap is not None and asked is not None and asked.rho > cap.rho and not Path(self.ledger).exists():
            raise BudgetRefusedError(
                f"{format_budget(asked)} is asked for and the cap is {format_budget(cap)}",
                remedy="no ledger was created and nothing was read: ask for less",
            )
        release = None if self.out is None else os.path.abspath(self.out)  # noqa: PTH100 — links are kept
        notes = {name: text for name, text in (("title", self.title), ("release", release)) if text is not None}
        return Ledger(self.ledger, cap, any_domain=bool(self.ledger_any_domain), notes=notes)

    def predict(self) -> Expectation | None:
        """Return the errors to expect; None where they depend on the data. Nothing is opened."""
        workload = self.targeted(self.workload(self.read_domain()))
        return self.measuring().predict(workload, self.budget(), contributions=self.need("contributions"))

    def budget_for(self, margins: Mapping[Names, float]) -> Budget:
        """Return the least budget whose plan has these 95 % margins of error.

        Parameters
        ----------
        margins
            A margin for each table, by its attributes.
        """
        from margrave.planning.plans import budget_for_margin
        from margrave.privacy.budget import Budget

        if self.mechanism not in (None, DEFAULT_FOR_PLANS):
            raise PlanError(
                f"no budget can be found for the mechanism {self.mechanism}", remedy="leave out --mechanism"
            )
        domain = self.read_domain()
        workload, rows = self.workload(domain), self.need("contributions")
        options = {name: value for name, value in self.mechanism_options.items() if name == "objective"}
        rho = max(
            budget_for_margin(workload, attributes=names, margin=margin, contributions=rows, **options).rho
            for names, margin in by_table(domain, margins).items()
        )
        return Budget.zcdp(rho=rho) if self.delta is None else Budget.zcdp(rho=rho, delta=self.delta)

    def prepare(self) -> PreparedJob:
        """Return the job ready to run; refuse all that can be refused before the table is read."""
        from margrave.measurements.archive import KeptFile

        publication, budget = self.publication(), self.budget()
        workload = self.targeted(self.workload(self.read_domain()))
        mechanism = self.measuring().prepare(workload, budget, contributions=self.need("contributions"))
        self.source()  # refuses a table that cannot be described
        kept, cells = KeptFile.beside(publication.folder), mechanism.cells(workload)
        publication.check(workload, beside=8 * cells)
        kept.require_room(cells)
        ledger = self.open_ledger()
        begins = ledger is not None and ledger.is_new
        return PreparedJob(self, publication, workload, budget, mechanism, kept, ledger, begins)

    def run(
        self, *, progress: Callable[[str], Tick] | None = None, notify: Callable[[str], None] | None = None
    ) -> Release:
        """Measure the table, charge the ledger, reconstruct and write the folder; return the release.

        Parameters
        ----------
        progress, notify
            As for `PreparedJob.run`.
        """
        return self.prepare().run(progress=progress, notify=notify)

    def publish(self, noisy: Measurements, *, progress: Callable[[str], Tick] | None = None) -> Release:
        """Reconstruct the tables wanted from measurements, and write the folder. Costs no budget.

        Parameters
        ----------
        noisy
            Measurements that were kept, or made elsewhere.
        progress
            As for `Publication.publish`.
        """
        publication, workload = self.publication(), self.workload(noisy.domain)
        publication.check(workload)
        return publication.publish(noisy, workload, progress=progress)

    def read_measurements(self, files: Sequence[Path], *, variance: float | None = None) -> Measurements:
        """Read measurements from a file or a release, or make them from noisy tables over the job's domain.

        Parameters
        ----------
        files
            One .npz file, the folder of a release, or tables (CSV, Parquet).
        variance
            The variance of the noise, for tables without such a column.
        """
        from margrave.measurements.measurements import Measurements

        if any(path.suffix == ".npz" or path.is_dir() for path in files):
            if len(files) > 1:
                raise JobError(
                    "an .npz file or a folder is given with other files", remedy="give it alone, or give tables only"
                )
            return Measurements.load(files[0])
        if self.domain is None:
            raise JobError("noisy tables need their domain", remedy="give its file with --domain")
        return Measurements.read_tables(files, self.read_domain(), variance=variance)


@dataclass(frozen=True, eq=False)
class PreparedJob:
    """A job that can be run: everything that could be refused without reading the table was not.

    Attributes
    ----------
    job
        What was asked for.
    publication, workload, budget, mechanism
        What is made of its options.
    kept
        The file that holds the measurements until the release is finished; its ``path`` is None if there are none.
    ledger
        The ledger that is charged; None if none was named.
    begins_ledger
        Whether the ledger does not exist yet.
    """

    job: Job
    publication: Publication
    workload: Workload
    budget: Budget
    mechanism: Mechanism
    kept: KeptFile
    ledger: Ledger | None
    begins_ledger: bool

    def ledger_note(self) -> str | None:
        """Return the sentence for a ledger that does not exist yet: one that was moved would start again at zero."""
        from margrave.privacy.budget import Budget, format_budget

        if self.ledger is None or not self.begins_ledger:
            return None
        cap = format_budget(Budget.zcdp(rho=self.ledger.cap, delta=self.budget.delta))
        return (
            f"ledger: a new ledger is created, {self.ledger.path}, with the cap {cap}. If this table has a ledger "
            "elsewhere, stop now (Ctrl-C) and name that file."
        )

    def run(
        self, *, progress: Callable[[str], Tick] | None = None, notify: Callable[[str], None] | None = None
    ) -> Release:
        """Measure the table, charge the ledger, reconstruct and write the folder; return the release.

        Measurements that are paid for are never lost: they are in a file beside the folder until that is complete, and
        an error after the charge says where they are and how to continue from them. An interruption (Ctrl-C, SIGTERM,
        SIGHUP) is an `InterruptionError`, which says what was charged.

        Parameters
        ----------
        progress
            Called with the name of each stage; returns a function that is called with how much of it is done, and of
            how much (None if unknown).
        notify
            Called with sentences about how the table is read.
        """
        from margrave.mechanisms.spending import terminable

        begin = progress or (lambda stage: lambda done, total: None)
        try:
            noisy = self._measure(begin, notify)
            with terminable():
                released = self.publication.publish(noisy, self.workload, progress=begin)
        except MargraveError as error:
            if self.kept.path is None:
                raise
            raise type(error)(error.problem, remedy=_joined(error.remedy, self._continuation())) from error
        except KeyboardInterrupt as error:
            raise InterruptionError(str(error) or self._interrupted(), remedy=self._continuation()) from None
        self.kept.remove()
        return released

    def _measure(self, begin: Callable[[str], Tick], notify: Callable[[str], None] | None) -> Measurements:
        """Measure the table; signals wait until what was paid for is on disk."""
        from margrave.mechanisms import Run

        source = replace(self.job.source(), progress=begin("counting"), notify=notify)
        stages = begin("measuring") if self.mechanism.staged else None
        run = Run(ledger=self.ledger, keep=self.kept.save, defer_signals=True, progress=stages)
        contributions = self.job.need("contributions")
        return self.mechanism.measure(source, self.workload, self.budget, contributions=contributions, run=run)

    def _continuation(self) -> str:
        """Return where the measurements are and the command that continues from them; nothing if there are none."""
        path = self.kept.path
        if path is None:
            return ""
        command = shlex.join(["margrave", "reconstruct", os.path.relpath(path), *self.job.reconstruct_words()])
        return f"the measurements are paid for and kept in {path}; to continue from them at no cost: {command}"

    def _interrupted(self) -> str:
        """Return what a run that was interrupted has cost."""
        from margrave.privacy.budget import format_budget

        charged = self.kept.path is not None
        return (
            f"interrupted; {format_budget(self.budget)} is charged" if charged else "interrupted; nothing was charged"
        )


def _joined(*sentences: str) -> str:
    """Return those sentences that are not empty as one."""
    return "; ".join(filter(None, sentences))


def delta_notes(budget: Budget) -> list[str]:
    """Return a warning about a δ that is not small: the probability with which the bound on ε may fail."""
    if budget.delta <= _LARGE_DELTA:
        return []
    return [f"δ = {float(budget.delta):g} is large: take far less than one over the number of people, such as 1e-9."]


def budget_of(epsilon: float | None, rho: float | None, delta: float | None, prefix: str) -> Budget:
    """Return the budget of ε and δ, or of ρ, whichever was given."""
    from margrave.privacy.budget import Budget

    if (epsilon is None) == (rho is None):
        said = "both" if rho is not None else "neither"
        raise JobError(f"{said} of --{prefix}epsilon and --{prefix}rho given", remedy="give one of them")
    if rho is not None:
        return Budget.zcdp(rho=rho) if delta is None else Budget.zcdp(rho=rho, delta=delta)
    if delta is None:
        raise JobError(f"--{prefix}epsilon needs --delta as well", remedy="1e-9 is usual")
    return Budget.approx(epsilon=epsilon, delta=delta)  # type: ignore[arg-type]


def mechanism_options() -> dict[str, Option]:
    """Return the options of all mechanisms, by name; their modules are imported for it."""
    return _options_by_name(_mechanism_classes(), MEASURING)


def mechanism_summary() -> str:
    """Return what each mechanism measures, in a line each."""
    listed = "; ".join(f"{name}: {mechanism_class(name).summary}" for name in MECHANISMS)
    usual = f"{USUAL_MECHANISM}; {DEFAULT_FOR_PLANS} with --target, --objective or another method than lnn"
    return f"How to measure. {listed}. Default: {usual}."


def method_options() -> dict[str, Option]:
    """Return the options of all methods, by name."""
    return _options_by_name(_method_classes(), WRITING)


def all_options() -> tuple[Option, ...]:
    """Return every option: those of a job, of mechanisms and of methods. Each is a key of job files."""
    return (*options_of(Job), *mechanism_options().values(), *method_options().values())


def _mechanism_classes() -> dict[str, type]:
    """Return all mechanisms by name."""
    return {name: mechanism_class(name) for name in MECHANISMS}


def _method_classes() -> dict[str, type]:
    """Return all methods by name."""
    return {one.name: type(one) for one in methods.REGISTERED}


def _options_by_name(declared: Mapping[str, type], group: str) -> dict[str, Option]:
    """Return the options of several classes, each with the names of those that have it."""
    found: dict[str, Option] = {}
    owners: dict[str, list[str]] = {}
    for owner, chosen in declared.items():
        for one in options_of(chosen):
            found.setdefault(one.name, one)
            owners.setdefault(one.name, []).append(owner)
    return {
        name: replace(one, group=group, meaning=f"For {', '.join(owners[name])}: {_lower(one)}{_default(one)}")
        for name, one in found.items()
    }


def _lower(one: Option) -> str:
    """Return what an option means, for the middle of a sentence."""
    return one.meaning[:1].lower() + one.meaning[1:]


def _default(one: Option) -> str:
    """Return the words for the default of an option; nothing for one that has none."""
    if one.default is None:
        return ""
    plain = ("yes" if one.default else "no") if one.kind is OptionKind.FLAG else f"{one.default}"
    return f" Default: {plain}."


def _own(given: Mapping[str, Any], chosen: str, classes: Mapping[str, type], what: str) -> dict[str, Any]:
    """Return options if they are those of the mechanism or method that was chosen."""
    known = {name: {one.name: one for one in options_of(own)} for name, own in classes.items()}
    for name in given:
        if name not in known[chosen]:
            flags = ", ".join(one.flag for one in known[chosen].values())
            its = f"its options are {flags}" if flags else "it has no options"
            others = " or ".join(f"--{what} {other}" for other in known if name in known[other])
            raise JobError(
                f"--{name.replace('_', '-')} is not an option of the {what} {chosen} ({its})",
                remedy=f"leave it out, or give {others}" if others else "leave it out",
            )
    return dict(given)


def _declared(path: Path, key: str, known: Mapping[str, Option]) -> Option:
    """Return the option that a key of a job file stands for."""
    if key not in known:
        hint = suggestion(key, known)
        raise JobError(f"{path} has the unknown key {key!r}{hint} (it may have {', '.join(known)})")
    return known[key]


def by_table(domain: Domain, numbers: Mapping[Names, float]) -> dict[Names, float]:
    """Return numbers by table, where ``total`` is the total unless an attribute is called so."""
    return {() if names == ("total",) and "total" not in domain else names: one for names, one in numbers.items()}

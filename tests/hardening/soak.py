"""A soak: whole runs with everything drawn at random, and what must hold of each of them.

    python tests/hardening/soak.py --runs 200 --seed 1
    python tests/hardening/soak.py --only 137              # one run again

A run has a domain (one to six attributes, sizes from 1, odd names, every kind of values and every policy), a table of
rows of persons, an engine, a workload, a budget, a mechanism and a method. It measures with a ledger, reconstructs,
saves, loads, queries, makes whole numbers, rows and a report. A run may be refused in a sentence of margrave before the
charge, and it says so; anything else is a failure. Run ``k`` of a seed is the same whenever it is repeated, but for the
noise, which is the system's.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import margrave as mg
from margrave.errors import BudgetRefusedError, MargraveError

NAMES = [
    "age", "a b", "it's", 'qu"ote', "ä", "count", "日本", "select", "x,y", "%s", "{rows}", "estimate", "a.b", "`tick`",
    "margrave_person", "1", "true", "-", "a\\b", "#", "<b>", "=1+1", "very long " * 6, "std_error", "rtl\u202e",
    "Age", "rows", "code_0", "p", "_", "a/b", "a\tb",
]  # fmt: skip
TEXTS = [
    "a", "A", " a", "a ", "ä", "a\u0308", "it's", 'qu"ote', "x,y", "two\nlines", "NaN", "null", "1", "true", "=1+1",
    "<i>", "日本", "%", "👍", "other", "total",
]  # fmt: skip
NUMBERS = [0, 1, -5, 7, 2**53, 2**53 + 1, 10**9]
REALS = [0.0, 0.1, 1.5, -2.25, 1e-9, 1e15]
ENGINES = ["csv", "parquet", "pandas", "polars", "duckdb", "arrow", "sqlite", "coded"]
MECHANISMS = ["planner", "adaptive", "marginals", "mwem"]
METHODS = ["lnn", "mle", "trunc", "trunc+rescale"]
ARROW = {"text": pa.string(), "whole": pa.int64(), "real": pa.float64(), "truth": pa.bool_()}
SQLITE = {"text": "TEXT", "whole": "INTEGER", "real": "REAL", "truth": "BOOLEAN"}
# So much budget leaves no noise: a discrete Gaussian of variance 10⁻⁶ is zero but for odds of e^−500000.
NO_NOISE = 10**9


@dataclass
class Column:
    """An attribute, the type of its column, and the values that may stand in it with the codes they have."""

    attribute: mg.Attribute
    kind: str
    values: list[object] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)  # None: the row is dropped


def draw_column(draw: random.Random, name: str) -> Column:
    """Return a column of any kind, with values that its policies allow."""
    missing = draw.choice([None, None, "not stated"])
    policy = draw.choice(["error", "other", "drop"])
    options = {"missing": missing, "outside": "drop" if policy == "drop" else "error"}
    options["other"] = "any other" if policy == "other" else None
    kind = draw.choice(["size", "labels", "labels", "numbers", "reals", "truth", "cuts", "groups"])
    outside: object
    if kind == "size":
        size = draw.choice([1, 1, 2, 3, 5, 30])
        column = Column(mg.Attribute(name, size=size, **options), "whole", list(range(size)), list(range(size)))
        outside = size + 3
    elif kind == "numbers":
        labels = draw.sample(NUMBERS, draw.randint(1, len(NUMBERS) - 1))
        column = Column(mg.Attribute(name, labels=labels, **options), "whole", [*labels], [*range(len(labels))])
        outside = 12345
    elif kind == "reals":
        labels = draw.sample(REALS, draw.randint(1, len(REALS) - 1))
        column = Column(mg.Attribute(name, labels=labels, **options), "real", [*labels], [*range(len(labels))])
        outside = 0.75
    elif kind == "truth":
        options["other"], options["outside"] = None, "error"
        column = Column(mg.Attribute(name, labels=(True, False), **options), "truth", [True, False], [0, 1])
        outside = None
    elif kind == "cuts":
        cuts = sorted(draw.sample([-3.5, 0, 17, 34.5, 64, 100], draw.randint(1, 5)))
        options["other"], options["outside"] = None, "error"
        values = [-10.0, *cuts, 33.0, 1e6]
        codes = [sum(value > cut for cut in cuts) for value in values]
        column = Column(mg.Attribute(name, cuts=cuts, **options), "real", values, codes)
        outside = None
    elif kind == "groups":
        texts = draw.sample(TEXTS[:-2], 5)
        groups = {"first group": texts[:2], "second group": texts[2:]}
        column = Column(mg.Attribute(name, groups=groups, **options), "text", texts, [0, 0, 1, 1, 1])
        outside = "elsewhere"
    else:
        labels = draw.sample(TEXTS, draw.randint(1, 12))
        column = Column(mg.Attribute(name, labels=labels, **options), "text", [*labels], [*range(len(labels))])
        outside = "elsewhere"
    categories = list(column.attribute.categories)
    if missing is not None:
        column.values.append(None)
        column.codes.append(categories.index("not stated"))
    if outside is not None and column.attribute.other is not None:
        column.values.append(outside)
        column.codes.append(categories.index("any other"))
    elif outside is not None and column.attribute.outside == "drop":
        column.values.append(outside)
        column.codes.append(None)
    return column


@dataclass
class Case:
    """All that one run is made of."""

    columns: list[Column]
    rows: list[list[int]]  # for each row, which of the values of each column
    persons: list[int]
    contributions: int
    limited: bool
    engine: str
    counting: str
    workload: mg.Workload
    budget: mg.Budget
    mechanism: str
    method: str

    @property
    def domain(self) -> mg.Domain:
        """The domain of the columns."""
        return self.workload.domain

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [one.attribute.name for one in self.columns]

    def values(self, row: list[int]) -> list[object]:
        """Return the values of a row."""
        return [column.values[place] for column, place in zip(self.columns, row, strict=True)]

    def exact(self, names: tuple[str, ...]) -> np.ndarray:
        """Return the true counts of a table, row by row; of all persons' rows."""
        members = [self.names.index(name) for name in names]
        counts = np.zeros([self.columns[k].attribute.size for k in members], dtype=np.int64)
        for row in self.rows:
            codes = [column.codes[place] for column, place in zip(self.columns, row, strict=True)]
            if None not in codes:
                counts[tuple(codes[k] for k in members)] += 1
        return counts

    def kept(self) -> int:
        """Return how many rows are counted: of each person no more than may be, of those that are not dropped."""
        whole = [
            person
            for row, person in zip(self.rows, self.persons, strict=True)
            if None not in [column.codes[place] for column, place in zip(self.columns, row, strict=True)]
        ]
        return sum(min(rows, self.contributions) for rows in Counter(whole).values())

    def __str__(self) -> str:
        shape = "×".join(str(size) for size in self.domain.shape)
        return (
            f"{shape}, {len(self.rows)} rows, {self.engine} ({self.counting}), {len(self.workload)} tables, ρ = "
            f"{float(self.budget.rho):.3g}, {self.mechanism}, {self.method}, c = {self.contributions}"
            f"{' by id' if self.limited else ''}"
        )


def draw_case(number: int, seed: int) -> Case:
    """Return run ``number`` of a seed."""
    draw = random.Random(f"{seed} {number}")
    names = draw.sample(NAMES, draw.choice([1, 2, 2, 3, 3, 4, 5, 6]))
    columns = [draw_column(draw, name) for name in names]
    rows = [
        [draw.randrange(len(column.values)) for column in columns] for _ in range(draw.choice([0, 1, 7, 60, 400, 2000]))
    ]
    contributions = draw.choice([1, 1, 2, 5])
    persons = [draw.randrange(max(1, len(rows) // 2)) for _ in rows]
    domain = mg.Domain([column.attribute for column in columns])
    rho = draw.choice([Fraction(1, 1000), Fraction(1, 10), "0.5", 1, 50, NO_NOISE])
    return Case(
        columns=columns,
        rows=rows,
        persons=persons,
        contributions=contributions,
        limited=draw.random() < 0.4,
        engine=draw.choice(ENGINES),
        counting=draw.choice(["auto", "fetch", "push-down"]),
        workload=draw_workload(draw, domain),
        budget=mg.Budget.zcdp(rho=rho),
        mechanism=draw.choice(MECHANISMS),
        method=draw.choice(["lnn", "lnn", *METHODS]),
    )


def draw_workload(draw: random.Random, domain: mg.Domain) -> mg.Workload:
    """Return a workload of at most 100,000 cells."""
    most = min(3, len(domain))
    kind = draw.choice(["all", "up to", "some", "weighted", "total"])
    if kind == "all":
        made = mg.Workload.all_kway(domain, draw.randint(1, most))
    elif kind == "up to":
        made = mg.Workload.up_to(domain, draw.randint(1, most))
    elif kind == "total":
        made = mg.Workload(domain, [(), (draw.choice(domain.attributes),)])
    else:
        every = [one for order in range(1, most + 1) for one in combinations(domain.attributes, order)]
        chosen = draw.sample(every, draw.randint(1, min(5, len(every))))
        weights = [draw.choice([0.01, 1, 100]) for _ in chosen] if kind == "weighted" else None
        made = mg.Workload(domain, chosen, weights=weights)
    return made.filter(max_cells=20_000)


def source(case: Case, folder: Path) -> object:
    """Return the table on its engine, the ids of persons in the column "who is it"."""
    names = [*case.names, "who is it"]
    rows = [[*case.values(row), f"p{person}"] for row, person in zip(case.rows, case.persons, strict=True)]
    kinds = [*(column.kind for column in case.columns), "text"]
    if case.engine == "csv":
        with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(names)
            writer.writerows([["" if value is None else str(value) for value in row] for row in rows])
        # Texts are as they are: not trimmed.
        return mg.Data(folder / "people.csv", trim=False, counting=case.counting)
    if case.engine == "coded":
        codes = [[column.codes[place] for column, place in zip(case.columns, row, strict=True)] for row in case.rows]
        kept = [row for row in codes if None not in row]
        arrays = {name: np.array([row[k] for row in kept], dtype=np.int64) for k, name in enumerate(case.names)}
        return mg.CodedTable(case.domain, arrays)
    if case.engine == "sqlite" and len({name.lower() for name in names}) == len(names):
        return in_sqlite(folder / "people.sqlite", names, kinds, rows)
    schema = pa.schema([(name, ARROW[kind]) for name, kind in zip(names, kinds, strict=True)])
    arrays = [pa.array([row[k] for row in rows], type=schema.field(k).type) for k in range(len(names))]
    table = pa.Table.from_arrays(arrays, schema=schema)
    if case.engine == "parquet":
        pq.write_table(table, folder / "people.parquet", row_group_size=50)
        return folder / "people.parquet"
    if case.engine == "pandas":
        return table.to_pandas()
    if case.engine == "polars":
        import polars

        return polars.from_arrow(table)
    if case.engine == "duckdb":
        import duckdb

        connection = duckdb.connect()
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
        return connection.table("people")
    return table


def in_sqlite(path: Path, names: list[str], kinds: list[str], rows: list[list[object]]) -> object:
    """Return a table of SQLite through Ibis."""
    import ibis

    with sqlite3.connect(path) as connection:
        columns = [
            f'"{name.replace(chr(34), chr(34) * 2)}" {SQLITE[kind]}' for name, kind in zip(names, kinds, strict=True)
        ]
        connection.execute(f"CREATE TABLE people ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(names))})", rows)
    return ibis.sqlite.connect(path).table("people")


def measured(case: Case, table: object, ledger: mg.Ledger) -> mg.Measurements:
    """Return the measurements of a run."""
    limited = case.limited and case.engine != "coded"
    options = {"contributions": case.contributions, "ledger": ledger, "privacy_id": "who is it" if limited else None}
    if case.mechanism == "mwem":
        return mg.scalable_mwem(table, case.workload, case.budget, rounds=3, **options)
    function = {"planner": mg.residual_planner, "adaptive": mg.adaptive_planner, "marginals": mg.gaussian_marginals}
    return function[case.mechanism](table, case.workload, case.budget, **options)


def one_run(number: int, seed: int, folder: Path) -> str:
    """Make a run; return "done" or the sentence by which it was refused. What does not hold is an AssertionError."""
    case = draw_case(number, seed)
    ledger = mg.Ledger(folder / "ledger", cap=case.budget)
    try:
        table = source(case, folder)
        known = isinstance(table, mg.Data | mg.CodedTable)
        noisy = measured(case, table if known else mg.Data(table, counting=case.counting), ledger)
    except MargraveError as error:
        assert ledger.is_new, "refused after the charge"
        check_sentence(str(error), case)
        return f"refused: {error}"
    check_charge(case, noisy, ledger)
    release = mg.reconstruct(noisy, case.workload, method=case.method)
    check_tables(case, release)
    check_saved(release, folder)
    check_queries(case, release)
    if release.method.agree and case.method != "mle":
        check_rows(release, number)
    if number % 5 == 0:
        mg.write_report(release, folder / "report.html")
        assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!")
    return "done"


def check_sentence(text: str, case: Case) -> None:
    """A refusal is a sentence of some length, and shows nothing of the rows."""
    assert len(text) > 20, text
    assert "elsewhere" not in text, text
    assert "12345" not in text, text


def check_charge(case: Case, noisy: mg.Measurements, ledger: mg.Ledger) -> None:
    """The charge is the budget, exactly; the steps are no more; and nothing more can be charged."""
    record = noisy.provenance
    assert record.rho == case.budget.rho
    assert sum((step.rho for step in record.steps), Fraction(0)) <= case.budget.rho
    assert ledger.spent == case.budget.rho
    assert ledger.remaining == 0
    assert record.ledger_hash == ledger.entries()[-1].hash
    assert record.private
    again = mg.CodedTable(case.domain, {name: np.zeros(3, dtype=np.int64) for name in case.names})
    try:
        measured(replace(case, limited=False), again, ledger)
    except BudgetRefusedError:
        assert len(ledger.entries()) == 1
    else:
        raise AssertionError("a second charge passed the cap")


def check_tables(case: Case, release: mg.Release) -> None:
    """Tables are finite, of the right shape, not negative where promised, and agree where promised."""
    tables = {names: release.table(*names) for names in case.workload}
    size = max(1.0, max(float(np.abs(table.values).sum()) for table in tables.values()))
    total = float(release.table().values)
    for names, table in tables.items():
        assert table.values.shape == tuple(case.domain[name].size for name in names)
        assert np.isfinite(table.values).all()
        if case.method != "mle":
            assert (table.values >= 0).all(), names
        if release.method.agree:
            assert math.isclose(table.values.sum(), total, abs_tol=1e-6 * size), names
        if case.mechanism in ("planner", "adaptive", "marginals"):
            assert table.std_error is not None
            assert (np.asarray(table.std_error) >= 0).all()
            assert (table.ci_low <= table.ci_high).all()
    if release.method.agree:
        for one, other in combinations(tables, 2):
            shared = tuple(name for name in one if name in other)
            sums = [
                tables[names].values.sum(axis=tuple(k for k, name in enumerate(names) if name not in shared))
                for names in (one, other)
            ]
            assert np.allclose(*sums, rtol=0, atol=1e-6 * size), (one, other)
    if case.budget.rho == NO_NOISE and case.mechanism != "mwem":
        limited = case.limited and case.engine != "coded"
        for names, table in tables.items():
            if limited:
                assert np.rint(np.sum(table.estimate)) == case.kept(), names
            else:
                assert np.array_equal(np.rint(table.estimate), case.exact(names)), names


def check_saved(release: mg.Release, folder: Path) -> None:
    """What is loaded is what was saved."""
    release.save(folder / "release", csv=True)
    mg.verify(folder / "release")
    loaded = mg.load(folder / "release")
    assert loaded.workload == release.workload
    assert loaded.provenance == release.provenance
    for names in release.workload:
        one, other = release.table(*names), loaded.table(*names)
        assert np.array_equal(one.values, other.values), names
        for column in ("estimate", "std_error", "ci_low", "ci_high"):
            pair = getattr(one, column), getattr(other, column)
            assert (pair[0] is None) == (pair[1] is None), column
            assert pair[0] is None or np.allclose(*pair, rtol=1e-9, atol=1e-9), column


def check_queries(case: Case, release: mg.Release) -> None:
    """A query for one category is the cell of the table; all categories are the total of the table."""
    names = case.workload.sets[-1]
    table = release.table(*names)
    if not names:
        return
    attribute = case.domain[names[0]]
    category = attribute.categories[-1]
    answer = release.query({names[0]: [category]})
    one_way = release.table(names[0])
    assert np.allclose(float(answer.values), one_way.values[-1], atol=1e-6 * max(1.0, abs(float(table.values.sum()))))
    frame = table.to_pandas()
    assert len(frame) == table.values.size


def check_rows(release: mg.Release, number: int) -> None:
    """Synthetic rows are rows of the domain, and whole numbers are whole and agree."""
    rows = release.synthesize(50, seed=number)
    assert len(rows.to_pandas()) == 50
    whole = release.integers()
    for names in release.workload:
        values = whole.table(*names).values
        assert np.array_equal(values, np.rint(values))
        assert (values >= 0).all()
        assert values.sum() == float(whole.table().values)


def main() -> None:
    """Make the runs, and print one line each."""
    parser = argparse.ArgumentParser(description="Whole runs with everything drawn at random.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one run alone")
    options = parser.parse_args()
    results: Counter[str] = Counter()
    for number in range(options.runs) if options.only is None else [options.only]:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = one_run(number, options.seed, Path(folder))
            except Exception:
                result = f"FAILED\n{traceback.format_exc()}"
        results[result.split(":")[0].split("\n")[0]] += 1
        print(f"{number} ({draw_case(number, options.seed)}) {time.monotonic() - began:.1f} s {result}", flush=True)
    print(dict(results))
    sys.exit(1 if results["FAILED"] else 0)


if __name__ == "__main__":
    main()

r"""How often intervals of published counts cover the truth, how wide they are, and how far counts are from the truth.

    python -m experiments coverage --datasets fresh --epsilons 0.1,1,10

Every setting (table, ε, mechanism, method) is released a few times with seeded noise, and every cell of every table and
sub-table is compared with the truth. The file of results has a few lines a setting, each about a *group* of cells:

    order        tables of 0, 1, 2, 3 attributes
    true         cells whose true count is 0, 1 to 10, 11 to 100, 101 to 1,000, more
    published    the same bands of the published count, rounded
    nonempty     cells of an order whose true count is not 0
    flag         cells that are called reliable, to use with care, too uncertain to quote
    table        the table of at least 200 cells that was covered least, over all trials
    share        shares of one category by groups of another attribute, by order of the table that they are taken from
    largest      the largest cell of each one-way table: its bias is in standard errors of the estimate

Nothing here is private: truth is at hand and noise is seeded.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import margrave as mg
from experiments import ExperimentError
from experiments.datasets import Dataset, read_columns
from experiments.generated import CHOOSING, FRESH, JUDGING, KINDS, generate, names
from experiments.journal import Journal
from experiments.peer_methods import is_generated, read_table, table_of
from margrave.algebra.kernels import Floats
from margrave.errors import suggestion
from margrave.measurements.measurements import Measurements
from margrave.methods import Method, NonNegative
from margrave.methods import find as find_method
from margrave.privacy.noise import InsecureSeededSource, Sampler, gaussian_sampler
from margrave.release.count_errors import Reliability
from margrave.release.release import Release
from margrave.release.uncertainty import cell_variance, quantile

FILE = "coverage.csv"
LEVEL = 0.95
# The smallest table whose own coverage says something.
_TABLE_CELLS = 200
# How many shares a release is asked for, of each order.
_SHARES = 40
_BANDS = (("0", -math.inf), ("1-10", 0.5), ("11-100", 10.5), ("101-1000", 100.5), ("more", 1000.5))
# The last group of a setting.
_LAST = ("share", "3")
Progress = Callable[[int, int, str], None]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CoverageRecord:
    """One group of cells of one setting.

    Attributes
    ----------
    dataset, attributes, epsilon, mechanism, method
        The setting; the workload is all tables of three of the first so many attributes.
    trials
        How many releases the line is about.
    group, band
        Which cells, as the module says.
    cells
        How many cells, of all releases.
    covered
        The share of them whose interval holds the true count.
    width
        Mean width of the interval.
    unbiased_width
        Mean width of the interval of the unbiased estimate, not cut at zero, over cells that have one.
    width_beside
        Mean width of the interval over the same cells.
    true_mean
        Mean true count.
    expected, found
        Roots of the mean square of ``count_error`` and of what counts are off by.
    count_off, estimate_off
        Mean distance of the count, and of the unbiased estimate, from the truth; over cells that have an estimate.
    bias
        Mean of count − truth, in persons; in standard errors of the estimate for the group "largest".
    relative
        Root mean square of (count − truth)/count, over cells with a count of at least 10.
    learning
        Processor time of learning errors ÷ that of the reconstruction.
    private
        "no": truth and seeds are known.
    """

    dataset: str
    attributes: int
    epsilon: float
    mechanism: str
    method: str
    trials: int
    group: str
    band: str
    cells: int
    covered: float
    width: float
    unbiased_width: float
    width_beside: float
    true_mean: float
    expected: float
    found: float
    count_off: float
    estimate_off: float
    bias: float
    relative: float
    learning: float
    private: str = "no"

    @property
    def setting(self) -> tuple[str, int, float, str, str]:
        """Which setting the line is about."""
        return self.dataset, self.attributes, self.epsilon, self.mechanism, self.method


@dataclass(frozen=True)
class CoverageSettings:
    """What to run.

    Attributes
    ----------
    data
        The folder of tables that are not generated; None if there are none.
    datasets
        Names of tables, or of sets of generated ones.
    epsilons, mechanisms, methods
        What to cross.
    trials
        Releases of each setting.
    attributes
        How many attributes of a table are used, the first ones; all for 0.
    delta, seed
        δ of the budgets; what the noise is drawn from.
    """

    data: Path | None
    datasets: tuple[str, ...]
    epsilons: tuple[float, ...] = (0.1, 1.0, 10.0)
    mechanisms: tuple[str, ...] = ("planner", "nonnegative", "adaptive", "mwem")
    methods: tuple[str, ...] = ("lnn",)
    trials: int = 3
    attributes: int = 8
    delta: float = 1e-9
    seed: int = 0

    def __post_init__(self) -> None:
        for key in self.mechanisms:
            if key not in MECHANISMS:
                raise ExperimentError(
                    f"no mechanism {key!r}{suggestion(key, MECHANISMS)} (there are {', '.join(MECHANISMS)})"
                )
        for name in self.methods:
            find_method(name)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, sets written out."""
        return tuple(table for name in self.datasets for table in (names(name) if name in KINDS else (name,)))


@dataclass(frozen=True)
class Drawn:
    """What noise is made from: the budget and a seed."""

    budget: mg.Budget
    seed: int

    def sampler(self) -> Sampler:
        """Return margrave's sampler on a seeded source."""
        return gaussian_sampler(source=InsecureSeededSource(self.seed).spawn(2)[0])


def _planner(dataset: Dataset, drawn: Drawn) -> Measurements:
    """Measure by the default of the command line: the total first, then for the error of counts."""
    return mg.residual_planner(
        dataset.table, dataset.workload, drawn.budget, contributions=1, objective="counts", sampler=drawn.sampler()
    )


def _nonnegative(dataset: Dataset, drawn: Drawn) -> Measurements:
    """Measure by the plan that knows neither N nor ε."""
    plan = mg.plan(dataset.workload, drawn.budget, contributions=1, objective="nonnegative")
    return mg.measure(plan, dataset.table, sampler=drawn.sampler())


def _marginals(dataset: Dataset, drawn: Drawn) -> Measurements:
    """Measure every table by itself."""
    return mg.gaussian_marginals(
        dataset.table, dataset.workload, drawn.budget, contributions=1, sampler=drawn.sampler()
    )


def _adaptive(dataset: Dataset, drawn: Drawn) -> Measurements:
    """Measure order by order."""
    return mg.adaptive_planner(dataset.table, dataset.workload, drawn.budget, contributions=1, sampler=drawn.sampler())


def _mwem(dataset: Dataset, drawn: Drawn) -> Measurements:
    """Measure the tables that are predicted worst, at most half of them."""
    rounds = max(1, min(30, len(dataset.workload) // 2))
    return mg.scalable_mwem(
        dataset.table,
        dataset.workload,
        drawn.budget,
        contributions=1,
        sampler=drawn.sampler(),
        rounds=rounds,
        repeat=False,
        entropy=InsecureSeededSource(drawn.seed).spawn(2)[1],
    )


MECHANISMS: Mapping[str, Callable[[Dataset, Drawn], Measurements]] = {
    "planner": _planner,
    "nonnegative": _nonnegative,
    "marginals": _marginals,
    "adaptive": _adaptive,
    "mwem": _mwem,
}


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of releases beside the truth, one entry a cell; NaN where a table has no unbiased estimate."""

    true: Floats
    count: Floats
    error: Floats
    low: Floats
    high: Floats
    estimate: Floats
    std_error: Floats
    order: Floats
    table: Floats
    flag: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[Cells]) -> Cells:
        """Return the cells of several releases."""
        columns = ([getattr(part, name) for part in parts] for name in cls.__dataclass_fields__)
        return cls(*(np.concatenate(column) for column in columns))

    @property
    def covered(self) -> Mask:
        """Where the interval holds the truth."""
        return np.asarray((self.low <= self.true + 1e-9) & (self.true <= self.high + 1e-9))


FLAGS = tuple(one.value for one in Reliability)


def cells_of(dataset: Dataset, release: Release) -> Cells:
    """Return all cells of all tables and sub-tables of a release beside the truth."""
    layout, domain = dataset.layout, dataset.workload.domain
    parts = []
    for place, members in enumerate(layout.sets):
        table = release.table(*domain.names(members), level=LEVEL)
        if table.count_error is None or table.count_low is None or table.count_high is None:
            raise ExperimentError(f"the release has no errors of counts ({table.note})")
        size = table.values.size
        variance = cell_variance(release.estimates, place) if table.estimate is not None else math.nan
        flags = table.reliability()
        parts.append(
            Cells(
                np.asarray(layout.view(dataset.truth, place), dtype=np.float64).ravel(),  # type: ignore[arg-type]
                table.values.ravel(),
                table.count_error.ravel(),
                table.count_low.ravel(),
                table.count_high.ravel(),
                np.full(size, np.nan) if table.estimate is None else table.estimate.ravel(),
                np.full(size, math.sqrt(variance)),
                np.full(size, float(len(members))),
                np.full(size, float(place)),
                np.array([FLAGS.index(str(word)) for word in np.ravel(flags)], dtype=np.int64),  # type: ignore[arg-type]
            )
        )
    return Cells.of(parts)


def shares_of(dataset: Dataset, release: Release) -> Cells:
    """Return shares of the most frequent category of an attribute by groups of one or two others, beside the truth."""
    layout, domain = dataset.layout, dataset.workload.domain
    parts = []
    for order in (2, 3):
        for members in islice(permutations(range(len(domain)), order), 0, None, _stride(len(domain), order)):
            asked, groups = members[0], members[1:]
            true = np.asarray(layout.view(dataset.truth, layout.places[tuple(sorted(members))]))  # type: ignore[arg-type]
            kept = sorted(members)
            true = np.moveaxis(true, [kept.index(member) for member in members], range(order)).astype(np.float64)
            largest = int(np.argmax(true.reshape(len(true), -1).sum(axis=1)))
            (name,) = domain.names((asked,))
            share = release.share({name: domain[name].categories[largest]}, by=[domain.names((k,))[0] for k in groups])
            if share.share_error is None or share.share_low is None or share.share_high is None:
                raise ExperimentError(f"the release has no errors of shares ({share.note})")
            whole = true.sum(axis=0)
            known = ((whole > 0) & np.isfinite(share.values)).ravel()
            ratio = np.divide(true[largest], whole, out=np.zeros_like(whole), where=whole > 0)
            blank = np.full(whole.size, np.nan)
            estimate = blank if share.estimate is None else share.estimate.ravel()
            std_error = blank if share.std_error is None else share.std_error.ravel()
            columns = (ratio.ravel(), share.values.ravel(), share.share_error.ravel(), share.share_low.ravel())
            more = (share.share_high.ravel(), estimate, std_error, np.full(whole.size, float(order)))
            place = np.full(whole.size, float(layout.places[tuple(kept)]))
            found = (*columns, *more, place, np.zeros(whole.size, dtype=np.int64))
            parts.append(Cells(*(column[known] for column in found)))
    return Cells.of(parts)


def _stride(attributes: int, order: int) -> int:
    """Return every how manieth permutation is asked for."""
    return max(1, math.perm(attributes, order) // _SHARES)


def run_coverage(settings: CoverageSettings, out: Path, *, progress: Progress | None = None) -> list[CoverageRecord]:
    """Run what is not in the file of results yet, and return all of it.

    Parameters
    ----------
    settings
        What to run.
    out
        The folder of results.
    progress
        Called with the number of settings done, of all settings, and what is next.
    """
    wanted = list(_settings(settings))
    dataset: Dataset | None = None
    with Journal(out / FILE, CoverageRecord) as journal:
        # The last line of a setting says that it is complete.
        done = {record.setting for record in journal.rows if (record.group, record.band) == _LAST}
        for number, (name, epsilon, mechanism, method) in enumerate(wanted):
            if progress is not None:
                progress(number, len(wanted), f"{name}, ε = {epsilon:g}, {mechanism}, {method}")
            if dataset is None or dataset.name != name:
                dataset = _table(settings, name)
            key = (name, len(dataset.workload.domain), epsilon, mechanism, method)
            if key not in done:
                for record in measure_coverage(dataset, settings, epsilon, mechanism, method):
                    journal.append(record)
        return list(journal.rows)


def _settings(settings: CoverageSettings) -> Iterator[tuple[str, float, str, str]]:
    """Iterate over tables, budgets, mechanisms and methods, a table at a time."""
    for name in settings.tables:
        for epsilon in settings.epsilons:
            for mechanism in settings.mechanisms:
                for method in settings.methods:
                    yield name, epsilon, mechanism, method


def _table(settings: CoverageSettings, name: str) -> Dataset:
    """Return a table with the attributes that are used."""
    if not settings.attributes:
        return read_table(settings.data, name, 3)
    if is_generated(name):
        sizes, rows = generate(name)
    elif settings.data is None:
        raise ExperimentError(f"{name!r} is not a generated table; name the folder of the others with --data")
    else:
        domain, codes = read_columns(settings.data, name)
        rows = codes.astype(np.int64)
        sizes = dict(zip(domain.attributes, domain.shape, strict=True))
    kept = dict(list(sizes.items())[: settings.attributes])
    return table_of(name, kept, rows[:, : len(kept)], 3)


def measure_coverage(
    dataset: Dataset, settings: CoverageSettings, epsilon: float, mechanism: str, method: str
) -> list[CoverageRecord]:
    """Return the lines of one setting.

    Parameters
    ----------
    dataset
        The table.
    settings
        Trials, δ and seed.
    epsilon, mechanism, method
        The setting.
    """
    budget = mg.Budget.approx(epsilon=epsilon, delta=settings.delta)
    how: Method = NonNegative(strict=False) if method == "lnn" else find_method(method)
    released, shares, learning = [], [], []
    for trial in range(settings.trials):
        # The same noise whatever the method, and another for every other setting.
        seed = zlib.crc32(f"{settings.seed}, {dataset.name}, {epsilon:g}, {mechanism}, {trial}".encode())
        measured = MECHANISMS[mechanism](dataset, Drawn(budget, seed))
        began = time.process_time()
        mg.reconstruct(measured, dataset.workload, method=how)
        middle = time.process_time()
        release = mg.reconstruct(measured, dataset.workload, method=how, errors=True)
        learning.append((time.process_time() - middle) / max(middle - began, 1e-9) - 1)
        released.append(cells_of(dataset, release))
        shares.append(shares_of(dataset, release))
    cells, ratios = Cells.of(released), Cells.of(shares)
    cost = float(np.median(learning))
    head = (dataset.name, len(dataset.workload.domain), epsilon, mechanism, method, settings.trials)
    found = [*_groups(cells), *(("share", f"{k}", ratios, ratios.order == k) for k in (2, 3))]
    return [_record(head, group, band, some, chosen, cost) for group, band, some, chosen in found if chosen.any()]


def _groups(cells: Cells) -> Iterable[tuple[str, str, Cells, Mask]]:
    """Iterate over the groups of cells, with their names."""
    for order in range(4):
        yield "order", f"{order}", cells, cells.order == order
        yield "nonempty", f"{order}", cells, (cells.order == order) & (cells.true > 0)
    for kind, values in (("true", cells.true), ("published", cells.count)):
        for (band, least), (_, most) in zip(_BANDS, [*_BANDS[1:], ("", math.inf)], strict=True):
            yield kind, band, cells, (values > least) & (values <= most)
    for flag, word in enumerate(FLAGS):
        yield "flag", word, cells, cells.flag == flag
    sizes = np.bincount(cells.table.astype(np.int64))
    hits = np.bincount(cells.table.astype(np.int64), weights=cells.covered)
    trials = np.count_nonzero(cells.order == 0)
    large = np.flatnonzero(sizes >= _TABLE_CELLS * trials)
    if large.size:
        worst = int(large[np.argmin(hits[large] / sizes[large])])
        yield "table", f"{worst}", cells, cells.table == worst
    single = np.flatnonzero(cells.order == 1)
    _, which = np.unique(cells.table[single], return_inverse=True)
    most_of = np.zeros(which.max() + 1)
    np.maximum.at(most_of, which, cells.true[single])
    largest = np.zeros(len(cells.true), dtype=np.bool_)
    largest[single] = cells.true[single] == most_of[which]
    yield "largest", "1", cells, largest


def _record(
    head: tuple[str, int, float, str, str, int], group: str, band: str, cells: Cells, chosen: Mask, cost: float
) -> CoverageRecord:
    """Return the line of a group of cells."""
    some = Cells(*(getattr(cells, name)[chosen] for name in Cells.__dataclass_fields__))
    width, away = some.high - some.low, some.count - some.true
    beside = np.isfinite(some.std_error)
    large = some.count >= (0 if group == "share" else 10)
    relative = away[large] / np.where(some.count[large] > 0, some.count[large], np.inf)
    bias = away / some.std_error if group == "largest" else away
    return CoverageRecord(
        *head,
        group,
        band,
        len(away),
        float(some.covered.mean()),
        float(width.mean()),
        _mean(2 * quantile(LEVEL) * some.std_error[beside]),
        _mean(width[beside]),
        float(some.true.mean()),
        _root(some.error),
        _root(away),
        _mean(np.abs(away[beside])),
        _mean(np.abs(some.estimate - some.true)[beside]),
        _mean(bias[np.isfinite(bias)]),
        _root(relative),
        cost,
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else math.nan


def _root(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else math.nan


# ---------------------------------------------------------------------------------------------------------- the page

PAGE = "coverage.md"
_KINDS = {CHOOSING: "chosen on", JUDGING: "seen before", FRESH: "judged on"}


def write_coverage_page(records: Sequence[CoverageRecord], out: Path) -> Path:
    """Write the page of tables that the results make, and return where it is."""
    path = out / PAGE
    path.write_text(coverage_page(records), encoding="utf-8")
    return path


def coverage_page(records: Sequence[CoverageRecord]) -> str:
    """Return the tables of coverage, of widths and of errors, in Markdown."""
    orders = [("order", f"{k}") for k in range(4)]
    bands = [band for band, _ in _BANDS]
    heads = ["tables", "mechanism", "method", "ε"]
    lines = ["# Coverage of published counts", "", "NOT PRIVATE: made with true counts and seeded noise.", ""]
    lines += ["Percent of cells whose 95 % interval holds the true count.", ""]
    lines += _head([*heads, "order 0 / 1 / 2 / 3", "not empty, 1 / 2 / 3", "true 0 / 1–10 / 11–100 / 101–1,000 / more"])
    lines[-2:] = [lines[-2] + " published, same bands | worst table | shares |", lines[-1] + "---|---|---|"]
    for key, rows in _settled(records):
        shown = [_coverage(rows, orders), _coverage(rows, [("nonempty", f"{k}") for k in (1, 2, 3)])]
        shown += [_coverage(rows, [(kind, band) for band in bands]) for kind in ("true", "published")]
        worst = min((row.covered for row in rows if row.group == "table"), default=math.nan)
        shown += [_percent(worst), _coverage(rows, [("share", "2"), ("share", "3")])]
        lines.append(f"| {' | '.join([*key, *shown])} |")
    lines += [
        "",
        "Width beside the unbiased 95 % interval, errors beside those of the estimate, and what they cost.",
        "",
    ]
    lines += _head(
        [
            *heads,
            "width, order 0 / 1 / 2 / 3",
            "widest, same",
            "noisy top",
            "count off ÷ estimate off, order 0 / 1 / 2 / 3",
            "largest of a table, same",
            "bias of the largest one-way cells",
            "expected ÷ found, order 1 / 2 / 3",
            "cost of learning",
        ]
    )
    for key, rows in _settled(records):
        widths = [_pooled(rows, *group, "width_beside", "unbiased_width") for group in orders]
        widest = [_largest(rows, *group, "width_beside", "unbiased_width") for group in orders]
        noisy = [
            row.width_beside / row.unbiased_width
            for row in rows
            if (row.group, row.band) == orders[-1] and row.unbiased_width > 2 * quantile(LEVEL) * row.true_mean
        ]
        off = [_pooled(rows, *group, "count_off", "estimate_off") for group in orders]
        most_off = [_largest(rows, *group, "count_off", "estimate_off") for group in orders]
        bias = [row.bias for row in rows if row.group == "largest"]
        right = [_pooled(rows, *group, "expected", "found") for group in orders[1:]]
        shown = [_ratios(widths), _ratios(widest), _ratios([max(noisy, default=math.nan)]), _ratios(off)]
        shown += [_ratios(most_off), _ratios([float(np.nanmean(bias)) if bias else math.nan]), _ratios(right)]
        shown.append(_ratios([float(np.median([row.learning for row in rows]))]))
        lines.append(f"| {' | '.join([*key, *shown])} |")
    return "\n".join([*lines, *_reliability_lines(records, heads)]) + "\n"


def _reliability_lines(records: Sequence[CoverageRecord], heads: Sequence[str]) -> list[str]:
    """Return the table of true relative errors by what counts are called: the median of the tables, and the largest."""
    lines = ["", "True relative error of published counts from 10 on, by what they are called: root mean square of a"]
    lines += ["table, median of the tables / largest.", "", *_head([*heads, *FLAGS])]
    for key, rows in _settled(records):
        shown = []
        for word in FLAGS:
            found = [row.relative for row in rows if (row.group, row.band) == ("flag", word) and row.relative >= 0]
            shown.append(_ratios([float(np.median(found)), max(found)] if found else [math.nan, math.nan]))
        lines.append(f"| {' | '.join([*key, *shown])} |")
    return lines


def _head(words: Sequence[str]) -> list[str]:
    """Return the first two lines of a table."""
    return [f"| {' | '.join(words)} |", f"|{'---|' * len(words)}"]


def _settled(records: Sequence[CoverageRecord]) -> Iterator[tuple[tuple[str, ...], list[CoverageRecord]]]:
    """Iterate over sets of tables (public ones by name), mechanisms, methods and budgets, with their lines."""
    found: dict[tuple[str, str, str, float], list[CoverageRecord]] = {}
    for record in records:
        kinds = [shown for kind, shown in _KINDS.items() if record.dataset in names(kind)]
        where = (kinds or [record.dataset])[0]
        found.setdefault((where, record.mechanism, record.method, record.epsilon), []).append(record)
    for (where, mechanism, method, epsilon), rows in found.items():
        yield (where, mechanism, method, f"{epsilon:g}"), rows


def _coverage(rows: Sequence[CoverageRecord], groups: Sequence[tuple[str, str]]) -> str:
    """Return the share of cells covered, in percent, of each group over all tables."""
    shown = []
    for group in groups:
        own = [row for row in rows if (row.group, row.band) == group]
        cells = sum(row.cells for row in own)
        shown.append(_percent(sum(row.covered * row.cells for row in own) / cells if cells else math.nan))
    return " / ".join(shown)


def _pooled(rows: Sequence[CoverageRecord], group: str, band: str, above: str, below: str) -> float:
    """Return the geometric mean over tables of the ratio of two columns."""
    ratios = _all_ratios(rows, group, band, above, below)
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else math.nan


def _largest(rows: Sequence[CoverageRecord], group: str, band: str, above: str, below: str) -> float:
    """Return the largest over tables of the ratio of two columns."""
    return max(_all_ratios(rows, group, band, above, below), default=math.nan)


def _all_ratios(rows: Sequence[CoverageRecord], group: str, band: str, above: str, below: str) -> list[float]:
    own = [row for row in rows if (row.group, row.band) == (group, band)]
    pairs = [(getattr(row, above), getattr(row, below)) for row in own]
    return [one / other for one, other in pairs if one > 0 and other > 0]


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _ratios(values: Sequence[float]) -> str:
    return " / ".join("–" if math.isnan(value) else f"{value:.2f}" for value in values)

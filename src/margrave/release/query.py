"""Questions to a release: counts of those who meet a condition, grouped, and shares.

Every query is a product: for each attribute a set of categories that is counted, and some attributes kept apart. It is
read from what a caller gives, answered from one table of the release, by its method and by maximum likelihood, and its
standard error is exact (``uncertainty``, equation 3). Where there is none, the answer says why.

Shares, ratios of two such counts, are in ``share``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from margrave.algebra import transform
from margrave.domain.values import Label, table_label
from margrave.errors import ReleaseError
from margrave.measurements.entries import read_only
from margrave.release.condition import Masks, both, read_condition
from margrave.release.count_errors import BOUNDS, CutOff, Line, Noise, count_interval, least_high
from margrave.release.share import Share
from margrave.release.table import Counts, Table
from margrave.release.uncertainty import Mask, direct_noise, query_covariance, unmeasured

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import AttributeSet
    from margrave.domain.domain import Domain
    from margrave.methods.method import Method
    from margrave.reconstruction.estimates import Estimates
    from margrave.release.count_errors import CountErrors, PartErrors
    from margrave.workload import Workload

_MOST_NAMED = 3

Where = str | Mapping[str, Label | Iterable[Label]]


@dataclass(frozen=True, eq=False)
class Query:
    """Which categories are counted, and which attributes are kept apart.

    Attributes
    ----------
    by
        The attributes of the answer's axes, in order.
    masks
        For each attribute used, those of ``by`` included, which of its categories are counted; shape (n_k,).
    """

    by: tuple[str, ...]
    masks: Masks


def read_query(domain: Domain, where: Where, by: Iterable[str]) -> Query:
    """Return a query from what a caller gives.

    Parameters
    ----------
    domain
        The attributes.
    where
        A condition in words, or for each attribute a label or a list of labels.
    by
        The attributes to group by.
    """
    if isinstance(by, str) or not isinstance(by, Iterable):
        raise ReleaseError(f"by is {by!r}", remedy=f"give a list of attributes, as in ({by!r},)")
    names = tuple(by)
    every = [(name, _all(domain, name)) for name in names]
    if len(dict(every)) != len(names):
        raise ReleaseError(f"by names an attribute twice in {table_label(names)}", remedy="name each once")
    return Query(names, both(dict(every), read_where(domain, where)))


def read_where(domain: Domain, where: Where) -> Masks:
    """Return which categories of each attribute a condition means; refuse one that nothing can meet."""
    if isinstance(where, str):
        masks = read_condition(domain, where)
    elif isinstance(where, Mapping):
        masks = {name: _all(domain, name) & domain[name].among(_listed(labels)) for name, labels in where.items()}
    else:
        raise ReleaseError(
            f"a condition cannot be {where!r}",
            remedy="write it as a text, as in \"sex = 'F'\", or as labels by attribute, as in {'sex': 'F'}",
        )
    return _some(masks)


@dataclass(frozen=True, eq=False)
class PublishedTables:
    """The tables of a release as questions find them: by the method, by maximum likelihood, and with their errors.

    Attributes
    ----------
    workload
        Which tables were asked for.
    method
        How they were made.
    estimates
        The estimated residuals of the workload's closure.
    counts
        The tables of the closure, as the method made them.
    adaptive
        Whether what was measured depends on earlier noise.
    errors
        What was learned about the errors of the counts, if anything.
    """

    workload: Workload
    method: Method
    estimates: Estimates
    counts: Counts
    adaptive: bool
    errors: CountErrors | None = None

    @property
    def domain(self) -> Domain:
        """The domain of the tables."""
        return self.workload.domain

    def place(self, names: Sequence[str]) -> int:
        """Return the number of the table over these attributes if a table of the workload contains them all."""
        positions = self.domain.positions(names)
        if len(positions) != len(names):
            raise ReleaseError(f"the table {table_label(names)} names an attribute twice", remedy="name each once")
        if positions in self.estimates.layout.places:
            return self.estimates.layout.places[positions]
        nearest = [table_label(self.domain.names(members)) for members in self._nearest(positions)]
        hint = f"; tables that cover some of it: {', '.join(nearest)}" if nearest else ""
        raise ReleaseError(
            f"no table of this release covers {table_label(names)}{hint}",
            remedy="put it into the workload and reconstruct again",
        )

    def values(self, place: int) -> Floats:
        """Return the counts of a table by the method, axes in domain order; a view of the buffer where there is one."""
        layout = self.estimates.layout
        positions = layout.sets[place]
        if self.method.agree or positions in self._wanted:
            return self.counts.table(place)
        source = self._source(place)
        summed = tuple(axis for axis, member in enumerate(source) if member not in positions)
        return np.asarray(self.counts.table(layout.places[source]).sum(axis=summed))

    def unbiased(self, place: int) -> Floats:
        """Return the maximum-likelihood counts of a table, axes in domain order, from the residuals inside it alone.

        Table by table this takes a fraction of the time and none of the memory of a buffer of them all, needs no
        compiled loop, and the answer does not depend on what else was asked for.
        """
        if self.method.unbiased:
            return self.values(place)
        layout = self.estimates.layout
        axis_of = {position: axis for axis, position in enumerate(layout.sets[place])}
        inside = {
            tuple(axis_of[position] for position in layout.sets[part]): layout.view(self.estimates.values, part)
            for part in layout.subsets(place)
        }
        return transform.reconstruct_marginal(inside, layout.shape(place))

    @property
    def closed_form(self) -> bool:
        """Whether errors of counts follow from what these were cut off from, which is published beside them."""
        return self.method.cuts_off and self.errors is not None and self.errors.draws == 0

    def kept(self, place: int) -> tuple[Floats, int]:
        """Return what is left of a change of the cells of a table that is cut off at zero, and how many cells it sums.

        For a table of the workload one, or the scale, where a cell is above zero; else the mean over what it sums. The
        scale is the sum of what is left over the estimate of that, which may be of the first of several measurements.
        """
        layout, members = self.estimates.layout, self._source(place)
        source = layout.places[members]
        counts = self.counts.table(source)
        above = counts > 0
        left, estimated = float(counts[above].sum()), float(self.unbiased(source)[above].sum())
        kept = above * (min(left / estimated, 1.0) if estimated > 0 else 1.0)
        summed = tuple(axis for axis, member in enumerate(members) if member not in layout.sets[place])
        return np.asarray(kept.mean(axis=summed)), math.prod(kept.shape[axis] for axis in summed)

    def _source(self, place: int) -> AttributeSet:
        """Return the table of the workload that a table by a method without agreement is taken from."""
        positions = self.estimates.layout.sets[place]
        if positions in self._wanted:
            return positions
        return next(members for members in self.workload.positions if set(positions) <= set(members))

    def missing(self, place: int, query: Sequence[Mask]) -> tuple[str, ...]:
        """Return the residuals that a query over a table needs and that were never measured, in words."""
        parts = unmeasured(self.estimates, place, query)
        return tuple(table_label(self.domain.names(self.estimates.layout.sets[part])) for part in parts)

    def covariance(self, place: int, one: Sequence[Mask], other: Sequence[Mask]) -> float | None:
        """Return the covariance of two queries over a table, None where it is not known."""
        covariance = query_covariance(self.estimates, place, one, other)
        return None if self.adaptive or np.isnan(covariance) else covariance

    def noise(self, place: int, query: Sequence[Mask]) -> float | None:
        """Return the standard error of a query as if what was measured had been chosen before; None if not known."""
        variance = query_covariance(self.estimates, place, query, query)
        return None if np.isnan(variance) else float(np.sqrt(variance))

    def direct_noise(self, place: int, query: Sequence[Mask]) -> float | None:
        """Return the parameter of the one discrete Gaussian that a query's estimate is off by; None if it is not."""
        return direct_noise(self.estimates, place, query)

    def note(self, missing: Sequence[str], variance: float | None) -> str:
        """Return why there is no interval, in a sentence; nothing where there is one."""
        if missing:
            named = ", ".join([*missing[:_MOST_NAMED], *(["…"] if len(missing) > _MOST_NAMED else [])])
            return f"no interval: the measurements do not determine these counts (never measured: {named})"
        if self.adaptive:
            return "no interval: what was measured was chosen after seeing earlier noise (adaptive measurements)"
        return "no interval: the noise is not Gaussian with a single variance" if variance is None else ""

    @cached_property
    def _wanted(self) -> frozenset[AttributeSet]:
        return frozenset(self.workload.positions)

    def _nearest(self, positions: AttributeSet) -> list[AttributeSet]:
        """Return the tables of the workload that share most attributes with a table."""
        wanted = set(positions)
        near = [members for members in self.workload.positions if wanted & set(members)]
        # A stable sort: among tables that share as much, those that come first.
        return sorted(near, key=lambda members: -len(wanted & set(members)))[:_MOST_NAMED]


def answer(tables: PublishedTables, place: int, query: Query, level: float) -> Table:
    """Return the counts that a query asks for, with their error bars.

    Parameters
    ----------
    tables
        The tables of the release.
    place
        Number of the table over all attributes of the query.
    query
        What to count.
    level
        How often the intervals cover the truth.
    """
    cell = _cell(tables, place, query)
    values = _counted(tables, query, tables.values(place), place)
    missing = tables.missing(place, cell)
    variance = None if missing else tables.covariance(place, cell, cell)
    errors = largest = None
    if tables.errors is not None:
        errors, largest = _Contained(tables, place, level, {}).errors(query)
    return Table(
        attributes=query.by,
        values=read_only(values),
        estimate=None if missing else read_only(_counted(tables, query, tables.unbiased(place), place)),
        variance=variance,
        categories=_categories(tables.domain, query),
        note=tables.note(missing, variance),
        level=level,
        direct=None if variance is None else tables.direct_noise(place, cell),
        count_error=errors,
        noise=None if missing else _noise(tables, place, cell),
        bounds=BOUNDS if tables.errors is None else tables.errors.bounds,
        smoothed=tables.method.agree,
        largest=largest,
    )


def _noise(tables: PublishedTables, place: int, cell: Sequence[Mask]) -> float | None:
    """Return the standard error of what a count was made from, as if that had been chosen before; None if not known."""
    if tables.errors is None:
        return tables.noise(place, cell)
    return tables.errors.std_error(tables.estimates, place, cell)


@dataclass(eq=False)
class _Contained:
    """Errors of the counts of queries over one table, each judged by all that it is part of.

    Attributes
    ----------
    tables, place, level
        As in `answer`.
    found
        What is known of queries that ask for less, by the attributes that they still ask for.
    """

    tables: PublishedTables
    place: int
    level: float
    found: dict[frozenset[str], tuple[Floats, Floats | None]]

    def errors(self, query: Query) -> tuple[Floats, Floats | None]:
        """Return the expected errors of the counts of a query, and the most that each can be, if that is known."""
        key = frozenset(_narrow(query))
        if key not in self.found:
            tables, place = self.tables, self.place
            if tables.errors is None:
                raise ReleaseError("the release has no errors of its counts", remedy="reconstruct with errors=True")
            if tables.closed_form:
                cell = _cell(tables, place, query)
                noise = tables.errors.noise_of(tables.estimates, place, cell, cell)
                errors = np.sqrt(_cut_off(tables, place, query).squares(noise))
                self.found[key] = errors, None
                return self.found[key]
            # Tables that do not agree are not near their means: what is cut off at zero is too large.
            lines = [self._line(query, name) for name in _narrow(query)] if tables.method.agree else []
            values = _counted(tables, query, tables.values(place), place)
            errors = tables.errors.of(tables.estimates, place, _cell(tables, place, query), values, lines)
            self.found[key] = errors, least_high(lines, errors)
        return self.found[key]

    @cached_property
    def _unbiased(self) -> Floats:
        """The unbiased table that all queries are answered from."""
        return self.tables.unbiased(self.place)

    def _line(self, query: Query, name: str) -> Line:
        """Return what the counts of a query are part of: those of the same query that counts all values of ``name``."""
        tables, place = self.tables, self.place
        size = tables.domain[name].size
        wider = Query(
            tuple(other for other in query.by if other != name), {**query.masks, name: _all(tables.domain, name)}
        )
        counts = _counted(tables, wider, tables.values(place), place)
        errors, largest = self.errors(wider)
        cell = _cell(tables, place, wider)
        estimate = std_error = noise = None
        if not tables.missing(place, cell):
            estimate = _counted(tables, wider, self._unbiased, place)
            variance = tables.covariance(place, cell, cell)
            std_error = None if variance is None else math.sqrt(variance)
            noise = _noise(tables, place, cell)
        _, high = count_interval(counts, errors, estimate, std_error, self.level, noise=noise, largest=largest)
        if name in query.by:
            axis = query.by.index(name)
            counts, errors, high = (np.expand_dims(one, axis) for one in (counts, errors, high))
        share = 1 / size if name in query.by else np.count_nonzero(query.masks[name]) / size
        return Line(counts, errors, share, high)


def _cut_off(tables: PublishedTables, place: int, query: Query) -> CutOff:
    """Return the counts of a query beside what they were cut off from."""
    names = tables.domain.names(tables.estimates.layout.sets[place])
    cells = math.prod(int(np.count_nonzero(query.masks[name])) for name in names if name not in query.by)
    kept, inside = tables.kept(place)
    return CutOff(
        _counted(tables, query, tables.values(place), place),
        _counted(tables, query, tables.unbiased(place), place),
        _counted(tables, query, kept, place) / cells,
        cells * inside,
    )


def _narrow(query: Query) -> list[str]:
    """Return the attributes of which a query does not count all values."""
    return [name for name, mask in query.masks.items() if name in query.by or not mask.all()]


def answer_share(tables: PublishedTables, where: Where, of: Where, *, by: Iterable[str], level: float) -> Share:
    """Return the share of those who meet a condition among those who meet another.

    Parameters
    ----------
    tables
        The tables of the release.
    where
        Who is counted.
    of
        Among whom.
    by
        The attributes to group by: a share within each group.
    level
        How often the intervals are to cover the truth.
    """
    whole = read_query(tables.domain, of, by)
    condition = read_where(tables.domain, where)
    for name in condition:
        if name in whole.by:
            raise ReleaseError(
                f"the share is grouped by {name!r} and a condition on it", remedy="move the condition to of=…"
            )
    part = Query(whole.by, _some(both(whole.masks, condition)))
    # Over the same attributes both come from one table: by methods whose tables disagree, no share can pass one.
    whole = Query(whole.by, {**{name: _all(tables.domain, name) for name in part.masks}, **whole.masks})
    place = tables.place(tuple(part.masks))
    cells = _cell(tables, place, part), _cell(tables, place, whole)
    above, below = (answer(tables, place, query, level) for query in (part, whole))
    expected = None
    if tables.closed_form:
        expected = _cut_off_parts(tables, place, (part, whole), cells)
    elif tables.errors is not None and below.count_error is not None:
        share = float(
            np.prod([np.count_nonzero(one) / np.count_nonzero(all_of) for one, all_of in zip(*cells, strict=True)])
        )
        line = Line(below.values, below.count_error, share)
        expected = tables.errors.of_parts(tables.estimates, place, cells, above.values, line)
    return Share.of(above, below, tables.covariance(place, *cells), expected)


def _cut_off_parts(
    tables: PublishedTables, place: int, queries: tuple[Query, Query], cells: tuple[Sequence[Mask], Sequence[Mask]]
) -> PartErrors:
    """Return what is expected of the errors of a part and of the rest of its whole where both were cut off at zero."""
    if tables.errors is None:
        raise ReleaseError("the release has no errors of its counts", remedy="reconstruct with errors=True")
    inside, both, whole = (
        tables.errors.noise_of(tables.estimates, place, *pair)
        for pair in ((cells[0], cells[0]), cells, (cells[1], cells[1]))
    )
    rest = Noise(
        max(whole.cut_off - 2 * both.cut_off + inside.cut_off, 0.0),
        max(whole.estimates - 2 * both.estimates + inside.estimates, 0.0),
    )
    covariance = Noise(both.cut_off - inside.cut_off, both.estimates - inside.estimates)
    part, all_of = (_cut_off(tables, place, query) for query in queries)
    return all_of.parts(part, (inside, rest), covariance)


def _all(domain: Domain, name: str) -> Mask:
    """Return all categories of an attribute."""
    return np.ones(domain[name].size, dtype=np.bool_)


def _some(masks: Masks) -> Masks:
    """Return what a condition means, or refuse one that nothing can meet."""
    for name, mask in masks.items():
        if not mask.any():
            raise ReleaseError(
                f"no value of attribute {name!r} meets the condition", remedy="the count would always be 0"
            )
    return masks


def _listed(labels: object) -> Sequence[object]:
    """Return one label or several as a list, numpy's scalars as Python's."""
    if isinstance(labels, np.ndarray | np.generic):
        return labels.ravel().tolist()
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        return [labels]
    return [value.item() if isinstance(value, np.generic) else value for value in labels]


def _cell(tables: PublishedTables, place: int, query: Query) -> list[Mask]:
    """Return what one cell of the answer counts, by attribute of the table in domain order.

    All cells have the same variance, so that any category stands for an attribute that is kept apart.
    """
    cell = []
    for name in tables.domain.names(tables.estimates.layout.sets[place]):
        mask = query.masks[name]
        cell.append(np.arange(mask.size) == np.argmax(mask) if name in query.by else mask)
    return cell


def _counted(tables: PublishedTables, query: Query, table: Floats, place: int) -> Floats:
    """Return the answer to a query from the table over its attributes, axes in the order asked for."""
    names = tables.domain.names(tables.estimates.layout.sets[place])
    for axis, name in enumerate(names):
        if not query.masks[name].all():
            table = np.compress(query.masks[name], table, axis=axis)
    summed = tuple(axis for axis, name in enumerate(names) if name not in query.by)
    kept = [name for name in names if name in query.by]
    added = np.asarray(table.sum(axis=summed)) if summed else table
    return added.transpose([kept.index(name) for name in query.by])


def _categories(domain: Domain, query: Query) -> tuple[tuple[str, ...], ...]:
    """Return the categories of the answer's axes."""
    return tuple(
        tuple(category for category, kept in zip(domain[name].categories, query.masks[name], strict=True) if kept)
        for name in query.by
    )

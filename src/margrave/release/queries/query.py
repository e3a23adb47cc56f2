"""Questions to a release: counts of those who meet a condition, grouped, and shares.

Every query is a product: for each attribute a set of categories that is counted, and some attributes kept apart. It is
read off one table of the release, and its standard error is exact (``uncertainty``, equation 3).

Shares, ratios of two such counts, are in ``share``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from margrave.algebra.kernels import Floats
from margrave.domain import Domain, Label
from margrave.errors import DomainError, QueryError
from margrave.measurements.entries import read_only, spoken
from margrave.release.queries.condition import Masks, both, read_condition
from margrave.release.queries.lookup import Lookup
from margrave.release.queries.share import Share
from margrave.release.table import Table
from margrave.release.uncertainty import Mask

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
        raise QueryError(f"by is {by!r}; give a list of attributes, as in ({by!r},)")
    names = tuple(by)
    every = [(name, _all(domain, name)) for name in names]
    if len(dict(every)) != len(names):
        raise QueryError(f"by names an attribute twice in {spoken(names)}; name each once")
    return Query(names, both(dict(every), read_where(domain, where)))


def read_where(domain: Domain, where: Where) -> Masks:
    """Return which categories of each attribute a condition means; refuse one that nothing can meet."""
    if isinstance(where, str):
        masks = read_condition(domain, where)
    elif isinstance(where, Mapping):
        masks = {name: _all(domain, name) & domain[name].among(_listed(labels)) for name, labels in where.items()}
    else:
        raise QueryError(
            f"a condition cannot be {where!r}; write it as a text, as in \"sex = 'F'\", or as labels by attribute, as "
            "in {'sex': 'F'}"
        )
    return _some(masks)


def answer(lookup: Lookup, place: int, query: Query, level: float) -> Table:
    """Return the counts that a query asks for, with their error bars.

    Parameters
    ----------
    lookup
        The tables.
    place
        Number of the table over all attributes of the query.
    query
        What to count.
    level
        How often the intervals cover the truth.
    """
    cell = _cell(lookup, place, query)
    missing = lookup.missing(place, cell)
    variance = None if missing else lookup.covariance(place, cell, cell)
    return Table(
        attributes=query.by,
        values=read_only(_counted(lookup, query, lookup.values(place), place)),
        estimate=None if missing else read_only(_counted(lookup, query, lookup.unbiased(place), place)),
        variance=variance,
        categories=_categories(lookup.domain, query),
        note=lookup.note(missing, variance),
        level=level,
        direct=None if variance is None else lookup.direct_noise(place, cell),
    )


def answer_share(lookup: Lookup, where: Where, of: Where, *, by: Iterable[str], level: float) -> Share:
    """Return the share of those who meet a condition among those who meet another.

    Parameters
    ----------
    lookup
        The tables.
    where
        Who is counted.
    of
        Among whom.
    by
        The attributes to group by: a share within each group.
    level
        How often the intervals are to cover the truth.
    """
    whole = read_query(lookup.domain, of, by)
    condition = read_where(lookup.domain, where)
    for name in condition:
        if name in whole.by:
            raise QueryError(f"the share is grouped by {name!r} and a condition on it; move the condition to of=…")
    part = Query(whole.by, _some(both(whole.masks, condition)))
    # Over the same attributes both come from one table: by methods whose tables disagree, no share can pass one.
    whole = Query(whole.by, {**{name: _all(lookup.domain, name) for name in part.masks}, **whole.masks})
    place = lookup.place(tuple(part.masks))
    shared = lookup.covariance(place, _cell(lookup, place, part), _cell(lookup, place, whole))
    return Share.of(answer(lookup, place, part, level), answer(lookup, place, whole, level), shared)


def _all(domain: Domain, name: str) -> Mask:
    """Return all categories of an attribute."""
    try:
        return np.ones(domain[name].size, dtype=np.bool_)
    except DomainError as error:
        raise QueryError(str(error)) from error


def _some(masks: Masks) -> Masks:
    """Return what a condition means, or refuse one that nothing can meet."""
    for name, mask in masks.items():
        if not mask.any():
            raise QueryError(f"no value of attribute {name!r} meets the condition; the count would always be 0")
    return masks


def _listed(labels: object) -> Sequence[object]:
    """Return one label or several as a list, numpy's scalars as Python's."""
    if isinstance(labels, np.ndarray | np.generic):
        return labels.ravel().tolist()
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        return [labels]
    return [value.item() if isinstance(value, np.generic) else value for value in labels]


def _cell(lookup: Lookup, place: int, query: Query) -> list[Mask]:
    """Return what one cell of the answer counts, by attribute of the table in domain order.

    All cells have the same variance, so that any category stands for an attribute that is kept apart.
    """
    cell = []
    for name in lookup.domain.names(lookup.estimates.layout.sets[place]):
        mask = query.masks[name]
        cell.append(np.arange(mask.size) == np.argmax(mask) if name in query.by else mask)
    return cell


def _counted(lookup: Lookup, query: Query, table: Floats, place: int) -> Floats:
    """Return the answer to a query from the table over its attributes, axes in the order asked for."""
    names = lookup.domain.names(lookup.estimates.layout.sets[place])
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

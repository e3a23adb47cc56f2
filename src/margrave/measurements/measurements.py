"""Measurements: noisy residuals with their noise, all that ever leaves the boundary and all that reconstruction sees.

Measurements with one variance (see ``noise``) need not be kept one by one: for each residual τ the mean with weights
1/σ² and the sum π_τ of these weights say everything that the likelihood knows,

    Σ_i ‖r − z_i‖²/2σ²_i  =  π_τ ‖r − z̄‖²/2 + constant,     π_τ = Σ_i 1/σ²_i,   z̄ = Σ_i z_i/σ²_i / π_τ.        (1)

They live in one flat buffer of centred arrays over the closure of all that was measured. A noisy marginal of variance
σ² is, for every τ ⊆ γ, an independent measurement of precision n_τ/(n_γ σ²) ([ReM] Thm. 2). So the weights of (1) are
those of ``transform.decompose`` and π is its spectrum. Measurements with any other noise are kept as they came.

The noise that margrave draws is discrete, and where it is small its variance is less than the parameter σ² that the
weights of (1) are made of (``discrete_gaussian``). The mean is unbiased with any weights, and its exact variance is

    Var z̄  =  Σ_i V_i/σ⁴_i / π_τ²      with V_i the exact variance of measurement i;   1/π_τ where V_i = σ²_i.      (2)

The published non-negative method counts all k_τ measurements of a residual alike, whatever their noise. So their plain
mean is kept too, where there is more than one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.algebra import transform
from margrave.algebra.layout import AttributeSet, Layout, canonical
from margrave.algebra.transform import corner, difference, integrate, integrate_corners
from margrave.discrete_gaussian import exact_variance
from margrave.domain.domain import Domain
from margrave.domain.values import table_label
from margrave.errors import MargraveError, MeasurementError, expected
from margrave.escaping import html_table
from margrave.measurements.archive import UNREADABLE, Archive, ArchiveError, open_archive, write_archive
from margrave.measurements.entries import (
    CenteredQuery,
    Gaussian,
    Laplace,
    Loss,
    Names,
    Observation,
    checked_positive,
    marginal,
    mbi_entries,
    mbi_package,
    observation,
    read_noisy_tables,
    read_only,
    real_array,
)
from margrave.measurements.provenance import Provenance

if TYPE_CHECKING:
    import mbi

    from margrave.algebra.kernels import Floats, Integers

# The name of the file in the folder of a release.
_IN_RELEASE = "measurements.npz"
_KIND, _SCHEMA = "measurements", 1
# How far numbers of one file that belong together may be apart, relative to each other.
_ROUNDING = 1e-9
_OF_FIRST = ("values", "precisions", "variances")


@dataclass(frozen=True, eq=False)
class First:
    """The first measurement of each residual, for mechanisms that measure again what they have seen.

    Whether and how well a residual is measured again depends on its own earlier value, so that the mean of all its
    measurements is biased, and so is the last of them. The first one is not: that it is made, and with which noise,
    depends on other residuals alone (docs/adaptive.md). Unbiased estimates are made of it; reconstruction uses all.

    Attributes
    ----------
    values
        Read-only; the first measurement of each residual that was measured more than once: centred arrays, flat, one
        after the other in the order of the layout.
    precisions, variances
        Shape (tables,), read-only; 1/σ² and the exact variance of the first measurement, zero where there is none.
    """

    values: Floats
    precisions: Floats
    variances: Floats

    def __post_init__(self) -> None:
        for name in ("values", "precisions", "variances"):
            object.__setattr__(self, name, read_only(getattr(self, name)))


@dataclass(frozen=True, eq=False, repr=False)
class Measurements:
    """Which residuals were measured, what came out, and how noisy it is; made by the ``from_`` constructors.

    Attributes
    ----------
    domain
        The domain of the table that was measured.
    layout
        The closure of everything measured.
    values
        Shape (layout.cells,), read-only; the mean z̄_τ of the measurements with one variance, as centred arrays, zero
        where there are none.
    precisions
        Shape (tables,), read-only; the sum π_τ of their inverse variances, zero where there are none.
    counts
        Shape (tables,), int64, read-only; how often each residual was measured, with any noise. A residual with no
        degree of freedom (an attribute of one value) is known without measuring, and is not counted.
    others
        The measurements with any other noise.
    provenance
        How they were made; None for numbers that came from elsewhere.
    averages
        Read-only; the plain mean of all measurements, with any noise, of each residual that was measured more than
        once: centred arrays, flat, one after the other in the order of the layout. None where there is no such
        residual, or where it is not known (files of version 0.1).
    variances
        Shape (tables,), read-only; the exact variance of each z̄_τ, equation (2), zero where there is none. None where
        it is 1/π_τ.
    direct
        The one table, by positions, that was measured as it is and once, and the parameter g² of its noise: each cell
        of its unbiased estimate is a true count plus a discrete Gaussian. None if there is no such table.
    first
        The first measurement of each residual, where some were measured again because of what came out; else None.
    """

    domain: Domain
    layout: Layout
    values: Floats
    precisions: Floats
    counts: Integers
    others: tuple[Observation, ...] = field(default=())
    provenance: Provenance | None = None
    averages: Floats | None = None
    variances: Floats | None = None
    direct: tuple[AttributeSet, float] | None = None
    first: First | None = None

    def __post_init__(self) -> None:
        for name in ("values", "precisions", "counts", "averages", "variances"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def from_residuals(cls, domain: Domain, measured: Iterable[tuple[Iterable[str], ArrayLike, Loss]]) -> Measurements:
        """Collect noisy residuals in the paper's coordinates.

        Parameters
        ----------
        domain
            The domain of the table that was measured.
        measured
            Triples (names, z, noise): z is the noisy D_τ μ_τ, shape (n_k − 1 for each name) with axes in the order of
            the names, a number for (); the noise is a `Gaussian`, a `Laplace`, or any object with the two methods of
            `Loss`. A residual may be given several times. One with no entries (an attribute of one value) is ignored.
        """
        given = [observation(domain, entry) for entry in measured]
        kept = [one for one in given if one.values.size]
        if given and not kept:
            raise MeasurementError(
                "all of these residuals are empty (an attribute of one value)", remedy="measure others"
            )
        layout = _layout(domain, [one.positions for one in kept])
        values, precisions, counts = _blank(layout)
        others: list[Observation] = []
        for one in kept:
            table = layout.places[one.positions]
            counts[table] += 1
            if isinstance(one.noise, Gaussian) and one.noise.variance is not None:
                _blend(corner(layout.view(values, table)), one.values, 1 / one.noise.variance, precisions, table)
            else:
                others.append(one)
        integrate_corners(layout, values)
        _require_finite(values)
        averages = _means_of_residuals(layout, counts, kept)
        return cls(domain, layout, values, precisions, counts, tuple(others), averages=averages)

    @classmethod
    def from_marginals(
        cls, domain: Domain, measured: Iterable[tuple[Iterable[str], ArrayLike, float]], *, discrete: bool = False
    ) -> Measurements:
        """Collect noisy marginals; reconstruction from them is EMP ([ReM] Alg. 4).

        Parameters
        ----------
        domain
            The domain of the table that was measured.
        measured
            Triples (names, table, variance): the noisy table, axes in the order of the names, a number for (); and the
            variance of the independent Gaussian noise on each of its cells. A table may be given several times.
        discrete
            Whether the noise is discrete Gaussian on true counts, as margrave's own is: whole numbers k with
            probability ∝ e^(−k²/2g²), and the variances given are the parameters g². Then standard errors are exact
            where noise is small, too, and intervals of a single table cover at least as often as they say.
        """
        given = [marginal(domain, entry) for entry in measured]
        layout = _layout(domain, [positions for positions, _, _ in given])
        values, weights, repeats = _blank(layout)
        for positions, table, variance in given:
            place = layout.places[positions]
            repeats[place] += 1
            _blend(layout.view(values, place), table, 1 / variance, weights, place)
        # Residuals do not depend on the unit of the weights; this one keeps products within range.
        transform.decompose(layout, values, weights=weights / weights.max(), out=values)
        _require_finite(values)
        precisions = transform.tables_spectrum(layout, weights)
        counts = transform.containing_tables(layout, repeats)
        for place in np.flatnonzero(layout.degrees == 0).tolist():
            layout.view(values, place)[...] = 0.0
            precisions[place], counts[place] = 0.0, 0
        averages = _means_of_marginals(layout, counts, given, repeats)
        whole = cls(domain, layout, values, precisions, counts, averages=averages)
        return replace(whole, **_discreteness(layout, given, precisions)) if discrete else whole

    @classmethod
    def from_centered(
        cls,
        domain: Domain,
        layout: Layout,
        *,
        values: Floats,
        precisions: Floats,
        counts: Integers | None = None,
        provenance: Provenance | None = None,
        averages: Floats | None = None,
        variances: Floats | None = None,
        direct: tuple[AttributeSet, float] | None = None,
        first: First | None = None,
    ) -> Measurements:
        """Take measurements that are centred arrays already, without copying them: do not write to them afterwards.

        Parameters
        ----------
        domain
            The domain of the table that was measured.
        layout
            The closure of what was measured, over the sizes of the domain.
        values
            Shape (layout.cells,); each residual sums to zero along every axis (not checked), and is zero where it was
            not measured.
        precisions
            Shape (tables,); inverse variance of each residual, zero where it was not measured.
        counts
            Shape (tables,); how often each was measured; by default once where the precision is above zero.
        provenance
            How they were made.
        averages
            The plain means of what was measured more than once, as the attribute of this name; None if not known.
        variances, direct
            What is known of discrete noise, as the attributes of these names; None if it is not, or does not matter.
        first
            The first measurement of each residual, as the attribute of this name.
        """
        if layout.sizes != domain.shape:
            raise MeasurementError(
                f"the layout has sizes {layout.sizes}, the domain {domain.shape}",
                remedy="make the layout from the domain",
            )
        values, precisions = layout.checked(values), transform.one_per_table(layout, precisions)
        _require_finite(values)
        if not np.isfinite(precisions).all() or (precisions < 0).any():
            raise MeasurementError(
                "a precision is negative, NaN or infinite", remedy="give 1/variance, or 0 if not measured"
            )
        for place in np.flatnonzero(precisions == 0).tolist():
            if layout.view(values, place).any():
                named = table_label(domain.names(layout.sets[place]))
                raise MeasurementError(f"{named} has precision 0 and values", remedy="give its precision, or zeros")
        often = _checked_counts(precisions, counts)
        if averages is not None:
            averages = _checked_averages(layout, often, averages)
        if variances is not None:
            variances = _checked_variances(layout, precisions, variances)
        if first is not None:
            first = _checked_first(layout, often, precisions, first)
        if direct is not None:
            direct = _checked_direct(layout, precisions if first is None else first.precisions, direct)
        return cls(
            domain,
            layout,
            values,
            precisions,
            often,
            provenance=provenance,
            averages=averages,
            variances=variances,
            direct=direct,
            first=first,
        )

    @classmethod
    def from_mbi(cls, domain: Domain, measured: Iterable[mbi.LinearMeasurement]) -> Measurements:
        """Take measurements of the package mbi: ``LinearMeasurement`` objects of whole tables, or those of `to_mbi`.

        Parameters
        ----------
        domain
            The domain of the table that was measured; `Domain.from_mbi` makes it from mbi's.
        measured
            The measurements. ``stddev`` is the standard deviation of independent Gaussian noise on each cell.
        """
        tables, residuals = mbi_entries(domain, measured)
        if not residuals:
            return cls.from_marginals(domain, tables)
        entries = [entry for table in tables for entry in _residual_entries(cls.from_marginals(domain, [table]))]
        entries += [(names, difference(values), Gaussian(variance)) for names, values, variance in residuals]
        return cls.from_residuals(domain, entries)

    def to_mbi(self) -> list[mbi.LinearMeasurement]:
        """Return the measurements for the package mbi, as ``LinearMeasurement`` objects: one for each residual.

        The total is a plain measurement, from which mbi estimates the number of rows. The others have a
        `CenteredQuery`. What mbi minimises is then the negative logarithm of the likelihood, up to a constant.
        """
        if self.others:
            named = table_label(self.domain.names(self.others[0].positions))
            raise MeasurementError(
                f"the noise of {named} is not Gaussian with one variance",
                remedy="mbi takes a standard deviation for each measurement, and these have none",
            )
        package = mbi_package()
        made = []
        for place in np.flatnonzero(self.precisions).tolist():
            names = self.domain.names(self.layout.sets[place])
            values, deviation = self.layout.view(self.values, place).reshape(-1), float(self.precisions[place]) ** -0.5
            query = {"query": CenteredQuery()} if names else {}
            made.append(package.LinearMeasurement(values, names, deviation, **query))
        return made

    def with_provenance(self, provenance: Provenance) -> Measurements:
        """Return the same measurements with a record of how they were made.

        Measurements that are recorded as not private stay so: a record that says otherwise is refused.
        """
        if not isinstance(provenance, Provenance):
            raise MeasurementError(expected("a Provenance", provenance), remedy="give a whole record")
        if self.provenance is not None and provenance.private and not self.provenance.private:
            raise MeasurementError(
                "these measurements are recorded as not private, and no other record makes them private",
                remedy="measure again with noise from the system's entropy",
            )
        return replace(self, provenance=provenance)

    @cached_property
    def sets(self) -> tuple[Names, ...]:
        """The attribute sets whose residuals were measured, as names in domain order, in canonical order."""
        measured = [self.layout.sets[place] for place in np.flatnonzero(self.counts).tolist()]
        return tuple(self.domain.names(members) for members in canonical(measured))

    def count(self, *names: str) -> int:
        """Return how often the residual on these attributes was measured, with any noise."""
        place = self.layout.places.get(self.domain.positions(names))
        return 0 if place is None else int(self.counts[place])

    def precision(self, *names: str) -> float:
        """Return the sum of 1/variance over the measurements with one variance of this residual; 0.0 for none."""
        place = self.layout.places.get(self.domain.positions(names))
        return 0.0 if place is None else float(self.precisions[place])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the measurements to one file (.npz), which is replaced as a whole or, on failure, left as it was."""
        noises = [_noise_entry(self.domain, one) for one in self.others]
        header = {
            "margrave": _KIND,
            "schema": _SCHEMA,
            "domain": self.domain.to_json(),
            "tables": [self.domain.names(members) for members in self.layout.sets[self.layout.outer :]],
            "others": noises,
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }
        if self.direct is not None:
            header["direct"] = {"attributes": self.domain.names(self.direct[0]), "noise": self.direct[1]}
        arrays: dict[str, NDArray[Any]] = {"values": self.values, "precisions": self.precisions, "counts": self.counts}
        if self.averages is not None:
            arrays["averages"] = self.averages
        if self.variances is not None:
            arrays["variances"] = self.variances
        if self.first is not None:
            arrays |= {f"first_{name}": getattr(self.first, name) for name in _OF_FIRST}
        for number, one in enumerate(self.others):
            arrays[f"other_{number}"] = one.values
            if isinstance(one.noise, Gaussian) and one.noise.covariance is not None:
                arrays[f"covariance_{number}"] = one.noise.covariance
        write_archive(path, header, arrays)

    @classmethod
    def read_tables(
        cls, paths: Iterable[str | os.PathLike[str]], domain: Domain, *, variance: float | None = None
    ) -> Measurements:
        """Read noisy tables that were made elsewhere, from CSV or Parquet files.

        A file holds one table: a column for each attribute, with the categories as text, a column ``count`` and perhaps
        a column ``variance``. Every cell is in it exactly once.

        Parameters
        ----------
        paths
            The files.
        domain
            The domain of the tables.
        variance
            The variance of the noise of every cell, for files without such a column.
        """
        return cls.from_marginals(domain, read_noisy_tables(paths, domain, variance))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Measurements:
        """Read measurements from a file that `save` has written, or from the folder of a release.

        The file may come from anybody: nothing in it is executed, and its sizes are checked before memory is taken.

        Parameters
        ----------
        path
            The file or the folder.
        """
        path = Path(path) / _IN_RELEASE if Path(path).is_dir() else path
        with open_archive(path, _KIND, _SCHEMA) as archive:
            try:
                return _loaded(archive)
            except ArchiveError:
                raise
            except (MargraveError, *UNREADABLE) as error:
                reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
                raise MeasurementError(
                    f"{os.fspath(path)} does not hold measurements ({reason})", remedy="save it again"
                ) from error

    def __len__(self) -> int:
        return int(np.count_nonzero(self.counts))

    def __repr__(self) -> str:
        noun = "residual" if len(self) == 1 else "residuals"
        others = f", {len(self.others):,} with other noise" if self.others else ""
        return f"Measurements({len(self):,} {noun}, measured {int(self.counts.sum()):,} times{others})"

    def _repr_html_(self) -> str:
        record = self.provenance
        if record is None:
            return html_table(repr(self), (), [("made by", "numbers from elsewhere, without a record")])
        privacy = f"ε = {record.epsilon:.6g} at δ = {record.delta:g}" if record.private else "NOT PRIVATE"
        rows = [("made by", record.mechanism), ("privacy", privacy), ("rows of a person", f"{record.contributions:,}")]
        return html_table(repr(self), (), rows)


def _residual_entries(measurements: Measurements) -> list[tuple[Names, Floats, Gaussian]]:
    """Return the residuals of measurements in the form that `Measurements.from_residuals` takes."""
    layout = measurements.layout
    return [
        (
            measurements.domain.names(layout.sets[place]),
            difference(layout.view(measurements.values, place)),
            Gaussian(1 / float(measurements.precisions[place])),
        )
        for place in np.flatnonzero(measurements.precisions).tolist()
    ]


def _blank(layout: Layout) -> tuple[Floats, Floats, Integers]:
    """Return a buffer of zeros and, for each table, a zero weight and a zero count."""
    tables = len(layout.sets)
    return np.zeros(layout.cells), np.zeros(tables), np.zeros(tables, dtype=np.int64)


def _blend(mean: Floats, values: Floats, weight: float, weights: Floats, table: int) -> None:
    """Take values with a weight into a running mean, in place; the first ones are copied bit by bit."""
    weights[table] += weight
    if weights[table] == weight:
        mean[...] = values
    else:
        mean += (values - mean) * (weight / weights[table])


def _means_of_residuals(layout: Layout, counts: Integers, measured: Iterable[Observation]) -> Floats | None:
    """Return the plain mean of every residual that was measured more than once, or None if none was."""
    means: dict[int, Floats] = dict.fromkeys(np.flatnonzero(counts > 1).tolist(), np.zeros(()))
    for one in measured:
        place = layout.places[one.positions]
        if place in means:
            means[place] = means[place] + one.values / counts[place]
    return _joined([integrate(mean) for mean in means.values()])


def _means_of_marginals(
    layout: Layout, counts: Integers, measured: Iterable[tuple[AttributeSet, Floats, float]], repeats: Integers
) -> Floats | None:
    """Return the plain mean of every residual that more than one marginal contains, or None if there is none.

    With the weight n_γ for each marginal γ the weights of ``transform.decompose``, a_γ n_τ/n_γ, are equal.
    """
    repeated = np.flatnonzero(counts > 1).tolist()
    if not repeated:
        return None
    means = np.zeros(layout.cells)
    for positions, table, _ in measured:
        place = layout.places[positions]
        layout.view(means, place)[...] += table / repeats[place]
    cells = np.diff(layout.index.offset).astype(np.float64)
    transform.decompose(layout, means, weights=repeats * cells, out=means)
    return _joined([layout.view(means, place) for place in repeated])


def _joined(tables: Sequence[Floats]) -> Floats | None:
    """Return the tables, flat, one after the other; None if there are none."""
    if not tables:
        return None
    joined: Floats = np.concatenate([table.ravel() for table in tables])
    _require_finite(joined)
    return joined


def _checked_counts(precisions: Floats, counts: Integers | None) -> Integers:
    """Return how often each residual was measured; by default once where its precision is above zero."""
    often = (precisions > 0).astype(np.int64) if counts is None else np.asarray(counts)
    if np.iscomplexobj(often) or often.shape != precisions.shape or (often < (precisions > 0)).any():
        raise MeasurementError("counts must be one whole number a table, at least 1 where a precision is above 0")
    often = often.astype(np.int64, copy=False)
    if not often.any():
        raise MeasurementError("there are no measurements", remedy="give at least one")
    return often


def _checked_averages(layout: Layout, counts: Integers, averages: object) -> Floats:
    """Return the plain means as float64 if there is one for every cell of what was measured more than once."""
    try:
        array = real_array(averages)
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"averages must be an array of numbers ({error})") from error
    cells = int(np.diff(layout.index.offset)[counts > 1].sum())
    if array.shape != (cells,):
        raise MeasurementError(
            f"averages have shape {array.shape}",
            remedy=f"give one number for every cell that was measured more than once, ({cells},)",
        )
    _require_finite(array)
    return array


def _discreteness(
    layout: Layout, measured: Iterable[tuple[AttributeSet, Floats, float]], precisions: Floats
) -> dict[str, Any]:
    """Return what discrete noise adds to marginals: the exact variances of equation (2), and the table of its own."""
    given = [(positions, variance) for positions, _, variance in measured]
    direct = given[0] if len(given) == 1 else None
    spread, differs = np.zeros(len(layout.sets)), False
    for positions, variance in given:
        exact = float(exact_variance(variance))
        spread[layout.places[positions]] += exact / variance / variance
        differs |= exact != variance
    if not differs:
        return {"direct": direct}
    # The spectrum of V/σ⁴ adds up squared weights n_τ/(n_γ σ²) times variances V n_γ/n_τ.
    squares = transform.tables_spectrum(layout, spread)
    known = precisions > 0
    return {"direct": direct, "variances": np.divide(squares, precisions**2, out=np.zeros_like(squares), where=known)}


def _checked_variances(layout: Layout, precisions: Floats, variances: object) -> Floats:
    """Return the exact variances as float64 if there is one a table and none is larger than the precision allows."""
    try:
        array = transform.one_per_table(layout, real_array(variances))
    except MeasurementError:
        raise
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"variances must be an array of numbers ({error})") from error
    # The variance of discrete noise is at most its parameter: what is larger was not made by margrave.
    if not (array >= 0).all() or (array * precisions > 1 + _ROUNDING).any() or (array[precisions == 0] != 0).any():
        raise MeasurementError(
            "a variance is negative, NaN, or larger than 1/precision",
            remedy="give the exact variance of discrete noise, 0 where nothing was measured",
        )
    return array


def _checked_first(layout: Layout, counts: Integers, precisions: Floats, first: First) -> First:
    """Return the first measurements if there is one of each residual, none more precise than all of them together."""
    if not isinstance(first, First):
        raise MeasurementError(expected("a First", first), remedy="give all of its parts")
    own = transform.one_per_table(layout, first.precisions)
    if not np.isfinite(own).all() or (own < 0).any() or ((own > 0) != (precisions > 0)).any():
        raise MeasurementError("there must be one first measurement of each residual that was measured")
    if (own > precisions * (1 + _ROUNDING)).any():
        raise MeasurementError("a first measurement is more precise than all measurements of its residual together")
    values = _checked_averages(layout, counts, first.values)
    return First(values, own, _checked_variances(layout, own, first.variances))


def _checked_direct(
    layout: Layout, precisions: Floats, direct: tuple[AttributeSet, object]
) -> tuple[AttributeSet, float]:
    """Return the table that was measured as it is if its precision is that of this noise."""
    positions, given = direct
    if positions not in layout.places:
        raise MeasurementError(f"no table over the attributes at {positions} was measured", remedy="give one that was")
    place, noise = layout.places[positions], checked_positive("the noise of the direct table", given)
    if layout.degrees[place] and abs(precisions[place] * noise - 1) > _ROUNDING:
        raise MeasurementError(
            f"the noise of the direct table is {noise!r}, its precision {float(precisions[place])!r}",
            remedy="one is the inverse of the other",
        )
    return positions, noise


def _layout(domain: Domain, sets: Sequence[AttributeSet]) -> Layout:
    """Return the layout of the closure of what was measured."""
    if not sets:
        raise MeasurementError("there are no measurements", remedy="give at least one")
    return Layout.of(domain.shape, set(sets))


def _require_finite(values: Floats) -> None:
    """Refuse NaN and infinity, given or from numbers too large to be added."""
    # A finite sum has finite terms; only where it is not (or overflows) is each one looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    if not np.isfinite(total) and not np.isfinite(values).all():
        raise MeasurementError(
            "the measurements hold NaN, infinity, or numbers too large to add up", remedy="give finite ones"
        )


def _noise_entry(domain: Domain, one: Observation) -> dict[str, object]:
    """Return what the header of a file says about an observation."""
    entry: dict[str, object] = {"attributes": domain.names(one.positions)}
    if isinstance(one.noise, Laplace):
        return {**entry, "noise": "laplace", "scale": one.noise.scale}
    if isinstance(one.noise, Gaussian):
        return {**entry, "noise": "gaussian"}
    named = table_label(domain.names(one.positions))
    raise MeasurementError(
        f"the noise of {named} is an object of your own, which no file can hold",
        remedy="save measurements with Gaussian and Laplace noise only, and add your own after loading",
    )


def _loaded(archive: Archive) -> Measurements:
    """Return the measurements of a file, each array only once its shape is known from all that came before."""
    header = archive.header
    domain = Domain.from_json(_checked_text(header["domain"]))
    measured = [domain.positions(_checked_names(names)) for names in _checked_list(header["tables"])]
    # There is a precision for each table of the closure: no file makes anybody list more tables than it has numbers.
    layout = Layout.of(domain.shape, measured, most_tables=archive.length("precisions"))
    tables, floats = (len(layout.sets),), np.dtype(np.float64)
    counts = archive.array("counts", tables, np.dtype(np.int64))
    repeated = int(np.diff(layout.index.offset)[counts > 1].sum())
    direct = header.get("direct")
    others = [_saved(domain, archive, number, entry) for number, entry in enumerate(_checked_list(header["others"]))]
    whole = Measurements.from_centered(
        domain,
        layout,
        values=archive.array("values", (layout.cells,), floats),
        precisions=archive.array("precisions", tables, floats),
        counts=counts,
        averages=archive.array("averages", (repeated,), floats) if "averages" in archive else None,
        variances=archive.array("variances", tables, floats) if "variances" in archive else None,
        direct=None if direct is None else (domain.positions(_checked_names(direct["attributes"])), direct["noise"]),
        first=_first(archive, repeated, tables) if "first_values" in archive else None,
    )
    _check_others(layout, whole.precisions, counts, others)
    saved = header.get("provenance")
    provenance = None if saved is None else Provenance.from_dict(saved)
    return replace(whole, others=tuple(others), provenance=provenance)


def _first(archive: Archive, repeated: int, tables: tuple[int]) -> First:
    """Return the first measurements that a file holds."""
    floats = np.dtype(np.float64)
    values, *others = (
        archive.array(f"first_{name}", (repeated,) if name == "values" else tables, floats) for name in _OF_FIRST
    )
    return First(values, *others)


def _saved(domain: Domain, archive: Archive, number: int, entry: dict[str, Any]) -> Observation:
    """Return an observation from its entry in the header and its arrays."""
    names, floats = _checked_names(entry["attributes"]), np.dtype(np.float64)
    shape = tuple(domain[name].size - 1 for name in names)
    values = archive.array(f"other_{number}", shape, floats)
    known: dict[str, Callable[[], Loss]] = {
        "laplace": lambda: Laplace(entry["scale"]),
        "gaussian": lambda: Gaussian(covariance=archive.array(f"covariance_{number}", (values.size,) * 2, floats)),
    }
    return observation(domain, (names, values, known[_checked_text(entry["noise"])]()))


def _check_others(layout: Layout, precisions: Floats, counts: Integers, others: Sequence[Observation]) -> None:
    """Refuse observations that the layout does not hold, or that were not counted."""
    counted = (precisions > 0).astype(np.int64)
    for one in others:
        if one.positions not in layout.places or not one.values.size:
            raise MeasurementError("an observation with other noise is not among the tables")
        counted[layout.places[one.positions]] += 1
    if (counted > counts).any():
        raise MeasurementError("a residual has more measurements than it counts")


def _checked_list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise MeasurementError("an entry of its header is not a list")
    return value


def _checked_names(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise MeasurementError("the attributes of a table are not a list of names")
    return value


def _checked_text(value: object) -> str:
    if not isinstance(value, str):
        raise MeasurementError("an entry of its header is not a text")
    return value

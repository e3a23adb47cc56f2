r"""One measurement as a caller gives it, in a list or in a file, and its noise: checked, and turned to domain order.

A measurement is z = α_τ + noise, both in the paper's coordinates α_τ = D_τ μ_τ (see ``algebra.transform``); α has
shape (n_k − 1 for each attribute of τ). Noise is the negative log-likelihood of what the true residual may be, up to
constants

    Gaussian(variance)      ½ (α − z)ᵀ (σ² D_τ D_τᵀ)⁻¹ (α − z)  =  ‖D_τ⁺(α − z)‖² / 2σ²                          (1)
    Gaussian(covariance=Σ)  ½ (α − z)ᵀ Σ⁻¹ (α − z)                                                              (2)
    Laplace(scale)          Σ |α − z| / scale                                                                   (3)

The covariance of (1) is that of ResidualPlanner's noise and of a residual taken out of a marginal with independent
noise ([ReM] Thm. 2); on the centred array D_τ⁺ z it is σ² C_τ, so that all of its algebra is sums of squares. Any other
noise is an object with the two methods of `Loss`.

Noisy tables made elsewhere come in files, one table a file, with a column for each attribute and a column of counts.
The values of an attribute are written as its categories are (``margrave export`` writes them so): labels, intervals
such as ``(18, 65]``, or codes; with or without the apostrophe that guards them from spreadsheets. Every cell is in the
file exactly once. The variance of the noise is in a column ``variance``, the same in every row, or is given for all
files at once.

Measurements go to the package mbi and come back. A residual is a linear query of its table there, `CenteredQuery`, and
the least squares of mbi are then the likelihood of the measurements up to a constant.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.algebra.transform import integrate
from margrave.domain.values import table_label
from margrave.errors import MeasurementError, expected, suggestion
from margrave.escaping import guarded
from margrave.privacy.budget import shown_value

if TYPE_CHECKING:
    from types import ModuleType

    import mbi

    from margrave.algebra.kernels import Floats
    from margrave.algebra.layout import AttributeSet
    from margrave.domain.domain import Domain

Names = tuple[str, ...]
Number = TypeVar("Number", bound=np.generic)
_COUNT, _VARIANCE = "count", "variance"
NoisyTable = tuple[tuple[str, ...], np.ndarray, float]
_Columns = dict[str, list[str | None]]
# Precisions are inverse variances, and are added, multiplied by counts and divided by each other: within these bounds
# none of that leaves the range of floating-point numbers.
_SMALLEST, _LARGEST = 1e-150, 1e150
# How far a covariance may be from symmetric, relative to its largest entry: the rounding of a computed one.
_ASYMMETRY = 1e-10


class Loss(Protocol):
    """What any noise can do: say how badly a residual explains an observation, and in which direction it gets worse.

    Both arrays are in the paper's coordinates, with axes in the order in which the measurement named the attributes.
    The loss is convex and differentiable in ``residual``.
    """

    def loss(self, residual: Floats, observed: Floats) -> float:
        """Return the negative log-likelihood of the residual, up to a constant."""
        ...

    def gradient(self, residual: Floats, observed: Floats) -> Floats:
        """Return the derivative of the loss by each entry of the residual; the shape of ``residual``."""
        ...


@final
@dataclass(frozen=True, init=False, eq=False)
class Gaussian:
    """Gaussian noise, by one variance or by a covariance matrix: give exactly one of the two.

    Parameters
    ----------
    variance
        σ²: the covariance is σ² D_τ D_τᵀ, equation (1).
    covariance
        Shape (m_τ, m_τ), symmetric and positive definite: the covariance of the flattened α_τ, equation (2).
    """

    variance: float | None
    covariance: Floats | None

    def __init__(self, variance: float | None = None, *, covariance: Floats | None = None) -> None:
        if (variance is None) == (covariance is None):
            given = "neither" if variance is None else "both"
            raise MeasurementError(f"Gaussian noise got {given} of variance and covariance", remedy="give exactly one")
        object.__setattr__(self, "variance", None if variance is None else checked_positive("a variance", variance))
        object.__setattr__(self, "covariance", None if covariance is None else _checked_covariance(covariance))

    def loss(self, residual: Floats, observed: Floats) -> float:
        """Return ½ (α − z)ᵀ Σ⁻¹ (α − z)."""
        distance = np.asarray(residual, dtype=np.float64) - observed
        if self.variance is None:
            return 0.5 * float((distance * self.gradient(residual, observed)).sum())
        return float(np.square(integrate(distance)).sum()) / (2 * self.variance)

    def gradient(self, residual: Floats, observed: Floats) -> Floats:
        """Return Σ⁻¹ (α − z), for equation (1) without a matrix: (D_τ⁺)ᵀ is a running sum without its last entry."""
        distance = np.asarray(residual, dtype=np.float64) - observed
        if self.variance is None:
            from scipy.linalg import cho_solve

            solved: Floats = cho_solve(self._factor, distance.ravel())
            return solved.reshape(distance.shape)
        array = integrate(distance) / self.variance
        for axis in range(array.ndim):
            array = np.delete(np.cumsum(array, axis=axis), -1, axis=axis)
        return array

    @cached_property
    def _factor(self) -> tuple[Floats, bool]:
        from scipy.linalg import cho_factor

        # A minimiser asks for the gradient thousands of times; the matrix is factored once.
        factor: tuple[Floats, bool] = cho_factor(self.covariance)
        return factor

    @property
    def _value(self) -> tuple[object, ...]:
        matrix = self.covariance
        return self.variance, None if matrix is None else (matrix.shape, matrix.tobytes())

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Gaussian) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


@final
@dataclass(frozen=True)
class Laplace:
    """Independent Laplace noise on each entry of α_τ, equation (3).

    Parameters
    ----------
    scale
        The mean absolute size of the noise.
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", checked_positive("a scale", self.scale))

    def loss(self, residual: Floats, observed: Floats) -> float:
        """Return ``Σ |α − z| / scale``."""
        return float(np.abs(np.asarray(residual) - observed).sum()) / self.scale

    def gradient(self, residual: Floats, observed: Floats) -> Floats:
        """Return sign(α − z) / scale, a subgradient: the loss has a kink where α = z."""
        return np.sign(np.asarray(residual, dtype=np.float64) - observed) / self.scale


@dataclass(frozen=True)
class Transposed:
    """A noise whose measurement named its attributes in another order than the domain.

    Parameters
    ----------
    noise
        The noise as the caller knows it.
    axes
        ``array.transpose(axes)`` takes an array from domain order to the order that the noise knows.
    """

    noise: Loss
    axes: tuple[int, ...]

    def loss(self, residual: Floats, observed: Floats) -> float:
        """Return the loss of the noise."""
        return self.noise.loss(residual.transpose(self.axes), observed.transpose(self.axes))

    def gradient(self, residual: Floats, observed: Floats) -> Floats:
        """Return the gradient of the noise, with its axes in domain order."""
        given = self.noise.gradient(residual.transpose(self.axes), observed.transpose(self.axes))
        return np.asarray(given).transpose(np.argsort(self.axes))


def transposed(noise: Loss, shape: tuple[int, ...], axes: tuple[int, ...]) -> Loss:
    """Return the same noise for arrays in domain order.

    Parameters
    ----------
    noise
        The noise of an observation with axes in the order that the caller named.
    shape
        Shape of that observation.
    axes
        ``observation.transpose(axes)`` is in domain order.
    """
    if isinstance(noise, Laplace) or (isinstance(noise, Gaussian) and noise.covariance is None):
        return noise
    if isinstance(noise, Gaussian) and noise.covariance is not None:
        order = np.arange(math.prod(shape)).reshape(shape).transpose(axes).ravel()
        return Gaussian(covariance=noise.covariance[np.ix_(order, order)])
    return Transposed(noise, tuple(np.argsort(axes).tolist()))


def checked_positive(what: str, value: object) -> float:
    """Return the value as a float if it is a positive number of a size that can be computed with."""
    try:
        number = math.nan if isinstance(value, bool | np.bool_) or not isinstance(value, Real) else float(value)
    except OverflowError:  # a whole number too large for a float
        number = math.inf
    if not _SMALLEST <= number <= _LARGEST:
        raise MeasurementError(
            f"{what} is {shown_value(value)}",
            remedy=f"give a positive finite number, from {_SMALLEST:g} to {_LARGEST:g}",
        )
    return number


def real_array(values: object) -> Floats:
    """Return the values as float64; raise `TypeError` for complex ones, whose imaginary part would be lost."""
    array = np.asarray(values)
    if np.iscomplexobj(array):
        raise TypeError("these are complex; give real ones")
    return array.astype(np.float64, copy=False)


def _checked_covariance(covariance: object) -> Floats:
    """Return a read-only copy of the matrix if it is symmetric and positive definite."""
    try:
        matrix = np.array(real_array(covariance))
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"a covariance must be a square array of numbers ({error})") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise MeasurementError(f"a covariance has shape {matrix.shape}", remedy="give a square one, (m, m)")
    if not np.isfinite(matrix).all():
        raise MeasurementError("a covariance holds NaN or infinity", remedy="every entry must be a finite number")
    if matrix.size and np.abs(matrix - matrix.T).max() > _ASYMMETRY * np.abs(matrix).max():
        raise MeasurementError("a covariance is not symmetric", remedy="give one that equals its transpose")
    matrix = (matrix + matrix.T) / 2
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise MeasurementError(
            "a covariance is not positive definite",
            remedy="give one whose eigenvalues are all above zero, for instance "
            "without the directions in which there is no noise",
        ) from None
    matrix.setflags(write=False)
    return matrix


@dataclass(frozen=True, eq=False)
class Observation:
    """One noisy residual with a noise of its own.

    Attributes
    ----------
    positions
        The attributes as ascending domain positions.
    values
        The observed α_τ in the paper's coordinates; shape (n_k − 1 for each attribute), read-only.
    noise
        Its noise, for arrays with axes in domain order.
    """

    positions: AttributeSet
    values: Floats
    noise: Loss


def observation(domain: Domain, entry: object) -> Observation:
    """Return one residual as given by the caller, with its axes in domain order."""
    names, given, noise = _triple(entry, "(names, z, noise)")
    positions, order = _positions(domain, names)
    shape = tuple(domain.shape[position] - 1 for position in order)
    what = "differences have one entry less per axis than the table"
    values = _array(names, given, shape, what)
    if not callable(getattr(noise, "loss", None)) or not callable(getattr(noise, "gradient", None)):
        raise MeasurementError(
            f"the noise of {table_label(names)} is {noise!r}",
            remedy="give Gaussian(variance), Laplace(scale), or an object with "
            "the methods loss(residual, observed) and gradient(residual, observed)",
        )
    covariance = noise.covariance if isinstance(noise, Gaussian) else None
    if covariance is not None and covariance.shape != (values.size, values.size):
        wanted = (values.size, values.size)
        raise MeasurementError(
            f"the covariance of {table_label(names)} has shape {covariance.shape}", remedy=f"it must have {wanted}"
        )
    if positions != order:
        axes = _axes(order)
        noise, values = transposed(noise, shape, axes), values.transpose(axes)
    if not isinstance(noise, Gaussian) or noise.variance is None:
        # What is not combined at once is kept: the caller's array must not change it later.
        values = read_only(values.copy())
    return Observation(positions, values, noise)


def marginal(domain: Domain, entry: object) -> tuple[AttributeSet, Floats, float]:
    """Return one marginal as given by the caller, with its axes in domain order."""
    names, given, variance = _triple(entry, "(names, table, variance)")
    positions, order = _positions(domain, names)
    shape = tuple(domain.shape[position] for position in order)
    values = _array(names, given, shape, "a table has one entry for each value of each attribute")
    number = checked_positive(f"the variance of {table_label(names)}", variance)
    return positions, values if positions == order else values.transpose(_axes(order)), number


def _triple(entry: object, form: str) -> tuple[Names, Any, Any]:
    """Return the three parts of a measurement, the names as a tuple."""
    if not isinstance(entry, tuple | list) or len(entry) != 3:
        raise MeasurementError(
            f"a measurement is a triple {form}, got {type(entry).__name__}", remedy="give all three parts"
        )
    names, values, noise = entry
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise MeasurementError(
            f"a measurement names its attributes by a collection, got {names!r}",
            remedy=f"write ({names!r},) for one attribute",
        )
    return tuple(names), values, noise


def _positions(domain: Domain, names: Names) -> tuple[AttributeSet, AttributeSet]:
    """Return the positions of the names, ascending and as given."""
    positions = domain.positions(names)
    if len(positions) != len(names):
        raise MeasurementError(
            f"a measurement of {table_label(names)} names an attribute twice", remedy="name each once"
        )
    place = dict(zip(domain.names(positions), positions, strict=True))
    return positions, tuple(place[name] for name in names)


def _axes(order: AttributeSet) -> AttributeSet:
    """Return the axes that take an array from the order given to domain order."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _array(names: Names, given: object, shape: tuple[int, ...], what: str) -> Floats:
    """Return the values as float64 if they are finite and have this shape."""
    try:
        values = real_array(given)
    except (TypeError, ValueError) as error:
        raise MeasurementError(
            f"the measurement of {table_label(names)} must be an array of numbers ({error})"
        ) from error
    if values.shape != shape:
        raise MeasurementError(
            f"the measurement of {table_label(names)} has shape {values.shape}", remedy=f"it must have {shape}: {what}"
        )
    if not np.isfinite(values).all():
        raise MeasurementError(
            f"the measurement of {table_label(names)} holds NaN or infinity", remedy="give finite numbers"
        )
    return values


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """Return a view of the array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


def read_noisy_tables(
    paths: Iterable[str | os.PathLike[str]], domain: Domain, variance: float | None
) -> list[NoisyTable]:
    """Return names, counts and variance of noisy tables in CSV or Parquet files.

    Parameters
    ----------
    paths
        The files, one a table.
    domain
        The domain of the tables.
    variance
        The variance of the noise of every cell, for files without such a column.
    """
    return [_read_table(Path(path), domain, variance) for path in paths]


def _read_table(path: Path, domain: Domain, variance: float | None) -> NoisyTable:
    """Return names, counts and variance of one noisy table."""
    columns = _named_columns(_columns(path), domain)
    if _COUNT not in columns:
        raise MeasurementError(f"{path} has no column 'count'", remedy="give one row per cell with its noisy count")
    names = tuple(name for name in columns if name in domain)
    for name in columns:
        if name not in (*names, _COUNT, _VARIANCE):
            hint = suggestion(name, domain.attributes)
            raise MeasurementError(f"{path} has the column {name!r}, which is not an attribute of the domain{hint}")
    shape = tuple(domain[name].size for name in names)
    cells = _cells(path, domain, names, columns)
    counts = _numbers(path, _COUNT, columns[_COUNT])
    if len(np.unique(cells)) != len(cells) or len(cells) != np.prod(shape, dtype=np.int64):
        raise MeasurementError(
            f"{path} has {len(cells):,} rows for {np.prod(shape, dtype=np.int64):,} cells, or some cell twice",
            remedy="give every cell of the table once, also those with a count of zero",
        )
    values = np.empty(shape)
    values.ravel()[cells] = counts
    return names, values, _one_variance(path, columns, variance)


def _columns(path: Path) -> _Columns:
    """Return the columns of a CSV or Parquet file as texts."""
    import duckdb

    try:
        with duckdb.connect() as connection:
            name = str(path)
            if path.suffix == ".parquet":
                relation = connection.read_parquet(name)
            else:
                relation = connection.read_csv(name, all_varchar=True, header=True)
            table = relation.to_arrow_table()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise MeasurementError(f"{path} cannot be read ({reason})", remedy="give a CSV or Parquet file") from None
    import pyarrow as pa

    return {name: table.column(name).cast(pa.string()).to_pylist() for name in table.column_names}


def _named_columns(columns: _Columns, domain: Domain) -> _Columns:
    """Return the columns by the names of the domain, also where those are guarded for spreadsheets in the file."""
    spelt = {guarded(name): name for name in domain.attributes}
    named = {spelt.get(name, name): values for name, values in columns.items()}
    return named if len(named) == len(columns) else columns


def _cells(path: Path, domain: Domain, names: Sequence[str], columns: _Columns) -> np.ndarray:
    """Return the number of the cell of each row."""
    cells = np.zeros(len(columns[_COUNT]), dtype=np.int64)
    for name in names:
        codes = _codes(domain[name].categories, columns[name])
        try:
            cells = cells * domain[name].size + np.array([codes[value] for value in columns[name]], dtype=np.int64)
        except KeyError as error:
            some = ", ".join(domain[name].categories[:4])
            raise MeasurementError(
                f"{path} has the value {error.args[0]!r} in column {name!r}",
                remedy=f"write its categories as in the domain: {some}{', …' if len(codes) > 4 else ''}",
            ) from None
    return cells


def _codes(categories: Sequence[str], values: Sequence[str | None]) -> dict[str | None, int]:
    """Return the code of each category as a column spells them: all as they are, or all guarded for spreadsheets."""
    plain: dict[str | None, int] = {category: code for code, category in enumerate(categories)}
    spelt: dict[str | None, int] = {guarded(category): code for code, category in enumerate(categories)}
    # Every category is in the column, and guarding keeps them apart: only one of the two spellings fits.
    return spelt if set(values) <= spelt.keys() else plain


def _numbers(path: Path, name: str, values: Sequence[str | None]) -> np.ndarray:
    """Return a column as numbers."""
    try:
        return np.array([float(value) for value in values])  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise MeasurementError(
            f"{path} has a value in column {name!r} that is not a number", remedy="correct it"
        ) from None


def _one_variance(path: Path, columns: _Columns, variance: float | None) -> float:
    """Return the variance of a table: that of its column, or else the one given for all."""
    if _VARIANCE not in columns:
        if variance is None:
            raise MeasurementError(
                f"{path} has no column 'variance'", remedy="add one, or give variance=… (--variance) for all tables"
            )
        return variance
    found = np.unique(_numbers(path, _VARIANCE, columns[_VARIANCE]))
    if len(found) != 1:
        raise MeasurementError(
            f"{path} has {len(found)} different variances", remedy="all cells of a table have the same"
        )
    return float(found[0])


@dataclass(frozen=True)
class CenteredQuery:
    """The query of mbi that is a residual: the table of a clique, centred along every axis, as one vector.

    Attributes
    ----------
    use_for_total_estimation
        What mbi asks of a query: a residual says nothing about the total.
    """

    use_for_total_estimation: bool = False

    def __call__(self, factor: mbi.Factor) -> ArrayLike:
        """Return the residual of a factor of mbi, flat."""
        values = factor.datavector(flatten=False)
        for axis in range(values.ndim):
            values = values - values.mean(axis=axis, keepdims=True)
        centered: ArrayLike = values.reshape(-1)
        return centered

    def op_norm_sq(self) -> float:
        """Return the squared norm of the map, which is a projection."""
        return 1.0


def mbi_package() -> ModuleType:
    """Return the package mbi, or raise `MeasurementError` if it is not installed."""
    try:
        return import_module("mbi")
    except ImportError as error:
        raise MeasurementError(
            "the package mbi is not installed", remedy="install it: pip install 'margrave[pgm]'"
        ) from error


def mbi_entries(domain: Domain, measured: Iterable[Any]) -> tuple[list[NoisyTable], list[NoisyTable]]:
    """Return linear measurements of mbi as noisy tables and as centred residuals, each with names and variance.

    Parameters
    ----------
    domain
        The domain of the table that was measured.
    measured
        ``LinearMeasurement`` objects whose query is mbi's plain one (the cells of the table) or a `CenteredQuery`.
    """
    package = mbi_package()
    tables: list[NoisyTable] = []
    residuals: list[NoisyTable] = []
    for one in measured:
        if not isinstance(one, package.LinearMeasurement):
            raise MeasurementError(expected("a LinearMeasurement of mbi", one), remedy="give a list of them")
        names = tuple(one.clique)
        _positions(domain, names)
        shape = tuple(domain[name].size for name in names)
        values = _array(names, one.noisy_measurement, (math.prod(shape),), "a flat table of").reshape(shape)
        entry = names, values, checked_positive("the stddev of mbi", one.stddev) ** 2
        if isinstance(one.query, CenteredQuery):
            residuals.append(entry)
        elif isinstance(one.query, package.marginal_loss.DatavectorQuery) or one.query == package.Factor.datavector:
            tables.append(entry)
        else:
            raise MeasurementError(
                f"the measurement of {table_label(names)} has a query of its own",
                remedy="margrave takes measurements of whole tables; give residuals by Measurements.from_residuals",
            )
    return tables, residuals

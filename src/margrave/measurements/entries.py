"""One entry of a list of measurements, as a caller gives it: checked, and turned to domain order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.algebra.kernels import Floats
from margrave.algebra.lattice import AttributeSet
from margrave.domain import Domain
from margrave.errors import MeasurementError
from margrave.measurements.noise import Gaussian, Loss, checked_positive, real_array, transposed

Names = tuple[str, ...]
Number = TypeVar("Number", bound=np.generic)


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
            f"the noise of {spoken(names)} is {noise!r}",
            remedy="give Gaussian(variance), Laplace(scale), or an object with "
            "the methods loss(residual, observed) and gradient(residual, observed)",
        )
    covariance = noise.covariance if isinstance(noise, Gaussian) else None
    if covariance is not None and covariance.shape != (values.size, values.size):
        wanted = (values.size, values.size)
        raise MeasurementError(
            f"the covariance of {spoken(names)} has shape {covariance.shape}", remedy=f"it must have {wanted}"
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
    number = checked_positive(f"the variance of {spoken(names)}", variance)
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
        raise MeasurementError(f"a measurement of {spoken(names)} names an attribute twice", remedy="name each once")
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
        raise MeasurementError(f"the measurement of {spoken(names)} must be an array of numbers ({error})") from error
    if values.shape != shape:
        raise MeasurementError(
            f"the measurement of {spoken(names)} has shape {values.shape}", remedy=f"it must have {shape}: {what}"
        )
    if not np.isfinite(values).all():
        raise MeasurementError(
            f"the measurement of {spoken(names)} holds NaN or infinity", remedy="give finite numbers"
        )
    return values


def spoken(names: Iterable[object]) -> str:
    """Return the attributes as a person would write the table, ``age × sex``."""
    return " × ".join(map(str, names)) or "the total"


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """Return a view of the array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view

r"""The noise of a measured residual, as the negative log-likelihood of what the true residual may be.

A measurement is z = α_τ + noise, both in the paper's coordinates α_τ = D_τ μ_τ (see ``algebra.differences``); α has
shape (n_k − 1 for each attribute of τ). Up to constants the negative log-likelihoods are

    Gaussian(variance)      ½ (α − z)ᵀ (σ² D_τ D_τᵀ)⁻¹ (α − z)  =  ‖D_τ⁺(α − z)‖² / 2σ²                          (1)
    Gaussian(covariance=Σ)  ½ (α − z)ᵀ Σ⁻¹ (α − z)                                                              (2)
    Laplace(scale)          Σ |α − z| / scale                                                                   (3)

The covariance of (1) is that of ResidualPlanner's noise and of a residual taken out of a marginal with independent
noise ([ReM] Thm. 2); on the centred array D_τ⁺ z it is σ² C_τ, so that all of its algebra is sums of squares. Any other
noise is an object with the two methods of `Loss`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from margrave.algebra.differences import integrate
from margrave.errors import MeasurementError
from margrave.privacy.budget import shown_value

if TYPE_CHECKING:
    from margrave.algebra.kernels import Floats

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
        """Return Σ |α − z| / scale."""
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

"""Noisy residuals with their noise: plain values, below everything that makes or uses them."""

from margrave.measurements.entries import Gaussian, Laplace, Loss, Observation
from margrave.measurements.measurements import Measurements
from margrave.measurements.provenance import Provenance, Step

__all__ = ["Gaussian", "Laplace", "Loss", "Measurements", "Observation", "Provenance", "Step"]

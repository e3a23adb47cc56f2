"""Noisy residuals with their noise: plain values, below everything that makes or uses them."""

from margrave.measurements.entries import Observation
from margrave.measurements.likelihood import Gaussian, Laplace, Loss
from margrave.measurements.measurements import Measurements
from margrave.measurements.provenance import Provenance, Step

__all__ = ["Gaussian", "Laplace", "Loss", "Measurements", "Observation", "Provenance", "Step"]

"""What is learned about a table is learned from all parts of it."""

import numpy as np
import pytest

from margrave.reconstruction import denoising
from margrave.reconstruction.denoising import denoise


@pytest.mark.parametrize("shape", [(300, 300, 3), (85, 100, 99), (400_001,), (15, 15, 15, 90), (7, 11, 13, 300)])
def test_the_cells_that_are_learned_from_have_every_value_of_every_axis(shape):
    cells = int(np.prod(shape))
    stride = denoising._stride(cells)
    assert stride > 1
    assert cells // stride > 10_000
    seen = np.unravel_index(np.arange(0, cells, stride), shape)
    for axis, length in enumerate(shape):
        if length <= cells // stride:
            assert len(np.unique(seen[axis])) == length


def test_a_table_that_is_empty_but_for_one_slice_is_learned_as_a_whole(monkeypatch):
    """Two of three slices are empty but for a few large counts: who learns from the third alone keeps their noise."""
    draw = np.random.default_rng(0)
    expected = np.full((300, 300, 3), 20.0)
    truth = expected.copy()
    truth[..., 1:] = np.where(draw.random((300, 300, 2)) < 0.05, 400.0, 0.0)
    observed = truth + draw.normal(scale=15, size=truth.shape)
    error = np.abs(denoise(observed, expected, 225.0) - truth).mean()
    monkeypatch.setattr(denoising, "_stride", lambda cells: 1)
    assert error == pytest.approx(np.abs(denoise(observed, expected, 225.0) - truth).mean(), rel=0.02)


def test_few_cells_are_all_learned_from():
    assert denoising._stride(200_000) == 1

"""Counts of a saved release are read when they are asked for, each once."""

import numpy as np
import pytest

from margrave.algebra.layout import Layout
from margrave.release.table import Counts


def test_counts_are_read_once_and_only_those_asked_for():
    layout, asked = Layout.of((2, 3), [(0, 1)]), []

    def read(places, buffer):
        asked.append(list(places))
        for place in places:
            layout.view(buffer, place)[...] = place

    counts = Counts(layout, np.full(layout.cells, -1.0), unread=[1, 3], read=read)
    assert counts.table(0) == -1
    assert asked == []
    assert counts.table(3).tolist() == [[3.0] * 3] * 2
    assert counts.table(3).tolist() == [[3.0] * 3] * 2
    assert asked == [[3]]
    assert (layout.view(counts.everything(), 1) == 1).all()
    assert len(counts.everything()) == layout.cells
    assert asked == [[3], [1]]
    with pytest.raises(ValueError, match="read-only"):
        counts.table(1)[...] = 0


def test_counts_that_could_not_be_read_are_asked_for_again():
    layout, fails = Layout.of((2,), [(0,)]), [True]

    def read(places, buffer):
        if fails.pop():
            fails.append(False)
            raise OSError("no")
        buffer[:] = 7

    counts = Counts(layout, np.zeros(layout.cells), unread=[1], read=read)
    with pytest.raises(OSError, match="no"):
        counts.table(1)
    assert counts.table(1).tolist() == [7.0, 7.0]

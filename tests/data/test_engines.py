"""The same table gives the same counts on every engine, fetched or pushed down: those of a plain loop."""

import nasty
import numpy as np
import pytest
from nasty import DOMAIN, FAMILIES, naive_counts

from margrave.algebra.layout import Layout
from margrave.data.source import open_source
from margrave.errors import DataError

ROWS = nasty.rows()


def layout_of(family):
    return Layout.of(DOMAIN.shape, [DOMAIN.positions(names) for names in family])


def test_the_nasty_table_holds_every_value():
    assert nasty.every_value_is_there(ROWS)


def test_every_engine_counts_like_a_plain_loop(on_engine):
    for family in FAMILIES:
        layout = layout_of(family)
        source = open_source(on_engine(ROWS), DOMAIN, contributions=1)
        counts = source.count(layout)
        assert counts.dtype == np.int64
        assert np.array_equal(counts, naive_counts(ROWS, layout)), family


def test_the_total_of_a_table_that_drops_nothing(on_engine):
    domain = DOMAIN.project(["flag", "age"])
    for table in (ROWS, ROWS[:1]):
        counts = open_source(on_engine(table), domain, contributions=1).count(Layout.of(domain.shape, [()]))
        assert counts.tolist() == [len(table)]


def test_an_empty_table_counts_to_zero(on_engine, engine_and_way):
    if engine_and_way[0].startswith("json"):
        with pytest.raises(DataError, match="the file contains no object, so its columns are unknown"):
            open_source(on_engine([]), DOMAIN, contributions=1).count(layout_of(FAMILIES[0]))
        return
    layout = layout_of(FAMILIES[0])
    counts = open_source(on_engine([]), DOMAIN, contributions=1).count(layout)
    assert counts.shape == (layout.cells,)
    assert not counts.any()

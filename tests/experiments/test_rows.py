"""Rows of a graphical model, and one run of the comparison on a made-up table."""

import math

import numpy as np
import pytest

from experiments.clique_trees import CliqueTree, Factor
from experiments.rows import RowsRecord, main, page, read_records, tree_rows
from margrave.synthesis.made_up_draws import MadeUpDraws
from tests.generated import ROWS, SIZES, rows_of, write_dataset


def test_rows_of_a_model_have_the_tables_of_its_cliques():
    draw = np.random.default_rng(0)
    first = draw.random((3, 2))
    first /= first.sum()
    second = first.sum(axis=0)[:, None] * draw.dirichlet(np.ones(4), 2)
    tree = CliqueTree((Factor(("a", "b"), first), Factor(("b", "c"), second)), (None, 0))
    codes = tree_rows(tree, {"a": 3, "b": 2, "c": 4}, 10_000, MadeUpDraws(1))
    for pair, table in (((0, 1), first), ((1, 2), second)):
        found = np.zeros(table.shape)
        np.add.at(found, tuple(codes[:, list(pair)].T), 1)
        # Each of at most four contexts is off by less than one in each cell, on top of those it hangs on.
        assert np.abs(found - 10_000 * table).max() < 8
    # Given b, a and c do not know of each other: six standard deviations of a count of at most 10,000.
    joint = np.zeros((3, 2, 4))
    np.add.at(joint, tuple(codes.T), 1)
    expected = joint.sum(axis=2, keepdims=True) * joint.sum(axis=0, keepdims=True) / joint.sum(axis=(0, 2))[:, None]
    assert np.abs(joint - expected).max() < 6 * math.sqrt(10_000 / 4)


def test_a_run_is_written_and_is_not_made_again(tmp_path, monkeypatch):
    write_dataset(tmp_path, "made-up", SIZES, rows_of())
    words = ["made-up", "--data", str(tmp_path), "--out", str(tmp_path / "rows.csv"), "--epsilons", "1"]
    main([*words, "--methods", "margrave"])
    (record,) = read_records(tmp_path / "rows.csv")
    assert (record.dataset, record.method, record.epsilon) == ("made-up", "margrave", 1.0)
    assert record.rows == pytest.approx(0.8 * ROWS, rel=0.1)
    assert 0 < record.one < record.two < record.three < 1.05 * record.release
    assert record.nist == pytest.approx(1000 - 500 * record.three, rel=1e-4)
    monkeypatch.setattr("experiments.rows.run_rows", None)
    main([*words, "--methods", "margrave"])
    assert "| made-up | 1 | margrave |" in page([record])


def test_records_that_are_not_there_are_none(tmp_path):
    assert read_records(tmp_path / "rows.csv") == []
    assert page([]).startswith("| dataset | epsilon | method |")
    assert "trial" not in page([])
    assert RowsRecord.__dataclass_fields__["trial"]

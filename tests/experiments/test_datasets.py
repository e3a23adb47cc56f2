"""Data sets are read as they are, and what is missing or wrong is said with what to do."""

import gzip
import json

import numpy as np
import pytest
from generated import ROWS, SIZES, rows_of, write_dataset

from experiments import ExperimentError
from experiments.datasets import ORIGINS, read_dataset, require_datasets
from margrave.errors import DataError


def test_true_counts_are_those_of_the_rows(folder):
    dataset = read_dataset(folder, "town")
    assert dataset.rows == ROWS
    assert len(dataset.workload) == 10
    codes = rows_of()
    for members in dataset.workload.positions:
        shape = [list(SIZES.values())[k] for k in members]
        flat = np.ravel_multi_index([codes[:, k] for k in members], shape)
        expected = np.bincount(flat, minlength=np.prod(shape)).reshape(shape)
        np.testing.assert_array_equal(dataset.layout.view(dataset.truth, dataset.layout.places[members]), expected)


def test_columns_are_found_by_name_and_others_are_left(tmp_path):
    (tmp_path / "t-domain.json").write_text(json.dumps({"b": 2, "a": 3, "c": 2}))
    (tmp_path / "t.csv").write_text("a,other,b,c\n2,9,1,0\n0,9,0,1\n")
    dataset = read_dataset(tmp_path, "t")
    view = dataset.layout.view(dataset.truth, dataset.layout.places[(0, 1, 2)])
    assert view[1, 2, 0] == 1
    assert view[0, 0, 1] == 1
    assert view.sum() == 2


@pytest.mark.parametrize(("given", "meant"), [("titanik", "titanic"), ("twon", "town")])
def test_a_name_that_is_nearly_one_of_the_paper_or_of_the_folder_is_asked_back(folder, given, meant):
    with pytest.raises(ExperimentError, match=rf"no data set '{given}' in the folder .*; did you mean '{meant}'\?$"):
        require_datasets(folder, [given])


def test_missing_files_are_named_with_their_form_and_where_they_come_from(folder):
    with pytest.raises(ExperimentError) as caught:
        require_datasets(folder, ["town", "titanic", "adult"])
    text = str(caught.value)
    assert "has no titanic.csv.gz and no titanic-domain.json and no adult.csv.gz and no adult-domain.json" in text
    assert "whole-number codes 0, 1, … with a header" in text
    assert '{"age": 85, "sex": 2}' in text
    assert "UCI Machine Learning Repository" in text
    assert ORIGINS["titanic"] in text
    assert ORIGINS["salary"] not in text
    assert "town" not in text.replace(str(folder), "")


def test_a_data_set_of_ones_own_has_no_origin_to_name(tmp_path):
    with pytest.raises(ExperimentError, match=r"has no mine\.csv\.gz and no mine-domain\.json; .* with --data$"):
        require_datasets(tmp_path, ["mine"])


def test_no_origin_is_an_address():
    assert not any("http" in origin or "/" in origin for origin in ORIGINS.values())


@pytest.mark.parametrize(
    ("sizes", "text", "message"),
    [
        ({"a": 2, "b": 2, "c": 2}, "a,b,c\n0,1,x\n", "is not a CSV file of whole numbers"),
        ({"a": 2, "b": 2, "c": 2}, "a,b\n0,1\n", "has no column 'c', which the domain names"),
        ({"a": 2, "b": 2, "c": 2}, "a,b,c\n", "has no rows"),
        ({"a": 2, "b": 2}, "a,b\n0,1\n", "has 2 attributes; the experiments need at least 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*input contained no data")
def test_files_that_do_not_fit_are_refused(tmp_path, sizes, text, message):
    (tmp_path / "t-domain.json").write_text(json.dumps(sizes))
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ExperimentError, match=message):
        read_dataset(tmp_path, "t")


def test_a_code_outside_the_domain_is_refused(tmp_path):
    write_dataset(tmp_path, "t", {"a": 2, "b": 2, "c": 2}, [[0, 1, 2]])
    with pytest.raises(DataError, match="codes outside"):
        read_dataset(tmp_path, "t")


def test_a_compressed_file_cut_in_half_is_refused(tmp_path):
    write_dataset(tmp_path, "t", SIZES, rows_of())
    whole = (tmp_path / "t.csv.gz").read_bytes()
    (tmp_path / "t.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ExperimentError, match="is not a CSV file of whole numbers with a header"):
        read_dataset(tmp_path, "t")
    assert gzip.decompress(whole)

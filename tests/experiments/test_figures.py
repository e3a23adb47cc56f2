"""Figures are written, hold what they must, and what they need is named where it is missing."""

from dataclasses import replace

import pytest

from experiments import ExperimentError, figures
from experiments.records import DONE, Record
from experiments.scaling import STEPS, Scaling


def records(experiment, rounds, methods):
    return [
        replace(
            Record(experiment, dataset, epsilon, number, trial, method, DONE),
            l1=factor * (1 + trial) / epsilon,
            l2=factor / epsilon,
        )
        for dataset in ("titanic", "nist-taxi")
        for epsilon in (0.1, 1.0, 10.0)
        for number in rounds
        for trial in range(2)
        for factor, method in enumerate(methods, start=1)
    ]


ROWS = [
    Scaling(attributes, values, 1, attributes**3 * values**3, step, seconds=0.01 * attributes, megabytes=100.0)
    for attributes, values in ((10, 10), (20, 10), (20, 5))
    for step in STEPS
]


@pytest.fixture
def altair():
    pytest.importorskip("vl_convert", reason="figures need vl-convert-python, of the extra report")
    return pytest.importorskip("altair", reason="figures need altair, of the extra report")


@pytest.mark.parametrize(
    ("experiment", "rounds", "methods"),
    [
        ("residual-planner", (0,), ("mle", "lnn-paper", "ours", "pipeline")),
        ("mwem", (10, 30), ("mle", "ours", "private-pgm")),
    ],
)
def test_an_experiment_has_four_files(altair, tmp_path, experiment, rounds, methods):
    files = figures.draw_experiment(records(experiment, rounds, methods), experiment, tmp_path)
    assert [file.name for file in files] == [
        f"{experiment}-{m}.{kind}" for m in ("l1", "l2") for kind in ("png", "svg")
    ]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    text = files[1].read_text(encoding="utf-8")
    for words in ("Titanic", "Nist-Taxi", "Not private", "margrave", *(f"{n} rounds" for n in rounds if n)):
        assert words in text
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_every_method_has_one_colour(altair):
    found = figures.bands(records("mwem", (10,), ("mle", "ours")), "mwem")
    chart = figures.error_chart(found, "mwem", "l1").to_dict()
    scale = chart["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["Scalable MWEM (EMP)", "margrave"]
    assert len(set(scale["range"])) == 2


def test_the_figure_of_scaling(altair, tmp_path):
    files = figures.draw_scaling(ROWS, tmp_path)
    assert [file.name for file in files] == ["scaling.png", "scaling.svg"]
    assert "cells" in files[1].read_text(encoding="utf-8")


def test_nothing_done_draws_nothing(tmp_path):
    assert figures.draw_experiment([], "mwem", tmp_path) == []
    assert figures.draw_scaling([], tmp_path) == []


def test_missing_altair_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(ExperimentError, match=r"install margrave\[report\], or leave figures out with --no-figures"):
        figures.require_altair()

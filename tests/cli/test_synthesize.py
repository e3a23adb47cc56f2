"""``margrave synthesize``: rows from a saved release, and words where they cannot be made."""

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import margrave as mg
from margrave.cli.app import app, run
from tests.releases import made, measured


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "release"
    made(measured(), "lnn").save(path)
    return str(path)


def test_rows_of_a_saved_release(folder, tmp_path):
    out = tmp_path / "rows.parquet"
    shown = CliRunner().invoke(app, ["synthesize", folder, "--out", str(out), "--seed", "7"])
    assert shown.exit_code == 0, shown.output
    expected = mg.load(folder).synthesize(seed=7)
    assert pq.read_table(out).equals(expected.to_arrow())
    assert f"{len(expected):,} synthetic rows, seed 7" in shown.stdout
    assert "Tables of 2 attributes differ from the release's by" in shown.stdout


def test_options(folder, tmp_path):
    words = ["synthesize", folder, "--out", str(tmp_path / "rows.csv"), "--rows", "30", "--codes", "--seed", "1"]
    assert run(words) == 0
    frame = pd.read_csv(tmp_path / "rows.csv")
    assert frame.shape == (30, 4)
    assert set(frame["sex"]) <= {0, 1}
    assert (tmp_path / "rows.csv-metadata.json").exists()
    assert run(words) == 2
    assert run([*words, "--overwrite"]) == 0


def test_nothing_is_read_for_a_file_that_cannot_be_written(tmp_path, capsys):
    assert run(["synthesize", str(tmp_path / "no-release"), "--out", str(tmp_path / "rows.txt")]) == 2
    assert "does not say in which form; end its name in" in capsys.readouterr().err


def test_ctrl_c_keeps_the_best_rows_so_far(folder, tmp_path, monkeypatch, capsys):
    from margrave.synthesis import fitting

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "_visit", interrupted)
    assert run(["synthesize", folder, "--out", str(tmp_path / "rows.parquet")]) == 0
    assert "Interrupted: these are the best rows so far." in capsys.readouterr().out
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows > 0

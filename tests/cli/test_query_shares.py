"""Shares on the command line: an interval for small denominators too, and words where nothing is known."""

import json

import numpy as np
from typer.testing import CliRunner

import margrave as mg
from margrave.cli.app import app


def saved(tmp_path, table, method="mle", *, errors=False):
    domain = mg.Domain([mg.Attribute("sex", labels=("F", "M")), mg.Attribute("region", labels=("north", "south"))])
    noisy = mg.Measurements.from_marginals(domain, [(("sex", "region"), np.array(table), 4.0)])
    workload = mg.Workload(domain, [("sex", "region")])
    mg.reconstruct(noisy, workload, method=method, errors=errors).save(tmp_path / "release")
    return str(tmp_path / "release")


def test_a_share_of_next_to_nothing_is_anything_from_0_to_1_and_says_so(tmp_path):
    folder = saved(tmp_path, [[40.0, 1.0], [60.0, 2.0]])
    asked = ["query", folder, "sex = 'F'", "--share-of", "", "--by", "region"]
    answer = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    north, south = answer["rows"]
    assert 0.3 < north["ci_low"] < 0.4 < north["ci_high"] < 0.5
    assert north["std_error"] > 0
    assert (south["ci_low"], south["ci_high"], south["std_error"]) == (0, 1, None)
    assert answer["note"].startswith("no information where the denominator is within 1.96 standard errors of zero")
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    assert "no information where the denominator" in shown.stdout


def test_a_published_share_has_an_error_an_interval_and_a_word(tmp_path):
    folder = saved(tmp_path, [[4000.0, 3.0], [6000.0, 1.0]], "lnn", errors=True)
    asked = ["query", folder, "sex = 'F'", "--share-of", "", "--by", "region"]
    north, south = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["rows"]
    for row in (north, south):
        assert 0 <= row["share_low"] < row["share"] < row["share_high"] <= 1
        assert row["share_error"] > 0
    assert (north["reliability"], south["reliability"]) == ("reliable", "use with care")
    shown = CliRunner().invoke(app, asked).stdout
    assert "0.400" in shown
    assert "reliable" in shown
    heading = next(line for line in shown.splitlines() if "share_error" in line)
    words = " ".join(word for word in heading.split() if word.isidentifier())
    assert words == "region share share_error share_low share_high reliability estimate std_error ci_low ci_high"

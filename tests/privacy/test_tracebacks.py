"""Tools that print the variables of every function that an error came through find no row and no exact count there."""

import re
import traceback

import numpy as np
import pytest

import margrave as mg
from margrave.errors import MargraveError

DOMAIN = mg.Domain([mg.Attribute("a", size=3), mg.Attribute("b", size=4)])
WORKLOAD = mg.Workload(DOMAIN, [("a", "b")])
# Noise of a standard deviation of 10⁸ and more: a noisy number is one of the exact ones in 10⁻⁶ of runs at most.
BUDGET = mg.Budget.zcdp(rho=1e-17)
TABLE = mg.CodedTable(DOMAIN, {"a": np.arange(977) % 3, "b": np.arange(977) % 4})
# Of the exact tables: 977 rows; 326, 326 and 325; 245, 244, 244, 244; 82 and 81.
EXACT = {"977", "326", "325", "245", "244", "82", "81"}
MECHANISMS = [mg.residual_planner, mg.adaptive_planner, mg.gaussian_marginals, mg.scalable_mwem]


class Stop(BaseException):
    """Neither an error of ours nor one that anyone catches."""


def stopped(*_, **__):
    raise Stop


def shown(error):
    """What such a tool prints of margrave's own functions, but for addresses, which hold any digits."""
    frames = traceback.walk_tb(error.__traceback__)
    return {
        f"{frame.f_code.co_name}.{name}": re.sub(r"\b0x[0-9a-f]+", "", repr(value))
        for frame, _ in frames
        if "src/margrave" in frame.f_code.co_filename
        for name, value in frame.f_locals.items()
        if not (name == "self" and isinstance(value, mg.CodedTable))
    }


def require_nothing_exact(error):
    found = shown(error)
    assert found
    leaks = {name: text for name, text in found.items() if EXACT & set(re.findall(r"[\d.e+]+", text))}
    assert not leaks


class Sampler:
    """Fails while noise is drawn, once the counts are there."""

    name, private = "failing", True

    def draw(self, variance, count):
        return stopped() if count else np.zeros(0, dtype=np.int64)

    def spawn(self, count):
        return [self] * count


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.__name__)
def test_an_error_while_noise_is_drawn(mechanism):
    with pytest.raises(Stop) as caught:
        mechanism(TABLE, WORKLOAD, BUDGET, contributions=1, sampler=Sampler())
    require_nothing_exact(caught.value)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.__name__)
def test_an_error_while_measurements_are_kept(mechanism):
    with pytest.raises(Stop) as caught:
        mechanism(TABLE, WORKLOAD, BUDGET, contributions=1, keep=stopped)
    require_nothing_exact(caught.value)


def test_an_error_while_the_charge_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(mg.Ledger, "charge", stopped)
    with pytest.raises(Stop) as caught:
        mg.residual_planner(TABLE, WORKLOAD, BUDGET, contributions=1, ledger=mg.Ledger(tmp_path / "ledger", cap=1))
    require_nothing_exact(caught.value)


def test_an_error_while_rows_are_counted(monkeypatch):
    """Also one that is not caught and told anew, such as Ctrl-C."""
    monkeypatch.setattr("margrave.data.counting.fetch.Tally.counts", stopped)
    rows = {"a": [0, 1, 2] * 20, "b": ["2"] * 60}
    domain = mg.Domain([mg.Attribute("a", size=3), mg.Attribute("b", labels=("1", "2"))])
    import pandas as pd

    with pytest.raises(Stop) as caught:
        mg.residual_planner(pd.DataFrame(rows), mg.Workload.all_kway(domain, 2), BUDGET, contributions=1)
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    below = [frame for frame in frames if frame.f_code.co_filename.endswith(("fetch.py", "tally.py", "engine.py"))]
    assert below
    assert not any(frame.f_locals for frame in below)


def test_an_error_of_ours_has_no_variables_of_where_it_arose():
    domain = mg.Domain([mg.Attribute("a", labels=("x", "y"))])
    import pandas as pd

    frame = pd.DataFrame({"a": ["x", "Katharina Geheim"]})
    with pytest.raises(MargraveError) as caught:
        mg.residual_planner(frame, mg.Workload.all_kway(domain, 1), BUDGET, contributions=1)
    assert caught.value.__context__ is None
    assert not any("Katharina" in text for name, text in shown(caught.value).items() if "source" not in name)

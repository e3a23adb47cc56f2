"""Draw every picture of the documentation into docs/pictures: ``make pictures`` runs it.

The figures come from the made-up town of ``margrave demo`` and noise from seeds, so that they are the same on every
machine; nothing in them is private. The pictures of the report are taken by Chromium, which must be installed.
"""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

import margrave as mg
from margrave.cli import town
from margrave.privacy.noise import InsecureSeededSource, gaussian_sampler

if TYPE_CHECKING:
    from browser import Page

FOLDER = Path(__file__).parent / "pictures"
BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#6B7280", "#009E73"
_FONT = "Helvetica, Arial, sans-serif"
_NAMES = ("age", "sex", "district", "education", "work", "health")


def people(names: Sequence[str] = _NAMES) -> mg.CodedTable:
    """Return the town with some of its attributes."""
    codes = town.inhabitants()
    return mg.CodedTable(town.DOMAIN.project(names), {name: codes[name] for name in names})


def measured(workload: mg.Workload, epsilon: float, seed: int) -> mg.Measurements:
    """Measure the town with noise from a seed."""
    budget = mg.Budget.approx(epsilon=epsilon, delta=1e-9)
    sampler = gaussian_sampler(source=InsecureSeededSource(seed))
    return mg.residual_planner(people(workload.domain.attributes), workload, budget, contributions=1, sampler=sampler)


def residuals() -> alt.TopLevelMixin:
    """Draw a table as the sum of its residuals: what the total, each attribute, and only both together know."""
    table = town.count(("education", "work"))
    mean = np.full_like(table, table.mean())
    rows = table.mean(axis=1, keepdims=True) - table.mean() + 0 * table
    columns = table.mean(axis=0, keepdims=True) - table.mean() + 0 * table
    both = table - mean - rows - columns
    panels = [
        ("the table of counts", table),
        ("= total, spread evenly", mean),
        ("+ education", rows),
        ("+ work", columns),
        ("+ both together", both),
    ]
    education, work = (town.DOMAIN[name].categories for name in ("education", "work"))
    charts = []
    for number, (title, values) in enumerate(panels):
        cells = [
            {"education": one, "work": other, "count": round(float(values[i, j]))}
            for i, one in enumerate(education)
            for j, other in enumerate(work)
        ]
        base = alt.Chart(alt.Data(values=cells)).encode(
            x=alt.X("work:N", sort=list(work), title=None, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y(
                "education:N", sort=list(education), title=None, axis=alt.Axis(labels=number == 0, ticks=number == 0)
            ),
        )
        limit = float(np.abs(table).max())
        fill = alt.Color(
            "count:Q",
            scale=alt.Scale(domain=[-limit, 0, limit], range=[ORANGE, "#ffffff", BLUE], interpolate="lab"),
            legend=None,
        )
        numbers = base.mark_text(fontSize=10).encode(text=alt.Text("count:Q", format=",d"), color=alt.value("#1f2937"))
        tiles = base.mark_rect(opacity=0.75).encode(color=fill)
        charts.append((tiles + numbers).properties(width=170, height=150, title=title))
    return alt.hconcat(*charts, spacing=12)


def noise() -> alt.TopLevelMixin:
    """Draw how large the noise on one count is, for three budgets."""
    values = []
    for rho in (0.5, 0.05, 0.005):
        variance = 1 / (2 * rho)
        k = np.arange(-40, 41)
        weights = np.exp(-(k**2) / (2 * variance))
        label = f"ρ = {rho:g}: ± {1.96 * variance**0.5:.0f}"
        values += [
            {"noise": int(one), "probability": float(w), "budget": label}
            for one, w in zip(k, weights / weights.sum(), strict=True)
        ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_area(opacity=0.45, interpolate="step", line=True)
        .encode(
            x=alt.X("noise:Q", title="noise added to one count", axis=alt.Axis(tickCount=9)),
            y=alt.Y("probability:Q", stack=None, title="probability", axis=alt.Axis(format="%")),
            color=alt.Color(
                "budget:N",
                title="95 % of it within",
                scale=alt.Scale(range=[BLUE, GREEN, ORANGE]),
                legend=alt.Legend(labelLimit=300, titleLimit=300),
            ),
        )
        .properties(width=460, height=200)
    )


def nonnegativity() -> alt.TopLevelMixin:
    """Draw the mean error of all three-way tables of the town by method and budget."""
    workload = mg.Workload.all_kway(town.DOMAIN.project(_NAMES), 3)
    methods = {
        "unbiased": "mle",
        "negative cells set to zero": "trunc",
        "set to zero and rescaled": "trunc+rescale",
        "non-negative, consistent": "lnn",
    }
    values = []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        for seed in range(3):
            noisy = measured(workload, epsilon, seed)
            for label, method in methods.items():
                release = mg.reconstruct(noisy, workload, method=method)
                errors = [
                    float(np.abs(release.table(*names).values - town.count(names)).sum() / town.INHABITANTS)
                    for names in workload
                ]
                values.append({"epsilon": epsilon, "method": label, "error": float(np.mean(errors))})
    return (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "epsilon:Q",
                scale=alt.Scale(type="log"),
                title="ε (δ = 10⁻⁹)",
                axis=alt.Axis(values=[0.1, 0.3, 1, 3, 10]),
            ),
            y=alt.Y("mean(error):Q", scale=alt.Scale(type="log"), title="mean error of a table (L1/N)"),
            color=alt.Color(
                "method:N",
                title=None,
                sort=list(methods),
                scale=alt.Scale(domain=list(methods), range=[GREY, ORANGE, GREEN, BLUE]),
                legend=alt.Legend(labelLimit=300),
            ),
        )
        .properties(width=420, height=260)
    )


def intervals() -> alt.TopLevelMixin:
    """Draw two numbers and two intervals for the same cells, with the truth of the made-up town."""
    names = ("age", "education", "health")
    workload = mg.Workload.all_kway(town.DOMAIN.project(_NAMES), 3)
    release = mg.reconstruct(measured(workload, 0.5, 4), workload, errors=True)
    table, truth = release.table(*names), town.count(names)
    count_error, std_error = np.asarray(table.count_error), np.asarray(table.std_error)
    assert count_error.shape == truth.shape
    chosen = [(2, 0, 0), (2, 3, 0), (4, 2, 1), (5, 4, 2), (6, 2, 3), (7, 1, 2), (7, 0, 1), (3, 4, 3)]
    values = []
    for cell in chosen:
        label = " · ".join(town.DOMAIN[name].categories[code] for name, code in zip(names, cell, strict=True))
        estimate = float(np.asarray(table.estimate)[cell])
        error = float(np.broadcast_to(std_error, truth.shape)[cell])
        low, high = np.asarray(table.count_low), np.asarray(table.count_high)
        values += [
            {
                "cell": label,
                "what": "estimate",
                "value": estimate,
                "low": estimate - 1.96 * error,
                "high": estimate + 1.96 * error,
            },
            {
                "cell": label,
                "what": "count",
                "value": float(table.values[cell]),
                "low": float(low[cell]),
                "high": float(high[cell]),
            },
            {"cell": label, "what": "truth", "value": float(truth[cell]), "low": None, "high": None},
        ]
    order = ["estimate", "count", "truth"]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("cell:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("what:N", sort=order),
        color=alt.Color(
            "what:N", title=None, sort=order, scale=alt.Scale(domain=order, range=[ORANGE, BLUE, "#111827"])
        ),
    )
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="people"), x2="high:Q")
    points = base.mark_point(filled=True, size=45, opacity=1).encode(
        x="value:Q",
        shape=alt.Shape("what:N", sort=order, scale=alt.Scale(domain=order, range=["circle", "square", "diamond"])),
    )
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(strokeDash=[3, 3], color=GREY).encode(x="zero:Q")
    return (zero + bars + points).properties(width=430, height=alt.Step(11))


FIGURES: dict[str, Callable[[], Any]] = {
    "residuals": residuals,
    "noise": noise,
    "nonnegativity": nonnegativity,
    "intervals": intervals,
}


def draw(name: str) -> None:
    """Write one figure as SVG."""
    chart = (
        FIGURES[name]()
        .configure(font=_FONT, background="#ffffff", padding={"left": 24, "right": 48, "top": 8, "bottom": 8})
        .configure_view(strokeOpacity=0)
    )
    chart = chart.configure_title(fontSize=12).configure_axis(labelFontSize=11, titleFontSize=11)
    drawing = io.StringIO()
    chart.save(drawing, format="svg")
    (FOLDER / f"{name}.svg").write_text(drawing.getvalue().rstrip() + "\n", encoding="utf-8")


def photograph() -> None:
    """Take the pictures of the report of the town: its head, and the look at a table."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from browser import Chromium

    workload = mg.Workload.all_kway(town.DOMAIN, 3)
    budget = mg.Budget.approx(epsilon=1.0, delta=1e-9)
    noisy = mg.residual_planner(people(town.DOMAIN.attributes), workload, budget, contributions=1)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        release = mg.reconstruct(noisy, workload, errors=True)
        mg.write_report(release, file, title="A made-up town: 50,000 people by twelve attributes")
        with Chromium(Path(folder) / "profile") as browser:
            page = browser.page(file.as_uri(), width=1080, height=900)
            page.wait_until(
                "document.querySelector('#heat-figure svg, #bars-figure svg, #heat svg, #bars svg') !== null"
            )
            _clip(page, 0, 700, FOLDER / "report.png")
            top = page.evaluate("document.querySelector('#look').getBoundingClientRect().top + window.scrollY")
            _clip(page, float(top), 1000, FOLDER / "report-table.png")


def _clip(page: Page, top: float, height: int, file: Path) -> None:
    """Keep a picture of a part of a page."""
    clip = {"x": 0, "y": top, "width": 1080, "height": height, "scale": 1}
    shown = page.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})
    file.write_bytes(base64.b64decode(shown["data"]))


def main(names: Sequence[str]) -> None:
    """Draw what is named, or everything."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or FIGURES:
        if name != "report":
            draw(name)
    if not names or "report" in names:
        photograph()


if __name__ == "__main__":
    main(sys.argv[1:])

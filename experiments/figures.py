"""Figures laid out as in the paper: a panel for each data set, error against ε, bands from the least to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any, Protocol

from experiments import ExperimentError
from experiments.methods import METHODS, RESIDUAL_PLANNER
from experiments.records import DONE, Record
from experiments.scaling import FIXED_ATTRIBUTES, STEPS, VALUES, Scaling
from experiments.summary import Band, bands

if TYPE_CHECKING:
    import altair as alt

Values = list[dict[str, Any]]

_WIDTH, _HEIGHT = 200, 210
_FONT = "Helvetica, Arial, sans-serif"
_CAPTION = "Not private: judged by the true counts of public data, with noise from recorded seeds."
_MADE_UP = "On made-up rows. Full lines: 10 values an attribute; broken lines: 20 attributes."
_TITLES = {"residual-planner": "ResidualPlanner", "mwem": "Scalable MWEM"}
_METRICS = {"l1": "L1 error / N", "l2": "L2 error / N"}
_STEPS = {
    "plan": ("plan", "#6B7280"),
    "measure": ("measure (count and noise)", "#E69F00"),
    "mle": ("reconstruct, unbiased", "#56B4E9"),
    "lnn": ("non-negative, one round", "#0072B2"),
    "published": ("ResidualPlanner's reconstruction, published", "#CC79A7"),
}
# How the lines of the two series are drawn: full, and broken.
_SERIES = {"attributes": [1, 0], "values": [5, 3]}
# Reconstruction of all tables of up to three attributes of ten values, in seconds ([RP], on a desktop of its time).
PUBLISHED_SECONDS = {20: 1.02, 50: 17.0, 100: 154.5}


def require_altair() -> None:
    """Raise `ExperimentError` if figures cannot be drawn."""
    if find_spec("altair") is None or find_spec("vl_convert") is None:
        raise ExperimentError(
            "figures need the packages altair and vl-convert-python, which are not installed; install "
            "margrave[report], or leave figures out with --no-figures"
        )


def draw_experiment(records: Sequence[Record], experiment: str, folder: Path) -> list[Path]:
    """Write the figures of an experiment, L1 and L2, as PNG and SVG; return the files."""
    files: list[Path] = []
    for metric in _METRICS:
        found = bands(records, experiment, metric)
        if found:
            files += _save(error_chart(found, experiment, metric), folder / f"{experiment}-{metric}")
    return files


def draw_scaling(rows: Sequence[Scaling], folder: Path) -> list[Path]:
    """Write the figure of time and memory against size; return the files."""
    done = [row for row in rows if row.status == DONE]
    return _save(scaling_chart(done), folder / "scaling") if done else []


def error_chart(found: Sequence[Band], experiment: str, metric: str) -> alt.TopLevelMixin:
    """Return the figure of errors: a column for each data set and, for MWEM, a row for each number of rounds."""
    import altair as alt

    methods = [method for key, method in METHODS[experiment].items() if any(band.method == key for band in found)]
    labels = {method.key: method.label for method in methods}
    values = [
        {
            "dataset": band.dataset.title(),
            "rounds": f"{band.rounds} rounds",
            "epsilon": band.epsilon,
            "method": labels[band.method],
            "mean": band.mean,
            "least": band.least,
            "most": band.most,
        }
        for band in found
    ]
    epsilons = sorted({band.epsilon for band in found})
    scale = alt.Scale(domain=list(labels.values()), range=[method.colour for method in methods])
    axis = alt.Axis(values=epsilons, format="~g", grid=False, labelOverlap=False)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(type="log", nice=False, padding=10), axis=axis),
        color=alt.Color("method:N", title=None, scale=scale, legend=_legend()),
    )
    # No titles at the axes: each panel would repeat what the heading says.
    y = alt.Y("mean:Q", title=None, scale=alt.Scale(type="log", nice=False, padding=8), axis=_log_axis())
    band = base.mark_area(opacity=0.18, line=False).encode(y=alt.Y("least:Q", title=None), y2="most:Q")
    line = base.mark_line(strokeWidth=2).encode(y=y)
    points = base.mark_point(filled=True, size=34, opacity=1).encode(y=y)
    panels = alt.layer(band, line, points).properties(width=_WIDTH, height=_HEIGHT)
    chart = panels.facet(**_facets(found, experiment)).resolve_scale(y="independent")
    return _styled(
        chart, f"{_TITLES[experiment]}: {_METRICS[metric]} against ε, all 3-way tables (log scales)", _CAPTION
    )


class Drawn(Protocol):
    """A method as far as a figure needs it."""

    @property
    def key(self) -> str:
        """What bands call it."""
        ...

    @property
    def label(self) -> str:
        """What the legend calls it."""
        ...

    @property
    def colour(self) -> str:
        """The colour of its line."""
        ...


def draw_peer_errors(found: Sequence[Band], methods: Sequence[Drawn], order: int, stem: Path) -> list[Path]:
    """Write the figure of the comparison beside AIM and MST: a panel for each table, six in a row; return the files."""
    import altair as alt

    shown = [method for method in methods if any(band.method == method.key for band in found)]
    labels = {method.key: method.label for method in shown}
    values = [
        {"dataset": band.dataset, "epsilon": band.epsilon, "method": labels[band.method], "mean": band.mean}
        for band in found
    ]
    scale = alt.Scale(domain=list(labels.values()), range=[method.colour for method in shown])
    axis = alt.Axis(values=sorted({band.epsilon for band in found}), format="~g", grid=False, labelOverlap=True)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(type="log", nice=False, padding=10), axis=axis),
        y=alt.Y("mean:Q", title=None, scale=alt.Scale(type="log", nice=False, padding=8), axis=_log_axis()),
        color=alt.Color("method:N", title=None, scale=scale, legend=_legend()),
    )
    lines = base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=30, opacity=1)
    header = alt.Header(title=None, labelFontSize=13, labelFontWeight="bold", labelPadding=6)
    order_of = list(dict.fromkeys(band.dataset for band in found))
    panels = lines.properties(width=_WIDTH * 0.8, height=_HEIGHT * 0.8).facet(
        facet=alt.Facet("dataset:N", sort=order_of, header=header), columns=6
    )
    title = f"L1 error / N against ε, all {order}-way tables (log scales)"
    # A last row that is not full would show axes without a panel if they were shared.
    panels = panels.resolve_scale(y="independent").resolve_axis(x="independent")
    return _save(_styled(panels, title, _CAPTION), stem)


def _facets(found: Sequence[Band], experiment: str) -> dict[str, Any]:
    """Return the columns, and for MWEM the rows, of a figure of errors."""
    import altair as alt

    header = alt.Header(title=None, labelFontSize=13, labelFontWeight="bold", labelPadding=6)
    datasets = [name.title() for name in dict.fromkeys(band.dataset for band in found)]
    facets: dict[str, Any] = {"column": alt.Column("dataset:N", sort=datasets, header=header)}
    if experiment != RESIDUAL_PLANNER:
        rounds = [f"{number} rounds" for number in sorted({band.rounds for band in found})]
        facets["row"] = alt.Row("rounds:N", sort=rounds, header=header)
    return facets


def scaling_chart(rows: Sequence[Scaling]) -> alt.TopLevelMixin:
    """Return the figure of time against attributes, time against cells, and memory against cells."""
    import altair as alt

    # The first series has most sizes, whatever its number of values.
    values = mode(row.values for row in rows)
    by_attributes = [row for row in rows if row.values == values]
    published: Values = [
        {"attributes": number, "step": _STEPS["published"][0], "seconds": seconds, "series": "attributes"}
        for number, seconds in PUBLISHED_SECONDS.items()
        if values == VALUES and any(row.attributes >= number for row in by_attributes)
    ]
    shown = [key for key in (*STEPS, "published") if key != "published" or published]
    first = _lines(
        _values(by_attributes, "attributes") + published,
        "attributes",
        f"attributes of {values} values",
        "seconds",
        shown,
    )
    fixed = [row for row in rows if row.attributes == FIXED_ATTRIBUTES]
    both = _values(by_attributes, "attributes") + _values(fixed, "values")
    second = _lines(both, "cells", "cells", "seconds", shown)
    third = _lines(both, "cells", "cells", "gigabytes", shown)
    panels = alt.hconcat(first, second, third, spacing=24)
    return _styled(panels, "Scaling: all 3-way tables, time and memory by step (log scales)", _MADE_UP)


def _lines(values: Values, x: str, title: str, y: str, shown: list[str]) -> Any:  # noqa: ANN401 (Altair's sums are of no one type)
    """Return one panel: a line for each step, both axes logarithmic."""
    import altair as alt

    names, colours = zip(*(_STEPS[key] for key in shown), strict=True)
    base = alt.Chart(alt.InlineData(values=values)).encode(
        x=alt.X(f"{x}:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=8), axis=_log_axis("~s")),
        y=alt.Y(f"{y}:Q", title=y, scale=alt.Scale(type="log", nice=False, padding=8), axis=_log_axis()),
        strokeDash=alt.StrokeDash(
            "series:N", legend=None, scale=alt.Scale(domain=[*_SERIES], range=[*_SERIES.values()])
        ),
        color=alt.Color(
            "step:N", title=None, scale=alt.Scale(domain=list(names), range=list(colours)), legend=_legend()
        ),
    )
    return (base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=40, opacity=1)).properties(
        width=_WIDTH + 50, height=_HEIGHT + 30
    )


def _values(rows: Sequence[Scaling], series: str) -> Values:
    """Return rows as figures want them; the time of the solver is that of one round."""
    return [
        {
            "series": series,
            "attributes": row.attributes,
            "cells": row.cells,
            "step": _STEPS[row.step][0],
            "seconds": row.seconds / max(row.rounds, 1),
            "gigabytes": row.megabytes / 1000,
        }
        for row in rows
    ]


def _legend() -> alt.Legend:
    import altair as alt

    return alt.Legend(
        orient="bottom", direction="horizontal", columns=6, labelLimit=300, symbolSize=90, symbolOpacity=1, offset=12
    )


def _log_axis(form: str = "~g") -> alt.Axis:
    import altair as alt

    ticks = [digit * 10.0**power for power in range(-6, 12) for digit in (1, 3)]
    return alt.Axis(format=form, values=ticks, gridColor="#E5E7EB", labelOverlap=True)


def _styled(chart: Any, title: str, caption: str) -> alt.TopLevelMixin:  # noqa: ANN401 (any of Altair's charts)
    """Return the chart with a title, a caption below it, and the house's fonts."""
    import altair as alt

    heading = alt.TitleParams(
        text=title,
        subtitle=caption,
        anchor="start",
        fontSize=15,
        subtitleColor="#6B7280",
        subtitlePadding=4,
        offset=14,
    )
    styled = chart.properties(title=heading, background="white", padding=12)
    configured: alt.TopLevelMixin = (
        styled.configure(font=_FONT)
        .configure_view(stroke="#D1D5DB")
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", domainColor="#9CA3AF")
        .configure_legend(labelFontSize=12)
        .configure_facet(spacing=16)
    )
    return configured


def _save(chart: alt.TopLevelMixin, stem: Path) -> list[Path]:
    """Write a chart as PNG, at twice the resolution, and as SVG."""
    png, svg = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    chart.save(png, scale_factor=2)
    chart.save(svg)
    return [png, svg]

"""The charts of a report, by Altair.

Those that never change (budget, error and non-negativity by order) are drawn here and are in the page as SVG, so that
they need no script and print well. Those of the picked table are specifications with empty data, which the script of
the page fills and hands to the Vega libraries. Colours are the page's own variables: they follow light and dark by
themselves. All are safe for colour-blind readers, and no meaning depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from margrave.errors import ReleaseError
from margrave.memory import require_addresses
from margrave.release.facts import order_name, percent, short

if TYPE_CHECKING:
    import altair as alt

    from margrave.release.report.findings import OrderFindings

Row = Mapping[str, object]

# Drawn for the width of a phone; on wider screens three stand side by side.
_WIDTH, _STEP = 232, 34
# Beyond the longest bar there is room for its text.
_HEADROOM = 1.3
_INK, _FAINT, _ACCENT, _SECOND = "var(--ink)", "var(--rule)", "var(--accent)", "var(--second)"
_FONT = "system-ui, sans-serif"
_PACKAGES = ("altair", "vl_convert", "jinja2")
# The engine that draws (V8, in vl-convert) reserves 64 GiB of addresses when it starts, and ends the process where a
# limit does not allow that.
_ADDRESSES = 72 << 30


def require_packages(what: str = "the report") -> None:
    """Raise `ReleaseError` if a package of the extra [report] is not installed.

    Parameters
    ----------
    what
        What needs them.
    """
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError:
            raise ReleaseError(
                f"{what} need{'' if what == 'charts' else 's'} {package}, which is not installed",
                remedy="install the extra: pip install 'margrave[report]'",
            ) from None


def require_report() -> None:
    """Raise an error if no report can be made here: a package is missing, or a limit would end the process."""
    require_packages()
    require_addresses(
        _ADDRESSES, "the report", advice="raise the limit, or leave the report out: report=False (--no-report)"
    )


@cache
def libraries() -> str:
    """Return the Vega libraries as one script, which needs no network."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def budget_chart(orders: Sequence[OrderFindings]) -> str:
    """Return the shares of the budget by order as SVG."""
    rows = [_row(one, value=one.share, text=percent(one.share)) for one in orders if one.share is not None]
    return _bars(rows, "share of the privacy budget")


def negative_chart(orders: Sequence[OrderFindings]) -> str:
    """Return the shares of negative cells before non-negativity, by order, as SVG."""
    rows = [_row(one, value=one.negative, text=percent(one.negative)) for one in orders if one.negative is not None]
    return _bars(rows, "share of unbiased cells below zero")


def margin_chart(orders: Sequence[OrderFindings], noun: str) -> str:
    """Return the margins of error by order, their median and their range, as SVG."""
    import altair as alt

    rows = [
        _row(
            one,
            low=one.margins.smallest,
            value=one.margins.median,
            high=one.margins.largest,
            text=f"± {short(one.margins.median)}",
        )
        for one in orders
        if one.margins is not None
    ]
    scale = _scale(rows, "high")
    axis = _axis(f"95 % margin of a cell, ± {noun}", ",~f")
    base = alt.Chart(_data(rows)).encode(y=_orders(rows))
    spread = base.mark_rule(strokeWidth=6, color=_ACCENT, opacity=0.35, strokeCap="round").encode(
        x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q"
    )
    median = base.mark_point(filled=True, size=90, color=_ACCENT, opacity=1).encode(x=alt.X("value:Q", axis=axis))
    words = base.mark_text(align="left", dx=9, color=_INK).encode(x="high:Q", text="text:N")
    return _svg(spread + median + words)


def distance_chart(orders: Sequence[OrderFindings], noun: str) -> str:
    """Return the mean distance of published from unbiased cells by order, beside the mean noise, as SVG."""
    import altair as alt

    rows = [
        _row(
            one, value=one.distance, noise=one.noise, end=max(one.distance, one.noise or 0.0), text=short(one.distance)
        )
        for one in orders
        if one.distance is not None
    ]
    axis, scale = _axis(f"mean distance of a cell, {noun}", ",~f"), _scale(rows, "end")
    base = alt.Chart(_data(rows)).encode(y=_orders(rows))
    bar = base.mark_bar(color=_ACCENT, size=16).encode(x=alt.X("value:Q", axis=axis, scale=scale))
    tick = base.mark_tick(color=_SECOND, thickness=3, size=24).encode(x=alt.X("noise:Q", axis=axis))
    # In a column of their own: beside the bar, the mark of the noise could cross them.
    words = base.mark_text(align="right", color=_INK).encode(x=alt.value(_WIDTH), text="text:N")
    return _svg(bar + tick + words)


@cache
def heat_map() -> Mapping[str, Any]:
    """Return the specification of the heat map; its data are rows of row and column, value, and their texts.

    Rows and columns are codes, and the parameters rows and columns list their labels: Vega would misread a label
    that has a meaning in its own language.
    """
    import altair as alt

    chart = alt.Chart(alt.NamedData(name="cells")).mark_rect(aria=False, stroke="var(--card)", strokeWidth=1)
    chart = chart.encode(
        x=alt.X("column:O", axis=_category_axis("columns[datum.value]", angle=-40)),
        y=alt.Y("row:O", axis=_category_axis("rows[datum.value]")),
        color=alt.Color(
            "value:Q",
            scale=alt.Scale(type="sqrt", zero=True, clamp=True),
            legend=alt.Legend(title=None, orient="top", gradientLength=180, gradientThickness=10, tickCount=4),
        ),
        tooltip=[
            alt.Tooltip("rowLabel:N", title="row"),
            alt.Tooltip("columnLabel:N", title="column"),
            alt.Tooltip("text:N", title="count"),
            alt.Tooltip("between:N", title="95 % interval"),
        ],
    )
    return _specification(chart.add_params(_listed("rows"), _listed("columns")))


@cache
def error_bars() -> Mapping[str, Any]:
    """Return the specification of the error bars; its data are rows of code, count, estimate, ends and texts.

    The parameter rows lists the labels of the codes, as for the heat map. The ends of an estimate are those before they
    are cut at zero, so that every dot is inside of its bar; a count has ends of its own below. The script leaves out
    layers that there are no numbers for.
    """
    import altair as alt

    axis = _axis("", ",~f", count=5)
    base = alt.Chart(alt.NamedData(name="cells")).encode(
        y=alt.Y("row:O", axis=_category_axis("rows[datum.value]")),
        tooltip=[
            alt.Tooltip("rowLabel:N", title="row"),
            alt.Tooltip("text:N", title="count"),
            alt.Tooltip("between:N", title="95 % interval"),
        ],
    )
    bar = base.mark_rule(aria=False, strokeWidth=3, color=_ACCENT, strokeCap="round").encode(
        x=alt.X("from:Q", axis=axis, scale=alt.Scale(zero=True, nice=True)), x2="to:Q"
    )
    estimate = base.mark_point(aria=False, filled=True, size=60, color=_ACCENT, opacity=1)
    # Below the bar, so that the two products are told apart where they are equal.
    count = base.mark_point(aria=False, shape="diamond", size=60, filled=True, color=_SECOND, opacity=1, yOffset=8)
    own = base.mark_rule(aria=False, strokeWidth=2, color=_SECOND, strokeCap="round", yOffset=8).encode(
        x=alt.X("countLow:Q", axis=axis), x2="countHigh:Q"
    )
    layers = bar + estimate.encode(x=alt.X("estimate:Q", axis=axis)) + own
    layers += count.encode(x=alt.X("count:Q", axis=axis))
    return _specification(layers.add_params(_listed("rows")))


def _bars(rows: Sequence[Row], title: str) -> str:
    """Return one bar for each order, a share with its text beside it, as SVG."""
    import altair as alt

    base = alt.Chart(_data(rows)).encode(y=_orders(rows))
    bar = base.mark_bar(color=_ACCENT, size=16).encode(
        x=alt.X("value:Q", axis=_axis(title, "~%"), scale=_scale(rows, "value"))
    )
    return _svg(bar + base.mark_text(align="left", dx=5, color=_INK).encode(x="value:Q", text="text:N"))


def _row(one: OrderFindings, **values: object) -> Row:
    return {"order": order_name(one.order), **values}


def _data(rows: Sequence[Row]) -> alt.InlineData:
    import altair as alt

    return alt.InlineData(values=[dict(row) for row in rows])


def _orders(rows: Sequence[Row]) -> alt.Y:
    """Return the vertical axis: one step for each order, smallest tables on top."""
    import altair as alt

    return alt.Y("order:O", sort=[str(row["order"]) for row in rows], axis=_category_axis(extent=84))


def _scale(rows: Sequence[Row], name: str) -> alt.Scale:
    """Return the horizontal scale: from zero to somewhat more than the largest of a value."""
    import altair as alt

    values = [value for row in rows if isinstance(value := row[name], float)]
    return alt.Scale(domainMin=0, domainMax=_HEADROOM * max(values, default=0.0) or 1.0, nice=False)


def _listed(name: str) -> alt.Parameter:
    """Return a parameter for a list of labels, empty for now."""
    import altair as alt

    return alt.param(name=name, value=[])


def _category_axis(label: str = "datum.label", *, angle: float = 0, extent: float = 0) -> alt.Axis:
    """Return an axis of categories: their labels and no lines."""
    import altair as alt

    return alt.Axis(
        title=None,
        domain=False,
        ticks=False,
        labelPadding=6,
        labelLimit=130,
        labelAngle=angle,
        minExtent=extent,
        labelExpr=label,
        labelOverlap="greedy",
        labelSeparation=3,
    )


def _axis(title: str, pattern: str, count: int = 3) -> alt.Axis:
    import altair as alt

    return alt.Axis(title=title or None, format=pattern, tickCount=count, domain=False, ticks=False, labelPadding=4)


def _specification(chart: alt.Chart | alt.LayerChart) -> dict[str, Any]:
    """Return a chart as Vega-Lite, in the looks of the page."""
    looks = chart.configure(background="transparent", font=_FONT, padding=4)
    looks = looks.configure_view(stroke=None).configure_axis(
        labelColor=_INK, titleColor=_INK, gridColor=_FAINT, labelFontSize=12, titleFontSize=12, titleFontWeight="normal"
    )
    looks = looks.configure_legend(labelColor=_INK, titleColor=_INK, labelFontSize=12).configure_text(fontSize=12)
    specification: dict[str, Any] = looks.to_dict()
    return specification


def _svg(chart: alt.LayerChart) -> str:
    """Return a chart drawn as SVG."""
    import vl_convert

    sized = chart.properties(width=_WIDTH, height={"step": _STEP})
    return vl_convert.vegalite_to_svg(_specification(sized))

"""Charts of single tables for notebooks, by Altair."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from margrave.errors import ReleaseError
from margrave.escaping import visible

if TYPE_CHECKING:
    import altair as alt

    from margrave.release.table import Table

# What a chart of one table can show.
_MOST_AXES, _MOST_BARS = 3, 2_000


def table_chart(table: Table) -> alt.Chart | alt.LayerChart | alt.FacetChart:
    """Return a chart of a table of one to three attributes for a notebook: bars, and intervals where there are any.

    Parameters
    ----------
    table
        The table.
    """
    try:
        import altair as alt
    except ImportError:
        raise ReleaseError(
            "charts need altair, which is not installed", remedy="install the extra: pip install 'margrave[report]'"
        ) from None
    if not 1 <= len(table.attributes) <= _MOST_AXES or table.values.size > _MOST_BARS:
        raise ReleaseError(
            f"a table of {len(table.attributes)} attributes and {table.values.size:,} cells is given to plot",
            remedy=f"choose 1 to {_MOST_AXES} attributes with at most {_MOST_BARS:,} cells",
        )
    low, high = getattr(table, "count_low", None), getattr(table, "count_high", None)
    whose = "of the count"
    if low is None or high is None:
        low, high, whose = table.ci_low, table.ci_high, "of the unbiased estimate"
    cells = list(product(*table.categories))
    rows = [
        {**{f"axis{place}": visible(text) for place, text in enumerate(cell)}, "count": float(count)}
        for cell, count in zip(cells, table.values.ravel().tolist(), strict=True)
    ]
    if low is not None and high is not None:
        for row, lower, upper in zip(rows, low.ravel().tolist(), high.ravel().tolist(), strict=True):
            row.update(low=lower, high=upper)
    lines = f"lines: {table.level:.0%} interval {whose}" if low is not None else visible(table.note)
    titles = [visible(name) for name in table.attributes]
    orders = [[visible(text) for text in categories] for categories in table.categories]
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=alt.X("axis0:N", sort=orders[0], title=titles[0]))
    if len(titles) > 1:
        base = base.encode(xOffset=alt.XOffset("axis1:N", sort=orders[1]))
    bars = base.mark_bar().encode(y=alt.Y("count:Q", title="count"))
    if len(titles) > 1:
        bars = bars.encode(color=alt.Color("axis1:N", sort=orders[1], title=titles[1]))
    chart = bars if low is None else bars + base.mark_rule(color="black").encode(y="low:Q", y2="high:Q")
    heading = alt.TitleParams(" × ".join(titles), subtitle=f"bars: count; {lines}")
    if len(titles) == _MOST_AXES:
        chart = chart.facet(alt.Facet("axis2:N", sort=orders[2], title=titles[2]))
    titled: alt.Chart | alt.LayerChart | alt.FacetChart = chart.properties(title=heading)
    return titled

"""What notebooks show: small, escaped, and nothing that was read from private data."""

from html.parser import HTMLParser

import numpy as np
import pytest

import margrave as mg
from margrave.data.draft import draft_domain
from margrave.errors import ReleaseError
from tests import releases

HOSTILE = mg.Domain(
    [mg.Attribute("<script>alert(1)</script>", labels=("<b>x</b>", '"&\u202e')), mg.Attribute("sex", labels=("F", "M"))]
)
WORKLOAD = mg.Workload.up_to(HOSTILE, 2)
PLAN = mg.plan(WORKLOAD, mg.Budget.approx(epsilon=1, delta=1e-9), contributions=1)


class Tags(HTMLParser):
    """The tags of a page, opened and closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(value):
    """The texts of what a notebook shows of a value; only tags of a table may be there, and all are closed."""
    page = value._repr_html_()
    assert len(page) < 20_000
    tags = Tags()
    tags.feed(page)
    assert not tags.open
    assert tags.seen <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert "\u202e" not in page
    return tags.texts


@pytest.fixture(scope="module")
def release():
    table = mg.CodedTable(HOSTILE, {one.name: np.arange(300) % one.size for one in HOSTILE})
    return mg.reconstruct(mg.measure(PLAN, table), WORKLOAD)


def test_every_value_of_the_way_is_shown(release, tmp_path):
    ledger = mg.Ledger(tmp_path / "people.ledger", cap=mg.Budget.approx(epsilon=2, delta=1e-9))
    assert "not begun yet" in read(ledger)[0]
    assert "<script>alert(1)</script>" in read(HOSTILE)
    assert '<b>x</b>, "&\\u202e' in read(HOSTILE)
    assert any("tables of 0 to 2 attributes" in text for text in read(WORKLOAD))
    assert any("objective nonnegative" in text for text in read(PLAN))
    assert "residual planner" in read(release.measurements)
    assert "<script>alert(1)</script> × sex" in read(release)
    assert "<b>x</b>" in read(release.table(*HOSTILE.attributes))
    share = read(release.share({HOSTILE.attributes[0]: ["<b>x</b>"]}, by=["sex"]))
    assert any(text.startswith("Share(2 groups by sex") for text in share)
    assert share[share.index("M") + 1].startswith("0.")
    assert "solved to the tolerance asked for" in read(release.solution)
    assert "numbers from elsewhere, without a record" in read(releases.foreign())


def test_a_ledger_shows_its_charges(tmp_path):
    ledger = mg.Ledger(tmp_path / "people.ledger", cap=mg.Budget.approx(epsilon=2, delta=1e-9))
    table = mg.CodedTable(HOSTILE, {one.name: np.zeros(5, dtype=int) for one in HOSTILE})
    mg.measure(PLAN, table, ledger=ledger)
    assert any(text.startswith("residual planner") for text in read(ledger))


def test_noise_that_is_not_private_is_said():
    from margrave.privacy.entropy import InsecureSeededSource
    from margrave.privacy.noise import gaussian_sampler

    noisy = releases.measured(sampler=gaussian_sampler(source=InsecureSeededSource(1)))
    assert "NOT PRIVATE" in read(noisy)
    assert any("NOT PRIVATE" in text for text in read(releases.made(noisy)))


def test_the_values_of_a_draft_are_not_shown(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("town\nBern\nChur\nBern\n", encoding="utf-8")
    texts = read(draft_domain(path).domain)
    assert texts[0] == "PRIVATE draft, not reviewed: 1 attributes"
    assert not any("Bern" in text for text in texts)


def test_large_values_are_shown_in_part():
    domain = mg.Domain.fromdict({f"a{k}": 40 for k in range(70)})
    assert "… and 20 more" in read(domain)
    noisy = mg.Measurements.from_marginals(domain, [(("a0", "a1"), np.zeros((40, 40)), 1.0)])
    made = mg.reconstruct(noisy, mg.Workload(domain, [("a0", "a1")]))
    assert any("… and 1,570 more rows" in text for text in read(made.table("a0", "a1")))


def test_a_table_is_plotted_with_its_intervals(release):
    pytest.importorskip("altair")
    one = release.plot("sex").to_dict()
    assert [layer["mark"]["type"] for layer in one["layer"]] == ["bar", "rule"]
    assert one["title"]["subtitle"].startswith("bars: count; lines: 95% interval of the")
    (rows,) = one["datasets"].values()
    np.testing.assert_allclose([row["count"] for row in rows], release.table("sex").values)
    two = release.plot("sex", "<script>alert(1)</script>").to_dict()
    cells = {(row["axis0"], row["axis1"]): row["count"] for rows in two["datasets"].values() for row in rows}
    table = release.table("sex", "<script>alert(1)</script>")
    assert cells["M", "<b>x</b>"] == pytest.approx(table.values[1, 0])
    assert "\u202e" not in str(two)


def test_a_table_without_intervals_says_so_and_three_attributes_stand_side_by_side():
    pytest.importorskip("altair")
    chart = releases.made(releases.adaptive()).plot("age", "sex").to_dict()
    assert "layer" not in chart
    domain = mg.Domain.fromdict({"a": 2, "b": 3, "c": 2})
    noisy = mg.Measurements.from_marginals(domain, [(("a", "b", "c"), np.ones((2, 3, 2)), 1.0)])
    made = mg.reconstruct(noisy, mg.Workload(domain, [("a", "b", "c")]))
    assert made.plot("a", "b", "c").to_dict()["facet"]["title"] == "c"
    with pytest.raises(ReleaseError, match="a table of 0 attributes and 1 cells is given to plot; choose 1 to 3"):
        made.plot()

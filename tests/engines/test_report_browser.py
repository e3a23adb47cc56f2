"""The report in a real browser: no request, no complaint, pickers by mouse and by keyboard; pictures of it."""

import csv
import json
import time
from dataclasses import replace

import numpy as np
import pytest
from browser import Chromium

from margrave.domain import Attribute, Domain
from margrave.escaping import JOINERS, visible
from margrave.measurements import Measurements, Provenance, Step
from margrave.release.publication import reconstruct
from margrave.release.report import write_report
from margrave.workload import Workload

pytestmark = pytest.mark.engines

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
DOMAIN = Domain(
    [
        Attribute("age", cuts=(17, 34, 49, 64, 79)),
        Attribute("district", labels=("old town", "harbour", "hill", "north", "a very long name of a district indeed")),
        Attribute("sex", labels=("female", "male")),
        Attribute(HOSTILE, labels=(HOSTILE, "__proto__", "", "constructor", "\u202eright to left")),
    ],
    description="a made-up place",
)
WORKLOAD = Workload.all_kway(DOMAIN, 3)
TAB, DOWN, SPACE = ("Tab", 9), ("ArrowDown", 40), (" ", 32, " ")
FACES = [(1280, 900, "light"), (1280, 900, "dark"), (500, 800, "light"), (360, 740, "light"), (360, 740, "dark")]


def record(private=True):
    return Provenance(
        mechanism="made up",
        steps=(Step("all", 1),),
        rho=1,
        epsilon=10.5,
        delta=1e-9,
        contributions=1,
        sampler="none",
        private=private,
        version="0",
    )


def release(*, private=True, method="lnn", errors=False):
    generator = np.random.default_rng(5)
    tables = [
        (
            n,
            generator.gamma(0.5, 90, [DOMAIN[k].size for k in n]) + generator.normal(0, 9, [DOMAIN[k].size for k in n]),
            81.0,
        )
        for n in WORKLOAD
    ]
    noisy = Measurements.from_marginals(DOMAIN, tables).with_provenance(record(private))
    return reconstruct(noisy, WORKLOAD, method=method, errors=errors)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report(release(), file)
    return file.as_uri()


@pytest.fixture
def page(browser, address):
    opened = browser.page(address, width=1280, height=900)
    opened.wait_until("document.querySelectorAll('#heat svg, #bars svg').length === 2")
    yield opened
    opened.close()


def caption(page):
    return page.evaluate("document.querySelector('#table caption').textContent")


def complaints(page):
    said = [entry["entry"]["text"] for entry in page.events("Log.entryAdded")]
    said += [str(call["args"]) for call in page.events("Runtime.consoleAPICalled")]
    return said + [str(thrown) for thrown in page.events("Runtime.exceptionThrown")]


def test_loads_without_a_request_and_without_a_complaint(page, address):
    asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert asked == [address]
    assert complaints(page) == []


def test_hostile_labels_stay_text(page):
    page.evaluate("(() => { for (const one of document.querySelectorAll('details')) one.open = true; })()")
    page.evaluate(
        "(() => { const s = document.getElementById('rows'); s.value = '3'; s.dispatchEvent(new Event('change')); })()"
    )
    assert page.evaluate("document.querySelector('#table tbody th').textContent") == HOSTILE
    assert page.evaluate("[...document.querySelectorAll('#table tbody th')].map(e => e.textContent)")[:4] == [
        HOSTILE,
        "__proto__",
        "(empty)",
        "constructor",
    ]
    assert page.evaluate("typeof window.broken") == "undefined"
    assert page.evaluate("document.querySelectorAll('img, iframe, object, link').length") == 0
    assert complaints(page) == []


# Each would leave a mark on the window, ask for a file, or turn the text around it, if it were more than a text.
ATTACKS = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    '"><svg onload=window.broken=3><style>*{display:none}</style>',
    "javascript:window.broken=4",
    "${window.broken = 5}",
    "{{constructor.constructor('window.broken = 6')()}}",
    "datum.value || (window.broken = 7)",
    "rows[0]",
    "__proto__",
    "constructor",
    "\u202egnidaer\u2069\u202e fo noitcerid eht",
    "\x1b[31mred\x07",
    "line\nbreak\u2028\u2029",
    "می\u200cخواهم",
    "",
    "&lt;b&gt;",
    "http://evil.example/x.png",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A report in which every text from outside is an attack: names, labels, descriptions, title and record."""
    names = ["".join(ATTACKS), "__proto__", "\u202e" + ATTACKS[1]]
    domain = Domain([Attribute(name, labels=ATTACKS, description=ATTACKS[0] + "\u202e") for name in names], ATTACKS[2])
    workload = Workload.all_kway(domain, 2)
    generator = np.random.default_rng(6)
    tables = [(n, generator.gamma(0.5, 90, [domain[k].size for k in n]), 81.0) for n in workload]
    told = replace(record(), mechanism=ATTACKS[0], sampler=ATTACKS[10], neighbours=ATTACKS[1])
    noisy = Measurements.from_marginals(domain, tables).with_provenance(told)
    file = tmp_path_factory.mktemp("hostile") / "report.html"
    write_report(reconstruct(noisy, workload, method="mle"), file, title="".join(ATTACKS))
    return file.as_uri()


@pytest.mark.parametrize("width", [360, 1280])
def test_hostile_texts_of_every_kind_are_shown_and_do_nothing(browser, hostile, tmp_path, width):
    page = browser.page(hostile, width=width, height=900)
    page.wait_until("document.querySelectorAll('#heat svg, #bars svg').length === 2")
    page.evaluate("(() => { for (const one of document.querySelectorAll('details')) one.open = true; })()")
    shown = [visible(text, keep=JOINERS) or "(empty)" for text in ATTACKS]
    title = visible("".join(ATTACKS), keep=JOINERS)
    assert page.evaluate("document.querySelector('h1').textContent") == title
    assert page.evaluate("document.title") == title
    for row in range(3):
        page.evaluate(
            f"(() => {{ const s = document.getElementById('rows'); s.value = '{row}';"
            " s.dispatchEvent(new Event('change')); })()"
        )
        assert page.evaluate("[...document.querySelectorAll('#table tbody th')].map(e => e.textContent)") == [
            *shown,
            "all",
        ]
        assert page.evaluate("[...document.getElementById('bars-row').options].map(e => e.text)")[1:] == [
            " ".join(text.split()) for text in shown
        ]
        # The charts follow; a tooltip shows the label of the cell under the mouse.
        page.wait_until(
            "[...document.querySelectorAll('#heat .role-axis-label text')].some(e => e.textContent === '(empty)')"
        )
    assert tooltip(page)[0] in shown
    assert page.evaluate("document.querySelectorAll('img, iframe, object, link, base, foreignObject').length") == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 3
    assert page.evaluate("[window.broken, {}.broken, Object.keys(Object.prototype).length]") == [None, None, 0]
    text = page.evaluate("document.documentElement.textContent")
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x1b\x07\u2028") & set(text)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # However long a name is, the values beside it are in sight on a wide screen.
    listing = "document.querySelector('details .scroll')"
    assert width < 1280 or page.evaluate(f"{listing}.scrollWidth <= {listing}.clientWidth")
    page.screenshot(tmp_path / f"hostile-{width}.png")
    assert [event["request"]["url"] for event in page.events("Network.requestWillBeSent")] == [hostile]
    assert complaints(page) == []
    page.close()


def tooltip(page):
    """The texts of the tooltip of a cell of the heat map: row, column, count and interval."""
    corner = page.evaluate(
        "(() => { const e = document.querySelector('#heat .mark-rect path');"
        " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    page.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": corner[0], "y": corner[1]})
    page.wait_until("document.querySelectorAll('#vg-tooltip-element.visible td.value').length === 4")
    return page.evaluate("[...document.querySelectorAll('#vg-tooltip-element td.value')].map(e => e.textContent)")


def test_every_pair_and_every_third_attribute_can_be_picked(page):
    page.evaluate(
        "(() => { window.pickAs = (id, value) => { const s = document.getElementById(id); s.value = value;"
        " s.dispatchEvent(new Event('change')); return s.value === value; }; })()"
    )
    for row in range(4):
        assert page.evaluate(f"pickAs('rows', '{row}')")
        for column in range(4):
            if column != row:
                assert page.evaluate(f"pickAs('columns', '{column}')")
                thirds = page.evaluate("[...document.getElementById('only').options].map(o => Number(o.value))")
                assert thirds == [-1, *(other for other in range(4) if other not in (row, column))]
        assert page.evaluate("pickAs('columns', '-1')")
        assert page.evaluate("document.getElementById('heat-figure').hidden")
    assert complaints(page) == []


def test_numbers_are_those_of_the_release(page):
    wanted = release().table("age", "district", "sex")
    page.evaluate(
        "(() => { const pick = (id, value) => { const s = document.getElementById(id); s.value = value;"
        " s.dispatchEvent(new Event('change')); }; pick('rows', '1'); pick('columns', '0'); pick('only', '2');"
        " pick('value', '1'); })()"
    )
    shown = page.evaluate(
        "[...document.querySelectorAll('#table tbody tr')].map(row => [...row.querySelectorAll('td')].map("
        "cell => [cell.firstChild.data, cell.querySelector('span').textContent]))"
    )
    for district in range(5):
        for age in range(6):
            count = f"{round(wanted.values[age, district, 1]):,}"
            low, high = wanted.ci_low[age, district, 1], wanted.ci_high[age, district, 1]
            assert shown[district][age] == [count, f"{low:,.0f} to {high:,.0f}"]


def test_pickers_work_by_mouse(page):
    before = caption(page)
    assert before.startswith("age by district")
    page.click("#turn")
    assert caption(page).startswith("district by age")
    page.click("input[value=estimate]")
    assert "unbiased estimates" in caption(page)
    assert page.evaluate("document.getElementById('announcement').textContent").startswith("Table: district by age")


def test_pickers_work_by_keyboard_alone(page):
    page.press(*TAB)
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        if page.evaluate("document.activeElement.id") == "columns":
            break
        page.press(*TAB)
    assert page.evaluate("document.activeElement.id") == "columns"
    page.press(*DOWN)
    page.wait_until("document.querySelector('#table caption').textContent.startsWith('age by sex')")
    assert page.evaluate("document.activeElement.id") == "columns"
    page.press(*TAB)
    page.press(*SPACE)
    page.wait_until("document.querySelector('#table caption').textContent.startsWith('sex by age')")


def test_every_control_has_a_name(page):
    controls = "[...document.querySelectorAll('select, input, button')]"
    assert page.evaluate(f"{controls}.every(one => one.labels?.length || one.textContent.trim())")
    assert page.evaluate("[...document.querySelectorAll('[role=img], [role=region]')].every(e => e.ariaLabel)")


@pytest.mark.parametrize(("width", "height", "scheme"), FACES)
def test_fits_the_screen_and_is_kept_as_a_picture(browser, address, tmp_path, width, height, scheme):
    page = browser.page(address, width=width, height=height, scheme=scheme)
    page.wait_until("document.querySelectorAll('#heat svg, #bars svg').length === 2")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(tmp_path / f"report-{width}-{scheme}.png")
    assert complaints(page) == []
    page.close()


CENSUS = ("workclass", "education", "education-num", "marital-status", "occupation", "relationship", "capital-gain")
BROKEN = (  # words of names that do not stand on one line
    "[...document.querySelectorAll('.map tbody th bdi, .split details tbody th bdi')].flatMap(one => {"
    " const text = one.firstChild, range = document.createRange();"
    " return [...text.data.matchAll(/[a-z]+/g)].filter(word => { range.setStart(text, word.index);"
    " range.setEnd(text, word.index + word[0].length); return range.getClientRects().length > 1; })"
    ".map(word => word[0]); })"
)


@pytest.mark.parametrize("width", [360, 820, 1400])
def test_names_of_attributes_are_not_broken_within_a_word(browser, tmp_path, width):
    domain = Domain.fromdict(dict.fromkeys([*CENSUS, "age", "sex", "capital-loss", "hours-per-week", "income"], 2))
    workload = Workload.all_kway(domain, 2)
    tables = [(n, np.random.default_rng(9).gamma(0.5, 9e4, (2, 2)), 81.0) for n in workload]
    noisy = Measurements.from_marginals(domain, tables).with_provenance(record())
    file = tmp_path / "names.html"
    write_report(reconstruct(noisy, workload, errors=True), file)
    page = browser.page(file.as_uri(), width=width, height=800)
    page.wait_until("document.querySelectorAll('#bars svg').length === 1")
    assert page.evaluate("document.querySelectorAll('.map tbody th bdi').length") == len(domain)
    assert page.evaluate("document.querySelectorAll('.split details tbody th bdi').length") >= len(domain)
    assert page.evaluate(BROKEN) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


ROWS_OF = (
    "(selector => {{ const tops = [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect().top);"
    " return [...new Set(tops)].map(top => tops.filter(other => other === top).length); }})({})"
)


@pytest.mark.parametrize(("width", "tiles"), [(1280, [2, 2]), (700, [2, 2]), (500, [2, 2]), (375, [2, 2])])
def test_tiles_and_links_stand_in_even_rows(browser, address, width, tiles):
    page = browser.page(address, width=width, height=800)
    assert page.evaluate(ROWS_OF.format("'.facts div'")) == tiles
    links = page.evaluate(ROWS_OF.format("'nav li'"))
    assert sum(links) == 7
    assert links[-1] > 1 or links[0] == 2, "the last link stands alone only in the two columns of a phone"
    page.close()


def test_no_mark_crosses_a_number_of_a_chart(page):
    crossed = page.evaluate(
        "[...document.querySelectorAll('figure > svg')].map(svg => {"
        " const texts = [...svg.querySelectorAll('.mark-text.role-mark text')].map(e => e.getBoundingClientRect());"
        " const marks = [...svg.querySelectorAll('.mark-rect path, .mark-symbol path')]"
        ".map(e => e.getBoundingClientRect());"
        " const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;"
        " return [texts.length, texts.filter(a => !marks.every(b => apart(a, b))).length]; })"
    )
    assert crossed == [[4, 0]] * 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_shadow_at_the_edge_says_that_there_are_more_columns(browser, address, scheme):
    page = browser.page(address, width=375, height=800, scheme=scheme)
    page.wait_until("document.querySelectorAll('#heat svg, #bars svg').length === 2")
    hidden = "document.getElementById('table').scrollWidth > document.getElementById('table').clientWidth"
    assert page.evaluate(hidden)
    assert page.evaluate("getComputedStyle(document.getElementById('table')).backgroundImage").count("gradient") == 4
    # What stands on the shadow must let it through.
    assert page.evaluate("getComputedStyle(document.querySelector('#table td')).backgroundColor") == "rgba(0, 0, 0, 0)"
    page.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_an_insecure_release_cannot_be_overlooked_however_far_one_scrolls(browser, tmp_path, width):
    file = tmp_path / "seeded.html"
    write_report(release(private=False, method="mle"), file)
    page = browser.page(file.as_uri(), width=width, height=700)
    page.wait_until("document.querySelectorAll('#heat svg').length === 1")
    page.screenshot(tmp_path / f"seeded-{width}.png")
    seen = (
        "(() => { const strip = document.querySelector('.strip').getBoundingClientRect();"
        " return strip.top >= 0 && strip.bottom <= innerHeight; })()"
    )
    assert page.evaluate(seen)
    page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    assert page.evaluate(seen)
    assert page.evaluate("document.title").startswith("Not private")
    page.close()


def test_text_and_first_table_need_no_script(browser, address):
    page = browser.page(address, width=1280, height=900, scripts=False)
    document = json.dumps(page.send("DOM.getDocument", {"depth": -1}))
    page.send("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Scripts are switched off" in document
    assert page.evaluate("document.getElementById('pickers').hidden")
    shown = page.evaluate("document.querySelector('#first caption').textContent")
    assert shown == "age by district: non-negative counts, with 95 % intervals"
    assert page.evaluate("document.querySelectorAll('#first tbody tr').length") == 7
    assert page.evaluate("document.querySelectorAll('#table table').length") == 0
    assert page.evaluate("document.querySelectorAll('figure > svg').length") == 4
    page.close()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A report on a release whose counts have errors of their own, with everything that can stand at its head."""
    file = tmp_path_factory.mktemp("learned") / "report.html"
    told = {"publisher": HOSTILE, "licence": "CC BY 4.0", "contact": "javascript:window.broken=1", "date": "2026-11-18"}
    write_report(release(errors=True), file, title="A place", **told)
    return file.as_uri()


@pytest.fixture
def marked(browser, learned):
    opened = browser.page(learned, width=1600, height=1000)
    opened.wait_until("document.querySelectorAll('#heat svg, #bars svg').length === 2")
    yield opened
    opened.close()


CELLS = (
    "[...document.querySelectorAll('#table tbody tr')].map(row => [...row.querySelectorAll('td')].map(cell => "
    "[cell.firstChild.data, cell.querySelector('sup')?.textContent ?? '',"
    " cell.querySelector('span')?.textContent ?? '', cell.title]))"
)
PICK = (
    "(() => {{ const pick = (id, value) => {{ const s = document.getElementById(id); s.value = value;"
    " s.dispatchEvent(new Event('change')); }}; pick('rows', '{}'); pick('columns', '{}'); }})()"
)


def test_marks_and_intervals_are_those_of_the_counts_and_not_of_the_estimates(marked):
    table = release(errors=True).table("age", "district")
    marked.evaluate(PICK.format(0, 1))
    shown = marked.evaluate(CELLS)
    marks = {"reliable": "", "use with care": "*", "too uncertain to quote": "**"}
    words = table.reliability()
    assert len(set(words.ravel())) > 1
    for age in range(6):
        for district in range(5):
            low, high = table.count_low[age, district], table.count_high[age, district]
            word = words[age, district]
            assert shown[age][district] == [
                f"{round(table.values[age, district]):,}",
                marks[word],
                f"{low:,.0f} to {high:,.0f}",
                "" if word == "reliable" else word,
            ]
    counted = [round(100 * (words == word).mean()) for word in marks]
    assert marked.evaluate("document.getElementById('note').textContent").startswith(
        f"Of the 30 cells {counted[0]} % are reliable, {counted[1]} % are to be used with care (*), {counted[2]} % are"
    )
    marked.click("input[value=estimate]")
    estimates = marked.evaluate(CELLS)
    low, high = table.ci_low[0, 0], table.ci_high[0, 0]
    assert estimates[0][0][1:] == ["", f"{low:,.0f} to {high:,.0f}", ""]
    assert complaints(marked) == []


@pytest.mark.parametrize(("form", "axis"), [("row", 1), ("column", 0), ("all", None)])
def test_percentages_of_rows_of_columns_and_of_all(marked, form, axis):
    found_in = release(errors=True)
    table = found_in.table("age", "district")
    marked.evaluate(PICK.format(0, 1))
    marked.click(f"input[value={form}]")
    shown = marked.evaluate(CELLS)
    # The page divides whole numbers, each within half a person.
    counts = np.round(table.values)
    wanted = 100 * counts / table.values.sum(axis=axis, keepdims=axis is not None)
    found = np.array([[float(cell[0].removesuffix(" %")) for cell in row[:5]] for row in shown[:6]])
    slack = 0.05 + 100 / table.values.sum(axis=axis, keepdims=axis is not None)
    assert (np.abs(found - wanted) <= slack).all()
    # The least of the part in the most of the whole, to the most in the least.
    whole = found_in.table(*{"row": ["age"], "column": ["district"], "all": []}[form])
    low, high = (
        np.expand_dims(ends, axis) if axis is not None else ends for ends in (whole.count_low, whole.count_high)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(low > 0, table.count_high / low, 1.0)
    wanted = 100 * np.clip(np.stack([table.count_low / high, most], axis=-1), 0, 1)
    ends = np.array([[[float(end) for end in cell[2].split(" to ")] for cell in row[:5]] for row in shown[:6]])
    np.testing.assert_allclose(ends, wanted, atol=0.05 + 1e-9)
    assert shown[6][5][2] == "", "all of all is 100 %, without an interval"
    assert "% of" in caption(marked)
    assert "with 95 % intervals" in caption(marked)
    assert "contains the true one whenever" in marked.evaluate("document.getElementById('note').textContent")


def test_a_table_is_downloaded_without_a_network(browser, learned, marked, tmp_path):
    browser.send("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    marked.evaluate(PICK.format(3, 1))
    marked.click("#download")
    for _ in range(100):
        files = [path for path in tmp_path.iterdir() if path.suffix == ".csv"]
        if files:
            break
        time.sleep(0.1)
    (file,) = files
    with file.open(encoding="utf-8-sig", newline="") as stream:
        head, *rows = list(csv.reader(stream))
    assert head == [
        HOSTILE,
        "district",
        "count",
        "count_low",
        "count_high",
        "reliability",
        "estimate",
        "ci_low",
        "ci_high",
    ]
    table = release(errors=True).table(HOSTILE, "district")
    assert len(rows) == table.values.size
    assert [float(row[2]) for row in rows] == np.round(table.values).ravel().tolist()
    assert [row[5] for row in rows] == table.reliability().ravel().tolist()
    assert [event["request"]["url"] for event in marked.events("Network.requestWillBeSent")][:1] == [learned]
    assert complaints(marked) == []


def test_the_map_of_errors_opens_a_table(marked):
    assert marked.evaluate("document.querySelectorAll('.map tbody td').length") == 16
    marked.evaluate("document.querySelector('.map a[href=\"#table=1,2\"]').click()")
    marked.wait_until("document.querySelector('#table caption').textContent.startsWith('district by sex')")


def test_the_head_shows_who_publishes_and_nothing_of_it_acts(marked):
    told = marked.evaluate("[...document.querySelectorAll('.imprint dd')].map(e => e.textContent)")
    assert told == [HOSTILE, "CC BY 4.0", "javascript:window.broken=1", "2026-11-18"]
    assert marked.evaluate("typeof window.broken") == "undefined"
    assert marked.evaluate("document.querySelectorAll('.imprint a').length") == 0


def test_the_finding_and_its_table_are_on_the_first_screen(marked):
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert marked.evaluate(bottom.format("#first")) <= 1000
    assert marked.evaluate(bottom.format("#in-words + p")) <= 1000


# A4 without its margins, at 96 dots an inch.
PAPER = round((210 - 24) / 25.4 * 96)


def test_nothing_is_cut_off_on_paper(browser, tmp_path):
    wide = Domain(
        [Attribute(f"a rather long name {k}", labels=[f"value {k} {n}" for n in range(17)]) for k in range(9)]
    )
    workload = Workload.all_kway(wide, 2)
    generator = np.random.default_rng(9)
    tables = [(n, generator.gamma(0.5, 9e4, (17, 17)), 81.0) for n in workload]
    noisy = Measurements.from_marginals(wide, tables).with_provenance(record())
    file = tmp_path / "wide.html"
    write_report(reconstruct(noisy, workload, errors=True), file)
    page = browser.page(file.as_uri(), width=PAPER, height=1000)
    page.wait_until("document.querySelectorAll('#bars svg').length === 1")
    page.send("Emulation.setEmulatedMedia", {"media": "print"})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('#table table').length") == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= PAPER
    right = "Math.max(...[...document.querySelectorAll('table, svg, p')].map(e => e.getBoundingClientRect().right))"
    assert page.evaluate(right) <= PAPER + 1
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('#table table').length") == 1
    page.close()

"""The documentation site in a real browser: no warning when it is built, no request, nothing wider than the screen."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser import Chromium, need_chromium

pytestmark = pytest.mark.engines

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["index", "start", "cli", "guarantee", "howto/publish", "understand/coming-from", "reference/measuring"]
FACES = [(1280, "light"), (1280, "dark"), (768, "light"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="the site needs Sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", folder / "trees"]
    done = subprocess.run([*map(str, command), str(DOCS), str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    need_chromium()
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_screen_and_asks_for_nothing(site, browser, name):
    for width, scheme in FACES:
        page = browser.page((site / f"{name}.html").as_uri(), width=width, height=900, scheme=scheme)
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, (name, width)
        asked = [event["request"]["url"] for event in page.events("Network.requestWillBeSent")]
        assert all(url.startswith(("file:", "data:")) for url in asked), asked
        assert not page.events("Network.loadingFailed")
        # The ground follows the scheme: light letters on dark, or the other way round.
        ground = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number)"
        )
        assert (sum(ground) < 300) == (scheme == "dark"), ground
        page.close()

"""The report and the site in a real browser: phones, tablets and screens, light and dark, and what it fetches.

Skipped where no Chromium is found.  The site is the one in the folder TENSORPROG_SITE, or is built here without running
its notebooks, where sphinx is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import tensorprog as tp
from tensorprog.blocks.mathml import mathml
from tensorprog.jobs import run as job
from tensorprog.results.study import settings_of
from tensorprog.show.page import report_page
from tests.browser import Browser, Tab, command

ROOT = Path(__file__).resolve().parent.parent
READER = (ROOT / "tests" / "reader.js").read_text(encoding="utf-8")
VIEWS = [(400, False), (800, True), (800, False), (1400, True)]
# a program of each kind of report: formulas, scores, a recurrence in numbers only, no limit, findings
PROGRAMS = {"attention": {"s": 2, "H": 1}, "rnn": {}, "attention_tied": {"s": 2}}

pytestmark = pytest.mark.skipif(command() is None, reason="no Chromium on the path, or named by TENSORPROG_BROWSER")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    browser = Browser(command() or "", tmp_path_factory.mktemp("browser"))
    try:
        yield browser.open()
    finally:
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("TENSORPROG_SITE")
    if given:
        return Path(given)
    if not all(map(find_spec, ("sphinx", "furo", "myst_nb", "sphinx_copybutton"))):
        pytest.skip("needs the extra docs, or a site in the folder TENSORPROG_SITE")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-D", "nb_execution_mode=off", "docs", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return folder


def faults(tab: Tab, page: Path, width: int, dark: bool) -> list[str]:
    """What is wrong with a page."""
    tab.size(width, dark)
    tab.show(page)
    beyond = [address for address in tab.fetched() if not address.startswith(("file:", "data:"))]
    return [*tab.run(READER), *tab.complaints(), *(f"fetched {address}" for address in beyond)]


BAD = """<!DOCTYPE html><html><head></head><body style="color:#999"><h2>x</h2><h4 id="one">y</h4><main>
<div id="one" style="width:3000px">wide</div><div style="overflow:hidden;width:9em"><p style="width:99em">cut</p></div>
<img src="http://nowhere.invalid/none.png"><button></button><input><script>undefinedName()</script></main></body></html>"""


def test_faults_are_found(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(BAD, encoding="utf-8")
    found = "\n".join(faults(tab, page, 400, False))
    for fault in (
        "in a window of 400",
        "beyond the window",
        "cut: ",
        "no language",
        "no title",
        "no alt text",
        "no name: <button",
        "no name: <input",
        "headings: 2 4",
        "h2, then h4",
        "twice: id one",
        "contrast 2.8",
        "undefinedName",
        "fetched http://nowhere.invalid/none.png",
    ):
        assert fault in found


@pytest.mark.parametrize("name", PROGRAMS)
def test_reports_are_read_at_any_width_in_light_and_dark(tab: Tab, tmp_path: Path, name: str) -> None:
    program = tp.load(name, **PROGRAMS[name])
    settings = settings_of(program.netsor, {"width": (8, 16), "samples": 200})
    job.run(program, settings, tmp_path, page=report_page)
    for width, dark in VIEWS:
        assert faults(tab, tmp_path / "report.html", width, dark) == []


def test_panels_answer_to_pointing_and_are_pictures_without_scripts(tab: Tab, tmp_path: Path) -> None:
    program = tp.load("attention", **PROGRAMS["attention"])
    job.run(program, settings_of(program.netsor, {"width": (8, 16), "samples": 200}), tmp_path, page=report_page)
    tab.size(800, False)
    tab.show(tmp_path / "report.html")
    pictures = "[...document.querySelectorAll('figure.pointed > .picture')]"
    shown = f"{pictures}.filter((node) => node.checkVisibility()).length"
    assert (
        tab.run("document.querySelectorAll('.panel canvas').length")
        == tab.run("document.querySelectorAll('script.readings').length")
        >= 5
    )
    assert tab.run(shown) == 0
    place = tab.run("""(() => { const over = document.querySelector(".u-over");
        over.scrollIntoView({behavior: "instant"});
        const box = over.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()""")
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=place[0] - 9, y=place[1])
    tab.ask("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    said = tab.run("""new Promise((answer) => setTimeout(() => answer([...document.querySelector(".panel")
        .querySelectorAll(".u-value")].map((node) => node.textContent)), 200))""")
    assert len(said) >= 4 and all(re.search(r"\d", text) for text in said)
    axis = "document.querySelector('.tools button').textContent"
    assert tab.run(axis) == "logarithmic scale"
    tab.run("document.querySelector('.tools button').click()")
    assert tab.run(axis) == "linear scale"
    assert tab.complaints() == []
    tab.ask("Emulation.setEmulatedMedia", media="print")
    assert tab.run("[...document.querySelectorAll('.panel, .tools')].some((node) => node.checkVisibility())") is False
    assert tab.run(shown) >= 5
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    tab.size(800, False)
    tab.show(tmp_path / "report.html")
    tab.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert tab.run("document.querySelectorAll('.panel').length") == 0
    assert tab.run("[...document.querySelectorAll('figure > .picture')].every((node) => node.checkVisibility())")


def test_primes_take_room(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "formula.html"
    page.write_text("<!DOCTYPE html><title>x</title>" + mathml(r"Z^{x_{i}} Z^{x_{i'}}"), encoding="utf-8")
    tab.size(400, False)
    tab.show(page)
    letter, prime = tab.run("""[...document.querySelectorAll("mi, mo")].slice(-2).map(
        (node) => [node.textContent, node.getBoundingClientRect().width, getComputedStyle(node).fontSize])""")
    assert letter[0] == "i" and prime[0] == "\u2032"
    assert prime[2] == letter[2] and prime[1] > 0.15 * float(letter[2].removesuffix("px"))


def test_pages_of_the_site_are_read_at_any_width_in_light_and_dark(tab: Tab, site: Path) -> None:
    pages = sorted(page for page in site.glob("*.html") if page.stem not in ("search", "py-modindex", "genindex"))
    assert "index" in [page.stem for page in pages]
    found = {
        (page.stem, width, dark): said
        for page in pages
        for width, dark in VIEWS
        if (said := faults(tab, page, width, dark))
    }
    assert found == {}

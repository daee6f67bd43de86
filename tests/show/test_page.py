"""report.html: one page that needs nothing else, says everything, and runs nothing that a program file holds."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.blocks.html import to_html
from tensorprog.blocks.svg import palette
from tensorprog.jobs import run as job
from tensorprog.results.study import Listener, Study, settings_of
from tensorprog.show.page import derived, report_page
from tests.rotation import some

VOID = {"meta", "br"}
PROGRAMS = {
    "attention": {"s": 2, "H": 1},
    "attention_tied": {"s": 2},
    "attention_fixed_head": {"s": 2, "H": 1},
    "mlp": {},
    "rnn": {},
}
SLOW = {"attention_fixed_head"}  # to average over its scores


class Document(HTMLParser):
    """Reads a page strictly: what is opened is closed in order, and attributes stand once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def names(self) -> list[str]:
        return [tag for tag, _ in self.tags]

    def values(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


def run(program: Any, folder: Path, **given: Any) -> Study:
    settings = settings_of(program.netsor, {"width": (8, 16), "samples": 200} | given)
    return job.run(program, settings, folder, page=report_page)


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in PROGRAMS if name != "attention"
]


@pytest.fixture(scope="module", params=["attention", *some(OTHERS, 4)])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("run")
    run(tp.load(request.param, **PROGRAMS[request.param]), folder)
    return request.param, (folder / "report.html").read_text(encoding="utf-8")


def test_a_page_is_well_formed_and_stands_alone(page: tuple[str, str]) -> None:
    text = page[1]
    document = Document(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert {"link", "iframe", "object", "embed", "base", "form", "img"}.isdisjoint(document.names())
    for link in [*document.values("href"), *document.values("xlink:href"), *document.values("src")]:
        assert link.startswith(("#", "data:image/png;base64,"))
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text
    assert not [name for _, attrs in document.tags for name in attrs if name.startswith("on")]
    assert len(text) < 1_500_000


def test_no_script_runs_but_those_of_the_package(page: tuple[str, str]) -> None:
    found = re.findall(r"<script([^>]*)>(.*?)</script>", page[1], re.S)
    scripts = [text for attributes, text in found if not attributes]
    package = files("tensorprog.show")
    assert scripts == [package.joinpath(name).read_text(encoding="utf-8") for name in ("uplot.min.js", "panels.js")]
    policy = re.search(r"script-src ([^\"]*)\"", page[1])
    assert policy is not None
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert unescape(policy[1]) == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert {attributes for attributes, _ in found} == {"", ' type="application/json" class="readings"'}


def test_panels_are_read_in_the_numbers_that_are_drawn(page: tuple[str, str]) -> None:
    panels = [json.loads(text) for text in re.findall(r'class="readings">(.*?)</script>', page[1])]
    assert {panel["kind"] for panel in panels} >= {"density, linear", "density, log"}
    for panel in panels:
        assert panel["curves"] and all(len(c["x"]) == len(c["y"]) >= 1 for c in panel["curves"])
        assert all(len(c["errors"]) in (0, len(c["x"])) for c in panel["curves"])
    log = next(panel for panel in panels if panel["kind"] == "density, log")
    assert any(max(c["errors"], default=0) > 0 for c in log["curves"])
    linear = next(panel for panel in panels if panel["kind"] == "density, linear")
    names = [c["name"] for c in linear["curves"]]
    assert {"n = 8", "n = 16"} <= set(names)
    for curve in linear["curves"]:
        mass = np.trapezoid(np.array(curve["y"], float), np.array(curve["x"], float))
        assert 0.8 < mass < 1.02


def test_every_reference_inside_the_page_has_its_target(page: tuple[str, str]) -> None:
    document = Document(page[1])
    identifiers = document.values("id")
    assert len(set(identifiers)) == len(identifiers)
    wanted = {link[1:] for link in [*document.values("href"), *document.values("xlink:href")] if link.startswith("#")}
    wanted |= set(re.findall(r"url\(#([^)]+)\)", page[1])) | set(document.values("aria-labelledby"))
    assert wanted <= set(identifiers)


def test_a_page_can_be_read_without_seeing_it(page: tuple[str, str]) -> None:
    document = Document(page[1])
    levels = [int(name[1]) for name in document.names() if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for tag, attrs in document.tags:
        if tag == "svg":
            assert attrs["role"] == "img" and attrs["aria-label"]
        if tag == "th":
            assert attrs["scope"] in ("row", "col")
    assert document.names().count("table") == document.names().count("caption")


def test_all_sections_are_there(page: tuple[str, str]) -> None:
    name, text = page
    shown = " ".join(Document(text).text)
    for title in ("Program", "Check", "Infinite-width limit", "Finite widths", "To reproduce this", "As picture"):
        assert title in shown
    assert "--width 8,16 --samples 200 --seed 0" in shown
    assert f"tensorprog {tp.__version__}" in shown
    assert "Density of" in shown and "Results" in shown
    limit = name != "attention_tied"
    assert ("Largest error of any number of the limit" in shown) == limit
    assert ("No limit is claimed for this program, for" in shown) != limit
    assert ("<math" in text) == (name in ("attention", "mlp"))
    assert ("not in formulas" in shown) == (name in ("attention_fixed_head", "rnn"))
    assert ("Covariance of" in shown) == limit


def several(count: int) -> tp.Program:
    """A program of several outputs."""
    program = tp.Program("several")
    h = program.initial("h", mean=0, cov=1)
    weights = program.weights(*(f"W{k}" for k in range(count)))
    program.outputs(
        *(program.nonlin(f"y{k}", tp.tanh(program.matmul(f"u{k}", weight, h))) for k, weight in enumerate(weights))
    )
    return program


@pytest.mark.turns(6)
def test_every_output_is_drawn_up_to_a_few(tmp_path: Path) -> None:
    run(several(8), tmp_path)
    shown = Document((tmp_path / "report.html").read_text(encoding="utf-8"))
    for k in range(8):
        assert shown.values("aria-label").count(f"density of y{k}, log scale") == (k < 6)
        assert shown.values("aria-label").count(f"KL divergence of y{k} from the limit against the width") == (k < 6)
    assert "Not drawn, but in the tables: y6, y7." in shown.text


@pytest.mark.turns(3)
def test_nothing_of_a_program_is_markup(tmp_path: Path) -> None:
    evil = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quotes' ]]> </style>"
    program = tp.Program("plain", title=evil, reference=evil)
    h = program.initial("h", mean=0, cov=1)
    (weight,) = program.weights("W")
    program.outputs(program.matmul("y", weight, h))
    run(program, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    document = Document(text)
    assert "img" not in document.names() and "<img" not in text
    assert "alert(1)" not in "".join(re.findall(r"<script[^>]*>(.*?)</script>", text, re.S))
    assert text.count("</style>") == 1 and text.count("</title>") >= 1
    assert evil in " ".join(document.text)


@pytest.mark.turns(3)
def test_a_run_that_is_stopped_leaves_a_page(tmp_path: Path) -> None:
    class Stop(Listener):
        def stage(self, text: str) -> None:
            if text == "n = 16":
                raise KeyboardInterrupt

    program = tp.load("mlp")
    settings = settings_of(program.netsor, {"width": (8, 16), "samples": 200})
    with pytest.raises(KeyboardInterrupt):
        job.run(program, settings, tmp_path, Stop(), page=report_page)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Results" in " ".join(Document(text).text)
    assert not list(tmp_path.glob("*.part*"))


@pytest.mark.turns(4)
def test_files_are_listed_in_one_order(tmp_path: Path) -> None:
    study = run(tp.load("mlp"), tmp_path)
    names = ["program.svg", "report.json", "samples.npz", "report.html", "density.png", "convergence.png"]
    assert [path.name for path in study.written] == names


def test_formulas_that_take_too_long_are_cut_short() -> None:
    program = tp.load("mlp")
    whole, some = (to_html(derived(program.netsor, "theorem", seconds)) for seconds in (5.0, 0.0))
    assert whole.count("<li>") > some.count("<li>") == 1
    assert "tp limit FILE --latex" in some and "left out" not in whole


def test_nothing_scrolls_on_paper() -> None:
    sheet = files("tensorprog.show").joinpath("page.css").read_text(encoding="utf-8")
    printed = sheet.partition("@media print")[2]
    assert ".picture, [role=region] { overflow: visible !important; }" in printed


def contrast(one: str, other: str) -> float:
    """By the formula of the Web Content Accessibility Guidelines."""

    def luminance(colour: str) -> float:
        channels = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_is_readable_in_light_and_dark() -> None:
    sheet = files("tensorprog.show").joinpath("page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{([^}]*)\}", sheet)[:2]
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]
    for theme in themes:
        for ground in ("ground", "panel"):
            assert min(contrast(theme[ink], theme[ground]) for ink in ("ink", "soft", "link")) > 4.5
    dark = themes[1]["ground"]
    used = "".join(f"var(--c{colour}, #{colour})" for colour in ("0072b2", "cc79a7", "d55e00", "471365", "6ece58"))
    assert min(contrast(colour, dark) for colour in re.findall("#[0-9a-f]{6}", palette(used, dark=True))) > 4.5

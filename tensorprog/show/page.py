"""report.html: everything a run found on one page that needs nothing else, to be read on paper, phones and screens.

Each section is a list of blocks; head, style and navigation stand around them.
"""

from __future__ import annotations

import math
import platform
import re
import shlex
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from tensorprog import __version__
from tensorprog.blocks import Block, Code, Folded, Grid, Heading, Mathematics, Picture, Pictures, code, paragraph
from tensorprog.blocks.html import to_html
from tensorprog.blocks.markup import Html, joined, tag
from tensorprog.blocks.svg import palette
from tensorprog.check.graph import build
from tensorprog.language.errors import TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.language.writing import pack
from tensorprog.results.reference import MAX_COVARIANCE, Reference
from tensorprog.results.study import Study, default_out, duration
from tensorprog.show import plots
from tensorprog.show.graphs import to_svg
from tensorprog.show.plots import DISTANCES, INKS, STATISTICS
from tensorprog.show.readings import readings

__all__ = ["derived", "report_page"]

DARK = "@media screen and (prefers-color-scheme: dark)"
SIGNATURE = f"tensorprog {__version__}"
SECONDS = 5.0  # beyond which no further line of a derivation is begun
SHOWN = 64  # members of a family whose covariance is drawn
PICTURES = 6  # covariances drawn, at most
TITLES = {
    "kl": "KL divergence of {} from the limit",
    "ks": "KS distance of {} from the limit",
    "w1": "Wasserstein distance of {} from the limit",
    "excess": "distance of the kurtosis of {} from that of the limit",
    "variance": "variance of {}",
    "kurtosis": "kurtosis of {}",
}
PACKAGES = ("numpy", "scipy", "sympy", "matplotlib", "numba")
Draw = Callable[[Any], Any]  # a picture on the axes that it is given
Blocks = Iterator[Block]


def report_page(study: Study) -> str:
    """report.html of one run as text, of what is known so far."""
    sections = {
        "program": ("Program", to_html(_program(study))),
        "check": ("Check", to_html(study.report.basis)),
        "limit": ("Infinite-width limit", to_html(_limit(study))),
        "widths": ("Finite widths", to_html(_widths(study))),
        "reproduce": ("To reproduce this", to_html(_reproduce(study))),
    }
    entries = (tag("li", tag("a", title, href=f"#{key}")) for key, (title, _) in sections.items())
    shown = (
        tag("section", tag("h2", title, id=f"{key}-title"), content, id=key, aria_labelledby=f"{key}-title")
        for key, (title, content) in sections.items()
    )
    scripts = _scripts() if any('class="readings"' in content for _, content in sections.values()) else []
    body = tag(
        "body",
        tag("header", _heading(study), tag("nav", tag("ul", *entries), aria_label="sections")),
        tag("main", *shown),
        tag("footer", SIGNATURE),
        *(tag("script", Html(script)) for script in scripts),
    )
    return "<!DOCTYPE html>\n" + tag("html", _head(study, body, scripts), body, lang="en") + "\n"


def _beside(name: str) -> str:
    """A file of this package."""
    return files("tensorprog.show").joinpath(name).read_text(encoding="utf-8")


def _scripts() -> list[str]:
    """What makes panels answer to pointing: a library for plots, and what hands it the numbers."""
    return [_beside("uplot.min.js"), _beside("panels.js")]


def _head(study: Study, body: str, scripts: Sequence[str]) -> Html:
    # nothing in this text comes from the program
    sheet = (_beside("uplot.min.css") if scripts else "") + _beside("page.css")
    # scripts run if they are those of this package, to the letter
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    style = f"{sheet}:root{{{palette(body, dark=False)}}}\n{DARK}{{:root{{{palette(body, dark=True)}}}}}\n"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"
            + (f"; script-src {allowed}" if scripts else ""),
        ),
        tag("meta", name="generator", content=SIGNATURE),
        tag("title", f"{study.netsor.title or study.netsor.name} - tensorprog"),
        tag("style", Html(style)),
    )


def _heading(study: Study) -> Html:
    netsor = study.netsor
    named = netsor.name if netsor.title else ""
    return joined(
        [
            tag("h1", netsor.title or netsor.name),
            tag("p", joined([tag("code", named) if named else "", netsor.reference], ": "), class_="soft"),
            tag("div", to_html([study.report.summary]), class_="summary"),
        ]
    )


# ---- program and limit ----------------------------------------------------------------------------------------------


def _program(study: Study) -> Blocks:
    """The program as text and as picture."""
    yield Heading("As text")
    yield Code(pack(study.netsor)[0].rstrip(), "program text")
    yield Heading("As picture")
    yield Picture(
        to_svg(build(study.netsor), study.report),
        "graph",
        f"graph of the program {study.netsor.name} with the roles of its statements in Assumption 1",
        "Boxes are initial vectors, weights and statements; arrows lead from what is read to what reads it, those of "
        "weights are dashed.",
        scroll=True,
    )


def _limit(study: Study) -> Blocks:
    """What converges to what: in formulas, in numbers, as pictures."""
    reference = study.reference
    if reference is None:
        if study.report.grade == "outside":
            yield paragraph(
                "No limit is claimed for this program, for the reasons above. Networks of finite width "
                "are drawn all the same."
            )
            return
        yield paragraph(
            "There is no limit to show, for the reason below. Networks of finite width are drawn all the same."
        )
        yield Code(study.reason or "", "reason")
        return
    from tensorprog.limit.law.summary import converges

    yield paragraph(converges(reference.law))
    yield Heading("Formulas")
    yield from derived(study.netsor, study.report.grade)
    yield Heading("Numbers")
    try:  # tables of what report.json holds, which is known by now
        yield from reference.each_block(MAX_COVARIANCE)
    except TensorprogError as error:  # a number that the law does not offer
        yield paragraph("Not all numbers can be listed: ", error)
    yield paragraph(
        "In brackets: the error of the last digits. Largest error of any number of the limit: "
        f"{reference.law.error:.1e}.",
        note=True,
    )
    yield from _covariances(reference)
    if study.reason:
        yield paragraph("Networks are not compared with it, for this reason:")
        yield Code(study.reason, "reason")


def derived(netsor: Netsor, grade: str, seconds: float = SECONDS) -> Blocks:
    """The derivation line by line as far as it comes within a few seconds: statement, clause of Definition 1, formula.

    Where there are no formulas it is said why.
    """
    from tensorprog.limit.formulas.latex import NOTATION, blocks
    from tensorprog.limit.formulas.law import SymbolicLaw

    lines: list[str] = []
    remark = ""
    end = time.monotonic() + seconds
    try:
        for line in blocks(SymbolicLaw(netsor).derivation):
            lines.append(line)
            if time.monotonic() > end:
                remark = (
                    f"Formulas beyond {seconds:.3g} seconds of work are left out here; "
                    "`tp limit FILE --latex` writes them all."
                )
                break
    except TensorprogError as error:
        remark = (
            f"Not all is written as formulas, numbers are below: {error}."
            if lines
            else (f"The limit of this program is given in numbers, not in formulas: {error}.")
        )
    whole = "\n".join(lines)
    yield Mathematics((" ".join(meaning for mark, meaning in NOTATION.items() if mark in whole),), numbered=False)
    if lines:
        yield Folded("The derivation by Definition 1, line by line", (Mathematics(tuple(lines)),), opened=True)
    if remark:
        yield paragraph(remark)


def _covariances(reference: Reference) -> Blocks:
    law, netsor = reference.law, reference.netsor
    sizes = {name: math.prod(netsor.families[name].shape) for name in (*law.outputs, *law.scores)}
    drawn = [name for name, size in sizes.items() if 1 < size <= SHOWN][:PICTURES]
    if drawn:
        yield Heading("Covariances")
        yield _pictures({f"covariance of {name}": partial(plots.covariance, reference, name) for name in drawn})
    large = [name for name, size in sizes.items() if size > SHOWN]
    if large:
        yield paragraph(f"Not drawn, of more than {SHOWN} members: {', '.join(large)}.", note=True)


def _pictures(drawings: Mapping[str, Draw]) -> Block:
    """Pictures side by side, by what they show."""
    try:
        drawn = {label: _drawn(draw) for label, draw in drawings.items()}
    except TensorprogError as error:  # without matplotlib, or a number that the law does not offer
        return paragraph(error, note=True)
    return Pictures(
        tuple(
            Picture(
                picture, re.sub(r"\W+", "-", label), label, label[0].upper() + label[1:], fixed=INKS, readings=numbers
            )
            for label, (picture, numbers) in drawn.items()
        )
    )


def _drawn(draw: Draw) -> tuple[str, str]:
    """A panel as picture, and in numbers where it is one of `Readable`."""
    numbers = ""

    def both(ax: Any) -> None:
        nonlocal numbers
        draw(ax)
        if isinstance(draw, Readable):
            numbers = readings(ax, draw.kind, draw.output)

    return plots.svg(both), numbers


@dataclass(frozen=True)
class Readable:
    """A panel that is read in numbers too: what it shows, of which output."""

    draw: Draw
    kind: str
    output: str

    def __call__(self, ax: Any) -> Any:
        """Draw it."""
        return self.draw(ax)


# ---- finite widths --------------------------------------------------------------------------------------------------


def _widths(study: Study) -> Blocks:
    """Networks of finite width against the limit: densities, distances, tables."""
    if not study.comparisons:
        yield paragraph("No width is complete.")
        return
    first, *others = study.pictured
    panels = list(DISTANCES if study.limit_of(first) else STATISTICS)
    yield Heading(f"Density of {first}")
    yield _pictures(_densities(study, first, "linear", "log"))
    yield Heading("Convergence in the width")
    yield _pictures(_convergence(study, first, *panels))
    if others:
        yield Heading("Further outputs")
        further: dict[str, Draw] = {}
        for of in others:
            further |= _densities(study, of, "log")
            further |= _convergence(study, of, next(iter(DISTANCES if study.limit_of(of) else STATISTICS)))
        yield _pictures(further)
    left_out = study.netsor.outputs[len(study.pictured) :]
    if left_out:
        yield paragraph(f"Not drawn, but in the tables: {', '.join(left_out)}.", note=True)
    yield Heading("Results")
    yield from study.blocks()


def _densities(study: Study, of: str, *scales: str) -> dict[str, Draw]:
    """One panel for each scale, by what it shows."""
    law = study.compared if study.limit_of(of) else None
    return {
        f"density of {of}, {scale} scale": Readable(
            partial(plots.density_of, study.columns[of], of, law, scale=scale), f"density, {scale}", of
        )
        for scale in scales
    }


def _convergence(study: Study, of: str, *panels: str) -> dict[str, Draw]:
    """The panels of convergence named, by what they show."""
    return {
        f"{TITLES[name].format(of)} against the width": Readable(
            partial(plots.convergence, study.comparisons, of, panels=[name]), name, of
        )
        for name in panels
    }


# ---- to reproduce ---------------------------------------------------------------------------------------------------


def _reproduce(study: Study) -> Blocks:
    """The command and the Python of this run, its settings and versions."""
    settings, file = study.settings, f"{default_out(study.netsor).name}.yaml"
    extra = ", with its data files beside it," if pack(study.netsor)[1] else ""
    options = settings.options | {"width": settings.width}
    rows = tuple(
        (key, ", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for key, value in options.items()
        if value not in ((), {}, None)
    )
    yield paragraph("Save the program above as ", code(file), extra, " and run")
    yield Code(_command(study, file), "command")
    yield paragraph("or in Python, for one width,")
    yield Code(_python(study, file), "Python")
    yield paragraph("The same program, seed and versions give the same numbers, whatever the number of threads.")
    yield Grid("Settings", ("setting", "value"), rows, text_columns=(0, 1))
    yield Grid("Versions", ("part", "version"), tuple(_versions()), text_columns=(0, 1))
    if study.finite:
        seconds = sum(entry["seconds"] for entry in study.finite)
        done = ", ".join(
            f"n = {entry['width']}: {entry['method']}, {duration(entry['seconds'])}" for entry in study.finite
        )
        yield paragraph(f"Drawing networks took {duration(seconds)} ({done}).", note=True)
        variation = [entry["log10_total_variation"] for entry in study.finite if "log10_total_variation" in entry]
        if variation:
            yield paragraph(
                "Networks were drawn without functions that never act, which changes their law by at most "
                f"1e{math.ceil(max(variation))} in total variation; tp plan names them.",
                note=True,
            )


def _command(study: Study, file: str) -> str:
    """The command line of this run, all options written out."""
    settings = study.settings
    words = [
        "tp",
        "run",
        file,
        "--width",
        ",".join(map(str, settings.width)),
        "--samples",
        str(settings.samples),
        "--seed",
        str(settings.seed),
        "--method",
        settings.method,
        "--max-memory",
        str(settings.max_memory),
    ]
    words += ["--exact"] * settings.exact
    for name, psi in settings.averages:
        words += ["--average", f"{name}={psi}"]
    return shlex.join(words)


def _python(study: Study, file: str) -> str:
    """The same for the first width in Python."""
    given = {key: value for key, value in study.settings.options.items() if value not in ((), {}, None)}
    arguments = ", ".join(f"{key}={value!r}" for key, value in ({"width": study.settings.width[0]} | given).items())
    lines = ["import tensorprog as tp", "", f"P = tp.load({file!r})", f"net = P.run({arguments})"]
    return "\n".join([*lines, *(["print(tp.compare(net, P.limit()))"] if study.compared is not None else [])])


def _versions() -> Iterator[tuple[str, str]]:
    yield "tensorprog", __version__
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}"
    for name in PACKAGES:
        yield name, version(name) if find_spec(name) else "not installed"
    yield "system", f"{platform.system()}, {platform.machine()}"

"""report.html: everything a run found on one page that needs nothing else, to be read on paper, phones and screens.

Each section is a list of blocks; the template `page.html.j2` stands around them.
"""

from __future__ import annotations

import math
import platform
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tensorprog.blocks import Block, Code, Grid, Heading, Mathematics, Picture, code, paragraph
from tensorprog.blocks.html import template, to_html
from tensorprog.check.graph import build
from tensorprog.language.errors import TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.language.writing import pack
from tensorprog.results.reference import Reference
from tensorprog.results.study import Study, default_out
from tensorprog.show import plots
from tensorprog.show.graphs import to_svg
from tensorprog.version import __version__, libraries

__all__ = ["derived", "report_page"]

SECONDS = 5.0  # beyond which no further line of a derivation is begun
SHOWN = 64  # members of a family whose covariance is drawn
PICTURES = 6  # covariances drawn, at most
Blocks = Iterator[Block]


def report_page(study: Study) -> str:
    """report.html of one run as text, of what is known so far."""
    sections = [
        ("widths", "Finite widths", to_html(_widths(study))),
        ("limit", "Infinite-width limit", to_html(_limit(study))),
        ("check", "Check", to_html(study.report.basis)),
        ("program", "Program", to_html(_program(study))),
        ("reproduce", "To reproduce this", to_html(_reproduce(study))),
    ]
    text: str = template(Path(__file__).with_name("page.html.j2")).render(
        title=study.netsor.title or study.netsor.name,
        name=study.netsor.name,
        reference=study.netsor.reference,
        summary=to_html([study.report.summary]),
        sections=sections,
        signature=f"tensorprog {__version__}",
    )
    return text


def _picture(draw: Any, label: str, panels: int = 1, known: str = "") -> Block:
    try:
        return Picture(known or plots.svg(draw, panels), label)
    except TensorprogError as error:
        return paragraph(error, note=True)


# ---- program and limit ----------------------------------------------------------------------------------------------


def _program(study: Study) -> Blocks:
    yield Heading("As text")
    yield Code(pack(study.netsor)[0].rstrip(), "program text")
    yield Heading("As picture")
    try:
        label = f"graph of the program {study.netsor.name} with the roles of its statements in Assumption 1"
        study.drawing = study.drawing or to_svg(build(study.netsor), study.report)
        yield Picture(study.drawing, label)
    except TensorprogError as error:
        yield paragraph(error, note=True)
    yield paragraph(
        "Boxes are initial vectors, weights and statements; arrows lead from what is read to what reads it, those of "
        "weights are dashed.",
        note=True,
    )


def _limit(study: Study) -> Blocks:
    reference = study.reference
    if reference is None:
        outside = study.report.grade == "outside"
        reason = "is claimed for this program, for the reasons below" if outside else "is shown, for this reason"
        yield paragraph(f"No limit {reason}. Networks of finite width are drawn all the same.")
        if not outside:
            yield Code(study.reason or "", "reason")
        return
    from tensorprog.limit.law.summary import converges

    yield paragraph(converges(reference.law))
    yield Heading("Formulas")
    yield from derived(study.netsor)
    yield Heading("Numbers")
    with suppress(TensorprogError):  # tables of what report.json holds, which is known by now
        yield from reference.blocks()
    yield paragraph(
        "In brackets: the error of the last digits. Largest error of any number of the limit: "
        f"{reference.law.error:.1e}.",
        note=True,
    )
    yield from _covariances(reference)
    if study.reason:
        yield paragraph("Networks are not compared with it, for this reason:")
        yield Code(study.reason, "reason")


def derived(netsor: Netsor, seconds: float = SECONDS) -> Blocks:
    """The derivation line by line as far as it comes within a few seconds: statement, clause of Definition 1, formula.

    Where there are no formulas it is said why.
    """
    from tensorprog.limit.formulas.law import SymbolicLaw
    from tensorprog.limit.formulas.writing import NOTATION, blocks

    lines: list[str] = []
    remark = ""
    end = time.monotonic() + seconds
    try:
        for line in blocks(SymbolicLaw(netsor).formulas):
            lines.append(line)
            if time.monotonic() > end:
                remark = (
                    f"Formulas beyond {seconds:.3g} seconds of work are left out here; "
                    "`tp limit FILE --latex` writes them all."
                )
                break
    except TensorprogError as error:
        start = "Not all is written as formulas, numbers are below" if lines else "This limit has numbers, not formulas"
        remark = f"{start}: {error}."
    whole = "\n".join(lines)
    yield Mathematics((" ".join(meaning for mark, meaning in NOTATION.items() if mark in whole),), numbered=False)
    if lines:
        yield paragraph("The derivation by Definition 1, line by line:")
        yield Mathematics(tuple(lines))
    if remark:
        yield paragraph(remark)


def _covariances(reference: Reference) -> Blocks:
    law, shapes = reference.law, {name: family.shape for name, family in reference.netsor.families.items()}
    drawn = [name for name in (*law.outputs, *law.scores) if 1 < math.prod(shapes[name]) <= SHOWN][:PICTURES]
    if drawn:
        yield Heading("Covariances")
    for name in drawn:
        yield _picture(partial(plots.covariance, reference, name), f"covariance of {name}")


# ---- finite widths --------------------------------------------------------------------------------------------------


def _widths(study: Study) -> Blocks:
    if not study.comparisons:
        yield paragraph("No width is complete.")
        return
    yield Heading("Results")
    yield from study.blocks()
    for number, of in enumerate(study.pictured):
        density, convergence, panels = plots.of_study(study, of)
        yield Heading(f"Density of {of}, and convergence in the width")
        drawn = {} if number else study.drawn
        yield _picture(density, f"density of {of}, linear and log scale", 2, drawn.get("density", ""))
        if number == 0:
            label = f"{', '.join(panels)} of {of} against the width"
            yield _picture(convergence, label, len(panels), drawn.get("convergence", ""))


# ---- to reproduce ---------------------------------------------------------------------------------------------------


def _reproduce(study: Study) -> Blocks:
    settings, file = study.settings, f"{default_out(study.netsor).name}.yaml"
    words = ["tp", "run", file, "--width", ",".join(map(str, settings.width))]
    for name in ("samples", "seed", "method", "max_memory"):
        words += [f"--{name.replace('_', '-')}", str(getattr(settings, name))]
    for name, psi in settings.averages:
        words += ["--average", f"{name}={psi}"]
    extra = ", with its data files beside it," if pack(study.netsor)[1] else ""
    yield paragraph("Save the program as ", code(file), extra, " and run")
    yield Code(shlex.join(words), "command")
    yield paragraph(
        "The same program, seed and versions draw the same networks, whatever the number of threads. Last digits of "
        "the limit may depend on the processor and its linear algebra."
    )
    versions = {"Python": platform.python_version(), **libraries(), "system": platform.platform(terse=True)}
    yield Grid("Versions", ("part", "version"), tuple(versions.items()), text_columns=(0, 1))
    done = ", ".join(f"n = {entry['width']}: {entry['method']}, {entry['seconds']:.2g} s" for entry in study.finite)
    if done:
        yield paragraph(f"Drawing networks took: {done}.", note=True)

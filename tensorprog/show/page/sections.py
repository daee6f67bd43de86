"""The sections of the page: program, limit, finite widths, and how to have it all again."""

from __future__ import annotations

import math
import platform
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tensorprog import __version__
from tensorprog.check.graph import build
from tensorprog.jobs.run_files import MAX_COVARIANCE
from tensorprog.jobs.study import Study, default_out, duration
from tensorprog.language.errors import TensorprogError
from tensorprog.language.yaml_io import pack
from tensorprog.results.law_summary import Reference
from tensorprog.show import plots
from tensorprog.show.display import Table, limit_tables, run_tables
from tensorprog.show.graphs import to_svg
from tensorprog.show.markup import Html, joined, note, paragraph, table, tag
from tensorprog.show.page.formulas import derived
from tensorprog.show.plots.heatmaps import INKS
from tensorprog.show.plots.widths import DISTANCES, STATISTICS
from tensorprog.show.svg import embedded

__all__ = ["limit", "program", "reproduce", "signature", "widths"]

SHOWN = 64  # members of a family whose covariance is drawn
PICTURES = 6  # covariances drawn, at most
TITLES = {
    "kl": "KL divergence of {} from the limit", "distances": "KS and Wasserstein-1 distances of {} from the limit",
    "excess": "distance of the kurtosis of {} from that of the limit", "variance": "variance of {}",
    "kurtosis": "kurtosis of {}",
}
Draw = Callable[[Any], Any]  # a picture on the axes that it is given
PACKAGES = ("numpy", "scipy", "sympy", "matplotlib", "numba")


def signature() -> str:
    """What wrote the page."""
    return f"tensorprog {__version__}"


def program(study: Study) -> Html:
    """The program as text and as picture."""
    title = f"graph of the program {study.netsor.name} with the roles of its statements in Assumption 1"
    return joined([
        tag("h3", "As text"), _code(pack(study.netsor)[0].rstrip(), "program text"),
        tag("h3", "As picture"),
        tag("figure", embedded(to_svg(build(study.netsor), study.report), "graph", title, scroll=True),
            tag("figcaption", "Boxes are initial vectors, weights and statements; arrows lead from what is read to "
                              "what reads it, those of weights are dashed."), class_="graph"),
    ])


def _code(text: Any, label: str) -> Html:
    """Text as it is, in a box that scrolls."""
    return tag("pre", tag("code", text), tabindex=0, role="region", aria_label=label)


def limit(study: Study) -> Html:
    """What converges to what: in formulas, in numbers, as pictures."""
    reference = study.reference
    if reference is None:
        if study.report.grade == "outside":
            return paragraph("No limit is claimed for this program, for the reasons above. Networks of finite width "
                             "are drawn all the same.")
        return joined([paragraph("There is no limit to show, for the reason below. Networks of finite width are drawn "
                                 "all the same."), _code(study.reason, "reason")])
    from tensorprog.show.law import converges

    return joined([
        paragraph(converges(reference.law)),
        tag("h3", "Formulas"), derived(study.netsor, study.report.grade),
        tag("h3", "Numbers"),
        _numbers(reference),
        note(f"In brackets: the error of the last digits. Largest error of any number of the limit: "
             f"{reference.law.error:.1e}."),
        *_covariances(reference),
        *([paragraph("Networks are not compared with it, for this reason:"), _code(study.reason, "reason")]
          if study.reason else []),
    ])


def _numbers(reference: Reference) -> Html:
    """Tables of what report.json holds, which is known by now."""
    try:
        return joined(_shown(each) for each in limit_tables(reference, MAX_COVARIANCE))
    except TensorprogError as error:  # a number that the law does not offer
        return paragraph("Not all numbers can be listed: ", error)


def _covariances(reference: Reference) -> Iterator[Html]:
    law, netsor = reference.law, reference.netsor
    sizes = {name: math.prod(netsor.families[name].shape) for name in (*law.outputs, *law.scores)}
    drawn = [name for name, size in sizes.items() if 1 < size <= SHOWN][:PICTURES]
    if drawn:
        yield tag("h3", "Covariances")
        yield _figures({f"covariance of {name}": partial(plots.covariance, reference, name) for name in drawn})
    large = [name for name, size in sizes.items() if size > SHOWN]
    if large:
        yield note(f"Not drawn, of more than {SHOWN} members: {', '.join(large)}.")


def widths(study: Study) -> Html:
    """Networks of finite width against the limit: densities, distances, tables."""
    if not study.comparisons:
        return paragraph("No width is complete.")
    first, *others = study.pictured
    panels = list(STATISTICS if study.compared is None else DISTANCES)
    further: dict[str, Draw] = {}
    for of in others:
        further |= _densities(study, of, "log") | _convergence(study, of, panels[0])
    left_out = study.netsor.outputs[len(study.pictured):]
    return joined([
        tag("h3", f"Density of {first}"), _figures(_densities(study, first, "linear", "log")),
        tag("h3", "Convergence in the width"), _figures(_convergence(study, first, *panels)),
        *([tag("h3", "Further outputs"), _figures(further)] if further else []),
        note(f"Not drawn, but in the tables: {', '.join(left_out)}.") if left_out else "",
        tag("h3", "Results"), *(_shown(each) for each in run_tables(study)),
    ])


def _densities(study: Study, of: str, *scales: str) -> dict[str, Draw]:
    """One panel for each scale, by what it shows."""
    return {f"density of {of}, {scale} scale": partial(plots.density_of, study.columns[of], of, study.compared,
                                                       scale=scale) for scale in scales}


def _convergence(study: Study, of: str, *panels: str) -> dict[str, Draw]:
    """The panels of convergence named, by what they show."""
    return {f"{TITLES[name].format(of)} against the width": partial(plots.convergence, study.comparisons, of,
                                                                    panels=[name]) for name in panels}


def _figures(pictures: Mapping[str, Draw]) -> Html:
    """Panels side by side where there is room, by what they show."""
    try:
        drawn = {label: plots.svg(draw) for label, draw in pictures.items()}
    except TensorprogError as error:  # without matplotlib, or a number that the law does not offer
        return note(error)
    figures = (
        tag("figure", embedded(picture, re.sub(r"\W+", "-", label), label, fixed=INKS),
            tag("figcaption", label[0].upper() + label[1:]))
        for label, picture in drawn.items()
    )
    return tag("div", *figures, class_="figures")


def _shown(found: Table) -> Html:
    """A table as it is printed; one without columns is a remark."""
    if not found.header:
        return paragraph(found.title) if found.title else Html("")
    return table(found.header, found.rows, found.title, text=found.text_columns, marked=found.marked,
                 sections=found.sections, foot=found.note)


# ---- to reproduce ---------------------------------------------------------------------------------------------------


def reproduce(study: Study) -> Html:
    """The command and the Python of this run, its settings and versions."""
    settings, file = study.settings, f"{default_out(study.netsor).name}.yaml"
    extra = ", with its data files beside it," if pack(study.netsor)[1] else ""
    options = settings.options | {"width": settings.width}
    rows = [(key, _plain(value)) for key, value in options.items() if value not in ((), {}, None)]
    seconds = sum(entry["seconds"] for entry in study.finite)
    done = ", ".join(f"n = {entry['width']}: {entry['method']}, {duration(entry['seconds'])}" for entry in study.finite)
    return joined([
        paragraph("Save the program above as ", tag("code", file), extra, " and run"),
        _code(command(study, file), "command"),
        paragraph("or in Python, for one width,"),
        _code(python(study, file), "Python"),
        paragraph("The same program, seed and versions give the same numbers, whatever the number of threads."),
        table(("setting", "value"), rows, "Settings", text=(0, 1)),
        table(("part", "version"), list(_versions()), "Versions", text=(0, 1)),
        note(f"Drawing networks took {duration(seconds)} ({done}).") if study.finite else "",
    ])


def command(study: Study, file: str) -> str:
    """The command line of this run, all options written out."""
    settings = study.settings
    words = ["tp", "run", file, "--width", ",".join(map(str, settings.width)), "--samples", str(settings.samples),
             "--seed", str(settings.seed), "--method", settings.method, "--max-memory", str(settings.max_memory)]
    for name, psi in settings.averages:
        words += ["--average", f"{name}={psi}"]
    return shlex.join(words)


def python(study: Study, file: str) -> str:
    """The same for the first width in Python."""
    given = {key: value for key, value in study.settings.options.items() if value not in ((), {}, None)}
    arguments = ", ".join(f"{key}={value!r}" for key, value in ({"width": study.settings.width[0]} | given).items())
    lines = ["import tensorprog as tp", "", f"P = tp.load({file!r})", f"net = P.run({arguments})"]
    return "\n".join([*lines, *(["print(tp.compare(net, P.limit()))"] if study.compared is not None else [])])


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _versions() -> Iterator[tuple[str, str]]:
    yield "tensorprog", __version__
    yield "Python", f"{platform.python_implementation()} {platform.python_version()}"
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "not installed"
    yield "system", f"{platform.system()}, {platform.machine()}"

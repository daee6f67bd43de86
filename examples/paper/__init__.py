"""The experiments of Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846): one figure, one command.

A figure has a `Drawing`: its `data` draws networks of shipped programs and asks their limits, its `draw` puts that
data, and nothing else, into axes.  `FIGURES` has the figures by name, and `make` writes the files of one: pictures,
the tables beside them, and how to make them again.  `tp paper` is the command over them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import tensorprog as tp
from tensorprog.language.errors import fail
from tensorprog.language.files import writing
from tensorprog.show.plots import legend

from .convergence import Convergence
from .densities import Densities
from .experiment import WIDTHS, Case, Data, Drawing, Listener, Settings, Table, Together
from .scores import Scores

__all__ = ["FIGURES", "Data", "Figure", "Settings", "make", "save"]

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: what it is called there, what it shows, and its drawing."""

    name: str
    title: str
    shows: str
    drawing: Drawing


def _cases(program: str, heads: int) -> tuple[Case, ...]:
    return tuple(Case(program, n, (("H", heads),)) for n in WIDTHS)


def _lowrank(heads: int, dimension: int = 64) -> Case:
    # the paper's scripts add the heads up without 1/sqrt(H)
    return Case("attention_lowrank", dimension * heads, (("H", heads),), math.sqrt(heads))


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "fig1a",
            "Fig. 1 (A)",
            "densities of an output for n = 16, 64, 256, 1024 at H = 2, and their limit",
            Densities(_cases("attention", 2)),
        ),
        Figure(
            "fig1b",
            "Fig. 1 (B)",
            "KL divergence from the limit against n, over several trials, with its noise floor",
            Together({"H2": Convergence(_cases("attention", 2)), "H1": Convergence(_cases("attention", 1))}),
        ),
        Figure(
            "fig2a",
            "Fig. 2 (A)",
            "a score at n = 256 on the scales 1/sqrt(n) and 1/n, and the limits",
            Scores(Case("attention", 256, (("H", 2),))),
        ),
        Figure(
            "fig2b",
            "Fig. 2 (B)",
            "an output at n = 256 for H = 1 and 256, the limits, and infinitely many heads",
            Densities(tuple(Case("attention", 256, (("H", heads),)) for heads in (1, 256)), histogram=True),
        ),
        Figure(
            "fig3",
            "Fig. 3",
            "low-rank attention, heads of dimension 64, for H = 1, 4, 16, and the limits",
            Densities(tuple(map(_lowrank, (1, 4, 16))), reach=10.0),
        ),
        Figure(
            "relu",
            "Fig. 1 with ReLU",
            "Fig. 1 (A) and (B) with ReLU in place of clipping",
            Together(
                {"densities": Densities(_cases("attention_relu", 2)), "kl": Convergence(_cases("attention_relu", 2))}
            ),
        ),
    )
}


def make(figure: Figure, settings: Settings, out: Path, told: Any = None) -> dict[str, Any]:
    """Compute a figure and write it: tables first, pictures last; gives the content of the JSON file.

    Raises    ProgramError where files cannot be written, MissingPackageError without matplotlib
    """
    told = told or Listener()
    pictures = [f"{figure.name}{kind}" for kind in PICTURES]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for name in (*pictures, f"{figure.name}.json"):
        if (out / name).is_dir():
            raise fail(f"{out / name} cannot be written: is a directory", fix="choose another place with --out")
    data = figure.drawing.data(settings, told)
    tables = {f"{figure.name}_{key}".rstrip("_") + ".csv": csv_text(table) for key, table in data.tables.items()}
    found = {
        "figure": figure.name,
        "title": figure.title,
        "shows": figure.shows,
        "command": _command(figure, settings),
        **settings.numbers,
        "versions": _versions(),
        "files": [*pictures, *tables, f"{figure.name}.json"],
        "numbers": data.numbers,
        "summary": data.lines,
    }
    for name, text in (tables | {f"{figure.name}.json": json.dumps(_plain(found), indent=1) + "\n"}).items():
        with writing(out / name):
            (out / name).write_text(text, encoding="utf-8", newline="\n")
    told.stage(f"{figure.name}: drawing")
    for name in pictures:
        save(figure, data, out / name, "page")
    return found


def save(figure: Figure, data: Data, path: Path, style: str) -> None:
    """Write one picture of a figure from its data."""
    with writing(path):
        tp.plots.save(
            path, lambda axes: legend(axes, figure.drawing.draw(axes, data)), figure.drawing.panels, style=style
        )


def _command(figure: Figure, settings: Settings) -> str:
    options = (f"--{name} {value}" for name, value in settings.numbers.items())
    return " ".join(["tp paper", figure.name, *options])


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "scipy")}
    return {"tensorprog": tp.__version__, "python": platform.python_version()} | packages


def csv_text(table: Table) -> str:
    """Columns as comma-separated text, numbers to ten figures."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    columns = [np.asarray(values).tolist() for values in table.values()]
    writer.writerows(
        [f"{value:.10g}" if isinstance(value, float) else value for value in row] for row in zip(*columns, strict=True)
    )
    return stream.getvalue()


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite are null."""
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value

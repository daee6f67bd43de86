"""The files of a figure: pictures, tables beside them, and how to make them again."""

from __future__ import annotations

import csv
import io
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog import __version__
from tensorprog.language.errors import fail
from tensorprog.language.writing_files import json_text, write_text, writing
from tensorprog.paper.experiment import Data, Settings, Table
from tensorprog.paper.figures import Figure
from tensorprog.results.study import Listener
from tensorprog.show.plots import save

__all__ = ["make"]

WIDTH, MORE, HEIGHT = 7.2, 2.2, 3.6  # inches: two panels fill the width of two columns
PICTURES = (".png", ".svg")


def make(figure: Figure, settings: Settings, out: Path, told: Listener | None = None) -> dict[str, Any]:
    """Compute a figure and write it: tables first, pictures last; gives the content of the JSON file.

    Raises    ProgramError where files cannot be written, PlotsUnavailableError without matplotlib
    """
    told = told or Listener()
    pictures = [f"{figure.name}{kind}" for kind in PICTURES]
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    for name in (*pictures, f"{figure.name}.json"):
        if (out / name).is_dir():
            raise fail(f"{out / name} cannot be written: is a directory", fix="choose another place with --out")
    data = figure.drawing.data(settings, told)
    tables = {f"{figure.name}_{key}".rstrip("_") + ".csv": table for key, table in data.tables.items()}
    panels = figure.drawing.panels
    for name, table in tables.items():
        write_text(out / name, csv_text(table))
    found = {
        "figure": figure.name, "title": figure.title, "shows": figure.shows, "command": command(figure, settings),
        **asdict(settings), "versions": versions(), "files": [*pictures, *tables, f"{figure.name}.json"],
        "numbers": data.numbers, "summary": data.lines,
    }
    write_text(out / f"{figure.name}.json", json_text(found))
    told.stage(f"{figure.name}: drawing")
    for name in pictures:
        with writing(out / name):
            save(out / name, lambda axes: _draw(figure, axes, data), panels, WIDTH + MORE * (panels - 2), HEIGHT)
    return found


def _draw(figure: Figure, axes: list[Any], data: Data) -> None:
    """Panels, and one legend below them, where no data are."""
    handles = figure.drawing.draw(axes, data)
    columns = next(k for k in range(1, len(handles) + 1) if -(-len(handles) // k) <= figure.rows)
    axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def command(figure: Figure, settings: Settings) -> str:
    """What makes the figure again."""
    options = (f"--{name} {value}" for name, value in asdict(settings).items())
    return " ".join(["tp paper", figure.name, *options])


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    packages = {name: version(name) for name in ("numpy", "scipy")}
    return {"tensorprog": __version__, "python": platform.python_version()} | packages


def csv_text(table: Table) -> str:
    """Columns as comma-separated text, numbers to ten figures."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    columns = [np.asarray(values).tolist() for values in table.values()]
    writer.writerows([f"{value:.10g}" if isinstance(value, float) else value for value in row]
                     for row in zip(*columns, strict=True))
    return stream.getvalue()

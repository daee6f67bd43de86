"""What `tp plot` draws: figures from the folders that commands have written, and nothing computed anew but histograms.

A folder is told by its files: report.json of `tp run`, depth.json of `tp depth`, <figure>.json of `tp paper`.
"""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, TensorprogError, did_you_mean, fail
from tensorprog.language.formats import label, name_of
from tensorprog.results.comparison import MAX_MEMBERS, Comparison, Row
from tensorprog.results.limit_density import LimitDensity

__all__ = ["FIGURES", "Wish", "saved_figures"]

Array = NDArray[Any]
Save = Callable[[Path, str], None]  # writes one figure to a path, in a style
FIGURES = ("density", "convergence", "covariance")  # of a run
SCALES = ("linear", "log")
MOST = 1 << 24  # draws of one variable that are read
OTHERS = ("variable", "samples", "effective", "kl_method")
STATISTICS = tuple(entry.name for entry in fields(Row) if entry.name not in OTHERS)


@dataclass(frozen=True)
class Wish:
    """Which variable is drawn, or for covariances which family, and which panels; by default the first, and all."""

    variable: str | None = None
    panels: tuple[str, ...] = ()


def saved_figures(
    folder: Path, what: Sequence[str], wish: Wish, told: Callable[[str], None] = lambda text: None
) -> dict[str, Save]:
    """The figures wanted of a folder by name, each ready to be written; without wishes all that there are.

    `told` hears which figures cannot be drawn, where others can.

    Raises    ProgramError if the folder is none that was written here, or a figure cannot be drawn from it
    """
    known = _offered(folder)
    unknown = [name for name in what if name not in known]
    if unknown:
        raise fail(
            f"{folder} has no figure {unknown[0]}",
            fix=did_you_mean(unknown[0], list(known)).replace("known names", "figures there"),
        )
    found = {}
    for name in what or known:
        try:
            with _as_written(folder):
                found[name] = _checked(folder, known[name](wish))
        except ProgramError as error:
            if what or wish != Wish():
                raise
            told(f"no figure {name}: {error}")
    if not found:
        raise fail(f"no figure can be drawn from {folder}", fix="tp plot FOLDER --what density says why")
    return found


@contextmanager
def _as_written(folder: Path) -> Iterator[None]:
    """What does not look as commands write it is an error of the folder."""
    try:
        yield
    except TensorprogError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise fail(
            f"what {folder} holds was not written by tensorprog, or was changed: {error!r}",
            fix="the command that wrote it again",
        ) from error


def _checked(folder: Path, save: Save) -> Save:
    def checked(path: Path, style: str) -> None:
        with _as_written(folder):
            save(path, style)

    return checked


def _offered(folder: Path) -> dict[str, Callable[[Wish], Save]]:
    """What can be asked of a folder."""
    if not folder.is_dir():
        raise fail(f"there is no folder {folder}", fix="tp run FILE writes one")
    if (folder / "report.json").is_file():
        run = _Run(folder, _read(folder / "report.json", "finite"))
        return {"density": run.density, "convergence": run.convergence, "covariance": run.covariance}
    if (folder / "depth.json").is_file():
        return {"depth": lambda wish: _depth(_read(folder / "depth.json", "profiles"), wish)}
    if (folder / "sweep.nc").is_file():
        raise fail(
            f"{folder} is the folder of a sweep, whose pictures `tp sweep` draws itself",
            fix="the command of the sweep again: it draws no networks that are on disk",
        )
    paper = _paper(folder)
    if paper:
        return paper
    raise fail(
        f"{folder} holds nothing to draw: there is no report.json, depth.json or figure of the paper in it",
        fix="name a folder that tp run, tp depth or tp paper has written",
    )


def _read(path: Path, key: str) -> dict[str, Any]:
    """A JSON file that has this key."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise fail(f"{path} cannot be read: {error}", fix="the command that wrote it again") from None
    if not isinstance(found, dict) or key not in found:
        raise fail(f"{path} was not written by tensorprog: it has no {key!r}", fix="name another folder")
    return found


# ---- a run -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """The folder of `tp run`."""

    folder: Path
    found: Mapping[str, Any] = field(repr=False)

    @cached_property
    def finite(self) -> list[Mapping[str, Any]]:
        """What is known of each width."""
        if not self.found["finite"]:
            raise fail(f"no width is complete in {self.folder}", fix="the command of the run again")
        return list(self.found["finite"])

    def _place(self, variable: str | None) -> tuple[str, str, int]:
        """A variable, its family and its position in it."""
        outputs = self.finite[0]["outputs"]
        labels = {
            label(name, index): (name, k) for name, entry in outputs.items() for k, index in enumerate(entry["index"])
        }
        wanted = next(iter(labels)) if variable is None else name_of(variable)
        if wanted not in labels:
            raise fail(f"{wanted} is not a variable of {self.folder}", fix=did_you_mean(wanted, list(labels)))
        return wanted, *labels[wanted]

    # -- densities ----------------------------------------------------------------------------------------------

    def density(self, wish: Wish) -> Save:
        """Networks of each width, beside the limit."""
        from tensorprog.show import plots

        variable, name, position = self._place(wish.variable)
        scales = _chosen(wish.panels, SCALES) or SCALES
        if len(set(scales)) < len(scales):
            raise fail("--panel names a scale twice", fix="--panel linear --panel log")
        limit = self._limit(variable)
        draws = [(f"n = {entry['width']}", self._draws(entry, name, position)) for entry in self.finite]
        scale = "both" if len(scales) == len(SCALES) else scales[0]
        return lambda path, style: plots.save(
            path, lambda axes: plots.density_of(draws, variable, limit, axes, scale), len(scales), style=style
        )

    def _limit(self, variable: str) -> LimitDensity | None:
        """The limit of a variable; None where the run had none."""
        saved = self.found.get("densities", {})
        if variable in saved:
            return LimitDensity.of_json(saved[variable])
        if self.found["limit"] is None or "limit_refused" in self.found:
            return None
        if not saved:
            raise fail(
                f"{self.folder}/report.json has no density of the limit: the run was stopped, or an earlier "
                "version wrote it",
                fix="the command of the run again",
            )
        raise fail(
            f"the density of {variable} in the limit was not saved, only that of {', '.join(saved)}",
            fix=f"--variable '{next(iter(saved))}'",
        )

    def _draws(self, entry: Mapping[str, Any], name: str, position: int) -> Array:
        """Draws of a member at one width, from samples.npz or from the folder of streamed samples."""
        about = entry["outputs"][name]
        width, size = entry["width"], int(about.get("members", len(about["index"])))
        packed, streamed = self.folder / "samples.npz", self.folder / "samples" / f"n{width}" / f"{name}.npy"
        try:
            if streamed.is_file():
                array = np.load(streamed, mmap_mode="r", allow_pickle=False)
            elif packed.is_file():
                with packed.open("rb") as stream, np.load(stream, allow_pickle=False) as held:
                    array = held[f"{name}_n{width}"]
            else:
                raise fail(
                    f"there are no samples in {self.folder}: neither samples.npz nor {streamed}",
                    fix="the command of the run again",
                )
            flat = array.reshape(len(array), -1, size)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            where = streamed if streamed.is_file() else packed
            raise fail(
                f"{name} at n = {width} cannot be read from {where}: {error}", fix="the command of the run again"
            ) from None
        return np.asarray(flat[: max(1, MOST // flat.shape[1]), :, position], dtype=np.float64)

    # -- convergence --------------------------------------------------------------------------------------------

    def convergence(self, wish: Wish) -> Save:
        """Distances from the limit over the widths; without a limit the statistics."""
        from tensorprog.show import plots

        variable, _, _ = self._place(wish.variable)
        comparisons = [self._comparison(entry) for entry in self.finite]
        limited = comparisons[0].reference != "nothing"
        names = plots.DISTANCES | plots.TOGETHER | plots.STATISTICS if limited else plots.STATISTICS
        panels = _chosen(wish.panels, names) or tuple(plots.DISTANCES if limited else plots.STATISTICS)
        first_order = self.found.get("first_order", {}).get(variable)
        if variable not in {row.variable for row in comparisons[0].rows}:
            raise fail(f"{variable} was not compared: of large families the first {MAX_MEMBERS} members are")
        return lambda path, style: plots.save(
            path,
            lambda axes: plots.convergence(comparisons, variable, axes, panels, first_order),
            len(panels),
            style=style,
        )

    def _comparison(self, entry: Mapping[str, Any]) -> Comparison:
        """The rows of one width, as far as they were saved."""
        rows = [
            self._row(entry, name, k)
            for name, about in entry["outputs"].items()
            for k in range(min(len(about["index"]), MAX_MEMBERS))
        ]
        known = any(about["kl"] is not None for about in entry["outputs"].values())
        return Comparison(tuple(rows), int(entry["width"]), "limit" if known else "nothing", self.found["program"])

    def _row(self, entry: Mapping[str, Any], name: str, position: int) -> Row:
        about = entry["outputs"][name]
        numbers: dict[str, Any] = {key: _number(about[key], position) for key in STATISTICS if key in about}
        limit = ((self.found["limit"] or {}).get("outputs") or {}).get(name) or {}
        for key in ("kurtosis", "kurtosis_error"):
            numbers[f"limit_{key}"] = _number(limit.get(key), position)
        return Row(label(name, about["index"][position]), int(entry["samples"]), math.nan, **numbers)

    # -- covariances --------------------------------------------------------------------------------------------

    def covariance(self, wish: Wish) -> Save:
        """The covariance of a family in the limit."""
        from tensorprog.show import plots

        if wish.panels:
            raise fail("the picture of a covariance has no panels to choose from", fix="without --panel")
        limit = self.found["limit"]
        if limit is None or "limit_refused" in self.found:
            raise fail(f"there is no limit in {self.folder}: {self.found.get('limit_refused', 'none is claimed')}")
        families = {**limit["outputs"], **limit["scores"]}
        name = next(iter(families)) if wish.variable is None else name_of(wish.variable).partition("[")[0]
        if name not in families:
            raise fail(f"{name} is not a family of the limit in {self.folder}", fix=did_you_mean(name, list(families)))
        matrix, index = families[name].get("cov"), families[name].get("index")
        if matrix is None:
            raise fail(f"the covariance of {name} was not saved: it has too many members, or the limit refused it")
        names = [label(name, member) for member in index]
        values = np.array(matrix, dtype=np.float64)
        return lambda path, style: plots.save(
            path, lambda axes: plots.matrix_of(values, names, name, axes[0]), 1, style=style
        )


def _number(values: Any, position: int) -> float:
    """One number of a list; nan where there is none."""
    value = None if values is None else values[position]
    return math.nan if value is None else float(value)


def _chosen(wanted: Sequence[str], known: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """The panels named.

    Raises    ProgramError
    """
    for name in wanted:
        if name not in known:
            raise fail(
                f"there is no panel {name} in this figure",
                fix=did_you_mean(name, list(known)).replace("known names", "panels"),
            )
    return tuple(wanted)


# ---- depth profiles and the paper ------------------------------------------------------------------------------------


def _depth(found: Mapping[str, Any], wish: Wish) -> Save:
    """The picture of `tp depth`."""
    from tensorprog.jobs.depths.pictures import save_picture

    if wish != Wish():
        raise fail("the figure of depth shows all quantities of its family", fix="without --variable and --panel")
    return lambda path, style: save_picture(path, found, style)


def _paper(folder: Path) -> dict[str, Callable[[Wish], Save]]:
    """Figures of the paper whose tables are in a folder."""
    from tensorprog.shipped import paper_figures

    names = {path.stem for path in folder.glob("*.json")}
    if not names:
        return {}
    example = paper_figures()
    return {
        name: lambda wish, figure=figure: _of_the_paper(folder, example, figure, wish)  # type: ignore[misc]
        for name, figure in example.FIGURES.items()
        if name in names
    }


def _of_the_paper(folder: Path, example: Any, figure: Any, wish: Wish) -> Save:
    if wish != Wish():
        raise fail("figures of the paper are drawn as they are", fix="without --variable and --panel")
    found = _read(folder / f"{figure.name}.json", "numbers")
    tables = {}
    for name in (name for name in found["files"] if name.endswith(".csv")):
        tables[name.removesuffix(".csv").removeprefix(figure.name).removeprefix("_")] = _table(folder / name)
    data = example.Data(tables, found["numbers"])
    return lambda path, style: example.save(figure, data, path, style)


def _table(path: Path) -> dict[str, Array]:
    """The columns of a file of comma-separated numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(stream)
        columns = {name: np.array([float(row[k]) for row in rows]) for k, name in enumerate(header)}
    except (OSError, ValueError, IndexError) as error:
        raise fail(f"{path} cannot be read: {error}", fix="tp paper again") from None
    return columns

"""What a depth profile found, an xarray.Dataset: how it is made, its tables and depth.png."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tensorprog.blocks import Block, Grid, Paragraph, paragraph
from tensorprog.jobs.choices import Choice, choices_of, said
from tensorprog.jobs.depths.quantities import LONG_NAMES, Curves
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.errors import need_package
from tensorprog.language.formats import BRACKETS, quantity
from tensorprog.language.samples import program_text
from tensorprog.show import plots
from tensorprog.version import libraries

__all__ = ["dataset", "part", "save_picture", "summary", "tables"]

ROWS = 12  # of layers in a table
EXACT = 1e-9  # relative errors below it are not shown
WIDELY = 30.0  # numbers whose ratio is larger stand on a log axis
SIGNS = 8  # markers along a curve of networks, about
HEADINGS = {
    "variance": "variance",
    "token_correlation": "correlation",
    "effective_rank": "rank",
    "attention_entropy": "entropy",
    "kurtosis": "kurtosis",
    "gradient_norm": "gradient",
}


def summary(name: str, report: Any) -> Paragraph:
    """The grade of a program's limit in a line, and what rests on a conjecture."""
    guessed = [claim.name for claim in report.claims if claim.standing == "conjecture"]
    more = (f"; rests on a conjecture: {', '.join(guessed)}",) if guessed else ()
    return paragraph(name, ": ", *report.summary.words, *more)


# ---- the Dataset ----------------------------------------------------------------------------------------------------


def part(place: dict[str, Any], layers: tuple[int, ...], curves: Curves, ends: tuple[str, str]) -> Any:
    """The quantities of one choice of constants, and of one width, with their errors, as a Dataset."""
    columns = {
        name + end: ("layer", one, {"long_name": LONG_NAMES[name], "units": "1"})
        for name, both in curves.items()
        for end, one in zip(ends, both, strict=True)
    }
    found = need_package("xarray", "depth profiles", "sweep").Dataset(columns, {"layer": list(layers)})
    return found.expand_dims({name: [value] for name, value in place.items()})


def dataset(question: Question, variants: list[Variant], parts: list[Any], attributes: dict[str, Any]) -> Any:
    """An xarray.Dataset over the constants and the layer; of networks, over the width too; nan where there is none.

    Shapes    NAME and NAME_error (*constants, layer); NAME_finite and NAME_finite_se (*constants, width, layer)
    """
    merge = need_package("xarray", "depth profiles", "sweep").merge
    over = {name: list(dict.fromkeys(each.values[name] for each in variants)) for name in variants[0].values}
    found = merge(parts, join="outer", compat="no_conflicts").reindex(over)
    found["layer"].attrs["long_name"] = f"layer, the index {question.index}"
    found.attrs = {
        "title": f"{question.base.name}: {question.axes.name} over the index {question.index}",
        "program_name": question.base.name,
        "program": program_text(question.base),
        "family": question.axes.name,
        "index": question.index,
        "tokens": question.token,
        "versions": json.dumps(libraries()),
        **attributes,
    }
    return found


def _of(found: Any, choice: Choice) -> Iterator[tuple[int | None, Curves]]:
    """The limit of one choice of constants, as width None, if there is one, and the networks of each width."""
    at = found.sel(choice)
    limit = {name: (at[name].values, at[f"{name}_error"].values) for name in LONG_NAMES if name in found}
    limit = {name: both for name, both in limit.items() if np.isfinite(both[0]).any()}
    if limit:
        yield None, limit
    for width in found["width"].values.tolist() if "width" in found else ():
        one = at.sel(width=width)
        names = [name for name in LONG_NAMES if f"{name}_finite" in found]
        yield width, {name: (one[f"{name}_finite"].values, one[f"{name}_finite_se"].values) for name in names}


# ---- tables ---------------------------------------------------------------------------------------------------------


def tables(found: Any, report: Any) -> list[Block]:
    """The grade first, then layers of the only choice of constants, or the last layer of all of them."""
    about, choices, layers = found.attrs, choices_of(found, ("layer", "width")), found["layer"].values.tolist()
    single, several, title = len(choices) == 1, "width" in found, f"at {about['index']} = {layers[-1]}"
    names = [name for name in LONG_NAMES if name in found or f"{name}_finite" in found]
    keys, shown = list(choices[0]), [-1]
    if single:  # up to ROWS of them, dense at first
        places = np.geomspace(1, len(layers), ROWS) if len(layers) > ROWS else np.arange(1.0, len(layers) + 1)
        keys, shown, title = [about["index"]], sorted({round(float(k)) - 1 for k in places}), f"over {about['index']}"
    rows, marked, exact = list[tuple[str, ...]](), list[int](), True
    for choice, layer in product(choices, shown):
        head = [str(layers[layer])] if single else [f"{value:g}" for value in choice.values()]
        for width, curves in _of(found, choice):
            numbers = [_number(*(part[layer] for part in curves[name])) if name in curves else "-" for name in names]
            if width is None:
                exact &= not any(np.any(error > EXACT * np.abs(value)) for value, error in curves.values())
                marked += [len(rows)] if several else []
            rows.append((*head, *(["limit" if width is None else str(width)] if several else []), *numbers))
            head = [""] * len(head)
    slots = ",".join(filter(None, (about["index"], about["tokens"])))
    header = (*keys, *(["n"] if several else []), *(HEADINGS[name] for name in names))
    notes = [] if exact else [f"limit: {about['draws']:,} draws of the scores, in brackets 99.9 % bounds of errors"]
    notes += [f"networks: {about['samples']:,} of each width, {BRACKETS}"] if several else []
    refused = json.loads(about.get("no_limit", "{}"))
    further = [paragraph(f"no limit{f' with {choice}' if choice else ''}: {why}") for choice, why in refused.items()]
    further += [paragraph(f"no limit of gradients: {about['no_gradients']}")] if "no_gradients" in about else []
    grid = Grid(
        f"{about['program_name']}: {about['family']}[{slots}] {title}",
        header,
        tuple(rows),
        "; ".join(notes),
        tuple(marked),
        tuple(range(len(keys))),
    )
    return [summary(about["program_name"], report), grid, *further]


def _number(value: float, error: float) -> str:
    return quantity(float(value), 0.0 if error < EXACT * abs(value) else float(error))


# ---- the picture ----------------------------------------------------------------------------------------------------


def save_picture(path: Path, found: Any) -> None:
    """A panel for each quantity: curves over the layers, or a map of the last one over two constants.

    Raises    MissingPackageError without matplotlib
    """
    names = [name for name in LONG_NAMES if name in found or f"{name}_finite" in found]
    mapped = sum(size > 1 for key, size in found.sizes.items() if key not in ("layer", "width")) == 2

    def draw(axes: Any) -> None:
        for name, ax in zip(names, axes, strict=True):
            if mapped and name in found:
                found[name].isel(layer=-1).squeeze().plot(ax=ax, cbar_kwargs={"label": LONG_NAMES[name]})
                ax.set_title("")
            else:
                _curves(ax, found, name)
        plots.legend([ax for ax in axes if ax.lines])

    plots.save(path, draw, len(names))


def _curves(ax: Any, found: Any, name: str) -> None:
    choices, x = choices_of(found, ("layer", "width")), found["layer"].values
    step = slice(None, None, max(1, len(x) // SIGNS))
    for choice, shade in zip(choices, plots.colours(len(choices)), strict=True):
        name_of = said(choice)
        for number, (width, curves) in enumerate(_of(found, choice)):
            value, error = curves.get(name, (np.full(len(x), np.nan),) * 2)
            if width is None:
                ax.fill_between(x, value - error, value + error, color=shade, alpha=0.18, linewidth=0)
                ax.plot(x, value, color=shade, label=name_of or "limit")
            else:
                label = ", ".join(filter(None, [f"n = {width}", name_of]))
                look = {"elinewidth": 0.7, "marker": plots.MARKERS[number % len(plots.MARKERS)], "color": shade}
                ax.errorbar(
                    x[step], value[step], yerr=np.nan_to_num(error[step]), linestyle="none", label=label, **look
                )
    seen = np.concatenate([line.get_ydata() for line in ax.lines])
    if np.nanmin(seen) > 0 and np.nanmax(seen) > WIDELY * np.nanmin(seen):
        ax.set_yscale("log")
    plots.frame(ax, f"layer {found.attrs['index']}", LONG_NAMES[name])

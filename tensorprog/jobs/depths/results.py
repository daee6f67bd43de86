"""What a depth profile found, an xarray.Dataset: how it is made, its tables, and depth.json."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorprog.blocks import Block, Grid, Paragraph, paragraph
from tensorprog.finite.workers import libraries
from tensorprog.jobs.depths.profile import Curves
from tensorprog.jobs.depths.quantities import LONG_NAMES, QUANTITIES
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.errors import need_xarray
from tensorprog.language.formats import BRACKETS, quantity
from tensorprog.language.samples import program_text
from tensorprog.results.study import constants_json

__all__ = ["dataset", "depth_json", "summary", "tables"]

ROWS = 12  # of layers in a table
EXACT = 1e-9  # relative errors below it are not shown
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


def dataset(
    question: Question,
    limit: Mapping[Variant, Curves],
    finite: Mapping[tuple[Variant, int], Curves],
    attributes: Mapping[str, Any],
) -> Any:
    """An xarray.Dataset over the constants and the layer; of networks, over the width too; nan where there is none.

    Shapes    NAME and NAME_error (*constants, layer); NAME_finite and NAME_finite_se (*constants, width, layer)
    """
    over, widths = question.over, sorted({width for _, width in finite})
    constants, layers = tuple(len(values) for values in over.values()), len(question.layers)
    place = {
        each: tuple(values.index(dict(each.values)[name]) for name, values in over.items())
        for each in question.variants
    }
    data: dict[str, Any] = {}

    def put(key: str, axes: tuple[str, ...], shape: tuple[int, ...], where: Any, numbers: Any, name: str) -> None:
        if key not in data:
            data[key] = (axes, np.full(shape, math.nan), {"long_name": LONG_NAMES[name], "units": "1"})
        data[key][1][where] = numbers

    held = {name for found in (*limit.values(), *finite.values()) for name in found.values}
    for name in (name for name in QUANTITIES if name in held):
        for each, found in limit.items() if any(name in part.values for part in limit.values()) else ():
            for key, part in ((name, found.values), (f"{name}_error", found.errors)):
                put(key, (*over, "layer"), (*constants, layers), place[each], part.get(name, math.nan), name)
        for (each, width), found in finite.items():
            where = (*place[each], widths.index(width))
            for key, part in ((f"{name}_finite", found.values), (f"{name}_finite_se", found.errors)):
                shape = (*constants, len(widths), layers)
                put(key, (*over, "width", "layer"), shape, where, part.get(name, math.nan), name)
    coordinates: dict[str, Any] = {name: (name, np.array(values)) for name, values in over.items()}
    coordinates["layer"] = ("layer", np.array(question.layers), {"long_name": f"layer, the index {question.index}"})
    if widths:
        coordinates["width"] = ("width", np.array(widths), {"long_name": "width n"})
    about = {
        "title": f"{question.base.name}: {question.axes.name} over the index {question.index}",
        "program_name": question.base.name,
        "program": program_text(question.base),
        "family": question.axes.name,
        "versions": json.dumps(libraries()),
    }
    return need_xarray("depth profiles").Dataset(data, coordinates, about | dict(attributes))


def _names(found: Any) -> list[str]:
    return [name for name in QUANTITIES if name in found or f"{name}_finite" in found]


def _of(found: Any, choice: Variant) -> Iterator[tuple[int | None, dict[str, tuple[Any, Any]]]]:
    """The limit of one choice of constants, as width None, and the networks of each width: value and error by name."""
    at = found.sel(dict(choice.values))
    limit = {name: (at[name].values, at[f"{name}_error"].values) for name in _names(found) if name in found}
    yield None, {name: both for name, both in limit.items() if np.isfinite(both[0]).any()}
    for width in found["width"].values.tolist() if "width" in found else ():
        one = at.sel(width=width)
        names = [name for name in _names(found) if f"{name}_finite" in found]
        yield width, {name: (one[f"{name}_finite"].values, one[f"{name}_finite_se"].values) for name in names}


def tables(question: Question, report: Any, found: Any) -> list[Block]:
    """The grade first, then layers of the only choice of constants, or the last layer of all of them."""
    single, names = len(question.variants) == 1, _names(found)
    last, several = len(question.layers) - 1, "width" in found
    shown = [(choice, k) for choice in question.variants for k in (_spread(last + 1) if single else [last])]
    rows, marked = list[tuple[str, ...]](), list[int]()
    for choice, layer in shown:
        head = [str(question.layers[layer])] if single else [f"{value:g}" for _, value in choice.values]
        for width, curves in _of(found, choice):
            if width is None and not curves:
                continue
            numbers = [_number(*(part[layer] for part in curves[n])) if n in curves else "-" for n in names]
            if width is None and several:
                marked.append(len(rows))
            who = ["limit" if width is None else str(width)] if several else []
            rows.append((*head, *who, *numbers))
            head = [""] * len(head)
    slots = [question.index, *([question.token] if question.token else [])]
    title = f"{question.base.name}: {question.axes.name}[{','.join(slots)}] "
    title += f"over {question.index}" if single else f"at {question.index} = {question.layers[-1]}"
    keys = [question.index] if single else list(question.over)
    header = (*keys, *(["n"] if several else []), *(HEADINGS[name] for name in names))
    notes = []
    if any(
        np.any(error > EXACT * np.abs(value))
        for choice in question.variants
        for width, curves in _of(found, choice)
        if width is None
        for value, error in curves.values()
    ):
        notes.append(f"limit: {found.attrs['draws']:,} draws of the scores, in brackets 99.9 % bounds of errors")
    notes += [f"networks: {found.attrs['samples']:,} of each width, {BRACKETS}"] if several else []
    refused = {**json.loads(found.attrs.get("no_limit", "{}"))}
    said = [paragraph(f"no limit{f' with {choice}' if choice else ''}: {why}") for choice, why in refused.items()]
    if "no_gradients" in found.attrs:
        said.append(paragraph(f"no limit of gradients: {found.attrs['no_gradients']}"))
    text = tuple(range(len(keys)))
    return [
        summary(question.base.name, report),
        Grid(title, header, tuple(rows), "; ".join(notes), tuple(marked), text_columns=text),
        *said,
    ]


def _number(value: float, error: float) -> str:
    """A number with its error; six figures of one that is known far better."""
    return quantity(float(value), 0.0 if error < EXACT * abs(value) else float(error))


def _spread(count: int) -> list[int]:
    """Positions of up to ROWS of so many layers, dense at first, the last among them."""
    if count <= ROWS:
        return list(range(count))
    return sorted({round(float(k)) - 1 for k in np.geomspace(1, count, ROWS)})


def depth_json(question: Question, report: Any, found: Any) -> dict[str, Any]:
    """The content of depth.json."""
    refused = json.loads(found.attrs.get("no_limit", "{}"))
    profiles = []
    for choice in question.variants:
        entry: dict[str, Any] = {"constants": dict(choice.values)}
        for width, curves in _of(found, choice):
            numbers = {name: {"value": value, "error": error} for name, (value, error) in curves.items()}
            if width is None:
                entry["limit"] = numbers or None
            else:
                entry.setdefault("finite", []).append({"width": width, **numbers})
        if str(choice) in refused:
            entry["limit_refused"] = refused[str(choice)]
        profiles.append(entry)
    kept = ("draws", "seed", "samples", "gradients_grade", "no_gradients")
    return {
        "program": question.base.name,
        "constants": constants_json(question.base),
        "assumptions": report.to_json(),
        "family": question.axes.name,
        "index": question.index,
        "tokens": question.tokens,
        "layers": list(question.layers),
        **{key: found.attrs[key] for key in kept if key in found.attrs},
        "profiles": profiles,
    }

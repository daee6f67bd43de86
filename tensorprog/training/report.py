"""What `tp.train` found: remarks on lines that are not flat, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.language.formats import BRACKETS, quantity

__all__ = ["SIZES", "remarks", "tables"]

Array = NDArray[Any]
SIZES = {  # of the coordinates of a family: in words, and the two factors of the average at a step
    "size": ("mean absolute value", "abs(now)", "one"),
    "second_moment": ("mean square", "now", "now"),
    "change": ("mean absolute change since step 0", "abs(now - first)", "one"),
}
SURE = 4.0  # standard errors
STEEP = 0.1  # a power of n that is told
ZERO = 1e-12
TINY, LARGE = 1e-6, 1e-3  # errors beside sizes at the start: within which 0 is known, and that are told
CLEAR = 0.1  # an error beside a size, from which on it is not resolved


def remarks(found: Any) -> list[str]:
    """Sentences on the lines that are not flat in the width: what the limit says of them, or how they grow."""
    widths = found["width"].values.tolist() if "width" in found else []
    if "size" in found:
        lines = (_vanishing(found, "size", widths), _vanishing(found, "change", widths), _unresolved(found))
        return [*chain(*lines), *_distances(found, widths)]
    return list(_growing(found, widths)) if len(widths) > 1 else []


def _vanishing(found: Any, what: str, widths: list[int]) -> Iterator[str]:
    """What is known to be 0 in the limit, though it is not in networks."""
    value, error = found[what].values, found[f"{what}_error"].values
    zero = (abs(value) <= error + ZERO) & (error <= TINY * found["size"].values[0].max())
    verb = "is" if what == "size" else "does not move"
    for k, name in enumerate(found["family"].values):
        steps = [t for t in found["step"].values if zero[t, k] and (what == "size" or t)]
        if what == "change" and len(steps) < len(found["step"]) - 1:
            continue  # moves later
        slopes = [_slope(found, what, t, k) for t in steps] if len(widths) > 1 else []
        known = next((f", here as n**{quantity(*slope)}" for slope in slopes if math.isfinite(slope[0])), "")
        if steps and what == "change":
            yield f"{name} {verb} in the limit; what it moves in networks falls with n{known}."
        elif steps:
            told = f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(map(str, steps))}"
            yield f"{name} {verb} 0 in the limit at {told}: its line falls with n{known}, and is not flat."


def _blurred(found: Any) -> Array:
    """Where limits have errors that leave open what they are. Shapes: (step, family)."""
    value, error = found["size"].values, found["size_error"].values
    return np.asarray((error > CLEAR * abs(value)) & (error > LARGE * value[0].max()))


def _unresolved(found: Any) -> Iterator[str]:
    """The first step with limits of which little is known."""
    for step, family in np.argwhere(_blurred(found))[:1]:
        number = quantity(found["size"].values[step, family], found["size_error"].values[step, family])
        yield (
            f"The limit of {found['family'].values[family]} is not resolved at step {step}, where it is {number}: "
            "training may diverge. From there on networks are not compared with it."
        )


def _distances(found: Any, widths: list[int]) -> Iterator[str]:
    """How far networks are from the limit where it is not 0: the farthest, and what does not come nearer."""
    if not widths:
        return
    limit, error = found["size"].values, found["size_error"].values
    drawn, spread = found["size_finite"].values, found["size_finite_se"].values
    away, noise = np.abs(drawn - limit), SURE * spread + error
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(np.abs(limit) > error + ZERO, away / np.abs(limit), 0.0)
    part[:, np.logical_or.accumulate(_blurred(found).any(axis=1))] = 0.0
    step, family = (int(k) for k in np.unravel_index(np.argmax(part[-1]), limit.shape))
    name, percents = found["family"].values[family], [f"{100 * each:.2g} %" for each in part[:, step, family]]
    told = " and ".join(f"{each} at n = {n}" for each, n in zip(percents, widths, strict=True))
    yield f"Sizes differ from their limits, noise included, at most as that of {name} at step {step}: {told}."
    farther = np.argwhere((away[-1] > noise[-1]) & (away[-1] - noise[-1] > away[0]) & (part[-1] > 0))
    for step, family in farther if len(widths) > 1 else ():
        yield (
            f"{found['family'].values[family]} does not come nearer to its limit at step {step}: this is no effect of "
            "finite widths."
        )


def _growing(found: Any, widths: list[int]) -> Iterator[str]:
    """The powers of n with which sizes grow or fall where there is no limit."""
    grown = False
    for k, name in enumerate(found["family"].values):
        for t in found["step"].values:
            slope, error = _slope(found, "size", t, k)
            if abs(slope) > max(STEEP, SURE * error):
                verb, grown = ("grows", True) if slope > 0 else ("falls", grown)
                power = f"n**{quantity(slope, error)}"
                yield f"{name} {verb} with n at step {t}, from n = {widths[0]} to {widths[-1]} as {power}."
                break
    if grown:
        yield "Which learning rates are too large, and what to write instead: tp exponents, tp.exponents(P, lr, rates)."


def _slope(found: Any, what: str, step: int, family: int) -> tuple[float, float]:
    """The power of n from the first width to the last, with its standard error."""
    n, value = found["width"].values, found[f"{what}_finite"].values[:, step, family]
    spread = found[f"{what}_finite_se"].values[:, step, family]
    if not (value > 0).all():
        return math.nan, math.nan
    log = math.log(n[-1] / n[0])
    error = math.hypot(spread[0] / value[0], spread[-1] / value[-1]) / log
    return math.log(value[-1] / value[0]) / log, error


def _rows(found: Any, name: str, place: dict[str, Any]) -> Iterator[tuple[str, Array, Array]]:
    """Values and errors over steps, at each width and in the limit."""
    for n in found["width"].values.tolist() if "width" in found else ():
        one = found.sel(width=n).isel(place)
        yield str(n), one[f"{name}_finite"].values, one[f"{name}_finite_se"].values
    if name in found:
        yield "limit", found[name].isel(place).values, found[f"{name}_error"].isel(place).values


def tables(found: Any) -> list[Block]:
    """Losses, sizes and changes of each family, step by step; remarks below."""
    steps, name = [str(t) for t in found["step"].values], found.attrs["program_name"]
    result: list[Block] = []
    note = f"networks: {found.attrs['samples']:,} of each width, {BRACKETS}; limit: errors of the last digits"
    for what in ("loss", "size", "change"):
        rows, marked, sections = list[tuple[str, ...]](), list[int](), list[int]()
        members = [(what, {})] if what == "loss" else [(f, {"family": k}) for k, f in enumerate(found["family"].values)]
        for title, place in members:
            for number, (n, value, error) in enumerate(_rows(found, what, place)):
                marked += [len(rows)] if n == "limit" else []
                cells = ("0" if v == 0 and not e > 0 else quantity(v, e) for v, e in zip(value, error, strict=True))
                rows.append((str(title) if number == 0 else "", n, *cells))
            sections.append(len(rows) - 1)
        said = SIZES[what][0] if what in SIZES else "loss"
        header = ("" if what == "loss" else "family", "n", *(f"step {t}" for t in steps))
        grid = Grid(f"{name}: {said}", header, tuple(rows), note, tuple(marked), (0, 1), tuple(sections))
        result.append(grid)
    if "no_limit" in found.attrs:
        result.append(paragraph(f"There is no limit to compare with: {found.attrs['no_limit']}"))
    return [*result, *(paragraph(text) for text in json.loads(found.attrs["remarks"]))]

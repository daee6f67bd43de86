"""Covariances over the members of a family as pictures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, did_you_mean
from tensorprog.language.formats import label, members, name_of, short
from tensorprog.results.reference import Reference
from tensorprog.show.plots.axes import axes_of, plain

__all__ = ["INKS", "covariance"]

NUMBERED = 8  # members of a family up to which cells hold numbers
TICKS = 16  # names along an axis, at most
LARGEST = 1024  # members that can be told apart in a picture
INKS = DARK, LIGHT = "#111111", "#f4f4f4"  # on cells


def covariance(law: Any, name: str, ax: Any = None) -> Any:
    """Covariance matrix over the members of a family of the limit: outputs, scores, or any other vectors.

    Members stand in C order.  Small families have numbers in the cells; colours are centred at zero where there are
    negative covariances.

    Raises    ProgramError for a family that there is none of, or of more than 1024 members
    """
    reference = Reference.of(law, "covariance takes a law")
    family = reference.netsor.families.get(name_of(name))
    if family is None or family.kind == "weight":
        known = [key for key, value in reference.netsor.families.items() if value.kind != "weight"]
        raise ProgramError(f"{name} is not a family of {reference.netsor.name}; {did_you_mean(name, known)}")
    found = reference.covariance(name, LARGEST)
    if found is None:
        raise ProgramError(f"{name} has {math.prod(family.shape):,} members; pictures show up to {LARGEST:,}: read "
                           f"entries with law.cov({name!r}).at(I, J)")
    (panel,) = axes_of(ax, 1, 5.0, 4.2)
    image = _cells(panel, found[0])
    names = [label(name, index) for index in members(reference.netsor, name)]
    step = -(-len(names) // TICKS)
    places = range(0, len(names), step)
    shown = [plain(names[k]) for k in places]
    panel.set_xticks(places, shown, rotation=90 if len(shown) > NUMBERED or max(map(len, shown)) > 5 else 0)
    panel.set_yticks(places, shown)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    panel.figure.colorbar(image, ax=panel, label=f"covariance of {plain(name)} in the limit")
    return panel


def _cells(panel: Any, matrix: NDArray[np.float64]) -> Any:
    """The matrix in colours, with numbers where there is room."""
    largest = float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    signed = bool((matrix < -1e-9 * largest).any())
    image = panel.imshow(matrix, cmap="RdBu" if signed else "cividis", vmin=-largest if signed else 0.0, vmax=largest,
                         interpolation="nearest")
    if len(matrix) <= NUMBERED:
        red, green, blue, _ = np.moveaxis(image.to_rgba(matrix), -1, 0)
        light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18
        for i, j in np.ndindex(matrix.shape):
            value = matrix[i, j] if abs(matrix[i, j]) > 1e-12 * largest else 0.0
            panel.text(j, i, short(float(value)).replace("-", "\u2212"), ha="center", va="center", fontsize=9,
                       color=DARK if light[i, j] else LIGHT)
    return image

"""What a notebook shows of samples: names, axes and the first numbers of what is in memory; nothing is drawn for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.formats import BRACKETS, label, quantity
from tensorprog.show.markup import code, notebook, table

if TYPE_CHECKING:
    from tensorprog.language.samples import Samples

__all__ = ["show"]

LISTED = 4  # members of a family
WORK = 10_000_000  # numbers of one member that are looked at


def show(samples: Samples) -> str:
    """The samples as HTML."""
    whence = f"networks at n = {samples.width}, {samples.method}" if samples.width else "draws of the limit"
    coordinates = f", {samples.coordinates} coordinates of each" if samples.coordinates > 1 else ""
    title = f"{samples.netsor.name}: {samples.samples:,} {whence}{coordinates}, seed {samples.seed}"
    held: Mapping[str, Any] = getattr(samples.arrays, "held", samples.arrays)
    rows = [row for name in samples for row in _rows(samples, name, held.get(name))]
    rows += [row for name, values in samples.averages.items() for row in _averages(name, values)]
    header = ("variable", "what", "shape", "mean", "variance")
    return notebook(table(header, rows, title, text=(0, 1, 2), foot=BRACKETS))


def _rows(samples: Samples, name: str, array: Any) -> Iterator[tuple[Any, ...]]:
    family = samples.netsor.families[name]
    kind = "output" if name in samples.outputs else "score" if name in samples.scores else "kept"
    vector = samples.coordinates > 1 and family.kind == "vector"
    shape = (samples.samples, *((samples.coordinates,) if vector else ()), *family.shape)
    about = (f"{kind}, a {family.kind}", _shape(shape))
    known = isinstance(array, np.ndarray) and not isinstance(array, np.memmap)
    if not known or math.prod(shape[: 1 + vector]) > WORK:
        yield code(name), *about, "", ""
        return
    flat = array.reshape(samples.samples, shape[1] if vector else 1, -1)
    for k, index in enumerate(family.members(LISTED)):
        yield code(label(name, index)), *(about if k == 0 else ("", "")), *_statistics(flat[:, :, k])


def _averages(name: str, values: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    flat = np.asarray(values).reshape(len(values), 1, -1)
    yield code(name), "average", _shape(values.shape), *(_statistics(flat[:, :, 0]) if flat.shape[2] == 1 else ("", ""))


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _statistics(values: NDArray[Any]) -> tuple[str, str]:
    """Mean and variance with standard errors; networks are the independent unit.

    Shapes    values (samples, coordinates)
    """
    count, mean = len(values), float(values.mean())
    square = (values - mean) ** 2
    if count < 2:
        return quantity(mean), "-"
    errors = (float(part.mean(axis=1).std(ddof=1)) / math.sqrt(count) for part in (values, square))
    return quantity(mean, next(errors)), quantity(float(square.mean()), next(errors))

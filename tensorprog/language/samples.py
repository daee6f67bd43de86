"""`Samples`: named arrays of draws, of networks of finite width or of the limit."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, code
from tensorprog.blocks.html import Shown
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import UnknownNameError, WrongTypeError, did_you_mean, need_package
from tensorprog.language.files import whole, writing
from tensorprog.language.formats import BRACKETS, label, name_of, quantity, split
from tensorprog.language.ir import Netsor

LISTED = 4  # members of a family that are shown
WORK = 10_000_000  # numbers of one member that are looked at for it


def program_text(netsor: Netsor) -> str:
    """The program as a file, without what numbers do not depend on: tables, title, reference, run defaults."""
    from tensorprog.language.writing import pack

    return pack(replace(netsor, title="", reference="", run=(), train=()))[0]


@dataclass(frozen=True)
class Samples(Mapping[str, NDArray[Any]], Shown):
    """Draws of outputs, scores and kept variables by name.

    Shapes    a vector family (samples, *members), or (samples, coordinates, *members) if coordinates > 1; a scalar
              family (samples, *members); a member such as "y[0]" the same without the members
    """

    netsor: Netsor = field(repr=False)
    arrays: Mapping[str, NDArray[Any]] = field(repr=False)
    samples: int
    seed: int
    method: str
    width: int | None = None  # None for the limit
    coordinates: int = 1
    seconds: float = 0.0
    averages: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)  # (samples, *members) each
    psi: Mapping[str, str] = field(default_factory=dict, repr=False)  # {"m": "tanh(y[0])**2"}
    # mean and variance of outputs given all but the weights used last, in the shape of the output
    conditional: Mapping[str, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> NDArray[Any]:
        name = name_of(name)
        if name in self.arrays:
            return self.arrays[name]
        family, bracket, _ = name.partition("[")
        if bracket and family in self.arrays:
            family, position = split(self.netsor, name)
            place: Any = (..., *np.unravel_index(position, self.netsor.families[family].shape))
            return np.asarray(self.arrays[family][place])
        hint = f"pass keep=('{name}',)" if name in self.netsor.families else did_you_mean(str(name), list(self.arrays))
        raise UnknownNameError(f"{name} was not kept; {hint}")

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the program's outputs."""
        return self.netsor.outputs

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the Dots held."""
        dots = {s.target.name for s in self.netsor.body if type(s).__name__ == "Dot"}
        return tuple(name for name in self.arrays if name in dots and name not in self.netsor.outputs)

    def blocks(self) -> list[Block]:
        """Names, axes and the first numbers of what is in memory; nothing is drawn for it."""
        whence = f"networks at n = {self.width}, {self.method}" if self.width else "draws of the limit"
        coordinates = f", {self.coordinates} coordinates of each" if self.coordinates > 1 else ""
        title = f"{self.netsor.name}: {self.samples:,} {whence}{coordinates}, seed {self.seed}"
        held: Mapping[str, Any] = getattr(self.arrays, "held", self.arrays)
        rows = [row for name in self for row in self._rows(name, held.get(name))]
        for name, values in self.averages.items():
            numbers = _statistics(values.reshape(len(values), 1)) if values[0].size == 1 else ("", "")
            rows.append((code(name), "average", _shape(values.shape), *numbers))
        header = ("variable", "what", "shape", "mean", "variance")
        return [Grid(title, header, tuple(rows), BRACKETS, text_columns=(0, 1, 2))]

    def _rows(self, name: str, array: Any) -> Iterator[tuple[str, ...]]:
        """One row for each of the first members, or one for the family if its numbers are not at hand."""
        family = self.netsor.families[name]
        kind = "output" if name in self.outputs else "score" if name in self.scores else "kept"
        vector = self.coordinates > 1 and family.kind == "vector"
        shape = (self.samples, *((self.coordinates,) if vector else ()), *family.shape)
        about = (f"{kind}, a {family.kind}", _shape(shape))
        known = isinstance(array, np.ndarray) and not isinstance(array, np.memmap)
        if not known or math.prod(shape[: 1 + vector]) > WORK:
            yield code(name), *about, "", ""
            return
        flat = array.reshape(self.samples, shape[1] if vector else 1, -1)
        for k, index in enumerate(family.members(LISTED)):
            yield code(label(name, index)), *(about if k == 0 else ("", "")), *_statistics(flat[:, :, k])

    def to_dataframe(self) -> Any:
        """The draws as a pandas.DataFrame: one row for each network and coordinate, one column for each member.

        Raises    TensorprogError where pandas is not installed
        """
        pandas = need_package("pandas", "tables of samples", "sweep")
        rows = self.samples, self.coordinates
        columns: dict[str, NDArray[Any]] = {}

        def add(name: str, array: NDArray[Any], indices: Iterable[tuple[int, ...]], vector: bool) -> None:
            spread = array if vector else array[:, None]
            spread = np.broadcast_to(spread, (*rows, *spread.shape[2:])).reshape(math.prod(rows), -1)
            columns.update({label(name, index): spread[:, k] for k, index in enumerate(indices)})

        for name, array in self.items():
            family = self.netsor.families[name]
            add(name, np.asarray(array), family.members(), self.coordinates > 1 and family.kind == "vector")
        for target in self.psi:
            name, _, indices = target.rstrip("]").partition("[")
            spans = [range(*self.netsor.ranges[slot.strip()]) for slot in indices.split(",") if indices]
            add(name, self.averages[name], itertools.product(*spans), False)
        index = pandas.RangeIndex(self.samples, name="sample")
        if self.coordinates > 1:
            index = pandas.MultiIndex.from_product([range(size) for size in rows], names=["sample", "coordinate"])
        return pandas.DataFrame(columns, index)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz with every array, the seed, the version and the program with its tables, in one step.

        Functions declared in Python are not written, only a few of their values.
        """
        from tensorprog.language.writing import pack
        from tensorprog.version import __version__

        text, tables = pack(self.netsor)
        meta = {
            "program": text,
            "version": __version__,
            "seed": self.seed,
            "method": self.method,
            "width": self.width,
            "samples": self.samples,
            "coordinates": self.coordinates,
            "averages": dict(self.psi),
            "functions": {name: declared_function(name).sketch for name in self.netsor.own},
        }
        arrays = dict(self.arrays) | {f"averages/{name}": array for name, array in self.averages.items()} | tables
        for name, pair in self.conditional.items():
            arrays |= dict(zip((f"conditional/{name}/mean", f"conditional/{name}/variance"), pair, strict=True))
        with writing(path, "name a file in a folder that exists"), whole(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{"meta.json": np.array(json.dumps(meta))}, **arrays)


def is_samples(value: Any) -> bool:
    """Whether these are draws: of networks, or of a law."""
    return isinstance(value, Mapping) and hasattr(value, "netsor") and hasattr(value, "samples")


def samples_of(value: Any, wanted: str) -> Any:
    """The samples given; `wanted` begins the message for anything else.

    Raises    ProgramError
    """
    if not is_samples(value):
        raise WrongTypeError(f"{wanted}, not {type(value).__name__}")
    return value


def column(samples: Any, name: str, position: int) -> NDArray[Any]:
    """Draws of one member, one row per network.

    Shapes    (samples, coordinates); one column for scalars
    """
    array = np.asarray(samples[name])
    vector = samples.netsor.families[name].kind == "vector"
    coordinates = samples.coordinates if vector and samples.coordinates > 1 else 1
    draws: NDArray[Any] = np.asarray(array.reshape(len(array), coordinates, -1)[:, :, position], dtype=np.float64)
    return draws


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

"""`Samples`: named arrays of draws, of networks of finite width or of the limit."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, code
from tensorprog.blocks.html import Shown
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.errors import UnknownNameError, WrongTypeError, did_you_mean
from tensorprog.language.files import whole, writing
from tensorprog.language.formats import name_of, split
from tensorprog.language.ir import Netsor


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
        """Names and shapes; nothing is drawn for it."""
        whence = f"networks at n = {self.width}, {self.method}" if self.width else "draws of the limit"
        coordinates = f", {self.coordinates} coordinates of each" if self.coordinates > 1 else ""
        title = f"{self.netsor.name}: {self.samples:,} {whence}{coordinates}, seed {self.seed}"
        sorts = dict.fromkeys(self.outputs, "output") | dict.fromkeys(self.scores, "score")
        rows = [(code(name), sorts.get(name, "kept"), str(array.shape)) for name, array in self.items()]
        rows += [(code(name), "average", str(values.shape)) for name, values in self.averages.items()]
        return [Grid(title, ("variable", "what", "shape"), tuple(rows), text_columns=(0, 1, 2))]

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

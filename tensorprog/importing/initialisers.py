"""What a module's own initialisers do to its parameters, recorded while they run: kinds and numbers, not estimates.

`Recorder` is a dispatch mode of torch: it sees every draw (`normal_`, `uniform_`, ..), whoever calls it, and carries
laws along through copies, shifts and scalings, storage by storage.  What it cannot follow is measured, with an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensorprog.importing.laws import (
    EntryLaw,
    Pieces,
    constant_law,
    normal_law,
    truncated_law,
    uniform_law,
)
from tensorprog.language.errors import fail

__all__ = ["built", "measured"]

MEASURED, SHUFFLES = 8, 16  # modules that are drawn where a law is only measured; orders of their entries
DEPENDENT = 12.0  # standard deviations from which entries are taken to depend on each other
UNKNOWN = EntryLaw("unknown")


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """The law of the entries of every tensor that is made while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.laws: dict[int, Pieces] = {}
        self.alive: list[Any] = []  # so that no storage gets the place of another
        self.draws = 0

    def of(self, tensor: Any) -> Pieces | None:
        """What is known of a tensor's entries."""
        return self.laws.get(tensor.untyped_storage()._cdata) if isinstance(tensor, torch.Tensor) else None

    def write(self, tensor: Any, law: EntryLaw) -> None:
        """Entries of a tensor get a law; of a part of it, its rows."""
        if law.random and not law.draw:
            self.draws += 1
            law = replace(law, draw=self.draws)
        place = tensor.untyped_storage()._cdata
        self.alive.append(tensor.untyped_storage())
        whole = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
        if tensor.numel() == whole:
            self.laws[place] = ((0, whole, law),)
            return
        self.laws.setdefault(place, ((0, whole, UNKNOWN),))
        if not tensor.is_contiguous():
            self.laws[place] = ((0, whole, UNKNOWN),)
            return
        low, high = tensor.storage_offset(), tensor.storage_offset() + tensor.numel()
        kept = [
            (max(a, s), min(b, t), own)
            for a, b, own in self.laws[place]
            for s, t in ((0, low), (high, whole))
            if max(a, s) < min(b, t)
        ]
        self.laws[place] = tuple(sorted([*kept, (low, high, law)], key=lambda piece: piece[0]))

    def change(self, tensor: Any, change: Callable[[EntryLaw], EntryLaw]) -> None:
        """Entries of a tensor are changed in place."""
        pieces = self.of(tensor)
        whole = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
        if pieces is not None and tensor.numel() == whole:
            self.laws[tensor.untyped_storage()._cdata] = tuple((a, b, change(law)) for a, b, law in pieces)
        else:
            self.write(tensor, change(pieces[0][2]) if pieces and len(pieces) == 1 else UNKNOWN)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = str(func).removeprefix("aten.").split(".")[0]
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self._record(name, result, args, kwargs)
        return result

    def _record(self, name: str, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        inplace = name.endswith("_") and not name.endswith("__")
        draws = {"normal_": _normal, "uniform_": _uniform, "fill_": _fill, "zero_": lambda *_: constant_law(0.0)}
        makes = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "ones": 1.0, "ones_like": 1.0, "new_ones": 1.0}
        if name in draws:
            self.write(result, draws[name](args[1:], kwargs))
        elif name in ("randn", "randn_like"):
            self.write(result, normal_law(0.0, 1.0))
        elif name in ("rand", "rand_like"):
            self.write(result, uniform_law(0.0, 1.0))
        elif name in ("full", "full_like", "new_full"):
            self.write(result, constant_law(float(args[1])))
        elif name in makes:
            self.write(result, constant_law(makes[name]))
        elif name in ("empty", "empty_like", "new_empty", "empty_strided"):
            self.alive.append(result.untyped_storage())
            self.laws.pop(result.untyped_storage()._cdata, None)
        elif name.rstrip("_") in ("mul", "div", "add", "sub", "neg") and _plain(args[1:], kwargs):
            change = _affine(name.rstrip("_"), args[1:])
            self._through(result, args[0], change, inplace)
        elif name == "copy_":
            self._through(result, args[1], lambda law: law, False)
        elif name in ("clone", "_to_copy", "detach_", "lift_fresh_copy", "contiguous"):
            self._through(result, args[0], lambda law: law, False)
        elif inplace:
            self.write(result, UNKNOWN)
        elif result.untyped_storage()._cdata not in self.laws:  # made of other numbers, in a way that is not followed
            origins = [law.draw for value in args for *_, law in self.of(value) or () if law.draw]
            if origins:
                self.write(result, replace(UNKNOWN, draw=origins[0]))

    def _through(self, result: Any, source: Any, change: Callable[[EntryLaw], EntryLaw], inplace: bool) -> None:
        if inplace:
            self.change(result, change)
            return
        pieces = self.of(source)
        laws = {law for _, _, law in pieces or ()}
        whole = result.untyped_storage().nbytes() // max(result.element_size(), 1)
        if pieces and result.numel() == pieces[-1][1] == whole and result.is_contiguous():
            place = result.untyped_storage()._cdata
            self.alive.append(result.untyped_storage())
            self.laws[place] = tuple((a, b, change(law)) for a, b, law in pieces)
        elif len(laws) == 1:
            self.write(result, change(laws.pop()))
        else:
            self.write(result, UNKNOWN)


def _normal(args: Sequence[Any], kwargs: Mapping[str, Any]) -> EntryLaw:
    mean, deviation = [*args, *(0.0, 1.0)[len(args) :]][:2]
    return normal_law(float(kwargs.get("mean", mean)), float(kwargs.get("std", deviation)))


def _uniform(args: Sequence[Any], kwargs: Mapping[str, Any]) -> EntryLaw:
    low, high = [*args, *(0.0, 1.0)[len(args) :]][:2]
    return uniform_law(float(kwargs.get("from", low)), float(kwargs.get("to", high)))


def _fill(args: Sequence[Any], kwargs: Mapping[str, Any]) -> EntryLaw:
    value = args[0] if args else kwargs["value"]
    return UNKNOWN if getattr(value, "is_meta", False) else constant_law(float(value))


def _plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    values = [*args, *kwargs.values()]
    return all(
        value is None
        or isinstance(value, int | float)
        or (isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_meta)
        for value in values
    )


def _affine(name: str, args: Sequence[Any]) -> Callable[[EntryLaw], EntryLaw]:
    numbers = [
        None if value is None else float(value.detach() if isinstance(value, torch.Tensor) else value) for value in args
    ]
    first = numbers[0] if numbers and numbers[0] is not None else 0.0
    rules: dict[str, tuple[float, float]] = {
        "mul": (first, 0.0),
        "div": (1 / first if first else math.nan, 0.0),
        "add": (1.0, first),
        "sub": (1.0, -first),
        "neg": (-1.0, 0.0),
    }
    factor, shift = rules[name]
    return lambda law: law.moved(factor, shift)


@contextmanager
def _recording() -> Iterator[Recorder]:
    """A recorder that is on; initialisers that are not made of plain draws are recorded by what they are called."""
    recorder = Recorder()
    init: Any = torch.nn.init
    originals = {
        name: getattr(init, name)
        for name in ("_no_grad_trunc_normal_", "orthogonal_", "eye_", "dirac_", "sparse_")
        if hasattr(init, name)
    }

    def told(name: str) -> Callable[..., Any]:
        def call(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            result = originals[name](tensor, *args, **kwargs)
            if name == "_no_grad_trunc_normal_":
                mean, std, low, high = args[:4]
                recorder.write(tensor, truncated_law(float(mean), float(std), float(low), float(high)))
            else:
                recorder.write(tensor, EntryLaw("orthogonal" if name == "orthogonal_" else "unknown"))
            return result

        return call

    for name in originals:
        setattr(init, name, told(name))
    try:
        with recorder:
            yield recorder
    finally:
        for name, original in originals.items():
            setattr(init, name, original)


def built(make: Callable[[int], Any], width: int) -> tuple[Any, dict[str, Pieces]]:
    """The module of a width, and the laws of its parameters by their rows.

    Raises    ProgramError for what makes no module, and for a module, whose width is one already
    """
    fix = "tp.from_torch(lambda n: Model(n), inputs)"
    if isinstance(make, torch.nn.Module) or not callable(make):
        what = "a module" if isinstance(make, torch.nn.Module) else repr(make)
        raise fail(f"from_torch takes a function of the width that makes the module, not {what}", fix=fix)
    with _recording() as recorder:
        module = make(width)
    if not isinstance(module, torch.nn.Module):
        raise fail(f"from_torch takes a function that makes a torch.nn.Module, not {type(module).__name__}", fix=fix)
    named = {**dict(module.named_parameters(remove_duplicate=False))}
    return module, {name: _rows(recorder, parameter) for name, parameter in named.items()}


def _rows(recorder: Recorder, parameter: Any) -> Pieces:
    """The pieces of a parameter in rows of its first axis."""
    size = parameter.shape[0] if parameter.dim() else 1
    pieces = recorder.of(parameter)
    if pieces is None or pieces[-1][1] != parameter.numel():  # one of several in a storage
        return ((0, size, UNKNOWN),)
    row = max(parameter.numel() // max(size, 1), 1)
    if len(pieces) == 1 or any(a % row or b % row for a, b, _ in pieces):
        laws = {law for _, _, law in pieces}
        return ((0, size, laws.pop() if len(laws) == 1 else UNKNOWN),)
    return tuple((a // row, b // row, law) for a, b, law in pieces)


def measured(make: Callable[[int], Any], width: int, names: Sequence[str]) -> dict[str, EntryLaw]:
    """Mean and deviation of parameters whose law was not recorded, over several modules, with an error; that their
    entries are the same each time, or that they depend on each other."""
    drawn: dict[str, list[Any]] = {name: [] for name in names}
    for _ in range(MEASURED):
        parameters = dict(make(width).named_parameters(remove_duplicate=False))
        for name in names:
            drawn[name].append(parameters[name].detach().double().numpy())
    found = {}
    for name, draws in drawn.items():
        entries = np.stack(draws)
        mean, deviation = float(entries.mean()), float(entries.std())
        if abs(mean) < 4 * deviation / math.sqrt(entries.size):
            mean = 0.0
        if deviation <= 1e-12 * abs(mean) or not deviation:
            found[name] = constant_law(mean)
        elif all(np.array_equal(draw, draws[0]) for draw in draws):
            found[name] = EntryLaw("fixed", mean, deviation)
        elif _structured([(draw - mean) / deviation for draw in draws]):
            found[name] = EntryLaw("dependent", mean, deviation)
        else:
            found[name] = EntryLaw("measured", mean, deviation, error=deviation / math.sqrt(2 * entries.size))
    return found


def _structured(draws: Sequence[Any]) -> bool:
    """Whether rows or columns of matrices differ more in size, are less orthogonal, or the matrices resemble their
    transposes more, than the same entries in any other order."""
    if draws[0].ndim < 2 or min(draws[0].shape[0], draws[0][0].size) < 2:
        return False
    matrices = np.stack([draw.reshape(len(draw), -1) for draw in draws])
    shuffle = np.random.default_rng(0).permuted
    others = np.array(
        [_order(shuffle(matrices.reshape(len(matrices), -1), axis=1).reshape(matrices.shape)) for _ in range(SHUFFLES)]
    )
    return bool(np.any(_order(matrices) > others.mean(axis=0) + DEPENDENT * others.std(axis=0)))


def _order(matrices: Any) -> Any:
    """What grows with the structure of matrices, averaged over several."""
    sides = (matrices, np.swapaxes(matrices, 1, 2))
    found = [((side**2).mean(axis=2) ** 2).mean() for side in sides]
    for side in sides:
        products = (side @ np.swapaxes(side, 1, 2)) ** 2
        found.append(products.mean() - np.trace(products, axis1=1, axis2=2).mean() / products[0].size)
    if matrices.shape[1] == matrices.shape[2]:
        found.append((sides[0] * sides[1]).mean() ** 2)
    return np.array(found)

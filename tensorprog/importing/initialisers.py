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

from tensorprog.importing.laws import EntryLaw, constant_law, normal_law, truncated_law, uniform_law
from tensorprog.language.errors import fail

__all__ = ["built", "measured"]

MEASURED, SHUFFLES = 8, 16  # modules that are drawn where a law is only measured; orders of their entries
DEPENDENT = 12.0  # standard deviations from which entries are taken to depend on each other
UNKNOWN, ZERO = EntryLaw("unknown"), constant_law(0.0)
Pieces = tuple[tuple[int, int, EntryLaw], ...]  # entries of a storage from, to, and their law


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
        plain, inplace = name.rstrip("_"), name.endswith("_")
        if name in DRAWS:
            self.write(result, DRAWS[name](args[1:], kwargs))
        elif (kind := plain.removesuffix("_like").removeprefix("new_")) in FILLED:
            self.write(result, FILLED[kind])
        elif "full" in name:
            self.write(result, constant_law(float(args[-1])))
        elif "empty" in name:
            self.alive.append(result.untyped_storage())
            self.laws.pop(result.untyped_storage()._cdata, None)
        elif plain in AFFINE and _plain(args[1:], kwargs):
            factor, shift = AFFINE[plain](*(1.0 if value is None else float(value) for value in args[1:2]))
            self._through(result, args[0], lambda law: law.moved(factor, shift), inplace)
        elif name in ("copy_", "clone", "_to_copy", "detach_", "lift_fresh_copy", "contiguous"):
            self._through(result, args[name == "copy_"], lambda law: law, False)
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


def _two(args: Sequence[Any], kwargs: Mapping[str, Any], one: str, other: str) -> tuple[float, float]:
    """Two numbers by position or by name, 0 and 1 where they are not given."""
    low, high = [*args, *(0.0, 1.0)[len(args) :]][:2]
    return float(kwargs.get(one, low)), float(kwargs.get(other, high))


def _fill(args: Sequence[Any], kwargs: Mapping[str, Any]) -> EntryLaw:
    value = args[0] if args else kwargs["value"]
    return UNKNOWN if getattr(value, "is_meta", False) else constant_law(float(value))


DRAWS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], EntryLaw]] = {
    "normal_": lambda args, kwargs: normal_law(*_two(args, kwargs, "mean", "std")),
    "uniform_": lambda args, kwargs: uniform_law(*_two(args, kwargs, "from", "to")),
    "fill_": _fill,
}
FILLED = {
    "randn": normal_law(0.0, 1.0),
    "rand": uniform_law(0.0, 1.0),
    "zero": ZERO,
    "zeros": ZERO,
    "ones": constant_law(1.0),
}
AFFINE: Mapping[str, Callable[..., tuple[float, float]]] = {
    "mul": lambda number: (number, 0.0),
    "div": lambda number: (1 / number if number else math.nan, 0.0),
    "add": lambda number: (1.0, number),
    "sub": lambda number: (1.0, -number),
    "neg": lambda: (-1.0, 0.0),
}


def _plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether arguments are a number, and factors and roundings of it are not given."""
    numbers = isinstance(args[0], int | float | torch.Tensor) if args else True
    single = not any(isinstance(value, torch.Tensor) and (value.numel() > 1 or value.is_meta) for value in args)
    return numbers and single and len(args) < 2 and not kwargs


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
                recorder.write(tensor, EntryLaw("orthogonal") if name == "orthogonal_" else UNKNOWN)
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


def built(make: Callable[[int], Any], width: int) -> tuple[Any, dict[str, EntryLaw]]:
    """The module of a width, and the laws of its parameters.

    Raises    ProgramError for what makes no module, and for a module, whose width is one already
    """
    module = make if isinstance(make, torch.nn.Module) else None
    if module is None and callable(make):
        with _recording() as recorder:
            module = make(width)
    if module is make or not isinstance(module, torch.nn.Module):
        what = "a module" if module is make else f"one that makes {type(module).__name__}" if module else repr(make)
        raise fail(
            f"from_torch takes a function of the width that makes a torch.nn.Module, not {what}",
            fix="tp.from_torch(lambda n: Model(n), inputs)",
        )
    named = dict(module.named_parameters(remove_duplicate=False))
    return module, {name: _law(recorder.of(parameter), parameter) for name, parameter in named.items()}


def _law(pieces: Pieces | None, parameter: Any) -> EntryLaw:
    """The one law of a parameter, except for a row of zeros, as tables have for padding."""
    if pieces is None or pieces[-1][1] != parameter.numel():  # one of several in a storage
        return UNKNOWN
    row = parameter[0].numel() if parameter.dim() else 1
    padding = [low // row for low, high, law in pieces if law == ZERO and not low % row and high - low == row]
    laws = {law for *_, law in pieces if law != ZERO or not padding}
    if len(laws) == 1:
        return replace(laws.pop(), padding=padding[0] if len(padding) == 1 else None)
    return UNKNOWN if UNKNOWN in laws else EntryLaw("rows") if laws else ZERO


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

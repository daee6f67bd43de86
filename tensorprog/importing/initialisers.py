"""What a module's own initialisers do to its parameters, recorded while they run: kinds and numbers, not estimates.

`Recorder` is a dispatch mode of torch: it sees every draw (`normal_`, `uniform_`, ..), whoever calls it, and carries
laws along through copies, shifts and scalings, storage by storage.  What it cannot follow is of an unknown law.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensorprog.language.errors import fail

__all__ = ["EntryLaw", "built"]

NEVER_CUT = 7.0  # standard deviations beyond which the bounds of a truncated normal are none, in double precision


@dataclass(frozen=True)
class EntryLaw:
    """Independent entries of one law: its kind, mean and standard deviation."""

    kind: str
    mean: float = 0.0
    deviation: float = 0.0
    draw: int = field(default=0, compare=False)  # which draw it was: copies of one are the same numbers
    padding: int | None = None  # a row that is zero instead

    @property
    def variance(self) -> float:
        """The variance of an entry."""
        return self.deviation**2

    @property
    def gaussian(self) -> bool:
        """Whether entries are exactly Gaussian, or one number."""
        return self.kind in ("normal", "constant")

    @property
    def random(self) -> bool:
        """Whether entries are random."""
        return self.kind not in ("constant", "fixed")

    def moved(self, factor: float = 1.0, shift: float = 0.0) -> EntryLaw:
        """The law of factor * entry + shift."""
        kind = self.kind if factor or self.kind == "unknown" else "constant"
        return replace(self, kind=kind, mean=self.mean * factor + shift, deviation=self.deviation * abs(factor))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return "fixed numbers"
        if self.kind == "constant":
            return f"{self.mean:.6g}"
        if self.kind == "uniform":
            reach = math.sqrt(3) * self.deviation
            return f"uniform({self.mean - reach:.6g}, {self.mean + reach:.6g})"
        kind = {"unknown": "unknown law with", "truncated": "truncated normal with"}.get(self.kind, self.kind)
        return f"{kind}({self.mean:.6g}, {self.deviation:.6g}**2)"


def _normal(mean: float, deviation: float) -> EntryLaw:
    return EntryLaw("normal" if deviation else "constant", mean, deviation)


def _uniform(low: float, high: float) -> EntryLaw:
    return EntryLaw("uniform" if low < high else "constant", (low + high) / 2, (high - low) / math.sqrt(12))


def _truncated(mean: float, deviation: float, low: float, high: float) -> EntryLaw:
    """Gaussian entries that are drawn again while they lie outside of the bounds; plain ones where bounds never act."""
    from scipy.stats import truncnorm

    a, b = (low - mean) / deviation, (high - mean) / deviation
    if min(-a, b) > NEVER_CUT:
        return _normal(mean, deviation)
    law = truncnorm(a, b, mean, deviation)
    return EntryLaw("truncated", float(law.mean()), float(law.std()))


UNKNOWN, ZERO = EntryLaw("unknown"), _normal(0.0, 0.0)
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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self._record(str(func).removeprefix("aten.").split(".")[0], result, args, kwargs)
        return result

    def _record(self, name: str, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        plain = name.rstrip("_")
        if name in DRAWS:
            self.write(result, DRAWS[name](args[1:], kwargs))
        elif (kind := plain.removesuffix("_like").removeprefix("new_")) in FILLED:
            self.write(result, FILLED[kind])
        elif "full" in name:
            self.write(result, _normal(float(args[-1]), 0.0))
        elif "empty" in name:
            self.alive.append(result.untyped_storage())
            self.laws.pop(result.untyped_storage()._cdata, None)
        elif plain in AFFINE and _plain(args[1:], kwargs):
            factor, shift = AFFINE[plain](*(1.0 if value is None else float(value) for value in args[1:2]))
            self._through(result, args[0], lambda law: law.moved(factor, shift))
        elif name in ("copy_", "clone", "_to_copy", "detach_", "lift_fresh_copy", "contiguous"):
            self._through(result, args[name == "copy_"], lambda law: law)
        elif name.endswith("_"):
            self.write(result, UNKNOWN)
        elif result.untyped_storage()._cdata not in self.laws:  # made of other numbers, in a way that is not followed
            origins = [law.draw for value in args for *_, law in self.of(value) or () if law.draw]
            if origins:
                self.write(result, replace(UNKNOWN, draw=origins[0]))

    def _through(self, result: Any, source: Any, change: Callable[[EntryLaw], EntryLaw]) -> None:
        """Entries of a tensor, or of a new one, are changed entries of a source."""
        pieces = self.of(source)
        laws = {law for _, _, law in pieces or ()}
        whole = result.untyped_storage().nbytes() // max(result.element_size(), 1)
        if pieces and result.numel() == pieces[-1][1] == whole and result.is_contiguous():
            self.alive.append(result.untyped_storage())
            self.laws[result.untyped_storage()._cdata] = tuple((a, b, change(law)) for a, b, law in pieces)
        else:
            self.write(result, change(laws.pop()) if len(laws) == 1 else UNKNOWN)


def _two(args: Sequence[Any], kwargs: Mapping[str, Any], one: str, other: str) -> tuple[float, float]:
    """Two numbers by position or by name, 0 and 1 where they are not given."""
    low, high = [*args, *(0.0, 1.0)[len(args) :]][:2]
    return float(kwargs.get(one, low)), float(kwargs.get(other, high))


def _fill(args: Sequence[Any], kwargs: Mapping[str, Any]) -> EntryLaw:
    value = args[0] if args else kwargs["value"]
    return UNKNOWN if getattr(value, "is_meta", False) else _normal(float(value), 0.0)


DRAWS: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], EntryLaw]] = {
    "normal_": lambda args, kwargs: _normal(*_two(args, kwargs, "mean", "std")),
    "uniform_": lambda args, kwargs: _uniform(*_two(args, kwargs, "from", "to")),
    "fill_": _fill,
}
FILLED = {
    "randn": _normal(0.0, 1.0),
    "rand": _uniform(0.0, 1.0),
    "zero": ZERO,
    "zeros": ZERO,
    "ones": _normal(1.0, 0.0),
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
                recorder.write(tensor, _truncated(float(mean), float(std), float(low), float(high)))
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
        try:
            inspect.signature(make).bind(width)
        except TypeError as error:
            raise fail(f"make(n) cannot be called: {error}", fix="let it take the width: lambda n: Net(n)") from None
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

"""What tensors become: axes made of indices and widths, and an expression in the program's language.

An axis of a tensor is a tuple of atoms, outermost first: `(heads, width of a head)` is one axis that was or will be
split into two.  Atoms whose sizes differ between the two widths are widths; all others are indices of families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from tensorprog.language.expr import Affine, Expr, Number, Variable, call, is_call

__all__ = [
    "Axes",
    "AxisPart",
    "Complex",
    "FixedTensor",
    "Inner",
    "Outer",
    "Traced",
    "Wave",
    "along",
    "atoms_of",
    "product",
    "recognised",
    "scaled",
    "shapes_of",
    "sizes_of",
    "varying",
    "whole",
]

AxisKey = tuple[Any, ...]
Sizes = tuple[int, int]


@dataclass(frozen=True)
class AxisPart:
    """One index or one width: its name, its sizes at both widths, and where it first arose, to be split there."""

    name: str
    sizes: Sizes
    key: AxisKey | None = None
    start: int = 0
    boundary: Literal["", "zero", "wrap"] = ""

    @property
    def is_width(self) -> bool:
        """Whether it grows with the width."""
        return self.sizes[0] != self.sizes[1]

    @property
    def size(self) -> int:
        """The size of an index."""
        return self.sizes[0]

    @property
    def slot(self) -> Affine:
        """The index as a slot of a reference."""
        return Affine.index(self.name)


Axes = tuple[tuple[AxisPart, ...], ...]


@dataclass(frozen=True)
class Inner:
    """A sum over a width of products of two vectors, not yet scaled: a score or an average, as its scale will show."""

    left: Variable
    right: Variable
    ratio: Fraction  # of the width to n
    over: tuple[AxisPart, ...] = ()  # indices that are summed too


@dataclass(frozen=True)
class Outer:
    """Products of vectors of two widths, summed over indices, that wait for a sum over one of the widths."""

    left: Traced
    right: Traced
    over: tuple[AxisPart, ...] = ()


@dataclass(frozen=True)
class Traced:
    """A random tensor: n**power * expr, coordinate by coordinate.

    `inner` multiplies it by an inner product that waits for its scale; `copies` names readouts, whose vectors hold
    independent copies of a number in their coordinates; `parameter` names a parameter that nothing has used yet.
    With `outer` it is a sum of these, whatever its expression.
    """

    axes: Axes
    expr: Expr
    power: Fraction = Fraction(0)
    inner: Inner | None = None
    copies: frozenset[str] = frozenset()
    parameter: str = ""
    scale: float = 1.0  # of a parameter
    outer: tuple[Outer, ...] = ()

    @property
    def atoms(self) -> tuple[AxisPart, ...]:
        """All atoms of the axes."""
        return atoms_of(self.axes)

    @property
    def widths(self) -> tuple[AxisPart, ...]:
        """The widths among the axes."""
        return tuple(atom for atom in self.atoms if atom.is_width)

    @property
    def is_vector(self) -> bool:
        """Whether it has a width."""
        return bool(self.widths)

    def on(self, axes: Axes) -> Traced:
        """The same numbers on other axes."""
        return replace(self, axes=axes)


@dataclass(frozen=True)
class FixedTensor:
    """A fixed tensor: its numbers at both widths."""

    arrays: tuple[Any, Any]

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Its shape at both widths."""
        return tuple(np.shape(self.arrays[0])), tuple(np.shape(self.arrays[1]))

    def each(self, change: Callable[[Any], Any]) -> FixedTensor:
        """What becomes of the numbers at both widths."""
        one, other = (change(np.asarray(array)) for array in self.arrays)
        return FixedTensor((one, other))


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers: its real and its imaginary part."""

    real: Any  # a Traced or a FixedTensor
    imag: Any


def atoms_of(axes: Axes) -> tuple[AxisPart, ...]:
    """All atoms, outermost first."""
    return tuple(atom for axis in axes for atom in axis)


def sizes_of(atoms: Sequence[AxisPart]) -> Sizes:
    """The size of an axis at both widths."""
    return math.prod(atom.sizes[0] for atom in atoms), math.prod(atom.sizes[1] for atom in atoms)


def shapes_of(axes: Axes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of axes at both widths."""
    sizes = [sizes_of(axis) for axis in axes]
    return tuple(one for one, _ in sizes), tuple(other for _, other in sizes)


def scaled(expr: Expr, factor: float) -> Expr:
    """A number times an expression, without needless ones."""
    if factor == 1:
        return expr
    if isinstance(expr, Number):
        return Number(expr.value * factor)
    if not factor:
        return Number(0)
    if is_call(expr, "multiply") and isinstance(expr.args[0], Number):
        return scaled(expr.args[1], float(expr.args[0].value) * factor)
    if factor == -1:
        return call("negative", expr)
    return call("multiply", Number(factor), expr)


def product(left: Expr, right: Expr) -> Expr:
    """A product, numbers first."""
    if isinstance(left, Number):
        return scaled(right, left.value)
    if isinstance(right, Number):
        return scaled(left, right.value)
    if is_call(right, "divide") and right.args[0] == Number(1):
        return call("divide", left, right.args[1])
    return call("multiply", left, right)


def whole(value: float) -> float | int:
    """A number, as an integer where it is one."""
    return int(value) if math.isfinite(value) and float(value).is_integer() else value


CLOSE = 2e-5  # of cosines in single precision
WAVES = tuple((*kind, less) for less in (0, 1) for kind in (("cos", np.arccos), ("sin", np.arcsin)))


@dataclass(frozen=True)
class Wave:
    """function(position * base**(-coordinate)), with coordinates 0, 1/m, 2/m, .. below 1; or up to it, with m - 1."""

    function: str
    base: float
    less: int = 0  # than m, by which coordinates are divided

    def matches(self, table: Any) -> bool:
        """Whether a table (positions, coordinates) is one of these numbers."""
        places, coordinates = np.arange(table.shape[0]), np.arange(table.shape[1]) / (table.shape[1] - self.less)
        made = {"cos": np.cos, "sin": np.sin}[self.function](places[:, None] * self.base**-coordinates)
        return bool(np.abs(made - table).max() < CLOSE * max(1, table.shape[0] / 10))


def recognised(one: Any, other: Any) -> Wave | None:
    """What two tables (positions, coordinates), at both widths, are waves of; None for anything else."""
    if other.shape[0] < 2 or other.shape[1] < 2:
        return None
    for function, inverse, less in WAVES:
        angles = inverse(np.clip(other[1], -1, 1))
        k = int(np.argmin(np.abs(angles - 0.3)))  # where the angle is told best
        if k and angles[k] > 0:
            base = math.exp(-math.log(angles[k]) * (other.shape[1] - less) / k)
            wave = Wave(function, float(round(base)) if abs(base / max(round(base), 1) - 1) < 1e-3 else base, less)
            if wave.matches(one) and wave.matches(other):
                return wave
    return None


def varying(*arrays: Any) -> list[int]:
    """Axes along which one of several arrays differs."""
    return [k for k in range(arrays[0].ndim) if not all((a == a.take([0], k)).all() for a in arrays)]


def along(array: Any, axes: Sequence[int]) -> Any:
    """The array on these axes, at the first place of all others."""
    return array[tuple(slice(None) if k in axes else 0 for k in range(array.ndim))]

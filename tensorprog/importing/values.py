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
    "FixedTensor",
    "Inner",
    "Traced",
    "atoms_of",
    "product",
    "scaled",
    "shapes_of",
    "sizes_of",
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
class Traced:
    """A random tensor: n**power * expr, coordinate by coordinate.

    `inner` multiplies it by an inner product that waits for its scale; `copies` names readouts, whose vectors hold
    independent copies of a number in their coordinates; `parameter` names a parameter that nothing has used yet.
    """

    axes: Axes
    expr: Expr
    power: Fraction = Fraction(0)
    inner: Inner | None = None
    copies: frozenset[str] = frozenset()
    parameter: str = ""
    scale: float = 1.0  # of a parameter

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

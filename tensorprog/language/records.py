"""What a program is made of: declarations, the instructions over families, and `Draft`, all of them together.

    u[i] = MatMul(W[i], h)        one statement, for all i at once; W[i].T for the transpose
    x[i] = Nonlin(phi(u[i]))
    p    = Dot(q, k)              n**-0.5 q.k, or scale=1/n

A name with slots is a *family*; nothing here has a member of a family as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import Problem, Span
from tensorprog.language.expr import Affine, Call, Expr, Transposed, Variable, index_names, variables, walk
from tensorprog.language.parse import Names

Range = tuple[int, int]  # start <= value < stop
Kind = Literal["vector", "scalar", "weight"]


@dataclass(frozen=True)
class Table:
    """An immutable array of numbers with value equality; `file` is its path where it was read from one."""

    shape: tuple[int, ...]
    data: bytes = field(repr=False)
    file: str = field(default="", compare=False)

    @classmethod
    def of(cls, values: Any, file: str = "") -> Table:
        """Copy an array-like of real numbers."""
        array = np.ascontiguousarray(values, dtype=np.float64)
        return cls(array.shape, array.tobytes(), file)

    @property
    def array(self) -> NDArray[np.float64]:
        """A read-only view of the numbers."""
        return np.frombuffer(self.data, dtype=np.float64).reshape(self.shape)


@dataclass(frozen=True)
class Index:
    """An index that runs over start <= i < stop; `boundary` says what a slot with this index reads outside."""

    name: str
    start: int
    stop: int
    boundary: Literal["", "zero", "wrap"] = ""
    text: str = field(default="", compare=False)
    span: Span = field(default=Span(), compare=False)


@dataclass(frozen=True)
class ConstantDef:
    """A constant: a number, a table over indices, or an expression in its indices."""

    name: str
    value: int | float | Table | Expr
    indices: tuple[str, ...] = ()
    span: Span = field(default=Span(), compare=False)


@dataclass(frozen=True)
class Initial:
    """Initial vectors: coordinates i.i.d. N(mean, cov) over the width, jointly Gaussian over the family.

    `cov` is an expression in the indices and their second copies (`i_`), or a table over (members, members); an
    index whose second copy does not occur makes independent members.  With `data` (members, d) the covariance is
    cov * data data^T / d instead.

    With `grid` it is the coordinate vector of its width instead: not random, (a + 1/2)/n in coordinate a, whose limit
    is uniform on (0, 1), with mean 1/2 and variance 1/12.
    """

    name: str
    indices: tuple[str, ...]
    mean: Expr | Table
    cov: Expr | Table
    data: Table | None = None
    width: str = "n"
    span: Span = field(default=Span(), compare=False)
    grid: bool = field(default=False, kw_only=True)

    @property
    def joint(self) -> tuple[str, ...]:
        """Indices over which members are not independent: where `cov` is an expression, those with second copies."""
        if self.data is not None or isinstance(self.cov, Table):
            return self.indices
        names = {name for node in walk(self.cov) for name in index_names(node)}
        return tuple(name for name in self.indices if f"{name}_" in names)


@dataclass(frozen=True)
class Weight:
    """Weight matrices of shape (rows, columns), entries i.i.d. N(0, variance / columns), independent of all else."""

    name: str
    indices: tuple[str, ...]
    variance: Expr
    shape: tuple[str, str] = ("n", "n")
    span: Span = field(default=Span(), compare=False)


@dataclass(frozen=True)
class MatMul:
    """target = weight @ vector, or weight^T @ vector."""

    target: Variable
    weight: Variable
    vector: Variable
    span: Span = field(default=Span(), compare=False)
    transposed: bool = field(default=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """References to families that statements define (weights are not)."""
        return (self.vector,)

    @property
    def references(self) -> tuple[Variable, ...]:
        """All references on the right side."""
        return self.weight, self.vector

    @property
    def matrix(self) -> Variable | Transposed:
        """The weight as written, transposed or not."""
        return self.weight.T if self.transposed else self.weight

    def sides(self, weight: Weight) -> tuple[str, str]:
        """Widths of what comes out and of what goes in."""
        rows, columns = weight.shape
        return (columns, rows) if self.transposed else (rows, columns)

    def __str__(self) -> str:
        return f"{self.target} = MatMul({self.matrix}, {self.vector})"


@dataclass(frozen=True)
class Nonlin:
    """target = phi(vectors; scalars), coordinatewise; of scalars only it is a scalar."""

    target: Variable
    expr: Expr
    width: str = ""
    span: Span = field(default=Span(), compare=False)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """References to families that statements define."""
        return tuple(variables(self.expr))

    @property
    def references(self) -> tuple[Variable, ...]:
        """All references on the right side."""
        return self.inputs

    def __str__(self) -> str:
        return f"{self.target} = Nonlin({self.expr}{f', width={self.width}' if self.width else ''})"


@dataclass(frozen=True)
class Dot:
    """target = left.right times n**-0.5 (the score) or 1/n (the average), n the operands' width."""

    target: Variable
    left: Variable
    right: Variable
    scale: Literal["n**-0.5", "1/n"] = "n**-0.5"
    span: Span = field(default=Span(), compare=False)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """References to families that statements define."""
        return (self.left, self.right)

    @property
    def references(self) -> tuple[Variable, ...]:
        """All references on the right side."""
        return self.inputs

    def __str__(self) -> str:
        return f"{self.target} = Dot({self.left}, {self.right}{', scale=1/n' if self.scale == '1/n' else ''})"


Statement = MatMul | Nonlin | Dot
EXPRESSIONS = {MatMul: ("target", "weight", "vector"), Nonlin: ("target", "expr"), Dot: ("target", "left", "right")}


def mapped(statement: Statement, change: Callable[[Any], Expr]) -> Statement:
    """The statement with all its expressions changed: what it defines, and what it reads."""
    changed: dict[str, Any] = {name: change(getattr(statement, name)) for name in EXPRESSIONS[type(statement)]}
    return replace(statement, **changed)


@dataclass(frozen=True)
class Family:
    """What is known of a name: kind, width, and the range of every slot."""

    name: str
    kind: Kind
    ranges: tuple[Range, ...]
    width: str = ""
    statements: tuple[int, ...] = ()  # positions in the body that define it; empty for initial vectors and weights
    boundaries: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of members along each slot."""
        return tuple(stop - start for start, stop in self.ranges)

    def members(self, limit: int | None = None) -> list[tuple[int, ...]]:
        """Index values of the (first `limit`) members, in C order; [()] for a name without indices."""
        return list(islice(product(*(range(start, stop) for start, stop in self.ranges)), limit))


@dataclass(frozen=True)
class Draft:
    """A program that need not be complete or right yet; `Netsor` is one that is."""

    name: str
    constants: tuple[ConstantDef, ...] = ()
    indices: tuple[Index, ...] = ()
    initial: tuple[Initial, ...] = ()
    weights: tuple[Weight, ...] = ()
    body: tuple[Statement, ...] = ()
    outputs: tuple[str, ...] = ()
    widths: tuple[tuple[str, Fraction, str], ...] = ()  # name, multiple of n, as written
    fixed_widths: tuple[tuple[str, int], ...] = ()
    title: str = field(default="", compare=False)
    reference: str = field(default="", compare=False)
    run: tuple[tuple[str, Any], ...] = field(default=(), compare=False)  # defaults of `tp run`
    train: tuple[tuple[str, Any], ...] = field(default=(), compare=False)  # how it is trained
    written: tuple[tuple[str, str], ...] = field(default=(), compare=False)  # texts of constants and fixed widths
    places: Mapping[str, Span] = field(default_factory=dict, compare=False, repr=False)  # of widths and outputs

    # what the rules make of it: nothing as yet
    families: Mapping[str, Family] = field(init=False, compare=False, repr=False, default_factory=dict)
    warnings: tuple[Problem, ...] = field(init=False, compare=False, repr=False, default=())

    @property
    def parts(self) -> dict[str, Any]:
        """All declarations and statements, by the names of the fields that make another program of them."""
        return {part.name: getattr(self, part.name) for part in fields(Draft) if part.init}

    @cached_property
    def names(self) -> Names:
        """What the names in texts mean: constants and indices."""
        return Names(self.scalars, frozenset(self.index))

    @cached_property
    def index(self) -> dict[str, Index]:
        """Indices by name."""
        return {index.name: index for index in self.indices}

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Range of every index by name, second copies included."""
        plain = {index.name: (index.start, index.stop) for index in self.indices}
        return plain | {f"{name}_": span for name, span in plain.items()}

    @property
    def taken(self) -> set[str]:
        """All names that it gives something."""
        widths = *(name for name, *_ in self.widths), *dict(self.fixed_widths)
        return {*self.families, *self.index, *self.constant, *widths}

    @cached_property
    def constant(self) -> dict[str, ConstantDef]:
        """Constants by name."""
        return {constant.name: constant for constant in self.constants}

    @cached_property
    def scalars(self) -> dict[str, int | float | None]:
        """Numbers of the scalar constants by name; None for indexed ones."""
        return {c.name: c.value if isinstance(c.value, int | float) else None for c in self.constants}

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """Families of Dots on the scale n**-0.5."""
        return tuple(dict.fromkeys(s.target.name for s in self.body if isinstance(s, Dot) and s.scale == "n**-0.5"))

    @property
    def losses(self) -> list[str]:
        """What training may follow: scalars without indices."""
        return [name for name, family in self.families.items() if family.kind == "scalar" and not family.shape]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All expressions, of declarations and of statements."""
        parts = [constant.value for constant in self.constants] + [weight.variance for weight in self.weights]
        parts += [part for vector in self.initial for part in (vector.mean, vector.cov)]
        parts += [statement.expr for statement in self.body if isinstance(statement, Nonlin)]
        return tuple(part for part in parts if isinstance(part, Expr))

    @property
    def own(self) -> tuple[str, ...]:
        """Names of the functions in it that were declared in Python, sorted."""
        called = {node.atom for expr in self.expressions for node in walk(expr) if isinstance(node, Call)}
        return tuple(sorted(name for name in called if ATOMS[name].declared))

    @cached_property
    def tables(self) -> dict[str, Table]:
        """All arrays of numbers: 'c' of a constant, 'X.mean', 'X.cov', 'X.data' of an initial vector."""
        parts = {constant.name: constant.value for constant in self.constants} | {
            f"{entry.name}.{part}": getattr(entry, part) for entry in self.initial for part in ("mean", "cov", "data")
        }
        return {name: value for name, value in parts.items() if isinstance(value, Table)}

    @cached_property
    def weight(self) -> dict[str, Weight]:
        """Weights by name."""
        return {weight.name: weight for weight in self.weights}

    def width_of(self, name: str, n: int) -> Fraction:
        """Width `name` when the width of the program is n."""
        fixed = dict(self.fixed_widths)
        if name in fixed:
            return Fraction(fixed[name])
        return next((ratio for key, ratio, _ in self.widths if key == name), Fraction(1)) * n

    @cached_property
    def boundaries(self) -> dict[str, tuple[str, ...]]:
        """Boundary rules of the slots of every family, by name."""
        return {name: family.boundaries for name, family in self.families.items()}

    def boundary(self, slot: Affine) -> str:
        """Boundary rule of a slot of a definition's left side."""
        return self.index[slot.bare].boundary if slot.bare in self.index else ""

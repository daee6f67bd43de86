"""Immutable expressions over atoms: the language inside `Nonlin(...)`.

    expr  ::= Number | Constant[slots] | Variable[slots] | IndexValue | Call(atom, args)
            | Reduction(reducer, indices, arg)
    slot  ::= affine form in indices with integer coefficients

Python's operators build the same trees as the parser, and `str` prints text that parses back to an equal tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Union

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Problem, ProgramError, did_you_mean

__all__ = [
    "Affine",
    "Call",
    "Constant",
    "Expr",
    "IndexValue",
    "Number",
    "Operand",
    "Reduction",
    "Variable",
    "as_expr",
    "call",
    "rebuild",
    "variables",
    "walk",
]

Operand = Union["Expr", int, float]
MAX_INTEGER = 2**53


@dataclass(frozen=True)
class Affine:
    """An affine form sum(coefficient * index) + offset with integer coefficients: one slot of a reference."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    text: str = field(default="", compare=False)  # as written, e.g. with constants by name

    @property
    def indices(self) -> tuple[str, ...]:
        """The indices that occur, in order of first appearance."""
        return tuple(name for name, _ in self.terms)

    @property
    def bare(self) -> str | None:
        """The index if the form is one index alone, else None."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and self.offset == 0 else None

    def bounds(self, ranges: dict[str, tuple[int, int]]) -> tuple[int, int]:
        """Smallest and largest value while each index runs over start <= index < stop."""
        low = high = self.offset
        for name, coefficient in self.terms:
            ends = coefficient * ranges[name][0], coefficient * (ranges[name][1] - 1)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def __str__(self) -> str:
        if self.text:
            return self.text
        parts = ""
        for name, coefficient in self.terms:
            size = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            sign = "-" if coefficient < 0 else "+"
            parts += f" {sign} {size}{name}" if parts else f"{'-' if coefficient < 0 else ''}{size}{name}"
        if self.offset or not parts:
            parts += f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}" if parts else str(self.offset)
        return parts


class Expr:
    """Base of all expressions; operators and comparisons build `Call` nodes."""

    __array_ufunc__ = None  # numpy numbers leave the operators to the expression

    def __getstate__(self) -> dict[str, Any]:
        """All but the hash, which another process may not share."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    def _hashed(self, *parts: Any) -> int:
        """The hash of some parts, computed once: expressions are looked up at each of their nodes."""
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = hash((type(self).__name__, *parts))
            object.__setattr__(self, "_hash", found)
        return found

    def __add__(self, other: Operand) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("subtract", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("subtract", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("multiply", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("multiply", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("divide", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return call("power", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return call("power", other, self)

    def __neg__(self) -> Expr:
        return call("negative", self)

    def __lt__(self, other: Operand) -> Expr:
        return call("less", self, other)

    def __le__(self, other: Operand) -> Expr:
        return call("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return call("greater", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return call("greater_equal", self, other)

    def __and__(self, other: Operand) -> Expr:
        return call("logical_and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return call("logical_or", self, other)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def __bool__(self) -> bool:
        raise ProgramError(f"the expression {self} has no truth value; write tp.where(condition, x, y) and & or |")

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct subexpressions."""
        return ()

    def __str__(self) -> str:
        return _print(self, 0)


@dataclass(frozen=True, eq=True)
class Number(Expr):
    """A literal number."""

    value: int | float

    __str__ = Expr.__str__


@dataclass(frozen=True)
class Constant(Expr):
    """A named constant of the program, possibly an indexed array."""

    name: str
    slots: tuple[Affine, ...] = ()
    column: int = field(default=0, compare=False)

    __str__ = Expr.__str__


@dataclass(frozen=True)
class Variable(Expr):
    """A reference to a family of vectors, scalars or weights at the given slots."""

    name: str
    slots: tuple[Affine, ...] = ()
    column: int = field(default=0, compare=False)

    __str__ = Expr.__str__

    @property
    def T(self) -> Transposed:
        """The transpose of a weight, as the first argument of a MatMul."""
        return Transposed(self)


@dataclass(frozen=True, repr=False)
class Transposed(Expr):
    """The transpose of a weight: the first argument of a MatMul, and no part of an expression."""

    weight: Variable

    @property
    def usage_hint(self) -> str:
        """Where it may stand."""
        return f"only the weight of a MatMul may be transposed, g = MatMul({self}, x)"

    @property
    def T(self) -> Transposed:
        """Refused: a transpose of a transpose is the matrix itself."""
        raise ProgramError(f"{self}.T is {self.weight}: write that")

    def __str__(self) -> str:
        return f"{self.weight}.T"

    __repr__ = __str__


@dataclass(frozen=True)
class IndexValue(Expr):
    """The value of an index, as a number."""

    name: str

    __str__ = Expr.__str__


@dataclass(frozen=True)
class Call(Expr):
    """An atom applied to its arguments, the atom's parameters last."""

    atom: str
    args: tuple[Expr, ...]
    column: int = field(default=0, compare=False)

    __str__ = Expr.__str__

    def __hash__(self) -> int:
        return self._hashed(self.atom, self.args)

    @property
    def children(self) -> tuple[Expr, ...]:
        """Arguments and parameters."""
        return self.args

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """The arguments proper, without parameters."""
        return self.args[: ATOMS[self.atom].arity]

    @property
    def params(self) -> tuple[Expr, ...]:
        """The parameters, in the atom's order."""
        return self.args[ATOMS[self.atom].arity :]


@dataclass(frozen=True)
class Reduction(Expr):
    """A reducer over indices applied to one expression.

    One that keeps its indices (softmax) is read at the forms `at`, the indices themselves unless substitution put
    others there; then `indices` are bound names, written with a star, that run over the full declared range.
    """

    reducer: str
    indices: tuple[str, ...]
    arg: Expr
    column: int = field(default=0, compare=False)
    at: tuple[Affine, ...] = ()

    __str__ = Expr.__str__

    def __hash__(self) -> int:
        return self._hashed(self.reducer, self.indices, self.arg, self.at)

    @property
    def children(self) -> tuple[Expr, ...]:
        """The one argument."""
        return (self.arg,)

    @property
    def removes(self) -> bool:
        """Whether the indices disappear (sum) or stay (softmax)."""
        return REDUCTIONS[self.reducer].removes


def as_expr(value: Any) -> Expr:
    """Turn a Python or numpy number into a `Number`; expressions pass through.

    Raises    ProgramError for anything else
    """
    if isinstance(value, Expr) and not isinstance(value, Transposed):
        return value
    if isinstance(value, bool):
        raise ProgramError(f"{value} is not a number")
    if hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0:
        if abs(int(value)) > MAX_INTEGER:
            raise ProgramError("this integer is too large; write it as a float")
        return Number(int(value))
    if isinstance(value, float) or (hasattr(value, "__float__") and getattr(value, "ndim", None) == 0):
        return Number(float(value))
    hint = getattr(value, "usage_hint", "write a number or an expression")
    raise ProgramError(f"{value!r} cannot stand in an expression: {hint}")


def call(name: str, *args: Operand, column: int = 0, **keywords: Operand) -> Expr:
    """Apply the atom `name`: checks the number of arguments and fills in default parameters.

    Raises    ProgramError naming the atom and how it is written
    """
    atom = ATOMS.get(name)
    if atom is None:
        raise ProgramError(f"there is no function {name}; {did_you_mean(name, [*ATOMS, *REDUCTIONS])}")
    given = [as_expr(arg) for arg in args]
    if name == "negative" and len(given) == 1 and isinstance(given[0], Number):
        return Number(-given[0].value)
    names = list(atom.params)
    signature = ", ".join(
        ["x", "y", "z"][: atom.arity] + [p if d is None else f"{p}={d:g}" for p, d in atom.params.items()]
    )
    if not atom.arity <= len(given) <= atom.arity + len(names):
        raise ProgramError(f"{name} takes ({signature}), not {len(given)} arguments")
    values: dict[str, Expr] = dict(zip(names, given[atom.arity :], strict=False))
    for key, value in keywords.items():
        if key not in names or key in values:
            problem = "is given twice" if key in values else f"is not one of its parameters ({signature})"
            raise ProgramError(f"{name}: {key} {problem}")
        values[key] = as_expr(value)
    for key in names:
        if key not in values:
            default = atom.params[key]
            if default is None:
                raise ProgramError(f"{name} takes ({signature}): {key} is missing")
            values[key] = Number(default)
    for key in names:
        other = next((node for node in walk(values[key]) if isinstance(node, Variable)), None)
        if other is not None:
            alternative = "exp(y * log(x)) or a constant exponent" if name == "power" else "min and max"
            message = f"{name}: {key} must be made of numbers, constants and indices, and {other} is none of these"
            fix = f"declare {other} under constants, or use {alternative} if it is a vector or a score"
            raise ProgramError(Problem(message, fix=fix))
    return Call(name, tuple(given[: atom.arity]) + tuple(values[key] for key in names), column)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all its subexpressions, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def variables(expr: Expr) -> list[Variable]:
    """All references to families, in order of appearance, without repetition."""
    return list(dict.fromkeys(node for node in walk(expr) if isinstance(node, Variable)))


def rebuild(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every outermost subexpression for which `change` gives an expression."""
    replacement = change(expr)
    if replacement is not None:
        return replacement
    if isinstance(expr, Call):
        return Call(expr.atom, tuple(rebuild(arg, change) for arg in expr.args), expr.column)
    if isinstance(expr, Reduction):
        return Reduction(expr.reducer, expr.indices, rebuild(expr.arg, change), expr.column, expr.at)
    return expr


# binding strength of the operators, weakest first, as in Python, where & and | bind tighter than comparisons
_LEVEL = {"less": 1, "less_equal": 1, "greater": 1, "greater_equal": 1, "equal": 1, "not_equal": 1, "logical_or": 2,
          "logical_and": 3, "add": 5, "subtract": 5, "multiply": 6, "divide": 6, "negative": 7, "power": 8}
_SPELLING = {"minimum": "min", "maximum": "max"}


def _number(value: float) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, float) and value == math.pi:
        return "pi"
    return repr(value)


def _slots(name: str, slots: tuple[Affine, ...]) -> str:
    return f"{name}[{','.join(map(str, slots))}]" if slots else name


def _print(expr: Expr, level: int) -> str:
    if isinstance(expr, Number):
        text, own = _number(expr.value), 7 if expr.value < 0 else 9
    elif isinstance(expr, Constant | Variable):
        text, own = _slots(expr.name, expr.slots), 9
    elif isinstance(expr, IndexValue):
        text, own = expr.name, 9
    elif isinstance(expr, Reduction):
        place = f" at [{','.join(map(str, expr.at))}]" if expr.at else ""
        text, own = f"{expr.reducer}[{','.join(expr.indices)}]({_print(expr.arg, 0)}){place}", 9
    elif isinstance(expr, Call) and expr.atom in _LEVEL:
        own = _LEVEL[expr.atom]
        operator = ATOMS[expr.atom].operator
        if expr.atom == "negative":
            # -(2) would read back as the number -2
            inner = expr.args[0]
            text = f"-({_print(inner, 0)})" if isinstance(inner, Number) else f"-{_print(inner, own)}"
        elif expr.atom == "power":
            text = f"{_print(expr.args[0], own + 1)}**{_print(expr.args[1], own - 1)}"
        else:
            strict = own == 1  # comparisons do not chain
            text = f"{_print(expr.args[0], own + strict)} {operator} {_print(expr.args[1], own + 1)}"
    elif isinstance(expr, Call):
        text = f"{_SPELLING.get(expr.atom, expr.atom)}({', '.join(_print(arg, 0) for arg in expr.args)})"
        own = 9
    else:
        raise TypeError(f"not an expression: {expr!r}")
    return f"({text})" if own < level else text

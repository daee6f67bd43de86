"""Immutable expressions over atoms: the language inside `Nonlin(...)`.

    expr  ::= Number | Constant[slots] | Variable[slots] | IndexValue | Call(atom, args)
            | Reduction(reducer, indices, arg)
    slot  ::= affine form in indices with integer coefficients

Python's operators build the same trees as the parser, and `str` prints text that parses back to an equal tree.  `fold`
is the way to interpret expressions: one table of rules for each interpretation; `walk`, `rebuild`, `factors` and
`summands` are for the rest, and `substitute` puts affine forms in the place of indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, partial, reduce
from inspect import Parameter, Signature
from typing import Any, TypeGuard, TypeVar, Union, cast

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError, WrongTypeError, did_you_mean, fail
from tensorprog.language.meant import not_here

V = TypeVar("V")
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
LOGICAL = ("logical_and", "logical_or")
PAIRWISE = {"min": "minimum", "max": "maximum"}  # spelt like Python's, and taking any number of arguments
Operand = Union["Expr", int, float]
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", *PAIRWISE, *REDUCTIONS}  # names, beside those of atoms
MAX_INTEGER = 2**53


@dataclass(frozen=True)
class Affine:
    """An affine form sum(coefficient * index) + offset with integer coefficients: one slot of a reference."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    text: str = field(default="", compare=False)  # as written, e.g. with constants by name

    @classmethod
    def of(cls, terms: Mapping[str, int], offset: int = 0) -> Affine:
        """The form with these coefficients, zeros left out."""
        return cls(tuple([term for term in terms.items() if term[1]]), offset)

    @classmethod
    def index(cls, name: str) -> Affine:
        """One index alone."""
        return cls(((name, 1),))

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.offset + other)
        terms = dict(self.terms)
        for name, value in other.terms:
            terms[name] = terms.get(name, 0) + value
        return Affine.of(terms, self.offset + other.offset)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + -1 * other

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((name, factor * value) for name, value in self.terms if factor), factor * self.offset)

    __rmul__ = __mul__

    def at(self, values: Mapping[str, Affine]) -> Affine:
        """The form with indices replaced by affine forms; indices without a value stay."""
        terms, offset = dict[str, int](), self.offset
        for name, coefficient in self.terms:
            form = values.get(name)
            offset += coefficient * form.offset if form else 0
            for inner, value in form.terms if form else ((name, 1),):
                terms[inner] = terms.get(inner, 0) + coefficient * value
        return Affine.of(terms, offset)

    def solved(self, name: str) -> Affine:
        """The value of an index, whose coefficient is 1 or -1, at which the form is 0."""
        value = dict(self.terms)[name]
        return -value * Affine(tuple(term for term in self.terms if term[0] != name), self.offset)

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The indices that occur, in order of first appearance."""
        return tuple([name for name, _ in self.terms])

    @property
    def bare(self) -> str | None:
        """The index if the form is one index alone, else None."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and self.offset == 0 else None

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Smallest and largest value while each index runs over start <= index < stop."""
        low = high = self.offset
        for name, coefficient in self.terms:
            ends = coefficient * ranges[name][0], coefficient * (ranges[name][1] - 1)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def span(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """The same as a range, start <= value < stop."""
        low, high = self.bounds(ranges)
        return low, high + 1

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


def slots_of(names: Sequence[str]) -> tuple[Affine, ...]:
    """Slots that are the bare indices named."""
    return tuple(map(Affine.index, names))


def _operator(atom: str, swapped: bool = False) -> Callable[[Expr, Operand], Expr]:
    """The method of an operator; `swapped` where the expression stands on its right."""

    def applied(self: Expr, other: Operand) -> Expr:
        return call(atom, other, self) if swapped else call(atom, self, other)

    return applied


class Expr:
    """Base of all expressions; operators and comparisons build `Call` nodes."""

    def __getstate__(self) -> dict[str, Any]:
        """All but the hash, which another process may not share."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once: expressions are looked up at each of their nodes."""
        return hash((type(self), *(getattr(self, part.name) for part in fields(self) if part.compare)))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._hash

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("subtract"), _operator("subtract", swapped=True)
    __mul__, __rmul__ = _operator("multiply"), _operator("multiply", swapped=True)
    __truediv__, __rtruediv__ = _operator("divide"), _operator("divide", swapped=True)
    __pow__, __rpow__ = _operator("power"), _operator("power", swapped=True)
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __and__, __or__ = _operator("logical_and"), _operator("logical_or")

    def __neg__(self) -> Expr:
        return call("negative", self)

    def __abs__(self) -> Expr:
        return call("abs", self)

    __array_ufunc__ = None  # numpy's numbers leave operators to expressions, and its functions refuse them

    def __bool__(self) -> bool:
        condition = is_call(self, *COMPARISONS, *LOGICAL)
        raise fail(
            f"the expression {self} has no truth value, which Python's if, and, or, not, min and max ask for",
            fix=f"tp.where({self if condition else f'{self} > 0'}, x, y), & and |, tp.min and tp.max",
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct subexpressions."""
        return ()

    def __str__(self) -> str:
        return fold(self, {}, _printed_leaf, _printed)[0]


@dataclass(frozen=True)
class Number(Expr):
    """A literal number."""

    value: int | float


@dataclass(frozen=True)
class Constant(Expr):
    """A named constant of the program, possibly an indexed array."""

    name: str
    slots: tuple[Affine, ...] = ()
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Variable(Expr):
    """A reference to a family of vectors, scalars or weights at the given slots."""

    name: str
    slots: tuple[Affine, ...] = ()
    column: int = field(default=0, compare=False)

    @property
    def T(self) -> Transposed:
        """The transpose of a weight, as the first argument of a MatMul."""
        return Transposed(self)


@dataclass(frozen=True, repr=False)
class Transposed(Expr):
    """The transpose of a weight: the first argument of a MatMul, and no part of an expression."""

    weight: Variable

    usage_hint = "only the weight of a MatMul may be transposed, g = MatMul(W.T, x)"

    def __str__(self) -> str:
        return f"{self.weight}.T"

    __repr__ = __str__


@dataclass(frozen=True)
class IndexValue(Expr):
    """The value of an index, as a number."""

    name: str


@dataclass(frozen=True)
class Call(Expr):
    """An atom applied to its arguments, the atom's parameters last."""

    atom: str
    args: tuple[Expr, ...]
    column: int = field(default=0, compare=False)
    __hash__ = Expr.__hash__

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
    __hash__ = Expr.__hash__

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
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(value, bool):
        raise fail(f"{value} is not a number", fix="== compares expressions at once: tp.where(tp.equal(i, j), 1, 0)")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ProgramError("this integer is too large; write it as a float")
    if isinstance(value, int | float):
        return Number(value)
    hint = getattr(value, "usage_hint", "write a number or an expression; arrays are constants with an index")
    raise fail(f"{value!r} cannot stand in an expression: {hint}", kind=WrongTypeError)


@cache
def _signature(name: str) -> Signature:
    """How an atom is called: its arguments by position, then its parameters by position or by name."""
    atom = ATOMS[name]
    plain = [Parameter(letter, Parameter.POSITIONAL_ONLY) for letter in ("x", "y", "z")[: atom.arity]]
    missing = {key: Parameter.empty if value is None else value for key, value in atom.params.items()}
    named = [Parameter(key, Parameter.POSITIONAL_OR_KEYWORD, default=value) for key, value in missing.items()]
    return Signature([*plain, *named])


def call(name: str, *args: Operand, column: int = 0, params: Mapping[str, Operand] | None = None) -> Expr:
    """Apply the atom `name`; the number of arguments is checked, and parameters that are left out have their default.

    A number raised to a vector or a scalar, `b**x`, is exp(x*log(b)).

    Raises    ProgramError naming the atom and how it is written
    """
    arity, count = ATOMS[name].arity, len(ATOMS[name].params)
    if params or len(args) != arity + count:
        try:
            bound = _signature(name).bind(*args, **(params or {}))
        except TypeError as error:
            shown = str(_signature(name)).replace("/, ", "").replace(", /", "")
            raise fail(f"{name} takes {shown}: {error}", fix=f"{name}{shown}", kind=WrongTypeError) from None
        bound.apply_defaults()
        args = tuple(bound.arguments.values())
    given = [as_expr(value) for value in args]
    if name == "negative" and isinstance(given[0], Number):
        return Number(-given[0].value)
    for key, value in zip(ATOMS[name].params, given[arity:], strict=True):
        other = next((node for node in walk(value) if isinstance(node, Variable)), None)
        if other is not None and name == "power" and not variables(given[0]):
            return call("exp", call("multiply", value, call("log", given[0]), column=column), column=column)
        if other is not None:
            said = f"{name}: {key} must be made of numbers, constants and indices, and {other} is none of these"
            instead = "exp(y * log(x)) or a constant exponent" if name == "power" else "min and max"
            raise fail(said, fix=f"declare {other} under constants, or use {instead} if it is a vector or a score")
    return Call(name, tuple(given), column)


def function_names() -> list[str]:
    """Names of all functions, sorted."""
    return sorted({*ATOMS, *REDUCTIONS, *PAIRWISE})


def function(name: str) -> Function:
    """The function of this name.

    Raises    ProgramError with the closest name
    """
    if name not in function_names():
        otherwise = "`tp list --atoms` shows all functions; tp.atom declares one of your own, in Python"
        fix = not_here(name) or did_you_mean(name.lower(), function_names(), otherwise)
        raise fail(f"there is no function {name}", fix=fix)
    return Function(name)


class Function:
    """A function on expressions: `f(x)` acts coordinatewise, `f[i](x)` over an index; most have one of the two."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        atom = ATOMS.get(PAIRWISE.get(name, name))
        over = REDUCTIONS.get(name)
        docs = ([atom.doc] if atom else []) + ([f"over indices: {over.doc}"] if over else [])
        self.__doc__ = "; ".join(docs)

    def __call__(self, *args: Operand, **params: Operand) -> Expr:
        """Apply the function to expressions and numbers, the parameters last or by name."""
        return self.applied(args, params)

    def applied(self, args: Sequence[Operand], params: Mapping[str, Operand], column: int = 0) -> Expr:
        """The function of these arguments, read from this column of a text."""
        name = self.__name__
        if name in PAIRWISE:
            if len(args) < 2 or params:
                raise fail(f"{name} takes two or more arguments, or an index", fix=f"{name}(x, y), {name}[i](x[i])")
            return reduce(lambda x, y: call(PAIRWISE[name], x, y, column=column), args[1:], as_expr(args[0]))
        if name not in ATOMS:
            fix = f"{name}[i](x[i])"
            raise fail(f"{name} needs the index that it runs over, in square brackets", fix=fix)
        return call(name, *args, column=column, params=params)

    def __getitem__(self, indices: Any) -> Callable[[Operand], Expr]:
        """The function over the indices given, to be applied to one expression."""
        names = indices if isinstance(indices, tuple) else (indices,)
        other = next((index for index in names if not isinstance(index, IndexValue)), None)
        if other is not None:
            raise fail(f"{self.__name__}[...] takes indices, not {other!s}", fix='i = P.index("i", 4)')
        return self.over([index.name for index in names])

    def over(self, indices: Sequence[str], column: int = 0) -> Callable[[Operand], Expr]:
        """The function over the indices named."""
        name = self.__name__
        if name not in REDUCTIONS:
            raise fail(f"{name} does not act over indices", fix=f"{name}(x)")
        if len(set(indices)) != len(indices) or not indices:
            raise ProgramError(f"{name}[...] {'names an index twice' if indices else 'needs an index'}")
        return lambda arg: Reduction(name, tuple(indices), as_expr(arg), column)

    def __repr__(self) -> str:
        return f"<function {self.__name__}: {self.__doc__}>"


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


def fold(
    expr: Expr, rules: Mapping[str, Callable[..., V]], leaf: Callable[[Expr], V | None], other: Callable[..., V]
) -> V:
    """What an expression means, from what its parts mean.

    `leaf` is asked at each node, parents first: it gives the meaning of what is not taken apart, None for the rest.  Of
    the rest, the rule of the atom or reducer, or `other` where `rules` has none, is given the node and the meanings of
    its children.
    """

    found = leaf(expr)
    if found is not None or not expr.children:
        return cast("V", found)
    name = expr.reducer if isinstance(expr, Reduction) else cast("Call", expr).atom
    below = partial(fold, rules=rules, leaf=leaf, other=other)
    return rules.get(name, other)(expr, *map(below, expr.children))


def with_children(expr: Expr, *children: Expr) -> Expr:
    """The expression with other children; the same object if they are the same."""
    if all(new is old for new, old in zip(children, expr.children, strict=True)):
        return expr
    if isinstance(expr, Call):
        return Call(expr.atom, children, expr.column)
    assert isinstance(expr, Reduction)
    return Reduction(expr.reducer, expr.indices, children[0], expr.column, expr.at)


def rebuild(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every outermost subexpression for which `change` gives an expression."""

    def leaf(node: Expr) -> Expr | None:
        new = change(node)
        return node if new is None and not node.children else new

    return fold(expr, {}, leaf, with_children)


def is_call(expr: Expr, *atoms: str) -> TypeGuard[Call]:
    """Whether one of the atoms is applied."""
    return isinstance(expr, Call) and expr.atom in atoms


def factors(expr: Expr, signs: bool = False) -> list[Expr]:
    """What a product multiplies; with `signs`, a / b is a times 1 / b, and -a is -1 times a."""
    match expr:
        case Call("multiply", (one, other)):
            return [*factors(one, signs), *factors(other, signs)]
        case Call("divide", (one, other)) if signs:
            return [*factors(one, signs), Call("divide", (Number(1), other))]
        case Call("negative", (one,)) if signs:
            return [Number(-1), *factors(one, signs)]
    return [expr]


def product_of(parts: Iterable[Expr]) -> Expr:
    """The product of expressions; nothing is multiplied by 1."""
    others = [part for part in parts if part != Number(1)]
    return reduce(lambda a, b: Call("multiply", (a, b)), others) if others else Number(1)


def summands(expr: Expr) -> list[Expr]:
    """The terms of a sum; a difference is one term."""
    return [*summands(expr.args[0]), *summands(expr.args[1])] if is_call(expr, "add") else [expr]


def sum_of(parts: Iterable[Expr]) -> Expr:
    """The sum of expressions; nothing is added to 0."""
    others = [part for part in parts if part != Number(0)]
    return reduce(lambda a, b: Call("add", (a, b)), others) if others else Number(0)


def linear_arguments(expr: Expr, scalars: Sequence[bool]) -> tuple[int, ...]:
    """Positions of the children in which an expression is linear, given which are scalars; none if it is not."""
    match expr:
        case Reduction(reducer):
            return (0,) if REDUCTIONS[reducer].linear else ()
        case Call("add" | "subtract" | "negative", args):
            return tuple(range(len(args)))
        case Call("multiply") if any(scalars):
            return (1,) if scalars[0] else (0,)
        case Call("divide") if scalars[1]:
            return (0,)
        case Call("where") if scalars[0]:
            return 1, 2
    return ()


# ---- expressions as text: each part with how strongly it binds, 9 for what needs no brackets ------------------------

# binding strength of the operators, weakest first, as in Python, where & and | bind tighter than comparisons
_LEVEL = {
    **dict.fromkeys(COMPARISONS, 1),
    "logical_or": 2,
    "logical_and": 3,
    "add": 5,
    "subtract": 5,
    "multiply": 6,
    "divide": 6,
    "negative": 7,
    "power": 8,
}
_SPELLING = {atom: name for name, atom in PAIRWISE.items()}
_Printed = tuple[str, int]


def _bracketed(part: _Printed, level: int) -> str:
    """The text of a part where brackets stand around what binds less than `level`."""
    return part[0] if part[1] >= level else f"({part[0]})"


def _listed(slots: Sequence[Affine]) -> str:
    return f"[{','.join(map(str, slots))}]" if slots else ""


def _printed_leaf(node: Expr) -> _Printed | None:
    match node:
        case Number(value):
            return "pi" if value == math.pi else repr(value), 7 if value < 0 else 9
        case Constant(name, slots) | Variable(name, slots):
            return f"{name}{_listed(slots)}", 9
        case IndexValue(name):
            return name, 9
    return None


def _printed(node: Call | Reduction, *args: _Printed) -> _Printed:
    if isinstance(node, Reduction):
        place = f" at {_listed(node.at)}" if node.at else ""
        return f"{node.reducer}[{','.join(node.indices)}]({args[0][0]}){place}", 9
    own = _LEVEL.get(node.atom, 9)
    if node.atom == "negative":  # -(2) would read back as the number -2
        return f"-{_bracketed(args[0], 10 if isinstance(node.args[0], Number) else own)}", own
    if own == 9:
        return f"{_SPELLING.get(node.atom, node.atom)}({', '.join(text for text, _ in args)})", 9
    if node.atom == "power":
        return f"{_bracketed(args[0], 9)}**{_bracketed(args[1], 7)}", own
    first = own + (node.atom in COMPARISONS)  # these do not chain
    return f"{_bracketed(args[0], first)} {ATOMS[node.atom].operator} {_bracketed(args[1], own + 1)}", own


Range = tuple[int, int]
MAX_NODES = 400  # of an expression with definitions written out
STARS = [stars * "*" for stars in range(9)]  # softmaxes in softmaxes over one index, each read elsewhere


def reindexed(reference: Variable, values: Mapping[str, Affine]) -> Variable:
    """The reference with indices replaced by affine forms."""
    return Variable(reference.name, tuple([slot.at(values) for slot in reference.slots]))


def affine_expr(slot: Affine) -> Expr:
    """The affine form as an expression."""
    parts = [
        IndexValue(name) if coefficient == 1 else Call("multiply", (Number(coefficient), IndexValue(name)))
        for name, coefficient in slot.terms
    ]
    return sum_of([*parts, Number(slot.offset)])


def substitute(expr: Expr, values: Mapping[str, Affine], along: bool = False) -> Expr:
    """Replace free indices by affine forms and bound ones by plain indices.

    A reduction that removes an index named in `values` is renamed, so its value must be a bare index; one that keeps
    its indices is read at the values (see `Reduction.at`) or, with `along`, runs over them, which must be bare too.
    """
    if isinstance(expr, Number) or not values:
        return expr

    def leaf(node: Expr) -> Expr | None:
        match node:
            case IndexValue(name):
                return affine_expr(values[name]) if name in values else node
            case Constant() | Variable():
                return type(node)(node.name, tuple(slot.at(values) for slot in node.slots), node.column)
            case Reduction() if not node.removes and not along:
                return _read_at(node, values)
        return None if node.children else node

    def renamed(node: Reduction, arg: Expr) -> Expr:
        names = tuple(values[name].bare or "" if name in values else name for name in node.indices)
        assert all(names), (node, values)
        return Reduction(node.reducer, names, arg, node.column)

    return fold(expr, dict.fromkeys(REDUCTIONS, renamed), leaf, with_children)


def _read_at(expr: Reduction, values: Mapping[str, Affine]) -> Reduction:
    """A reduction that keeps its indices, read at the values; what it binds is no name that occurs in these."""
    own = expr.at or slots_of(expr.indices)
    at = tuple(form.at(values) for form in own)
    free = set(free_indices(expr.arg)).difference(expr.indices)
    taken = {index for name in free for index in Affine.index(name).at(values).indices}
    if at == own and taken.isdisjoint(expr.indices):
        return Reduction(expr.reducer, expr.indices, substitute(expr.arg, values), expr.column, expr.at)
    new = {name: next(other for stars in STARS[1:] if (other := name + stars) not in taken) for name in expr.indices}
    names = tuple(name if expr.at and name not in taken else new[name] for name in expr.indices)
    stars = {name: Affine.index(new) for name, new in zip(expr.indices, names, strict=True)}
    return Reduction(expr.reducer, names, substitute(expr.arg, {**values, **stars}), expr.column, at)


def with_stars(ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges, with those of the bound names that substitution makes."""
    return {f"{name}{stars}": span for stars in STARS for name, span in ranges.items()}


def free_indices(expr: Expr) -> list[str]:
    """Indices that no reduction removes, in order of appearance, without repetition."""

    own = index_names(expr)
    inner = [name for child in expr.children for name in free_indices(child)]
    if isinstance(expr, Reduction):
        own = () if expr.removes else tuple(name for form in expr.at for name in form.indices) or expr.indices
        inner = [name for name in inner if name not in expr.indices]
    return list(dict.fromkeys((*own, *inner)))


def bound_indices(expr: Expr) -> set[str]:
    """Indices over which an expression reduces or takes softmaxes."""
    return {name for node in walk(expr) if isinstance(node, Reduction) for name in node.indices}


def replace_variables(expr: Expr, change: Callable[[Variable], Expr | None]) -> Expr:
    """Replace references for which `change` gives an expression."""
    return rebuild(expr, lambda node: change(node) if isinstance(node, Variable) else None)


def index_names(node: Expr) -> tuple[str, ...]:
    """Indices that a node itself mentions, its children left aside."""
    match node:
        case IndexValue(name):
            return (name,)
        case Reduction():
            return (*node.indices, *(name for form in node.at for name in form.indices))
        case Constant() | Variable():
            return tuple(name for slot in node.slots for name in slot.indices)
    return ()


def indices_of(expr: Expr, ranges: Collection[str]) -> tuple[str, ...]:
    """Names of indices that occur free or bound in an expression and have a range here."""
    return tuple(dict.fromkeys(name for node in walk(expr) for name in index_names(node) if name in ranges))

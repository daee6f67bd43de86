"""Derivatives of the language's functions, as expressions of the language, and the arithmetic that keeps them short.

What a function does to a cotangent d = d(loss)/d(value) is a text of its atom, such as "d * (1 - tanh(x)**2)".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import fail
from tensorprog.language.expr import (
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    Variable,
    fold,
    is_call,
    rebuild,
    with_children,
)
from tensorprog.language.parse import Names, parse_expression

__all__ = ["divided", "fraction", "pulled_back", "root_of", "simplified", "times"]

ARGUMENTS = ("x", "y", "z")
INFINITE = (Number(math.inf), Number(-math.inf))  # bounds that are none


def pulled_back(node: Call, cotangent: Expr) -> list[Expr]:
    """What a cotangent of the value of a function becomes for each of its arguments.

    Raises    ProgramError for a function whose derivative is not known as an expression
    """
    parts = dict(zip((*ARGUMENTS[: len(node.arguments)], *ATOMS[node.atom].params), node.args, strict=True))
    parts["d"] = cotangent

    def put(part: Expr) -> Expr | None:
        return parts.get(part.name) if isinstance(part, Variable | Constant) else None

    return [simplified(rebuild(text, put)) for text in _texts(node.atom)]


@cache
def _texts(atom: str) -> tuple[Expr, ...]:
    entry = ATOMS[atom]
    names = Names(dict.fromkeys(entry.params))
    if len(entry.pullback) != entry.arity:
        raise fail(
            f"the derivative of {atom} is not known as an expression",
            fix="write the function with those of `tp list --atoms`",
        )
    return tuple(parse_expression(text, names) for text in entry.pullback)


def simplified(expr: Expr) -> Expr:
    """The expression without products with 0 and 1, sums with 0, and signs that can be drawn out."""
    return fold(expr, _SHORTER, lambda node: None if node.children else node, with_children)


def times(*parts: Expr) -> Expr:
    """The product, shortened; parts of the form 1 / x divide."""
    result: Expr = Number(1)
    for part in parts:
        result = _product(None, result, part)
    return result


def divided(expr: Expr, by: Expr) -> Expr:
    """The quotient, shortened."""
    return _quotient(None, expr, by)


def fraction(value: Fraction) -> Expr:
    """A ratio of whole numbers."""
    return divided(Number(value.numerator), Number(value.denominator))


def root_of(value: Fraction) -> Expr:
    """The square root of a ratio, as a ratio where it is one."""
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    exact = above**2 == value.numerator and below**2 == value.denominator
    return fraction(Fraction(above, below)) if exact else Call("sqrt", (fraction(value),))


def _numbers(*parts: Expr) -> bool:
    return all(isinstance(part, Number) and isinstance(part.value, int) for part in parts)


def _sum(_: Expr | None, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Number) and isinstance(right, Number) and _numbers(left, right):
        return Number(left.value + right.value)
    if left == Number(0):
        return right
    if right == Number(0):
        return left
    if is_call(right, "negative"):
        return _difference(None, left, right.args[0])
    return Call("add", (left, right))


def _difference(_: Expr | None, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Number) and isinstance(right, Number) and _numbers(left, right):
        return Number(left.value - right.value)
    if right == Number(0):
        return left
    if left == Number(0) or right in INFINITE:
        return _negated(None, right)
    if is_call(right, "negative"):
        return _sum(None, left, right.args[0])
    return Call("subtract", (left, right))


def _negated(_: Expr | None, arg: Expr) -> Expr:
    if isinstance(arg, Number):
        return Number(-arg.value)
    return arg.args[0] if is_call(arg, "negative") else Call("negative", (arg,))


def _product(_: Expr | None, left: Expr, right: Expr) -> Expr:
    if Number(0) in (left, right):
        return Number(0)
    if left == Number(1):
        return right
    if right == Number(1):
        return left
    if isinstance(left, Number) and isinstance(right, Number) and _numbers(left, right):
        return Number(left.value * right.value)
    if is_call(left, "negative"):
        return _negated(None, _product(None, left.args[0], right))
    if is_call(right, "negative"):
        return _negated(None, _product(None, left, right.args[0]))
    if is_call(right, "divide") and right.args[0] == Number(1):
        return Call("divide", (left, right.args[1]))
    return Call("multiply", (left, right))


def _quotient(_: Expr | None, left: Expr, right: Expr) -> Expr:
    if left == Number(0) or right == Number(1):
        return left
    if is_call(left, "negative"):
        return _negated(None, _quotient(None, left.args[0], right))
    return Call("divide", (left, right))


def _power(_: Expr | None, base: Expr, exponent: Expr) -> Expr:
    if exponent == Number(0):
        return Number(1)
    return base if exponent == Number(1) else Call("power", (base, exponent))


def _step(node: Call, arg: Expr) -> Expr:
    return Number(int(arg == INFINITE[0])) if arg in INFINITE else with_children(node, arg)


def _chosen(_: Expr | None, condition: Expr, yes: Expr, no: Expr) -> Expr:
    return yes if yes == no else Call("where", (condition, yes, no))


def _reduced(node: Reduction, arg: Expr) -> Expr:
    return arg if arg == Number(0) else with_children(node, arg)


_SHORTER: dict[str, Callable[..., Expr]] = {
    "add": _sum,
    "subtract": _difference,
    "negative": _negated,
    "multiply": _product,
    "divide": _quotient,
    "power": _power,
    "step": _step,
    "where": _chosen,
    "sum": _reduced,
    "mean": _reduced,
}

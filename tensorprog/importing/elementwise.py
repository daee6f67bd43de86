"""Arithmetic and functions, coordinate by coordinate; fixed masks as conditions on indices, else as tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tensorprog.importing.layers import added, met_on, multiplied, number_of, together
from tensorprog.importing.operations import RULES, Result, Rule, TracedCall, random, rule
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.values import Axes, Complex, FixedTensor, Traced, along, atoms_of, scaled, varying, whole
from tensorprog.language.expr import Expr, IndexValue, Number, call, is_call

NEVER = -1e30  # what is added to a score that no one may read: finite minima of a type count as minus infinity
PATTERNS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("less_equal", np.less_equal),
    ("less", np.less),
    ("greater_equal", np.greater_equal),
    ("greater", np.greater),
    ("equal", np.equal),
    ("not_equal", np.not_equal),
)


def unchanging(sketch: Sketch, one: Any, other: Any) -> Any:
    """A mask that is the same at both widths, as far as it differs from entry to entry."""
    masks = [np.asarray(one, bool), np.asarray(other, bool)]
    if not np.array_equal(*(along(mask, varying(*masks)) for mask in masks)):
        raise sketch.refuse("a mask changes with the width", "use the same mask at every width")
    return one


def condition(sketch: Sketch, mask: Any, axes: Axes) -> Expr | bool:
    """Where a boolean array is true, in indices; True or False if that is everywhere or nowhere."""
    mask = np.asarray(mask, bool)
    if mask.all() or not mask.any():
        return bool(mask.all())
    places = varying(mask)
    kept = atoms_of(tuple(axes[len(axes) - mask.ndim + k] for k in places))
    if any(atom.is_width for atom in kept):
        raise sketch.refuse("a mask differs from coordinate to coordinate of a vector", "mask indices, not coordinates")
    small = along(mask, places).reshape([atom.size for atom in kept])
    if len(kept) == 2:
        rows, columns = np.indices(small.shape)
        for name, compare in PATTERNS:
            if (compare(columns, rows) == small).all():
                return call(name, IndexValue(kept[1].name), IndexValue(kept[0].name))
    return call("equal", sketch.table(small.astype(float), kept), Number(1))


def masked(sketch: Sketch, value: Traced, array: Any) -> tuple[Traced, Any]:
    """The value with -inf where a fixed tensor that is added has it, and what is left to be added."""
    array = np.asarray(array, float)
    never = array <= NEVER
    if not never.any():
        return value, array
    where = condition(sketch, ~never, value.axes)
    value = sketch.level(value, "a score")
    if where is False:
        raise sketch.refuse("a mask hides everything", "let each token see at least one")
    expr = value.expr if where is True else call("where", where, value.expr, Number(-np.inf))
    return Traced(value.axes, expr, copies=value.copies), np.where(never, 0.0, array)


HOMOGENEOUS = {"relu", "abs", "neg", "leaky_relu"}  # a power of n passes through

# functions of one argument that have torch's name
PLAIN = ("relu", "tanh", "sigmoid", "erf", "exp", "log", "sin", "cos", "abs", "sign", "silu", "selu")


def _function(act: Callable[[Expr, TracedCall], Expr]) -> Rule:
    """The rule of a function."""

    def apply(sketch: Sketch, operation: TracedCall) -> Result:
        value = sketch.settled(random(sketch, operation.tensor(0)))
        if operation.operation.kind not in HOMOGENEOUS:
            value = sketch.level(value, f"the argument of {operation.operation.kind}")
        return replace(value, expr=act(value.expr, operation))

    return apply


def _call(name: str) -> Callable[[Expr, TracedCall], Expr]:
    return lambda x, _: call(name, x)


def _clip(x: Expr, operation: TracedCall) -> Expr:
    low, high = operation.plain(1, "min"), operation.plain(2, "max")
    low = -math.inf if low is None else low
    high = math.inf if high is None else high
    return call("clip", x, Number(whole(low)), Number(whole(high)))


RULES.update({name: _function(_call(name)) for name in PLAIN})
RULES.update(
    {
        "gelu": _function(lambda x, c: call("gelu" if c.plain(1, "approximate", "none") == "none" else "gelu_tanh", x)),
        "softplus": _function(
            lambda x, c: scaled(call("softplus", scaled(x, c.plain(1, "beta", 1))), 1 / c.plain(1, "beta", 1))
        ),
        "leaky_relu": _function(lambda x, c: call("leaky_relu", x, Number(c.plain(1, "negative_slope", 0.01)))),
        "elu": _function(lambda x, c: call("elu", x, Number(c.plain(1, "alpha", 1.0)))),
        "neg": _function(lambda x, _: scaled(x, -1)),
        "atan": _function(_call("arctan")),
        "log_sigmoid": _function(lambda x, _: scaled(call("softplus", scaled(x, -1)), -1)),
        "hardsigmoid": _function(lambda x, _: call("clip", x / 6 + 0.5, Number(0), Number(1))),
    }
)


@rule("clamp_min", "clamp", "clip")
def at_least(sketch: Sketch, operation: TracedCall) -> Result:
    """Between bounds; the larger of a tensor and a number, which what grows with the width does not meet."""
    least = operation.plain(1, "min")
    value = sketch.settled(random(sketch, operation.tensor(0)), isinstance(least, int | float) and least > 0)
    if operation.plain(2, "max") is not None or not isinstance(least, int | float):
        return _function(_clip)(sketch, operation)
    if sketch.without_eps(value, least):
        return value
    value = sketch.level(value, "the argument of clamp_min")
    factor, inside = number_of(value.expr)
    root = is_call(inside, "sqrt") and least > 0 and factor > 0  # which keeps away from 0 what has no slope there
    inside, least = (inside.children[0], (least / factor) ** 2) if root else (value.expr, least)
    made = call("clip", inside, Number(whole(least)), Number(math.inf))
    return replace(value, expr=scaled(call("sqrt", made), factor) if root else made)


def raised(sketch: Sketch, value: Traced, exponent: float) -> Traced:
    """A power; of an inner product in its power of n too."""
    value = sketch.settled(value)
    if value.power and Fraction(exponent).limit_denominator(8) != Fraction(exponent):
        value = sketch.level(value, "what is raised to a power")
    power = value.power * Fraction(exponent).limit_denominator(8)
    expr = call("sqrt", value.expr) if abs(exponent) == 0.5 else value.expr
    if abs(exponent) not in (0.5, 1):
        expr = expr ** whole(exponent)
    elif exponent < 0:
        expr = call("divide", Number(1), expr)
    return replace(value, expr=expr, power=power)


@rule("pow")
def powered(sketch: Sketch, operation: TracedCall) -> Result:
    """A power with a number as exponent."""
    exponent = operation.plain(1, "exponent")
    if not isinstance(exponent, int | float):
        raise sketch.refuse("the exponent is a tensor", "use a number as exponent")
    return raised(sketch, random(sketch, operation.tensor(0)), float(exponent))


def _root(exponent: float) -> Rule:
    return lambda sketch, operation: raised(sketch, random(sketch, operation.tensor(0)), exponent)


RULES.update({"sqrt": _root(0.5), "rsqrt": _root(-0.5), "reciprocal": _root(-1.0), "square": _root(2.0)})


@rule("add", "sub", "__add__", "__radd__", "subtract")
def sums(sketch: Sketch, operation: TracedCall) -> Result:
    """A sum or a difference; what is minus infinity in a fixed tensor hides a score."""
    left, right = operation.tensor(0), operation.tensor(1, "other")
    factor = float(operation.plain(2, "alpha", 1) or 1)
    factor *= -1 if operation.operation.kind in ("sub", "subtract") else 1
    if isinstance(left, FixedTensor) and factor == 1:
        left, right = right, left
    if isinstance(right, FixedTensor) and isinstance(left, Traced) and factor > 0:
        _, _, axes = together(sketch, left, right)
        never = [np.asarray(array, float) <= NEVER for array in right.arrays]
        if unchanging(sketch, *never).any():
            left, rest = masked(sketch, left.on(axes), right.arrays[0])
            right = FixedTensor((rest, masked(sketch, left.on(axes), right.arrays[1])[1]))
    if isinstance(left, FixedTensor):
        left, right, _ = met_on(sketch, left, right)
    return added(sketch, left, right, factor)


@rule("mul", "multiply", "__mul__", "__rmul__")
def products_(sketch: Sketch, operation: TracedCall) -> Result:
    """A product."""
    one, other = operation.tensor(0), operation.tensor(1, "other")
    if not isinstance(one, Complex) and not isinstance(other, Complex):
        return multiplied(sketch, one, other)
    (a, b), (c, d) = _parts(one), _parts(other)
    ac, bd, ad, bc = (multiplied(sketch, x, y) for x, y in ((a, c), (b, d), (a, d), (b, c)))
    return Complex(added(sketch, ac, bd, -1), added(sketch, ad, bc))


def _parts(value: Any) -> tuple[Any, Any]:
    if isinstance(value, Complex):
        return value.real, value.imag
    return (
        (value.each(np.real), value.each(np.imag)) if isinstance(value, FixedTensor) else (value, FixedTensor((0, 0)))
    )


@rule("div", "divide", "true_divide")
def quotients(sketch: Sketch, operation: TracedCall) -> Result:
    """A quotient."""
    if operation.plain(9, "rounding_mode") is not None:
        raise sketch.refuse("a quotient is rounded", "divide without rounding")
    return multiplied(sketch, operation.tensor(0), operation.tensor(1, "other"), divide=True)


@rule("maximum", "minimum")
def extremes(sketch: Sketch, operation: TracedCall) -> Result:
    """The larger or the smaller of two."""
    one, other, axes = met_on(sketch, operation.tensor(0), operation.tensor(1, "other"))
    one, other = sketch.level(one, "an argument"), sketch.level(other, "an argument")
    return Traced(axes, call(operation.operation.kind, one.expr, other.expr), copies=sketch.met(one, other))


@rule("prelu")
def leaky(sketch: Sketch, operation: TracedCall) -> Result:
    """A relu with a slope that is a parameter, which begins as one number."""
    slope = operation.tensor(1, "weight")
    if not isinstance(slope, FixedTensor) or len(np.unique(np.concatenate([np.ravel(a) for a in slope.arrays]))) != 1:
        raise sketch.refuse("the slopes of a relu are random or not the same", "initialise them with one number")
    value = sketch.settled(random(sketch, operation.tensor(0)))
    return replace(value, expr=call("leaky_relu", value.expr, Number(whole(float(np.ravel(slope.arrays[0])[0])))))


# ---- masks: numbers 1 and 0 where numbers of the network decide ----------------------------------------------------


@rule("gt", "lt", "ge", "le")
def compared(sketch: Sketch, operation: TracedCall) -> Result:
    """1 where a tensor is larger than another, or smaller, and 0 elsewhere."""
    kind, sides = operation.operation.kind, [operation.tensor(0), operation.tensor(1, "other")]
    if any(isinstance(side, FixedTensor) and not np.isfinite(side.arrays[0]).all() for side in sides):
        raise sketch.refuse("numbers of the network are compared with infinity", "compare them with a finite number")
    one, other = sides if kind in ("gt", "le") else reversed(sides)
    value = sketch.settled(added(sketch, one, other, -1))
    value = replace(value, expr=call("step", value.expr), power=Fraction(0))
    return value if kind in ("gt", "lt") else opposite(value)


def opposite(mask: Traced) -> Traced:
    """1 where a mask is 0, and 0 where it is 1."""
    expr = mask.expr
    twice = is_call(expr, "subtract") and expr.children[0] == Number(1)
    return replace(mask, expr=expr.children[1] if twice else call("subtract", Number(1), expr))


@rule("bitwise_not", "logical_not")
def inverted(sketch: Sketch, operation: TracedCall) -> Result:
    """Where a mask is not true."""
    return opposite(random(sketch, operation.tensor(0)))


@rule("__and__", "bitwise_and", "__or__", "bitwise_or")
def combined(sketch: Sketch, operation: TracedCall) -> Result:
    """Where both masks are true, or one of them."""
    masks = [operation.tensor(0), operation.tensor(1, "other")]
    one, other = (mask.each(np.float64) if isinstance(mask, FixedTensor) else mask for mask in masks)
    both = multiplied(sketch, one, other)
    return both if "and" in operation.operation.kind else added(sketch, added(sketch, one, other), both, -1)


def _weighed(sketch: Sketch, mask: Traced, yes: Any, no: Any) -> Traced:
    """One tensor times a mask, and another times its opposite."""
    if any(isinstance(branch, FixedTensor) and not np.all(branch.arrays[0] > NEVER) for branch in (yes, no)):
        raise sketch.refuse(
            "numbers of the network decide what is minus infinity",
            "mask by indices, or multiply by (x > c), which is 1 or 0, after the softmax",
        )
    pairs = (mask, yes), (opposite(mask), no)
    terms = [
        multiplied(sketch, own, branch)
        for own, branch in pairs
        if not isinstance(branch, FixedTensor) or np.any(branch.arrays)
    ]
    return added(sketch, terms[0], terms[1]) if len(terms) == 2 else terms[0]


@rule("where")
def chosen(sketch: Sketch, operation: TracedCall) -> Result:
    """One of two tensors, by a mask."""
    mask, yes, no = (operation.tensor(k) for k in range(3))
    if not isinstance(mask, FixedTensor):
        return _weighed(sketch, mask, yes, no)
    one, other, axes = met_on(sketch, yes, no)
    _, _, axes = together(sketch, one.on(axes), mask)
    where = condition(sketch, unchanging(sketch, *mask.arrays), axes)
    if isinstance(where, bool):
        return (one if where else other).on(axes)
    hidden = any(isinstance(branch.expr, Number) and branch.expr.value <= -1000 for branch in (one, other))
    one, other = (sketch.level(branch, "a score" if hidden else "a branch of where") for branch in (one, other))
    branches = [
        Number(-math.inf) if isinstance(branch.expr, Number) and branch.expr.value <= NEVER else branch.expr
        for branch in (one, other)
    ]
    return Traced(axes, call("where", where, *branches), copies=sketch.met(one, other))

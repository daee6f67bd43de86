"""Functions that people spell out with others, such as GPT-2's gelu, as the function of the language that they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from tensorprog.language.atoms import ATOMS
from tensorprog.language.evaluate import COORDINATE, Open, Scope, evaluate
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    Call,
    Constant,
    Expr,
    IndexValue,
    Reduction,
    Variable,
    call,
    is_call,
    rebuild,
    variables,
    walk,
)
from tensorprog.language.records import Draft

FAR = np.array([30.0, 50.0, 1e2, 200.0, 300.0, 1e3, 1e5, 1e10])
OVERFLOW = 300.0  # the largest number at which values must be finite
POINTS = np.concatenate([-FAR, [-1e-3, 1e-3], np.linspace(-9, 9, 73), FAR])
X = Variable("x")


def recognised(expr: Expr, within: float = 1e-9, names: Sequence[str] = ()) -> Expr:
    """The expression, in which parts with the values of one function of one variable are that function.

    Values may differ `within` this times the size of the argument, or of the value; `names` are the functions looked
    for, by default all of one argument without parameters that are defined for all numbers.
    """
    names = names or [
        a.name
        for a in ATOMS.values()
        if a.arity == 1 and not a.params and a.domain == (-math.inf, math.inf) and not a.declared
    ]

    def change(node: Expr) -> Expr | None:
        inner = _argument(node) if not is_call(node, "negative", *COMPARISONS, *LOGICAL) else None
        if inner is None or inner == node or is_call(node, *names):
            return None
        probe = rebuild(node, lambda part: X if part == inner else None)
        if {type(part) for part in walk(probe)} & {Constant, IndexValue, Reduction} or variables(probe) != [X]:
            return None
        scope = Scope(Draft(""), {}, lambda *_: Open((COORDINATE,), POINTS))
        values = np.broadcast_to(evaluate(probe, scope).data, POINTS.shape)
        for name, sign in product(names, (1, -1)):
            with np.errstate(all="ignore"):
                wanted = ATOMS[name].numpy(sign * POINTS)
                near = (np.abs(values - wanted) <= within * np.maximum(np.abs(wanted), 1e-3)) | (values == wanted)
            if name != "negative" and np.all(near | (~np.isfinite(values) & (np.abs(POINTS) > OVERFLOW))):
                return call(name, inner if sign > 0 else call("negative", inner))
        return None

    return rebuild(expr, change)


def _argument(expr: Expr) -> Expr | None:
    """The one expression that, with numbers, the rest is made of; None where there is no variable."""
    if not isinstance(expr, Call) or not variables(expr):
        return expr if variables(expr) else None
    found = {part for part in map(_argument, expr.args) if part is not None}
    named = any(
        isinstance(part, Constant | IndexValue) for arg in expr.args if not variables(arg) for part in walk(arg)
    )
    return expr if named or len(found) > 1 else found.pop()

"""Choices between vectors by conditions on indices, as sums of products: a sentence that starts afresh, for example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorprog.language.expr import Call, Expr, Number, rebuild
from tensorprog.limit.form.definitions import ONE, ZERO

if TYPE_CHECKING:
    from tensorprog.limit.form.sums_of_functions import Parts

__all__ = ["branches_apart"]


def branches_apart(parts: Parts, expr: Expr) -> Expr:
    """where(c, x, y) as where(c, 1, 0) * x + where(c, 0, 1) * y, so that sums and products can be taken apart.

    Where x and y are numbers and functions of one affine form there is nothing to take apart: they stay.
    """

    def change(node: Expr) -> Expr | None:
        if not (isinstance(node, Call) and node.atom == "where") or parts.is_vector(node.args[0]):
            return None
        condition, *branches = node.args[0], *(branches_apart(parts, branch) for branch in node.args[1:])
        if not all(_stays(parts, branch) for branch in branches) and all(_finite(parts, b) for b in branches):
            x, y = (_held(parts, branch, side) for branch, side in zip(branches, _sides(condition), strict=True))
            return y if x == ZERO else x if y == ZERO else Call("add", (x, y))
        return Call("where", (condition, *branches))

    return rebuild(expr, change)


def _sides(condition: Expr) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """What a number is where the condition holds, else 0; and the other way round."""
    return (lambda a: Call("where", (condition, a, ZERO))), (lambda a: Call("where", (condition, ZERO, a)))


def _held(parts: Parts, branch: Expr, side: Callable[[Expr], Expr]) -> Expr:
    if branch == ZERO:
        return ZERO
    return Call("multiply", (side(ONE), branch)) if parts.is_vector(branch) else side(branch)


def _stays(parts: Parts, branch: Expr) -> bool:
    """Whether a branch is a number, or a function of one affine form that is not affine itself."""
    return not parts.is_vector(branch) or not (parts.affine(branch) or parts.function_part(branch).joint)


def _finite(parts: Parts, branch: Expr) -> bool:
    return parts.is_vector(branch) or (isinstance(branch, Number) and math.isfinite(branch.value))

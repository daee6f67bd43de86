"""Numbers of formulas, with errors: what has a closed form by sympy, unevaluated expectations by `gaussian`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tensorprog.gaussian import cross, integrate, mean
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import COORDINATE, Open, Scope, align, evaluate
from tensorprog.language.expr import Call, Expr, Variable, replace_variables
from tensorprog.language.ir import Range
from tensorprog.limit.form.univariate import function, smooth
from tensorprog.limit.formulas.expectation import Expectation, argument_names
from tensorprog.limit.formulas.nodes import IndexSum, Node, Score, ScoreAverage, Softmax, written_out

__all__ = ["estimate"]

Array = NDArray[Any]
TOLERANCE = 1e-5  # asked of functions of several variables, relative to their size
LEVEL = 64 * EPS  # errors of arguments below this, relatively, are rounding


def estimate(expr: Any) -> Estimate:
    """A formula without free symbols as a number.

    Shapes    a scalar Estimate
    Accuracy  the errors of unevaluated expectations are carried through to first order
    Raises    ProgramError naming what has no value
    """
    expr = sp.sympify(expr)
    if expr.has(ScoreAverage):
        raise ProgramError("averages over scores have no number as formulas; P.limit() gives their numbers")
    if expr.free_symbols or expr.has(Score):
        names = sorted({str(x) for x in expr.free_symbols} | {str(x) for x in expr.atoms(Score)})
        raise ProgramError(f"no number yet: {', '.join(names)} must be given values first")
    return _estimate(expr)


@lru_cache(maxsize=1 << 15)
def _estimate(expr: Any) -> Estimate:
    if isinstance(expr, IndexSum):
        terms = [_estimate(term) for term in written_out(expr.function, expr.limits)]
        return _stacked(terms).sum()
    if isinstance(expr, Softmax):
        return _softmax(expr)
    if isinstance(expr, Expectation):
        return _expectation(expr)
    if expr.is_infinite:  # of a masked entry
        return Estimate.exact(float(expr))
    inner = list(dict.fromkeys(_nodes(expr)))
    names = [sp.Dummy() for _ in inner]
    skeleton = expr.xreplace(dict(zip(inner, names, strict=True)))

    def call(*values: Array) -> Estimate:
        placed = skeleton.xreplace({n: sp.Float(float(v), 20) for n, v in zip(names, values, strict=True)})
        number = placed.evalf(20)
        if isinstance(number, sp.Float) and not number.is_comparable:  # a hundred digits do not tell it from 0
            return Estimate(np.asarray(float(number)), np.asarray(abs(float(number))))
        if not number.is_number or not number.is_comparable:
            raise ValueError(f"{skeleton} is not a real number")
        return Estimate.rounded(np.float64(number), 2)

    return _carried(call, [_estimate(node) for node in inner])


def _nodes(expr: Any) -> Iterator[Any]:
    if isinstance(expr, Node):
        yield expr
    else:
        for arg in expr.args:
            yield from _nodes(arg)


def _stacked(terms: list[Estimate]) -> Estimate:
    return Estimate(np.array([term.value for term in terms]), np.array([term.error for term in terms]))


def _softmax(node: Softmax) -> Estimate:
    """Masked entries are exactly zero; the entries of one row move by at most twice the error of its arguments."""
    row, here = _stacked([_estimate(term) for term in written_out(*node.args[:2])]), _estimate(node.here)
    top = row.value.max()
    share = np.exp(here.value - top) / np.exp(row.value - top).sum()
    moved = max(row.error.max(), here.error)
    return Estimate(share, np.asarray(share * (np.expm1(2 * moved) + (8 + row.value.size) * EPS)))


def _carried(call: Callable[..., Estimate], args: list[Estimate]) -> Estimate:
    """A function of estimates, the effect of their errors added to first order."""
    values = [arg.value for arg in args]
    result = call(*values)
    error = result.error
    for k, arg in enumerate(args):
        if arg.error > LEVEL * np.abs(arg.value):
            error = error + np.abs(call(*values[:k], values[k] + arg.error, *values[k + 1 :]).value - result.value)
    return Estimate(result.value, np.asarray(error))


# ---- expectations ---------------------------------------------------------------------------------------------------


def _expectation(node: Expectation) -> Estimate:
    factors, means, cov = node.args
    numbers = {(f, k): value for f, factor in enumerate(factors) for k, value in enumerate(factor[1])}
    size = len(means)
    upper = [(a, b) for a in range(size) for b in range(a, size)]
    bodies = [_renamed(factor, f) for f, factor in enumerate(factors)]

    def call(*values: Array) -> Estimate:
        mu = values[len(numbers) : len(numbers) + size]
        moments = dict(zip(upper, values[len(numbers) + size :], strict=True))
        given = zip(numbers, values, strict=False)
        scope = _scope({Variable(f".p{f}.{k}"): Open((), value) for (f, k), value in given})
        plain = all(len(factor[2]) == 1 for factor in factors)
        if plain and size == 1:
            product = bodies[0] if len(bodies) == 1 else Call("multiply", tuple(bodies))
            return mean(function(product, scope, ()), mu[0], np.maximum(moments[0, 0], 0))
        if plain and size == 2:
            (i, f), (j, g) = sorted((int(factor[2][0]), body) for factor, body in zip(factors, bodies, strict=True))
            vp, vq = np.maximum(moments[i, i], 0), np.maximum(moments[j, j], 0)
            edge = np.sqrt(vp) * np.sqrt(vq)
            first, second = function(f, scope, ()), function(g, scope, ())
            return cross(first, second, mu[0], mu[1], vp, vq, np.clip(moments[0, 1], -edge, edge))
        matrix = np.array([[moments[min(a, b), max(a, b)] for b in range(size)] for a in range(size)])
        several = _several(factors, bodies, scope)
        return integrate(several, np.array(mu), matrix, all(map(smooth, bodies)), TOLERANCE)

    return _carried(call, [_estimate(arg) for arg in (*numbers.values(), *means, *(cov[a][b] for a, b in upper))])


def _renamed(factor: Any, number: int) -> Expr:
    """A factor's body, its numbers named apart from those of other factors."""
    return replace_variables(
        factor[0].expr, lambda v: Variable(f".p{number}.{v.name[2:]}") if v.name.startswith(".p") else None
    )


def _scope(values: Mapping[Variable, Open]) -> Scope:
    return Scope(cast(Any, None), {}, lambda reference, ranges: values[reference])


def _several(factors: Any, bodies: list[Expr], scope: Scope) -> Callable[[Array], Array]:
    """The product of factors as a function of all variables."""

    def call(z: Array) -> Array:
        result: Array = np.ones(1)
        for factor, body in zip(factors, bodies, strict=True):
            arguments = [Open((COORDINATE,), z[int(place)]) for place in factor[2]]
            own = dict(zip(argument_names(len(arguments)), arguments, strict=True))

            def read(reference: Variable, box: Mapping[str, Range], own: Mapping[Variable, Open] = own) -> Open:
                return own[reference] if reference in own else scope.variable(reference, box)

            result = result * align(evaluate(body, Scope(scope.netsor, {}, read)), (COORDINATE,))
        return result

    return call


Node.evaluation = estimate

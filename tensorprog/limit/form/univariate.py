"""Expressions in one variable as `gaussian.Function`: values, kinks, features, parity and exact term expansions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.function import Function, Term
from tensorprog.language.atoms import ATOMS
from tensorprog.language.evaluate import Scope, evaluate
from tensorprog.language.expr import Call, Expr, Number, Reduction, Variable, variables, walk
from tensorprog.language.ir import Range
from tensorprog.language.named_arrays import COORDINATE, Open, align
from tensorprog.limit.form.sums_of_functions import FORMAL

__all__ = ["function", "smooth"]

Array = NDArray[Any]
MAX_ROOTS = 8
INFINITY = Number(np.inf)


def function(expr: Expr, scope: Scope, axes: tuple[str, ...]) -> Function:
    """Compile an expression in FORMAL over a batch with the axes named.

    Shapes    the batch of the result has one axis per name; numbers in the expression broadcast against it
    """
    compiler = _Compiler(scope, axes)
    built = compiler.build(expr)
    return Function(compiler.values(expr), built.kinks, built.features, built.parity, built.terms)


class _Compiler:
    def __init__(self, scope: Scope, axes: tuple[str, ...]) -> None:
        self.scope, self.axes = scope, axes
        self.built: dict[Expr, Function] = {}  # a part may occur more than once

    def numbers(self, part: Expr) -> Array:
        """A part without the variable, over the batch."""
        value = evaluate(part, self.scope)
        return np.asarray(align(value, self.axes) if value.axes else value.data, dtype=np.float64)

    def values(self, expr: Expr) -> Callable[[Array], Array]:
        """The expression as a function of x with shape batch + (m,)."""

        def call(x: Array) -> Array:
            if x.ndim <= len(self.axes):  # a batch that the caller left out
                x = x.reshape((1,) * (len(self.axes) + 1 - x.ndim) + x.shape)

            extra = tuple(f"+{k}" for k in range(x.ndim - 1 - len(self.axes)))  # leading axes of length 1, at most
            axes = (*extra, *self.axes, COORDINATE)

            def read(reference: Variable, ranges: Mapping[str, Range]) -> Open:
                return Open(axes, x) if reference == FORMAL else self.scope.variable(reference, ranges)

            result = align(evaluate(expr, Scope(self.scope.netsor, self.scope.ranges, read)), axes)
            return np.broadcast_to(result, np.broadcast_shapes(result.shape, x.shape))

        return call

    def build(self, expr: Expr) -> Function:
        if expr not in self.built:
            self.built[expr] = self._build(expr)
        return self.built[expr]

    def _build(self, expr: Expr) -> Function:
        if expr == FORMAL:
            return Function.from_terms((Term(1.0, 1),), parity=-1)
        if not _depends(expr):
            return Function.from_terms((Term(self.numbers(expr), 0),), parity=1)
        assert isinstance(expr, Call), expr
        if expr.atom == "add":
            return self.build(expr.args[0]).plus(self.build(expr.args[1]))
        if expr.atom == "subtract":
            return self.build(expr.args[0]).plus(self.build(expr.args[1]).scaled(-1.0))
        if expr.atom == "negative":
            return self.build(expr.args[0]).scaled(-1.0)
        if expr.atom == "divide" and not _depends(expr.args[1]):
            return self.build(expr.args[0]).scaled(1 / self.numbers(expr.args[1]))
        if expr.atom == "multiply":
            return self.product(expr.args[0], expr.args[1])
        if expr.atom in ("maximum", "minimum"):  # max(a, b) = b + relu(a - b), min(a, b) = a - relu(a - b)
            first, second = expr.args
            for number, other in ((first, second), (second, first)):
                if not _depends(number):  # possibly infinite
                    span = (number, INFINITY) if expr.atom == "maximum" else (Call("negative", (INFINITY,)), number)
                    return self.build(Call("clip", (other, *span)))
            hinge = self.build(Call("relu", (Call("subtract", (first, second)),)))
            if expr.atom == "maximum":
                return self.build(second).plus(hinge)
            return self.build(first).plus(hinge.scaled(-1.0))
        if ATOMS[expr.atom].arity == 1:
            return self.atom(expr)
        return self.opaque(expr)

    def product(self, first: Expr, second: Expr) -> Function:
        for number, other in ((first, second), (second, first)):
            if not _depends(number):
                return self.build(other).scaled(self.numbers(number))
        f, g = self.build(first), self.build(second)
        terms: tuple[Term, ...] | None = None
        if f.terms is not None and g.terms is not None:
            for poly, other_terms in ((f.terms, g.terms), (g.terms, f.terms)):
                if all(term.kind == "one" for term in poly):
                    terms = tuple(
                        Term(np.asarray(p.coefficient) * t.coefficient, p.power + t.power, t.kind, t.scale, t.shift)
                        for p in poly
                        for t in other_terms
                    )
                    break
        joined = f.plus(g)
        call_f, call_g = f.call, g.call
        return Function(lambda x: call_f(x) * call_g(x), joined.kinks, joined.features, f.parity * g.parity, terms)

    def atom(self, expr: Call) -> Function:
        atom = ATOMS[expr.atom]
        params = [self.numbers(param) for param in expr.params]
        inner = self.build(expr.arguments[0])
        values = [np.asarray(value, dtype=np.float64) for value in params]
        plain: list[Any] = [float(v) if v.ndim == 0 else v for v in values]
        uniform: list[Any] = plain
        if expr.atom == "power" and not isinstance(plain[0], float):
            uniform = [float(values[0].flat[0])] if np.all(values[0] == values[0].flat[0]) else plain
        lifted = [v[..., None] if isinstance(v, np.ndarray) else v for v in uniform]
        numpy = atom.numpy

        def outer(t: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(numpy(t, *lifted), dtype=np.float64)

        scalar_power = expr.atom != "power" or isinstance(uniform[0], float)
        kinks = atom.kinks(*uniform) if atom.kinks is not None and scalar_power else (0.0,)
        points = np.broadcast_arrays(*(np.asarray(k, dtype=np.float64) for k in kinks))
        own = np.stack(points, axis=-1) if kinks else np.zeros(0)
        features = np.array(atom.features(*uniform), dtype=np.float64).reshape(-1, 2)
        parity = atom.parity
        if expr.atom == "power" and isinstance(uniform[0], float) and uniform[0] == int(uniform[0]):
            parity = 1 if uniform[0] % 2 == 0 else -1
        if expr.atom == "clip" and np.array_equal(values[0], -values[1]) and np.all(values[0] <= 0):
            parity = -1
        terms = None
        if atom.terms is not None and scalar_power:
            raw = atom.terms(*uniform)
            terms = None if raw is None else tuple(Term(*term) for term in raw if np.any(term[0]))
        alone = Function(outer, own, features, parity, terms)
        line = _affine(inner)
        if line is not None:
            return alone.affine(*line)
        return self.composed(alone, inner, expr.atom)

    def composed(self, outer: Function, inner: Function, name: str) -> Function:
        """f(g(x)) for g not affine: kinks of f are met where g crosses them."""
        roots = [inner.kinks]
        levels = np.concatenate([outer.kinks, *([outer.features[..., 0]] if outer.features.size else [])], axis=-1)
        for level in np.moveaxis(levels, -1, 0):
            roots.append(_roots(inner.call, level))
        shape = np.broadcast_shapes(*(root.shape[:-1] for root in roots))
        kinks = np.concatenate([np.broadcast_to(r, (*shape, r.shape[-1])) for r in roots], axis=-1)
        if inner.parity == 1:
            parity = 1
        else:
            parity = outer.parity if inner.parity == -1 else 0
        terms: tuple[Term, ...] | None = None
        if name == "power" and inner.terms is not None and all(term.kind == "one" for term in inner.terms):
            assert outer.terms is None or len(outer.terms) == 1
            if outer.terms is not None and outer.terms[0].power <= 8:
                product: tuple[Term, ...] = (Term(1.0, 0),)
                for _ in range(outer.terms[0].power):
                    product = tuple(
                        Term(np.asarray(a.coefficient) * b.coefficient, a.power + b.power)
                        for a in product
                        for b in inner.terms
                    )
                terms = product
        call_f, call_g = outer.call, inner.call
        return Function(lambda x: call_f(call_g(x)), kinks, inner.features, parity, terms)

    def opaque(self, expr: Call) -> Function:
        """where(condition, a, b) and relatives: kinks where a condition switches."""
        kinks: list[Array] = []
        features: list[Array] = []
        for node in walk(expr):
            comparison = isinstance(node, Call) and ATOMS[node.atom].operator in ("<", "<=", ">", ">=", "==", "!=")
            if isinstance(node, Call) and comparison and _depends(node):
                difference = self.build(Call("subtract", node.args))
                kinks.append(_roots(difference.call, np.zeros(())))
        branches = expr.args[1:] if expr.atom == "where" else expr.args
        for arg in branches:
            built = self.build(arg)
            kinks.append(built.kinks)
            features.append(built.features)
        shape = np.broadcast_shapes(*(k.shape[:-1] for k in kinks))
        joined = np.concatenate([np.broadcast_to(k, (*shape, k.shape[-1])) for k in kinks], axis=-1)
        plain = [f for f in features if f.ndim == 2 and len(f)]
        merged = np.concatenate(plain) if plain else np.zeros((0, 2))

        return Function(self.values(expr), joined, merged)


def smooth(expr: Expr) -> bool:
    """Whether no function of formal variables (their names begin with a dot) in it has kinks."""
    if isinstance(expr, Call) and any(v.name.startswith(".") for v in variables(expr)):
        atom = ATOMS[expr.atom]
        linear = expr.atom in ("add", "subtract", "negative", "multiply", "divide")
        params = [p.value if isinstance(p, Number) else 0.5 for p in expr.params]
        if not linear and (atom.arity > 1 or atom.kinks is None or atom.kinks(*params)):
            return False
    if isinstance(expr, Reduction) and expr.reducer == "max":
        return False
    return all(map(smooth, expr.children))


def _depends(expr: Expr) -> bool:
    return any(node == FORMAL for node in walk(expr))


def _affine(inner: Function) -> tuple[Array, Array] | None:
    """(slope, offset) of a function whose terms are all of degree at most one."""
    if inner.terms is None or any(term.kind != "one" or term.power > 1 for term in inner.terms):
        return None
    slope = sum((np.asarray(t.coefficient, dtype=np.float64) for t in inner.terms if t.power == 1), np.zeros(()))
    offset = sum((np.asarray(t.coefficient, dtype=np.float64) for t in inner.terms if t.power == 0), np.zeros(()))
    return np.asarray(slope), np.asarray(offset)


def _roots(call: Callable[[Array], Array], level: Array) -> Array:
    """Points where a function of one variable crosses a level: bracketed on a fixed grid, then bisected.

    Shapes    level (batch) -> (batch, MAX_ROOTS), padded with inf
    """
    grid = np.sinh(np.linspace(-12, 12, 1201))
    batch = level.shape
    x = np.broadcast_to(grid, (*batch, grid.size)).copy()
    with np.errstate(all="ignore"):
        values = call(x) - level[..., None]
        x = np.broadcast_to(x, values.shape)
        signs = np.where(values > 0, 1, -1)
        change = signs[..., 1:] != signs[..., :-1]
        order = np.argsort(~change, axis=-1, kind="stable")[..., :MAX_ROOTS]
        found = np.take_along_axis(change, order, axis=-1)
        low, high = np.take_along_axis(x, order, axis=-1), np.take_along_axis(x, order + 1, axis=-1)
        sign = np.take_along_axis(signs, order, axis=-1)
        for _ in range(80):
            middle = (low + high) / 2
            left = np.where(call(middle) - level[..., None] > 0, 1, -1) == sign
            low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(found, (low + high) / 2, np.inf)

"""Expressions in one variable as functions for `gaussian`: values, kinks, features, parity and sums of terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.function import FunctionTerm, RealFunction, merged, terms_affine, terms_product, terms_scaled
from tensorprog.language.atoms import ATOMS, Atom
from tensorprog.language.evaluate import COORDINATE, Open, Scope, align, evaluate
from tensorprog.language.expr import Call, Expr, Number, Reduction, Variable, variables, walk
from tensorprog.language.ir import Range
from tensorprog.limit.form.sums_of_functions import FORMAL

__all__ = ["TermExpansion", "function", "smooth", "whole_number"]

Array = NDArray[Any]
MAX_ROOTS = 8
MOST_POWER = 12  # of a polynomial
INFINITY = Number(np.inf)


def function(expr: Expr, scope: Scope, axes: tuple[str, ...]) -> RealFunction:
    """Compile an expression in FORMAL over a batch with the axes named.

    Shapes    the batch of the result has one axis per name; numbers in the expression broadcast against it
    """
    compiler = _Compiler(scope, axes)
    built = compiler.build(expr)
    return replace(built, call=compiler.values(expr), parity=compiler.parity(expr), terms=compiler.terms(expr))


class TermExpansion(ABC):
    """Expressions of one variable as sums of terms, exactly; numbers in them are arrays or formulas."""

    def __init__(self) -> None:
        self._terms: dict[Expr, tuple[FunctionTerm, ...] | None] = {}  # a part may occur more than once

    @abstractmethod
    def number(self, part: Expr) -> Any:
        """A part without the variable."""

    @abstractmethod
    def pieces(self, atom: Atom, params: Sequence[Any]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one."""

    def terms(self, expr: Expr) -> tuple[FunctionTerm, ...] | None:
        """The terms that an expression is the sum of, if there are such."""
        if expr not in self._terms:
            self._terms[expr] = self._expanded(expr)
        return self._terms[expr]

    def _expanded(self, expr: Expr) -> tuple[FunctionTerm, ...] | None:
        if expr == FORMAL:
            return (FunctionTerm(1, 1),)
        if not _depends(expr):
            return (FunctionTerm(self.number(expr), 0),)
        if not isinstance(expr, Call):
            return None
        written = _in_basic_functions(expr)
        if written is not None:
            return self.terms(written)
        if expr.atom == "divide" and not _depends(expr.args[1]):
            above = self.terms(expr.args[0])
            return None if above is None else terms_scaled(above, 1 / self.number(expr.args[1]))
        known = [self.terms(arg) for arg in expr.arguments]
        first, second = known[0], known[-1]
        if first is None or second is None:
            return None
        if expr.atom in ("add", "subtract"):
            return first + (terms_scaled(second, -1) if expr.atom == "subtract" else second)
        if expr.atom == "negative":
            return terms_scaled(first, -1)
        if expr.atom == "multiply":
            return terms_product(first, second)
        own = self.pieces(ATOMS[expr.atom], [self.number(param) for param in expr.params]) if len(known) == 1 else None
        inner = merged(first)
        if own is None or not inner or any(term.kind != "one" for term in inner):
            return None
        line = _affine(inner)
        if line is not None:
            return terms_affine(own, *line) if any(term.power == 1 for term in inner) else None
        if len(own) > 1 or own[0].kind != "one" or own[0].power > MOST_POWER:
            return None
        power: tuple[FunctionTerm, ...] | None = (replace(own[0], power=0),)
        for _ in range(own[0].power):
            power = None if power is None else terms_product(power, inner)
        return power

    def parity(self, expr: Expr) -> int:
        """+1 for a function that is even, -1 for one that is odd, 0 where neither is seen at once."""
        if expr == FORMAL:
            return -1
        if not _depends(expr):
            return 1
        if not isinstance(expr, Call):
            return 0
        if expr.atom in ("add", "subtract"):
            shift = next((arg for arg in expr.args if not _depends(arg)), None)
            if shift is not None and not np.any(self.number(shift) != 0):
                return self.parity(expr.args[expr.args.index(shift) - 1])
            first, second = map(self.parity, expr.args)
            return first if first == second else 0
        if expr.atom in ("multiply", "divide"):
            return self.parity(expr.args[0]) * self.parity(expr.args[1])
        written = _in_basic_functions(expr)
        if written is not None or ATOMS[expr.atom].arity != 1:
            return 0 if written is None else self.parity(written)
        inner = self.parity(expr.arguments[0])
        own = self.own_parity(ATOMS[expr.atom], [self.number(param) for param in expr.params])
        return 1 if inner == 1 else own if inner == -1 else 0

    def own_parity(self, atom: Atom, params: Sequence[Any]) -> int:
        """The parity of a function of one argument."""
        whole = whole_number(params[0]) if atom.name == "power" else None
        return atom.parity if whole is None else (-1) ** (whole % 2)


def whole_number(value: Any) -> int | None:
    """The one whole number that a number, a formula or all entries of an array are, if they are one."""
    first = value.flat[0] if isinstance(value, np.ndarray) and value.size else value
    if not np.all(value == first) or not getattr(first, "is_number", True) or abs(first) == np.inf:
        return None
    return int(first) if first == int(first) else None


def _in_basic_functions(expr: Call) -> Expr | None:
    """max(a, b) = b + relu(a - b) and min(a, b) = a - relu(a - b); clips where one is a number, possibly infinite."""
    if expr.atom not in ("maximum", "minimum"):
        return None
    first, second = expr.args
    for number, other in ((first, second), (second, first)):
        if not _depends(number):
            span = (number, INFINITY) if expr.atom == "maximum" else (Call("negative", (INFINITY,)), number)
            return Call("clip", (other, *span))
    hinge = Call("relu", (Call("subtract", (first, second)),))
    return Call("add", (second, hinge)) if expr.atom == "maximum" else Call("subtract", (first, hinge))


class _Compiler(TermExpansion):
    def __init__(self, scope: Scope, axes: tuple[str, ...]) -> None:
        super().__init__()
        self.scope, self.axes = scope, axes
        self.built: dict[Expr, RealFunction] = {}

    def number(self, part: Expr) -> Array:
        """A part without the variable, over the batch."""
        value = evaluate(part, self.scope)
        return np.asarray(align(value, self.axes) if value.axes else value.data, dtype=np.float64)

    def pieces(self, atom: Atom, params: Sequence[Array]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one."""
        if atom.terms is None:
            return None
        given = _plain(params)
        if atom.name == "power":
            whole = whole_number(params[0])
            if whole is None:
                return None
            given = [float(whole)]
        found = atom.terms(*given)
        return None if found is None else tuple(FunctionTerm(*term) for term in found if np.any(term[0]))

    def own_parity(self, atom: Atom, params: Sequence[Any]) -> int:
        """The parity of a function of one argument: a clip is odd between opposite bounds."""
        if atom.name == "clip" and np.all(params[0] == -params[1]) and np.all(params[0] <= 0):
            return -1
        return super().own_parity(atom, params)

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

    def build(self, expr: Expr) -> RealFunction:
        if expr not in self.built:
            self.built[expr] = self._build(expr)
        return self.built[expr]

    def _build(self, expr: Expr) -> RealFunction:
        if expr == FORMAL:
            return RealFunction(lambda x: x, np.zeros(0))
        if not _depends(expr):
            value = self.number(expr)[..., None]
            return RealFunction(lambda x: np.zeros_like(x) + value, np.zeros(0))
        assert isinstance(expr, Call), expr
        written = _in_basic_functions(expr)
        if written is not None:
            return self.build(written)
        arithmetic = expr.atom in ("add", "subtract", "multiply")
        if arithmetic or (expr.atom == "divide" and not _depends(expr.args[1])):
            return self.build(expr.args[0]).joined(self.build(expr.args[1]), ATOMS[expr.atom].numpy)
        if ATOMS[expr.atom].arity == 1:
            return self.atom(expr)
        return self.opaque(expr)

    def atom(self, expr: Call) -> RealFunction:
        atom = ATOMS[expr.atom]
        inner = self.build(expr.arguments[0])
        params = _plain([self.number(param) for param in expr.params])
        if expr.atom == "power" and np.ndim(params[0]) and np.all(params[0] == params[0].flat[0]):
            params = [float(params[0].flat[0])]
        lifted = [p[..., None] if isinstance(p, np.ndarray) else p for p in params]
        numpy = atom.numpy

        def outer(t: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(numpy(t, *lifted), dtype=np.float64)

        known = atom.kinks is not None and (expr.atom != "power" or np.ndim(params[0]) == 0)
        kinks = atom.kinks(*params) if atom.kinks is not None and known else (0.0,)
        points = np.broadcast_arrays(*(np.asarray(k, dtype=np.float64) for k in kinks))
        own = np.stack(points, axis=-1) if kinks else np.zeros(0)
        features = np.array(atom.features(*params), dtype=np.float64).reshape(-1, 2)
        alone = RealFunction(outer, own, features)
        line = _affine(self.terms(expr.arguments[0]))
        return self.composed(alone, inner) if line is None else alone.affine(*line)

    def composed(self, outer: RealFunction, inner: RealFunction) -> RealFunction:
        """f(g(x)) for g not affine: kinks of f are met where g crosses them."""
        levels = np.concatenate([outer.kinks, *([outer.features[..., 0]] if outer.features.size else [])], axis=-1)
        kinks = [inner.kinks, *(_roots(inner.call, level) for level in np.moveaxis(levels, -1, 0))]
        call_f, call_g = outer.call, inner.call
        return RealFunction(lambda x: call_f(call_g(x)), _joined(kinks), inner.features)

    def opaque(self, expr: Call) -> RealFunction:
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
        plain = [f for f in features if f.ndim == 2 and len(f)]
        return RealFunction(self.values(expr), _joined(kinks), np.concatenate(plain) if plain else np.zeros((0, 2)))


def _plain(params: Sequence[Array]) -> list[Any]:
    """Parameters without axes as floats."""
    return [float(p) if p.ndim == 0 else p for p in params]


def _joined(kinks: Sequence[Array]) -> Array:
    """All kinks along the last axis."""
    shape = np.broadcast_shapes(*(k.shape[:-1] for k in kinks))
    return np.concatenate([np.broadcast_to(k, (*shape, k.shape[-1])) for k in kinks], axis=-1)


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


def _affine(terms: Sequence[FunctionTerm] | None) -> tuple[Any, Any] | None:
    """(slope, offset) of a sum of terms all of degree at most one."""
    if terms is None or any(term.kind != "one" or term.power > 1 for term in terms):
        return None
    slope, offset = (sum((t.coefficient for t in terms if t.power == k), 0) for k in (1, 0))
    return slope, offset


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

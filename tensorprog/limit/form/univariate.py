"""Expressions in one variable as functions for `gaussian`: values, kinks, features, parity and sums of terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import add
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.function import FunctionTerm, RealFunction, merged, terms_affine, terms_product, terms_scaled
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom
from tensorprog.language.evaluate import Scope, align, evaluate
from tensorprog.language.expr import Call, Expr, Number, Reduction, fold, variables, walk
from tensorprog.limit.form.sums_of_functions import FORMAL

__all__ = ["TermExpansion", "function", "smooth", "whole_number"]

Array = NDArray[Any]
MAX_ROOTS = 8
MOST_POWER = 12  # of a polynomial
INFINITY = Number(np.inf)
SWITCHES = ("<", "<=", ">", ">=", "==", "!=")
NO_KINKS = np.zeros(0)


def function(expr: Expr, scope: Scope, axes: tuple[str, ...], part: Sequence[slice] = ()) -> RealFunction:
    """An expression in FORMAL as a function, over a batch with the axes named, or over a part, a slice of each.

    Shapes    the batch of the result has one axis per name; numbers in the expression broadcast against it
    """
    found: RealFunction = _Functions(scope, axes, part).of(expr)
    alive = ref(scope)  # a function that is remembered must not keep all moments of its law; it reads none of them

    def of_part(cut: tuple[slice, ...]) -> RealFunction:
        here = alive()
        return found if here is None else function(expr, here, axes, cut)

    return replace(found, part=of_part)


class TermsAndParity(NamedTuple):
    """What is known exactly of a function of one variable."""

    terms: tuple[FunctionTerm, ...] | None  # that it is the sum of, if there are such
    parity: int  # +1 even, -1 odd, 0 where neither is seen at once


class TermExpansion(ABC):
    """Expressions of one variable as sums of terms, exactly; numbers in them are arrays or formulas.

    What an expression means is a `TermsAndParity`, or in a subclass what has its fields among others.
    """

    @abstractmethod
    def number(self, part: Expr) -> Any:
        """A part without the variable."""

    @abstractmethod
    def pieces(self, atom: Atom, params: Sequence[Any]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one."""

    def of(self, expr: Expr) -> Any:
        """What an expression means."""
        found: dict[Expr, Any] = {FORMAL: self.variable()}  # a part may occur more than once

        def leaf(node: Expr) -> Any:
            depends = node in found or any(part == FORMAL for part in walk(node))
            return found.get(node) if depends else self.constant(self.number(node))

        def call(node: Call, *args: Any) -> Any:
            return found.setdefault(node, self.applied(node.atom, *args))

        return fold(expr, dict.fromkeys(REDUCTIONS, lambda *_: TermsAndParity(None, 0)), leaf, call)

    def variable(self) -> Any:
        """The variable itself."""
        return TermsAndParity((FunctionTerm(1, 1),), -1)

    def constant(self, value: Any) -> Any:
        """A number."""
        return TermsAndParity((FunctionTerm(value, 0),), 1)

    def applied(self, name: str, *args: Any) -> Any:
        """A function of functions; max(a, b) = b + relu(a - b), and clips where one is a number, possibly infinite."""
        terms = [f.terms for f in args]
        known = None not in terms
        if name == "multiply":
            return TermsAndParity(terms_product(*terms) if known else None, args[0].parity * args[1].parity)
        if name == "negative":
            return TermsAndParity(terms_scaled(terms[0], -1) if known else None, args[0].parity)
        if name == "divide":
            value = _number(args[1])
            above = None if value is None or terms[0] is None else terms_scaled(terms[0], 1 / value)
            return TermsAndParity(above, args[0].parity * args[1].parity)
        if name in ("add", "subtract"):
            f, g = args
            zero = [value is not None and not np.any(value != 0) for value in (_number(f), _number(g))]
            parity = g.parity if zero[0] else f.parity if zero[1] or f.parity == g.parity else 0
            total = add(terms[0], terms[1] if name == "add" else terms_scaled(terms[1], -1)) if known else None
            return TermsAndParity(total, parity)
        if name in ("maximum", "minimum"):
            infinity = self.number(INFINITY)
            for number, other in (args, args[::-1]):
                if _number(number) is not None and name == "maximum":
                    return self.applied("clip", other, number, self.constant(infinity))
                if _number(number) is not None:
                    return self.applied("clip", other, self.constant(-infinity), number)
            hinge = self.applied("relu", self.applied("subtract", *args))
            return (
                self.applied("add", args[1], hinge) if name == "maximum" else self.applied("subtract", args[0], hinge)
            )
        atom = ATOMS[name]
        if atom.arity != 1:
            return TermsAndParity(None, 0)
        params = [_number(param) for param in args[1:]]
        parity = 1 if args[0].parity == 1 else self.own_parity(atom, params) * -args[0].parity
        return TermsAndParity(self._inside(atom, terms[0], params), parity)

    def _inside(self, atom: Atom, terms: Any, params: Sequence[Any]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument, of a line, or a power of any sum of terms."""
        own = None if terms is None else self.pieces(atom, params)
        inner = merged(terms or ())
        if own is None or not inner:
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

    def own_parity(self, atom: Atom, params: Sequence[Any]) -> int:
        """The parity of a function of one argument."""
        whole = whole_number(params[0]) if atom.name == "power" else None
        return atom.parity if whole is None else (-1) ** (whole % 2)


def _number(known: Any) -> Any:
    """The number that a function is, None for others."""
    terms: Sequence[FunctionTerm] = known.terms or ()
    return terms[0].coefficient if len(terms) == 1 and (terms[0].kind, terms[0].power) == ("one", 0) else None


def whole_number(value: Any) -> int | None:
    """The one whole number that a number, a formula or all entries of an array are, if they are one."""
    first = value.flat[0] if isinstance(value, np.ndarray) and value.size else value
    if not np.all(value == first) or not getattr(first, "is_number", True) or abs(first) == np.inf:
        return None
    return int(first) if first == int(first) else None


class _Functions(TermExpansion):
    """Expressions as functions, with all that is known of them."""

    def __init__(self, scope: Scope, axes: tuple[str, ...], part: Sequence[slice]) -> None:
        self.scope, self.axes, self.part = scope, axes, part

    def number(self, part: Expr) -> Array:
        """A part without the variable, over the batch."""
        value = evaluate(part, self.scope)
        found = np.asarray(align(value, self.axes) if value.axes else value.data, dtype=np.float64)
        sizes = zip(self.part, found.shape, strict=False)
        return found[tuple(cut if size > 1 else slice(None) for cut, size in sizes)]

    def pieces(self, atom: Atom, params: Sequence[Array]) -> tuple[FunctionTerm, ...] | None:
        """A function of one argument as a sum of terms, if it is one."""
        given: list[Any] = _plain(params)
        if atom.name == "power":
            given = [whole_number(params[0])]
        found = None if atom.terms is None or any(g is None for g in given) else atom.terms(*given)
        return None if found is None else tuple(FunctionTerm(*term) for term in found if np.any(term[0]))

    def own_parity(self, atom: Atom, params: Sequence[Any]) -> int:
        """The parity of a function of one argument: a clip is odd between opposite bounds."""
        if atom.name == "clip" and np.all(params[0] == -params[1]) and np.all(params[0] <= 0):
            return -1
        return super().own_parity(atom, params)

    def variable(self) -> RealFunction:
        """The variable itself."""
        return _known(RealFunction(lambda x: x, NO_KINKS), super().variable())

    def constant(self, value: Array) -> RealFunction:
        """A number."""
        return _known(RealFunction(lambda x: np.zeros_like(x) + value[..., None], NO_KINKS), super().constant(value))

    def applied(self, name: str, *args: RealFunction) -> RealFunction:
        """A function of functions: its values, where it has kinks, and what is known exactly."""
        known, atom = super().applied(name, *args), ATOMS[name]
        if isinstance(known, RealFunction):  # max and min, whose values are no sums
            return replace(known, call=args[0].joined(args[1], atom.numpy).call)
        if name in ("add", "subtract", "multiply") or (name == "divide" and _number(args[1]) is not None):
            return _known(args[0].joined(args[1], atom.numpy), known)
        if atom.arity == 1:
            return _known(_composed(_alone(atom, [_number(param) for param in args[1:]]), args[0]), known)
        kinks = [arg.kinks for arg in args]
        if atom.operator in SWITCHES:
            kinks = [_roots(args[0].joined(args[1], np.subtract).call, np.zeros(()))]
        calls, plain = [f.call for f in args], [f.features for f in args if f.features.ndim == 2 and len(f.features)]

        def call(x: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(atom.numpy(*(each(x) for each in calls)), dtype=np.float64)

        built = RealFunction(call, _joined(kinks), np.concatenate(plain) if plain else np.zeros((0, 2)))
        return _known(built, known)


def _known(f: RealFunction, expansion: TermsAndParity) -> RealFunction:
    """The function with what is known exactly."""
    return replace(f, terms=expansion.terms, parity=expansion.parity)


def _alone(atom: Atom, params: Sequence[Array]) -> RealFunction:
    """A function of one argument, of the variable itself."""
    given = _plain(params)
    if atom.name == "power" and np.ndim(given[0]) and np.all(given[0] == given[0].flat[0]):
        given = [float(given[0].flat[0])]
    lifted = [p[..., None] if isinstance(p, np.ndarray) else p for p in given]

    def call(t: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(atom.numpy(t, *lifted), dtype=np.float64)

    known = atom.kinks is not None and (atom.name != "power" or np.ndim(given[0]) == 0)
    kinks = atom.kinks(*given) if atom.kinks is not None and known else (0.0,)
    points = np.broadcast_arrays(*(np.asarray(k, dtype=np.float64) for k in kinks))
    own = np.stack(points, axis=-1) if kinks else NO_KINKS
    return RealFunction(call, own, np.array(atom.features(*given), dtype=np.float64).reshape(-1, 2))


def _composed(outer: RealFunction, inner: RealFunction) -> RealFunction:
    """f(g(x)): kinks of f are met where g crosses them."""
    line, call_f, call_g = _affine(inner.terms), outer.call, inner.call
    if line is not None:
        return replace(outer.affine(*line), call=lambda x: call_f(call_g(x)))
    levels = np.concatenate([outer.kinks, *([outer.features[..., 0]] if outer.features.size else [])], axis=-1)
    kinks = [inner.kinks, *(_roots(inner.call, level) for level in np.moveaxis(levels, -1, 0))]
    return RealFunction(lambda x: call_f(call_g(x)), _joined(kinks), inner.features)


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
    return not (isinstance(expr, Reduction) and expr.reducer == "max") and all(map(smooth, expr.children))


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
    with np.errstate(all="ignore"):
        values = call(np.broadcast_to(grid, (*level.shape, grid.size)).copy()) - level[..., None]
        x = np.broadcast_to(grid, values.shape)
        signs = np.where(values > 0, 1, -1)
        change = signs[..., 1:] != signs[..., :-1]
        order = np.argsort(~change, axis=-1, kind="stable")[..., :MAX_ROOTS]
        found, low, high = (np.take_along_axis(a, order, -1) for a in (change, x[..., :-1], x[..., 1:]))
        sign = np.take_along_axis(signs, order, axis=-1)
        for _ in range(80):
            middle = (low + high) / 2
            left = np.where(call(middle) - level[..., None] > 0, 1, -1) == sign
            low, high = np.where(left, middle, low), np.where(left, high, middle)
    return np.where(found, (low + high) / 2, np.inf)

"""Clips that never act: what a program can be drawn without at a width, and how surely.

clip(u, -100, 100) is u unless a coordinate passes 100, and a vector that is a linear combination of Gaussian ones need
not be drawn in all its coordinates.  So a plan leaves out clips that act in no network that anybody will ever draw.

The bound.  Let e^-L be small.  A standard normal g exceeds z = sqrt(2 L) in size with a probability of at most e^-L,
and a standard normal vector G of R^n has |G|^2 > n t, where t = 1 + 2 sqrt(L / n) + 2 L / n, with a probability of at
most e^-L (Laurent & Massart 2000, Lemma 1).  Now go through the program.  An initial vector is m + d G.  A product u
= W x by weights that made nothing upstream of x has, given x, independent coordinates N(0, sigma^2 |x|^2 / n_in):
wherever |x|^2 <= n_in r^2, |u_a| <= sigma r z for every coordinate and |u|^2 <= n_out sigma^2 r^2 t, but for n_out +
1 events of conditional probability at most e^-L.  So all vectors stay within their bounds outside N events, where N
counts the coordinates, and once more the members, of all initial vectors and products upstream.  There a clip left
out is its argument: the laws of M networks with and without it differ by at most M N e^-L in total variation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tensorprog.finite.demand import Form, form_of, vectors_of
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Expr, Number, Variable, fold, free_indices, is_call, variables, walk, with_children
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.language.weight_members import variances

__all__ = ["LEAST", "Inactive", "without_inactive"]

LEAST = -45  # decimal logarithm of the probability that a clip left out acts in one network, at most
SLACK = 1 + 1e-9  # for the rounding of bounds


@dataclass(frozen=True)
class Inactive:
    """A program without its inactive clips: what was written, what is drawn, by statement."""

    netsor: Netsor
    statements: tuple[tuple[Nonlin, Nonlin], ...]


class _Reach(NamedTuple):
    """An expression without its clips that do not act, the least and the largest of its values, and a bound on the
    root mean square over coordinates."""

    expr: Expr
    low: float
    high: float
    rms: float


def without_inactive(netsor: Netsor, widths: Mapping[str, int], kept: Collection[str]) -> Inactive | None:
    """The program without clips of linear combinations of Gaussian vectors that act in no network; None if there are
    none whose absence makes vectors simpler.

    `widths` are whole numbers by name.
    """
    if not any(is_call(node, "clip") for s in netsor.body if isinstance(s, Nonlin) for node in walk(s.expr)):
        return None
    vectors = vectors_of(netsor)
    sizes = {name: math.prod(family.shape) for name, family in netsor.families.items()}
    needed = upstream(netsor, kept)
    events = sum((widths[netsor.families[name].width] + 1) * sizes[name] for name in needed & vectors)
    level = math.log(max(events, 1)) - LEAST * math.log(10)
    anything = Number(0), -math.inf, math.inf, math.inf
    reaches: dict[str, _Reach] = {}
    behind: dict[str, frozenset[str]] = {}  # weights that made a family

    def enter(name: str, low: float, high: float, rms: float) -> None:
        old = reaches.get(name, _Reach(Number(0), low, high, rms))
        reaches[name] = _Reach(Number(0), min(low, old.low), max(high, old.high), max(rms, old.rms))

    def gaussian(name: str, mean: float, deviation: float) -> None:
        ratio = level / widths[netsor.families[name].width]
        far = mean + deviation * math.sqrt(2 * level) * SLACK
        enter(name, -far, far, mean + deviation * math.sqrt(1 + 2 * math.sqrt(ratio) + 2 * ratio) * SLACK)

    for initial in netsor.initial:
        if not initial.grid:
            law = initial_laws(netsor)[initial.name]
            gaussian(initial.name, float(np.abs(law.mean).max()), math.sqrt(float((law.factor**2).sum(-1).max())))
    pairs = []
    for position, statement in enumerate(netsor.body):
        name = statement.target.name
        read = {reference.name for reference in statement.inputs}
        later = {other for other in read if max(netsor.families[other].statements, default=-1) >= position}
        behind[name] = behind.get(name, frozenset()).union(*(behind.get(other, frozenset()) for other in read))
        known = {
            other: _Reach(*anything) if other in later else reaches.get(other, _Reach(*anything)) for other in read
        }
        if isinstance(statement, MatMul):
            weight = statement.weight.name
            fresh = weight not in behind[name] and not statement.transposed
            behind[name] |= {weight}
            variance = float(variances(netsor, weight).max(initial=0.0))
            rms = known[statement.vector.name].rms
            gaussian(name, 0.0, math.sqrt(variance) * rms if fresh and rms < math.inf else math.inf)
        elif isinstance(statement, Nonlin) and netsor.families[name].kind == "vector":
            found = _reach(netsor, statement.expr, known)
            enter(name, *found[1:])
            forms = [form_of(expr, vectors) for expr in (statement.expr, found.expr)]
            if forms[0] is Form.NONLINEAR and forms[1] is not Form.NONLINEAR and name in needed:
                pairs.append((statement, replace(statement, expr=found.expr)))
    drawn = {id(old): new for old, new in pairs}
    body = tuple(drawn.get(id(statement), statement) for statement in netsor.body)
    return Inactive(replace(netsor, body=body), tuple(pairs)) if pairs else None


def _reach(netsor: Netsor, expr: Expr, known: Mapping[str, _Reach]) -> _Reach:
    """Bounds of linear combinations with constant coefficients and of clips; of anything else there are none."""

    def leaf(node: Expr) -> _Reach | None:
        if isinstance(node, Variable):
            return known[node.name]._replace(expr=node)
        if variables(node):
            return None
        values = index_array(netsor, node, free_indices(node))
        low, high = float(np.min(values)), float(np.max(values))
        return _Reach(node, low, high, max(-low, high))

    def combined(node: Expr, *parts: _Reach) -> _Reach:
        x = parts[0]
        if is_call(node, "clip") and parts[1].high <= x.low and x.high <= parts[2].low:
            return x
        whole = with_children(node, *(part.expr for part in parts))
        if is_call(node, "clip") and parts[1].low <= 0 <= parts[2].high:
            low, high = max(x.low, parts[1].low), min(x.high, parts[2].high)
            return _Reach(whole, low, high, min(x.rms, max(-low, high)))
        if is_call(node, "negative"):
            return _Reach(whole, -x.high, -x.low, x.rms)
        if is_call(node, "add"):
            return _Reach(whole, x.low + parts[1].low, x.high + parts[1].high, x.rms + parts[1].rms)
        if is_call(node, "subtract"):
            return _Reach(whole, x.low - parts[1].high, x.high - parts[1].low, x.rms + parts[1].rms)
        if is_call(node, "divide") and not variables(parts[1].expr) and parts[1].low * parts[1].high > 0:
            least = min(abs(parts[1].low), abs(parts[1].high))
            size = max(-x.low, x.high) / least
            return _Reach(whole, -size, size, x.rms / least)
        if is_call(node, "multiply") and not all(variables(part.expr) for part in parts):
            sizes = [max(-part.low, part.high) for part in parts]
            number = next(size for size, part in zip(sizes, parts, strict=True) if not variables(part.expr))
            vector = next((part.rms for part in parts if variables(part.expr)), number)
            if max(*sizes, vector) < math.inf:
                return _Reach(whole, -sizes[0] * sizes[1], sizes[0] * sizes[1], number * vector)
        return _Reach(whole, -math.inf, math.inf, math.inf)

    return fold(expr, {}, leaf, combined)

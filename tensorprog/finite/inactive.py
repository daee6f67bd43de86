"""Functions that never act: what a program can be drawn without at a width, and how surely.

clip(u, -100, 100) is u unless a coordinate passes 100, and a vector that is a linear combination of Gaussian ones need
not be drawn in all its coordinates.  So a plan leaves out clips, branches, factors and the like that act in no network
that anybody will ever draw, and says with which probability that is wrong.

The bound.  Let e^-L be small.  A standard normal g exceeds z = sqrt(2 L) in size with a probability of at most e^-L,
because P(|g| > z) = erfc(z / sqrt(2)) <= exp(-z^2 / 2).  A standard normal vector G of R^n has |G|^2 > n t, where
t = 1 + 2 sqrt(L / n) + 2 L / n, with a probability of at most e^-L: for 0 < s < 1/2, log E exp(s (|G|^2 - n)) is
-(n/2) log(1 - 2 s) - n s <= n s^2 / (1 - 2 s), and Chernoff's bound takes the best s (Laurent & Massart 2000, Lemma 1).
Now go through the program.  An initial vector is m + d G.  A product u = W x by weights that made nothing upstream of
x has, given x, independent coordinates N(0, sigma^2 |x|^2 / n_in): wherever |x|^2 <= n_in r^2, |u_a| <= sigma r z for
every coordinate and |u|^2 <= n_out sigma^2 r^2 t, but for n_out + 1 events of conditional probability at most e^-L.
Coordinates of functions lie in the images of intervals, and their root mean squares are bounded by the triangle
inequality and by Lipschitz constants.  So all vectors stay within their bounds outside N events, where N counts the
coordinates, and once more the members, of all initial vectors and products upstream.  There a function left out is
what stands in its place, so with the same initial vectors and weights the program has the same values as the one
without it: their laws differ by at most N e^-L in total variation, and those of M networks by M N e^-L.  The N events
need not be independent, and no network is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from tensorprog.blocks import code
from tensorprog.finite.demand import Form, form_of, vectors_of
from tensorprog.language.atoms import ATOMS, Interval
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import (
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    factors,
    fold,
    free_indices,
    variables,
    with_children,
)
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import rearranged, steps, upstream
from tensorprog.language.weight_members import Grouping, variances

__all__ = ["Inactive", "without_inactive"]

ALL, VARIATION = 15, -30  # decimal logarithms: of networks in any run, and of the total variation that it may have
SLACK = 1 + 1e-9  # for the rounding of bounds
GRID = 1 << 16  # values of an expression of indices that are looked at one by one
ROUNDS = 12  # of the bisection for the best bound
INF = math.inf


@dataclass(frozen=True)
class Inactive:
    """A program without its inactive functions: what was written, what is drawn, by statement.

    `log10_variation` bounds the decimal logarithm of the total variation between the laws of one network of the two;
    -inf where they are equal.
    """

    netsor: Netsor
    statements: tuple[tuple[Nonlin, Nonlin], ...]
    log10_variation: float

    def of_run(self, networks: int) -> float:
        """The same for so many independent networks."""
        return self.log10_variation + math.log10(networks)

    def words(self) -> list[str]:
        """What is drawn for what, and how little it matters, as words of a paragraph."""
        words: list[str] = []
        for written, drawn in self.statements:
            words += [code(str(written)), " is drawn as ", code(str(drawn)), ", "]
        if self.log10_variation == -INF:
            return [*words[:-1], ", which is the same"]
        one, run = (math.ceil(self.log10_variation + more) for more in (0, ALL))
        return [
            *words[:-1], f": they differ in a network with probability below 1e{one}, and the laws of 1e{ALL} networks "
            f"by less than 1e{run} in total variation (", code("exact=True"), " leaves nothing out)",
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The statements and the bound as plain values; the bound is None where nothing differs."""
        return {
            "left_out": [{"written": str(written), "drawn": str(drawn)} for written, drawn in self.statements],
            "log10_total_variation": None if self.log10_variation == -INF else self.log10_variation,
        }


def without_inactive(
    netsor: Netsor, widths: Mapping[str, int], kept: Collection[str], least: float = VARIATION - ALL
) -> Inactive | None:
    """The program without functions that are inactive, None if there are none whose absence makes vectors simpler.

    `widths` are whole numbers by name; 10**`least` is the largest probability allowed that they act in one network.
    """
    needed = upstream(netsor, kept)
    program = _Bounds(netsor, widths, needed)
    level = math.log(max(program.events, 1)) - least * math.log(10)
    found = program.simpler(level, needed)
    if not found:
        return None
    reads = {reference.name for position in found for reference in netsor.body[position].inputs}
    program = _Bounds(netsor, widths, upstream(netsor, reads))
    log10_variation = -INF
    if program.simpler(INF, found) != found:
        level = _largest(lambda level: program.simpler(level, found) == found, level)
        log10_variation = (math.log(program.events) - level) / math.log(10)
    pairs = []
    for position, expr in found.items():
        written = netsor.body[position]
        assert isinstance(written, Nonlin)
        family = netsor.families[written.target.name]
        bare = not any(netsor.families[v.name].kind == "vector" for v in variables(expr))
        if bare and variables(expr):  # scalars alone would make a scalar of a vector with equal coordinates
            continue
        pairs.append((written, replace(written, expr=expr, width=family.width if bare else written.width)))
    if not pairs:
        return None
    drawn = {id(old): new for old, new in pairs}
    body = [drawn.get(id(statement), statement) for statement in netsor.body]
    order = rearranged(body, netsor.ranges, netsor.boundaries)  # a recurrence may be none any more
    return Inactive(replace(netsor, body=tuple(body[position] for position in order)), tuple(pairs), log10_variation)


def _largest(holds: Callable[[float], bool], level: float) -> float:
    """Nearly the largest level at which something holds, given one at which it does."""
    low, high = level, 2 * level
    while holds(high):
        low, high = high, 2 * high
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


class _Reach(NamedTuple):
    """An interval for every coordinate of a vector, and a bound on its root mean square; of numbers, on their size."""

    low: float
    high: float
    rms: float

    def joined(self, other: _Reach) -> _Reach:
        return _Reach(min(self.low, other.low), max(self.high, other.high), max(self.rms, other.rms))


ZERO, ANYTHING = _Reach(0.0, 0.0, 0.0), _Reach(-INF, INF, INF)


class _Bounded(NamedTuple):
    """A subexpression without its inactive functions, and the reach of its values."""

    expr: Expr
    low: float
    high: float
    rms: float

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def single(self) -> bool:
        """Whether it has one value only."""
        return self.low == self.high and math.isfinite(self.low)

    @property
    def truth(self) -> Interval:
        """The interval of the value as a condition."""
        return (1.0, 1.0) if self.low > 0 or self.high < 0 else (0.0, 0.0) if self.low == self.high == 0 else (0.0, 1.0)


class _Bounds:
    """Bounds on the families upstream of what is needed, which hold but for `events` events of one probability.

    Steps go in the order of execution, and a family's bounds are those of all its members so far.
    """

    def __init__(self, netsor: Netsor, widths: Mapping[str, int], needed: Collection[str]) -> None:
        self.netsor, self.vectors = netsor, vectors_of(netsor)
        self.events = 0.0
        self.closed: dict[Expr, Interval | None] = {}
        self.initials: list[tuple[str, float, float, float, int]] = []
        laws = initial_laws(netsor) if any(initial.name in needed for initial in netsor.initial) else {}
        for initial in netsor.initial:
            if initial.name in needed and initial.grid:
                self.initials.append((initial.name, 0.0, 1.0, 0.0, widths[initial.width]))
            elif initial.name in needed:
                law, width = laws[initial.name], widths[initial.width]
                own = law.at(initial.indices)
                sizes = np.diagonal(law.blocks, axis1=-2, axis2=-1) if own is None else own[0].data
                deviation = math.sqrt(float(sizes.max()))
                self.initials.append((initial.name, float(law.mean.min()), float(law.mean.max()), deviation, width))
                self.events += math.prod(netsor.families[initial.name].shape) * (width + 1.0)
        self.steps: list[tuple[MatMul | Nonlin | Dot, float, int]] = []  # with a factor and a width
        behind: dict[str, int] = {}  # weight members that made a family, as bits
        first: dict[str, int] = {}
        bits = 0
        for weight in netsor.weights:
            first[weight.name] = bits
            bits += math.prod(netsor.families[weight.name].shape)
        for step in steps(netsor):
            statement = step.statement
            name = statement.target.name
            if name not in needed:
                continue
            made = reduce(int.__or__, (behind.get(reference.name, 0) for reference in statement.inputs), 0)
            factor, width = 1.0, 0
            if isinstance(statement, MatMul):
                family = netsor.families[statement.weight.name]
                group = Grouping(statement, family, step.ranges(netsor.ranges))
                used = sum(1 << first[family.name] + int(member) for member in group.members)
                width, inputs = (widths[side] for side in statement.sides(netsor.weight[family.name]))
                columns = widths[netsor.weight[family.name].shape[1]]
                variance = float(variances(netsor, family.name)[group.members].max(initial=0.0))
                factor = INF if used & made else math.sqrt(variance * inputs / columns)
                made |= used
                self.events += len(group.members) * group.columns * (width + 1.0)
            elif isinstance(statement, Dot) and statement.scale == "n**-0.5":
                factor = math.sqrt(widths[netsor.families[statement.left.name].width])
            behind[name] = behind.get(name, 0) | made
            self.steps.append((statement, factor, width))

    def simpler(self, level: float, wanted: Collection[str] | Mapping[int, Expr]) -> dict[int, Expr]:
        """Expressions of statements without their inactive functions, where events have probability e^-level.

        Only where vectors become linear that were not, or where fewer families are read.
        """
        reaches = self.reaches(level)
        found = {}
        for position, statement in enumerate(self.netsor.body):
            name = statement.target.name
            if isinstance(statement, Nonlin) and (position in wanted or name in wanted):
                expr = self.part(statement.expr, reaches).expr
                if expr != statement.expr and self._pays(statement.expr, expr):
                    found[position] = expr
        return found

    def _pays(self, before: Expr, after: Expr) -> bool:
        forms = [form_of(expr, self.vectors) for expr in (before, after)]
        names = [{variable.name for variable in variables(expr)} for expr in (before, after)]
        return (forms[0] is Form.NONLINEAR and forms[1] is not Form.NONLINEAR) or names[1] < names[0]

    def reaches(self, level: float) -> dict[str, _Reach]:
        """Bounds of all families, by name."""
        reaches: dict[str, _Reach] = {}

        def enter(name: str, low: float, high: float, rms: float) -> None:
            zero = "zero" in self.netsor.families[name].boundaries
            new = _Reach(low, high, min(rms, max(abs(low), abs(high))))
            old = reaches.get(name, ZERO if zero else new)
            reaches[name] = old.joined(new)

        def gaussian(name: str, low: float, high: float, deviation: float, width: int) -> None:
            """Coordinates around means between low and high."""
            far = root = 0.0
            if deviation:
                far = deviation * math.sqrt(2 * level) * SLACK
                ratio = level / width
                root = deviation * math.sqrt(1 + 2 * math.sqrt(ratio) + 2 * ratio) * SLACK
            enter(name, low - far, high + far, max(abs(low), abs(high)) + root)

        for name, low, high, deviation, width in self.initials:
            gaussian(name, low, high, deviation, width)
        for statement, factor, width in self.steps:
            name = statement.target.name
            if isinstance(statement, MatMul):
                rms = reaches.get(statement.vector.name, ANYTHING).rms
                gaussian(name, 0.0, 0.0, factor * rms if factor and rms else 0.0, width)
            elif isinstance(statement, Dot):
                sizes = [reaches.get(side.name, ANYTHING).rms for side in (statement.left, statement.right)]
                size = 0.0 if 0.0 in sizes else factor * sizes[0] * sizes[1] * SLACK
                enter(name, -size, size, size)
            else:
                _, low, high, rms = self.part(statement.expr, reaches)
                enter(name, low, high, rms)
        return reaches

    # ---- expressions ------------------------------------------------------------------------------------------------

    def part(self, expr: Expr, reaches: Mapping[str, _Reach]) -> _Bounded:
        """An expression without its inactive functions, where families stay within these bounds."""

        def leaf(node: Expr) -> _Bounded | None:
            if isinstance(node, Variable):
                low, high, rms = reaches.get(node.name, ANYTHING)
                return _Bounded(Number(low) if low == high and math.isfinite(low) else node, low, high, rms)
            span = self.span(node)
            return None if span is None else _Bounded(node, *span, max(map(abs, span)))

        return fold(expr, {}, leaf, self.combined)

    def span(self, node: Expr) -> Interval | None:
        """The interval of a value without vectors and scores; None where they occur, or where values are too many."""
        if node not in self.closed:
            ranges, names = self.netsor.ranges, free_indices(node)
            grid = math.prod(ranges[name][1] - ranges[name][0] for name in names)
            self.closed[node] = None
            if not node.children or (grid <= GRID and not variables(node)):
                with np.errstate(all="ignore"):
                    values = index_array(self.netsor, node, names)
                spoilt = np.isnan(values).any() or not values.size
                self.closed[node] = (-INF, INF) if spoilt else (float(values.min()), float(values.max()))
        return self.closed[node]

    def combined(self, node: Expr, *parts: _Bounded) -> _Bounded:
        """A call or reduction of parts."""
        if isinstance(node, Reduction):
            expr = with_children(node, parts[0].expr)
            (low, high), rms = self.reduced(node, parts[0])
        else:
            assert isinstance(node, Call)
            kept = _kept(node.atom, parts)
            if kept is not None:
                return kept
            expr = with_children(node, *(p.expr for p in parts))
            (low, high), rms = _image(node, parts), _rms(node, parts)
        if math.isnan(low) or math.isnan(high):
            low, high = -INF, INF
        if low == high and math.isfinite(low):
            return _Bounded(Number(low), low, high, abs(low))
        rms = INF if math.isnan(rms) else rms * SLACK
        return _Bounded(expr, low, high, min(rms, max(abs(low), abs(high))))

    def reduced(self, node: Reduction, part: _Bounded) -> tuple[Interval, float]:
        """Interval and root mean square of a reduction."""
        sizes = {name: self.netsor.ranges[name][1] - self.netsor.ranges[name][0] for name in node.indices}
        count = math.prod(sizes.values())
        if node.reducer == "sum":
            # weights w >= 0 with sum 1: an average
            weights = (f for f in factors(node.arg) if isinstance(f, Reduction) and f.reducer == "softmax" and not f.at)
            covered = next((f.indices for f in weights if set(f.indices) <= set(node.indices)), ())
            count = math.prod(size for name, size in sizes.items() if name not in covered)
            return (count * part.low, count * part.high), count * part.rms
        if node.reducer == "softmax":
            return (1.0 if count == 1 else 0.0, 1.0), 1.0
        if node.reducer == "mean":
            return (part.low, part.high), part.rms
        if node.reducer == "max":
            return (part.low, part.high), count * part.rms
        return (part.low, part.high + math.log(count)) if node.reducer == "logsumexp" else (-INF, INF), INF


def _kept(atom: str, parts: Sequence[_Bounded]) -> _Bounded | None:
    """The part that a call is equal to, if it is."""
    x = parts[0]
    others = parts[1:]
    if atom == "clip":
        return x if others[0].high <= x.low and x.high <= others[1].low else None
    if atom in ("relu", "leaky_relu", "elu", "abs"):
        return x if x.low >= 0 else None
    if atom == "where":
        return {1.0: others[0], 0.0: others[1]}.get(x.truth[0]) if x.truth[0] == x.truth[1] else None
    if atom in ("minimum", "maximum"):
        smaller = x if x.high <= others[0].low else others[0] if others[0].high <= x.low else None
        larger = {id(x): others[0], id(others[0]): x}.get(id(smaller))
        return smaller if atom == "minimum" else larger
    one, zero = ([p.single and p.low == value for p in parts] for value in (1, 0))
    if atom == "multiply":
        return others[0] if one[0] else x if one[1] else None
    if atom in ("divide", "power"):
        return x if one[1] else None
    if atom in ("add", "subtract"):
        return x if zero[1] else others[0] if zero[0] and atom == "add" else None
    return None


def _image(node: Call, parts: Sequence[_Bounded]) -> Interval:
    """The interval of a call."""
    atom = ATOMS[node.atom]
    spans = [(p.low, p.high) for p in parts]
    if node.atom in _COMPARED:
        return _COMPARED[node.atom](*parts)
    if node.atom == "clip":
        (low, high), (a, b), (c, d) = spans
        return min(max(low, a), c), min(max(high, b), d)
    params = parts[atom.arity :]
    if atom.declared or not all(p.single for p in params):
        return -INF, INF
    values = [p.low for p in params]
    if atom.arity == 1 and atom.monotone and atom.ulps == 0:  # values without rounding
        ends = [float(atom.numpy(np.float64(end), *values)) for end in spans[0]]
        return min(ends), max(ends)
    if atom.arity == 1:
        return atom.range_on(spans[0], *values)
    return atom.image(*spans[: atom.arity], *values) if atom.image is not None else (-INF, INF)


def _below(a: _Bounded, b: _Bounded, strict: bool) -> Interval:
    """The interval of a < b, or of a <= b."""
    sure = a.high < b.low if strict else a.high <= b.low
    never = b.high <= a.low if strict else b.high < a.low
    return (1.0, 1.0) if sure else (0.0, 0.0) if never else (0.0, 1.0)


def _alike(a: _Bounded, b: _Bounded) -> Interval:
    if a.single and b.single and a.low == b.low:
        return 1.0, 1.0
    return (0.0, 0.0) if a.high < b.low or b.high < a.low else (0.0, 1.0)


_COMPARED: dict[str, Callable[[_Bounded, _Bounded], Interval]] = {
    "less": lambda a, b: _below(a, b, True),
    "less_equal": lambda a, b: _below(a, b, False),
    "greater": lambda a, b: _below(b, a, True),
    "greater_equal": lambda a, b: _below(b, a, False),
    "equal": _alike,
    "not_equal": lambda a, b: (1 - _alike(a, b)[1], 1 - _alike(a, b)[0]),
    "logical_and": lambda a, b: (min(a.truth[0], b.truth[0]), min(a.truth[1], b.truth[1])),
    "logical_or": lambda a, b: (max(a.truth[0], b.truth[0]), max(a.truth[1], b.truth[1])),
}


def _rms(node: Call, parts: Sequence[_Bounded]) -> float:
    """A bound on the root mean square of a call: the triangle inequality, and |f(x)| <= |f(0)| + L |x|."""
    atom, x = ATOMS[node.atom], parts[0]
    if node.atom in ("add", "subtract", "minimum", "maximum"):
        return x.rms + parts[1].rms
    if node.atom == "where":
        return parts[1].rms + parts[2].rms
    if node.atom == "multiply":
        return min(x.rms and parts[1].size and x.rms * parts[1].size, x.size and parts[1].rms and x.size * parts[1].rms)
    if node.atom == "divide":
        nearest = max(parts[1].low, -parts[1].high)
        return x.rms / nearest if nearest > 0 else INF
    params = [p.low for p in parts[atom.arity :]]
    if atom.arity > 1 or atom.declared or not all(p.single for p in parts[atom.arity :]):
        return INF
    lipschitz = atom.regularity_on((min(x.low, 0.0), max(x.high, 0.0)), *params).lipschitz
    if not math.isfinite(lipschitz):
        return INF
    return max(map(abs, atom.near(0.0, *params))) + (lipschitz and x.rms and lipschitz * x.rms)

"""What the check asks of the limit, answered by its recursion; the check of a program with these answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from tensorprog.check.clauses import Report, check
from tensorprog.check.clauses.context import LimitNumbers, ScoreMean
from tensorprog.gaussian.function import Left, at_most
from tensorprog.language.averages import unused, with_averages
from tensorprog.language.errors import TensorprogError
from tensorprog.language.evaluate import Open, Scope, align, evaluate, take, union
from tensorprog.language.expr import Affine, Call, Expr, Number, Variable, reindexed, slots_of, variables
from tensorprog.language.ir import Dot, Netsor, Nonlin, Range
from tensorprog.language.schedule import schedule, steps_of, upstream

__all__ = ["check_with_limit"]

SURE = 3.0  # errors of averages over points hold in 99.9 % of cases, and the worst of many members is taken
NEAR = 1e-7  # how far from its limit an average is moved
DIRECTIONS = 6  # in which averages are moved together, each both ways
JUMP = 1e-3
VANISHED = 1e-12  # a second moment that counts as 0
ATOM = 1e-6  # what counts as 0, in units of the root of the second moment

MEMBERS = 1 << 20  # of a score, of which the mean is looked at
STEPS = 450  # of recurrences that are followed for a check
VALUES = 200_000_000  # of functions, that quadrature computes for one check; a few seconds
RARE = 1e-4  # a probability that a variable with a density has of being that small, and much more


def check_with_limit(netsor: Netsor) -> Report:
    """The check of Assumption 1 with numbers of its limit: means of scores, limits of averages.

    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    return check(netsor, LimitAnswers())


def _if_compiled(method: Callable[..., Any]) -> Callable[..., Any]:
    """None for what the limit does not compile, such as vectors that depend on scores, what is no number, and what
    takes long: a check is quick.  What has been answered is not computed again.
    """

    @wraps(method)
    def answer(self: LimitAnswers, netsor: Netsor, asked: Any) -> Any:
        key = method, id(netsor), str(asked)
        if key not in self._known:
            self._known[key] = None
            quick = steps_of(schedule(netsor.body, netsor.ranges, netsor.boundaries)[0]) <= STEPS
            with suppress(TensorprogError, FloatingPointError), np.errstate(all="ignore"), at_most(self._left):
                self._known[key] = method(self, netsor, asked) if quick else None
        return self._known[key]

    return answer


class LimitAnswers(LimitNumbers):
    """Answers by the recursion of the limit, which is loaded when the first is asked for."""

    def __init__(self) -> None:
        self._recursions: dict[int, tuple[Netsor, Any]] = {}  # a program that is kept keeps its id
        self._known: dict[Any, Any] = {}  # answers by question
        self._left = Left(VALUES)

    def _recursion(self, netsor: Netsor) -> Any:
        from tensorprog.limit.moment.numeric_recursion import NumericRecursion

        if id(netsor) not in self._recursions:
            self._recursions[id(netsor)] = netsor, NumericRecursion(netsor)
        return self._recursions[id(netsor)][1]

    @_if_compiled
    def mean(self, netsor: Netsor, dot: Dot) -> ScoreMean | None:
        """The E[Z^left Z^right], given draws of the scores upstream, of the member of a Dot for which it is furthest
        from 0; None if these have no limit by any theorem.
        """
        from tensorprog.limit.form.definitions import random_families
        from tensorprog.limit.law.conditional_moments import coefficients

        averaged = _averaged(netsor, dot)
        read = [name for name in dict.fromkeys((dot.left.name, dot.right.name)) if netsor.families[name].statements]
        if not random_families(netsor).isdisjoint(read):
            before = replace(averaged, body=averaged.body[:-1], outputs=tuple(read))
            if check(before, _Upstream()).grade == "outside":
                return None
        value, error, box, _ = coefficients(averaged, averaged.outputs[0])
        error = SURE * error
        draw, *at = (int(k) for k in np.unravel_index(int(np.argmax(np.abs(value) - error)), value.shape))
        names = [slot.bare for slot in dot.target.slots if slot.bare]
        place = {name: start + k for name, (start, _), k in zip(names, box, at, strict=True)}
        whole = value.shape[1:] == tuple(stop - start for start, stop in map(netsor.ranges.__getitem__, names))
        number = float(value[(draw, *at)]), float(error[(draw, *at)]), place
        return ScoreMean(*number, len(value) > 1, whole)

    @_if_compiled
    def singular(self, netsor: Netsor, expr: Expr) -> str | None:
        """What is wrong with an expression of averages at their limits: not finite, or a jump; '' if nothing."""
        recursion = self._recursion(netsor)
        known = [v for v in variables(expr) if _of_averages(recursion.netsor, v.name)]
        scope = recursion.scope({})

        def at(move: float, direction: int) -> np.ndarray[Any, Any]:
            def read(reference: Variable, ranges: Mapping[str, Range]) -> Open:
                if reference not in known:
                    return Open((), np.full((), math.nan))  # in a branch that stands nowhere
                value = scope.variable(reference, ranges)
                turned = _turned(recursion.netsor, reference, ranges, direction)
                axes = union(value.axes, turned.axes)
                found = align(value, axes)
                moved = found + move * (1 + np.abs(found)) * align(turned, axes)
                statement = recursion.netsor.body[recursion.netsor.families[reference.name].statements[0]]
                square = isinstance(statement, Dot) and statement.left == statement.right
                return Open(axes, np.maximum(moved, 0) if square else moved)

            return np.asarray(evaluate(expr, Scope(recursion.netsor, scope.ranges, read)).data, dtype=float)

        here = at(0.0, 0)
        near = [at(move, direction) for direction in range(DIRECTIONS) for move in (-NEAR, NEAR)]
        limits = ", ".join(f"{v} is {_shown(recursion.average(v.name).value.data)}" for v in known)
        if np.isnan(here).any() and any(v not in known for v in variables(expr)):
            return None
        if not all(np.isfinite(x).all() for x in (here, *near)):
            return f"it is not finite where {limits}"
        if max(np.max(np.abs(x - here) / (1 + np.abs(here))) for x in near) > JUMP:
            return f"it jumps or is steep where {limits}"
        return ""

    @_if_compiled
    def zero_probability(self, netsor: Netsor, expr: Expr) -> float | None:
        """The largest limiting probability of a = 0 over the members of a family a of vectors, an expression."""

        def mean(psi: Expr) -> tuple[float, float]:
            added = with_averages(netsor, {"atom": psi})
            found = self._recursion(added.netsor).average(added.families["atom"]).estimate
            return float(np.min(found.value)), float(np.max(found.error))

        square, _ = mean(Call("power", (expr, Number(2))))
        if square <= VANISHED:
            return 1.0
        away = Call("subtract", (Call("abs", (expr,)), Number(ATOM * math.sqrt(square))))
        value, error = mean(Call("step", (away,)))
        if 1 - value <= RARE and error <= RARE:
            return 0.0
        return 1 - value if 1 - value > error else None


def _of_averages(netsor: Netsor, name: str) -> bool:
    """Whether a family is numbers in the limit: scalars, or vectors that are functions of scalars alone."""
    read, left = {name}, [name]
    while left:
        family = netsor.families[left.pop()]
        if family.kind == "scalar":
            continue
        made = [netsor.body[position] for position in family.statements]
        if not made or not all(isinstance(statement, Nonlin) for statement in made):
            return False
        new = {v.name for statement in made if isinstance(statement, Nonlin) for v in variables(statement.expr)} - read
        read |= new
        left += new
    return True


def _turned(netsor: Netsor, reference: Variable, ranges: Mapping[str, Range], direction: int) -> Open:
    """How far the averages that a reference reads move in a direction: alike in the first, else by random numbers."""
    family, place = netsor.families[reference.name], [*netsor.families].index(reference.name)
    rng = np.random.default_rng((direction, place))
    moves = rng.uniform(-1, 1, family.shape) if direction else np.ones(family.shape)
    return take(moves, (), [start for start, _ in family.ranges], reference.slots, (), ranges, family.boundaries)


class _Upstream(LimitAnswers):
    """For what is upstream of a score: if a mean is asked for there, the answer is not needed."""

    mean = LimitNumbers.mean


def _averaged(netsor: Netsor, dot: Dot) -> Netsor:
    """What is upstream of a Dot, and the Dot as an average, the output, of the first members along each index."""
    names = upstream(netsor, {dot.left.name, dot.right.name})
    made = [statement for statement in netsor.body if statement.target.name in names]
    taken, own = netsor.taken, [netsor.index[slot.bare] for slot in dot.target.slots if slot.bare]
    most = max(2, int(MEMBERS ** (1 / max(1, len(own)))))
    first = [replace(one, name=unused(one.name, taken), stop=min(one.stop, one.start + most)) for one in own]
    values = {one.name: Affine.index(other.name) for one, other in zip(own, first, strict=True)}
    target = Variable(unused("average", taken), slots_of([index.name for index in first]))
    average = Dot(target, reindexed(dot.left, values), reindexed(dot.right, values), "1/n", dot.span)
    return replace(netsor, indices=(*netsor.indices, *first), body=(*made, average), outputs=(target.name,))


def _shown(values: np.ndarray[Any, Any]) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"

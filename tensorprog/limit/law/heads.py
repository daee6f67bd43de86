"""Sums over alike heads: variables that are independent and have one law, of which one is averaged.

Of y = y' + sum over a of softmax(p[a]) . o[a] / sqrt(H), y' Gaussian, the cumulants are those of y' plus H times those
that one head adds, and draws of the sum are sums of draws of one head.  The program is compiled once more with one
head.  Heads are alike and independent where weights of their own stand behind all that depends on their index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import TINY
from tensorprog.language.errors import NotCompiledError, ProgramError, did_you_mean
from tensorprog.language.expr import Affine, Expr, Reduction, Variable, index_names, product_of, replace_variables, walk
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Statement, Weight
from tensorprog.language.schedule import downstream, upstream
from tensorprog.limit.form.definitions import ONE, ZERO, Box, place
from tensorprog.limit.form.sums_of_functions import Inner, WeightedFunction, position_names
from tensorprog.limit.law.conditional_moments import diagonal, is_linear
from tensorprog.limit.law.marginals import Marginals
from tensorprog.limit.law.mixture import Mixture
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import IndexedValues

__all__ = ["Heads", "InfiniteHeads", "heads"]


Array = NDArray[Any]


@dataclass(frozen=True)
class Heads:
    """A program with one of the alike heads that a vector is a sum over, and its parts that belong to no head."""

    recursion: NumericRecursion
    name: str  # of the vector there
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the indices of heads
    rest: Sequence[WeightedFunction] = ()

    @property
    def count(self) -> int:
        """Number of heads."""
        return math.prod(self.sizes.values())

    def shared(self, box: Box) -> tuple[Array | float, Array | float]:
        """Means and variances of the rest of members in a box."""
        if not self.rest:
            return 0.0, 0.0
        places = diagonal(box)
        mean = self.recursion.settle(self.recursion.first(self.name, self.rest)).at(places).value
        return mean, self._moment().at(places).value

    def _moment(self) -> IndexedValues:
        """The covariance of the rest."""
        copies = {k: Affine.index(f"{k}_") for k in position_names(self.recursion.netsor, self.name)}
        second = _form([part.renamed(copies) for part in self.rest])
        ranges = self.recursion.pair_ranges(self.name, self.name)
        found: IndexedValues = self.recursion.settle(self.recursion.covariance(_form(self.rest), second, ranges))
        return found

    def added(self, value: Array, error: Array) -> tuple[Array, Array]:
        """The covariance of the vector from that of one head, with its error."""
        members = len(self.recursion.netsor.families[self.name].ranges)
        axes = [f"{k}{copy}" for copy in ("", "_") for k in range(members)]
        rest = self._moment().dense(axes).value if self.rest else 0.0
        return self.count * value - (self.count - 1) * rest, self.count * error


def apart(recursion: NumericRecursion, name: str) -> tuple[NumericRecursion, str]:
    """The program in which a vector is linear given scores, where functions in it are of vectors apart from the rest.

    In y = sigmoid(g) * z, z a sum of Gaussian vectors that g is independent of, a score stands for g: it is drawn, and
    has the covariances of g.  The name is that of y there.
    """
    netsor, drawn = recursion.netsor, _drawn_apart(recursion, name)
    if not drawn:
        return recursion, name
    width = netsor.families[name].width
    weights = tuple(Weight(fresh, (), ONE, (width, width)) for fresh in ("apart_1", "apart_2"))
    one, unit = Initial("apart_0", (), ZERO, ONE, width=width), Variable("apart_k")
    ones, made = Variable("apart_n"), list[Nonlin]()
    body: list[Statement] = [MatMul(unit, Variable("apart_2"), Variable("apart_0")), Nonlin(ones, ONE, width)]
    for v, slots in drawn.items():
        own = Variable(f"{v}_q", slots)
        body += [MatMul(own, Variable("apart_1"), Variable(v, slots)), Dot(Variable(f"{v}_p", slots), own, unit)]
    inlined, size = {name}, 0
    while size < len(inlined):
        size = len(inlined)
        made = [s for s in netsor.body if isinstance(s, Nonlin) and s.target.name in inlined]
        read = (v.name for s in made for v in s.inputs if netsor.families[v.name].kind == "vector")
        inlined |= {v for v in read if not recursion.parts.is_base(v)}
    names = {v: f"{v}_p" for v in drawn} | {v: f"{v}_y" for v in inlined}

    def renamed(v: Variable) -> Variable:
        return Variable(names.get(v.name, v.name), v.slots)

    for s in made:
        still = any(netsor.families[v.name].kind == "vector" and v.name not in drawn for v in s.inputs)
        expr = product_of((replace_variables(s.expr, renamed), *([] if still else [ones])))  # a vector in any case
        body.append(Nonlin(renamed(s.target), expr, "", s.span))
    weights, initial, body = (*netsor.weights, *weights), (*netsor.initial, one), [*netsor.body, *body]
    with suppress(ProgramError, NotCompiledError):
        larger = replace(netsor, initial=initial, weights=weights, body=tuple(body), outputs=(names[name],))
        return NumericRecursion(larger, recursion.expanded, recursion._held), names[name]
    return recursion, name


def _drawn_apart(recursion: NumericRecursion, name: str) -> dict[str, tuple[Affine, ...]]:
    """The Gaussian vectors in functions that are apart from the rest of a vector, with their slots; none if not all."""
    netsor, parts = recursion.netsor, recursion.parts
    if netsor.families[name].kind != "vector" or recursion.is_finite(name) or is_linear(recursion, name):
        return {}
    linear, drawn = list[set[str]](), set[str]()
    for part in parts.last(name):
        factors = parts.factors_of(part)
        read = [{v.name for _, v, _ in factor.inner} for factor in factors]
        plain = [names for factor, names in zip(factors, read, strict=True) if factor.linear and names]
        drawn |= {v for names in read for v in names}.difference(*plain[:1])
        linear += plain[:1]
    slots = {}
    for v in drawn:
        family = netsor.families[v]
        made = [netsor.body[position].target.slots for position in family.statements]
        initial = [entry for entry in netsor.initial if entry.name == v and entry.mean == ZERO]
        made += [tuple(map(Affine.index, entry.indices)) for entry in initial]
        rest = {other for names in linear for other in names}
        whole = len(made) == 1 and len({slot.bare for slot in made[0]} - {None}) == len(made[0])
        if not whole or family.width != netsor.families[name].width or not all(parts.independent(v, u) for u in rest):
            return {}
        slots[v] = made[0]
    return slots if linear else {}


def heads(program: Netsor, recursion: NumericRecursion, name: str) -> Heads:
    """The heads that a vector is a sum over given scores; the whole program as one where they are not alike."""
    found = Heads(recursion, name)
    if name not in recursion.random or not is_linear(recursion, name):
        return found
    for index in program.indices:
        if index.stop - index.start > 1 and any(_own(part, index.name) for part in recursion.parts.of(name)):
            one = replace(index, stop=index.start + 1, text="")
            with suppress(ProgramError, NotCompiledError):  # where another head is named
                fewer = replace(program, indices=tuple(one if other is index else other for other in program.indices))
                smaller = NumericRecursion(fewer, recursion.expanded, recursion._held)
                rest = [part for part in smaller.parts.of(name) if not _own(part, index.name)]
                known = not found.sizes or len(rest) == len(found.rest)
                same = _said(found.recursion, name) == _said(smaller, name)  # as not of a mean
                families = _Families(found.recursion, name, index.name)
                if known and same and families.alike and families.random:
                    program = fewer
                    found = Heads(smaller, name, {**found.sizes, index.name: index.stop - index.start}, rest)
    return found


def _own(part: WeightedFunction, index: str) -> list[str]:
    """The names under which a part is summed over an index."""
    return [bound for bound in part.bound if bound.split("~")[0] == index]


def _form(parts: Sequence[WeightedFunction]) -> Inner:
    return tuple((product_of((p.coefficient, c)), v, (*p.bound, *bound)) for p in parts for c, v, bound in p.inner)


def _said(recursion: NumericRecursion, name: str) -> tuple[Any, ...]:
    """The members of a vector and the coefficients of its parts, whatever the indices of sums are called."""
    written = (re.sub(r"~\d+", "", str(part.coefficient)) for part in recursion.parts.of(name))
    return recursion.netsor.families[name].ranges, *written


def _mentioned(expr: Any) -> set[str]:
    """Names of the indices in an expression; none of a table."""
    return {name for node in walk(expr) for name in index_names(node)} if isinstance(expr, Expr) else set()


class _Families:
    """Whether the summands of a vector over an index are independent, with one law, whatever else is in the program.

    Families of heads have a weight of each head behind them: `places` of the index in their slots.
    """

    def __init__(self, recursion: NumericRecursion, name: str, index: str) -> None:
        self.recursion, self.netsor, self.name = recursion, recursion.netsor, name
        self.places: dict[str, int] = {}
        self.weights: set[str] = set()
        self.outside: set[str] = set()  # what is read besides
        self.alike = all(self._of_head(part, index) for part in recursion.parts.of(name)) and self._apart(name, index)

    @property
    def random(self) -> bool:
        """Whether all that is random belongs to heads: behind a layer of scores heads share its moments."""
        shared = upstream(self.netsor, [self.name]) & self.recursion.random - self.places.keys() - {self.name}
        return not (self.recursion.layered and shared)

    def _of_head(self, part: WeightedFunction, index: str) -> bool:
        own = [*_own(part, index), ""]
        nodes = [node for expr in (part.coefficient, *(weight for weight, *_ in part.inner)) for node in walk(expr)]
        gaussian = [v for _, v, _ in part.inner]
        shared = [v for v in gaussian if not any(own[0] in slot.indices for slot in v.slots)]
        return len(own) <= 2 and not (own[0] and shared) and self._reads([*nodes, *gaussian], own[0])

    def _reads(self, nodes: Iterable[Expr], index: str) -> bool:
        """Whether nothing depends on an index but families of heads, at it."""
        for node in nodes:
            at = [k for k, slot in enumerate(node.slots) if index in slot.indices] if isinstance(node, Variable) else []
            if not isinstance(node, Variable) and index in index_names(node):
                return False
            if isinstance(node, Variable) and not at:
                self.outside.add(node.name)
            if isinstance(node, Variable) and at and not (node.slots[at[0]].bare and self._own(node.name, *at)):
                return False
        return True

    def _own(self, name: str, place: int, *more: int) -> bool:
        """Whether a family is one of heads, of which a slot counts."""
        positions = self.netsor.families[name].statements
        if name in self.places or more or len(positions) > 1:
            return self.places.get(name) == place and not more
        self.places[name] = place
        if not positions:
            initial = next(entry for entry in self.netsor.initial if entry.name == name)
            centred = initial.mean == ZERO and isinstance(initial.cov, Expr) and initial.data is None
            return centred and not _mentioned(initial.cov) & {initial.indices[place], f"{initial.indices[place]}_"}
        statement = self.netsor.body[positions[0]]
        index = statement.target.slots[place].bare or ""
        if isinstance(statement, MatMul):
            at = [k for k, slot in enumerate(statement.weight.slots) if index in slot.indices]
            weight = self.netsor.weight[statement.weight.name]
            self.weights.add(weight.name)
            own = len(at) == 1 and statement.weight.slots[at[0]].bare == index
            alike = own and weight.indices[at[0]] not in _mentioned(weight.variance)
            return alike and self._reads([statement.vector], index)
        if not isinstance(statement, Dot):
            return self._reads(walk(statement.expr), index) and bool(
                self.places.keys() & {v.name for v in statement.inputs}
            )
        read = {v.name for v in statement.inputs if any(index in slot.indices for slot in v.slots)}
        return self._reads(statement.inputs, index) and any(map(self._centred, read))

    def _centred(self, name: str) -> bool:
        """Whether a vector of heads is linear in Gaussian ones, so that those of two heads are uncorrelated."""
        for part in self.recursion.parts.of(name):
            read = [(f.linear, {v.name for _, v, _ in f.inner}) for f in self.recursion.parts.factors_of(part)]
            own = [linear and names <= self.places.keys() for linear, names in read if names & self.places.keys()]
            if own != [True]:
                return False
        return True

    def _apart(self, name: str, index: str) -> bool:
        """Whether what is read besides depends on no head, nor on how many there are."""
        read, tied = upstream(self.netsor, [name]), {*self.places}
        body = [s for s in self.netsor.body if s.target.name in read]
        for s in body:
            nodes = walk(s.expr) if isinstance(s, Nonlin) else ()
            counts = any(isinstance(node, Reduction) and index in node.indices for node in nodes)
            shared = isinstance(s, MatMul) and s.weight.name in self.weights
            if (counts and s.target.name in self.places) or (shared and s.target.name not in self.places):
                return False
            tied |= {s.target.name} if counts else set()
        return not self.outside & (downstream(body, tied) | self.recursion.random)


class InfiniteHeads(Marginals):
    """The law of the outputs for infinitely many heads: Gaussian, with the mean and covariance of any number of them.

    Outputs are sums over the index of independent, identically distributed heads of mean zero, scaled by one over the
    square root of their number; the central limit theorem does the rest.  Both are checked when the law is made.

    Source    Hron et al. 2020 (arXiv 2006.10540), Theorem 3, for heads and width growing together; here the heads grow
              after the width has, which is an extension of Sakai et al. 2025, labelled conjecture
    """

    grade = "extension"
    scores = ()  # there are infinitely many

    def __init__(self, law: Any, index: str) -> None:
        self._law, self.index, self.netsor, self.budget = law, index, law.netsor, law.budget
        if index not in self.netsor.index:
            raise ProgramError(
                f"{index} is not an index of the program; {did_you_mean(str(index), list(self.netsor.index))}"
            )
        self.outputs = tuple(name for name in law.outputs if name in law.recursion.random)
        if not self.outputs:
            raise ProgramError(
                f"no output of {self.netsor.name} depends on scores: there are no heads to be infinitely many"
            )
        for name in self.outputs:
            if not law.is_linear(name):
                raise ProgramError(f"{name} is not linear in the vectors: infinitely many heads need outputs that are")
        twice = law.of(_doubled(self.netsor, index))
        for name in self.outputs:
            found = heads(twice.netsor, twice.recursion, name)
            reason = f"{name} is not a sum over {index} of independent heads"
            mean, slack = law.mean(name, with_error=True)
            if index not in found.sizes or found.rest or np.any(np.abs(mean) > slack):
                raise ProgramError(f"{reason} with one law, and mean 0")
            (one, off), (two, wrong) = (each.var(name, with_error=True) for each in (law, twice))
            if one.shape != two.shape or np.any(np.abs(one - two) > 2 * (off + wrong) + 1e-9 * one.max(initial=0.0)):
                raise ProgramError(
                    f"{reason}, each with half the variance where there are twice as many; divide the sum over {index} "
                    "by the square root of its size"
                )

    def __repr__(self) -> str:
        return f"InfiniteHeads({self._law.compiled.name}, {self.index}, outputs={', '.join(self.outputs)})"

    @property
    def error(self) -> float:
        """The largest error of the numbers given so far."""
        return float(self._law.error)

    @property
    def widths(self) -> dict[str, float]:
        """As for `Law.widths`; the number of heads goes to infinity after them."""
        return dict(self._law.widths)

    def member(self, text: str) -> tuple[str, Box, bool]:
        """Family, box of members, and whether one member is meant, of an output of heads."""
        found: tuple[str, Box, bool] = self._law.member(text)
        if found[0] not in self.outputs:
            raise ProgramError(f"{found[0]} is not an output of heads; {did_you_mean(found[0], self.outputs)}")
        return found

    def _mixture(self, name: str, box: Box) -> Mixture:
        at = place(box, self._law.compiled.families[name].ranges)
        mean, (var, error) = self._law.mean(name)[at], (part[at] for part in self._law.var(name, with_error=True))
        return Mixture.gaussian(mean, var, error / np.maximum(var, TINY))

    def _note(self, error: Any, value: Any, what: str) -> None:
        """The law of some heads has noted it."""

    def mean(self, name: str, *, with_error: bool = False) -> Any:
        """E[Z], as for `Law.mean`."""
        self.member(name)
        return self._law.mean(name, with_error=with_error)

    def cov(self, first: str, second: str | None = None, *, with_error: bool = False) -> Any:
        """Cov(Z), as for `Law.cov`."""
        for name in (first, first if second is None else second):
            self.member(name)
        return self._law.cov(first, second, with_error=with_error)


def _doubled(netsor: Netsor, index: str) -> Netsor:
    """The program with twice as many heads."""
    from tensorprog.language.writing import pack, unpack

    declared = netsor.index[index]
    size = declared.text.rpartition("..")[2].strip()
    heads = netsor.scalars.get(size)
    if heads is None:
        raise ProgramError(f"the number of heads must be a constant: declare {index} with a name for its size")
    return unpack(*pack(netsor), {size: 2 * heads})

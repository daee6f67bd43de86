"""Facts of a program's statements as functions of G-vars, initial vectors, scores and averages.

Nonlins are inlined by composition: the facts of `x[i]` are those of its definition, so families cost one profile per
statement.  What is not certified is attacked: a witness refutes it, else it stays unknown.
"""

from __future__ import annotations

import functools
import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tensorprog.check.certificates.composition import Composition
from tensorprog.check.certificates.factors import instance
from tensorprog.check.certificates.profile import (
    SCORE,
    VECTOR,
    Fault,
    Profile,
    constant,
    join,
    meet,
    same,
    shown,
    tidy,
    times,
)
from tensorprog.check.certificates.relations import RELATIONS
from tensorprog.check.falsifier.witness import Probe, Witness
from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import crossed
from tensorprog.language.expr import (
    MAX_NODES,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    replace_variables,
    walk,
    with_stars,
)
from tensorprog.language.facts import FAILS, HOLDS, UNKNOWN, Fact
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Range

__all__ = ["PROPERTIES", "Calculus", "inline"]

INF = math.inf
MAX_SEARCHED = 40_000  # members that one evaluation may read
ROUNDS = 200  # of a recurrence, one after the other
SETTLING = 8  # rounds after ranges that grow are given up
COORDINATES = replace(VECTOR, low=0.0, high=1.0, growth=0.0, parity=1)  # of a width: numbers that no sign changes
LINEAR = ("add", "subtract", "multiply", "negative", "minimum", "maximum", "divide")  # blame looks through these


class Property(NamedTuple):
    """A property that may be certified or refuted."""

    source: str
    certified: Callable[[Profile], bool]


PROPERTIES = {
    "bounded": Property("Sakai et al. 2025, Assumption 1", lambda p: p.bounded),
    "pseudo-Lipschitz": Property("Sakai et al. 2025, Def. 2", lambda p: p.pseudo_lipschitz),
    "controlled": Property("Yang 2019, Def. 5.3", lambda p: p.controlled),
}


class Calculus(Composition):
    """Profiles of all statements of a program, and the facts that follow from them."""

    def __init__(self, netsor: Netsor, structure: Structure | None = None) -> None:
        super().__init__(netsor, RELATIONS)
        self.structure = structure or Structure(netsor)
        self._profiles: dict[int, Profile] = {}  # by composition, statement by statement
        self._written: dict[int, Profile] = {}  # of some: with what relations across statements add
        self._witnesses: dict[tuple[str, int], Witness | None] = {}
        for position, one in enumerate(netsor.body):
            if not isinstance(one, Nonlin):
                self._profiles[position] = self._single(position)
        for group in self.structure.groups:
            if group[0] not in self._profiles:
                self._group(group)

    def statement(self, position: int) -> Profile:
        """Facts of what a statement defines, as a function of G-vars, initial vectors, scores and averages."""
        return self._written.get(position, self._profiles[position])

    def written(self, position: int) -> Profile:
        """The facts of a statement with what its definition written out adds; from then on `statement` knows it too."""
        if position not in self._written:
            self._written[position] = self._written_out(self._profiles[position], position)
            self._remembered.clear()  # profiles of others may have changed
        return self._written[position]

    def bounded(self, reference: Variable, position: int) -> bool:
        """Whether what a reference reads is certified to be bounded, with definitions written out if need be."""
        if not self.vector(reference, position).bounded:
            for definer in self.structure.definers(position, reference):
                self.written(definer)
        return self.vector(reference, position).bounded

    def vector(self, reference: Variable, position: int) -> Profile:
        """Facts of what a reference in a statement reads."""
        initial = self.structure.initial.get(reference.name)
        found = self._defined(reference, position) if initial is None else self._initial(initial)
        if "zero" in crossed(self.netsor, reference, self.ranges):
            return join(found, replace(constant(0.0, 0.0), parity=found.parity))
        return found

    def _defined(self, reference: Variable, position: int) -> Profile:
        """Facts of what the statements that a reference reads define."""
        definers = self.structure.definers(position, reference)
        if not definers and reference in self.netsor.body[position].references:  # all of it lies beyond a boundary
            return constant(0.0, 0.0)
        definers = definers or self.netsor.families[reference.name].statements
        found = [self.statement(d) for d in definers if d in self._profiles]
        if not found:  # a recurrence, before its first member is known: nothing to join yet
            return constant(0.0, 0.0)
        joined = functools.reduce(join, found)
        if joined.masked and (len(definers) > 1 or any(self.netsor.families[reference.name].boundaries)):
            # masks are followed through a family with one definition only (see `validity.check_masks`)
            return replace(joined, open=Fault(reference, position, f"{reference} may be masked everywhere"))
        return joined

    def _initial(self, initial: Initial) -> Profile:
        if initial.grid:
            return COORDINATES
        value = fixed(initial)
        interval = None if value is None else self.closed(value)
        return VECTOR if interval is None else tidy(constant(*interval), depends=VECTOR.depends)

    def _single(self, position: int) -> Profile:
        self._remembered.clear()  # profiles of others may have changed
        found = self._one(position)
        self._remembered.clear()
        return found

    def _one(self, position: int) -> Profile:
        statement = self.netsor.body[position]
        if isinstance(statement, MatMul):
            return VECTOR
        if isinstance(statement, Dot):
            if statement.scale == "n**-0.5":
                return SCORE
            low = 0.0 if statement.left == statement.right else -INF
            if position in self.structure.random:
                return replace(SCORE, low=low, parity=0)
            # a number in the limit: a parameter near its limiting value, so bounded though no bound is known here
            return replace(constant(low, INF), depends=frozenset({"average"}))
        found = self.expression(statement.expr, position)
        regular = found.pseudo_lipschitz and found.controlled
        return found if regular or not self._settled(statement, position) else self._written_out(found, position)

    def _written_out(self, found: Profile, position: int) -> Profile:
        """What is known when relations are seen that span statements: d = 1 + abs(h); x = h / d is bounded."""
        statement = self.netsor.body[position]
        inlined = inline(self.structure, statement.expr, position) if isinstance(statement, Nonlin) else None
        if not isinstance(statement, Nonlin) or inlined is None or inlined[0] == statement.expr:
            return found
        before = self.ranges, self.at, self._known, self._remembered
        self.ranges, self._known, self._remembered = inlined[1], {}, {}
        again = self.expression(inlined[0], position)
        self.ranges, self.at, self._known, self._remembered = before
        return meet(found, again)

    def _settled(self, statement: Nonlin, position: int) -> bool:
        return all(d in self._profiles for v in statement.inputs for d in self.structure.definers(position, v))

    def _group(self, group: tuple[int, ...]) -> None:
        if not self.structure.cyclic(group[0]):
            self._profiles[group[0]] = self._single(group[0])
            return
        # Kleene iteration: a stable answer is an inductive invariant; else after as many rounds as the recurrence has
        # steps every member has been reached
        depth = self._depth(group)
        for rounds in range(min(depth, ROUNDS)):
            before = {p: self._profiles.get(p) for p in group}
            for p in group:
                new, old = self._single(p), before[p]
                self._profiles[p] = new if old is None else join(old, new)
            if all(before[p] is not None and same(before[p], self._profiles[p]) for p in group):
                return
            if rounds == 8:  # constants may grow for ever: give up the best one, keep its being finite
                for p in group:
                    self._profiles[p] = replace(self._profiles[p], lipschitz=INF)
        if depth <= ROUNDS or self._widened(group, before):
            return
        reason = "the recurrence does not settle"
        for p in group:
            statement = self.netsor.body[p]
            assert isinstance(statement, Nonlin)
            fault = Fault(statement.expr, p, reason)
            self._profiles[p] = Profile(
                -INF, INF, INF, INF, INF, INF, 0, depends=self._profiles[p].depends, rough=fault, wild=fault
            )
        for _ in range(2):  # a bound that holds by the function's own range comes back
            for p in group:
                self._profiles[p] = self._single(p)

    def _widened(self, group: tuple[int, ...], before: Mapping[int, Profile | None]) -> bool:
        """Whether a round keeps the profiles once ranges that grow from round to round count as not known.

        Then they hold for recurrences of any length: what is bounded in one round is bounded in the next.
        """
        found = {p: self._profiles[p] for p in group}
        moves = {p: (found[p].low - old.low, found[p].high - old.high) for p, old in before.items() if old is not None}
        for p, (down, up) in moves.items():
            low, high = found[p].low + times(down, INF), found[p].high + times(up, INF)
            self._profiles[p] = replace(found[p], low=low, high=high)
        for _ in range(SETTLING):
            held = {p: self._profiles[p] for p in group}
            again = {p: self._single(p) for p in group}
            if all(same(join(held[p], again[p]), held[p]) for p in group):
                return True
            self._profiles |= {p: join(held[p], again[p]) for p in group}
        return False

    def _depth(self, group: tuple[int, ...]) -> int:
        """How long a chain of members of a recurrence can be at most."""
        moving: set[str] = set()
        for user, definer, reference in self.structure.edges:
            if user in group and definer in group:
                own = [slot.bare for slot in self.netsor.body[definer].target.slots]
                moving |= {name for name, slot in zip(own, reference.slots, strict=True) if name and slot.bare != name}
        return max(1, math.prod(self.ranges[name][1] - self.ranges[name][0] for name in moving)) * len(group)

    def fact(self, name: str, position: int) -> Fact:
        """'bounded', 'pseudo-Lipschitz' or 'controlled' of a statement's value: certified, refuted or neither."""
        source, certified = PROPERTIES[name]
        profile = self.statement(position)
        if not certified(profile):
            profile = self.written(position)
        if certified(profile):
            reason = {
                "bounded": _range(profile),
                "pseudo-Lipschitz": f"order {profile.order:g}",
                "controlled": f"growth {profile.growth:g}"
                if profile.growth < INF
                else f"exponent {profile.exponent:g}",
            }[name]
            return Fact(name, HOLDS, reason, source)
        fault = self.blame(name, position)
        statement = self.netsor.body[position]
        found = self.witness(name, position)
        witness = str(found or "")
        if name == "bounded" and not isinstance(statement, Nonlin):
            witness = f"{statement.target} is Gaussian"
        return Fact(name, FAILS if witness else UNKNOWN, fault.reason, source, witness)

    def cut_short(self, position: int) -> str:
        """What to say of a statement whose facts are not known, where relations were not looked for to the end."""
        cut = [at for at in (position, *sorted(self.structure.ancestors(position))) if self.exhausted(at)]
        if not cut:
            return ""
        where = "" if cut[0] == position else f" in {self.netsor.body[cut[0]].target}"
        return (
            f"; there are so many functions{where} that relations between them were looked for in part only, so a "
            "shorter expression, or several Nonlins in its place, may be certified"
        )

    def blame(self, name: str, position: int) -> Fault:
        """The smallest subexpression at fault for a property that a statement's value lacks."""
        profile = self.statement(position)
        if profile.partial is not None:
            return profile.partial
        if profile.masked:
            return Fault(self.netsor.body[position].target, position, "the value is -inf where it is masked")
        if name == "pseudo-Lipschitz" and profile.rough is not None:
            return profile.rough
        if name == "controlled" and profile.wild is not None:
            return profile.wild
        return self._unbounded(position)

    def _unbounded(self, position: int) -> Fault:
        statement = self.netsor.body[position]
        if not isinstance(statement, Nonlin):
            return Fault(statement.target, position, f"{statement.target} is Gaussian in the limit, so not bounded")
        found = self._origin(statement.expr, position)
        return found or Fault(statement.expr, position, f"{statement.target} grows along its recurrence")

    def _origin(self, expr: Expr, position: int) -> Fault | None:
        """The first function that is unbounded though nothing linear brought it; None if there is only a recurrence."""
        seen, waiting = {position}, [(expr, position)]
        while waiting:
            node, at = waiting.pop()
            if isinstance(node, Variable):
                definers = [d for d in self.structure.definers(at, node) if not self.statement(d).bounded]
                inner = {d: one.expr for d in definers if isinstance(one := self.netsor.body[d], Nonlin)}
                if not inner:
                    return Fault(node, at, f"{node} is Gaussian in the limit, so not bounded")
                waiting += [(inner[d], d) for d in reversed(inner) if d not in seen]
                seen.update(inner)
                continue
            open_ones = [arg for arg in _passed(node) if not self.expression(arg, at).bounded]
            if not open_ones:
                return Fault(node, at, _grows(node))
            waiting += [(arg, at) for arg in reversed(open_ones)]
        return None

    def witness(self, name: str, position: int) -> Witness | None:
        """Search for numbers that refute a property of a statement's value; None if none are found."""
        key = (name, position)
        if key not in self._witnesses:
            self._witnesses[key] = self._search(name, position)
        return self._witnesses[key]

    def _search(self, name: str, position: int) -> Witness | None:
        statement = self.netsor.body[position]
        found = inline(self.structure, statement.expr, position, first=True) if isinstance(statement, Nonlin) else None
        if found is None:
            return None
        f = Probe(self.netsor, *found)
        if not f.names or f.size > MAX_SEARCHED or f.averages(self.structure):
            return None
        return next((w for w in (f.refute(name, line) for line in f.lines) if w is not None), None)


def _range(p: Profile) -> str:
    """What is known of the bounds of what is bounded."""
    known = math.isfinite(p.low) and math.isfinite(p.high)
    return f"range {shown(p.interval)}" if known else "by a constant that is not known"


def _grows(node: Expr) -> str:
    """Why a function is not bounded, where its arguments are or do not matter."""
    if isinstance(node, Call):
        return f"{node.atom} is unbounded on the range of {', '.join(map(str, node.arguments))}"
    return f"{node} is not bounded"


def _passed(node: Expr) -> Sequence[Expr]:
    """The arguments through which a function is not bounded, if it does not make anything unbounded by itself."""
    if isinstance(node, Call):
        return node.arguments[: 1 if node.atom == "divide" else None] if node.atom in LINEAR else ()
    return node.children if isinstance(node, Reduction) else ()


# ---- definitions written out -----------------------------------------------------------------------------------------


class TooLarge(Exception):
    """An expression cannot be written out within bounds."""


def inline(
    structure: Structure, expr: Expr, position: int, first: bool = False
) -> tuple[Expr, dict[str, Range]] | None:
    """Replace references to Nonlins by their definitions; with `first`, for the statement's first member only.

    Returns   the expression over G-vars, initial vectors, scores and averages, with the ranges of its (renamed)
              reduction indices; None where a recurrence or the size forbids it
    """
    declared = structure.netsor.ranges
    ranges: dict[str, Range] = with_stars(declared)  # see `Reduction.at`
    fresh = iter(range(10**6))
    body = structure.netsor.body
    free = {name: span for name, span in declared.items() if name in [s.bare for s in body[position].target.slots]}
    pinned = ChainMap({name: (start, start + 1) for name, (start, _) in free.items()}, ranges)

    def definition(node: Variable, at: int, depth: int) -> Expr | None:
        plain = not crossed(structure.netsor, node, ranges)
        initial = structure.initial.get(node.name)
        if initial is not None:
            value, places = fixed(initial), dict(zip(initial.indices, node.slots, strict=True))
            return instance(value, places, ranges, fresh) if value is not None and plain else None
        # a reference whose indices were replaced may read any statement of its family
        definers = structure.definers(at, node) or structure.netsor.families[node.name].statements
        if not any(isinstance(body[d], Nonlin) for d in definers):
            return None
        if len(definers) == 1 and plain and not structure.cyclic(definers[0]):
            chosen = definers[0]
        else:
            found = next((d for d in definers if first and _inside(node, body[d].target, pinned)), None)
            if found is None:
                raise TooLarge
            chosen = found
        inner = body[chosen]
        if depth > 40:
            raise TooLarge
        if not isinstance(inner, Nonlin):
            return None
        slots = dict(zip([s.bare for s in inner.target.slots], node.slots, strict=True))
        bound = {k: v for k, v in slots.items() if k is not None}
        return go(instance(inner.expr, bound, ranges, fresh), chosen, depth + 1)

    def go(node: Expr, at: int, depth: int) -> Expr:
        result = replace_variables(node, lambda reference: definition(reference, at, depth))
        if sum(1 for _ in walk(result)) > MAX_NODES:
            raise TooLarge
        return result

    try:
        return go(expr, position, 0), ranges
    except TooLarge:
        return None


def fixed(initial: Initial) -> Expr | None:
    """The value of an initial vector without variance, whose coordinates are all the same number."""
    still = isinstance(initial.cov, Number) and initial.cov.value == 0
    return initial.mean if still and isinstance(initial.mean, Expr) else None


def _inside(reference: Variable, target: Variable, ranges: Mapping[str, Range]) -> bool:
    """Whether all members that a reference reads are among those that a definition binds."""
    for slot, own in zip(reference.slots, target.slots, strict=True):
        (low, high), (least, most) = slot.bounds(ranges), own.bounds(ranges)
        if low < least or high > most:
            return False
    return True

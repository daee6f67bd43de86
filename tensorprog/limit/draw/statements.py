"""Statements of a program taken one at a time: what each reads, when it runs, and which weights it depends on.

A vector that is a linear function of others has the second moments of these, with its coefficients: nothing needs to be
written out in Gaussian variables.  Of a residual stream x[t] = x[t-1] + f[t] that is

    E[x[t] x[t]'] = E[x[t-1] x[t-1]'] + E[f[t] f[t]'],          as f[t] ends in weights of its own,

so that a layer costs the same at every depth.  Vectors whose weights and initial vectors are different ones are
independent given all scores and averages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorprog.language.expr import Variable, product_of, variables
from tensorprog.language.ir import MatMul, Netsor, Nonlin, Range
from tensorprog.language.schedule import Step
from tensorprog.limit.form.definitions import Box, Reading, positions_of, readings, target_box
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, SumsOfFunctions, WeightedFunction, branches_apart

__all__ = ["Statements", "formal", "meet"]

Sources = frozenset[tuple[str, Box]]  # weights and initial vectors, with the members of them


@dataclass(frozen=True)
class _Made:
    """What one step makes."""

    box: Box
    position: int
    number: int  # of the step
    sources: Sources


def formal(part: WeightedFunction) -> Variable | None:
    """The vector that a part is a multiple of, if it is one."""
    if part.function != FORMAL or len(part.inner) != 1 or part.inner[0][0] != ONE or part.inner[0][2]:
        return None
    return part.inner[0][1]


def meet(one: Sources, two: Sources) -> bool:
    """Whether two vectors depend on a common weight or initial vector."""
    if len(one) > len(two):
        one, two = two, one
    if not one.isdisjoint(two):
        return True
    others: dict[str, list[Box]] = {}
    for name, box in two:
        others.setdefault(name, []).append(box)
    return any(_overlap(box, other) for name, box in one for other in others.get(name, ()))


def _overlap(one: Box, two: Box) -> bool:
    return all(a < stop and start < b for (a, b), (start, stop) in zip(one, two, strict=True))


class Statements:
    """The statements of one program in the order of its steps."""

    def __init__(self, netsor: Netsor, parts: SumsOfFunctions, steps: Iterable[Step]) -> None:
        self.netsor, self.parts = netsor, parts
        self._made: dict[str, list[_Made]] = {}
        self._own: dict[int, tuple[WeightedFunction, ...] | None] = {}
        self._sources: dict[tuple[str, Box], Sources] = {}
        self._makers: dict[tuple[str, Box], list[_Made]] = {}
        self._complete = False
        for number, step in enumerate(steps):
            if netsor.families[step.statement.target.name].kind == "vector":
                ranges = step.ranges(netsor.ranges)
                box = target_box(step.statement, ranges)
                made = _Made(box, step.position, number, self._read(step, ranges))
                self._made.setdefault(step.statement.target.name, []).append(made)
        self._complete = True

    def _read(self, step: Step, ranges: Mapping[str, Range]) -> Sources:
        statement = step.statement
        if isinstance(statement, MatMul):
            family = self.netsor.families[statement.weight.name]
            return frozenset((family.name, _box(case, ranges)) for case in readings(statement.weight, family, ranges))
        found: Sources = frozenset()
        # of a product with Onsager terms these too, as far as they are made
        read = variables(statement.expr) if isinstance(statement, Nonlin) else statement.inputs
        for reference in read:
            family = self.netsor.families[reference.name]
            if family.kind == "vector":
                for case in readings(reference, family, ranges):
                    found |= self.sources(reference.name, _clipped(_box(case, ranges), family.ranges))
        return found

    def _made_in(self, name: str, box: Box) -> list[_Made]:
        """What makes members in a box."""
        known = self._makers.get((name, box))
        if known is None:
            known = [entry for entry in self._made.get(name, ()) if _overlap(entry.box, box)]
            if self._complete:
                self._makers[name, box] = known
        return known

    def sources(self, name: str, box: Box) -> Sources:
        """The weights and initial vectors that members of a vector are functions of, given scores and averages."""
        known = self._sources.get((name, box))
        if known is None:
            found = [entry.sources for entry in self._made_in(name, box)]
            initial = [frozenset([(name, ())])] if not self.netsor.families[name].statements else []
            known = frozenset[tuple[str, Box]]().union(*found, *initial)
            if self._complete:
                self._sources[name, box] = known
        return known

    def sources_of(self, part: WeightedFunction, ranges: Mapping[str, Range]) -> Sources:
        """The same of the variables of a part while its indices run over the ranges."""
        found: Sources = frozenset()
        for _, variable, _ in part.inner:
            whole = self.netsor.families[variable.name].ranges
            box = tuple(slot.span(ranges) for slot in variable.slots)
            found |= self.sources(variable.name, _clipped(box, whole))
        return found

    def boxes(self, name: str, box: Box) -> list[Box]:
        """The members in a box, those of every step by themselves."""
        return [_clipped(entry.box, box) for entry in self._made_in(name, box)] or [box]

    def time(self, name: str, box: Box) -> int:
        """The last step that makes members in a box; -1 for initial vectors."""
        return max((entry.number for entry in self._made_in(name, box)), default=-1)

    def own(self, name: str, box: Box) -> tuple[WeightedFunction, ...] | None:
        """A vector in terms of those that its statement reads, by name, or of functions of Gaussian variables.

        None where it is another function of them, or several statements define the members in the box.
        """
        made = {entry.position for entry in self._made_in(name, box)}
        if len(made) != 1:
            return None
        position = made.pop()
        whole = target_box(self.netsor.body[position], self.netsor.ranges)
        if any(start < low or stop > high for (start, stop), (low, high) in zip(box, whole, strict=True)):
            return None
        if position not in self._own:
            self._own[position] = self._as_parts(position)
        return self._own[position]

    def _as_parts(self, position: int) -> tuple[WeightedFunction, ...] | None:
        statement = self.netsor.body[position]
        if not isinstance(statement, Nonlin):
            return None
        expr = self.parts.fresh(statement.expr, positions_of(statement.target))
        box = target_box(statement, self.netsor.ranges)
        ranges = self.parts.every_range() | {str(k): span for k, span in enumerate(box)}
        for reference in variables(expr):
            family = self.netsor.families[reference.name]
            if family.kind == "vector" and readings(reference, family, ranges) != [Reading(reference.slots)]:
                return None
        found = tuple(self.parts.split(branches_apart(self.parts.is_vector, expr)))
        known = all(
            part.function is None
            or formal(part) is not None
            or all(self.parts.is_base(variable.name) for _, variable, _ in part.inner)
            for part in found
        )
        return found if known else None

    def written_out(self, part: WeightedFunction, ranges: Mapping[str, Range]) -> list[WeightedFunction]:
        """A multiple of a vector in Gaussian variables, while its indices run over the ranges."""
        reference = formal(part)
        assert reference is not None
        at = {str(k): slot for k, slot in enumerate(reference.slots)}
        found = []
        for deep in self.parts.at(reference.name, tuple(slot.span(ranges) for slot in reference.slots)):
            moved = deep.renamed(at)
            coefficient = product_of([c for c in (part.coefficient, moved.coefficient) if c != ONE] or [ONE])
            found.append(replace(moved, coefficient=coefficient, bound=(*part.bound, *moved.bound), box=()))
        return found


def _box(case: Reading, ranges: Mapping[str, Range]) -> Box:
    return tuple(slot.span(ranges) for slot in case.slots)


def _clipped(box: Box, whole: Sequence[Range]) -> Box:
    return tuple((max(low, start), min(high, stop)) for (low, high), (start, stop) in zip(box, whole, strict=True))

"""Recurrences step by step: each step fills a row of every covariance, vectorised over the steps before it.

A row of C(g, g') holds the members that one step adds to g, against all members of g' that are known by then; its
mirror image goes into C(g', g).  Averages grow in the same way.  Programs without recurrences never come here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.pairs import NotKnownError, Pairs
from tensorprog.language.expr import Affine
from tensorprog.language.ir import MatMul, Netsor, Range
from tensorprog.language.schedule import Loop, Steps, positions, steps
from tensorprog.limit.form.definitions import Box, at_positions, circular, readings, target_box
from tensorprog.limit.memory import keep
from tensorprog.limit.moment.indexed import NOTHING, Equations, Term, difference, held_in, solve
from tensorprog.limit.moment.values import DeferredPairs, IndexedValues, Latest, Value, check_memory

if TYPE_CHECKING:
    from tensorprog.limit.moment.numbers import Numbers

__all__ = ["Box", "Recurrences", "box_ranges", "merged"]

Array = NDArray[Any]
MANY = 100  # members of families whose tables are filled in by tiles
SWEEPS = 65  # in which errors that do not grow from step to step are looked for
SAFE = 1.25  # times the errors of so many steps


def box_ranges(first: Box, second: Box | None = None) -> dict[str, Range]:
    """Ranges of positions '0', '1', ... in a box, and of '0_', '1_', ... in another."""
    ranges = {str(k): span for k, span in enumerate(first)}
    return ranges | {f"{k}_": span for k, span in enumerate(second or ())}


class Recurrences:
    """Covariances of Gaussian families and limits of averages that refer to themselves, as far as they are known.

    `active` are the families of the recurrence at work: of them only part is known.
    """

    def __init__(self, netsor: Netsor) -> None:
        self.netsor, self.steps = netsor, steps(netsor)
        order = self.steps.entries
        self._group = {p: number for number, entry in enumerate(order) for p in positions([entry])}
        looped = {p for entry in order if isinstance(entry, Loop) for p in positions([entry])}
        once = circular(netsor) - {netsor.body[p].target.name for p in looped}  # of a single step
        looped |= {p for p in self._group if netsor.body[p].target.name in once}
        self.loops = {self._group[p] for p in looped}
        self._recurrent = {netsor.body[p].target.name for p in looped}

    @property
    def given(self) -> frozenset[str]:
        """Families that are not filled in here: random ones, and coefficients of Onsager terms."""
        return self.numbers.random | self.numbers.program.corrected.keys()

    def afresh(self, numbers: Numbers) -> Recurrences:
        """The recurrences of the same program, of which nothing is known yet."""
        again = copy(self)
        again._start(numbers)
        return again

    def _start(self, numbers: Numbers) -> None:
        self.numbers: Numbers = proxy(numbers)  # in no circle: what a law holds is free when the law is
        self.active: frozenset[str] = frozenset()
        self.covariances: dict[tuple[str, str], IndexedValues] = {}
        self.averages: dict[str, Value] = {}
        self._filled: dict[str, list[Box]] = {}
        self._waiting = set(self.loops)

    def recurrent(self, name: str) -> bool:
        """Whether a family belongs to a recurrence."""
        return name in self._recurrent

    def ensure(self, *names: str) -> None:
        """Fill the recurrences that define these families, unless that is under way.

        Where that fails or is interrupted, nothing is known any more: what is filled half way is not to be read.
        """
        for name in names if self._waiting else ():
            for position in self.netsor.families[name].statements:
                for number in sorted(self._waiting) if self._group[position] in self._waiting else ():
                    if number in self._waiting and number <= self._group[position]:
                        self._waiting.remove(number)
                        outermost = not self.active
                        try:
                            with self.numbers.by_itself():
                                self._fill(number)
                        except BaseException:
                            if outermost:
                                self.numbers.start_again()
                            raise

    def _fill(self, number: int) -> None:
        before, own = self.active, Steps(self.netsor.body, self.steps.entries[number : number + 1])
        self.active = before | {self.netsor.body[position].target.name for position in positions(own.entries)}
        self._base_cases()
        for step in () if self._filled_by_tiles(own) else own:
            name, product = step.statement.target.name, isinstance(step.statement, MatMul)
            if name in self.given or not (product or self.netsor.families[name].kind == "scalar"):
                continue
            box = target_box(step.statement, step.ranges(self.netsor.ranges))
            if not isinstance(step.statement, MatMul):
                self.fill_average(step.position, box)
            elif step.statement.vector.name not in self.numbers.random:
                self._fill_rows(name, step.statement, box, number)
        self.active = before

    def _base_cases(self) -> None:
        """What is defined outside of recurrences of averages."""
        for name in sorted(self.active - self.given):
            if self.netsor.families[name].kind == "scalar":
                self.rest_of(name)

    # -- rows ---------------------------------------------------------------------------------------------------

    def _fill_rows(self, name: str, statement: MatMul, box: Box, number: int) -> None:
        self._filled[name] = merged([*self._filled.get(name, ()), box])
        for position, other in self._partners(statement):
            for known in self._known(other, position, number):
                met = self._met(statement, box, other, known)
                if met is not None:
                    self._fill_row(name, box, other.target.name, met)
        self.numbers.entered(name, box)

    def _partners(self, statement: MatMul) -> list[tuple[int, MatMul]]:
        """The products with the same weights, by their positions."""
        found = ((position, other) for position, other in enumerate(self.netsor.body) if isinstance(other, MatMul))
        return [(position, other) for position, other in found if other.weight.name == statement.weight.name]

    def _met(self, statement: MatMul, box: Box, other: MatMul, known: Box) -> Box | None:
        """The members in a box of known ones that have the weights of those in another: with weights for each step, one
        step of them; None where there are none.
        """
        if not statement.weight.slots:
            return known
        ranges, family = box_ranges(box, known), self.netsor.families[statement.weight.name]
        weights = [
            readings(at_positions(s.weight, s.target, copy), family, ranges)
            for s, copy in ((statement, ""), (other, "_"))
        ]
        if any(len(cases) != 1 for cases in weights):
            return known
        slots = zip(weights[0][0].slots, weights[1][0].slots, strict=True)
        forms = frozenset(form for form in (difference(one, two) for one, two in slots) if form is not None)
        held = None if any(not form.terms for form in forms) else held_in(ranges, forms)
        return None if held is None else tuple(held[f"{k}_"] for k in range(len(known)))

    def _known(self, statement: MatMul, position: int, number: int) -> Sequence[Box]:
        """The members of a family that are known at this step, as boxes."""
        name = statement.target.name
        if statement.vector.name in self.numbers.random:
            return ()
        if name in self.active or name in self._filled:
            return list(self._filled.get(name, ()))
        return [self.netsor.families[name].ranges] if self._group[position] < number else ()

    def _fill_row(self, f: str, box: Box, g: str, known: Box) -> None:
        names = {key: f"{key[:-1]}" if key.endswith("_") else f"{key}_" for key in box_ranges(box, known)}
        forms = {key: Affine.index(name) for key, name in names.items()}
        row = self.numbers.gaussian(f, g, self.numbers.over(box_ranges(box, known)))
        self._enter((f, g), row)
        if (f, box) != (g, known):
            swapped = {names.get(name, name): span for name, span in row.ranges.items()}
            self._enter((g, f), row.read(forms, swapped))

    def _enter(self, key: tuple[str, str], row: IndexedValues) -> None:
        """Write a row into the covariance of two families, or in place of it."""
        if self.numbers.passing:
            self.covariances[key] = Latest(row.terms, row.ranges)
            return
        whole = self.numbers.pair_ranges(*key)
        table = {term.equations: term.value for term in self.covariances.get(key, IndexedValues((), whole)).terms}
        entered: dict[Equations, Value] = {}
        for term in row.terms:  # of equal equations there are several, where products are kept as factors
            known = entered.get(term.equations)
            entered[term.equations] = term.value if known is None else known + term.value
        for equations, value in entered.items():
            held = held_in(row.ranges, equations)
            if held is not None:
                along = {name: span for name, span in held.items() if name not in solve(equations)}
                narrower = {name: Affine.index(name) for name in along if along[name] != row.ranges[name]}
                starts = {name: span[0] for name, span in row.ranges.items()}
                value = value.gather(narrower, along, starts) if narrower else value
                before = table.get(equations)
                table[equations] = (before or Value.of(0.0)).overwritten(value, along, whole)
        self.covariances[key] = IndexedValues(tuple(Term(e, value) for e, value in table.items()), whole)

    # -- tiles --------------------------------------------------------------------------------------------------

    def _filled_by_tiles(self, own: Steps) -> bool:
        """Fill in all covariances of a recurrence, if each is made of itself, others of it and known ones by `Pairs`.

        What a row is made of is planned once, when tables hold nothing yet, and is read tile by tile.  Errors are
        stated at the end.  An erf network of 1000 steps takes a tenth of its time step by step, and a table of 10,000
        steps is kept once, without errors beside it.
        """
        statements = (self.netsor.body[position] for position in positions(own.entries))
        products = {statement.target.name: statement for statement in statements if isinstance(statement, MatMul)}
        if self.numbers.replicates or not all(map(self._tabled, products.values())):
            return False
        if any(self.netsor.families[name].kind == "scalar" for name in self.active):
            return False
        sizes = {name: self.netsor.families[name].shape[0] for name in products}
        check_memory((len(sizes), max(sizes.values(), default=0), max(sizes.values(), default=0)), 1)
        values = {name: np.eye(size) for name, size in sizes.items()}
        keep(*values.values())
        try:
            if self._fill_tiles(own, values) and self._stated(values):
                return True
        except NotKnownError:
            pass
        for name in products:
            self.covariances.pop((name, name), None)
            self._filled.pop(name, None)
        return False

    def _tabled(self, statement: MatMul) -> bool:
        """Whether a family has one table, for members along one index that are many and share their weights."""
        name, family = statement.target.name, self.netsor.families[statement.target.name]
        random = self.given | self.numbers.random
        alone = len(self._partners(statement)) == 1 and not random & {name, statement.vector.name}
        alone = alone and not any(slot.terms for slot in statement.weight.slots)
        return alone and len(family.ranges) == 1 and family.shape[0] >= MANY

    def _planned(
        self, values: Mapping[str, Array], errors: Mapping[str, Array], near: Mapping[str, float]
    ) -> dict[str, Pairs]:
        """What the covariances of families are made of, given tables of them, tile by tile.

        Raises    NotKnownError where they are made of anything else
        """
        for name, value in values.items():
            self._enter_table(name, Pairs.filled(value, errors[name], near.get(name)))
        plans = {}
        for name in values:
            terms = self.numbers.gaussian(name, name, self.numbers.pair_ranges(name, name)).terms
            if len(terms) != 1 or terms[0].equations or not isinstance(terms[0].value, DeferredPairs):
                raise NotKnownError
            plans[name] = terms[0].value.pairs
        return plans

    def _enter_table(self, name: str, pairs: Pairs) -> None:
        table: Value = DeferredPairs(("0", "0_"), pairs)
        self.covariances[name, name] = IndexedValues((Term(NOTHING, table),), self.numbers.pair_ranges(name, name))

    def _fill_tiles(self, own: Steps, values: Mapping[str, Array]) -> bool:
        """Fill in tables, which are identities while it is planned how: whether all members are known then."""
        plans = self._planned(values, {name: np.zeros((2, len(value))) for name, value in values.items()}, {})
        for value in values.values():
            np.fill_diagonal(value, 0.0)
        for step in own:
            name = step.statement.target.name
            if name in values:
                box, first = target_box(step.statement, step.ranges(self.netsor.ranges)), self._first(name)
                self._filled[name] = merged([*self._filled.get(name, ()), box])
                rows = slice(box[0][0] - first, box[0][1] - first)
                for ((start, stop),) in reversed(self._filled[name]):  # the last ones hold the rows themselves
                    columns = slice(start - first, stop - first)
                    with np.errstate(all="ignore"):
                        found = plans[name].entries(rows, columns, {})
                    values[name][rows, columns], values[name][columns, rows] = found, found.T
        return all(self._filled[name] == [self.netsor.families[name].ranges] for name in values)

    def _first(self, name: str) -> int:
        return self.netsor.families[name].ranges[0][0]

    def _stated(self, values: Mapping[str, Array]) -> bool:
        """State errors of full tables: whether some are found.

        The plan, made of full tables with some errors, says what these become one step later.  What does not grow by
        that holds for all steps, by induction.  A plan made of numbers that were not known yet has other variances.

        Raises    NotKnownError where that is so
        """

        near = {name: Pairs.of(value, np.zeros(len(value))).near for name, value in values.items()}

        def after(errors: Mapping[str, Array]) -> dict[str, Array]:
            plans = self._planned(values, errors, near)
            for name, plan in plans.items():
                if not np.all(np.abs(plan.diagonal.value - np.diagonal(values[name])) <= plan.diagonal.error):
                    raise NotKnownError
            return {name: np.stack([plan.diagonal.error, plan.bounds.error]) for name, plan in plans.items()}

        errors = {name: np.zeros((2, len(value))) for name, value in values.items()}
        for number in range(SWEEPS):
            if number & (number - 1) == 0:
                held = {name: SAFE * own for name, own in errors.items()}
                if all(np.all(found <= held[name]) for name, found in after(held).items()):
                    for name, value in values.items():
                        self._enter_table(name, replace(Pairs.filled(value, held[name], near[name]), growing=False))
                    return True
            errors = after(errors)
        return False

    # -- averages -------------------------------------------------------------------------------------------------

    def rest_of(self, name: str) -> None:
        """Fill in the averages of a family that are defined outside of recurrences."""
        for position in self.netsor.families[name].statements:
            if self._group[position] not in self.loops:
                self.fill_average(position, target_box(self.netsor.body[position], self.netsor.ranges))

    def fill_average(self, position: int, box: Box) -> None:
        """Write the averages of one statement, in a box, among those of its family."""
        name = self.netsor.body[position].target.name
        ranges, whole = (self.numbers.over(box_ranges(b)) for b in (box, self.netsor.families[name].ranges))
        value = self.numbers.average_of(position, ranges)
        self.averages[name] = self.averages.get(name, Value.of(0.0)).overwritten(value, ranges, whole)


def merged(boxes: Sequence[Box]) -> list[Box]:
    """The boxes with the last one joined to others where their union is a box."""
    *others, last = boxes
    for other in others:
        apart = [k for k, (a, b) in enumerate(zip(other, last, strict=True)) if a != b]
        if len(apart) == 1 and other[apart[0]][1] == last[apart[0]][0]:
            k = apart[0]
            joined = (*other[:k], (other[k][0], last[k][1]), *other[k + 1 :])
            return merged([*(box for box in others if box != other), joined])
    return [*others, last]

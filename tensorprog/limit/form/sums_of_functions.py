"""Vectors as sums of weighted functions: coefficient * function(affine form of Gaussian variables), over indices.

Gaussian variables are the outputs of MatMul and the initial vectors.  Scores and averages count as numbers here: a
coefficient may contain them.  Definitions of other vectors are written in (inlined) first, but for those carried along
a recurrence without a MatMul between (see `definitions.carried`), which stay as variables that are not Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from tensorprog.language.atoms import REDUCTIONS
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    affine_expr,
    factors,
    free_indices,
    fresh_substitute,
    is_call,
    product_of,
    rebuild,
    reindexed,
    replace_variables,
    substitute,
    sum_of,
    variables,
    walk,
    with_children,
    with_stars,
)
from tensorprog.language.ir import MatMul, Netsor, Nonlin, Range
from tensorprog.limit.form.definitions import (
    ONE,
    ZERO,
    Reading,
    carried,
    depth,
    indicator,
    not_compiled,
    positions_of,
    random_families,
    readings,
    reduces_numbered,
    reductions,
    target_box,
)

__all__ = [
    "FORMAL",
    "ONE",
    "Inner",
    "SumsOfFunctions",
    "WeightedFunction",
    "combination",
    "position_names",
]

Step = tuple[int, ...]  # numbers in the slots along which a family is carried
Key = tuple[Variable, tuple[str, ...]]  # a variable and the indices it is summed over
Inner = tuple[tuple[Expr, Variable, tuple[str, ...]], ...]
FORMAL = Variable(".")  # the argument of a one-argument function
MAX_PARTS = 10_000
MOST_SUMMANDS = 16  # of a factor that is taken apart
MAX_NODES = 20_000  # of a definition with all others written in
MAX_DEPTH = 250  # functions of functions in it


@dataclass(frozen=True)
class WeightedFunction:
    """coefficient * function(sum of weight * variable), summed over the bound indices.

    Each entry of `inner` is (weight, variable, indices it is summed over inside the function).

    `function` is an expression in FORMAL; None stands for the constant 1 (no variable at all).  A function of several
    arguments keeps its variables in place and has `joint` set.
    """

    coefficient: Expr
    bound: tuple[str, ...] = ()
    function: Expr | None = None
    inner: tuple[tuple[Expr, Variable, tuple[str, ...]], ...] = ()
    joint: bool = False
    box: tuple[tuple[str, Range], ...] = ()  # of a family with several definitions: the positions where this one holds

    @property
    def linear(self) -> bool:
        """Whether the part is a constant or a multiple of a variable."""
        return self.function is None or self.function == FORMAL

    @property
    def without_coefficient(self) -> WeightedFunction:
        """The part with coefficient 1."""
        return replace(self, coefficient=ONE)

    @cached_property
    def unheld(self) -> WeightedFunction:
        """The part of one of several definitions, at positions where it holds."""
        if not self.box:
            return self
        held = is_call(self.coefficient, "multiply")
        return replace(self, coefficient=self.coefficient.children[1] if held else ONE)

    @property
    def expression(self) -> Expr:
        """A factor (see `SumsOfFunctions.factors_of`) as an expression in its variables."""
        if self.function is None or self.joint:
            return self.coefficient if self.function is None else self.function
        form = combination({(variable, bound): weight for weight, variable, bound in self.inner})
        return replace_variables(self.function, lambda v: form if v == FORMAL else None)

    @property
    def all_bound(self) -> tuple[str, ...]:
        """Indices summed over, outside the function and inside."""
        return tuple(dict.fromkeys((*self.bound, *(name for _, _, bound in self.inner for name in bound))))

    def renamed(self, names: Mapping[str, Affine]) -> WeightedFunction:
        """The same part with other index names (bound ones must stay bare)."""

        def bare(bound: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names[name].bare or name if name in names else name for name in bound)

        return WeightedFunction(
            substitute(self.coefficient, names),
            bare(self.bound),
            None if self.function is None else substitute(self.function, names),
            tuple((substitute(c, names), reindexed(v, names), bare(bound)) for c, v, bound in self.inner),
            self.joint,
            self.box,
        )

    def within(self, ranges: Mapping[str, Range], copy: str = "") -> dict[str, Range] | None:
        """The ranges held to the positions where the part is defined, or their copies; None if there are none."""
        held = dict(ranges)
        for position, (start, stop) in self.box:
            name = f"{position}{copy}"
            held[name] = max(start, held[name][0]), min(stop, held[name][1])
            if held[name][0] >= held[name][1]:
                return None
        return held


def position_names(netsor: Netsor, family: str, suffix: str = "") -> dict[str, Range]:
    """Ranges of the position names '0', '1', ... of a family's slots."""
    return {f"{k}{suffix}": span for k, span in enumerate(netsor.families[family].ranges)}


class SumsOfFunctions:
    """The vectors of one program, each as a sum of weighted functions, its parts.

    Index names are slot positions '0', '1', ... and fresh bound ones.

    What is carried along and depends on scores is `spelled` out step by step, where the slots that it moves along, its
    values, are numbers.
    """

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.bound_ranges: dict[str, Range] = {}
        self._cache: dict[str, tuple[WeightedFunction, ...]] = {}
        self._inlined: dict[int, Expr] = {}
        self._sources: dict[str, str] = {}
        self._fresh = count(1)
        self._at_step: dict[tuple[int, Step], Expr] = {}
        self._at_steps: dict[tuple[str, tuple[Range, ...]], tuple[WeightedFunction, ...]] = {}
        self.carried, self.spelled = carried(netsor), dict[str, list[int]]()
        sums = {name: running_sum(self, name) for name in sorted(self.carried)}
        self._inlined = {found[0]: found[1] for found in sums.values() if found is not None}
        self.carried -= {name for name, found in sums.items() if found is not None}
        self.spelled = {name: moving(self, name) for name in sorted(self.carried & random_families(netsor))}

    def is_base(self, name: str) -> bool:
        """Whether a family is Gaussian by itself: a MatMul output or an initial vector."""
        family = self.netsor.families[name]
        nonlin = any(isinstance(self.netsor.body[position], Nonlin) for position in family.statements)
        return family.kind == "vector" and not nonlin

    def source(self, name: str) -> str:
        """What a Gaussian family is independent by: its weight, or itself for initial vectors."""
        if name not in self._sources:
            products = (self.netsor.body[position] for position in self.netsor.families[name].statements)
            self._sources[name] = next((s.weight.name for s in products if isinstance(s, MatMul)), name)
        return self._sources[name]

    def independent(self, f: str, g: str) -> bool:
        """Whether two families are Gaussian and have different sources."""
        return self.source(f) != self.source(g) and self.is_base(f) and self.is_base(g)

    def gaussian(self, part: WeightedFunction) -> bool:
        """Whether a part is a multiple of a Gaussian variable, or a constant."""
        return part.linear and not any(variable.name in self.carried for _, variable, _ in part.inner)

    def is_vector(self, expr: Expr) -> bool:
        """Whether vectors occur in an expression."""
        return any(
            isinstance(node, Variable) and (node == FORMAL or self.netsor.families[node.name].kind == "vector")
            for node in walk(expr)
        )

    def inlined(self, name: str) -> Expr:
        """The definition of a Nonlin family over its position names, with other Nonlins written in."""
        box = self.netsor.families[name].ranges
        whole = Variable(name, tuple(Affine.index(str(k)) for k in range(len(box))))
        written = self.read(whole, {str(k): span for k, span in enumerate(box)}, self.netsor.families[name].statements)
        assert written is not None
        return written

    def every_range(self) -> dict[str, Range]:
        """Ranges of all indices, of those bound in parts, and of those that a softmax keeps (written with a star)."""
        declared = dict(self.netsor.ranges)
        return with_stars(declared) | self.bound_ranges

    def statement(self, position: int) -> Expr:
        """The right side of one Nonlin over the position names of its family, with other Nonlins written in."""
        waiting = [position]
        while position not in self._inlined:  # those that it reads come first
            reads = [p for p in self._reads(waiting[-1]) if p not in self._inlined and p not in waiting]
            waiting += reversed(reads)
            if not reads:
                last = waiting.pop()
                self._inlined[last] = self._written(last)
        return self._inlined[position]

    def _reads(self, position: int) -> list[int]:
        """The statements that are written into one."""
        ranges, found = self.every_range(), dict[int, None]()
        for v in self.netsor.body[position].inputs:
            family = self.netsor.families[v.name]
            if v.name not in self.carried:
                cases = readings(v, family, ranges)
                found |= dict.fromkeys(
                    p for p in family.statements for c in cases if self._held(p, c.slots, ranges) is not None
                )
        return [p for p in found if isinstance(self.netsor.body[p], Nonlin)]

    def _written(self, position: int) -> Expr:
        statement = self.netsor.body[position]
        assert isinstance(statement, Nonlin)
        box = target_box(statement, self.netsor.ranges)
        written = self.fresh(statement.expr, positions_of(statement.target))
        ranges = self.every_range() | {str(k): span for k, span in enumerate(box)}
        written = replace_variables(written, lambda reference: self.written_in(reference, ranges))
        return branches_apart(self, self._bounded(statement.target, written))

    def _bounded(self, target: Variable, written: Expr) -> Expr:
        """What a vector is written out as, refused where it is too long."""
        large = f"has more than {MAX_NODES} terms" if sum(1 for _ in walk(written)) > MAX_NODES else ""
        if large or depth(written) > MAX_DEPTH:
            large = large or f"nests more than {MAX_DEPTH} functions"
            raise not_compiled(
                self.netsor.body[self.netsor.families[target.name].statements[-1]],
                f"{target} written out in Gaussian variables {large}",
                "a MatMul or fewer statements between, so that less is written into one function",
            )
        return written

    def written_in(self, reference: Variable, ranges: Mapping[str, Range]) -> Expr | None:
        """What a reference stands for while its indices run over the ranges; None for itself."""
        body, family = self.netsor.body, self.netsor.families[reference.name]
        known = reference.name not in self.carried and all(isinstance(body[k], Nonlin) for k in family.statements)
        return self.read(reference, ranges, family.statements if known or self._step(reference) is not None else ())

    def spelled_out(self, expr: Expr, ranges: Mapping[str, Range]) -> Expr:
        """An expression with the members of `spelled` families written in, where the step is a number."""
        return replace_variables(expr, lambda v: None if self._step(v) is None else self.written_in(v, ranges))

    def _step(self, reference: Variable) -> Step | None:
        """The numbers in the slots along which a `spelled` family is carried; None for any other reference."""
        slots = [reference.slots[k] for k in self.spelled.get(reference.name, ())]
        known = reference.name in self.spelled and not any(slot.terms for slot in slots)
        return tuple(slot.offset for slot in slots) if known else None

    def _statement_at(self, position: int, step: Step) -> Expr:
        """The right side of a statement of a `spelled` family at one step, with those of earlier steps written in."""
        target = self.netsor.body[position].target
        waiting = [(position, step)]
        while (position, step) not in self._at_step:  # earlier steps come first
            own, at = waiting[-1]
            moved = self.netsor.body[own].target.name
            names = {str(k): Affine((), value) for k, value in zip(self.spelled[moved], at, strict=True)}
            expr = self.fresh(self.statement(own), names)
            ranges = self.every_range() | position_names(self.netsor, moved)
            reads = {key for v in variables(expr) for key in self._reads_at(v, ranges)} - self._at_step.keys()
            waiting += sorted(reads)
            if not reads:
                self._at_step[waiting.pop()] = self._bounded(target, self.spelled_out(expr, ranges))
        return self._at_step[position, step]

    def _reads_at(self, reference: Variable, ranges: Mapping[str, Range]) -> Iterator[tuple[int, Step]]:
        """The statements and steps that are written in for a reference."""
        if self._step(reference) is None:
            return
        family = self.netsor.families[reference.name]
        for case in readings(reference, family, ranges):
            step = self._step(Variable(reference.name, case.slots))
            assert step is not None
            for position in family.statements:
                box = target_box(self.netsor.body[position], self.netsor.ranges)
                if all(box[k][0] <= n < box[k][1] for k, n in zip(self.spelled[reference.name], step, strict=True)):
                    yield position, step

    def read(self, reference: Variable, ranges: Mapping[str, Range], positions: Sequence[int]) -> Expr | None:
        """The sum over all cases of a reference of what it reads: one of the statements, or the variable itself."""
        total: Expr | None = None
        for case in readings(reference, self.netsor.families[reference.name], ranges):
            if not positions and case == Reading(reference.slots):
                return None
            for position in positions or (None,):
                read = self._at(position, Variable(reference.name, case.slots), ranges)
                if read is None:
                    continue
                expr, inside = read
                held = indicator((*case.inside, *inside))
                term = expr if held == ONE else Call("multiply", (held, expr))
                total = term if total is None else Call("add", (total, term))
        return ZERO if total is None else total

    def _at(
        self, position: int | None, reference: Variable, ranges: Mapping[str, Range]
    ) -> tuple[Expr, tuple[tuple[Affine, Range], ...]] | None:
        """What one statement gives at the slots, and what must hold so that it does; None if it never does."""
        if position is None:
            return reference, ()
        held = self._held(position, reference.slots, ranges)
        if held is None:
            return None
        values = {str(k): slot for k, slot in enumerate(reference.slots)}
        step = self._step(reference)
        expr = self.statement(position) if step is None else self._statement_at(position, step)
        return self.fresh(expr, values), held

    def _held(
        self, position: int, slots: Sequence[Affine], ranges: Mapping[str, Range]
    ) -> tuple[tuple[Affine, Range], ...] | None:
        """What must hold so that slots read members of a statement; None if they never do."""
        box, inside = target_box(self.netsor.body[position], self.netsor.ranges), []
        for slot, (start, stop) in zip(slots, box, strict=True):
            low, high = slot.bounds(ranges)
            if high < start or low >= stop:
                return None
            if low < start or high >= stop:
                inside.append((slot, (start, stop)))
        return tuple(inside)

    def fresh(self, expr: Expr, names: dict[str, Affine]) -> Expr:
        """Substitute, giving every reduction index a name of its own."""

        def renamed(name: str) -> str:
            return self.bound(name.split("~")[0], self.bound_ranges.get(name) or self.netsor.ranges[name])

        return fresh_substitute(expr, names, renamed)

    def bound(self, name: str, span: Range) -> str:
        """A new name of an index that a reduction removes, with its range."""
        own = f"{name}~{next(self._fresh)}"  # one step, as laws of one program in several threads share the parts
        self.bound_ranges[own] = span
        return own

    def of(self, name: str) -> tuple[WeightedFunction, ...]:
        """Parts of a vector family (or of a scalar one, whose only part is a number)."""
        if name not in self._cache:
            family = self.netsor.families[name]
            parts: list[WeightedFunction] = []
            if self.is_base(name) or name in self.carried:
                slots = tuple(Affine.index(str(k)) for k in range(len(family.ranges)))
                parts = [WeightedFunction(ONE, (), FORMAL, ((ONE, Variable(name, slots), ()),))]
            elif len(family.statements) == 1:
                parts = self.split(self.statement(family.statements[0]))
            else:
                split = {position: self.split(self.statement(position)) for position in family.statements}
                parts = [part for position, own in split.items() for part in self._boxed(position, own)]
            parts = [part for part in parts if part.coefficient != ZERO]
            if len(parts) > MAX_PARTS:
                raise not_compiled(
                    self.netsor.body[family.statements[0]],
                    f"{name} is a sum of {len(parts)} different terms, more than the {MAX_PARTS} that are expanded",
                    "fewer products of sums",
                )
            self._cache[name] = tuple(parts)
        return self._cache[name]

    def written(self, name: str, box: Sequence[Range]) -> Expr | None:
        """The members of a family in a box in Gaussian variables, positions of one member as numbers.

        None for Gaussian families, and for several steps of one that is carried along.
        """
        slots = tuple(Affine((), a) if b == a + 1 else Affine.index(str(k)) for k, (a, b) in enumerate(box))
        ranges = self.every_range() | {str(k): span for k, span in enumerate(box)}
        read = None if self.is_base(name) else self.written_in(Variable(name, slots), ranges)
        return None if read is None else branches_apart(self, self.spelled_out(read, ranges))

    def at(self, name: str, box: Sequence[Range]) -> tuple[WeightedFunction, ...]:
        """Parts of the members in a box; those of one step have what is carried along written out."""
        key = name, tuple(box)
        if not self.spelled or self.is_base(name):
            return self.of(name)
        if key not in self._at_steps:
            written = self.written(name, box)
            self._at_steps[key] = self.of(name) if written is None else tuple(self.split(written))
        return self._at_steps[key]

    def last(self, name: str) -> tuple[WeightedFunction, ...]:
        """Parts of a family; where something is carried along, of its last member, which reads most."""
        return self.at(name, [(stop - 1, stop) for _, stop in self.netsor.families[name].ranges])

    def powers(self, name: str, order: int) -> list[WeightedFunction] | None:
        """A power of a vector that is a function of one variable by each of its definitions; None for any other."""
        family, found = self.netsor.families[name], []
        if self.is_base(name) or name in self.carried:
            return None
        for position in family.statements:
            expr = self.statement(position)
            part = self.function_part(expr) if self.is_vector(expr) else WeightedFunction(ONE, (), expr)
            if part.joint or part.function is None:
                return None
            power = Call("power", (part.function, Number(order)))
            raised = replace(part, function=power) if self.is_vector(expr) else WeightedFunction(power)
            found += self._boxed(position, [raised]) if len(family.statements) > 1 else [raised]
        return found

    def _boxed(self, position: int, parts: Sequence[WeightedFunction]) -> list[WeightedFunction]:
        """Parts of one of several definitions, zero where it does not hold."""
        if all(part.coefficient == ZERO for part in parts):
            return []
        spans = target_box(self.netsor.body[position], self.netsor.ranges)
        box = tuple((str(k), span) for k, span in enumerate(spans))
        held = indicator([(Affine.index(name), span) for name, span in box])
        return [replace(self.scale(part, held), box=box) for part in parts]

    def split(self, expr: Expr) -> list[WeightedFunction]:
        """Write an expression as a sum of parts."""
        if not self.is_vector(expr):
            return [WeightedFunction(expr)]
        if isinstance(expr, Variable):
            return [WeightedFunction(ONE, (), FORMAL, ((ONE, expr, ()),))]
        if isinstance(expr, Call):
            if expr.atom in ("add", "subtract"):
                left, right = (self.split(arg) for arg in expr.args)
                return left + ([self.scale(part, Number(-1)) for part in right] if expr.atom == "subtract" else right)
            if expr.atom == "negative":
                return [self.scale(part, Number(-1)) for part in self.split(expr.args[0])]
            if expr.atom == "divide" and not self.is_vector(expr.args[1]):
                inverse = Call("divide", (ONE, expr.args[1]))
                return [self.scale(part, inverse) for part in self.split(expr.args[0])]
            found = factors(expr)
            numbers = [factor for factor in found if not self.is_vector(factor)]
            if numbers:
                others = product_of([factor for factor in found if self.is_vector(factor)])
                return [self.scale(part, product_of(numbers)) for part in self.split(others)]
            expanded = self.expanded(found) if len(found) > 1 else None
            if expanded is not None:
                return expanded
        if isinstance(expr, Reduction) and REDUCTIONS[expr.reducer].linear:
            factor = self.reduction_factor(expr)
            return [
                self.scale(
                    WeightedFunction(p.coefficient, (*expr.indices, *p.bound), p.function, p.inner, p.joint), factor
                )
                for p in self.split(expr.arg)
            ]
        return [self.function_part(expr)]

    def expanded(self, product: Sequence[Expr]) -> list[WeightedFunction] | None:
        """A product with one of its factors taken apart, a sum of functions of several variables; None without one.

        Each summand may be a product of functions of few variables, whose expectations are products too.
        """
        for k, factor in enumerate(product):
            if is_call(factor, "add", "subtract") and self.function_part(factor).joint:
                parts = self.split(factor)
                rest = [*product[:k], *product[k + 1 :]]
                if any(part.bound for part in parts) or len(parts) > MOST_SUMMANDS:
                    continue
                terms = (product_of([*factors(part.without_coefficient.expression), *rest]) for part in parts)
                return [
                    self.scale(found, part.coefficient)
                    for part, term in zip(parts, terms, strict=True)
                    for found in self.split(term)
                ]
        return None

    def reduction_factor(self, expr: Reduction) -> Expr:
        """1 for a sum, 1/count for a mean."""
        if expr.reducer == "sum":
            return ONE
        members = 1
        for name in expr.indices:
            start, stop = self.bound_ranges.get(name) or self.netsor.ranges[name]
            members *= stop - start
        return Number(1 / members)

    @staticmethod
    def scale(part: WeightedFunction, factor: Expr) -> WeightedFunction:
        """The part times a number."""
        if factor == ONE:
            return part
        coefficient = factor if part.coefficient == ONE else Call("multiply", (factor, part.coefficient))
        return WeightedFunction(coefficient, part.bound, part.function, part.inner, part.joint)

    def function_part(self, expr: Expr) -> WeightedFunction:
        """A nonlinear expression as a function of one affine form, where it is one."""
        vectors = [v for v in variables(expr) if self.netsor.families[v.name].kind == "vector"]
        reduced = any(isinstance(node, Reduction) and self.is_vector(node) for node in walk(expr))
        joint = WeightedFunction(ONE, (), expr, tuple((ONE, v, ()) for v in vectors), True)
        if len(vectors) == 1 and not reduced:
            function = replace_variables(expr, lambda v: FORMAL if v == vectors[0] else None)
            return WeightedFunction(ONE, (), function, ((ONE, vectors[0], ()),))
        body, forms = self.numbered(expr)
        if len(forms) != 1 or (reduced and reduces_numbered(body)):
            return joint
        function = replace_variables(body, lambda v: FORMAL if v.name == ".0" else None)
        return WeightedFunction(ONE, (), function, forms[0])

    def sums_over_vectors(self, factor: WeightedFunction) -> bool:
        """Whether a factor reads several vectors and reduces over an index of some."""
        over = reductions(factor.function) if factor.function is not None and factor.joint else []
        return any(map(self.is_vector, over))

    def reduces(self, factor: WeightedFunction) -> bool:
        """Whether a factor reduces over an index of vectors, beyond the affine forms that it reads."""
        if factor.function is None or not self.sums_over_vectors(factor):
            return False
        return reduces_numbered(self.numbered(factor.function)[0])

    def factors_of(self, part: WeightedFunction) -> list[WeightedFunction]:
        """The factors of a part without its coefficient, each a number or a function of as few arguments as it has."""
        if part.function is None:
            return []
        if not part.joint:
            return [part.without_coefficient]
        found = factors(part.function, signs=True)
        return [self.function_part(factor) if self.is_vector(factor) else WeightedFunction(factor) for factor in found]

    def numbered(self, expr: Expr) -> tuple[Expr, list[Inner]]:
        """An expression with its largest affine parts as variables ".0", ".1", ..., and these parts."""
        forms: dict[Inner, int] = {}

        def numbered(node: Expr) -> Expr:
            form = self.affine(node) if self.is_vector(node) else None
            if form is not None:
                inner = tuple((c, *key) for key, c in sorted(form[0].items(), key=lambda item: str(item[0])))
                return sum_of((Variable(f".{forms.setdefault(inner, len(forms))}"), form[1]))
            return with_children(node, *map(numbered, node.children)) if self.is_vector(node) else node

        return numbered(expr), list(forms)

    def affine(self, node: Expr) -> tuple[dict[Key, Expr], Expr] | None:
        """Weights of the vectors and the offset, if an expression is affine in vectors."""
        if not self.is_vector(node):
            return {}, node
        if isinstance(node, Variable):
            return {(node, ()): ONE}, ZERO
        if isinstance(node, Reduction):
            form = self.affine(node.arg) if REDUCTIONS[node.reducer].linear else None
            if form is None:
                return None
            factor = self.reduction_factor(node)
            offset = ZERO if form[1] == ZERO else Reduction(node.reducer, node.indices, form[1])
            return {(v, (*node.indices, *bound)): times(factor, w) for (v, bound), w in form[0].items()}, offset
        assert isinstance(node, Call)
        if node.atom in ("add", "subtract"):
            left, right = self.affine(node.args[0]), self.affine(node.args[1])
            if left is None or right is None:
                return None
            sign = ONE if node.atom == "add" else Number(-1)
            inner = dict(left[0])
            for key, weight in right[0].items():
                weight = times(sign, weight)
                inner[key] = Call("add", (inner[key], weight)) if key in inner else weight
            other = times(sign, right[1])
            return inner, other if left[1] == ZERO else left[1] if other == ZERO else Call("add", (left[1], other))
        scale: Expr | None = None
        rest = node.args[0]
        if node.atom == "negative":
            scale = Number(-1)
        elif node.atom == "divide" and not self.is_vector(node.args[1]):
            scale = Call("divide", (ONE, node.args[1]))
        elif node.atom == "multiply":
            for number, other in (node.args, node.args[::-1]):
                if not self.is_vector(number):
                    scale, rest = number, other
        form = self.affine(rest) if scale is not None else None
        if form is None or scale is None:
            return None
        return {key: times(scale, weight) for key, weight in form[0].items()}, times(scale, form[1])


# ---- choices between vectors by conditions on indices ---------------------------------------------------------------


def branches_apart(parts: SumsOfFunctions, expr: Expr) -> Expr:
    """where(c, x, y) as where(c, 1, 0) * x + where(c, 0, 1) * y, so that sums and products can be taken apart."""

    def change(node: Expr) -> Expr | None:
        if not (isinstance(node, Call) and node.atom == "where") or parts.is_vector(node.args[0]):
            return None
        condition, *branches = node.args[0], *(branches_apart(parts, branch) for branch in node.args[1:])
        if any(map(parts.is_vector, branches)) and all(_finite(parts, branch) for branch in branches):
            x, y = (_held(parts, branch, side) for branch, side in zip(branches, _sides(condition), strict=True))
            return y if x == ZERO else x if y == ZERO else Call("add", (x, y))
        return Call("where", (condition, *branches))

    return rebuild(expr, change)


def _sides(condition: Expr) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """What a number is where the condition holds, else 0; and the other way round."""
    return (lambda a: Call("where", (condition, a, ZERO))), (lambda a: Call("where", (condition, ZERO, a)))


def _held(parts: SumsOfFunctions, branch: Expr, side: Callable[[Expr], Expr]) -> Expr:
    if branch == ZERO:
        return ZERO
    return Call("multiply", (side(ONE), branch)) if parts.is_vector(branch) else side(branch)


def _finite(parts: SumsOfFunctions, branch: Expr) -> bool:
    return parts.is_vector(branch) or (isinstance(branch, Number) and math.isfinite(branch.value))


# ---- residual streams along a recurrence ----------------------------------------------------------------------------


def moving(parts: SumsOfFunctions, name: str) -> list[int]:
    """The slots along which a carried family reads earlier members of itself, or of others that are carried."""
    reads = (v for p in parts.netsor.families[name].statements for v in variables(parts.statement(p)))
    slots = (pair for v in reads if v.name in parts.carried for pair in enumerate(v.slots))
    return sorted({k for k, slot in slots if slot != Affine.index(str(k))})


def running_sum(parts: SumsOfFunctions, name: str) -> tuple[int, Expr] | None:
    """h[t] = a h[t-1] + g[t] as sum over k <= t of a**(t-k) g[k], and where it stands; None for what is not so.

    a is a number and g[t] affine in Gaussian variables, so that h[t] is Gaussian: a residual stream.
    """
    family = parts.netsor.families[name]
    own = [p for p in family.statements if name in {v.name for v in variables(parts.statement(p))}]
    form = parts.affine(parts.statement(own[0])) if len(own) == 1 and family.kind == "vector" else None
    before = [(v, bound, a) for (v, bound), a in form[0].items() if v.name in parts.carried] if form else []
    if len(before) != 1 or before[0][0].name != name or before[0][1] or free_indices(before[0][2]):
        return None
    reference, _, factor = before[0]
    moved = [k for k, slot in enumerate(reference.slots) if slot != Affine.index(str(k))]
    if len(moved) != 1 or reference.slots[moved[0]] != Affine(((str(moved[0]), 1),), -1) or list(variables(factor)):
        return None
    box = target_box(parts.netsor.body[own[0]], parts.netsor.ranges)
    here, (start, stop) = str(moved[0]), box[moved[0]]
    name_k = parts.bound("k", (start, stop))

    def decay(since: Affine) -> Expr:
        lag = affine_expr(Affine(((here, 1), *((n, -v) for n, v in since.terms)), -since.offset))
        return ONE if factor == ONE else Call("power", (factor, lag))

    step = Affine.index(name_k)
    assert form is not None
    added = combination({key: weight for key, weight in form[0].items() if key[0] != reference}, form[1])
    known = Call("where", (Call("less_equal", (affine_expr(step), IndexValue(here))), decay(step), ZERO))
    summed = Reduction("sum", (name_k,), times(known, substitute(added, {here: step})))
    first = tuple(Affine((), start - 1) if str(k) == here else s for k, s in enumerate(reference.slots))
    ranges = {str(k): span for k, span in enumerate(box)}
    base = parts.read(Variable(name, first), ranges, [p for p in family.statements if p not in own])
    return own[0], summed if base is None else Call("add", (times(decay(first[moved[0]]), base), summed))


def combination(weights: Mapping[tuple[Variable, tuple[str, ...]], Expr], offset: Expr = ZERO) -> Expr:
    """An affine form as an expression: variables by weights, summed over indices, and what is added."""
    total = offset
    for (variable, bound), weight in weights.items():
        term = times(weight, variable)
        term = Reduction("sum", bound, term) if bound else term
        total = term if total == ZERO else Call("add", (total, term))
    return total


def times(factor: Expr, other: Expr) -> Expr:
    """A product, short where a factor is 1 or the other 0."""
    return other if factor == ONE or other == ZERO else factor if other == ONE else Call("multiply", (factor, other))

"""Vectors as sums of weighted functions: coefficient * function(affine form of Gaussian variables), over indices.

Gaussian variables are the outputs of MatMul and the initial vectors.  Scores and averages count as numbers here: a
coefficient may contain them.  Definitions of other vectors are written in (inlined) first, but for those carried along
a recurrence without a MatMul between (see `definitions.carried`), which stay as variables that are not Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import cast

from tensorprog.language.arrows import connected, reached
from tensorprog.language.atoms import REDUCTIONS
from tensorprog.language.errors import NotCompiledError
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
    Box,
    Condition,
    Corrected,
    Reading,
    carried,
    circular,
    depth,
    indicator,
    not_compiled,
    positions_of,
    random_families,
    readings,
    reductions,
    target_box,
)

__all__ = [
    "FORMAL", "ONE", "Inner", "SumsOfFunctions", "Term", "WeightedFunction",
    "branches_apart", "linear_terms", "position_names", "summed",
]  # fmt: skip

Step = tuple[int, ...]  # numbers in the slots along which a family is carried
Inner = tuple[tuple[Expr, Variable, tuple[str, ...]], ...]
Term = tuple[Expr, tuple[str, ...], Expr | None]  # number * vector, summed over indices; None for the vector 1
FORMAL = Variable(".")  # the argument of a one-argument function
MAX_PARTS = 10_000
MOST_SUMMANDS = 16  # of a factor that is taken apart
MAX_NODES = 20_000  # of a definition with all others written in
LARGE = 500  # the same from which a vector is a variable of its own, which has points
MAX_DEPTH = 150  # functions of functions in it


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
    inner: Inner = ()
    joint: bool = False
    box: tuple[tuple[str, Range], ...] = ()  # of a family with several definitions: the positions where this one holds

    @property
    def linear(self) -> bool:
        """Whether the part is a constant or a multiple of a variable."""
        return self.function is None or self.function == FORMAL

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.coefficient, self.bound, self.function, self.inner, self.joint, self.box))

    def __getstate__(self) -> dict[str, object]:
        """All but the hash, which another process may not share."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def plain(self) -> bool:
        """Whether nothing is summed over, and the coefficient is 1."""
        return self.coefficient == ONE and not self.bound

    @cached_property
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
        form = sum_of(summed(bound, product_of((weight, variable))) for weight, variable, bound in self.inner)
        return replace_variables(self.function, lambda v: form if v == FORMAL else None)

    @property
    def all_bound(self) -> tuple[str, ...]:
        """Indices summed over, outside the function and inside."""
        return tuple(dict.fromkeys((*self.bound, *(name for _, _, bound in self.inner for name in bound))))

    def scaled(self, factor: Expr) -> WeightedFunction:
        """The part times a number."""
        return self if factor == ONE else replace(self, coefficient=product_of((factor, self.coefficient)))

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

    Products with Onsager terms that functions read are variables too, and with them what would be too long, but beside
    scores, or if all is `written_out`.
    """

    def __init__(self, netsor: Netsor, written_out: bool = False) -> None:
        self.netsor = netsor
        self.bound_ranges: dict[str, Range] = {}
        self._parts: dict[tuple[str, Box], tuple[WeightedFunction, ...]] = {}
        self._inlined: dict[tuple[int, Step], Expr | NotCompiledError] = {}
        self._sources: dict[str, str] = {}
        self._sources_of: dict[Inner, frozenset[str]] = {}
        self._carried_by: dict[str, str] = {}
        self._vectors: dict[int, tuple[bool, Expr]] = {}  # by the identity of expressions, which are kept
        self._fresh = count(1)
        self.spelled: dict[str, list[int]] = {}
        made = {s.target.name for s in netsor.body if isinstance(s, Nonlin)}
        self._bases = {n for n, family in netsor.families.items() if family.kind == "vector" and n not in made}
        corrected = dict.fromkeys(s.target.name for s in netsor.body if isinstance(s, Corrected))
        self.carried = carried(netsor) | corrected.keys()
        recur = circular(netsor)
        self.corrected = corrected.keys() - recur  # which are variables only where functions read them
        random = random_families(netsor)
        if corrected and not (written_out or random):
            self.carried |= self._large(self.carried)
        for name in (
            name for name in corrected if name not in recur
        ):  # those that are linear in Gaussian vectors are Gaussian
            written = [part for p in netsor.families[name].statements for part in self.split(self.statement(p))]
            self.carried -= {name} if written_out or random or all(map(self.gaussian, written)) else set()
        known: dict[tuple[int, Step], Expr] = {}
        while sums := {
            name: found for name in sorted(self.carried - corrected.keys()) if (found := running_sum(self, name))
        }:
            known |= {(position, ()): expr for position, expr in sums.values()}
            self.carried -= sums.keys()
            self._inlined = dict(known)
        self.spelled = {name: self._moving(name) for name in sorted(self.carried & random)}

    def _large(self, held: Collection[str]) -> set[str]:
        """Vectors that would be too long with all definitions written in."""
        found, sizes = set[str](), dict[str, int]()
        for statement in self.netsor.body:
            name = statement.target.name
            if isinstance(statement, Nonlin) and self.netsor.families[name].kind == "vector" and name not in held:
                parts = walk(statement.expr)
                size = sum(sizes.get(part.name, 1) if isinstance(part, Variable) else 1 for part in parts)
                found |= {name} if size > LARGE else set()
                sizes[name] = 1 if name in found else max(size, sizes.get(name, 1))
        return found

    def is_base(self, name: str) -> bool:
        """Whether a family is Gaussian by itself: a MatMul output or an initial vector."""
        return name in self._bases

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
        known = self._vectors.get(id(expr))
        if known is None:
            found = isinstance(expr, Variable) and (expr == FORMAL or self.netsor.families[expr.name].kind == "vector")
            known = self._vectors[id(expr)] = found or any(map(self.is_vector, expr.children)), expr
        return known[0]

    def every_range(self) -> dict[str, Range]:
        """Ranges of all indices, of those bound in parts, and of those that a softmax keeps (written with a star)."""
        return with_stars(self.netsor.ranges) | self.bound_ranges

    # -- definitions, with others written in -----------------------------------------------------------------------

    def statement(self, position: int, step: Step = ()) -> Expr:
        """The right side of a Nonlin over the position names of its family, or at one step of a `spelled` one.

        Definitions of other Nonlins are written in, and so are those of earlier steps.
        """
        key, waiting = (position, step), [(position, step)]
        while key not in self._inlined:  # those that it reads come first
            reads = [k for k in self._reads(*waiting[-1]) if k not in self._inlined and k not in waiting]
            waiting += reversed(reads)
            if not reads:
                last = waiting.pop()
                try:
                    self._inlined[last] = self._written(*last)
                except NotCompiledError as error:  # nor is what it is written into
                    self._inlined[last] = error
        found = self._inlined[key]
        if isinstance(found, NotCompiledError):
            raise found
        return found

    def _source(self, position: int, step: Step) -> Expr:
        """A right side over position names before others are written in; that of a step has all but earlier steps."""
        statement = self.netsor.body[position]
        assert isinstance(statement, Nonlin)
        if not step:
            return self.fresh(statement.expr, positions_of(statement.target))
        slots = zip(self.spelled[statement.target.name], step, strict=True)
        return self.fresh(self.statement(position), {str(k): Affine((), value) for k, value in slots})

    def _reads(self, position: int, step: Step) -> Iterator[tuple[int, Step]]:
        """The statements, with steps, that are written into one."""
        statement = self.netsor.body[position]
        read = dict.fromkeys(variables(self._source(position, step)) if step else statement.inputs)
        ranges = self.every_range() | position_names(self.netsor, statement.target.name)
        for reference in read:
            for case in readings(reference, self.netsor.families[reference.name], ranges):
                at = self._step(Variable(reference.name, case.slots))
                for other in self.netsor.families[reference.name].statements:
                    written = isinstance(self.netsor.body[other], Nonlin) and (at or reference.name not in self.carried)
                    if written and self._held(other, case.slots, ranges) is not None:
                        yield other, at or ()

    def _written(self, position: int, step: Step) -> Expr:
        statement = self.netsor.body[position]
        written, name = self._source(position, step), statement.target.name
        if step:
            written = self.spelled_out(written, self.every_range() | position_names(self.netsor, name))
        else:
            box = target_box(statement, self.netsor.ranges)
            ranges = self.every_range() | {str(k): span for k, span in enumerate(box)}
            written = replace_variables(written, lambda reference: self.written_in(reference, ranges))
        large = f"has more than {MAX_NODES} terms" if sum(1 for _ in walk(written)) > MAX_NODES else ""
        if large or depth(written) > MAX_DEPTH:
            large = large or f"nests more than {MAX_DEPTH} functions"
            raise not_compiled(
                self.netsor.body[self.netsor.families[name].statements[-1]],
                f"{statement.target} written out in Gaussian variables {large}",
                "a MatMul or fewer statements between, so that less is written into one function",
            )
        return written if step else branches_apart(self.is_vector, written)

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

    def _moving(self, name: str) -> list[int]:
        """The slots along which a carried family reads earlier members of itself, or of others that are carried."""
        reads = (v for p in self.netsor.families[name].statements for v in variables(self.statement(p)))
        slots = (pair for v in reads if v.name in self.carried for pair in enumerate(v.slots))
        return sorted({k for k, slot in slots if slot != Affine.index(str(k))})

    def read(self, reference: Variable, ranges: Mapping[str, Range], positions: Sequence[int]) -> Expr | None:
        """The sum over all cases of a reference of what it reads: one of the statements, or the variable itself."""
        total: Expr | None = None
        for case in readings(reference, self.netsor.families[reference.name], ranges):
            if not positions and case == Reading(reference.slots):
                return None
            for position in positions or (None,):
                own = Variable(reference.name, case.slots)
                inside = () if position is None else self._held(position, case.slots, ranges)
                if inside is None:
                    continue
                held, term = indicator((*case.inside, *inside)), cast(Expr, own)
                if position is not None:
                    slots = {str(k): slot for k, slot in enumerate(case.slots)}
                    term = self.fresh(self.statement(position, self._step(own) or ()), slots)
                term = term if held == ONE else Call("multiply", (held, term))
                total = term if total is None else Call("add", (total, term))
        return ZERO if total is None else total

    def _held(
        self, position: int, slots: Sequence[Affine], ranges: Mapping[str, Range]
    ) -> tuple[Condition, ...] | None:
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
        """Substitute, giving every index that a reduction removes a name of its own."""
        removed = (name for node in walk(expr) if isinstance(node, Reduction) and node.removes for name in node.indices)
        spans = ((name, self.bound_ranges.get(name) or self.netsor.ranges[name]) for name in removed)
        bound = {name: Affine.index(self.bound(name.split("~")[0], span)) for name, span in spans}
        return substitute(expr, {**names, **bound})

    def bound(self, name: str, span: Range) -> str:
        """A new name of an index that a reduction removes, with its range."""
        own = f"{name}~{next(self._fresh)}"  # one step, as laws of one program in several threads share the parts
        self.bound_ranges[own] = span
        return own

    # -- sums of functions ----------------------------------------------------------------------------------------

    def itself(self, name: str) -> WeightedFunction:
        """A vector as a variable."""
        slots = tuple(Affine.index(str(k)) for k in range(len(self.netsor.families[name].ranges)))
        return WeightedFunction(ONE, (), FORMAL, ((ONE, Variable(name, slots), ()),))

    def of(self, name: str) -> tuple[WeightedFunction, ...]:
        """Parts of a vector family (or of a scalar one, whose only part is a number)."""
        if (name, ()) not in self._parts:
            family = self.netsor.families[name]
            parts: list[WeightedFunction] = []
            if self.is_base(name) or name in self.carried - self.corrected:
                parts = [self.itself(name)]
            for position in family.statements if not parts else ():
                found = self.split(self.statement(position))
                if len(family.statements) > 1 and any(part.coefficient != ZERO for part in found):
                    spans = target_box(self.netsor.body[position], self.netsor.ranges)
                    box = tuple((str(k), span) for k, span in enumerate(spans))
                    held = indicator([(Affine.index(slot), span) for slot, span in box])
                    found = [replace(part.scaled(held), box=box) for part in found]
                parts += [part for part in found if part.coefficient != ZERO]
            if len(parts) > MAX_PARTS:
                raise not_compiled(
                    self.netsor.body[family.statements[0]],
                    f"{name} is a sum of {len(parts)} different terms, more than the {MAX_PARTS} that are expanded",
                    "fewer products of sums",
                )
            self._parts[name, ()] = tuple(parts)
        return self._parts[name, ()]

    def written(self, name: str, box: Sequence[Range]) -> Expr:
        """The members of a family that is not Gaussian in a box in Gaussian variables, positions of one as numbers.

        The family itself for several steps of one that is carried along.
        """
        slots = tuple(Affine((), a) if b == a + 1 else Affine.index(str(k)) for k, (a, b) in enumerate(box))
        ranges, reference = self.every_range() | {str(k): span for k, span in enumerate(box)}, Variable(name, slots)
        read = self.written_in(reference, ranges)
        return reference if read is None else branches_apart(self.is_vector, self.spelled_out(read, ranges))

    def at(self, name: str, box: Sequence[Range]) -> tuple[WeightedFunction, ...]:
        """Parts of the members in a box; those of one step have what is carried along written out."""
        key = name, tuple(box)
        if not self.spelled or self.is_base(name):
            return self.of(name)
        if key not in self._parts:
            written = self.written(name, box)
            self._parts[key] = self.of(name) if isinstance(written, Variable) else tuple(self.split(written))
        return self._parts[key]

    def last(self, name: str) -> tuple[WeightedFunction, ...]:
        """Parts of a family; where something is carried along, of its last member, which reads most."""
        return self.at(name, [(stop - 1, stop) for _, stop in self.netsor.families[name].ranges])

    def split(self, expr: Expr) -> list[WeightedFunction]:
        """Write an expression as a sum of parts."""
        found = []
        for number, bound, term in self._terms(expr):
            parts = [WeightedFunction(ONE)] if term is None else self._expanded(term) or [self.function_part(term)]
            found += [replace(part.scaled(number), bound=(*bound, *part.bound)) for part in parts]
        return _of_one_form(found)

    def _expanded(self, term: Expr) -> list[WeightedFunction] | None:
        """A product with one of its factors taken apart, a sum of functions of several variables; None without one.

        Each summand may be a product of functions of few variables, whose expectations are products too.
        """
        product = factors(term)
        for k, factor in enumerate(product if len(product) > 1 else ()):
            if is_call(factor, "add", "subtract") and self.function_part(factor).joint:
                parts, rest = self.split(factor), [*product[:k], *product[k + 1 :]]
                if len(parts) <= MOST_SUMMANDS and not any(part.bound for part in parts):
                    terms = (product_of([*factors(part.without_coefficient.expression), *rest]) for part in parts)
                    return [
                        found.scaled(part.coefficient)
                        for part, one in zip(parts, terms, strict=True)
                        for found in self.split(one)
                    ]
        return None

    def _terms(self, expr: Expr) -> list[Term]:
        """An expression as a sum of terms."""
        return linear_terms(expr, self.is_vector, self._size)

    def _size(self, index: str) -> int:
        start, stop = self.bound_ranges.get(index) or self.netsor.ranges[index]
        return stop - start

    def function_part(self, expr: Expr) -> WeightedFunction:
        """A nonlinear expression as a function of one affine form, where it is one."""
        vectors = [v for v in variables(expr) if self.netsor.families[v.name].kind == "vector"]
        reduced = any(map(self.is_vector, reductions(expr)))
        if len(vectors) == 1 and not reduced:
            function = replace_variables(expr, lambda v: FORMAL if v == vectors[0] else None)
            return WeightedFunction(ONE, (), function, ((ONE, vectors[0], ()),))
        body, forms = self.numbered(expr)
        if len(forms) > 1 and not reduced:  # of which one may be a multiple of the other, as in x * erf(x / sqrt(2))
            body, forms = self.numbered(expr, by_direction=True)
        if len(forms) != 1 or (reduced and _reduces_numbered(body)):
            return WeightedFunction(ONE, (), expr, tuple((ONE, v, ()) for v in vectors), True)
        function = replace_variables(body, lambda v: FORMAL if v.name == ".0" else None)
        return WeightedFunction(ONE, (), function, forms[0])

    def sums_over_vectors(self, factor: WeightedFunction) -> bool:
        """Whether a factor reads several vectors and reduces over an index of some."""
        over = reductions(factor.function) if factor.function is not None and factor.joint else []
        return any(map(self.is_vector, over))

    def reduces(self, factor: WeightedFunction) -> bool:
        """Whether a factor reduces over an index of vectors, beyond the affine forms that it reads."""
        over = factor.function is not None and self.sums_over_vectors(factor)
        return over and _reduces_numbered(self.numbered(factor.expression)[0])

    def factors_of(self, part: WeightedFunction) -> list[WeightedFunction]:
        """The factors of a part without its coefficient, each a number or a function of as few arguments as it has."""
        if part.function is None:
            return []
        if not part.joint:
            return [part.without_coefficient]
        found = factors(part.function, signs=True)
        return [self.function_part(factor) if self.is_vector(factor) else WeightedFunction(factor) for factor in found]

    # -- what factors are functions of -----------------------------------------------------------------------------

    def carries(self, factor: WeightedFunction) -> bool:
        """Whether a factor reads what is carried along."""
        return any(variable.name in self.carried for _, variable, _ in factor.inner)

    def independent_groups(self, factors: Sequence[WeightedFunction]) -> list[list[WeightedFunction]]:
        """Factors in groups that are independent of each other."""
        return connected(factors, lambda one, two: not self.sources(one).isdisjoint(self.sources(two)))

    def sources(self, factor: WeightedFunction) -> frozenset[str]:
        """The weights and initial vectors that a factor is a function of, through all that is carried along."""

        def read(name: str) -> Iterator[str]:
            made = (self.netsor.body[position] for position in self.netsor.families[name].statements)
            return (v.name for s in made if isinstance(s, Nonlin) for v in variables(s.expr))

        if factor.inner not in self._sources_of:
            names = reached(read, (variable.name for _, variable, _ in factor.inner))
            self._sources_of[factor.inner] = frozenset(self.source(name) for name in names if self.is_base(name))
        return self._sources_of[factor.inner]

    def carried_by(self, name: str) -> str:
        """The vector whose coordinates the moments of one with carried factors are averages of; '' without these.

        A carried variable, where it is all that is carried, and independent of its other factors, or the vector itself.
        """
        if name not in self._carried_by:
            parts = self.of(name)
            groups = [group for part in parts for group in self.independent_groups(self.factors_of(part))]
            carrying = [group for group in groups if any(map(self.carries, group))]
            self._carried_by[name] = name if carrying else ""
            if [len(group) for group in carrying] == [1] and not any(part.bound for part in parts):
                (factor,) = carrying[0]
                self._carried_by[name] = factor.inner[0][1].name if factor.linear else name
        return self._carried_by[name]

    def numbered(self, expr: Expr, by_direction: bool = False) -> tuple[Expr, list[Inner]]:
        """An expression with its largest affine parts as variables ".0", ".1", ..., and these parts.

        By direction, multiples of one part are one variable, where the factor is written before all of its weights.
        """
        forms: dict[Inner, int] = {}

        def numbered(node: Expr) -> Expr:
            if not self.is_vector(node):
                return node
            form = self.affine(node)
            if form is None:
                return with_children(node, *map(numbered, node.children))
            inner, factor = without_factor(form[0]) if by_direction else (form[0], ONE)
            return sum_of((product_of((factor, Variable(f".{forms.setdefault(inner, len(forms))}"))), form[1]))

        return numbered(expr), list(forms)

    def affine(self, node: Expr) -> tuple[Inner, Expr] | None:
        """Weights of the vectors and the offset, if an expression is affine in vectors."""
        weights, offset = dict[tuple[Variable, tuple[str, ...]], Expr](), cast(Expr, ZERO)
        for number, bound, term in self._terms(node):
            if term is None:
                offset = sum_of((offset, summed(bound, number)))
            elif isinstance(term, Variable):
                known = weights.get((term, bound))
                weights[term, bound] = number if known is None else Call("add", (known, number))
            else:
                return None
        return tuple((c, *key) for key, c in sorted(weights.items(), key=lambda item: str(item[0]))), offset


def linear_terms(expr: Expr, is_vector: Callable[[Expr], bool], size: Callable[[str], int]) -> list[Term]:
    """An expression as a sum of number * vector, over indices; the vector None where there is only a number."""

    def go(node: Expr) -> list[Term]:
        if not is_vector(node):
            return [(node, (), None)]
        if is_call(node, "add", "subtract"):
            sign = Number(-1) if node.atom == "subtract" else ONE
            return [*go(node.args[0]), *scaled(sign, go(node.args[1]))]
        found = factors(node)
        if is_call(node, "negative"):
            found = [Number(-1), node.args[0]]
        elif is_call(node, "divide") and not is_vector(node.args[1]):
            found = [Call("divide", (ONE, node.args[1])), node.args[0]]
        numbers = [factor for factor in found if not is_vector(factor)]
        if numbers:
            return scaled(product_of(numbers), go(product_of(factor for factor in found if is_vector(factor))))
        if isinstance(node, Reduction) and REDUCTIONS[node.reducer].linear:
            factor = ONE if node.reducer == "sum" else Number(1 / math.prod(map(size, node.indices)))
            return scaled(factor, [(number, (*node.indices, *bound), term) for number, bound, term in go(node.arg)])
        return [(ONE, (), node)]

    def scaled(factor: Expr, terms: Iterable[Term]) -> list[Term]:
        return [(product_of((factor, number)), bound, term) for number, bound, term in terms]

    return go(expr)


def without_factor(form: Inner) -> tuple[Inner, Expr]:
    """An affine form without the factors that all its weights have, and their product."""
    rest, common = [factors(weight) for weight, _, _ in form], []
    for factor in list(rest[0]):
        if all(factor in weight for weight in rest):
            common.append(factor)
            for weight in rest:
                weight.remove(factor)
    return tuple((product_of(w), *entry[1:]) for w, entry in zip(rest, form, strict=True)), product_of(common)


def _of_one_form(parts: list[WeightedFunction]) -> list[WeightedFunction]:
    """The parts with functions of one affine form, and numbers beside them, as one: their errors move together.

    Centred relu networks of 50 layers keep 13 digits so.  What is linear stays by itself.
    """
    plain = [p for p in parts if not (p.bound or p.joint or any(True for _ in variables(p.coefficient)))]
    forms = dict.fromkeys(p.inner for p in plain if not p.linear)
    if len(forms) != 1:
        return parts
    (form,) = forms
    own = [p for p in plain if not p.linear or p.function is None]
    function = sum_of(product_of((p.coefficient, ONE if p.function is None else p.function)) for p in own)
    others = [p for p in parts if not any(p is other for other in own)]
    return [WeightedFunction(ONE, (), function, form), *others] if len(own) > 1 else parts


def summed(bound: tuple[str, ...], term: Expr) -> Expr:
    """The sum over indices of an expression."""
    return Reduction("sum", bound, term) if bound and term != ZERO else term


def _reduces_numbered(expr: Expr) -> bool:
    """Whether numbered variables, ".0", ".1", ..., stand below a reduction."""
    return any(v.name.startswith(".") for node in reductions(expr) for v in variables(node))


def branches_apart(is_vector: Callable[[Expr], bool], expr: Expr) -> Expr:
    """where(c, x, y) as where(c, 1, 0) * x + where(c, 0, 1) * y, so that sums and products can be taken apart."""

    def change(node: Expr) -> Expr | None:
        if not is_call(node, "where") or is_vector(node.args[0]):
            return None
        condition, *branches = node.args[0], *(branches_apart(is_vector, branch) for branch in node.args[1:])
        numbers = [branch for branch in branches if not is_vector(branch)]
        if len(numbers) == 2 or not all(isinstance(b, Number) and math.isfinite(b.value) for b in numbers):
            return Call("where", (condition, *branches))
        masks = Call("where", (condition, ONE, ZERO)), Call("where", (condition, ZERO, ONE))
        return sum_of(product_of(pair) for pair in zip(masks, branches, strict=True) if pair[1] != ZERO)

    return rebuild(expr, change)


def _reads(expr: Expr, names: Collection[str]) -> bool:
    return any(variable.name in names for variable in variables(expr))


def running_sum(parts: SumsOfFunctions, name: str) -> tuple[int, Expr] | None:
    """h[t] = a h[t-1] + g[t] as sum over k <= t of a**(t-k) g[k], and where it stands; None for what is not so.

    a is a number and g[t] reads nothing that is carried along: a residual stream, Gaussian where g[t] is.
    """
    family = parts.netsor.families[name]
    own = [p for p in family.statements if name in {v.name for v in variables(parts.statement(p))}]
    if len(own) != 1 or family.kind != "vector":
        return None
    terms = list(parts._terms(parts.statement(own[0])))
    before = [entry for entry in terms if entry[2] is not None and _reads(entry[2], parts.carried)]
    if len(before) != 1 or not isinstance(before[0][2], Variable):
        return None
    number, bound, reference = before[0]
    assert isinstance(reference, Variable)
    moved = [k for k, slot in enumerate(reference.slots) if slot != Affine.index(str(k))]
    others = [p for p in family.statements if p not in own]
    mask = indicator([(reference.slots[k], family.ranges[k]) for k in moved])  # where it reads zeros at the first step
    factor = number if others else product_of(part for part in factors(number) if part != mask)
    if (
        reference.name != name
        or bound
        or free_indices(factor)
        or len(moved) != 1
        or any(True for _ in variables(factor))
    ):
        return None
    if reference.slots[moved[0]] != Affine(((str(moved[0]), 1),), -1):
        return None
    box = target_box(parts.netsor.body[own[0]], parts.netsor.ranges)
    here, (start, stop) = str(moved[0]), box[moved[0]]
    name_k = parts.bound("k", (start, stop))
    step = Affine.index(name_k)

    def decay(since: Affine) -> Expr:
        return ONE if factor == ONE else Call("power", (factor, affine_expr(Affine.index(here) - since)))

    added = sum_of(summed(b, c if v is None else product_of((c, v))) for c, b, v in terms if v is not reference)
    known = Call("where", (Call("less_equal", (affine_expr(step), IndexValue(here))), decay(step), ZERO))
    total = Reduction("sum", (name_k,), product_of((known, substitute(added, {here: step}))))
    first = tuple(Affine((), start - 1) if str(k) == here else s for k, s in enumerate(reference.slots))
    ranges = {str(k): span for k, span in enumerate(box)}
    base = parts.read(Variable(name, first), ranges, others) if others else None
    return own[0], total if base is None else sum_of((product_of((decay(first[moved[0]]), base)), total))

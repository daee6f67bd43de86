"""The adjoint program: the gradients of sum(xi . y) / sqrt(n) by every family, as statements of the language.

Each statement hands its gradient on to what it reads.  With grad_z = sqrt(width of z) dloss/dz for vectors,

    u = MatMul(W, x)          grad_x += MatMul(W.T, grad_u)
    z = Nonlin(phi(u; p))     grad_u += phi_u grad_z,    grad_p += Dot(phi_p, grad_z), scaled as p is
    p = Dot(q, k)             grad_q += k grad_p,        grad_k += q grad_p

where grad_p = dloss/dp if p is a score, and n**-0.5 dloss/dp if it is an average.  A scalar that both scores and
averages go into has both: grad_p and average_grad_p.  Between vectors of different widths stand square roots of the
widths' ratio.

A member x[A] that is read at affine slots A of a statement's indices has its gradient at the indices that solve
A = J, for each member J; see `_inverted`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Literal

from tensorprog.gradients.derivatives import divided, pulled_back, root_of, simplified, times
from tensorprog.language.arrows import grouped, reached
from tensorprog.language.averages import unused
from tensorprog.language.errors import fail
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    affine_expr,
    factors,
    free_indices,
    index_names,
    is_call,
    rebuild,
    reindexed,
    slots_of,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Dot, Family, Index, Initial, MatMul, Netsor, Nonlin, Range, Statement
from tensorprog.language.schedule import downstream, upstream

__all__ = ["Backward"]

Scale = Literal["n**-0.5", "1/n"]
Slots = tuple[Affine, ...]
Handed = tuple[Slots, Expr]  # what a statement hands to one reference: at its slots, in the statement's indices
SCORE: Scale = "n**-0.5"
AVERAGE: Scale = "1/n"


class Backward:
    """The statements of an adjoint program, as they are found; indices of statements have names of their own there.

    Such a name, `i'3`, stands for index i of one statement; `settled` gives it a declared name again.
    """

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.indices: dict[str, Index] = dict(netsor.index)
        self.initial: list[Initial] = []
        self.body: list[Statement] = []
        self.families: dict[str, Family] = dict(netsor.families)
        self.origin: dict[str, tuple[str, ...]] = {}  # of new families: the index of the program behind each slot
        self.own: dict[str, Range] = {}  # ranges of the names that stand for indices
        self.names = {*netsor.taken, "n"}
        self.padded: dict[str, dict[int, str]] = {}  # slots of families that are read beyond their ranges, and how
        self.softmaxes: dict[str, tuple[tuple[str, ...], Reduction]] = {}
        self.readings: dict[tuple[str, str], list[Handed]] = {}
        self.active = self._active()
        self.scales = self._scales()
        self.gradients = self._gradients()
        self._ones: dict[str, Variable] = {}
        for position, statement in enumerate(netsor.body):
            if statement.target.name in self.active:
                self._statement(position)
        self._seeds()
        for name in self.active:
            for scale in self.scales.get(name, ("",)):
                self._pieces(name, scale)

    # -- what has a gradient -------------------------------------------------------------------------------------

    def _active(self) -> dict[str, None]:
        """Families that outputs depend on, without those that are the same for all networks."""
        used = upstream(self.netsor, self.netsor.outputs)
        random = [vector.name for vector in self.netsor.initial if not vector.grid]
        random += [s.target.name for s in self.netsor.body if isinstance(s, MatMul)]
        both = used & downstream(self.netsor.body, random)
        return {name: None for name in self.families if name in both}

    def _scales(self) -> dict[str, tuple[Scale, ...]]:
        """For each scalar the scales that its gradient is needed on: its own, or those of scalars that it reads."""
        scalars = [name for name in self.active if self.families[name].kind == "scalar"]
        made = grouped((s.target.name, s) for s in self.netsor.body if s.target.name in scalars)

        def read(name: str) -> Iterator[str]:
            return (r.name for s in made[name] if isinstance(s, Nonlin) for r in s.inputs if r.name in made)

        found: dict[str, tuple[Scale, ...]] = {}
        for name in scalars:
            scales = {s.scale for other in reached(read, [name]) for s in made[other] if isinstance(s, Dot)}
            found[name] = tuple(scale for scale in (SCORE, AVERAGE) if scale in scales)
        return found

    def _gradients(self) -> dict[tuple[str, str], str]:
        """Names of the gradients."""
        found: dict[tuple[str, str], str] = {}
        for name in self.active:
            for number, scale in enumerate(self.scales.get(name, ("",))):
                found[name, scale] = self.unique(f"average_grad_{name}" if number else f"grad_{name}")
        for (name, _), gradient in found.items():
            self.families[gradient] = replace(self.families[name], name=gradient)
        return found

    # -- names -----------------------------------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """A name that is not taken, this one if possible."""
        return unused(name, self.names)

    def index(self, span: Range, like: str, avoid: Collection[str] = (), boundary: str | None = None) -> str:
        """A declared index with this range, and boundary if it matters; `like` if it is one."""
        for name in (like, *self.indices):
            index = self.indices.get(name)
            if (
                index is not None
                and (index.start, index.stop) == span
                and name not in avoid
                and (boundary is None or index.boundary == boundary)
            ):
                return name
        name = self.unique(f"{like}2") if like else self.unique("j")
        self.indices[name] = Index(name, *span, boundary or "")  # type: ignore[arg-type]
        return name

    def ranges(self) -> dict[str, Range]:
        """Ranges of declared indices and of names that stand for indices."""
        return {name: (index.start, index.stop) for name, index in self.indices.items()} | self.own

    def _new(self, name: str) -> str:
        """A name for an index of one statement."""
        made = f"{name.partition(chr(39))[0]}'{len(self.own)}"
        self.own[made] = self.own.get(name) or (self.indices[name].start, self.indices[name].stop)
        return made

    def _renamed(self, expr: Expr, values: Mapping[str, Affine]) -> Expr:
        """The expression with other indices, and names of their own for those that its sums bind."""
        bound = {n for node in walk(expr) if isinstance(node, Reduction) and node.removes for n in node.indices}
        fresh = {name: Affine.index(self._new(name)) for name in sorted(bound)}
        return substitute(expr, {**values, **fresh}, along=True)

    def settled(self, expr: Expr, names: Mapping[str, str]) -> Expr:
        """The expression with declared indices: those given, others where sums bind them."""

        def settle(node: Expr, names: Mapping[str, str]) -> Expr:
            if isinstance(node, Reduction):
                own = dict(names)
                if node.removes:
                    for name in node.indices:
                        avoid = {value for key, value in own.items() if key != name} | set(free_indices(node))
                        own[name] = self.index(self.ranges()[name], name.partition("'")[0], avoid)
                return Reduction(node.reducer, tuple(own.get(n, n) for n in node.indices), settle(node.arg, own))
            if isinstance(node, Call):
                return Call(node.atom, tuple(settle(arg, names) for arg in node.args))
            return substitute(node, {key: Affine.index(value) for key, value in names.items()})

        return settle(expr, {**{name: name for name in free_indices(expr) if name not in self.own}, **names})

    # -- new families ----------------------------------------------------------------------------------------------

    def width(self, expr: Expr) -> str:
        """The width of the vectors in an expression; empty for a scalar, in which there are none."""
        families = (self.families[reference.name] for reference in variables(expr))
        return next((family.width for family in families if family.kind == "vector"), "")

    def _added(self, name: str, indices: Sequence[str], width: str) -> tuple[Variable, dict[str, str]]:
        """A new family of vectors, without a width of scalars, over names that stand for indices, as a reference; and
        the declared indices of its statement.
        """
        given: dict[str, str] = {}
        for index in indices:
            given[index] = self.index(self.own[index], index.partition("'")[0], set(given.values()))
        name = self.unique(name)
        boundaries = tuple(self.indices[index].boundary for index in given.values())
        ranges = tuple(self.own[index] for index in indices)
        self.families[name] = Family(name, "vector" if width else "scalar", ranges, width, (), boundaries)
        self.origin[name] = tuple(index.partition("'")[0] for index in indices)
        return Variable(name, slots_of(indices)), given

    def nonlin(self, name: str, expr: Expr, indices: Sequence[str] | None = None) -> Variable:
        """A family that has an expression as its value, over the indices that occur free, or over more."""
        found, given = self._added(name, free_indices(expr) if indices is None else indices, self.width(expr))
        self.body.append(Nonlin(_named(found, given), self.settled(expr, given)))
        return found

    def dot(self, left: Variable, right: Variable, scale: Scale) -> Variable:
        """A family of Dots, over all indices of the operands."""
        indices = dict.fromkeys(name for part in (left, right) for slot in part.slots for name in slot.indices)
        word = "dot" if scale == SCORE else "mean"
        found, given = self._added(f"{word}_{left.name}_{right.name}", tuple(indices), "")
        self.body.append(Dot(_named(found, given), _named(left, given), _named(right, given), scale))
        return found

    def ones(self, width: str) -> Variable:
        """The constant vector 1 of a width."""
        if width not in self._ones:
            name = self.unique("one" if width == "n" else f"one_{width}")
            self.families[name] = Family(name, "vector", (), width)
            self.body.append(Nonlin(Variable(name), Number(1), "" if width == "n" else width))
            self._ones[width] = Variable(name)
        return self._ones[width]

    def root(self, above: str, below: str) -> Expr:
        """sqrt(width `above` / width `below`)."""
        if above == below:
            return Number(1)
        sizes, fixed = [], dict(self.netsor.fixed_widths)
        for width in (above, below):
            ratio = next((r for name, r, _ in self.netsor.widths if name == width), Fraction(1))
            sizes.append(Fraction(fixed[width]) if width in fixed else ratio)
        found = root_of(sizes[0] / sizes[1])
        if (above in fixed) == (below in fixed):
            return found
        if "" not in self._ones:  # sqrt(n), as the Dot of the constant vector 1 with itself
            name = self.unique("root_n")
            self.families[name] = Family(name, "scalar", ())
            self.body.append(Dot(Variable(name), self.ones("n"), self.ones("n")))
            self._ones[""] = Variable(name)
        return divided(found, self._ones[""]) if above in fixed else times(found, self._ones[""])

    # -- one statement ---------------------------------------------------------------------------------------------

    def _statement(self, position: int) -> None:
        """What a statement hands on to the families that it reads."""
        statement = self.netsor.body[position]
        own = {name: self._new(name) for slot in statement.target.slots for name in slot.indices}
        given = {name: Affine.index(new) for name, new in own.items()}
        target = reindexed(statement.target, given)
        if isinstance(statement, MatMul):
            vector = reindexed(statement.vector, given)
            if vector.name not in self.active:
                return
            rows, columns = statement.sides(self.netsor.weight[statement.weight.name])
            gradient = Variable(self.gradients[target.name, ""], target.slots)
            found, declared = self._added(f"grad_{vector.name}_{target.name}", tuple(own.values()), columns)
            self.body.append(
                MatMul(
                    _named(found, declared),
                    _named(reindexed(statement.weight, given), declared),
                    _named(gradient, declared),
                    transposed=not statement.transposed,
                )
            )
            self._read(vector, "", times(self.root(columns, rows), found))
        elif isinstance(statement, Dot):
            left, right = reindexed(statement.left, given), reindexed(statement.right, given)
            gradient = Variable(self.gradients[target.name, statement.scale], target.slots)
            # an average's gradient is n**-0.5 dloss/dp, whatever the width of the operands
            factor = self.root("n", self.families[left.name].width) if statement.scale == AVERAGE else Number(1)
            for reference, other in ((left, right), (right, left)):
                if reference.name in self.active:
                    self._read(reference, "", times(factor, gradient, other))
        else:
            scales = self.scales.get(target.name, ("",))
            expr = self._named_softmaxes(self._renamed(statement.expr, given), target.name)
            for scale in scales:
                gradient = Variable(self.gradients[target.name, scale], target.slots)
                self._down(expr, gradient, scale, target.name)

    def _read(self, reference: Variable, scale: str, value: Expr) -> None:
        if value != Number(0):
            self.readings.setdefault((reference.name, scale), []).append((reference.slots, value))

    def _named_softmaxes(self, expr: Expr, name: str) -> Expr:
        """The expression with a family in the place of each softmax through which a gradient goes."""

        def named(node: Expr) -> Expr | None:
            if not isinstance(node, Reduction) or node.removes or not self._handed_on(node):
                return None
            inner = Reduction(node.reducer, node.indices, self._named_softmaxes(node.arg, name))
            found = self.nonlin(f"softmax_{name}", inner)
            self.softmaxes[found.name] = tuple(free_indices(inner)), inner
            return found

        return rebuild(expr, named)

    def _handed_on(self, expr: Expr) -> list[tuple[str, tuple[str, ...]]]:
        """Families of the given program that an expression hands a gradient to, with its scales."""
        found: list[tuple[str, tuple[str, ...]]] = []
        for reference in variables(expr):
            if reference.name in self.softmaxes:
                found += self._handed_on(self.softmaxes[reference.name][1])
            elif reference.name in self.active:
                found.append((reference.name, self.scales.get(reference.name, ("",))))
        return found

    def _down(self, node: Expr, cotangent: Expr, scale: str, name: str) -> None:
        """Hand the cotangent of a subexpression of the statement that defines `name` on to the references in it.

        `scale` is empty as long as the cotangent is a vector; of a scalar it says which of its gradients this is.
        """
        handed = self._handed_on(node)
        if not handed or cotangent == Number(0):
            return
        if not scale and not self.width(node):
            for own in dict.fromkeys(s for _, scales in handed for s in scales):
                self._down(node, self._inner(cotangent, SCORE if own == SCORE else AVERAGE, name), own, name)
        elif scale and not any(scale in scales for _, scales in handed):
            return
        elif isinstance(node, Variable) and node.name in self.softmaxes:
            formal, softmax = self.softmaxes[node.name]
            actual = dict(zip(formal, node.slots, strict=True))
            over = [str(actual[index].bare) for index in softmax.indices]
            fresh = {index: Affine.index(self._new(index)) for index in over}
            product = times(node, cotangent)
            total = Reduction("sum", tuple(str(form.bare) for form in fresh.values()), substitute(product, fresh))
            inside = self._renamed(softmax.arg, actual)
            self._down(inside, times(node, Call("subtract", (cotangent, total))), scale, name)
        elif isinstance(node, Variable):
            self._read(node, scale, cotangent)
        elif isinstance(node, Reduction):
            opened = {index: Affine.index(self._new(index)) for index in node.indices}
            arg = substitute(node.arg, opened)
            if node.reducer == "mean":
                size = math.prod(self.own[index][1] - self.own[index][0] for index in node.indices)
                cotangent = divided(cotangent, Number(size))
            elif node.reducer == "max":
                cotangent = Call("where", (Call("equal", (arg, node)), cotangent, Number(0)))
            elif node.reducer == "logsumexp":
                cotangent = times(Call("exp", (Call("subtract", (arg, node)),)), cotangent)
            self._down(arg, cotangent, scale, name)
        else:
            assert isinstance(node, Call)
            for arg, part in zip(node.arguments, pulled_back(node, cotangent), strict=True):
                self._down(arg, part, scale, name)

    def _inner(self, cotangent: Expr, scale: Scale, name: str) -> Expr:
        """The sum over coordinates of a vector, as scalars times Dots."""
        if is_call(cotangent, "add", "subtract", "negative"):
            return simplified(Call(cotangent.atom, tuple(self._inner(p, scale, name) for p in cotangent.args)))
        if is_call(cotangent, "where") and cotangent.args[2] == Number(0) and not self.width(cotangent.args[0]):
            return Call("where", (cotangent.args[0], self._inner(cotangent.args[1], scale, name), Number(0)))
        parts = factors(cotangent, signs=True)
        numbers = [part for part in parts if not self.width(part)]
        vectors = [part for part in parts if self.width(part)]
        width = self.width(cotangent)
        gradients = set(self.gradients.values())
        last = next((p for p in reversed(vectors) if isinstance(p, Variable) and p.name in gradients), None)
        if last is not None:
            vectors.remove(last)
        others = times(*vectors) if vectors else self.ones(width)
        if not isinstance(others, Variable):
            others = self.nonlin(f"slope_{name}", others)
        found = self.dot(others, last if last is not None else self.ones(width), scale)
        factor = self.root(width, "n") if scale == AVERAGE else Number(1)
        return times(found, factor, *numbers)

    # -- gradients from readings -----------------------------------------------------------------------------------

    def _seeds(self) -> None:
        """The gradient of each output: a fresh Gaussian vector for each member, or 1 for an average."""
        for name in self.netsor.outputs:
            family = self.families[name]
            if family.kind == "scalar" and self.scales.get(name) != (AVERAGE,):
                raise fail(
                    f"the output {name} is {'a function of scores' if name in self.active else 'a number'}; gradients "
                    "are those of sum(xi . y) / sqrt(n), y a vector, and of averages",
                    fix="name vectors, or averages and functions of them, under outputs",
                )
            if name not in self.active:
                continue
            chosen: list[str] = []
            for span, slot in zip(family.ranges, self._defined(name)[0], strict=True):
                chosen.append(self.index(span, slot.bare or "", chosen))
            slots = slots_of([self._new(index) for index in chosen])
            if family.kind == "scalar":
                self._read(Variable(name, slots), AVERAGE, Number(1))
                continue
            seed = self.unique(f"xi_{name}")
            self.initial.append(Initial(seed, tuple(chosen), Number(0), Number(1), None, family.width))
            self.families[seed] = replace(family, name=seed)
            self._read(Variable(name, slots), "", Variable(seed, slots))

    def _defined(self, name: str) -> list[Slots]:
        """The left sides of a family's definitions: of statements, or of initial vectors."""
        targets = [s.target.slots for s in self.netsor.body if s.target.name == name]
        return targets or [slots_of(vector.indices) for vector in self.netsor.initial if vector.name == name]

    def _pieces(self, name: str, scale: str) -> None:
        """The statements of one gradient: one for each definition of the family, so that none depends on more."""
        gradient, family = self.gradients[name, scale], self.families[name]
        targets = self._defined(name)
        self.origin[gradient] = tuple(
            next((s.bare for s in place if s.bare), "") for place in zip(*targets, strict=True)
        )
        for slots in targets:
            found: Expr = Number(0)
            for reading in self.readings.get((name, scale), ()):
                part = self._inverted(name, reading, slots)
                found = part if found == Number(0) else simplified(Call("add", (found, part)))
            target = Variable(gradient, slots)
            if family.kind == "scalar" and not variables(found):  # a number for each network all the same
                nothing = Call("multiply", (Number(0), Variable(name, slots)))
                found = nothing if found == Number(0) else Call("add", (found, nothing))
            width = family.width if family.kind == "vector" and not variables(found) and family.width != "n" else ""
            names = {index: index for slot in slots for index in slot.indices}
            self.body.append(Nonlin(target, self.settled(found, names), width))

    def _inverted(self, name: str, reading: Handed, target: Slots) -> Expr:
        """What a reading hands to the members `target`: its value summed over all indices at which it reads them.

        Each slot is solved for one of the reading's indices; what cannot be solved stays as a condition.
        """
        ranges = self.ranges()
        (read, value), family = reading, self.families[name]
        solved: dict[str, Affine] = {}
        conditions: list[Expr] = []
        wrapped: set[str] = set()
        beyond: dict[str, Affine] = {}
        for form, wanted, rule, span in zip(read, target, family.boundaries, family.ranges, strict=True):
            low, high = form.bounds(ranges)
            first, last = wanted.bounds(ranges)
            around = rule == "wrap" and (low < span[0] or high >= span[1])
            if not around and (high < first or low > last):
                return Number(0)
            rest = form.at(solved) - wanted
            free = [index for index, factor in rest.terms if index in self.own and abs(factor) == 1]
            if around:  # the other end is at one value of an index that has this range
                free = [
                    index
                    for index in free
                    if self.own[index] == span and sum(index in form.indices for form in read) == 1
                ]
            if free:
                index = max(free, key=lambda index: self.own[index][1] - self.own[index][0])
                place = rest.solved(index)
                solved = {key: other.at({index: place}) for key, other in solved.items()} | {index: place}
                if around:
                    wrapped.add(index)
            elif rest.terms or rest.offset or around:
                size = span[1] - span[0] if around else 0
                shifts = range((low - last) // size, (high - first) // size + 1) if around else range(1)
                reads = form.at(solved)
                conditions.append(_joined("logical_or", [_equal(reads, wanted + k * size) for k in shifts]))
        for index, form in solved.items():
            low, high = form.bounds(ranges)
            if low < self.own[index][0] or high >= self.own[index][1]:
                beyond[index] = form
        occurring = dict.fromkeys([*free_indices(value), *(index for form in read for index in form.indices)])
        own = [index for index in occurring if index in self.own]
        if beyond and not self._reads_beyond(value, beyond, solved, wrapped):
            # a family with this value over all the indices can be read beyond their ranges
            value = self.nonlin(f"part_{name}", value, own)
            assert self._reads_beyond(value, beyond, solved, wrapped)
        rest_of = [index for index in own if index not in solved]
        value = substitute(value, solved)
        if conditions:
            value = Call("where", (_joined("logical_and", conditions), value, Number(0)))
        return Reduction("sum", tuple(rest_of), value) if rest_of else value

    def _reads_beyond(
        self, value: Expr, beyond: Mapping[str, Affine], solved: Mapping[str, Affine], wrapped: Collection[str]
    ) -> bool:
        """Whether the value may be read where indices leave their ranges; if so, its families are padded for that.

        It may, if a factor of it is a family over these indices, which then reads 0 or the other end, and nothing
        else in it leaves its range.
        """
        parts = [part for part in factors(value) if isinstance(part, Variable)]
        ranges = self.ranges()
        for factor in parts:
            places = {slot.bare: k for k, slot in enumerate(factor.slots)}
            if factor.name in self.netsor.families or not beyond.keys() <= places.keys():
                continue
            others = [
                node for node in walk(value) if node is not factor and not beyond.keys().isdisjoint(index_names(node))
            ]
            inside = all(isinstance(node, Variable) and self._inside(node, solved, ranges) for node in others)
            wanted = {places[index]: "wrap" if index in wrapped else "zero" for index in beyond}
            known = self.padded.get(factor.name, {})
            spans = self.families[factor.name].ranges
            alone = all(
                self._nothing_beyond(form, self.own[index], spans[places[index]], ranges)
                for index, form in beyond.items()
            )
            if inside and alone and all(known.get(place, rule) == rule for place, rule in wanted.items()):
                self.padded[factor.name] = known | wanted
                return True
        return False

    @staticmethod
    def _nothing_beyond(form: Affine, own: Range, span: Range, ranges: Mapping[str, Range]) -> bool:
        """Whether a family has no members where a form leaves the range of an index, by another definition."""
        low, high = form.bounds(ranges)
        return (low >= own[0] or own[0] == span[0]) and (high < own[1] or own[1] == span[1])

    def _inside(self, reference: Variable, solved: Mapping[str, Affine], ranges: Mapping[str, Range]) -> bool:
        for slot, span in zip(reference.slots, self.families[reference.name].ranges, strict=True):
            low, high = slot.at(solved).bounds(ranges)
            if low < span[0] or high >= span[1]:
                return False
        return True


def _named(reference: Variable, names: Mapping[str, str]) -> Variable:
    return reindexed(reference, {key: Affine.index(value) for key, value in names.items()})


def _equal(first: Affine, second: Affine) -> Expr:
    return Call("equal", tuple(map(affine_expr, (first, second) if first.terms else (second, first))))


def _joined(atom: str, conditions: Sequence[Expr]) -> Expr:
    return reduce(lambda first, second: Call(atom, (first, second)), conditions)

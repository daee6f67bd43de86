"""A program under rewriting: statements replaced, and new ones put before them under names of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from tensorprog.check.graph import Structure
from tensorprog.check.overlaps import crossed
from tensorprog.language.averages import unused
from tensorprog.language.expr import (
    MAX_NODES,
    Affine,
    Expr,
    Number,
    Reduction,
    Variable,
    bound_indices,
    free_indices,
    reindexed,
    replace_variables,
    slots_of,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import ConstantDef, Dot, Index, MatMul, Netsor, Nonlin, Range, Statement, Weight
from tensorprog.language.schedule import positions, schedule

MAX_TOTAL = 80_000  # nodes of all expressions together, as far as writing out makes them: a program is to fit a file


class Stuck(Exception):
    """An expression is not linear, or an index cannot be renamed: the statement stays as it is."""


@dataclass(frozen=True)
class Rewrite:
    """One exact rewrite; `where` and `line` speak of the program as it was written."""

    kind: str
    where: str
    line: int
    text: str
    standing: str = "exact at every n"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} ({self.standing})"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class Editor:
    """One valid program, and the changes that lead to the next one.

    `origin` says what in the first program each statement comes from.  Steps enter what they change in `changed` (by
    position), what they declare in `weights` and `constants`, and in `initials` the weights that stand for initial
    families.
    """

    def __init__(self, netsor: Netsor, origin: Sequence[str]) -> None:
        self.netsor, self.origin = netsor, tuple(origin)
        self.structure = Structure.of(netsor)
        self.changed: dict[int, Statement] = {}
        self.constants: list[ConstantDef] = []
        self.weights: list[Weight] = []
        self.initials: dict[str, str] = {}
        self._indices: dict[str, Index] = dict(netsor.index)
        self._taken = netsor.taken
        self._before: dict[int, list[tuple[Statement, str]]] = {}
        self._made: dict[tuple[object, ...], Variable] = {}

    # -- what the program says --------------------------------------------------------------------------------------

    def vector(self, expr: Expr) -> bool:
        """Whether a vector occurs in an expression."""
        return any(self.netsor.families[v.name].kind == "vector" for v in variables(expr))

    def scored(self, expr: Expr) -> bool:
        """Whether an expression depends on a score."""
        families = [self.netsor.families[v.name] for v in variables(expr)]
        return any(not self.structure.score_dependent.isdisjoint(f.statements) for f in families)

    def beyond(self, reference: Variable) -> bool:
        """Whether a reference reads beyond a boundary."""
        return bool(crossed(self.netsor, reference, self._ranges))

    @property
    def _ranges(self) -> dict[str, Range]:
        return {name: (index.start, index.stop) for name, index in self._indices.items()}

    def instance(self, nonlin: Nonlin, reference: Variable, taken: Collection[str]) -> Expr:
        """What a reference to a Nonlin stands for; indices bound in it differ from those taken where it is to stand.

        Raises    Stuck if that cannot be written
        """
        pairs = zip(nonlin.target.slots, reference.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        if self.beyond(reference):
            raise Stuck
        return self._instantiated(nonlin.expr, values, taken)

    def _instantiated(self, expr: Expr, values: Mapping[str, Affine], taken: Collection[str]) -> Expr:
        """An expression at values of its indices; indices bound in it that are `taken` get fresh names.

        Raises    Stuck if a softmax would have to be read at something else than an index of its own
        """
        kept = ((n, name) for n in walk(expr) if isinstance(n, Reduction) and not n.removes for name in n.indices)
        for node, name in (entry for entry in kept if entry[1] in values):
            new = values[name].bare
            others = [values[other] for other in free_indices(node) if other != name and other in values]
            if new is None or not self.alike(name, new) or any(new in other.indices for other in others):
                raise Stuck
        bound = bound_indices(expr) - values.keys()
        names = {name: Affine(((self.copy_index(name), 1),)) for name in sorted(bound.intersection(taken))}
        return substitute(expr, {**values, **names}, along=True)

    def written_out(self, position: int, statement: Nonlin, wanted: Collection[Variable]) -> Expr:
        """The expression of a Nonlin with the Nonlins that it reads written out, unless it would grow too long."""
        nodes = list(walk(statement.expr))
        taken = bound_indices(statement.expr) | {name for slot in statement.target.slots for name in slot.indices}
        read: dict[Variable, Nonlin] = {}
        for v in wanted:
            nonlin = self.structure.definition(position, v)
            if nonlin is not None and self.vector(nonlin.expr) == self.vector(v):  # its expression alone shows which
                latest = self.changed.get(self.structure.definers(position, v)[0], nonlin)
                assert isinstance(latest, Nonlin)
                read[v] = latest
        added = sum(len(list(walk(read[node].expr))) for node in nodes if isinstance(node, Variable) and node in read)
        if len(nodes) + added > min(MAX_NODES, MAX_TOTAL // len(self.netsor.body)):
            return statement.expr

        def instance(reference: Variable) -> Expr | None:
            try:
                return self.instance(read[reference], reference, taken) if reference in read else None
            except Stuck:
                return None

        return replace_variables(statement.expr, instance)

    def apart(self, expr: Expr, taken: Collection[str]) -> Expr:
        """An expression whose bound indices differ from those taken where it is to stand."""
        return self._instantiated(expr, {name: Affine.index(name) for name in free_indices(expr)}, taken)

    def alike(self, first: str, second: str) -> bool:
        """Whether two indices run over the same values."""
        one, two = self._indices[first], self._indices[second]
        return (one.start, one.stop) == (two.start, two.stop)

    # -- what it is to say ------------------------------------------------------------------------------------------

    def name(self, wanted: str) -> str:
        """A name that nothing has yet."""
        return unused(wanted, self._taken)

    def size_of(self, index: str) -> int:
        """Number of values of an index."""
        return self._indices[index].stop - self._indices[index].start

    def copy_index(self, name: str) -> str:
        """A new index with the range of another."""
        new = self.name(name)
        self._indices[new] = replace(self._indices[name], name=new)
        return new

    def family(self, wanted: str, *read: Expr) -> Variable:
        """The left side of a new family, over the indices that some expressions read and do not reduce."""
        names = dict.fromkeys(name for expr in read for name in free_indices(expr))
        return Variable(self.name(wanted), slots_of(tuple(names)))

    def add(self, position: int, statement: Statement, origin: str = "") -> Variable:
        """Put a new statement before another (-1: before all); returns its left side.

        `origin` is what it comes from in the first program, by default what the other comes from.
        """
        self._before.setdefault(position, []).append((statement, origin or self.origin[position]))
        return statement.target

    def once(self, key: tuple[object, ...], position: int, make: Callable[[], Statement], origin: str = "") -> Variable:
        """The left side of the new statement known by a key, which the first call makes and puts before another."""
        if key not in self._made:
            self._made[key] = self.add(position, make(), origin)
        return self._made[key]

    def image(self, statement: MatMul | Dot, position: int, wanted: str, *read: Expr, origin: str = "") -> Variable:
        """A product without a left side as the program has it, or new, named as wanted and put before another."""
        known = self._known(statement) if isinstance(statement, MatMul) else None
        if known is not None:
            return known
        key = "image", statement
        return self.once(key, position, lambda: replace(statement, target=self.family(wanted, *read)), origin)

    def _known(self, wanted: MatMul) -> Variable | None:
        """What the program has made by a product already."""
        ranges, parts = self._ranges, (wanted.weight, wanted.vector)
        for s in self.netsor.body:
            if not isinstance(s, MatMul) or (s.weight.name, s.vector.name) != tuple(part.name for part in parts):
                continue
            slots = (zip(own.slots, part.slots, strict=True) for own, part in zip(s.references, parts, strict=True))
            values = {own.bare: slot for own, slot in chain(*slots) if own.bare}
            within = (
                slot.bare in values and self._inside(values[slot.bare], ranges[slot.bare]) for slot in s.target.slots
            )
            weight, vector = (reindexed(own, values) for own in s.references)
            if replace(s, target=wanted.target, weight=weight, vector=vector) == wanted and all(within):
                return reindexed(s.target, values)
        return None

    def _inside(self, slot: Affine, span: Range) -> bool:
        low, high = slot.bounds(self._ranges)
        return span[0] <= low and high < span[1]

    def becomes(self, kind: str, position: int, expr: Expr, width: str = "") -> Rewrite:
        """Put a Nonlin in the place of a statement."""
        old = self.netsor.body[position]
        new = Nonlin(old.target, expr, width, old.span)
        self.changed[position] = new
        return Rewrite(kind, self.origin[position], old.span.line, f"{old} becomes {new}")

    def ones(self, position: int, width: str, origin: str = "") -> Variable:
        """The constant vector 1 of a width: one of the program's own, if it has any."""
        own = (s.target for s in self.netsor.body if isinstance(s, Nonlin) and s.expr == Number(1))
        found = next((v for v in own if not v.slots and self.netsor.families[v.name].width == width), None)
        if found is not None:
            return found
        return self.once(
            ("ones", width), position, lambda: Nonlin(Variable(self.name("ones")), Number(1), width), origin
        )

    def reference(self, vector: Expr, position: int, width: str, whole: str) -> Variable:
        """A reference to a vector: the expression itself, or a new Nonlin that is it, a part of the family `whole`."""
        if isinstance(vector, Variable):
            return vector
        if vector == Number(1):
            return self.ones(position, width)
        span = self.netsor.body[position].span
        return self.once(
            ("vector", vector), position, lambda: Nonlin(self.family(f"{whole}_x", vector), vector, "", span)
        )

    @property
    def size(self) -> int:
        """Number of statements of the next program."""
        return len(self.netsor.body) + sum(map(len, self._before.values()))

    def result(self) -> tuple[Netsor, tuple[str, ...]]:
        """The next program, and what in the first program each of its statements comes from."""
        entries = list(self._before.get(-1, ()))
        for position, statement in enumerate(self.netsor.body):
            entries += self._before.get(position, ())
            entries.append((self.changed.get(position, statement), self.origin[position]))
        loops, disordered = schedule([statement for statement, _ in entries], self._ranges, self.netsor.boundaries)
        order = [*positions(loops)] if disordered else range(len(entries))
        made = replace(
            self.netsor,
            body=tuple(entries[position][0] for position in order),
            indices=tuple(self._indices.values()),
            initial=tuple(v for v in self.netsor.initial if v.name not in self.initials.values()),
            constants=(*self.netsor.constants, *self.constants),
            weights=(*self.netsor.weights, *self.weights),
        )
        return made, tuple(entries[position][1] for position in order)

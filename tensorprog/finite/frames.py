"""Vectors needed only through inner products: coordinates in a frame of few orthonormal directions instead of n.

Products of Gaussian weights are invariant under rotations of R^n, so a vector that later statements read only through
inner products and linear combinations may be given by its coordinates in an orthonormal frame that grows with the
vectors: a fresh Gaussian vector has i.i.d. normal coordinates along the directions there are, and what is left of it
is a chi variable times a new direction (Bartlett's decomposition of a Wishart matrix; no direction is left once n are
there, so singular Wishart matrices are no special case).  The reported coordinates, if needed as well, stand in front
and the frame lies in the rest, R^(n-c).  Inner products and linear combinations of such coordinates are those of
the vectors themselves, so everything else in the interpreter works on them unchanged.

A vector needs coordinates only along directions opened by vectors that it meets, and opens directions only if
a later vector, or another of its own family, meets it.  `Meetings` works this out on families: a meeting of f and g
is a set of pairs (slot of f, slot of g) whose values agree whenever members of f and g meet.  Slots on which all
members of a family agree when they meet each other are batch axes of its directions: heads that never meet keep
separate frames.  Closing the meetings under "two vectors that meet a later one meet" is the elimination game of sparse
Cholesky factorisation (Rose 1970), played on families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorprog.finite.demand import has_constant, vectors_of
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.initials import InitialLaw
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping

__all__ = ["Frames", "Layout", "Recipe"]

ONES = "1"  # stands for the constant vector, whose direction is known
Pairs = frozenset[tuple[int, int]]
NOTHING: Pairs = frozenset()


@dataclass(frozen=True)
class Recipe:
    """How fresh Gaussian vectors are drawn: `length` numbers each.

    The first `seen` are coordinates of the vector, normals; `along` are ranges of directions that earlier vectors
    opened, normals; `own` is the range of directions these vectors open together, separately for each value of the
    indices `batch`: a triangle of normals with chi variables of `degrees`, degrees - 1, .. on its diagonal.
    """

    length: int
    seen: int
    along: tuple[tuple[int, int], ...] = ()
    own: tuple[int, int] = (0, 0)
    degrees: int = 0
    batch: tuple[str, ...] = ()

    @property
    def opened(self) -> int:
        """Number of directions opened."""
        return self.own[1] - self.own[0]

    @property
    def normal_ranges(self) -> list[tuple[int, int]]:
        """Ranges of plain normals, adjacent ones joined."""
        ranges = [(0, 0)]
        for start, stop in ((0, self.seen), *self.along):
            if ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], stop)
            elif stop > start:
                ranges.append((start, stop))
        return [(start, stop) for start, stop in ranges if stop > start]

    @property
    def normals(self) -> int:
        """Number of plain normals in a vector."""
        return self.seen + sum(stop - start for start, stop in self.along)

    @property
    def plain(self) -> bool:
        """Whether all numbers are independent normals."""
        return self.normals == self.length

    def counts(self, members: int, rows: int) -> tuple[int, int]:
        """Normals and chi variables for so many values of the batch indices, with so many vectors each."""
        k = self.opened
        triangle = k * (k - 1) // 2 + (rows - k) * k if k else 0
        return members * (rows * self.normals + triangle), members * k


@dataclass(frozen=True)
class Layout:
    """The coordinates of one group of vectors that meet: their number, and how its members are drawn.

    `recipes` is keyed by initial family or by position in the order of steps; `ones` is the place of the
    direction of the constant vector, None where it is not needed.
    """

    length: int
    seen: int
    ones: int | None
    recipes: Mapping[str | int, Recipe]


class Meetings:
    """Which families of one group meet, and on which slots they agree when they do.

    `parts` gives the vectors that a family is made of, with pairs (slot of the part, slot of the family).
    """

    def __init__(self, parts: Mapping[str, Sequence[tuple[str, Pairs]]]) -> None:
        self.parts = parts
        self.pairs: dict[tuple[str, str], Pairs] = {}
        self._fresh: list[tuple[str, str]] = []

    def add(self, first: str, second: str, pairs: Pairs) -> None:
        """Members may meet where these slots agree; several ways to meet leave what all agree on."""
        if first == second:
            pairs &= _flip(pairs)
        old = self.pairs.get((first, second))
        new = pairs if old is None else old & pairs
        if new != old:
            self.pairs[first, second] = new
            self.pairs[second, first] = _flip(new)
            self._fresh += [(first, second), (second, first)]

    def _add_composed(self, first: str, second: str, agree: Pairs, further: Pairs) -> None:
        known = self.pairs.get((first, second))
        if known is None or known:  # else they agree on nothing already
            self.add(first, second, frozenset((a, c) for a, b in agree for b_, c in further if b == b_))

    def _spread(self) -> None:
        """Vectors meet whatever the vectors they are made of meet."""
        while self._fresh:
            first, second = self._fresh.pop()
            pairs = self.pairs[first, second]
            for part, agree in self.parts.get(first, ()):
                self._add_composed(part, second, agree, pairs)

    def _eliminate(self, nodes: Sequence[Sequence[str]]) -> None:
        """Vectors that meet a later one meet, and a vector meets whatever the vectors before it that it meets do."""
        order = [name for names in nodes for name in names]
        rank = {name: place for place, names in enumerate(nodes) for name in names}
        for h in reversed(order):
            before = [g for g in order if rank[g] <= rank[h] and (g, h) in self.pairs]
            for k, first in enumerate(before):
                for second in before[k:]:
                    self._add_composed(first, second, self.pairs[first, h], self.pairs[h, second])
        for h in order:
            for g in [g for g in order if rank[g] < rank[h] and (g, h) in self.pairs]:
                for f in [f for f in order if rank[f] < rank[g] and (f, g) in self.pairs]:
                    self._add_composed(f, h, self.pairs[f, g], self.pairs[g, h])

    def close(self, nodes: Sequence[Sequence[str]] = ()) -> None:
        """Apply both rules, to families drawn in the order of `nodes`, until nothing changes."""
        self._spread()
        before = None
        while nodes and before != self.pairs:
            before = dict(self.pairs)
            self._eliminate(nodes)
            self._spread()


def _flip(pairs: Pairs) -> Pairs:
    return frozenset((second, first) for first, second in pairs)


def _agree(first: Sequence[Affine], second: Sequence[Affine]) -> Pairs:
    """Pairs of slots that hold the same form: one value for both whenever one statement refers to both."""
    return frozenset((k, m) for k, f in enumerate(first) for m, g in enumerate(second) if f == g)


@dataclass(frozen=True)
class PlacedMatMul:
    """A MatMul in the order of a plan: its first and last step, and the weight slot that each of its slots chooses."""

    statement: MatMul
    first: int
    last: int
    tied: Mapping[int, int]


def _within(reference: Variable, netsor: Netsor) -> bool:
    """Whether a reference stays inside the family's range without help of a boundary rule."""
    bounds = (slot.bounds(netsor.ranges) for slot in reference.slots)
    ranges = netsor.families[reference.name].ranges
    return all(start <= low and high < stop for (low, high), (start, stop) in zip(bounds, ranges, strict=True))


def _chosen(statement: MatMul) -> dict[str | None, int]:
    """The weight slot that each index of a MatMul chooses alone."""
    return {slot.bare: m for m, slot in enumerate(statement.weight.slots) if slot.bare}


class Frames:
    """The frames of a program whose steps are in this order, with the groupings of those that are MatMuls."""

    def __init__(
        self, netsor: Netsor, order: Sequence[Step], groups: Sequence[Grouping | None],
        initials: Mapping[str, InitialLaw],
    ) -> None:  # fmt: skip
        self.netsor, self.initials, self.vectors = netsor, initials, vectors_of(netsor)
        self.steps = [(at, order[at], group) for at, group in enumerate(groups) if group is not None]
        of_weight: dict[str, list[Grouping]] = {}
        places: dict[int, list[int]] = {}  # of each statement
        for at, step, group in self.steps:
            of_weight.setdefault(group.weight.name, []).append(group)
            places.setdefault(step.position, []).append(at)
        self.products = []
        for own in places.values():
            statement = order[own[0]].statement
            assert isinstance(statement, MatMul)
            same = of_weight[statement.weight.name]
            aligned = all(g.separable and list(g.members) == list(same[0].members) for g in same)
            chosen = _chosen(statement) if aligned else {}
            tied = {k: chosen[slot.bare] for k, slot in enumerate(statement.target.slots) if slot.bare in chosen}
            self.products.append(PlacedMatMul(statement, own[0], own[-1], tied))

    def layout(self, names: Sequence[str], seen: int, width: int, rows: Mapping[int, int]) -> Layout:
        """Coordinates and recipes of one group of vectors in R^width, none of which a nonlinearity makes.

        `rows` gives the fresh vectors per weight member of each MatMul step.
        """
        meetings = Meetings(self._parts(names))
        self._meet_in_statements(names, meetings)
        meetings.close()  # who needs the constant vector?
        nodes = self._nodes(names, meetings)
        meetings.close(nodes)
        for node in nodes:
            if len(node) > 1 and any((f, g) in meetings.pairs for f in node for g in node):
                for f in node:
                    for g in node:
                        meetings.add(f, g, NOTHING)
        meetings.close(nodes)
        return self._placed(nodes, meetings, seen, width, rows)

    def _parts(self, names: Sequence[str]) -> dict[str, list[tuple[str, Pairs]]]:
        """What every family of a group is made of: combinations of vectors, and products of the same weight."""
        parts: dict[str, list[tuple[str, Pairs]]] = {name: [] for name in names}
        for name in names:
            for position in self.netsor.families[name].statements:
                statement = self.netsor.body[position]
                if not isinstance(statement, Nonlin):
                    continue
                for reference in statement.inputs:
                    if reference.name in self.vectors:
                        agree = _agree(reference.slots, statement.target.slots)
                        parts[name].append((reference.name, agree if _within(reference, self.netsor) else NOTHING))
                if has_constant(statement.expr, self.vectors):
                    parts[name].append((ONES, NOTHING))
        for p in self.products:
            for q in self.products:
                same = p.statement.weight.name == q.statement.weight.name
                if same and p.statement.target.name in parts and q.first <= p.last:
                    agree = frozenset((n, k) for k, m in p.tied.items() for n, m_ in q.tied.items() if m == m_)
                    parts[p.statement.target.name].append((q.statement.target.name, agree))
        for initial in self.netsor.initial:
            if initial.name in parts:
                law = self.initials[initial.name]
                places = [initial.indices.index(name) for name in law.independent]
                parts[initial.name].append((initial.name, frozenset((k, k) for k in places)))
                if law.mean.any():
                    parts[initial.name].append((ONES, NOTHING))
        return parts

    def _meet_in_statements(self, names: Sequence[str], meetings: Meetings) -> None:
        of_weight: dict[str, list[MatMul]] = {}
        for statement in self.netsor.body:
            if isinstance(statement, MatMul) and statement.vector.name in names:
                of_weight.setdefault(statement.weight.name, []).append(statement)
            elif isinstance(statement, Dot) and statement.left.name in names:
                left, right = statement.left, statement.right
                plain = _within(left, self.netsor) and _within(right, self.netsor)
                meetings.add(left.name, right.name, _agree(left.slots, right.slots) if plain else NOTHING)
        for own in of_weight.values():
            for s, t in ((s, t) for s in own for t in own):
                agree: Pairs = NOTHING
                if all(_within(v, self.netsor) for v in (s.weight, t.weight, s.vector, t.vector)):
                    first, second = _chosen(s), _chosen(t)
                    agree = frozenset(
                        (k, m)
                        for k, f in enumerate(s.vector.slots)
                        for m, g in enumerate(t.vector.slots)
                        if f.bare in first and g.bare in second and first[f.bare] == second[g.bare]
                    )
                meetings.add(s.vector.name, t.vector.name, agree)

    def _nodes(self, names: Sequence[str], meetings: Meetings) -> list[list[str]]:
        """Families in the order of drawing: the constant vector, initial vectors, MatMuls; one node if in turns."""
        spans: dict[str, tuple[int, int]] = {}
        before = -len(self.netsor.initial)
        if any((ONES, name) in meetings.pairs for name in names):
            spans[ONES] = (before - 1, before - 1)
            meetings.add(ONES, ONES, NOTHING)
        for number, initial in enumerate(self.netsor.initial):
            if initial.name in names:
                spans[initial.name] = (before + number, before + number)
        for p in self.products:
            name = p.statement.target.name
            if name in names:
                first, last = spans.get(name, (p.first, p.last))
                spans[name] = (min(first, p.first), max(last, p.last))
        nodes: list[list[str]] = []
        end = before - 2
        for name in sorted(spans, key=lambda name: spans[name]):
            if spans[name][0] <= end:
                nodes[-1].append(name)
            else:
                nodes.append([name])
            end = max(end, spans[name][1])
        return nodes

    def _placed(
        self, nodes: Sequence[Sequence[str]], meetings: Meetings, seen: int, width: int, rows: Mapping[int, int]
    ) -> Layout:
        """Ranges of directions for the vectors of each node, after those of the nodes that it meets."""
        opened: list[list[tuple[int, int]]] = []  # ranges of directions, by node
        recipes: dict[str | int, Recipe] = {}
        ones: int | None = None

        def recipe(known: Sequence[tuple[int, int]], vectors: int, opens: bool, batch: tuple[str, ...] = ()) -> Recipe:
            degrees = width - seen - sum(stop - start for start, stop in known)
            free = max((stop for _, stop in known), default=seen)
            own = (free, free + (min(vectors, degrees) if opens else 0))
            if own[1] > own[0]:
                opened[-1].append(own)
            return Recipe(0, seen, tuple(known), own, degrees, batch)

        for names in nodes:
            earlier = [
                span
                for other, spans in zip(nodes, opened, strict=False)
                if any((f, g) in meetings.pairs for f in other for g in names)
                for span in spans
            ]
            opened.append([])
            opens = any((f, g) in meetings.pairs for f in names for g in names)
            if names[0] == ONES:
                constant = recipe([], 1, True)
                ones = constant.own[0] if constant.opened else None
                continue
            for initial in (initial for initial in self.netsor.initial if initial.name in names):
                agree = meetings.pairs.get((initial.name, initial.name), ())
                shape = self.netsor.families[initial.name].shape
                vectors = math.prod(size for k, size in enumerate(shape) if (k, k) not in agree)
                batch = tuple(index for k, index in enumerate(initial.indices) if (k, k) in agree)
                recipes[initial.name] = recipe(earlier, vectors, opens, batch)
            for at, step, group in self.steps:
                name = step.statement.target.name
                if name in names:
                    agree = meetings.pairs.get((name, name), ())
                    slots = [slot.bare for k, slot in enumerate(step.statement.target.slots) if (k, k) in agree]
                    batch = tuple(index for index in slots if index)
                    vectors = len(group.members) // math.prod(group.sizes[index] for index in batch) * rows[at]
                    recipes[at] = recipe([*earlier, *opened[-1]], vectors, opens, batch)
        length = max((stop for spans in opened for _, stop in spans), default=seen)
        return Layout(length, seen, ones, {key: replace(entry, length=length) for key, entry in recipes.items()})

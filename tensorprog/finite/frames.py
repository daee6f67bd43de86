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
from dataclasses import dataclass

from tensorprog.finite.demand import Form, form_of, vectors_of
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.initials import InitialLaw
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import Step
from tensorprog.language.weight_members import Grouping

__all__ = ["Draw", "Layout", "PlacedMatMul", "layout", "products_of"]

ONES = "1"  # stands for the constant vector, whose direction is known
Pairs = frozenset[tuple[int, int]]
NOTHING: Pairs = frozenset()


@dataclass(frozen=True)
class Draw:
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
    def plain(self) -> bool:
        """Whether all numbers are independent normals."""
        return self.seen + sum(stop - start for start, stop in self.along) == self.length

    def counts(self, members: int, rows: int) -> tuple[int, int]:
        """Normals and chi variables for so many values of the batch indices, with so many vectors each."""
        k = self.opened
        triangle = k * (k - 1) // 2 + (rows - k) * k if k else 0
        normals = rows * (self.seen + sum(stop - start for start, stop in self.along)) + triangle
        return members * normals, members * k


@dataclass(frozen=True)
class Layout:
    """The coordinates of one group of vectors that meet: their number, and the draws of its members.

    `draws` is keyed by initial family or by position in the order of steps; `ones` is the place of the
    direction of the constant vector, None where it is not needed.
    """

    length: int
    seen: int
    ones: int | None
    draws: Mapping[str | int, Draw]


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

    def _add_composed(self, first: str, middle: str, second: str) -> None:
        known = self.pairs.get((first, second))
        if known is None or known:  # else they agree on nothing already
            self.add(first, second, _compose(self.pairs[first, middle], self.pairs[middle, second]))

    def _spread(self) -> None:
        """Vectors meet whatever the vectors they are made of meet."""
        while self._fresh:
            first, second = self._fresh.pop()
            pairs = self.pairs[first, second]
            for part, agree in self.parts.get(first, ()):
                known = self.pairs.get((part, second))
                if known is None or known:
                    self.add(part, second, _compose(agree, pairs))

    def _eliminate(self, nodes: Sequence[Sequence[str]]) -> None:
        """Vectors that meet a later one meet, and a vector meets whatever the vectors before it that it meets do."""
        order = [name for names in nodes for name in names]
        rank = {name: place for place, names in enumerate(nodes) for name in names}
        for h in reversed(order):
            before = [g for g in order if rank[g] <= rank[h] and (g, h) in self.pairs]
            for k, first in enumerate(before):
                for second in before[k:]:
                    self._add_composed(first, h, second)
        for h in order:
            for g in [g for g in order if rank[g] < rank[h] and (g, h) in self.pairs]:
                for f in [f for f in order if rank[f] < rank[g] and (f, g) in self.pairs]:
                    self._add_composed(f, g, h)

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


def _compose(first: Pairs, second: Pairs) -> Pairs:
    if not first or not second:
        return NOTHING
    return frozenset((a, c) for a, b in first for b_, c in second if b == b_)


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
    family = netsor.families[reference.name]
    for slot, (start, stop) in zip(reference.slots, family.ranges, strict=True):
        low, high = slot.bounds(netsor.ranges)
        if low < start or high >= stop:
            return False
    return True


def _chosen(statement: MatMul) -> dict[str | None, int]:
    """The weight slot that each index of a MatMul chooses alone."""
    return {slot.bare: m for m, slot in enumerate(statement.weight.slots) if slot.bare}


def products_of(netsor: Netsor, order: Sequence[Step], groups: Sequence[Grouping | None]) -> list[PlacedMatMul]:
    """All MatMul statements that have steps."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    of_weight: dict[str, list[Grouping]] = {}
    for place, (step, group) in enumerate(zip(order, groups, strict=True)):
        first.setdefault(step.position, place)
        last[step.position] = place
        if group is not None:
            of_weight.setdefault(group.weight.name, []).append(group)
    result = []
    for position in first:
        statement = netsor.body[position]
        if not isinstance(statement, MatMul):
            continue
        own = of_weight[statement.weight.name]
        aligned = all(g.separable and list(g.members) == list(own[0].members) for g in own)
        tied = {}
        if aligned:
            chosen = _chosen(statement)
            tied = {k: chosen[slot.bare] for k, slot in enumerate(statement.target.slots) if slot.bare in chosen}
        result.append(PlacedMatMul(statement, first[position], last[position], tied))
    return result


def _parts(
    netsor: Netsor, names: Sequence[str], products: Sequence[PlacedMatMul], initials: Mapping[str, InitialLaw]
) -> dict[str, list[tuple[str, Pairs]]]:
    """What every family of a group is made of: combinations of vectors, and products of the same weight."""
    vectors = vectors_of(netsor)
    parts: dict[str, list[tuple[str, Pairs]]] = {name: [] for name in names}
    for name in names:
        for position in netsor.families[name].statements:
            statement = netsor.body[position]
            if not isinstance(statement, Nonlin):
                continue
            for reference in statement.inputs:
                if reference.name in vectors:
                    agree = _agree(reference.slots, statement.target.slots)
                    parts[name].append((reference.name, agree if _within(reference, netsor) else NOTHING))
            if form_of(statement.expr, vectors) in (Form.CONSTANT, Form.AFFINE):
                parts[name].append((ONES, NOTHING))
    of_weight: dict[str, list[PlacedMatMul]] = {}
    for product in products:
        if product.statement.target.name in parts:
            of_weight.setdefault(product.statement.weight.name, []).append(product)
    for own in of_weight.values():
        for p in own:
            for q in own:
                if q.first <= p.last:
                    agree = frozenset((n, k) for k, m in p.tied.items() for n, m_ in q.tied.items() if m == m_)
                    parts[p.statement.target.name].append((q.statement.target.name, agree))
    for initial in netsor.initial:
        if initial.name in parts:
            law = initials[initial.name]
            places = [initial.indices.index(name) for name in law.independent]
            parts[initial.name].append((initial.name, frozenset((k, k) for k in places)))
            if law.mean.any():
                parts[initial.name].append((ONES, NOTHING))
    return parts


def _meet_in_statements(netsor: Netsor, names: Sequence[str], meetings: Meetings) -> None:
    of_weight: dict[str, list[MatMul]] = {}
    for statement in netsor.body:
        if isinstance(statement, MatMul) and statement.vector.name in names:
            of_weight.setdefault(statement.weight.name, []).append(statement)
        elif isinstance(statement, Dot) and statement.left.name in names:
            left, right = statement.left, statement.right
            plain = _within(left, netsor) and _within(right, netsor)
            meetings.add(left.name, right.name, _agree(left.slots, right.slots) if plain else NOTHING)
    for own in of_weight.values():
        for s, t in ((s, t) for s in own for t in own):
            agree: Pairs = NOTHING
            if all(_within(v, netsor) for v in (s.weight, t.weight, s.vector, t.vector)):
                first, second = _chosen(s), _chosen(t)
                agree = frozenset(
                    (k, m)
                    for k, f in enumerate(s.vector.slots)
                    for m, g in enumerate(t.vector.slots)
                    if f.bare in first and g.bare in second and first[f.bare] == second[g.bare]
                )
            meetings.add(s.vector.name, t.vector.name, agree)


def layout(
    netsor: Netsor,
    names: Sequence[str],
    seen: int,
    width: int,
    order: Sequence[Step],
    groups: Sequence[Grouping | None],
    products: Sequence[PlacedMatMul],
    rows: Mapping[int, int],
    initials: Mapping[str, InitialLaw],
) -> Layout:
    """Coordinates and draws of one group of vectors in R^width, none of which a nonlinearity makes.

    `rows` gives the fresh vectors per weight member of each MatMul step.
    """
    parts = _parts(netsor, names, products, initials)
    meetings = Meetings(parts)
    _meet_in_statements(netsor, names, meetings)
    meetings.close()  # who needs the constant vector?
    mine = [p for p in products if p.statement.target.name in names]
    # families in the order of drawing: the constant vector, initial vectors, MatMuls
    spans: dict[str, tuple[int, int]] = {}
    if any((ONES, name) in meetings.pairs for name in names):
        spans[ONES] = (-2 - len(netsor.initial), -2 - len(netsor.initial))
        meetings.add(ONES, ONES, NOTHING)
    for number, initial in enumerate(netsor.initial):
        if initial.name in names:
            spans[initial.name] = (number - len(netsor.initial), number - len(netsor.initial))
    for p in mine:
        name = p.statement.target.name
        first, last = spans.get(name, (p.first, p.last))
        spans[name] = (min(first, p.first), max(last, p.last))
    # those drawn in turns make one node
    nodes: list[list[str]] = []
    end: int | None = None
    for name in sorted(spans, key=lambda name: spans[name]):
        if end is not None and spans[name][0] <= end:
            nodes[-1].append(name)
            end = max(end, spans[name][1])
        else:
            nodes.append([name])
            end = spans[name][1]
    meetings.close(nodes)
    for node in nodes:
        if len(node) > 1 and any((f, g) in meetings.pairs for f in node for g in node):
            for f in node:
                for g in node:
                    meetings.add(f, g, NOTHING)
    meetings.close(nodes)
    return _place(netsor, nodes, meetings, mine, seen, width, order, groups, rows, initials)


def _place(
    netsor: Netsor,
    nodes: Sequence[Sequence[str]],
    meetings: Meetings,
    mine: Sequence[PlacedMatMul],
    seen: int,
    width: int,
    order: Sequence[Step],
    groups: Sequence[Grouping | None],
    rows: Mapping[int, int],
    initials: Mapping[str, InitialLaw],
) -> Layout:
    length, rest = seen, width - seen
    opened: dict[int, list[tuple[int, int]]] = {}  # ranges of directions, by node
    drafts: dict[str | int, tuple[list[tuple[int, int]], tuple[int, int], int, tuple[str, ...]]] = {}
    ones: int | None = None

    def open_(node: int, known: list[tuple[int, int]], vectors: int, opens: bool) -> tuple[tuple[int, int], int]:
        nonlocal length
        degrees = rest - sum(stop - start for start, stop in known)
        free = max((stop for _, stop in known), default=seen)
        own = (free, free + (min(vectors, degrees) if opens else 0))
        length = max(length, own[1])
        if own[1] > own[0]:
            opened[node].append(own)
        return own, degrees

    for node, names in enumerate(nodes):
        opened[node] = []
        earlier = [
            span
            for other in range(node)
            if any((f, g) in meetings.pairs for f in nodes[other] for g in names)
            for span in opened[other]
        ]
        opens = any((f, g) in meetings.pairs for f in names for g in names)
        if names[0] == ONES:
            own, _ = open_(node, [], 1, True)
            ones = own[0] if own[1] > own[0] else None
            continue
        if names[0] in initials:
            slots = netsor.families[names[0]].shape
            batch = [k for k, m in sorted(meetings.pairs.get((names[0], names[0]), ())) if k == m]
            indices = next(i.indices for i in netsor.initial if i.name == names[0])
            vectors = math.prod(size for k, size in enumerate(slots) if k not in batch)
            own, degrees = open_(node, earlier, vectors, opens)
            drafts[names[0]] = (earlier, own, degrees, tuple(indices[k] for k in batch))
            continue
        positions = {id(p.statement): p for p in mine if p.statement.target.name in names}
        for at, step in enumerate(order):
            group = groups[at]
            if id(step.statement) not in positions or group is None:
                continue
            name = step.statement.target.name
            slots_ = step.statement.target.slots
            batched = [slots_[k].bare for k, m in sorted(meetings.pairs.get((name, name), ())) if k == m]
            sizes = {index: stop - start for index, (start, stop) in group.ranges.items()}
            separate = math.prod(sizes[index] for index in batched if index)
            vectors = len(group.members) // separate * rows[at]
            known = [*earlier, *opened[node]]
            own, degrees = open_(node, known, vectors, opens)
            drafts[at] = (known, own, degrees, tuple(index for index in batched if index))
    draws = {
        key: Draw(length, seen, tuple(known), own, degrees, batch)
        for key, (known, own, degrees, batch) in drafts.items()
    }
    return Layout(length, seen, ones, draws)

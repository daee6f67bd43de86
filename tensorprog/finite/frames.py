"""Vectors needed only through inner products: coordinates in a frame of few orthonormal directions instead of n.

Products of Gaussian weights are invariant under rotations of R^n, so a vector that later statements read only through
inner products and linear combinations may be given by its coordinates in an orthonormal frame that grows with the
vectors: a fresh Gaussian vector has i.i.d. normal coordinates along the directions there are, and what is left of it
is a chi variable times a new direction (Bartlett's decomposition of a Wishart matrix; no direction is left once n are
there, so singular Wishart matrices are no special case).  The reported coordinates, if needed as well, stand in front
and the frame lies in the rest, R^(n-c).  Inner products and linear combinations of such coordinates are those of
the vectors themselves, so everything else in the interpreter works on them unchanged.

All vectors of a group have one frame, but for indices on which any two of them agree when they meet: heads that never
meet keep separate frames.  Vectors that meet neither each other nor a later one open no directions.
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

Pairs = frozenset[tuple[int, int]]
NOTHING: Pairs = frozenset()


@dataclass(frozen=True)
class Recipe:
    """How fresh Gaussian vectors are drawn: `length` numbers each.

    The first `known` are normals: reported coordinates, and those along directions that earlier vectors opened.  Then
    come the directions that these vectors open together, separately for each value of the indices `batch`: a triangle
    of normals with chi variables of `degrees`, degrees - 1, .. on its diagonal.  The rest is zero.
    """

    length: int
    known: int
    opened: int = 0
    degrees: int = 0
    batch: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether all numbers are independent normals."""
        return self.known == self.length

    def counts(self, members: int, rows: int) -> tuple[int, int]:
        """Normals and chi variables for so many values of the batch indices, with so many vectors each."""
        k = self.opened
        triangle = k * (k - 1) // 2 + (rows - k) * k
        return members * (rows * self.known + triangle), members * k


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


@dataclass(frozen=True)
class Link:
    """Two families that meet, or of which the first is made of the second, and the slots on which members then agree.

    `made` tells the two cases apart.
    """

    first: str
    second: str
    agree: Pairs
    made: bool = False


def _agree(first: Sequence[Affine], second: Sequence[Affine]) -> Pairs:
    """Pairs of slots that hold the same form: one value for both whenever one statement refers to both."""
    return frozenset((k, m) for k, f in enumerate(first) for m, g in enumerate(second) if f == g)


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

    def layout(self, names: Sequence[str], seen: int, width: int, rows: Mapping[int, int]) -> Layout:
        """Coordinates and recipes of one group of vectors in R^width, none of which a nonlinearity makes.

        `rows` gives the fresh vectors per weight member of each MatMul step.
        """
        links = self._links(names)
        apart = _apart(names, {name: len(self.netsor.families[name].shape) for name in names}, links)
        initials = [initial for initial in self.netsor.initial if initial.name in names]
        steps = [entry for entry in self.steps if entry[1].statement.target.name in names]
        opening = _opening([i.name for i in initials], [step.statement.target.name for _, step, _ in steps], links)
        constant = any(
            has_constant(statement.expr, self.vectors)
            for statement in self.netsor.body if isinstance(statement, Nonlin) and statement.target.name in names
        ) or any(self.initials[initial.name].mean.any() for initial in initials)  # fmt: skip
        free = seen
        recipes: dict[str | int, Recipe] = {}

        def enter(key: str | int, name: str, vectors: int, batch: tuple[str, ...]) -> None:
            nonlocal free
            opened = min(vectors, width - free) if name in opening else 0
            recipes[key] = Recipe(0, free, opened, width - free, batch)
            free += opened

        ones = seen if constant and width > seen else None
        free += ones is not None
        for initial in initials:
            slots = {slots[initial.name] for slots in apart}
            shape = self.netsor.families[initial.name].shape
            vectors = math.prod(size for k, size in enumerate(shape) if k not in slots)
            enter(initial.name, initial.name, vectors, tuple(initial.indices[k] for k in sorted(slots)))
        for at, step, group in steps:
            target = step.statement.target
            bare = (target.slots[k].bare for k in sorted({slots[target.name] for slots in apart}))
            batch = tuple(index for index in bare if index)
            vectors = len(group.members) // math.prod(group.sizes[index] for index in batch) * rows[at]
            enter(at, target.name, vectors, batch)
        return Layout(free, seen, ones, {key: replace(recipe, length=free) for key, recipe in recipes.items()})

    def _links(self, names: Sequence[str]) -> list[Link]:
        links = []
        of_weight: dict[str, list[MatMul]] = {}
        for statement in self.netsor.body:
            if isinstance(statement, Nonlin) and statement.target.name in names:
                for reference in statement.inputs:
                    if reference.name in self.vectors:
                        agree = _agree(statement.target.slots, reference.slots)
                        agree = agree if _within(reference, self.netsor) else NOTHING
                        links.append(Link(statement.target.name, reference.name, agree, made=True))
            elif isinstance(statement, Dot) and statement.left.name in names:
                left, right = statement.left, statement.right
                plain = _within(left, self.netsor) and _within(right, self.netsor)
                links.append(Link(left.name, right.name, _agree(left.slots, right.slots) if plain else NOTHING))
            elif isinstance(statement, MatMul) and statement.vector.name in names:
                of_weight.setdefault(statement.weight.name, []).append(statement)
        for own in of_weight.values():
            for s, t in ((s, t) for s in own for t in own):
                agree = NOTHING
                if all(_within(v, self.netsor) for v in (s.weight, t.weight, s.vector, t.vector)):
                    agree = _through(_chosen(s), s.vector, _chosen(t), t.vector)
                links.append(Link(s.vector.name, t.vector.name, agree))
        products = {step.position: step.statement for _, step, _ in self.steps}.values()
        for p in products:
            for q in products:
                assert isinstance(p, MatMul) and isinstance(q, MatMul)
                if p.target.name in names and p.weight.name == q.weight.name:
                    aligned = self._aligned(p.weight.name)
                    agree = _through(_chosen(p), p.target, _chosen(q), q.target) if aligned else NOTHING
                    links.append(Link(p.target.name, q.target.name, agree, made=True))
        for initial in self.netsor.initial:
            if initial.name in names:
                places = [initial.indices.index(name) for name in self.initials[initial.name].independent]
                links.append(Link(initial.name, initial.name, frozenset((k, k) for k in places), made=True))
        return [link for link in links if link.first in names and link.second in names]

    def _aligned(self, weight: str) -> bool:
        """Whether all products of a weight use the same members, each by its own indices."""
        same = [group for _, _, group in self.steps if group.weight.name == weight]
        return all(group.separable and list(group.members) == list(same[0].members) for group in same)


def _through(
    first: Mapping[str | None, int], left: Variable, second: Mapping[str | None, int], right: Variable
) -> Pairs:
    """Slots of two references whose indices choose the same slot of a weight."""
    return frozenset(
        (k, m)
        for k, f in enumerate(left.slots)
        for m, g in enumerate(right.slots)
        if f.bare in first and g.bare in second and first[f.bare] == second[g.bare]
    )


def _apart(names: Sequence[str], slots: Mapping[str, int], links: Sequence[Link]) -> list[dict[str, int]]:
    """All ways to choose a slot of every family so that members agree on it whenever they meet."""
    found = []
    both = [*links, *(Link(link.second, link.first, frozenset((m, k) for k, m in link.agree)) for link in links)]
    for slot in range(slots[names[0]]):
        chosen = {names[0]: slot}
        growing = True
        while growing:
            growing = False
            for link in both:
                fitting = [m for k, m in link.agree if k == chosen.get(link.first)]
                if link.first in chosen and link.second not in chosen and fitting:
                    chosen[link.second] = min(fitting)
                    growing = True
        agreed = all((chosen.get(link.first), chosen.get(link.second)) in link.agree for link in links)
        if agreed and len(chosen) == len(names):
            found.append(chosen)
    return found


def _opening(initials: Sequence[str], products: Sequence[str], links: Sequence[Link]) -> set[str]:
    """Families drawn that meet themselves, or one that is drawn later."""
    drawn = [*initials, *products]
    first = {name: at for at, name in reversed([*enumerate(drawn)])}
    last = {name: at for at, name in enumerate(drawn)}
    sources = {name: {name} if name in last else set() for link in links for name in (link.first, link.second)}
    size = -1
    while size != (size := sum(map(len, sources.values()))):
        for link in links:
            if link.made:
                sources[link.first] |= sources[link.second]
    return {
        name
        for link in links if not link.made
        for one, other in ((link.first, link.second), (link.second, link.first))
        for name in sources[one]
        if any(last[met] >= first[name] for met in sources[other])
    }  # fmt: skip

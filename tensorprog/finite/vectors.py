"""Who needs what of each vector, all coordinates, the reported ones or only inner products, and how few numbers do.

Frames.  Products of Gaussian weights are invariant under rotations of R^n, so a vector that later statements read
only through inner products and linear combinations may be given by its coordinates in an orthonormal frame that grows
with the vectors: a fresh Gaussian vector has i.i.d. normal coordinates along the directions there are, and what is
left of it is a chi variable times a new direction (Bartlett's decomposition of a Wishart matrix; no direction is left
once n are there, so singular Wishart matrices are no special case).  The reported coordinates, if needed as well,
stand in front and the frame lies in the rest, R^(n-c).  Inner products and linear combinations of such coordinates
are those of the vectors themselves, so everything else in the interpreter works on them unchanged.

All vectors of a group have one frame, but for indices on which any two of them agree when they meet: heads that never
meet keep separate frames.  Vectors that meet neither each other nor a later one open no directions.

Clips that never act.  clip(u, -100, 100) is u unless a coordinate passes 100, and a Gaussian vector need not be drawn
in all its coordinates. So a plan leaves out clips of Gaussian vectors that act in no network that anybody will ever
draw.

The bound.  Let e^-L be small.  A standard normal g exceeds z = sqrt(2 L) in size with a probability of at most e^-L,
and a standard normal vector G of R^n has |G|^2 > n t, where t = 1 + 2 sqrt(L / n) + 2 L / n, with a probability of at
most e^-L (Laurent & Massart 2000, Lemma 1).  Now go through the program.  An initial vector is m + d G.  A product u
= W x by weights that made nothing upstream of x has, given x, independent coordinates N(0, sigma^2 |x|^2 / n_in):
wherever |x|^2 <= n_in r^2, |u_a| <= sigma r z for every coordinate and |u|^2 <= n_out sigma^2 r^2 t, but for n_out +
1 events of conditional probability at most e^-L.  So all vectors stay within their bounds outside N events, where N
counts the coordinates, and once more the members, of all initial vectors and products upstream.  There a clip left
out is its argument: the laws of M networks with and without it differ by at most M N e^-L in total variation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import (
    Call,
    Expr,
    Number,
    Variable,
    fold,
    free_indices,
    is_call,
    linear_arguments,
    variables,
)
from tensorprog.language.initials import InitialLaw, initial_laws
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import Step, upstream
from tensorprog.language.weight_members import Grouping, variances

__all__ = [
    "LEAST",
    "Demand",
    "Form",
    "Frames",
    "Layout",
    "LeftOut",
    "Recipe",
    "demand",
    "form_of",
    "has_constant",
    "without_inactive",
]


class Form(Enum):
    """How an expression depends on its vectors, given the scalars."""

    ZERO = 0
    CONSTANT = 1
    LINEAR = 2
    AFFINE = 3
    NONLINEAR = 4


def form_of(expr: Expr, vectors: Collection[str]) -> Form:
    """Classify an expression: linear and affine ones have scalars, constants and indices as coefficients."""

    def leaf(node: Expr) -> Form | None:
        if isinstance(node, Number):
            return Form.CONSTANT if node.value else Form.ZERO
        if isinstance(node, Variable):
            return Form.LINEAR if node.name in vectors else Form.CONSTANT
        return None if node.children else Form.CONSTANT

    def combined(node: Expr, *args: Form) -> Form:
        scalars = [arg in (Form.ZERO, Form.CONSTANT) for arg in args]
        if all(scalars):
            return Form.ZERO if is_call(node, "multiply") and Form.ZERO in args else Form.CONSTANT
        linear = linear_arguments(node, scalars)
        kinds = {args[k] for k in linear} - {Form.ZERO}
        if not linear or Form.NONLINEAR in kinds:
            return Form.NONLINEAR
        return Form.AFFINE if len(kinds) > 1 else kinds.pop() if kinds else Form.ZERO

    return fold(expr, {}, leaf, combined)


def has_constant(expr: Expr, vectors: Collection[str]) -> bool:
    """Whether a linear combination of vectors has a constant summand."""
    return form_of(expr, vectors) in (Form.CONSTANT, Form.AFFINE)


@dataclass(frozen=True)
class Demand:
    """What later statements read of every vector family.

    `seen` are needed in the reported coordinates, `groups` are sets of families that meet in inner products, directly
    or through weights and linear combinations, so that they must be drawn together; `explicit` are those with a member
    that a nonlinearity makes, and coordinate vectors, which leaves no choice but all coordinates.
    """

    vectors: frozenset[str]
    needed: frozenset[str]
    seen: frozenset[str]
    groups: tuple[tuple[str, ...], ...]
    explicit: frozenset[str]


def vectors_of(netsor: Netsor) -> frozenset[str]:
    """Names of all vector families."""
    return frozenset(name for name, family in netsor.families.items() if family.kind == "vector")


def demand(netsor: Netsor, kept: Collection[str]) -> Demand:
    """Work backwards from what is reported."""
    vectors = vectors_of(netsor)
    needed = upstream(netsor, kept)
    body = [statement for statement in netsor.body if statement.target.name in needed]
    read = [vectors.intersection(reference.name for reference in statement.inputs) for statement in body]
    seen = {name for name in kept if name in vectors}
    inner: set[str] = set()
    siblings: dict[str, set[str]] = {}
    for statement in body:
        if isinstance(statement, MatMul):
            siblings.setdefault(statement.weight.name, set()).add(statement.target.name)
    before = -1
    while before != len(seen) + len(inner):
        before = len(seen) + len(inner)
        for products in siblings.values():  # products of one weight are drawn together
            if products & inner:
                inner |= products
        for statement, names in zip(body, read, strict=True):
            if not isinstance(statement, Nonlin):
                inner |= names
            else:
                seen |= names if statement.target.name in seen else frozenset()
                inner |= names if statement.target.name in inner else frozenset()
    together = {name: frozenset({name}) for name in vectors}  # of each vector, those that it meets

    def join(first: str, second: str) -> None:
        both = together[first] | together[second]
        together.update(dict.fromkeys(both, both))

    of_weight: dict[str, tuple[str, str]] = {}
    explicit = {initial.name for initial in netsor.initial if initial.grid and initial.name in inner}
    for statement, names in zip(body, read, strict=True):
        target = statement.target.name
        if isinstance(statement, Dot):
            join(statement.left.name, statement.right.name)
        elif isinstance(statement, MatMul):
            vector, product = of_weight.setdefault(statement.weight.name, (statement.vector.name, target))
            join(vector, statement.vector.name)
            join(product, target)
        elif target in inner:
            if form_of(statement.expr, vectors) is Form.NONLINEAR:
                explicit.add(target)
            for name in names:
                join(target, name)
    used = [name for name in netsor.families if name in vectors and name in needed]
    # products of one weight stay together even where they are only seen
    meeting = dict.fromkeys(together[name] for name in used if inner & together[name] & needed)
    groups = tuple(tuple(name for name in used if name in names) for names in meeting)
    return Demand(vectors, needed, frozenset(seen), groups, frozenset(explicit))


# ---- frames ----------------------------------------------------------------------------------------------------------

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


def _agree(first: Sequence[Any], second: Sequence[Any]) -> Pairs:
    """Pairs of slots of which the same is known: one value for both whenever one statement refers to both."""
    return frozenset((k, m) for k, f in enumerate(first) for m, g in enumerate(second) if f == g and f is not None)


def _within(reference: Variable, netsor: Netsor) -> bool:
    """Whether a reference stays inside the family's range without help of a boundary rule."""
    bounds = (slot.bounds(netsor.ranges) for slot in reference.slots)
    ranges = netsor.families[reference.name].ranges
    return all(start <= low and high < stop for (low, high), (start, stop) in zip(bounds, ranges, strict=True))


def _chosen(statement: MatMul, reference: Variable) -> list[int | None]:
    """For each slot of a reference of a MatMul the slot of its weight that the same index chooses alone."""
    weight: dict[str | None, int] = {slot.bare: m for m, slot in enumerate(statement.weight.slots) if slot.bare}
    return [weight.get(slot.bare) for slot in reference.slots]


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
                plain = all(_within(v, self.netsor) for v in (s.weight, t.weight, s.vector, t.vector))
                agree = _agree(_chosen(s, s.vector), _chosen(t, t.vector)) if plain else NOTHING
                links.append(Link(s.vector.name, t.vector.name, agree))
        products = {step.position: group for _, step, group in self.steps if group.statement.target.name in names}
        for g, h in ((g, h) for g in products.values() for h in products.values()):
            if g.weight.name == h.weight.name:
                p, q = g.statement, h.statement
                same = [group for _, _, group in self.steps if group.weight.name == g.weight.name]
                # all products of the weight use the same members, each by its own indices
                aligned = all(s.separable and np.array_equal(s.members, same[0].members) for s in same)
                agree = _agree(_chosen(p, p.target), _chosen(q, q.target)) if aligned else NOTHING
                links.append(Link(p.target.name, q.target.name, agree, made=True))
        for initial in self.netsor.initial:
            if initial.name in names:
                places = [initial.indices.index(name) for name in self.initials[initial.name].independent]
                links.append(Link(initial.name, initial.name, frozenset((k, k) for k in places), made=True))
        return [link for link in links if link.first in names and link.second in names]


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


# ---- clips that never act --------------------------------------------------------------------------------------------


LeftOut = tuple[tuple[Nonlin, Nonlin], ...]  # statements as they are written, and as they are drawn
LEAST = -45  # decimal logarithm of the probability that a clip left out acts in one network, at most
SLACK = 1 + 1e-9  # for the rounding of bounds
FAR = math.inf, math.inf


def without_inactive(netsor: Netsor, widths: Mapping[str, int], kept: Collection[str]) -> LeftOut:
    """The statements y = clip(x, low, high) of Gaussian vectors x that act in no network, without their clips.

    `widths` are whole numbers by name.
    """
    sizes = {name: math.prod(family.shape) for name, family in netsor.families.items()}
    needed = upstream(netsor, kept)
    events = sum((widths[netsor.families[name].width] + 1) * sizes[name] for name in needed & vectors_of(netsor))
    level = math.log(max(events, 1)) - LEAST * math.log(10)
    reach: dict[str, tuple[float, float]] = {}  # of coordinates, and of their root mean square
    behind: dict[str, frozenset[str]] = {}  # weights that made a family

    def gaussian(name: str, mean: float, deviation: float) -> None:
        ratio = level / widths[netsor.families[name].width]
        far = mean + deviation * math.sqrt(2 * level) * SLACK
        reach[name] = far, mean + deviation * math.sqrt(1 + 2 * math.sqrt(ratio) + 2 * ratio) * SLACK

    for name, law in initial_laws(netsor).items():
        known = law.at(law.initial.indices)  # variances, unless covariances are given as a whole
        variance = np.diagonal(law.blocks) if known is None else known[0].data
        gaussian(name, float(np.abs(law.mean).max()), math.sqrt(float(variance.max())))
    found = []
    for statement in netsor.body:
        name = statement.target.name
        single = len(netsor.families[name].statements) == 1
        made = (behind.get(reference.name, frozenset()) for reference in statement.inputs)
        behind[name] = behind.get(name, frozenset()).union(*made)
        if isinstance(statement, MatMul):
            weight, rms = statement.weight.name, reach.get(statement.vector.name, FAR)[1]
            if single and weight not in behind[name] and not statement.transposed and rms < math.inf:
                gaussian(name, 0.0, math.sqrt(float(variances(netsor, weight).max(initial=0.0))) * rms)
            behind[name] |= {weight}
        elif isinstance(statement, Nonlin) and isinstance(clip := statement.expr, Call) and is_call(clip, "clip"):
            x, *ends = clip.args
            if isinstance(x, Variable) and not any(map(variables, ends)):
                low, high = (index_array(netsor, end, free_indices(end)) for end in ends)
                far, rms = reach.get(x.name, FAR)
                if low.max() <= -far and far <= high.min() and name in needed:
                    found.append((statement, replace(statement, expr=x)))
                if single and low.max() <= 0 <= high.min():
                    most = float(max(-low.min(), high.max()))
                    reach[name] = min(far, most), min(rms, most)
    return tuple(found)

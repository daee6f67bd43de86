"""Who needs what of each vector: all coordinates, the reported ones, or only inner products; clips that never act.

clip(u, -100, 100) is u unless a coordinate passes 100, and a Gaussian vector need not be drawn in all its coordinates.
So a plan leaves out clips of Gaussian vectors that act in no network that anybody will ever draw.

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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum

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
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.language.weight_members import variances

__all__ = [
    "LEAST",
    "Demand",
    "Form",
    "LeftOut",
    "demand",
    "form_of",
    "has_constant",
    "vectors_of",
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
        gaussian(name, float(np.abs(law.mean).max()), math.sqrt(float((law.factor**2).sum(-1).max())))
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

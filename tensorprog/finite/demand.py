"""Who needs what of each vector: all coordinates, the reported ones, or only inner products."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from tensorprog.language.expr import Expr, Number, Variable, fold, is_call, linear_arguments
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream

__all__ = ["Demand", "Form", "demand", "form_of", "has_constant", "vectors_of"]


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
    parent = {name: name for name in vectors}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    def join(first: str, second: str) -> None:
        parent[root(first)] = root(second)

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
    members: dict[str, list[str]] = {}
    for name in netsor.families:
        if name in vectors and name in needed:
            members.setdefault(root(name), []).append(name)
    # products of one weight stay together even where they are only seen
    groups = tuple(tuple(names) for names in members.values() if inner.intersection(names))
    return Demand(vectors, needed, frozenset(seen), groups, frozenset(explicit))

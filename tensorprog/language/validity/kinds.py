"""Vector or scalar, and of which width: worked out for every family, then checked in every statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorprog.language.ir import Dot, Family, Kind, MatMul, Nonlin, Statement
from tensorprog.language.validity.checker import Checker


def with_kinds(checker: Checker, families: Mapping[str, Family], sound: Sequence[int]) -> dict[str, Family]:
    """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
    body = [checker.netsor.body[position] for position in sound]
    unsure = checker.unknown | {s.target.name for p, s in enumerate(checker.netsor.body) if p not in set(sound)}
    for statement in body if unsure else ():  # in the order of the text: what follows from unsure is unsure
        if isinstance(statement, Nonlin) and not unsure.isdisjoint(ref.name for ref in statement.inputs):
            unsure.add(statement.target.name)
    kind: dict[str, Kind] = {name: f.kind for name, f in families.items() if not f.statements}
    width = {name: f.width for name, f in families.items() if not f.statements}
    for _ in range(len(body) + 1):
        before = dict(kind), dict(width)
        for statement in body:
            name = statement.target.name
            if isinstance(statement, MatMul):
                kind[name], width[name] = "vector", statement.sides(checker.netsor.weight[statement.weight.name])[0]
            elif isinstance(statement, Dot):
                kind.setdefault(name, "scalar")
            else:
                spread_kind(statement, kind, width, unsure)
        if before == (kind, width):
            break
    for statement in body:
        if all(reference.name in kind for reference in statement.inputs) and statement.target.name in kind:
            check_kinds(checker, statement, kind, width)
    return {name: replace(family, kind=kind.get(name, "scalar"), width=width.get(name, ""))
            for name, family in families.items()}


def spread_kind(statement: Nonlin, kind: dict[str, Kind], width: dict[str, str], unsure: set[str]) -> None:
    """Kind and width that a Nonlin inherits from its inputs."""
    name = statement.target.name
    names = [reference.name for reference in statement.inputs]
    vectors = [other for other in names if kind.get(other) == "vector"]
    if vectors:
        kind[name] = "vector"
        width.setdefault(name, statement.width or next((width[v] for v in vectors if v in width), "n"))
    elif not names:
        kind[name] = "vector"  # a constant vector
        width.setdefault(name, statement.width or "n")
    elif unsure.isdisjoint(names):
        kind.setdefault(name, "scalar")


def check_kinds(checker: Checker, statement: Statement, kind: Mapping[str, Kind], width: Mapping[str, str]) -> None:
    """Kinds and widths of one statement against each other."""
    span = statement.span
    name = statement.target.name
    if isinstance(statement, MatMul):
        weight, vector = checker.netsor.weight[statement.weight.name], statement.vector.name
        rows, columns = statement.sides(weight)
        if kind[vector] != "vector":
            checker.error(f"{vector} is a scalar; MatMul needs a vector", span.at(statement.vector.column),
                          "a scalar enters vectors inside a Nonlin")
        elif width[vector] != columns:
            shape = (width[vector], rows) if statement.transposed else (rows, width[vector])
            turned = replace(statement, transposed=not statement.transposed)
            checker.error(f"{statement.matrix} has shape [{rows}, {columns}], but {vector} has width {width[vector]}",
                          span.at(statement.vector.column), (f"{turned}, or " if width[vector] == rows else "")
                          + f"shape: [{', '.join(shape)}] for {weight.name}")
        if width.get(name) != rows:
            checker.error(f"{name} has definitions of different widths", span)
    elif isinstance(statement, Dot):
        for operand in (statement.left, statement.right):
            if kind[operand.name] != "vector":
                checker.error(f"{operand.name} is a scalar; Dot needs two vectors", span.at(operand.column),
                              "multiply scalars inside a Nonlin")
        left, right = width.get(statement.left.name), width.get(statement.right.name)
        if left and right and left != right:
            checker.error(f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})",
                          span, "both operands need the same width")
        if kind[name] == "vector":
            checker.error(f"{name} is a vector in one definition and a Dot in another", span)
    else:
        vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
        for reference in vectors:
            if width[reference.name] != width[name]:
                other = width[reference.name]
                checker.error(f"{name} has width {width[name]}, but {reference.name} has width {other}",
                              span.at(reference.column), "coordinatewise functions need equal widths")
        if statement.width and not vectors and statement.inputs and kind[name] == "scalar":
            checker.error(f"{name} is a scalar; it has no width", span)

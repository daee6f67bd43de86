"""Which covariances and averages others are made of, so that they are computed in an order in which none waits.

A covariance of layer 100 needs those of layer 99.  Asked for from the top, a hundred computations would stand inside
each other; asked for from the bottom, each finds what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from tensorprog.language.expr import variables
from tensorprog.language.ir import Dot, MatMul, Nonlin

if TYPE_CHECKING:
    from tensorprog.limit.moment.covariance import Compiler

__all__ = ["Need", "in_order"]

Need = tuple[str, ...]  # a scalar family, or two Gaussian families whose covariance is meant


def in_order(compiler: Compiler, *names: str) -> Iterator[Need]:
    """All that the second moments of some families are made of, each after what it is made of itself.

    Recurrences, which are filled in step by step, count as known.
    """
    found: dict[Need, None] = {}
    waiting: list[tuple[Need, Iterator[Need]]] = [((), _of_families(compiler, *names))]
    while waiting:
        need, inner = waiting[-1]
        following = next((other for other in inner if other not in found), None)
        if following is not None:
            found[following] = None
            waiting.append((following, _of(compiler, following)))
            continue
        waiting.pop()
        if need:
            yield need


def _of(compiler: Compiler, need: Need) -> Iterator[Need]:
    """What one covariance or scalar is made of."""
    body, families = compiler.netsor.body, compiler.netsor.families
    if any(compiler.recurrences.recurrent(name) for name in need):
        return
    defined = [body[position] for name in need for position in families[name].statements]
    if len(need) == 1:
        for statement in defined:
            if isinstance(statement, Dot):
                yield from _of_families(compiler, statement.left.name, statement.right.name)
            else:
                yield from ((v.name,) for v in statement.inputs)
    elif len(defined) == 2 and all(isinstance(statement, MatMul) for statement in defined):
        one, two = defined
        if isinstance(one, MatMul) and isinstance(two, MatMul) and one.weight.name == two.weight.name:
            yield from _of_families(compiler, one.vector.name, two.vector.name)


def _of_families(compiler: Compiler, *names: str) -> Iterator[Need]:
    """What the second moments of some families are made of: scalars, and covariances of Gaussian families."""
    body, families, parts = compiler.netsor.body, compiler.netsor.families, compiler.parts
    read: dict[str, None] = {}
    for name in dict.fromkeys(names):
        if families[name].kind == "scalar":
            yield (name,)
        elif parts.is_base(name) or name in parts.carried:
            read[name] = None
        else:
            for position in families[name].statements:
                assert isinstance(body[position], Nonlin)
                read |= dict.fromkeys(v.name for v in variables(parts.statement(position)))
    yield from ((name,) for name in read if families[name].kind == "scalar")
    gaussian = [name for name in read if families[name].kind == "vector" and parts.is_base(name)]
    yield from combinations_with_replacement(gaussian, 2)

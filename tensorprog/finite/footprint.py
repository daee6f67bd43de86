"""How many numbers a network holds at a time while a plan runs: what is alive, and what expressions need in passing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorprog.finite.plan import Op, Plan
from tensorprog.language.atoms import REDUCTIONS
from tensorprog.language.expr import Expr, Reduction, Variable, factors, fold, is_call
from tensorprog.language.ir import Nonlin, Range
from tensorprog.language.substitute import index_names

if TYPE_CHECKING:
    from tensorprog.finite.job import Stage

__all__ = ["footprint"]


def footprint(plan: Plan, stages: Sequence[Stage], heads: frozenset[str]) -> tuple[int, int]:
    """Most numbers of one network alive in arrays over the block, and in those over a part of it."""
    most_block = most_part = 0
    block: dict[str, int] = {}
    for stage in stages:
        alive = {} if stage.apart else block
        most = 0
        for op, drops in zip(stage.ops, stage.drops, strict=True):
            alive[op.writes] = _size(plan, op)
            most = max(most, sum(alive.values()) + _passing(plan, op, alive))
            for name in drops:
                alive.pop(name, None)
        if stage.apart:
            most_part = max(most_part, most)
            block |= {name: _reported(plan, name) if name in heads else alive[name] for name in stage.writes}
            most = sum(block.values())
        most_block = max(most_block, most)
        for name in stage.dropped:
            block.pop(name, None)
    return most_block, most_part


def _size(plan: Plan, op: Op) -> int:
    """Numbers of what an op writes."""
    if op.kind in ("gram", "factor"):
        group = plan.groups[op.at]
        assert group is not None
        return int((len(group.members) if group.reads_members else 1) * group.columns**2)
    return int(math.prod(plan.netsor.families[op.writes].shape) * plan.lengths.get(op.writes, 1))


def _reported(plan: Plan, name: str) -> int:
    return math.prod(plan.netsor.families[name].shape) * plan.coordinates


def _passing(plan: Plan, op: Op, alive: dict[str, int]) -> int:
    """Numbers needed in passing; histories and matrices of weights, which stay, are entered in `alive`."""
    if op.kind == "nonlin":
        step = plan.order[op.at]
        assert isinstance(step.statement, Nonlin)
        ranges = step.ranges(plan.netsor.ranges)
        length = plan.lengths.get(op.writes, 1)
        return _peak(step.statement.expr, ranges, dict.fromkeys(plan.lengths, length)).most
    group = plan.groups[op.at] if op.kind != "initial" else None
    if group is None:
        return 0
    members, inputs = len(group.members), plan.lengths[group.statement.vector.name]
    if op.kind == "factor":
        return _size(plan, op)
    if op.kind == "gram":
        return int((members if group.reads_members else 1) * group.columns * inputs)
    outputs = plan.lengths[op.writes]
    weight = group.weight.name
    if plan.method == "dense":
        alive[f"matrices of {weight}"] = math.prod(group.weight.shape) * inputs * outputs
    elif not op.key:
        alive[f"history of {weight}"] = members * plan.capacity[weight] * (inputs + outputs)
    passing = members * plan.fresh[op.at] * outputs
    if not op.key:
        passing += (members if group.reads_members else 1) * group.columns * inputs
        if op.at not in plan.later:
            for kind in ("matrices", "history"):
                passing += alive.pop(f"{kind} of {weight}", 0)
    return int(passing)


@dataclass(frozen=True)
class _Part:
    """A subexpression: indices it has axes for, coordinates (1 without), most numbers of any array on the way."""

    indices: frozenset[str]
    length: int
    most: int = 0

    def size(self, ranges: Mapping[str, Range]) -> int:
        return math.prod(ranges[name][1] - ranges[name][0] for name in self.indices) * self.length


def _peak(expr: Expr, ranges: Mapping[str, Range], lengths: Mapping[str, int]) -> _Part:
    def leaf(node: Expr) -> _Part | None:
        if isinstance(node, Reduction) and REDUCTIONS[node.reducer].linear:
            return _contracted(node.arg, frozenset(node.indices), ranges, lengths)
        length = lengths.get(node.name, 1) if isinstance(node, Variable) else 1
        return None if node.children else _Part(frozenset(index_names(node)), length)

    def combined(node: Expr, *parts: _Part) -> _Part:
        indices = frozenset(index_names(node)).union(*(part.indices for part in parts))
        whole = _Part(indices, max(part.length for part in parts))
        most = max(whole.size(ranges), *(part.most for part in parts))
        removed = frozenset(node.indices) if isinstance(node, Reduction) and node.removes else frozenset[str]()
        return _Part(indices - removed, whole.length, most)

    return fold(expr, {}, leaf, combined)


def _joined(parts: Sequence[_Part]) -> _Part:
    indices = frozenset[str]().union(*(part.indices for part in parts))
    return _Part(indices, max((part.length for part in parts), default=1))


def _contracted(expr: Expr, summed: frozenset[str], ranges: Mapping[str, Range], lengths: Mapping[str, int]) -> _Part:
    """A sum: of terms one by one, and of a product without forming it, but for that of its factors of one kind."""
    if is_call(expr, "add", "subtract", "negative"):
        terms = [_contracted(arg, summed, ranges, lengths) for arg in expr.args]
        whole = _joined(terms)
        return _Part(whole.indices, whole.length, max(whole.size(ranges), *(term.most for term in terms)))
    if isinstance(expr, Reduction) and expr.reducer == "sum":
        return _contracted(expr.arg, summed | set(expr.indices), ranges, lengths)
    parts = [_peak(factor, ranges, lengths) for factor in factors(expr, signs=True)]
    kinds = [[part for part in parts if (part.length > 1) == large] for large in (False, True)]
    whole = _joined(parts)
    result = _Part(whole.indices - summed, whole.length)
    sizes = [_joined(kind).size(ranges) for kind in kinds if len(kind) > 1]
    most = max([result.size(ranges), *sizes, *(part.most for part in parts)])
    return _Part(result.indices, result.length, most)

"""What a finite run needs of each family: all coordinates, or only those reported; and what that costs."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from tensorprog.errors import ProgramError
from tensorprog.ir import Dot, MatMul, Netsor, Nonlin

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """The decisions taken before any number is drawn.

    `full` names the vectors computed in all coordinates; every other vector is computed in the reported ones only,
    which is exact: given the inputs, the coordinates of a MatMul are independent.
    """

    full: frozenset[str]
    widths: dict[str, int]  # of every width name
    normals: int  # standard normals drawn per network
    floats: int  # numbers held per network, at most
    flops: int  # multiplications per network, roughly


def resolve_widths(netsor: Netsor, width: int) -> dict[str, int]:
    """Whole-number widths at n = width.

    Raises    ProgramError where a declared width is not a positive whole number at this n
    """
    result = {}
    for name in ("n", *(name for name, _, _ in netsor.widths), *(name for name, _ in netsor.fixed_widths)):
        value = netsor.width_of(name, width)
        if value.denominator != 1 or value < 1:
            raise ProgramError(
                f"at n = {width} the width {name} would be {value}; choose n so that it is a whole number"
            )
        result[name] = int(value)
    return result


def plan(netsor: Netsor, width: int, coordinates: int, kept: Collection[str], method: str) -> Plan:
    """Work backwards from the outputs: who is read in all coordinates?"""
    widths = resolve_widths(netsor, width)
    full: set[str] = set()
    if method == "dense":
        full = {name for name, family in netsor.families.items() if family.kind == "vector"}
    changed = True
    while changed:
        before = len(full)
        full_weights = {s.weight.name for s in netsor.body if isinstance(s, MatMul) and s.target.name in full}
        for statement in netsor.body:
            if isinstance(statement, MatMul):
                full.add(statement.vector.name)
                if statement.weight.name in full_weights:  # later products condition on all coordinates of earlier ones
                    full.add(statement.target.name)
            elif isinstance(statement, Dot):
                full |= {statement.left.name, statement.right.name}
            elif isinstance(statement, Nonlin) and statement.target.name in full:
                full |= {r.name for r in statement.inputs if netsor.families[r.name].kind == "vector"}
        changed = len(full) != before
    normals = floats = flops = 0
    for initial in netsor.initial:
        members = math.prod(netsor.families[initial.name].shape)
        held = members * _coordinates(initial.name, initial.width, full, widths, coordinates)
        normals, floats = normals + held, floats + held
    for statement in netsor.body:
        family = netsor.families[statement.target.name]
        members = math.prod(
            netsor.ranges[slot.bare][1] - netsor.ranges[slot.bare][0] for slot in statement.target.slots if slot.bare
        )
        if family.kind == "scalar":
            floats += members
            if isinstance(statement, Dot):
                flops += members * widths[netsor.families[statement.left.name].width]
            continue
        held = members * _coordinates(family.name, family.width, full, widths, coordinates)
        floats += held
        flops += 4 * held
        if isinstance(statement, MatMul):
            if method == "dense":
                flops += held * widths[netsor.weight[statement.weight.name].shape[1]]
            else:
                normals += held
                floats += held
    if method == "dense":
        for weight in netsor.weights:
            entries = math.prod(netsor.families[weight.name].shape) * math.prod(widths[side] for side in weight.shape)
            normals, floats = normals + entries, floats + entries
    return Plan(frozenset(full), widths, normals, floats, flops)


def _coordinates(name: str, width: str, full: Collection[str], widths: dict[str, int], coordinates: int) -> int:
    return widths[width] if name in full else min(coordinates, widths[width])

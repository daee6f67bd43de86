"""What a depth profile is asked: a family, which of its indices counts layers and which tokens, and constants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensorprog.jobs.choices import Choice, choices
from tensorprog.language.averages import unused
from tensorprog.language.errors import Span, check_count, did_you_mean, fail
from tensorprog.language.expr import Reduction, Variable, call, free_indices, slots_of, variables, walk
from tensorprog.language.ir import Netsor, Nonlin
from tensorprog.language.memory import parse_memory
from tensorprog.limit.law.by_layer import Axes
from tensorprog.program import netsor_of

__all__ = ["Question", "Variant", "ask"]

LEAST = 1e-300  # weights of attention below it add nothing to an entropy
TAKEN = ("layer", "width")  # axes of results


@dataclass(frozen=True)
class Variant:
    """Values of the constants, the program that has them, and the same with entropies of attention."""

    values: Choice
    netsor: Netsor
    larger: Netsor
    entropies: tuple[str, ...]  # scalars of the larger program whose first index is that of layers
    backward: Netsor | None = None  # the adjoint program, for gradients


@dataclass(frozen=True)
class Question:
    """A depth profile that can be computed: the family and its indices, its layers, and whether of gradients too."""

    base: Netsor
    axes: Axes
    index: str
    token: str  # empty for a family of single vectors
    layers: tuple[int, ...]
    gradients: bool
    max_memory: int

    @property
    def gradient(self) -> Axes:
        """The family of gradients, whose members are those of the family."""
        return replace(self.axes, name=f"grad_{self.axes.name}")

    def bounds(self, constant: str) -> bool:
        """Whether a constant says how many layers there are."""
        return constant in _names(self.base, self.index)

    def variants(self, over: Mapping[str, Any] | None) -> list[Variant]:
        """The program with each choice of constants.

        Raises    ProgramError where it has other layers then
        """
        name, found = self.axes.name, list[Variant]()
        for values, netsor in choices(self.base, over, TAKEN):
            if tuple(range(*netsor.families[name].ranges[self.axes.layer])) != self.layers:
                raise fail(
                    f"{', '.join(values)} changes how many layers {name} has",
                    self.base.index[self.index].span,
                    "the number of layers with to=, --to in a command, and other constants",
                )
            backward = None
            if self.gradients:
                from tensorprog.gradients.assembly import adjoint

                backward = adjoint(netsor)
                if self.gradient.name not in backward.families:
                    said = f"no output of {netsor.name} depends on {name}: there are no gradients"
                    raise fail(said, _span(netsor, name))
            found.append(Variant(values, netsor, *_with_entropies(netsor, self.index), backward))
        return found


def ask(
    program: Any,
    name: str,
    index: str | None = None,
    to: int | None = None,
    gradients: bool = False,
    max_memory: str | int = "1GiB",
) -> Question:
    """Read and check what is asked of a program.

    Raises    ProgramError with place and advice
    """
    base = netsor_of(program, "a depth profile")
    slots, slot = _layer_index(base, name, index)
    if to is not None:
        base = _deeper(base, name, slot, slots[slot], to)
    token = next((k for k in reversed(range(len(slots))) if k != slot), None)
    layers = tuple(range(*base.families[name].ranges[slot]))
    about = "" if token is None else slots[token] or str(token)
    return Question(base, Axes(name, slot, token), slots[slot], about, layers, gradients, parse_memory(max_memory))


def _layer_index(netsor: Netsor, name: str, index: str | None) -> tuple[list[str], int]:
    """Names of the indices of a family, empty for numbers, and the place of the one that counts layers."""
    family = netsor.families.get(name) if isinstance(name, str) else None
    if family is None or family.kind != "vector":
        vectors = [key for key, value in netsor.families.items() if value.kind == "vector" and value.ranges]
        raise fail(
            f"{name} is no vector of the program: a depth profile is of a family of vectors, by its name",
            fix=did_you_mean(str(name).partition("[")[0].strip(), vectors),
        )
    declared = next((entry.indices for entry in netsor.initial if entry.name == name), ("",) * len(family.ranges))
    slots = list(declared)
    for position in family.statements:
        defined = netsor.body[position].target.slots
        slots = [known or slot.bare or "" for known, slot in zip(slots, defined, strict=True)]
    recurring = [slot for slot in slots if slot and _reads_back(netsor, slot)]
    if index is None and len(recurring) != 1:
        raise fail(
            f"which index of {name} counts layers is not clear: of its own {' and '.join(recurring) or 'none'} recur",
            _span(netsor, name),
            'index="t", --index t in a command; layers are made along an index, as in '
            "x[t,i] = Nonlin(x[t - 1,i] + u[t,i])",
        )
    index = recurring[0] if index is None else index
    if not index or index not in slots:
        raise fail(f"{name} has no index {index}", _span(netsor, name), did_you_mean(index, list(filter(None, slots))))
    return slots, slots.index(index)


def _reads_back(netsor: Netsor, index: str) -> bool:
    """Whether a statement reads an earlier or later value of the index that it is written for."""
    return any(
        index in slot.indices and slot.bare != index
        for statement in netsor.body
        if index in [slot.bare for slot in statement.target.slots]
        for reference in statement.inputs
        for slot in reference.slots
    )


def _span(netsor: Netsor, name: str) -> Span:
    statements = netsor.families[name].statements
    return netsor.body[statements[-1]].span if statements else Span()


def _names(netsor: Netsor, index: str) -> list[str]:
    """The constants in the range of an index."""
    words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", netsor.index[index].text))
    return [word for word in words if word in netsor.scalars]


def _deeper(netsor: Netsor, name: str, slot: int, index: str, to: Any) -> Netsor:
    """The program with so many layers: the constant in the range of the index has another value."""
    declared, to, named = netsor.index[index], check_count("to", to), _names(netsor, index)
    last = netsor.families[name].ranges[slot][1] - 1
    if len(named) == 1 and last != to:
        ((_, netsor),) = choices(netsor, {named[0]: int(netsor.scalars[named[0]] or 0) + to - last})
    if netsor.families[name].ranges[slot][1] - 1 == to:
        return netsor
    raise fail(
        f"no constant alone says how far the index {index} goes, {index}: {declared.text}",
        declared.span,
        f"constants: {{L: {last}}} and {index}: {declared.start}..L in the program, so that to={to} can replace L",
    )


def _with_entropies(netsor: Netsor, index: str) -> tuple[Netsor, tuple[str, ...]]:
    """The program with a scalar for the entropy of each row of each softmax of scalars."""
    taken, added = netsor.taken, dict[str, Nonlin]()
    for statement in netsor.body:
        if not isinstance(statement, Nonlin) or index not in [slot.bare for slot in statement.target.slots]:
            continue
        for node in walk(statement.expr):
            if not isinstance(node, Reduction) or node.reducer != "softmax" or node.at:
                continue
            if {netsor.families[variable.name].kind for variable in variables(node.arg)} == {"scalar"}:
                row = call("negative", Reduction("sum", node.indices, node * call("log", call("maximum", node, LEAST))))
                own = unused(f"attention_entropy_{len(added)}", taken)
                free = [index, *(other for other in free_indices(row) if other != index)]
                added[own] = Nonlin(Variable(own, slots_of(free)), row)
    return (replace(netsor, body=(*netsor.body, *added.values())) if added else netsor), tuple(added)

"""What a depth profile is asked: a family, which of its indices counts layers and which tokens, and constants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail
from tensorprog.language.expr import (
    Affine,
    Reduction,
    Variable,
    call,
    free_indices,
    slots_of,
    variables,
    walk,
)
from tensorprog.language.ir import Netsor, Nonlin
from tensorprog.language.writing import pack, unpack
from tensorprog.limit.law.by_layer import Axes
from tensorprog.program import netsor_of

__all__ = ["NAME", "Attention", "Question", "Variant", "ask", "variant"]

Scalar = int | float
NAME = re.compile(r"[A-Za-z_]\w*")
LEAST = 1e-300  # weights of attention below it add nothing to an entropy


@dataclass(frozen=True)
class Attention:
    """Weights of attention in the program: the family of their entropies, and the layer that each belongs to."""

    name: str
    form: Affine | None  # the layer, a form of the index in the first slot of the family; None for all layers alike
    start: int  # of that index


@dataclass(frozen=True)
class Variant:
    """Values of the constants, the program that has them, and the same with entropies of attention."""

    position: tuple[int, ...]
    values: tuple[tuple[str, Scalar], ...]
    netsor: Netsor
    larger: Netsor = field(repr=False)
    attention: tuple[Attention, ...]
    backward: Netsor | None = field(default=None, repr=False)  # the adjoint program, if gradients are asked for

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self.values)


@dataclass(frozen=True)
class Question:
    """A depth profile that can be computed: the family and its indices, its layers, and each choice of constants."""

    base: Netsor
    axes: Axes
    index: str
    token: str  # empty for a family of single vectors
    tokens: int
    layers: tuple[int, ...]
    over: tuple[tuple[str, tuple[Scalar, ...]], ...]
    choices: tuple[Variant, ...]
    gradients: bool = False

    @property
    def gradient(self) -> Axes:
        """The family of gradients, whose members are those of the family."""
        return replace(self.axes, name=f"grad_{self.axes.name}")


def ask(
    program: Any,
    name: str,
    index: str | None = None,
    to: int | None = None,
    over: Mapping[str, Any] | None = None,
    tokens: str | None = None,
    gradients: bool = False,
) -> Question:
    """Read and check what is asked of a program, with `gradients` also of its adjoint program.

    Raises    ProgramError with place and advice
    """
    base = netsor_of(program, "a depth profile")
    slot, declared = _layer_index(base, name, index)
    if to is not None:
        base = _deeper(base, name, slot, declared, to)
    token, token_name = _token_index(base, name, slot, tokens)
    wanted = {key: _listed(base, key, values, declared) for key, values in (over or {}).items()}
    choices = tuple(_choices(base, wanted, name, slot, gradients))
    ranges = {choice.netsor.families[name].ranges[slot] for choice in choices}
    if len(ranges) > 1:
        raise fail(
            f"{', '.join(wanted)} changes how many layers {name} has",
            fix="the number of layers with to=, --to in a command, and other constants in over",
        )
    first = choices[0].netsor.families[name].ranges
    return Question(
        base,
        Axes(name, slot, token),
        declared,
        token_name,
        1 if token is None else first[token][1] - first[token][0],
        tuple(range(*first[slot])),
        tuple(wanted.items()),
        choices,
        gradients,
    )


# ---- the indices ----------------------------------------------------------------------------------------------------


def _slots(netsor: Netsor, name: str) -> list[str]:
    """Names of the indices of a family: those that stand alone in its definitions, else empty."""
    family = netsor.families[name]
    targets = [netsor.body[position].target.slots for position in family.statements]
    found = [""] * len(family.ranges)
    for slots in targets:
        found = [known or (slot.bare or "") for known, slot in zip(found, slots, strict=True)]
    initial = next((entry for entry in netsor.initial if entry.name == name), None)
    return found if initial is None else list(initial.indices)


def _layer_index(netsor: Netsor, name: str, index: str | None) -> tuple[int, str]:
    """Slot and name of the index that counts layers."""
    family = netsor.families.get(name) if isinstance(name, str) else None
    if family is None or family.kind != "vector":
        known = [key for key, value in netsor.families.items() if value.kind == "vector" and value.ranges]
        what = "a scalar" if family is not None and family.kind == "scalar" else "no vector of the program"
        whole = str(name).partition("[")[0].strip()
        raise fail(
            f"{name} is {what}: a depth profile is of a family of vectors, by its name",
            _span(netsor, name),
            whole if whole in known else did_you_mean(str(name), known),
        )
    slots = _slots(netsor, name)
    if not slots:
        known = [key for key, value in netsor.families.items() if value.kind == "vector" and value.ranges]
        raise fail(
            f"{name} is one vector without indices: nothing counts layers",
            _span(netsor, name),
            f"a family such as {', '.join(known)}" if known else f"a family {name}[t] with t: 1..L",
        )
    if index is None:
        recurring = {
            slot.bare
            for statement in netsor.body
            for slot in statement.target.slots
            if slot.bare and _reads_back(netsor, slot.bare)
        }
        found = [slot for slot in slots if slot in recurring]
        if not found:
            layered = [
                key
                for key, value in netsor.families.items()
                if value.kind == "vector" and recurring.intersection(_slots(netsor, key))
            ]
            said = f"{name} has no index that counts layers, along which each member is made from the one before"
            fix = (
                f"a family that has one: {', '.join(layered)}"
                if layered
                else (
                    f'layers along an index, as in x[l,i] = Nonlin(x[l - 1,i] + u[l,i]); or index="{slots[0] or "t"}", '
                    f"--index {slots[0] or 't'} in a command, where it counts layers all the same"
                )
            )
            raise fail(said, _span(netsor, name), fix)
        if len(found) > 1:
            raise fail(
                f"which index of {name} counts the layers is not clear: {' and '.join(found)} recur",
                _span(netsor, name),
                f'index="{found[0]}", --index {found[0]} in a command',
            )
        index = found[0]
    if index not in slots or not index:
        raise fail(
            f"{name} has no index {index}: its indices are {', '.join(filter(None, slots)) or 'numbers'}",
            _span(netsor, name),
            did_you_mean(index, [slot for slot in slots if slot]),
        )
    return slots.index(index), index


def _reads_back(netsor: Netsor, index: str) -> bool:
    """Whether a statement reads an earlier or later value of the index that it is written for."""
    for statement in netsor.body:
        if index in [slot.bare for slot in statement.target.slots]:
            for reference in statement.inputs:
                if any(index in slot.indices and slot.bare != index for slot in reference.slots):
                    return True
    return False


def _token_index(netsor: Netsor, name: str, layer: int, tokens: str | None) -> tuple[int | None, str]:
    """Slot and name of the index of tokens: that asked for, or else the last beside that of layers."""
    slots = _slots(netsor, name)
    others = [k for k in range(len(slots)) if k != layer]
    if tokens is not None:
        if tokens not in slots or slots.index(tokens) == layer:
            raise fail(
                f"{name} has no index {tokens} beside that of layers",
                _span(netsor, name),
                did_you_mean(tokens, [slots[k] for k in others if slots[k]]),
            )
        return slots.index(tokens), tokens
    return (others[-1], slots[others[-1]] or str(others[-1])) if others else (None, "")


def _span(netsor: Netsor, name: Any) -> Span:
    """Where a family is defined."""
    family = netsor.families.get(name) if isinstance(name, str) else None
    if family is None:
        return Span()
    if family.statements:
        return netsor.body[family.statements[-1]].span
    return next((entry.span for entry in netsor.initial if entry.name == name), Span())


def _deeper(netsor: Netsor, name: str, slot: int, index: str, to: Any) -> Netsor:
    """The program with so many layers: the constant in the range of the index has another value."""
    if isinstance(to, bool) or not hasattr(to, "__index__") or to < 1:
        raise fail(f"to must be a whole number of at least 1, not {to!r}")
    declared, to = netsor.index[index], int(to)
    last = netsor.families[name].ranges[slot][1] - 1
    if last == to:
        return netsor
    named = [word for word in dict.fromkeys(NAME.findall(declared.text)) if word in netsor.scalars]
    if len(named) != 1:
        what = f"{' and '.join(named)} do both" if named else "it is written with numbers alone"
        raise fail(
            f"no constant alone says how far the index {index} goes, {index}: {declared.text}: {what}",
            declared.span,
            f"constants: {{L: {last}}} and {index}: {declared.start}..L in the program, so that to={to} can replace L",
        )
    (constant,) = named
    value = netsor.scalars[constant]
    wanted = to if not isinstance(value, int | float) else int(value) + to - last
    found = _with(netsor, {constant: wanted})
    reached = found.families[name].ranges[slot][1] - 1
    if reached != to:
        raise fail(
            f"with {constant} = {wanted} the layers of {name} end at {reached}, not at {to}",
            declared.span,
            f"{index}: {declared.start}..{constant} in the program",
        )
    return found


def variant(question: Question, values: Mapping[str, Scalar]) -> Variant:
    """The program with other values of constants.

    Raises    ProgramError where it has other layers then
    """
    netsor = _with(question.base, values)
    name, slot = question.axes.name, question.axes.layer
    if tuple(range(*netsor.families[name].ranges[slot])) != question.layers:
        raise fail(
            f"{', '.join(values)} changes how many layers {name} has: a quantity is looked for at one of them",
            question.base.index[question.index].span,
        )
    return _variant((), tuple(values.items()), netsor, name, slot, question.gradients)


def _variant(
    position: tuple[int, ...],
    values: tuple[tuple[str, Scalar], ...],
    netsor: Netsor,
    name: str,
    slot: int,
    gradients: bool,
) -> Variant:
    """The programs of one choice of constants."""
    backward: Netsor | None = None
    if gradients:
        from tensorprog.gradients.assembly import adjoint

        backward = adjoint(netsor)
        if f"grad_{name}" not in backward.families:
            raise fail(f"no output of {netsor.name} depends on {name}: there are no gradients", _span(netsor, name))
    return Variant(position, values, netsor, *_with_entropies(netsor, name, slot), backward)


def _with(netsor: Netsor, values: Mapping[str, Any]) -> Netsor:
    """The program with other values of constants."""
    text, tables = pack(netsor)
    return unpack(text, tables, dict(values)) if values else netsor


# ---- constants ------------------------------------------------------------------------------------------------------


def _listed(netsor: Netsor, name: str, values: Any, index: str) -> tuple[Any, ...]:
    """The values of one constant."""
    if netsor.scalars.get(name) is None:
        known = [key for key, value in netsor.scalars.items() if value is not None]
        raise fail(f"{name} is not a constant of {netsor.name} that has one number", fix=did_you_mean(name, known))
    if name == "layer":
        raise fail(
            "the constant layer cannot be varied: the result has an axis of that name",
            fix="give it another name in the program",
        )
    given = [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    found = tuple(dict.fromkeys(value.item() if isinstance(value, np.generic) else value for value in given))
    if not found:
        raise fail(f"no values of {name} are given")
    return found


def _choices(
    base: Netsor, wanted: dict[str, tuple[Any, ...]], name: str, slot: int, gradients: bool
) -> Iterable[Variant]:
    """The program of each choice of values, which stand in `wanted` as numbers afterwards."""
    numbers: dict[str, list[Scalar]] = {key: [] for key in wanted}
    found = []
    for position in itertools.product(*(range(len(values)) for values in wanted.values())):
        overrides = {key: values[k] for (key, values), k in zip(wanted.items(), position, strict=True)}
        try:
            netsor = _with(base, overrides)
        except ProgramError as error:
            said = ", ".join(f"{key}={value}" for key, value in overrides.items())
            raise ProgramError(
                [Problem(f"with {said}: {problem.message}", problem.span, problem.fix) for problem in error.problems]
            ) from None
        values = tuple((key, netsor.scalars[key] or 0) for key in wanted)
        found.append(_variant(position, values, netsor, name, slot, gradients))
    for choice in found:
        for (key, value), place in zip(choice.values, choice.position, strict=True):
            if place == len(numbers[key]):
                numbers[key].append(value)
    wanted.update({key: tuple(values) for key, values in numbers.items()})
    return found


# ---- entropies of attention -----------------------------------------------------------------------------------------


def _with_entropies(netsor: Netsor, name: str, slot: int) -> tuple[Netsor, tuple[Attention, ...]]:
    """The program with a scalar for the entropy of each row of each softmax of scalars."""
    index = _slots(netsor, name)[slot]
    taken = {*netsor.families, *netsor.constant, *netsor.index}
    added, found = list[Nonlin](), list[Attention]()
    for statement in netsor.body:
        layers = [form for form in statement.target.slots if index in form.indices]
        if not isinstance(statement, Nonlin) or len(layers) != 1:
            continue
        for node in walk(statement.expr):
            if not isinstance(node, Reduction) or node.reducer != "softmax" or node.at:
                continue
            read = [netsor.families[variable.name].kind for variable in variables(node.arg)]
            if not read or set(read) != {"scalar"}:
                continue
            row = call("negative", Reduction("sum", node.indices, node * call("log", call("maximum", node, LEAST))))
            free = sorted(free_indices(row), key=lambda other: other != index)
            own = f"attention_entropy_{len(found)}"
            while own in taken:
                own += "_"
            added.append(Nonlin(Variable(own, slots_of(free)), row))
            whole = index in free
            found.append(Attention(own, layers[0] if whole else None, netsor.index[index].start))
    return (replace(netsor, body=(*netsor.body, *added)) if added else netsor), tuple(found)

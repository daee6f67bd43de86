"""What a depth profile is asked: a family, which of its indices counts layers and which tokens, and constants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tensorprog.jobs.choices import choices, with_constants
from tensorprog.language.errors import Span, did_you_mean, fail
from tensorprog.language.expr import Affine, Reduction, Variable, call, free_indices, slots_of, variables, walk
from tensorprog.language.ir import Netsor, Nonlin
from tensorprog.limit.law.by_layer import Axes
from tensorprog.program import netsor_of

__all__ = ["NAME", "Attention", "Question", "Variant", "ask", "variant"]

Scalar = int | float
NAME = re.compile(r"[A-Za-z_]\w*")
LEAST = 1e-300  # weights of attention below it add nothing to an entropy
TAKEN = ("layer", "width")  # axes of results


@dataclass(frozen=True)
class Attention:
    """Weights of attention in the program: the family of their entropies, and the layer that each belongs to."""

    name: str
    form: Affine | None  # the layer, a form of the index in the first slot of the family; None for all layers alike
    start: int  # of that index


@dataclass(frozen=True)
class Variant:
    """Values of the constants, the program that has them, and the same with entropies of attention."""

    values: tuple[tuple[str, Scalar], ...]
    netsor: Netsor = field(compare=False)
    larger: Netsor = field(repr=False, compare=False)
    attention: tuple[Attention, ...] = field(compare=False)
    backward: Netsor | None = field(default=None, repr=False, compare=False)  # the adjoint program, for gradients

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
    variants: tuple[Variant, ...]
    gradients: bool = False

    @property
    def gradient(self) -> Axes:
        """The family of gradients, whose members are those of the family."""
        return replace(self.axes, name=f"grad_{self.axes.name}")

    @property
    def over(self) -> dict[str, list[Scalar]]:
        """The constants varied, with their values."""
        names = [name for name, _ in self.variants[0].values]
        return {name: list(dict.fromkeys(dict(each.values)[name] for each in self.variants)) for name in names}


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
    slots = _slots(base, name)
    others = [k for k in range(len(slots)) if k != slot]
    if tokens is not None and tokens not in [slots[k] for k in others]:
        known = [slots[k] for k in others if slots[k]]
        raise fail(
            f"{name} has no index {tokens} beside that of layers", _span(base, name), did_you_mean(tokens, known)
        )
    token = slots.index(tokens) if tokens is not None else others[-1] if others else None
    ranges = base.families[name].ranges
    question = Question(
        base,
        Axes(name, slot, token),
        declared,
        "" if token is None else slots[token] or str(token),
        1 if token is None else ranges[token][1] - ranges[token][0],
        tuple(range(*ranges[slot])),
        (),
        gradients,
    )
    picked = choices(base, over, TAKEN)
    return replace(question, variants=tuple(_variant(question, choice.values, choice.netsor) for choice in picked))


# ---- the indices ----------------------------------------------------------------------------------------------------


def _slots(netsor: Netsor, name: str) -> list[str]:
    """Names of the indices of a family: those that stand alone in its definitions, else empty."""
    family = netsor.families[name]
    initial = next((entry for entry in netsor.initial if entry.name == name), None)
    if initial is not None:
        return list(initial.indices)
    found = [""] * len(family.ranges)
    for position in family.statements:
        slots = netsor.body[position].target.slots
        found = [known or (slot.bare or "") for known, slot in zip(found, slots, strict=True)]
    return found


def _layer_index(netsor: Netsor, name: str, index: str | None) -> tuple[int, str]:
    """Slot and name of the index that counts layers: that asked for, or the one that recurs."""
    family = netsor.families.get(name) if isinstance(name, str) else None
    vectors = [key for key, value in netsor.families.items() if value.kind == "vector" and value.ranges]
    if family is None or family.kind != "vector":
        what = "a scalar" if family is not None and family.kind == "scalar" else "no vector of the program"
        raise fail(
            f"{name} is {what}: a depth profile is of a family of vectors, by its name",
            _span(netsor, name),
            did_you_mean(str(name).partition("[")[0].strip(), vectors),
        )
    slots = _slots(netsor, name)
    if index is None:
        recurring = {
            slot.bare
            for statement in netsor.body
            for slot in statement.target.slots
            if slot.bare and _reads_back(netsor, slot.bare)
        }
        found = [slot for slot in slots if slot in recurring]
        if not found:
            layered = [key for key in vectors if recurring.intersection(_slots(netsor, key))]
            other = "layers along an index, as in x[l,i] = Nonlin(x[l - 1,i] + u[l,i])"
            raise fail(
                f"{name} has no index that counts layers, along which each member is made from the one before",
                _span(netsor, name),
                f"a family that has one: {', '.join(layered)}"
                if layered
                else f"{other}; or index=, --index, if it has",
            )
        if len(found) > 1:
            raise fail(
                f"which index of {name} counts the layers is not clear: {' and '.join(found)} recur",
                _span(netsor, name),
                f'index="{found[0]}", --index {found[0]} in a command',
            )
        index = found[0]
    if index not in slots or not index:
        known = [slot for slot in slots if slot]
        raise fail(
            f"{name} has no index {index}: its indices are {', '.join(known) or 'numbers'}",
            _span(netsor, name),
            did_you_mean(index, known),
        )
    return slots.index(index), index


def _reads_back(netsor: Netsor, index: str) -> bool:
    """Whether a statement reads an earlier or later value of the index that it is written for."""
    return any(
        index in slot.indices and slot.bare != index
        for statement in netsor.body
        if index in [slot.bare for slot in statement.target.slots]
        for reference in statement.inputs
        for slot in reference.slots
    )


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
    if len(named) == 1:
        value = netsor.scalars[named[0]]
        found = with_constants(netsor, {named[0]: int(value) + to - last if isinstance(value, int | float) else to})
        if found.families[name].ranges[slot][1] - 1 == to:
            return found
    raise fail(
        f"no constant alone says how far the index {index} goes, {index}: {declared.text}",
        declared.span,
        f"constants: {{L: {last}}} and {index}: {declared.start}..L in the program, so that to={to} can replace L",
    )


# ---- the program of each choice --------------------------------------------------------------------------------------


def variant(question: Question, values: Mapping[str, Scalar]) -> Variant:
    """The program with other values of constants.

    Raises    ProgramError where it has other layers then
    """
    return _variant(question, tuple(values.items()), with_constants(question.base, values))


def _variant(question: Question, values: tuple[tuple[str, Scalar], ...], netsor: Netsor) -> Variant:
    """The programs of one choice of constants."""
    name, slot = question.axes.name, question.axes.layer
    if tuple(range(*netsor.families[name].ranges[slot])) != question.layers:
        raise fail(
            f"{', '.join(key for key, _ in values)} changes how many layers {name} has",
            question.base.index[question.index].span,
            "the number of layers with to=, --to in a command, and other constants",
        )
    backward: Netsor | None = None
    if question.gradients:
        from tensorprog.gradients.assembly import adjoint

        backward = adjoint(netsor)
        if f"grad_{name}" not in backward.families:
            raise fail(f"no output of {netsor.name} depends on {name}: there are no gradients", _span(netsor, name))
    return Variant(values, netsor, *_with_entropies(netsor, name, slot), backward)


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

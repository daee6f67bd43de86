"""A torch module as a program: captured, translated, folded, written and read."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tensorprog.importing import convolutions, elementwise, layers, recurrent, views
from tensorprog.importing.agreement import AtWidth, compared_at
from tensorprog.importing.capture import Captured, Operation, capture, frozen_at
from tensorprog.importing.families import finished, folded, pruned, separated
from tensorprog.importing.operations import RULES, Rule, TracedCall
from tensorprog.importing.refusals import InvalidText, Refusal, refusal
from tensorprog.importing.sketch import Again, Decisions, Sketch, place_of
from tensorprog.importing.text import named
from tensorprog.importing.values import FixedTensor, Traced
from tensorprog.language.errors import ProgramError, check_count, fail
from tensorprog.language.expr import Variable, slots_of, variables
from tensorprog.language.ir import Nonlin
from tensorprog.language.writing import FOLDER, pack
from tensorprog.program import Program
from tensorprog.results.imported import Fate, Imported

__all__ = ["imported_program", "translated"]

TABLES = (convolutions, elementwise, layers, recurrent, views)  # whose rules are entered when they are imported
MAX_READINGS = 10_000


def translated(
    captured: Captured, at: int | None, exact: bool = False, decisions: Decisions | None = None
) -> tuple[Sketch, Traced]:
    """The statements of a module, and the tensor that it returns; with `exact` what the language writes as the limit
    of what the module has, such as a random number for all coordinates, is as the module has it at each width.
    Decisions of an earlier reading hold for other laws of parameters too.

    Raises    ProgramError for what cannot be imported
    """
    decisions = decisions or Decisions()
    for _ in range(MAX_READINGS):
        try:
            return _read(captured, decisions, at, exact)
        except Again:
            continue
    raise AssertionError("axes are split without end")


def _read(captured: Captured, decisions: Decisions, at: int | None, exact: bool) -> tuple[Sketch, Traced]:
    sketch = Sketch(captured, decisions, at, exact)
    tensors: dict[str, object] = {
        name: FixedTensor(pair) if hasattr(pair[0], "shape") else pair[0] for name, pair in captured.known.items()
    }
    tensors |= {node: sketch.parameter(captured.copies.get(node, node)) for node in captured.parameters}
    if captured.copies:
        sketch.note(
            "some parameters begin as copies of others, the same random numbers, and are one weight here "
            "(layers of nn.TransformerEncoder are copies of the one that is given to it)"
        )
    if captured.statistics:
        sketch.note("batch normalisation is that of evaluation: by its statistics as they begin, mean 0 and variance 1")
    places = {operation.name: operation.place.path for operation in captured.operations}
    blocks = {path[: match.end()] for path in places.values() for match in re.finditer(r"(^|\.)\d+(?=\.)", path)}
    for operation in captured.operations:
        sketch.place, sketch.operation = operation.place, operation.name
        rule = RULES.get(operation.kind)
        if rule is None:
            close = difflib.get_close_matches(operation.kind, RULES, 1, 0.75)
            raise refusal(
                operation.place,
                "there is no rule for this operation",
                f"write it with other operations{f', such as {close[0]}' if close else ''}",
            )
        result = _applied(rule, sketch, TracedCall(operation, tensors))
        if isinstance(result, Traced) and not result.parameter and not result.outer and len(result.widths) > 1:
            raise sketch.two_widths()
        named = len(operation.users) > 1 or operation.name == captured.result or _leaves(operation, places, blocks)
        if named and isinstance(result, Traced) and result.inner is None and not result.parameter and not result.outer:
            result = sketch.named(result) if result.expr.children else result
        tensors[operation.name] = result
    found = tensors[captured.result]
    if not isinstance(found, Traced):
        raise refusal(
            sketch.place,
            "what the module returns does not depend on its random parameters",
            "return a tensor that does",
        )
    value = sketch.settled(found)
    if captured.results > 1:
        sketch.note(f"the module returns {captured.results} tensors, of which the first is here")
    if value.power:
        if at:
            value = sketch.level(value, "the output")
        else:
            sketch.note(f"the output of the module grows like n**({value.power}); the program gives it divided by that")
    if variables(value.expr):
        return sketch, sketch.named(value)
    slots = slots_of([atom.name for atom in value.atoms if not atom.is_width])  # a number, as of a head of zeros
    width = sketch.width(sketch.ratio(value.widths[0])) if value.widths else ""
    return sketch, replace(value, expr=sketch.state(Nonlin, value.expr, role="fixed", slots=slots, width=width))


def _applied(rule: Rule, sketch: Sketch, operation: TracedCall) -> Any:
    """What a rule makes of an operation; a form of it that the rule does not expect is refused."""
    try:
        return rule(sketch, operation)
    except (Again, Refusal):
        raise
    except (ProgramError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refusal(
            sketch.place,
            f"its rule does not know this form of it ({type(error).__name__}: {error})",
            "write it in its plainest form, or with other operations",
        ) from error


def _leaves(operation: Operation, places: Mapping[str, str], blocks: Collection[str]) -> bool:
    """Whether a result is read outside of the block of layers that made it."""

    def block(path: str) -> str:
        return max((name for name in blocks if f"{path}.".startswith(f"{name}.")), key=len, default="")

    own = block(operation.place.path)
    return bool(own) and any(block(places.get(user, "")) != own for user in operation.users)


def imported_program(
    make: Callable[[int], Any], inputs: Any, widths: Sequence[int], at: int | None, name: str, check: bool = True
) -> Program:
    """What `from_torch` gives."""
    one, other = _two(widths)
    if at is not None:
        check_count("at", at, 2)
    captured = capture(make, inputs, (one, other), at)
    fold = True
    try:
        chosen, first, _ = _made(captured, at, name, fold)
    except InvalidText:  # of layers that are alike, but cannot be told as one
        fold = False
        chosen, first, _ = _made(captured, at, name, fold)

    def at_width(width: int) -> AtWidth | None:
        own = frozen_at(captured, make, width)
        if own is None:
            return None
        program, sketch, value = _made(own, width, name, fold, first.decisions, exact=True)
        assert program.imported is not None
        return AtWidth(program, program.imported.layout, bool(value.copies), frozenset(sketch.as_gaussian), own)

    told = chosen.imported
    if check and told is not None and (why := compared_at(make, inputs, (one, other), at_width)):
        note = f"the program was not compared with the module at small widths: {why}"
        chosen.imported = replace(told, notes=(*told.notes, note))
    return chosen


def _made(
    captured: Captured,
    at: int | None,
    name: str,
    fold: bool,
    decisions: Decisions | None = None,
    exact: bool = False,
) -> tuple[Program, Sketch, Traced]:
    """The program of a module, with layers that are alike as an index or written out; its sketch, and the output."""
    one, other = captured.widths
    sketch, value = translated(captured, at, exact, decisions)
    result = separated(sketch, value.expr)
    pruned(sketch, result)
    if fold:
        result = folded(sketch, result)
        pruned(sketch, result)
    result = finished(sketch, result)
    if not fold:
        sketch.note("layers are written out one by one: they are alike, but no family of the language")
    netsor, names = named(sketch, result, _name(name or captured.module), f"{captured.module} at initialisation")
    at_n = f"; variances as they are at n = {at}." if at else "."
    told = (line for note in sketch.notes for line in textwrap.wrap(f"{note[0].upper()}{note[1:]}.", 110))
    head = [f"Imported from the torch module {captured.module} at widths {one} and {other}{at_n}"]
    text, arrays = pack(netsor)
    program = Program.from_netsor(netsor)
    program.imported = Imported(
        captured.module,
        (one, other),
        at,
        tuple(_fates(captured, sketch, names)),
        tuple(sketch.notes),
        "".join(f"# {comment}\n" for comment in (*head, *told)) + text,
        {key.removeprefix(FOLDER): array for key, array in arrays.items()},
        value.power,
        _layout(value),
    )
    return program, sketch, value


def _two(widths: Sequence[int]) -> tuple[int, int]:
    if len(tuple(widths)) != 2:
        raise fail(f"widths are two numbers, not {widths!r}", fix="widths=(64, 128)")
    one, other = sorted(check_count("a width", width, 2) for width in widths)
    if one == other:
        raise fail("the two widths are equal", fix="widths=(64, 128)")
    return one, other


def _name(text: str) -> str:
    name = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", text)).strip("_").lower()
    return name if name and not name[0].isdigit() else f"module_{name}".rstrip("_")


def _fates(captured: Captured, sketch: Sketch, names: Mapping[str, str]) -> list[Fate]:
    """What became of each parameter; those of layers that are one family are found by the first layer's."""
    became: dict[str, list[str]] = {}
    layers = {atom.name for atom in sketch.layers}
    for record in sketch.declared.values():
        parameter = place_of(record).parameter
        key = _starred(parameter) if layers & {*record.indices} else parameter
        became.setdefault(key, []).append(names[record.name])
    found = []
    for node, entry in captured.parameters.items():
        first = captured.parameters[captured.copies.get(node, node)].name
        exponent = sketch.exponents.get(first, Fraction(0))
        told = became.get(entry.name) or became.get(_starred(entry.name)) or []
        text = ", ".join(dict.fromkeys(told)) or "not used"
        if first != entry.name:
            text = f"a copy of {first}"
        elif not told and exponent < 0 and not sketch.at:
            text = "left out: it vanishes"
        one, other = entry.laws
        found.append(Fate(entry.name, str(entry.law), text, exponent, (one.variance, other.variance), one.gaussian))
    return found + [Fate(name, law, "a number") for name, law in captured.constants.items()]


def _starred(path: str) -> str:
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path, count=1)


def _layout(value: Traced) -> tuple[tuple[int, int, int], ...]:
    """For each atom of the output's axes: axis, place in the family (-1: none), and size (0: of a width)."""
    assert isinstance(value.expr, Variable)
    order = [slot.indices[0] for slot in value.expr.slots if slot.terms]
    found: list[tuple[int, int, int]] = []
    for axis, atoms in enumerate(value.axes):
        for atom in atoms:
            place = order.index(atom.name) if atom.name in order else -1
            found.append((axis, place, 0 if atom.is_width else atom.size))
        if not atoms:
            found.append((axis, -1, 1))
    return tuple(found)

"""`from_torch`: a torch module as a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tensorprog.importing.capture import Captured, capture
from tensorprog.importing.folding import finished, folded, pruned, separated
from tensorprog.importing.laws import Pieces
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.text import Written
from tensorprog.importing.translation import translated
from tensorprog.importing.values import Value
from tensorprog.language.errors import check_count, fail
from tensorprog.language.expr import Variable
from tensorprog.language.reading import loads
from tensorprog.program import Program
from tensorprog.results.imported import Fate, Imported

__all__ = ["from_torch"]


def from_torch(
    make: Callable[[int], Any], inputs: Any, widths: Sequence[int] = (64, 128), at: int | None = None, name: str = "",
) -> Program:
    """The program of a torch module as it is at initialisation; its `imported` says what each parameter became.

    `make(n)` gives the `torch.nn.Module` of width n; `inputs` is a tensor, an array, a tuple of these, or a function
    of n that gives them.  The module is traced at two widths: axes whose sizes differ are widths, all others become
    indices.  Laws of parameters are those that the module's own initialisers draw from.  With `at`, a width, variances
    are taken as they are there; without, what vanishes with n is left out, and what diverges is refused.

    Accuracy  hidden weights that are not Gaussian are taken as Gaussian of the same variance, which the limit does not
              see; laws of vectors that are not exactly kept are named in the notes of `imported`
    Raises    ProgramError with the path of the module, the operation, its source line, and what to write instead
    """
    one, other = _two(widths)
    if at is not None:
        check_count("at", at, 2)
    captured = capture(make, inputs, (one, other), at)
    sketch, value = translated(captured, at)
    result = separated(sketch, value.expr)
    pruned(sketch, result)
    result = folded(sketch, result)
    pruned(sketch, result)
    result = finished(sketch, result)
    fates = _fates(captured, sketch)
    title = f"{captured.module or 'A module'} at initialisation"
    comments = [f"Imported from the torch module {captured.module} at widths {one} and {other}" +
                (f"; variances as they are at n = {at}." if at else "."), *_wrapped(sketch.notes)]
    written = Written(sketch, result, _name(name or captured.module), title, comments)
    program = Program.from_netsor(loads(written.text, base=written.arrays))
    became = {fate.parameter: replace(fate, became=written.became(fate.parameter) or fate.became) for fate in fates}
    layout = _layout(value)
    program.imported = Imported(captured.module, (one, other), at, tuple(became.values()), tuple(sketch.notes),
                                written.text, written.arrays, layout)
    return program


def _two(widths: Sequence[int]) -> tuple[int, int]:
    if len(tuple(widths)) != 2:
        raise fail(f"widths are two numbers, not {widths!r}", fix="widths=(64, 128)")
    one, other = sorted(check_count("a width", width, 2) for width in widths)
    if one == other:
        raise fail("the two widths are equal", fix="widths=(64, 128)")
    return one, other


def _name(text: str) -> str:
    name = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)).strip("_").lower()
    return name if name and not name[0].isdigit() else f"module_{name}".rstrip("_")


def _wrapped(notes: Sequence[str]) -> list[str]:
    import textwrap

    return [line for note in notes for line in textwrap.wrap(f"{note[0].upper()}{note[1:]}.", 110)]


def _shown(pieces: Pieces) -> str:
    laws = list(dict.fromkeys(str(law) for *_, law in pieces))
    return laws[0] if len(laws) == 1 else ", ".join(laws)


def _fates(captured: Captured, sketch: Sketch) -> list[Fate]:
    found = []
    for parameter in captured.parameters.values():
        exponent = sketch.exponents.get(parameter.name, Fraction(0))
        law = _shown(parameter.frozen or parameter.laws[0])
        vanishes = exponent < 0 and not sketch.at
        found.append(Fate(parameter.name, law, "left out: it vanishes" if vanishes else "not used", exponent))
    found += [Fate(name, law, "a number") for name, law in captured.constants.items()]
    return found


def _layout(value: Value) -> tuple[tuple[int, int, int], ...]:
    """For each atom of the output's axes: axis, place in the family (-1: none), and size (0: of a width)."""
    assert isinstance(value.expr, Variable)
    order = [slot.indices[0] for slot in value.expr.slots if slot.terms]
    found: list[tuple[int, int, int]] = []
    for axis, atoms in enumerate(value.axes):
        for atom in atoms:
            found.append((axis, order.index(atom.name) if atom.name in order else -1, 0 if atom.is_width else atom.size))
        if not atoms:
            found.append((axis, -1, 1))
    return tuple(found)

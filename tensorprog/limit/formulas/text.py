"""Formulas as readable text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sympy.printing.str import StrPrinter

from tensorprog.language.expr import Affine
from tensorprog.limit.formulas.nodes import Entry
from tensorprog.limit.formulas.notation import pair_names, readable, sides
from tensorprog.limit.formulas.recursion import FormulaRecursion, IndexedFormulas
from tensorprog.limit.moment.indexed import Equations

__all__ = ["cases_text", "definitions", "formula_text", "label_text", "law_json", "law_text", "shown"]

LONG = 160  # characters of a formula beyond which those of earlier lines keep their names


class _TextPrinter(StrPrinter):  # type: ignore[misc]
    """Text with the names of the program."""

    def _print_Piecewise(self, expr: Any) -> str:
        """Conditions that stand for 0 or 1 as indicators."""
        (value, condition), (other, _) = expr.args[0], expr.args[-1]
        if len(expr.args) == 2 and (value, other) == (1, 0):
            return f"1[{self._print(condition)}]"
        return str(super()._print_Piecewise(expr))


def formula_text(formula: Any) -> str:
    """One formula."""
    return str(_TextPrinter().doprint(formula))


def shown(
    formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas, short: Callable[[Any], bool]
) -> dict[Equations, Any]:
    """Formulas in the indices of the program: written out where that is short, else with the names of earlier lines."""
    positions, found = pair_names(formulas.netsor, names), {}
    for key, value in cases.table.items():
        whole = formulas.expand(value)
        found[key] = readable(whole if short(whole) else value, positions)
    return found


def _shown(formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas) -> list[tuple[Equations, Any]]:
    """The most special cases first."""
    found = shown(formulas, names, cases, lambda whole: len(formula_text(whole)) <= LONG)
    return sorted(found.items(), key=lambda case: -len(case[0]))


def label_text(names: tuple[str, ...], positions: Mapping[str, str]) -> str:
    """x[i], or x[i], x[i_]."""
    found = []
    for copy, name in enumerate(names):
        own = [new for old, new in positions.items() if old.endswith("_") == bool(copy)]
        found.append(f"{name}[{','.join(own)}]" if own else name)
    return ", ".join(found)


def _condition(equation: Affine, names: Mapping[str, str]) -> str:
    return " = ".join(map(_form_text, sides(equation, names)))


def _form_text(form: Affine) -> str:
    text = " + ".join(f"{'' if c == 1 else f'{c}*'}{name}" for name, c in form.terms)
    if not form.offset or not text:
        return text or str(form.offset)
    return f"{text} {'+' if form.offset > 0 else '-'} {abs(form.offset)}"


def cases_text(
    formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas, written: set[str] | None = None
) -> str:
    """Every case on a line of its own, then the formulas that have names, but for those `written` already."""
    written = set() if written is None else written
    positions, found = pair_names(formulas.netsor, names), _shown(formulas, names, cases)
    lines = []
    for key, value in found:
        conditions = " and ".join(_condition(e, positions) for e in sorted(key, key=str))
        where = f"   where {conditions}" if key else "   otherwise" if len(found) > 1 else ""
        lines.append(f"{formula_text(value)}{where}")
    for entry, value in definitions(formulas, [value for _, value in found]):
        line = f"with {formula_text(entry)} = {formula_text(value)}"
        if line not in written:
            written.add(line)
            lines.append(line)
    return "\n".join(lines)


def definitions(formulas: FormulaRecursion, values: Iterable[Any]) -> list[tuple[Entry, Any]]:
    """Names that formulas use, each with its formula, those they use in turn included."""
    found: dict[tuple[str, str, int], tuple[Entry, Any]] = {}
    waiting = list(values)
    while waiting:
        for entry in sorted(waiting.pop(0).atoms(Entry), key=str):
            if entry.key not in found:
                symbols, value = formulas.definitions[entry.key]
                named = Entry(*entry.args[:3], *symbols)
                names = pair_names(formulas.netsor, entry.key[:2])
                found[entry.key] = (readable(named, names), readable(formulas.shallow(value), names))
                waiting.append(value)
    return list(found.values())


def _means_and_covariances(formulas: FormulaRecursion, name: str) -> dict[str, tuple[tuple[str, ...], IndexedFormulas]]:
    return {"mean": ((name,), formulas.mean(name)), "cov": ((name, name), formulas.cov(name, name))}


def law_text(formulas: FormulaRecursion) -> str:
    """Means and covariances of every family that the program defines, line by line."""
    blocks = []
    written: set[str] = set()
    for name in formulas.families:
        scalar = formulas.netsor.families[name].kind == "scalar" and name not in formulas.scores
        for what, (names, cases) in _means_and_covariances(formulas, name).items():
            if (what == "mean" and cases.zero() and not scalar) or (what == "cov" and scalar):
                continue
            label = label_text(names, pair_names(formulas.netsor, names))
            text = cases_text(formulas, names, cases, written).replace("\n", "\n    ")
            blocks.append(f"{what}({label}) =\n    {text}")
    return "\n".join(blocks)


def law_json(formulas: FormulaRecursion) -> dict[str, Any]:
    """The same as strings: for each family its mean and covariance as lists of cases."""

    def strings(names: tuple[str, ...], cases: IndexedFormulas) -> list[dict[str, Any]]:
        positions = pair_names(formulas.netsor, names)
        return [
            {
                "where": [_condition(e, positions) for e in sorted(key, key=str)],
                "formula": formula_text(readable(formulas.expand(cases.table[key]), positions)),
            }
            for key in sorted(cases.table, key=len, reverse=True)
        ]

    return {
        name: {what: strings(*found) for what, found in _means_and_covariances(formulas, name).items()}
        for name in formulas.families
    }

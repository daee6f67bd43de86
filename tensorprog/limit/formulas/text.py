"""Formulas as readable text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sympy.printing.str import StrPrinter

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Netsor
from tensorprog.limit.formulas.cases import IndexedFormulas
from tensorprog.limit.formulas.expectation import Entry
from tensorprog.limit.formulas.notation import pair_names, readable
from tensorprog.limit.formulas.recursion import FormulaRecursion
from tensorprog.limit.moment.indexed import Equations

__all__ = [
    "Formula", "FormulaLaw",
    "cases_text", "definitions", "formula_text", "label_text", "law_json", "law_text", "shown_cases",
]  # fmt: skip

LONG = 160  # characters of a formula beyond which those of earlier lines keep their names


class FormulaLaw(Protocol):
    """What printing reads of a law in formulas."""

    netsor: Netsor
    formulas: FormulaRecursion
    grade: str

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs."""

    @property
    def scores(self) -> Sequence[str]:
        """Names of the scores."""

    @property
    def families(self) -> Sequence[str]:
        """Names of vectors and scalars."""

    @property
    def symbols(self) -> Mapping[str, Any]:
        """Constants that are symbols."""

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear given the scores."""

    def mean(self, name: str) -> Formula:
        """E[Z]."""

    def cov(self, first: str, second: str | None = None) -> Formula:
        """Centred covariance."""

    def second_moment(self, first: str, second: str | None = None) -> Formula:
        """E[Z^f Z^g]."""

    def given_scores(self, first: str, second: str | None = None) -> Formula:
        """Cov(f, g | p-ring)."""

    def conditional_mean(self, name: str) -> Formula:
        """E[f | p-ring]."""

    def latex(self) -> str:
        """The derivation."""


class Formula(Protocol):
    """The formulas of one family, or of two."""

    @property
    def law(self) -> FormulaLaw:
        """Whose formulas they are."""

    @property
    def names(self) -> tuple[str, ...]:
        """The families."""

    @property
    def cases(self) -> IndexedFormulas:
        """The formulas in index symbols."""


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


def shown_cases(array: Formula) -> list[tuple[Equations, Any]]:
    """Formulas in the indices of the program, the most special cases first; long ones by the names of earlier lines."""
    formulas, names = array.law.formulas, pair_names(array.law.netsor, array.names)
    found = []
    for key in sorted(array.cases.table, key=len, reverse=True):
        value = array.cases.table[key]
        whole = formulas.expand(value)
        if len(formula_text(whole)) > LONG:
            whole = value
        found.append((key, readable(whole, names)))
    return found


def label_text(names: tuple[str, ...], positions: Mapping[str, str]) -> str:
    """x[i], or x[i], x[i_]."""
    found = []
    for copy, name in enumerate(names):
        own = [new for old, new in positions.items() if old.endswith("_") == bool(copy)]
        found.append(f"{name}[{','.join(own)}]" if own else name)
    return ", ".join(found)


def _condition(equation: Affine, names: Mapping[str, str]) -> str:
    left = [(names.get(name, name), c) for name, c in equation.terms if c > 0]
    right = [(names.get(name, name), -c) for name, c in equation.terms if c < 0]
    offset = -equation.offset
    sides = [" + ".join(f"{'' if c == 1 else f'{c}*'}{name}" for name, c in side) for side in (left, right)]
    if offset:
        sides[1] = f"{sides[1]} {'+' if offset > 0 else '-'} {abs(offset)}" if sides[1] else str(offset)
    return f"{sides[0]} = {sides[1] or 0}"


def cases_text(array: Formula, written: set[str] | None = None) -> str:
    """Every case on a line of its own, then the formulas that have names, but for those `written` already."""
    written = set() if written is None else written
    positions = pair_names(array.law.netsor, array.names)
    shown = shown_cases(array)
    lines = []
    for key, value in shown:
        conditions = " and ".join(_condition(e, positions) for e in sorted(key, key=str))
        where = f"   where {conditions}" if key else "   otherwise" if len(shown) > 1 else ""
        lines.append(f"{formula_text(value)}{where}")
    for entry, value in definitions(array.law, [value for _, value in shown]):
        line = f"with {formula_text(entry)} = {formula_text(value)}"
        if line not in written:
            written.add(line)
            lines.append(line)
    return "\n".join(lines)


def definitions(law: FormulaLaw, values: list[Any]) -> list[tuple[Entry, Any]]:
    """Names that formulas use, each with its formula, those they use in turn included."""
    found: dict[tuple[str, str, int], tuple[Entry, Any]] = {}
    waiting = list(values)
    while waiting:
        for entry in sorted(waiting.pop(0).atoms(Entry), key=str):
            if entry.key not in found:
                symbols, value = law.formulas.definitions[entry.key]
                named = Entry(*entry.args[:3], *symbols)
                names = pair_names(law.netsor, entry.key[:2])
                found[entry.key] = (readable(named, names), readable(law.formulas.shallow(value), names))
                waiting.append(value)
    return list(found.values())


def law_text(law: FormulaLaw) -> str:
    """Means and covariances of every family that the program defines, line by line."""
    blocks = []
    written: set[str] = set()
    for name in law.families:
        scalar = law.netsor.families[name].kind == "scalar" and name not in law.scores
        for what, array in (("mean", law.mean(name)), ("cov", law.cov(name))):
            zero = all(value == 0 for value in array.cases.table.values())
            if (what == "mean" and zero and not scalar) or (what == "cov" and scalar):
                continue
            label = label_text(array.names, pair_names(law.netsor, array.names))
            text = cases_text(array, written).replace("\n", "\n    ")
            blocks.append(f"{what}({label}) =\n    {text}")
    return "\n".join(blocks)


def law_json(law: FormulaLaw) -> dict[str, Any]:
    """The same as strings: for each family its mean and covariance as lists of cases, and the derivation."""

    def cases(array: Formula) -> list[dict[str, Any]]:
        positions = pair_names(law.netsor, array.names)
        return [
            {
                "where": [_condition(e, positions) for e in sorted(key, key=str)],
                "formula": formula_text(readable(law.formulas.expand(array.cases.table[key]), positions)),
            }
            for key, _ in shown_cases(array)
        ]

    families = {name: {"mean": cases(law.mean(name)), "cov": cases(law.cov(name))} for name in law.families}
    return {"symbols": list(law.symbols), "formulas": families, "latex": law.latex()}

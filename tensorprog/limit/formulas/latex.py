"""Formulas as LaTeX, with their conditions and the formulas that they use.

The text uses mathematics and plain sentences only, so that LaTeX and MathJax show the same; names of the program are
typeset as mathematics, and free text (title, reference) is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import sympy as sp
from sympy.printing.latex import LatexPrinter

from tensorprog.language.expr import Affine
from tensorprog.limit.formulas.expectation import Entry, Expectation
from tensorprog.limit.formulas.names import pair_names, readable, tex_name
from tensorprog.limit.formulas.statements import form_tex, reference_tex
from tensorprog.limit.formulas.text import definitions
from tensorprog.limit.moment.indexed import Equations

if TYPE_CHECKING:
    from tensorprog.limit.formulas.law import FormulaArray, SymbolicLaw

__all__ = ["cases_latex", "defined", "display", "displayed_cases", "left_side", "shown", "tex", "width"]

WIDE = 78  # characters of a displayed line
SHORT = 14  # of a moment that needs no letter of its own
EXPANDED = 60  # of a formula that is shown with all earlier lines written in


class _Printer(LatexPrinter):  # type: ignore[misc]
    """LaTeX with the names of the program."""

    def __init__(self) -> None:
        super().__init__({"inv_trig_style": "full", "ln_notation": False})

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        name = str(expr)
        return name if name.startswith("\\") else tex_name(name)

    def _print_Float(self, expr: Any) -> str:
        mantissa, _, exponent = f"{float(expr):.12g}".partition("e")
        return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

    def _print_Piecewise(self, expr: Any) -> str:
        """Conditions that stand for 0 or 1 as indicators."""
        (value, condition), (other, _) = expr.args[0], expr.args[-1]
        if len(expr.args) == 2 and (value, other) == (1, 0):
            return rf"\mathbf{{1}}\left[{self._print(condition)}\right]"
        return str(super()._print_Piecewise(expr))

    def _print_IndexSum(self, expr: Any) -> str:
        limits = r" \sum".join(f"_{{{self._print(i)}={a}}}^{{{b}}}" for i, a, b in expr.limits)
        inner = self._print(expr.function)
        return rf"\sum{limits} " + (rf"\left({inner}\right)" if expr.function.is_Add else inner)


def tex(formula: Any) -> str:
    """One formula."""
    return str(_Printer().doprint(formula))


def width(text: str) -> int:
    """About how many characters wide a formula is when typeset."""
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", lambda m: max(m[1], m[2], key=len), text)
    text = re.sub(r"\\(left|right|middle|operatorname|mathring|mathit|mathbb|quad|limits|begin|end)", "", text)
    return len(re.sub(r"[{}^_\s]", "", re.sub(r"\\[a-zA-Z]+", "x", text)))


def display(left: str, value: Any) -> str:
    """left = value as a displayed formula, broken over lines at sums, and at products where terms are long."""
    whole = tex(value)
    if width(left) + width(whole) <= WIDE:
        return rf"\[ {left} = {whole} \]"
    lines = [f"{left} ="]
    for number, term in enumerate(sp.Add.make_args(value)):
        for text in _pieces(term, bool(number)):
            if width(lines[-1]) + width(text) > WIDE:
                lines.append(rf"\quad {text}")
            else:
                lines[-1] += f" {text}"
    return r"\begin{multline*} " + " \\\\\n".join(lines) + r" \end{multline*}"


def _pieces(term: Any, later: bool) -> Iterator[str]:
    """A term of a sum, with its sign; one that is too long factor by factor."""
    text = tex(term)
    sign = "+ " if later and not text.startswith("-") else ""
    if width(text) <= WIDE or not term.is_Mul:
        yield sign + text
        return
    factors = [rf"\left({tex(f)}\right)" if f.is_Add else tex(f) for f in term.args]
    yield sign + factors[0]
    yield from (rf"\cdot {factor}" for factor in factors[1:])


# ---- cases ---------------------------------------------------------------------------------------------------------


def condition(equation: Affine, names: Mapping[str, str]) -> str:
    """An equation between indices."""
    sides = []
    for sign in (1, -1):
        terms = tuple((names.get(n, n), sign * c) for n, c in equation.terms if sign * c > 0)
        sides.append(form_tex(Affine(terms, 0 if sign == 1 else -equation.offset)))
    return " = ".join(sides)


def _delta(equations: Equations, names: Mapping[str, str]) -> str:
    """Kronecker deltas, or indicators of other equations."""
    found = []
    for equation in sorted(equations, key=str):
        plain = not equation.offset and sorted(c for _, c in equation.terms) == [-1, 1]
        if plain:
            found.append(rf"\delta_{{{condition(equation, names).replace(' = ', chr(32))}}}")
        else:
            found.append(rf"\mathbf{{1}}[{condition(equation, names)}]")
    return r"\,".join(found)


def displayed_cases(left: str, cases: Mapping[Equations, Any], names: Mapping[str, str]) -> str:
    """All cases: with Kronecker deltas where only one is not zero, else line by line."""
    order = sorted(cases, key=len, reverse=True)
    nonzero = [key for key in order if cases[key] != 0]
    if len(order) == 1 or not nonzero:
        return display(left, cases[order[0]])
    if len(nonzero) == 1:
        value = cases[nonzero[0]]
        mark = _delta(nonzero[0], names)
        if value == 1:
            return rf"\[ {left} = {mark} \]"
        text = tex(value)
        if value.is_Add:
            text = rf"\left({text}\right)"
        if width(left) + width(mark) + width(text) <= WIDE:
            return rf"\[ {left} = {mark}\, {text} \]"
    lines = []
    for key in order:
        where = ", ".join(condition(e, names) for e in sorted(key, key=str))
        lines.append(f"{tex(cases[key])} & " + (where or r"\text{otherwise}"))
    if max(map(width, lines)) + width(left) <= WIDE:
        return rf"\[ {left} = \begin{{cases}} " + r" \\ ".join(lines) + r" \end{cases} \]"
    found = []
    for key in order:
        where = ", ".join(condition(e, names) for e in sorted(key, key=str))
        intro = f"Where ${where}$:" if where else "Otherwise:"
        found += [intro, display(left, cases[key])]
    return "\n".join(found)


# ---- one formula with the names it uses ----------------------------------------------------------------------------


def shown(law: SymbolicLaw, array: FormulaArray) -> dict[Equations, Any]:
    """Formulas in the program's indices: written out where that is short, else with the names of earlier lines."""
    names = pair_names(law.netsor, array.names)
    found = {}
    for key, value in array.cases.table.items():
        whole = law.formulas.expand(value)
        found[key] = readable(whole if width(tex(whole)) <= EXPANDED else value, names)
    return found


def defined(law: SymbolicLaw, entry: Entry) -> Iterator[str]:
    """What the name of a formula stands for: its expectations, their moments by letters, and closed forms."""
    symbols, value = law.formulas.definitions[entry.key]
    names = pair_names(law.netsor, entry.key[:2])
    named = readable(Entry(*entry.args[:3], *symbols), names)
    value = readable(value, names)
    nodes = sorted(value.atoms(Expectation), key=str)
    nodes = [node for node in nodes if not any(node in other.args[1].atoms(Expectation) for other in nodes)]
    closed = law.formulas.shallow(value)
    if not closed.has(Expectation) and width(tex(closed)) <= EXPANDED:
        yield display(tex(named), closed)
        return
    letters = Letters(law.netsor.constant)
    replaced = value.xreplace({node: letters.short(node) for node in nodes})
    yield from letters.expectations(tex(named), replaced)
    with_closed = replaced.replace(lambda e: isinstance(e, Expectation), lambda e: e.closed())
    if with_closed != replaced:
        yield "In closed form" + (" as far as there is one" if with_closed.has(Expectation) else "")
        yield display(tex(named), with_closed)


class Letters:
    """Letters for long moments of the variables under an expectation."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.values: dict[Any, Any] = {}  # symbol -> what it stands for
        self._taken = set(taken)

    def short(self, node: Expectation) -> Expectation:
        """The expectation with long means, variances and covariances named."""
        factors, means, cov = node.args
        size = len(means)
        new_means = [self._letter(m, "m", k + 1, size, real=True) for k, m in enumerate(means)]
        named = {
            (a, b): self._letter(cov[a][b], "v" if a == b else "c", a + 1, size, positive=a == b)
            for a in range(size)
            for b in range(a, size)
        }
        rows = [[named[min(a, b), max(a, b)] for b in range(size)] for a in range(size)]
        return Expectation.of(factors, new_means, rows)

    def _letter(self, value: Any, letter: str, number: int, size: int, **kind: bool) -> Any:
        if width(tex(value)) <= SHORT and not value.has(Expectation):
            return value
        for symbol, known in self.values.items():
            if known == value:
                return symbol
        name = letter if size == 1 or (letter == "c" and size == 2) else f"{letter}_{number}"
        while name in self._taken:
            name = f"{name}0"
        self._taken.add(name)
        symbol = sp.Symbol(name, real=True, positive=True) if kind.get("positive") else sp.Symbol(name, real=True)
        self.values[symbol] = value
        return symbol

    def expectations(self, left: str, formula: Any) -> Iterator[str]:
        """left = formula, each expectation with the law of its variables, then what the letters stand for."""
        nodes = sorted(formula.atoms(Expectation), key=str)
        names = {node: sp.Symbol(f"e_{k + 1}") for k, node in enumerate(nodes)}
        if formula not in names:
            yield display(left, formula.xreplace(names))
            yield "where"
        for node, name in names.items():
            own = left if formula in names else tex(name)
            yield rf"\[ {own} = \mathbb{{E}}\left[{node.product_tex(_Printer())}\right] \]"
            yield rf"\[ {node.law_tex(_Printer())} \]"
        if self.values:
            yield "where"
            for symbol, value in self.values.items():
                yield display(tex(symbol), value)


def cases_latex(array: FormulaArray) -> str:
    """A covariance or mean with the formulas it uses."""
    law, names = array.law, pair_names(array.law.netsor, array.names)
    values = shown(law, array)
    found = [displayed_cases(left_side(array), values, names)]
    for entry, _ in definitions(law, list(values.values())):
        found += ["with", *defined(law, entry)]
    return "\n".join(found)


def left_side(array: FormulaArray, second_moment: bool = False) -> str:
    """What a covariance, second moment or mean is of."""
    law, families = array.law, array.names
    score = families[0] in law.scores
    variables = []
    for copy, name in enumerate(families):
        indices = pair_names(law.netsor, families)
        slots = [Affine(((new, 1),)) for old, new in indices.items() if old.endswith("_") == bool(copy)]
        base = reference_tex(name, slots)
        if score:
            place = ",".join(map(form_tex, slots))
            variables.append(rf"\mathring{{{tex_name(name)}}}" + (f"_{{{place}}}" if place else ""))
        else:
            variables.append(f"Z^{{{base}}}")
    if second_moment:
        return rf"\mathbb{{E}}\left[{'{}'.join(variables)}\right]"
    if len(variables) == 1:
        return rf"\mathbb{{E}}\left[{variables[0]}\right]"
    return rf"\operatorname{{Cov}}\left({', '.join(variables)}\right)"

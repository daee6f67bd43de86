"""Formulas as LaTeX, the derivation of a limit line by line, and the document around it.

Nodes print themselves (`nodes`), statements and references stand in `notation`.

The text uses mathematics and plain sentences only, so that LaTeX and MathJax show the same; names of the program are
typeset as mathematics, and free text (title, reference) is escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy as sp
from sympy.printing.latex import LatexPrinter

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Dot, MatMul, Statement
from tensorprog.limit.formulas.expectation import Expectation
from tensorprog.limit.formulas.nodes import Entry
from tensorprog.limit.formulas.notation import (
    form_tex,
    initial_tex,
    pair_names,
    readable,
    reference_tex,
    sides,
    statement_tex,
    tex_name,
)
from tensorprog.limit.formulas.recursion import FormulaRecursion, IndexedFormulas
from tensorprog.limit.formulas.text import definitions, shown
from tensorprog.limit.moment.indexed import Equations

__all__ = ["NOTATION", "blocks", "cases_latex", "document", "escaped"]

WIDE = 78  # characters of a displayed line
SHORT = 14  # of a moment that needs no letter of its own
EXPANDED = 60  # of a formula that is shown with all earlier lines written in


class _TexPrinter(LatexPrinter):  # type: ignore[misc]
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
    return str(_TexPrinter().doprint(formula))


def width(text: str) -> int:
    """About how many characters wide a formula is when typeset."""
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", lambda m: max(m[1], m[2], key=len), text)
    text = re.sub(r"\\(left|right|middle|operatorname|mathring|mathit|mathbb|quad|limits|begin|end)", "", text)
    return len(re.sub(r"[{}^_\s]", "", re.sub(r"\\[a-zA-Z]+", "x", text)))


def display(left: str, value: Any) -> str:
    """left = value as a displayed formula."""
    return rf"\[ {left} = {tex(value)} \]"


# ---- cases ---------------------------------------------------------------------------------------------------------


def condition(equation: Affine, names: Mapping[str, str]) -> str:
    """An equation between indices."""
    return " = ".join(map(form_tex, sides(equation, names)))


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
    return rf"\[ {left} = \begin{{cases}} " + r" \\ ".join(lines) + r" \end{cases} \]"


# ---- one formula with the names it uses ----------------------------------------------------------------------------


def _shown(formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas) -> dict[Equations, Any]:
    return shown(formulas, names, cases, lambda whole: width(tex(whole)) <= EXPANDED)


def defined(formulas: FormulaRecursion, entry: Entry) -> Iterator[str]:
    """What the name of a formula stands for: its expectations, their moments by letters, and closed forms."""
    symbols, value = formulas.definitions[entry.key]
    names = pair_names(formulas.netsor, entry.key[:2])
    named = readable(Entry(*entry.args[:3], *symbols), names)
    value = readable(value, names)
    nodes = sorted(value.atoms(Expectation), key=str)
    nodes = [node for node in nodes if not any(node in other.args[1].atoms(Expectation) for other in nodes)]
    closed = formulas.shallow(value)
    if not closed.has(Expectation) and width(tex(closed)) <= EXPANDED:
        yield display(tex(named), closed)
        return
    letters = Letters(formulas.netsor.constant)
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
            yield rf"\[ {own} = \mathbb{{E}}\left[{node.product_tex(_TexPrinter())}\right] \]"
            yield rf"\[ {node.law_tex(_TexPrinter())} \]"
        if self.values:
            yield "where"
            for symbol, value in self.values.items():
                yield display(tex(symbol), value)


def cases_latex(formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas) -> str:
    """A covariance or mean with the formulas it uses."""
    return "\n".join(_formula(formulas, left_side(formulas, names), names, _shown(formulas, names, cases), set()))


def left_side(formulas: FormulaRecursion, families: tuple[str, ...], second_moment: bool = False) -> str:
    """What a covariance, second moment or mean is of."""
    variables = []
    indices = pair_names(formulas.netsor, families)
    for copy, name in enumerate(families):
        slots = [Affine.index(new) for old, new in indices.items() if old.endswith("_") == bool(copy)]
        if families[0] in formulas.scores:
            place = ",".join(map(form_tex, slots))
            variables.append(rf"\mathring{{{tex_name(name)}}}" + (f"_{{{place}}}" if place else ""))
        else:
            variables.append(f"Z^{{{reference_tex(name, slots)}}}")
    if second_moment:
        return rf"\mathbb{{E}}\left[{'{}'.join(variables)}\right]"
    if len(variables) == 1:
        return rf"\mathbb{{E}}\left[{variables[0]}\right]"
    return rf"\operatorname{{Cov}}\left({', '.join(variables)}\right)"


# ---- the derivation, line by line -----------------------------------------------------------------------------------

CLAUSES = {
    "initial": "Definition 1 (i): initial vectors are Gaussian, coordinate by coordinate, with the law declared.",
    "matmul": "Definition 1 (ii), MatMul: Gaussian with mean zero; the covariance is the variance of the weight times "
    "the second moment of the vectors where the weight is the same, and zero elsewhere.",
    "nonlin": "Definition 1 (iii), Nonlin: the same function of the limits.",
    "random": "Definition 1 (iii), Nonlin: the same function of the limits, given the scores.",
    "scalar": "A function of numbers.",
    "score": "Definition 1 (iv), score: Gaussian with mean zero and independent of every vector; by Isserlis the "
    "covariance is C(q,q') C(k,k') + C(q,k') C(k,q').",
    "average": "An average: it converges to a number, the second moment of the limits (Netsor+).",
}


def blocks(formulas: FormulaRecursion) -> Iterator[str]:
    """The derivation: every line of the program, then the law of the outputs given p-ring."""
    written: set[tuple[str, str, int]] = set()
    for initial in formulas.netsor.initial:
        lines = [rf"\[ {initial_tex(initial)} \]", CLAUSES["initial"]]
        names = (initial.name, initial.name)
        yield "\n".join([*lines, *_moment(formulas, names, formulas.cov(*names), written)])
    for statement in formulas.netsor.body:
        yield "\n".join(_statement(formulas, statement, written))
    for name in formulas.netsor.outputs:
        if name in formulas.random and formulas.netsor.families[name].kind != "scalar":
            yield "\n".join(_output(formulas, name, written))


def _statement(formulas: FormulaRecursion, statement: Statement, written: set[tuple[str, str, int]]) -> Iterator[str]:
    name = statement.target.name
    operand = statement.left.name if isinstance(statement, Dot) else name
    yield rf"\[ {statement_tex(statement, formulas.netsor.families[operand].width)} \]"
    kind = _kind(formulas, statement)
    yield CLAUSES[kind]
    if kind in ("average", "scalar"):
        yield from _moment(formulas, (name,), formulas.mean(name), written)
    elif kind == "nonlin":
        second = (name, name)
        values = _shown(formulas, second, formulas.second(*second))
        yield from _formula(formulas, left_side(formulas, second, True), second, values, written)
    elif kind in ("matmul", "score"):
        for other in (name, *_related(formulas, statement)):
            cases = formulas.cov(name, other)
            if other == name or not cases.zero():
                yield from _moment(formulas, (name, other), cases, written)


def _related(formulas: FormulaRecursion, statement: Statement) -> list[str]:
    """Earlier families of the same kind that may be correlated: made by the same weight, or scores as well."""

    def alike(other: Statement) -> tuple[str, str]:
        return _kind(formulas, other), other.weight.name if isinstance(other, MatMul) else ""

    body = formulas.netsor.body
    found = dict.fromkeys(s.target.name for s in body[: body.index(statement)] if alike(s) == alike(statement))
    return [name for name in found if name != statement.target.name]


def _kind(formulas: FormulaRecursion, statement: Statement) -> str:
    if isinstance(statement, MatMul):
        return "matmul"
    if isinstance(statement, Dot):
        return "score" if statement.scale == "n**-0.5" else "average"
    if statement.target.name in formulas.random:
        return "random"
    return "scalar" if formulas.netsor.families[statement.target.name].kind == "scalar" else "nonlin"


def _moment(
    formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas, written: set[tuple[str, str, int]]
) -> Iterator[str]:
    return _formula(formulas, left_side(formulas, names), names, _shown(formulas, names, cases), written)


def _formula(
    formulas: FormulaRecursion, left: str, names: tuple[str, ...], values: Mapping[Equations, Any],
    written: set[tuple[str, str, int]],
) -> Iterator[str]:  # fmt: skip
    """left = values, with the formulas that it uses and that are not written yet."""
    yield displayed_cases(left, values, pair_names(formulas.netsor, names))
    for entry, _ in definitions(formulas, values.values()):
        if entry.key not in written:
            written.add(entry.key)
            yield "with"
            yield from defined(formulas, entry)


def _output(formulas: FormulaRecursion, name: str, written: set[tuple[str, str, int]]) -> Iterator[str]:
    """Given p-ring, an output that is linear in Gaussian vectors is Gaussian."""
    if not formulas.is_linear(name):
        yield f"The output ${tex_name(name)}$ is not linear in Gaussian vectors given the scores."
        return
    given = ", ".join(rf"\mathring{{{tex_name(score)}}}" for score in formulas.netsor.scores)
    yield f"Given the scores, the output ${tex_name(name)}$ is Gaussian with"
    means = formulas.conditional_mean(name).table.items()
    values = {key: readable(value, pair_names(formulas.netsor, [name])) for key, value in means}
    left = left_side(formulas, (name,)).replace(r"\right]", rf" \,\middle|\, {given}\right]")
    yield displayed_cases(left, values, {})
    pair = (name, name)
    left = left_side(formulas, pair).replace(r"\right)", rf" \,\middle|\, {given}\right)")
    yield from _formula(formulas, left, pair, _shown(formulas, pair, formulas.conditional(*pair)), written)


# ---- a document ----------------------------------------------------------------------------------------------------

NOTATION = {
    r"\varphi\left(": r"$\varphi$ is the density of $N(0, 1)$.",
    r"\Phi\left(": r"$\Phi$ is the distribution function of $N(0, 1)$.",
    r"\Phi_2": r"$\Phi_2(h, k, r)$ is that of two such variables of correlation $r$ at $h$ and $k$.",
    r"\delta_{": r"$\delta$ is 1 where its indices are equal, else 0.",
    "'": "A prime marks the second copy of an index.",
    r"\mathring": "A ring marks the limit of a score.",
    r"\begin{cases}": "Cases are read from top to bottom.",
}
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': "''",
}


def escaped(text: str) -> str:
    """Free text as LaTeX: nothing in it is a command."""
    return "".join(SPECIAL.get(letter) or _printable(letter) for letter in text)


def _printable(letter: str) -> str:
    if letter.isascii():
        return letter if letter.isprintable() else " "
    if "\u00c0" <= letter <= "\u00ff" and letter not in "ÐÞðþ×÷":
        return letter
    if unicodedata.category(letter) == "Pd":
        return "--"
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return "".join(SPECIAL.get(c, c) for c in plain) or "?"


def document(formulas: FormulaRecursion, grade: str) -> str:
    """A self-contained document for pdflatex."""
    netsor = formulas.netsor
    title = escaped(netsor.title or netsor.name)
    head = [
        r"\documentclass{article}",
        r"\usepackage{amsmath,amssymb}",
        r"\allowdisplaybreaks",
        r"\emergencystretch=3em",
        r"\setlength{\parindent}{0pt}",
        r"\setlength{\textwidth}{165mm}",
        r"\setlength{\oddsidemargin}{0pt}",
        r"\begin{document}",
        rf"\section*{{{title}}}",
    ]
    intro = [f"The infinite-width limit of the program {escaped(netsor.name)}, line by line."]
    if netsor.reference:
        intro.append(f"Reference: {escaped(netsor.reference)}.")
    intro.append("Definition 1: Sakai, Karakida and Imaizumi 2025 (arXiv 2506.00846).")
    if grade:
        intro.append(f"Grade of the program: {escaped(grade)}.")
    body = "\n\n".join(blocks(formulas))
    meanings = [meaning for mark, meaning in NOTATION.items() if mark in body]
    return "\n".join([*head, "\n".join([*intro, *meanings]), "", body, r"\end{document}", ""])

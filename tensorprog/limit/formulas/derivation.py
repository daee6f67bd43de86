"""The derivation of a limit in LaTeX: statement, clause of Definition 1, formula; and the document around it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorprog.language.ir import Dot, MatMul, Statement
from tensorprog.limit.formulas.latex import defined, displayed_cases, left_side, shown
from tensorprog.limit.formulas.names import pair_names, readable, tex_name
from tensorprog.limit.formulas.statements import initial_tex, statement_tex
from tensorprog.limit.formulas.text import definitions
from tensorprog.limit.moment.indexed import Equations

if TYPE_CHECKING:
    from tensorprog.limit.formulas.law import FormulaArray, SymbolicLaw

__all__ = ["blocks", "derivation", "document", "escaped"]


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


def derivation(law: SymbolicLaw) -> str:
    """The body: every line of the program, then the law of the outputs given p-ring."""
    return "\n\n".join(blocks(law))


def blocks(law: SymbolicLaw) -> Iterator[str]:
    """The derivation line by line."""
    written: set[tuple[str, str, int]] = set()
    for initial in law.netsor.initial:
        array = law.cov(initial.name)
        lines = [rf"\[ {initial_tex(initial)} \]", CLAUSES["initial"]]
        yield "\n".join([*lines, *_formula(law, array, shown(law, array), written)])
    for statement in law.netsor.body:
        yield "\n".join(_statement(law, statement, written))
    for block in _outputs(law, written):
        yield "\n".join(block)


def _statement(law: SymbolicLaw, statement: Statement, written: set[tuple[str, str, int]]) -> Iterator[str]:
    name = statement.target.name
    operand = statement.left.name if isinstance(statement, Dot) else name
    yield rf"\[ {statement_tex(statement, law.netsor.families[operand].width)} \]"
    kind = _kind(law, statement)
    yield CLAUSES[kind]
    if kind in ("average", "scalar"):
        mean = law.mean(name)
        yield from _formula(law, mean, shown(law, mean), written)
    elif kind == "nonlin":
        second = law.second_moment(name)
        yield from _formula(law, second, shown(law, second), written, second_moment=True)
    elif kind in ("matmul", "score"):
        for other in (name, *_related(law, statement)):
            array = law.cov(name, other)
            values = shown(law, array)
            if other == name or any(value != 0 for value in values.values()):
                yield from _formula(law, array, values, written)


def _related(law: SymbolicLaw, statement: Statement) -> list[str]:
    """Earlier families of the same kind that may be correlated: made by the same weight, or scores as well."""
    found = []
    for earlier in law.netsor.body:
        if earlier is statement:
            break
        if isinstance(statement, MatMul):
            related = isinstance(earlier, MatMul) and earlier.weight.name == statement.weight.name
        else:
            related = _kind(law, earlier) == "score"
        if related and earlier.target.name != statement.target.name:
            found.append(earlier.target.name)
    return list(dict.fromkeys(found))


def _kind(law: SymbolicLaw, statement: Statement) -> str:
    if isinstance(statement, MatMul):
        return "matmul"
    if isinstance(statement, Dot):
        return "score" if statement.scale == "n**-0.5" else "average"
    if statement.target.name in law.formulas.random:
        return "random"
    return "scalar" if law.netsor.families[statement.target.name].kind == "scalar" else "nonlin"


def _formula(
    law: SymbolicLaw,
    array: FormulaArray,
    values: Mapping[Equations, Any],
    written: set[tuple[str, str, int]],
    second_moment: bool = False,
) -> Iterator[str]:
    names = pair_names(law.netsor, array.names)
    yield displayed_cases(left_side(array, second_moment), values, names)
    for entry, _ in definitions(law, list(values.values())):
        if entry.key not in written:
            written.add(entry.key)
            yield "with"
            yield from defined(law, entry)


def _outputs(law: SymbolicLaw, written: set[tuple[str, str, int]]) -> Iterator[list[str]]:
    """Given p-ring, outputs that are linear in Gaussian vectors are Gaussian."""
    for name in law.outputs:
        if name not in law.formulas.random or law.netsor.families[name].kind == "scalar":
            continue
        if not law.is_linear(name):
            yield [f"The output ${tex_name(name)}$ is not linear in Gaussian vectors given the scores."]
            continue
        array = law.given_scores(name)
        given = ", ".join(rf"\mathring{{{tex_name(score)}}}" for score in law.netsor.scores)
        left = left_side(array).replace(r"\right)", rf" \,\middle|\, {given}\right)")
        lines = [f"Given the scores, the output ${tex_name(name)}$ is Gaussian with"]
        mean = law.conditional_mean(name)
        values = {key: readable(value, pair_names(law.netsor, [name])) for key, value in mean.cases.table.items()}
        mean_left = left_side(mean).replace(r"\right]", rf" \,\middle|\, {given}\right]")
        lines.append(displayed_cases(mean_left, values, {}))
        shown_values = shown(law, array)
        lines.append(displayed_cases(left, shown_values, pair_names(law.netsor, array.names)))
        for entry, _ in definitions(law, list(shown_values.values())):
            if entry.key not in written:
                written.add(entry.key)
                lines += ["with", *defined(law, entry)]
        yield lines


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


def document(law: SymbolicLaw) -> str:
    """A self-contained document for pdflatex."""
    netsor = law.netsor
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
    if law.grade:
        intro.append(f"Grade of the program: {escaped(law.grade)}.")
    body = derivation(law)
    meanings = [meaning for mark, meaning in NOTATION.items() if mark in body]
    return "\n".join([*head, "\n".join([*intro, *meanings]), "", body, r"\end{document}", ""])

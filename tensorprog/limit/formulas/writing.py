"""Formulas as text, LaTeX and JSON, the derivation of a limit line by line, and the document around it.

Text and LaTeX show the same formulas, and use the mathematics and plain sentences that LaTeX and MathJax both know;
names of the program are typeset as mathematics, and free text (title, reference) is escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sympy as sp
from sympy.printing.conventions import split_super_sub
from sympy.printing.latex import LatexPrinter

from tensorprog.language.expr import Affine
from tensorprog.language.ir import Dot, Initial, MatMul, Statement, Table
from tensorprog.limit.form.definitions import Corrected, Onsager
from tensorprog.limit.formulas.conversion import written
from tensorprog.limit.formulas.nodes import Entry, Named, Score, affine, index_symbol, readable
from tensorprog.limit.formulas.recursion import FormulaRecursion, IndexedFormulas

__all__ = ["NOTATION", "blocks", "cases_text", "document", "escaped", "law_json", "law_text", "tex_name"]

LONG = 80  # characters of a formula beyond which those of earlier lines keep their names
GREEK = (
    " alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
)
Case = tuple[list[Any], Any]  # equations between indices, and the formula where they hold


# ---- printers -------------------------------------------------------------------------------------------------------


class _TexPrinter(LatexPrinter):  # type: ignore[misc]
    """LaTeX with the names of the program."""

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        return tex_name(expr.name)

    def _print_Float(self, expr: Any) -> str:
        mantissa, _, exponent = f"{float(expr):.12g}".partition("e")
        return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def text(formula: Any) -> str:
    """One formula, or an equation of two, as text."""
    return f"{formula.lhs} = {formula.rhs}" if isinstance(formula, sp.Eq) else str(formula)


def tex(formula: Any) -> str:
    """One formula as LaTeX."""
    return str(_TexPrinter({"inv_trig_style": "full", "ln_notation": False}).doprint(formula))


def tex_name(name: str) -> str:
    """A name of a program in mathematics: Greek letters, subscripts after underscores, hats, primes for copies."""
    bare = name.rstrip("_'")
    head, above, below = split_super_sub(bare)
    subs = [piece for piece in (*above, *below) if piece != "hat"]
    sub = f"_{{{','.join(map(_piece, subs))}}}" if subs else ""
    letter = _piece(head or "?") if "hat" not in below else rf"\hat{{{_piece(head or '?')}}}"
    return f"{letter}{sub}{chr(39) * (len(name) - len(bare))}"


def _piece(name: str) -> str:
    plain = "".join(letter if letter.isascii() else _spelt(letter) for letter in name)
    if f" {plain} " in GREEK:
        return {"epsilon": r"\varepsilon", "phi": r"\varphi"}.get(plain, f"\\{plain}")
    return plain if re.fullmatch(r"[A-Za-z]?\d*|\?", plain) else rf"\mathit{{{plain}}}"


def _spelt(letter: str) -> str:
    """A letter that is not of ASCII: Greek ones by their names, others without accents."""
    kind, _, name = unicodedata.name(letter, "").partition(" LETTER ")
    if kind.startswith("GREEK"):
        return name.capitalize() if "CAPITAL" in kind else name.lower()
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()


# ---- what is shown --------------------------------------------------------------------------------------------------


def pair_names(formulas: FormulaRecursion, families: Iterable[str]) -> dict[str, str]:
    """Position names '0', '0_', ... of one or two families by the names of their indices in the program."""
    found: dict[str, str] = {}
    for copy, family in enumerate(families):
        positions = formulas.netsor.families[family].statements
        if positions:
            slots = formulas.netsor.body[positions[0]].target.slots
            names = [slot.bare or f"k{number}" for number, slot in enumerate(slots)]
        else:
            names = next(list(entry.indices) for entry in formulas.netsor.initial if entry.name == family)
        found |= {f"{k}{'_' * copy}": f"{name}{'_' * copy}" for k, name in enumerate(names)}
    return found


def members(formulas: FormulaRecursion, families: Sequence[str]) -> list[Named]:
    """A member of each of one or two families, at their positions."""
    names = pair_names(formulas, families)
    kinds = [Score if name in formulas.scores else Named for name in families]
    return [
        kind(sp.Symbol(family), *(index_symbol(new) for old, new in names.items() if old.endswith("_") == bool(copy)))
        for copy, (kind, family) in enumerate(zip(kinds, families, strict=True))
    ]


def _equation(equation: Affine, names: dict[str, str]) -> Any:
    """An equation between indices, no coefficient negative."""
    terms = [(names.get(name, name), value) for name, value in equation.terms]
    left, right = (tuple((name, sign * value) for name, value in terms if sign * value > 0) for sign in (1, -1))
    return sp.Eq(affine(Affine(left)), affine(Affine(right, -equation.offset)), evaluate=False)


def _cases(formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas, whole: bool) -> list[Case]:
    """The most special cases first, written out if asked or short, else with the names of earlier lines."""
    positions, found = pair_names(formulas, names), []
    for key in sorted(cases.table, key=len, reverse=True):
        value = readable(formulas.expand(cases.table[key]), positions)
        if not whole and len(text(value)) > LONG:
            value = readable(cases.table[key], positions)
        found.append(([_equation(e, positions) for e in sorted(key, key=str)], value))
    return found


def _definitions(formulas: FormulaRecursion, cases: Iterable[Case], written: set[Any]) -> Iterator[Any]:
    """The names that formulas use, and those they use in turn, but for those `written` already, each as an equation.

    Expectations whose closed forms are long stay.
    """
    waiting = [value for _, value in cases]
    while waiting:
        for entry in sorted(waiting.pop(0).atoms(Entry), key=str):
            name = entry.args[0]
            if name in written:
                continue
            written.add(name)
            families, symbols, value = formulas.definitions[name]
            positions = pair_names(formulas, families)
            value, short = (readable(found, positions) for found in (value, formulas.shallow(value)))
            waiting.append(value if len(text(short)) > LONG else short)
            yield sp.Eq(readable(Entry(name, *symbols), positions), waiting[-1], evaluate=False)


# ---- text and JSON --------------------------------------------------------------------------------------------------


def cases_text(
    formulas: FormulaRecursion, names: tuple[str, ...], cases: IndexedFormulas, written: set[Any] | None = None
) -> str:
    """Every case on a line of its own, then the formulas that have names, but for those `written` already."""
    found = _cases(formulas, names, cases, False)
    lines = []
    for equations, value in found:
        otherwise = "   otherwise" if len(found) > 1 else ""
        lines.append(text(value) + (f"   where {' and '.join(map(text, equations))}" if equations else otherwise))
    definitions = _definitions(formulas, found, set() if written is None else written)
    return "\n".join([*lines, *(f"with {text(line)}" for line in definitions)])


def _means_and_covariances(formulas: FormulaRecursion, name: str) -> dict[str, tuple[tuple[str, ...], IndexedFormulas]]:
    return {"mean": ((name,), formulas.mean(name)), "cov": ((name, name), formulas.cov(name, name))}


def law_text(formulas: FormulaRecursion) -> str:
    """Means and covariances of every family that the program defines, line by line."""
    found, known = [], set[Any]()
    for name in formulas.families:
        scalar = formulas.netsor.families[name].kind == "scalar" and name not in formulas.scores
        for what, (names, cases) in _means_and_covariances(formulas, name).items():
            if (what == "mean" and cases.zero() and not scalar) or (what == "cov" and scalar):
                continue
            label = ", ".join(map(text, members(formulas, names)))
            found.append(f"{what}({label}) =\n    " + cases_text(formulas, names, cases, known).replace("\n", "\n    "))
    return "\n".join(found)


def law_json(formulas: FormulaRecursion) -> dict[str, Any]:
    """The same as strings: for each family its mean and covariance as lists of cases."""
    return {
        name: {
            what: [
                {"where": list(map(text, equations)), "formula": text(value)}
                for equations, value in _cases(formulas, *found, True)
            ]
            for what, found in _means_and_covariances(formulas, name).items()
        }
        for name in formulas.families
    }


# ---- LaTeX ----------------------------------------------------------------------------------------------------------


def _left(formulas: FormulaRecursion, families: tuple[str, ...], given: str = "", second_moment: bool = False) -> str:
    """What a covariance, second moment or mean is of, given some scores."""
    found = [tex(one) if isinstance(one, Score) else f"Z^{{{tex(one)}}}" for one in members(formulas, families)]
    given = given and rf" \,\middle|\, {given}"
    if len(found) == 1 or second_moment:
        return rf"\mathbb{{E}}\left[{' '.join(found)}{given}\right]"
    return rf"\operatorname{{Cov}}\left({', '.join(found)}{given}\right)"


def _formula(
    formulas: FormulaRecursion, left: str, names: tuple[str, ...], cases: IndexedFormulas, written: set[Any]
) -> Iterator[str]:
    """left = cases, with the formulas that it uses and that are not written yet."""
    found = _cases(formulas, names, cases, False)
    rows = " \\\\ ".join(
        f"{tex(value)} & " + (r",\ ".join(map(tex, where)) or r"\text{otherwise}") for where, value in found
    )
    value = tex(found[0][1]) if len(found) == 1 else rf"\begin{{cases}} {rows} \end{{cases}}"
    yield rf"\[ {left} = {value} \]"
    for line in _definitions(formulas, found, written):
        yield from ("with", rf"\[ {tex(line)} \]")


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
    "coefficient": "The coefficient of an Onsager term. By Stein's lemma the derivative of f(z) has the mean "
    "E[(z - E z) f(z)] / Var z.",
    "product": "A product of a matrix that is used both ways (NetsorT, Yang 2020): a Gaussian vector, as if the "
    "transpose were a matrix of its own, and Onsager terms.",
}


def blocks(formulas: FormulaRecursion) -> Iterator[str]:
    """The derivation: statement, clause of Definition 1 and formula of every line, then the outputs given p-ring."""
    known: set[Any] = set()
    for initial in formulas.netsor.initial:
        names = (initial.name, initial.name)
        found = _formula(formulas, _left(formulas, names), names, formulas.cov(*names), known)
        yield "\n".join([rf"\[ {_initial(initial)} \]", CLAUSES["initial"], *found])
    for statement in formulas.netsor.body:
        yield "\n".join(_statement(formulas, statement, known))
    for name in formulas.netsor.outputs:
        if name in formulas.random and formulas.netsor.families[name].kind != "scalar":
            yield "\n".join(_output(formulas, name, known))


def _reference(node: Any) -> Named:
    return Named(sp.Symbol(node.name), *map(affine, node.slots))


def _initial(initial: Initial) -> str:
    name = tex(Named(sp.Symbol(initial.name), *map(index_symbol, initial.indices)))
    mean, cov = (
        sp.Symbol(f"{letter}_{initial.name}") if isinstance(given, Table) else written(given, _reference)
        for letter, given in (("mu", initial.mean), ("K", initial.cov))
    )
    cov = cov if initial.data is None else cov * sp.Symbol(f"G_{initial.name}")
    return rf"{name} \sim N\left({tex(mean)},\, {tex(cov)}\right)"


def _statement(formulas: FormulaRecursion, statement: Statement, known: set[Any]) -> Iterator[str]:
    name, kind = statement.target.name, _kind(formulas, statement)
    if isinstance(statement, Onsager):
        ratio = rf"\partial Z^{{{tex(_reference(statement.left))}}} / \partial Z^{{{tex(_reference(statement.right))}}}"
        weight = formulas.program.corrected[name].product.weight
        variance = written(formulas.netsor.weight[weight.name].variance, _reference)
        right = (rf"{tex(variance)}\, " if variance != 1 else "") + rf"\mathbb{{E}}\left[{ratio}\right]"
    elif isinstance(statement, MatMul):
        right = rf"{tex(_reference(statement.weight))}\, {tex(_reference(statement.vector))}"
    elif isinstance(statement, Dot):
        width = tex_name(formulas.netsor.families[statement.left.name].width)
        factors = rf"{tex(_reference(statement.left))} \cdot {tex(_reference(statement.right))}"
        right = rf"{width}^{{{'-1/2' if kind == 'score' else '-1'}}}\, {factors}"
    else:
        right = tex(written(statement.expr, _reference))
    yield rf"\[ {tex(_reference(statement.target))} = {right} \]"
    yield CLAUSES[kind]
    if kind == "coefficient":
        yield from _formula(formulas, tex(_reference(statement.target)), (name,), formulas.mean(name), known)
    elif kind in ("average", "scalar"):
        yield from _formula(formulas, _left(formulas, (name,)), (name,), formulas.mean(name), known)
    elif kind in ("nonlin", "product"):
        left = _left(formulas, (name, name), second_moment=True)
        yield from _formula(formulas, left, (name, name), formulas.second(name, name), known)
    elif kind in ("matmul", "score"):
        for other in (name, *_related(formulas, statement)):
            cases = formulas.cov(name, other)
            if other == name or not cases.zero():
                yield from _formula(formulas, _left(formulas, (name, other)), (name, other), cases, known)


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
    if isinstance(statement, Onsager | Corrected):
        return "coefficient" if isinstance(statement, Onsager) else "product"
    if isinstance(statement, Dot):
        return "score" if statement.scale == "n**-0.5" else "average"
    if statement.target.name in formulas.random:
        return "random"
    return "scalar" if formulas.netsor.families[statement.target.name].kind == "scalar" else "nonlin"


def _output(formulas: FormulaRecursion, name: str, known: set[Any]) -> Iterator[str]:
    """Given p-ring, an output that is linear in Gaussian vectors is Gaussian."""
    if not formulas.is_linear(name):
        yield f"The output ${tex_name(name)}$ is not linear in Gaussian vectors given the scores."
        return
    given = ", ".join(rf"\mathring{{{tex_name(score)}}}" for score in formulas.netsor.scores)
    yield f"Given the scores, the output ${tex_name(name)}$ is Gaussian with"
    for names, cases in (((name,), formulas.conditional_mean(name)), ((name, name), formulas.conditional(name, name))):
        yield from _formula(formulas, _left(formulas, names, given), names, cases, known)


# ---- a document -----------------------------------------------------------------------------------------------------

NOTATION = {
    r"\varphi\left(": r"$\varphi$ is the density of $N(0, 1)$.",
    r"\Phi\left(": r"$\Phi$ is the distribution function of $N(0, 1)$.",
    r"\sum": "Sums run over the ranges of their indices.",
    "'": "A prime marks the second copy of an index.",
    r"\mathring": "A ring marks the limit of a score.",
    r"\begin{cases}": "Cases are read from top to bottom.",
}
SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"$<$", ">": r"$>$", "|": r"$|$", '"': "''",
}  # fmt: skip


def escaped(given: str) -> str:
    """Free text as LaTeX: nothing in it is a command, letters without accents."""
    plain = unicodedata.normalize("NFKD", re.sub("[–—]", "--", given)).encode("ascii", "ignore").decode()
    return "".join(SPECIAL.get(letter, letter if letter.isprintable() else " ") for letter in plain)


def document(formulas: FormulaRecursion, grade: str, assumed: Sequence[str] = ()) -> str:
    """A self-contained document for pdflatex."""
    netsor = formulas.netsor
    head = [
        r"\documentclass{article}",
        r"\usepackage{amsmath,amssymb}",
        r"\allowdisplaybreaks",
        r"\emergencystretch=3em",
        r"\setlength{\parindent}{0pt}",
        r"\setlength{\textwidth}{165mm}",
        r"\setlength{\oddsidemargin}{0pt}",
        r"\begin{document}",
        rf"\section*{{{escaped(netsor.title or netsor.name)}}}",
        f"The infinite-width limit of the program {escaped(netsor.name)}, line by line.",
    ]
    if netsor.reference:
        head.append(f"Reference: {escaped(netsor.reference)}.")
    head.append("Definition 1: Sakai, Karakida and Imaizumi 2025 (arXiv 2506.00846).")
    if grade:
        head.append(f"Grade of the program: {escaped(grade)}.")
    head += [f"{escaped(claim)}." for claim in assumed]
    body = "\n\n".join(blocks(formulas))
    meanings = [meaning for mark, meaning in NOTATION.items() if mark in body]
    return "\n".join([*head, *meanings, "", body, r"\end{document}", ""])

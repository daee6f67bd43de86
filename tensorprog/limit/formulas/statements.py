"""Statements of a program as LaTeX mathematics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorprog.language.atoms import ATOMS
from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable
from tensorprog.language.ir import Dot, Initial, MatMul, Statement, Table
from tensorprog.limit.formulas.names import tex_name

__all__ = ["form_tex", "initial_tex", "reference_tex", "statement_tex"]

LEVEL = {"add": 1, "subtract": 1, "negative": 2, "multiply": 3, "power": 5}
OPERATOR = {
    "less": "<",
    "less_equal": r"\le",
    "greater": ">",
    "greater_equal": r"\ge",
    "equal": "=",
    "not_equal": r"\ne",
    "logical_and": r"\wedge",
    "logical_or": r"\vee",
}
KNOWN = {
    "minimum": r"\min",
    "maximum": r"\max",
    "exp": r"\exp",
    "log": r"\log",
    "sin": r"\sin",
    "cos": r"\cos",
    "tanh": r"\tanh",
}


def form_tex(form: Affine) -> str:
    """An affine form in indices."""
    text = ""
    for name, coefficient in form.terms:
        sign = "-" if coefficient < 0 else "+" if text else ""
        text += f"{sign}{'' if abs(coefficient) == 1 else abs(coefficient)}{tex_name(name)}"
    if form.offset or not text:
        text += f"{'+' if form.offset >= 0 and text else ''}{form.offset}"
    return text


def reference_tex(name: str, slots: Sequence[Affine]) -> str:
    """A member of a family: x_{i}; a name that has a subscript of its own is set in braces first."""
    base, place = tex_name(name), ",".join(map(form_tex, slots))
    return f"{{{base}}}_{{{place}}}" if place else base


def statement_tex(statement: Statement, width: str = "n") -> str:
    """target = MatMul(W, x), Nonlin as its function, Dot as the scaled inner product of vectors of a width."""
    target = reference_tex(statement.target.name, statement.target.slots)
    if isinstance(statement, MatMul):
        return f"{target} = {expression_tex(statement.weight)}\\, {expression_tex(statement.vector)}"
    if isinstance(statement, Dot):
        scale = f"{tex_name(width)}^{{{'-1/2' if statement.scale == 'n**-0.5' else '-1'}}}"
        return f"{target} = {scale}\\, {expression_tex(statement.left)} \\cdot {expression_tex(statement.right)}"
    return f"{target} = {expression_tex(statement.expr)}"


def initial_tex(initial: Initial) -> str:
    """Initial vectors with their mean and covariance."""
    name = reference_tex(initial.name, [Affine(((index, 1),)) for index in initial.indices])
    mean = expression_tex(initial.mean) if not isinstance(initial.mean, Table) else rf"\mu^{{{tex_name(initial.name)}}}"
    cov = expression_tex(initial.cov) if not isinstance(initial.cov, Table) else rf"K^{{{tex_name(initial.name)}}}"
    if initial.data is not None:
        cov = f"{cov}\\, G^{{{tex_name(initial.name)}}}"
    return rf"{name} \sim N\left({mean},\, {cov}\right)"


Leaf = Callable[[Any], tuple[str, int]]


def _reference(node: Constant | Variable) -> tuple[str, int]:
    return reference_tex(node.name, node.slots), 9


def expression_tex(expr: Expr, level: int = 0, leaf: Leaf = _reference) -> str:
    """An expression, in brackets if it binds less than `level`; `leaf` writes its references and how they bind."""
    text, own = _text(expr, leaf)
    return rf"\left({text}\right)" if own < level else text


def _text(expr: Expr, leaf: Leaf) -> tuple[str, int]:
    def inner(part: Expr, level: int = 0) -> str:
        return expression_tex(part, level, leaf)

    if isinstance(expr, Number):
        return _number(expr.value), 9 if expr.value >= 0 else 2
    if isinstance(expr, Constant | Variable):
        return leaf(expr)
    if isinstance(expr, IndexValue):
        return tex_name(expr.name), 9
    if isinstance(expr, Reduction):
        over = ",".join(tex_name(name) for name in expr.indices)
        if expr.reducer == "sum":
            return rf"\sum_{{{over}}} {inner(expr.arg, 2)}", 2
        return rf"\operatorname{{{expr.reducer}}}_{{{over}}}\left({inner(expr.arg)}\right)", 9
    assert isinstance(expr, Call)
    if expr.atom == "divide":
        return rf"\frac{{{inner(expr.args[0])}}}{{{inner(expr.args[1])}}}", 4
    if expr.atom == "sqrt":
        return rf"\sqrt{{{inner(expr.args[0])}}}", 9
    if expr.atom == "abs":
        return rf"\left|{inner(expr.args[0])}\right|", 9
    if expr.atom == "power":
        return rf"{{{inner(expr.args[0], 6)}}}^{{{inner(expr.args[1])}}}", 5
    if expr.atom in LEVEL:
        return _operator(expr, inner), LEVEL[expr.atom]
    if expr.atom in OPERATOR:
        left, right = (inner(arg, 1) for arg in expr.args)
        return f"{left} {OPERATOR[expr.atom]} {right}", 0
    name = KNOWN.get(expr.atom, rf"\operatorname{{{expr.atom}}}".replace("_", r"\_"))
    shown = expr.args if expr.params and not _default(expr) else expr.arguments
    return rf"{name}\left({', '.join(map(inner, shown))}\right)", 9


def _default(expr: Call) -> bool:
    """Whether all parameters have their default values; one that must be given has none."""
    defaults = ATOMS[expr.atom].params.values()
    return all(isinstance(p, Number) and p.value == value for p, value in zip(expr.params, defaults, strict=True))


def _operator(expr: Call, inner: Callable[..., str]) -> str:
    own = LEVEL[expr.atom]
    if expr.atom == "negative":
        return f"-{inner(expr.args[0], own)}"
    left, right = inner(expr.args[0], own), inner(expr.args[1], own + (expr.atom != "add"))
    return f"{left}\\, {right}" if expr.atom == "multiply" else f"{left} {'+' if expr.atom == 'add' else '-'} {right}"


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return r"\infty" if value > 0 else r"-\infty"
    mantissa, _, exponent = repr(value).partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

"""Statements of a program as LaTeX mathematics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, fold
from tensorprog.language.ir import Dot, Initial, MatMul, Statement, Table
from tensorprog.limit.formulas.names import tex_name

__all__ = ["form_tex", "initial_tex", "reference_tex", "statement_tex"]

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


Written = tuple[str, int]  # LaTeX, and how strongly it binds
Leaf = Callable[[Any], Written]


def _reference(node: Constant | Variable) -> Written:
    return reference_tex(node.name, node.slots), 9


def expression_tex(expr: Expr, level: int = 0, leaf: Leaf = _reference) -> str:
    """An expression, in brackets if it binds less than `level`; `leaf` writes its references and how they bind."""
    def first(node: Expr) -> Written | None:
        if isinstance(node, Number):
            return _number(node.value), 9 if node.value >= 0 else 2
        if isinstance(node, Constant | Variable):
            return leaf(node)
        return (tex_name(node.name), 9) if isinstance(node, IndexValue) else None

    return _bracketed(fold(expr, WRITTEN, first, _call), level)


def _bracketed(part: Written, level: int = 0) -> str:
    return rf"\left({part[0]}\right)" if part[1] < level else part[0]


def _call(node: Call, *args: Written) -> Written:
    name = KNOWN.get(node.atom, rf"\operatorname{{{node.atom}}}".replace("_", r"\_"))
    defaults = ATOMS[node.atom].params.values()
    # parameters are shown unless all have their default values; one that must be given has none
    default = all(isinstance(p, Number) and p.value == value for p, value in zip(node.params, defaults, strict=True))
    shown = args[: len(node.arguments)] if default else args
    return rf"{name}\left({', '.join(map(_bracketed, shown))}\right)", 9


def _sum(node: Reduction, arg: Written) -> Written:
    return rf"\sum_{{{_over(node)}}} {_bracketed(arg, 2)}", 2


def _reduction(node: Reduction, arg: Written) -> Written:
    return rf"\operatorname{{{node.reducer}}}_{{{_over(node)}}}\left({arg[0]}\right)", 9


def _over(node: Reduction) -> str:
    return ",".join(tex_name(name) for name in node.indices)


def _comparison(node: Call, left: Written, right: Written) -> Written:
    return f"{_bracketed(left, 1)} {OPERATOR[node.atom]} {_bracketed(right, 1)}", 0


WRITTEN: dict[str, Callable[..., Written]] = {
    "add": lambda _, x, y: (f"{_bracketed(x, 1)} + {_bracketed(y, 1)}", 1),
    "subtract": lambda _, x, y: (f"{_bracketed(x, 1)} - {_bracketed(y, 2)}", 1),
    "negative": lambda _, x: (f"-{_bracketed(x, 2)}", 2),
    "multiply": lambda _, x, y: (f"{_bracketed(x, 3)}\\, {_bracketed(y, 4)}", 3),
    "divide": lambda _, x, y: (rf"\frac{{{x[0]}}}{{{y[0]}}}", 4),
    "power": lambda _, x, y: (f"{{{_bracketed(x, 6)}}}^{{{y[0]}}}", 5),
    "sqrt": lambda _, x: (rf"\sqrt{{{x[0]}}}", 9),
    "abs": lambda _, x: (rf"\left|{x[0]}\right|", 9),
    **dict.fromkeys(OPERATOR, _comparison), **dict.fromkeys(REDUCTIONS, _reduction), "sum": _sum,
}


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return r"\infty" if value > 0 else r"-\infty"
    mantissa, _, exponent = repr(value).partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

"""How formulas write what a program has: indices in place of positions, names and statements as LaTeX mathematics."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.core.traversal import bottom_up

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, fold
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Statement, Table
from tensorprog.limit.formulas.nodes import index_symbol

__all__ = [
    "expression_tex", "form_tex", "initial_tex", "pair_names", "readable", "reference_tex",
    "sides", "statement_tex", "tex_name",
]  # fmt: skip

GREEK = (
    " alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
)
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


def pair_names(netsor: Netsor, families: Iterable[str]) -> dict[str, str]:
    """Position names '0', '0_', ... of one or two families by the names of their indices in the program."""
    found: dict[str, str] = {}
    for copy, family in enumerate(families):
        positions = netsor.families[family].statements
        if positions:
            slots = netsor.body[positions[0]].target.slots
            names = [slot.bare or f"k{number}" for number, slot in enumerate(slots)]
        else:
            names = next((list(entry.indices) for entry in netsor.initial if entry.name == family), [])
        found |= {f"{k}{'_' * copy}": f"{name}{'_' * copy}" for k, name in enumerate(names)}
    return found


def readable(formula: Any, positions: Mapping[str, str]) -> Any:
    """A formula with its indices named: positions as given, bound ones by their own names, all different."""
    taken = set(positions.values())
    names = {index_symbol(old): new for old, new in positions.items()}
    symbols = {s for s in formula.atoms(sp.Symbol) if s.is_integer and s not in names}
    for symbol in sorted(symbols, key=str):
        text = str(symbol)
        star = text.endswith("*")
        base = text.rstrip("*_'").split("~")[0]
        base = base if not base.isdigit() else "k"
        tail = "_" * text.endswith("_")
        new, number = f"{base}*" if star else f"{base}{tail}", 2
        while new in taken:
            new, number = f"{new}*" if star else f"{base}{number}{tail}", number + 1
        taken.add(new)
        names[symbol] = new
    places = {old: index_symbol(new) for old, new in names.items()}
    return bottom_up(formula, lambda node: places.get(node, node), atoms=True)


def sides(equation: Affine, names: Mapping[str, str]) -> list[Affine]:
    """An equation between indices as left and right side, no coefficient negative."""
    found = []
    for sign in (1, -1):
        terms = tuple((names.get(n, n), sign * c) for n, c in equation.terms if sign * c > 0)
        found.append(Affine(terms, 0 if sign == 1 else -equation.offset))
    return found


def tex_name(name: str) -> str:
    """A name of a program in mathematics: Greek letters, subscripts after underscores, primes for second copies."""
    primes = "'" * (len(name) - len(name.rstrip("_")))
    head, *subs = [piece for piece in name.rstrip("_").split("_") if piece] or ["\\_"]
    match = re.fullmatch(r"(.*?)(\d+)", head)
    if match and match[1]:
        head, subs = match[1], [match[2], *subs]
    sub = f"_{{{','.join(map(_piece, subs))}}}" if subs else ""
    return f"{_piece(head)}{sub}{primes}"


def _piece(text: str) -> str:
    plain = "".join(map(_ascii, text))
    if f" {plain} " in GREEK:
        return {"epsilon": r"\varepsilon", "phi": r"\varphi"}.get(plain, f"\\{plain}")
    if re.fullmatch(r"[A-Za-z]?\d*|\\_", plain):
        return plain
    return rf"\mathit{{{plain}}}"


def _ascii(letter: str) -> str:
    if letter.isascii():
        return letter if letter.isalnum() else ""
    kind, _, greek = unicodedata.name(letter, "").partition(" LETTER ")
    known = greek.capitalize() if "CAPITAL" in kind else greek.lower()
    if kind.startswith("GREEK") and f" {known} " in GREEK:
        return known
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"


# ---- statements -----------------------------------------------------------------------------------------------------


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
    name = reference_tex(initial.name, [Affine.index(index) for index in initial.indices])
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
    **dict.fromkeys(OPERATOR, _comparison),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "sum": _sum,
}


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return r"\infty" if value > 0 else r"-\infty"
    mantissa, _, exponent = repr(value).partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

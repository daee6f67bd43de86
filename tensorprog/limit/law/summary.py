"""What is shown of a law, in short, and one quantity of it in words, with the clause of Definition 1 used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import COLOURS, Block, Grid, badge, code, paragraph, strong
from tensorprog.language.ir import Dot, MatMul, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.limit.law.law import NumericLaw

__all__ = ["blocks_of", "converges", "explain"]

Array = NDArray[Any]


def blocks_of(law: NumericLaw) -> list[Block]:
    """The law in short; nothing is computed for it."""
    families = law.compiled.families
    rows = tuple((code(n), f"{math.prod(families[n].shape):,}", _sort(law, n)) for n in (*law.outputs, *law.scores))
    grade = [" ", badge(law.grade)] if law.grade in COLOURS else []
    return [
        paragraph(strong(law.netsor.title or law.netsor.name), ": infinite-width limit", *grade),
        paragraph(converges(law)),
        *(paragraph(text, label="claim") for text in law.assumed),
        Grid(f"limit of {law.netsor.name}", ("variable", "members", "limit"), rows, text_columns=(0, 1, 2)),
        paragraph("For numbers ask law.mean, law.var, law.kurtosis, law.cov, or law.to_dataframe().", note=True),
    ]


def converges(law: NumericLaw) -> str:
    """The theorem for a program, in a sentence."""
    infinite = [name for name, value in law.widths.items() if value == math.inf]
    fixed = [f"{name} = {value:g}" for name, value in law.widths.items() if value != math.inf]
    start = f"As {' and '.join(infinite)} {'go' if len(infinite) > 1 else 'goes'} to infinity" + (
        f" with {' and '.join(fixed)}" if fixed else ""
    )
    means = f"averages over coordinates of bounded, pseudo-Lipschitz functions of {', '.join(law.outputs)} converge"
    if not law.scores:
        return f"{start}, {means} to expectations: each coordinate is a draw from the law below."
    return (
        f"{start}, the scores {', '.join(law.scores)} converge in distribution to random limits, and {means} to "
        "expectations given these."
    )


def _sort(law: NumericLaw, name: str) -> str:
    """Which law a family has, in words."""
    given = "" if name not in law.recursion.random else f" given {', '.join(law.scores)}"
    if name in law.recursion.scores:
        return "Gaussian" if not law.recursion.layered else "random"
    if law.compiled.families[name].kind == "scalar":
        return "a number" if not given else f"a function{given}"
    return ("Gaussian" if law.is_linear(name) else "a function of Gaussian variables") + given


# ---- one quantity in words -----------------------------------------------------------------------------------------


SOURCE = "Sakai et al. 2025, Definition 1"
CLAUSES = {
    "initial": "(i): initial vectors are Gaussian with the mean and covariance declared",
    "matmul": "(ii): Gaussian with mean 0; Cov = variance of the weight times E[Z Z'] of the vectors where it is the "
    "same, else 0",
    "nonlin": "(iii): the same function of the limits",
    "score": "(iv): Gaussian with mean 0, independent of every vector; Cov = C(q,q') C(k,k') + C(q,k') C(k,q')",
}


def explain(law: NumericLaw, text: str) -> str:
    """Explain a family or one member of it."""
    name, _, single = law.member(text)
    head = [f"{name}: an initial vector"] if not law.compiled.families[name].statements else _statements(law, name)
    return "\n".join([*head, *(f"  {line}" for line in (*_clause(law, name), *_numbers(law, text, name, single)))])


def _statements(law: NumericLaw, name: str) -> list[str]:
    """The definitions of a family as written, with their places; bases come first."""
    source = law.netsor if name in law.netsor.families else law.compiled
    found = [source.body[position] for position in source.families[name].statements]
    return [f"{s}   [{s.span}]" if str(s.span) else str(s) for s in found]


def _clause(law: NumericLaw, name: str) -> Iterator[str]:
    """What makes the limit of a family, and what it is conditional on."""
    family, recursion = law.compiled.families[name], law.recursion
    statement = law.compiled.body[family.statements[-1]] if family.statements else None
    read = {v.name for position in family.statements for v in law.compiled.body[position].inputs}
    drawn = upstream(law.compiled, read) & recursion.random
    given = ", ".join(sorted(n for n in drawn if n in law.compiled.scores or _is_drawn(law, n)))
    kind, random = {MatMul: "matmul", Dot: "score", Nonlin: "nonlin"}.get(type(statement), "initial"), ""
    if isinstance(statement, Dot) and recursion.is_finite(statement.left.name):
        width = recursion.width(statement.left.name)
        yield f"exact: a sum over {width} coordinates, which are random in the limit"
    elif isinstance(statement, Dot) and statement.scale == "1/n":
        yield f"an average: the number E[Z Z'{' | draws' if given else ''}] (Yang 2019, Netsor+)"
    else:
        random = ", this covariance is random" if kind != "nonlin" else ""
        yield f"{SOURCE} {CLAUSES[kind]}"
    if given:
        yield f"given the draws of {given} upstream{random}; the numbers are averages over draws"
    if isinstance(statement, MatMul) and recursion.is_finite(name):
        yield f"of width {recursion.width(name)}, which stays finite: so many coordinates, i.i.d. given its vectors"


def _is_drawn(law: NumericLaw, name: str) -> bool:
    """Whether a family is of Gaussian vectors of finite width."""
    vector = law.compiled.families[name].kind == "vector" and law.recursion.is_finite(name)
    return vector and law.recursion.parts.is_base(name)


def _numbers(law: NumericLaw, text: str, name: str, single: bool) -> Iterator[str]:
    """Mean, variance and kurtosis of a member; the variances of a family."""
    fixed = name not in law.recursion.random | law.recursion.scores.keys()
    number = fixed and law.compiled.families[name].kind == "scalar"
    if single or number:
        yield f"{'value' if number else 'mean':8}  {_spread(*law.mean(text, with_error=True))}"
    if not number:
        yield f"variance  {_spread(*law.var(text, with_error=True))}"
    if single and not number:
        yield f"kurtosis  {_spread(*law.kurtosis(text, with_error=True))}  (a Gaussian has 3)"


def _spread(value: Any, error: Any) -> str:
    """Numbers of a family in short, or one number."""
    low, high = (f"{float(end(value)):.10g}" for end in (np.min, np.max))
    return f"{low if low == high else f'from {low} to {high}'} +- {float(np.max(error)):.1e}"

"""What is shown of a law, in short, and one quantity of it in words, with the clause of Definition 1 used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import COLOURS, Block, Grid, badge, code, paragraph, strong
from tensorprog.language.errors import TensorprogError
from tensorprog.language.formats import covariance_table, label, law_number
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import steps, upstream
from tensorprog.limit.law.law import NumericLaw
from tensorprog.limit.law.structured_covariance import Covariance

__all__ = ["blocks_of", "converges", "explain"]

Array = NDArray[Any]

LISTED = 4  # members of a family with numbers
MATRIX = 8  # members of a family whose covariance is shown
SMALL = 64  # members of the largest family of vectors up to which covariances come at once
NUMBERS = ("mean", "var", "kurtosis")


def blocks_of(law: NumericLaw) -> list[Block]:
    """The law in short; nothing is computed that takes longer than showing it."""
    netsor, quick = law.netsor, _quick(law)
    names = (*law.outputs, *law.scores)
    rows = tuple(row for name in names for row in _rows(law, name, quick))
    grade = [" ", badge(law.grade)] if law.grade in COLOURS else []
    header = ("variable", "members", "limit", "mean", "variance", "kurtosis")
    foot = "In brackets: the error of the last digits."
    if any("" in row[3:] for row in rows):
        foot += " What is left out takes a computation: ask law.var, law.kurtosis, law.cov."
    return [
        paragraph(strong(netsor.title or netsor.name), ": infinite-width limit", *grade),
        paragraph(converges(law)),
        *(paragraph(text, label="claim") for text in law.assumed),
        Grid(f"limit of {netsor.name}", header, rows, text_columns=(0, 1, 2)),
        *(shown for name in names for shown in _matrix(law, name, quick)),
        paragraph(foot, note=True),
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


def _quick(law: NumericLaw) -> bool:
    """Whether moments of Gaussian variables come at once: no recurrence, no draws, no large families."""
    recursion, families = law.recursion, law.compiled.families.values()
    sizes = (math.prod(family.shape) for family in families if family.kind == "vector")
    return (
        not recursion.layered
        and recursion.replicates is None
        and max(sizes, default=0) <= SMALL
        and not any(step.fixed for step in steps(law.compiled))
    )


def _rows(law: NumericLaw, name: str, quick: bool) -> Iterator[tuple[str, ...]]:
    """One row for each of the first members, or one for the family if there are no numbers."""
    family = law.compiled.families[name]
    members = family.members(LISTED)
    free = quick and (name not in law.recursion.random or name in law.recursion.scores)
    numbers = [[_asked(law, ask, name, index, k, free) for ask in NUMBERS] for k, index in enumerate(members)]
    if not any(map(any, numbers)):
        members, numbers = [()], [[""] * len(NUMBERS)]
    for k, (index, row) in enumerate(zip(members, numbers, strict=True)):
        about = (f"{math.prod(family.shape):,}", _sort(law, name)) if k == 0 else ("", "")
        yield code(label(name, index)), *about, *row


def _asked(law: NumericLaw, ask: str, name: str, index: tuple[int, ...], place: int, free: bool) -> str:
    """A number of one member that is at hand, or may be asked for as it comes at once."""
    member = label(name, index)
    known = [text for text in (name, member) if law._knows(ask, text)]
    if not (known or free):
        return ""
    try:
        value, error = (np.ravel(part) for part in getattr(law, ask)((known or [member])[0], with_error=True))
    except TensorprogError:
        return ""
    k = place if value.size > 1 else 0
    return law_number(float(value[k]), float(error[k]))


def _sort(law: NumericLaw, name: str) -> str:
    """Which law a family has, in words."""
    given = "" if name not in law.recursion.random else f" given {', '.join(law.scores)}"
    if name in law.recursion.scores:
        return "Gaussian" if not law.recursion.layered else "random"
    if law.compiled.families[name].kind == "scalar":
        return "a number" if not given else f"a function{given}"
    return ("Gaussian" if law.is_linear(name) else "a function of Gaussian variables") + given


def _matrix(law: NumericLaw, name: str, quick: bool) -> Iterator[Block]:
    """The covariance of a small family, shaded."""
    family = law.compiled.families[name]
    size = math.prod(family.shape)
    known = law._knows("cov", name) or (quick and name not in law.recursion.random)
    if not (1 < size <= MATRIX and known):
        return
    with suppress(TensorprogError):
        value, error = (np.asarray(part).reshape(size, size) for part in law.cov(name, with_error=True))
        yield covariance_table(name, [label(name, index) for index in family.members()], value, error)


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
    name, box, single = law.member(text)
    head = [f"{name}: an initial vector"] if not law.compiled.families[name].statements else _statements(law, name)
    numbers = _of_family(law, name) if not single else _of_member(law, text, name, tuple(a for a, _ in box))
    return "\n".join([*head, *(f"  {line}" for line in (*_clause(law, name), *numbers))])


def _statements(law: NumericLaw, name: str) -> list[str]:
    """The definitions of a family as written, with their places; bases come first."""
    source = law.netsor if name in law.netsor.families else law.compiled
    found = [source.body[position] for position in source.families[name].statements]
    return [f"{s}   [{s.span}]" if str(s.span) else str(s) for s in found]


def _clause(law: NumericLaw, name: str) -> Iterator[str]:
    """What makes the limit of a family, and what it is conditional on."""
    family, recursion = law.compiled.families[name], law.recursion
    statement = law.compiled.body[family.statements[-1]] if family.statements else None
    given = ", ".join(sorted(_drawn(law.compiled, name) & recursion.random))
    averages = f"given the draws of {given} upstream; the numbers are averages over draws"
    covariance = f"given the draws of {given} upstream, this covariance is random; the numbers are averages over draws"
    if isinstance(statement, Dot) and recursion.is_finite(statement.left.name):
        width = recursion.width(statement.left.name)
        yield f"exact: a sum over {width} coordinates, which are random in the limit"
        yield averages
    elif isinstance(statement, Dot) and statement.scale == "1/n":
        yield f"an average: the number E[Z Z'{' | draws' if given else ''}] (Yang 2019, Netsor+)"
        if given:
            yield averages
    else:
        kind = {MatMul: "matmul", Dot: "score", Nonlin: "nonlin"}.get(type(statement), "initial")
        yield f"{SOURCE} {CLAUSES[kind]}"
        if given:
            yield averages if kind == "nonlin" else covariance
    if isinstance(statement, MatMul) and recursion.is_finite(name):
        yield f"of width {recursion.width(name)}, which stays finite: so many coordinates, i.i.d. given its vectors"


def _drawn(netsor: Netsor, name: str) -> set[str]:
    """Scores, and Gaussian vectors of finite width, that a family depends on."""
    finite = dict(netsor.fixed_widths)
    positions = netsor.families[name].statements
    found = upstream(netsor, {reference.name for position in positions for reference in netsor.body[position].inputs})
    return {n for n in found if _is_product(netsor, n) and (n in netsor.scores or netsor.families[n].width in finite)}


def _is_product(netsor: Netsor, name: str) -> bool:
    statements = netsor.families[name].statements
    return all(isinstance(netsor.body[position], MatMul | Dot) for position in statements)


def _structured(law: NumericLaw, name: str) -> Covariance | None:
    """The covariance of a family whose members are Gaussian, or functions of Gaussian variables, without any draws."""
    if name in law.recursion.random and (name not in law.scores or law.recursion.layered):
        return None
    cov = law.cov(name)
    return cov if isinstance(cov, Covariance) else None


def _of_member(law: NumericLaw, text: str, name: str, member: tuple[int, ...]) -> Iterator[str]:
    mean, error = law.mean(text, with_error=True)
    yield f"mean      {mean:.10g} +- {error:.1e}"
    if _is_number(law, name):
        return
    cov = _structured(law, name)
    value, error = law.var(text, with_error=True) if cov is None else (float(cov.at(member, member)), cov.error)
    yield f"variance  {value:.10g} +- {error:.1e}"
    if cov is None and value > 0:
        value, error = law.kurtosis(text, with_error=True)
        yield f"kurtosis  {value:.8g} +- {error:.1e}  (a Gaussian has 3)"


def _of_family(law: NumericLaw, name: str) -> Iterator[str]:
    """The covariance where it is known without draws, else the variances of the members."""
    cov = None if _is_number(law, name) else _structured(law, name)
    if _is_number(law, name):
        yield f"value     {_spread(*law.mean(name, with_error=True))}"
    elif cov is None:
        yield f"variance  {_spread(*law.var(name, with_error=True))}"
    else:
        yield from _factors(law, name, cov)


def _is_number(law: NumericLaw, name: str) -> bool:
    fixed = name not in law.recursion.random | law.recursion.scores.keys()
    return fixed and law.compiled.families[name].kind == "scalar"


def _spread(value: Array, error: Array) -> str:
    """Numbers of a family in short."""
    low, high = float(np.min(value)), float(np.max(value))
    shown = f"{low:.6g}" if f"{low:.6g}" == f"{high:.6g}" else f"from {low:.6g} to {high:.6g}"
    return f"{shown} +- {float(np.max(error)):.1e}"


def _factors(law: NumericLaw, name: str, cov: Covariance) -> Iterator[str]:
    names = _index_names(law, name)
    for factor in cov.written(names):
        where = " and ".join(factor["equations"]) or "always"
        shown = " times ".join(
            f"{float(values.flat[0]):.10g}"
            if values.size == 1 or np.all(values == values.flat[0])
            else f"values from {values.min():.6g} to {values.max():.6g}"
            for _, values in factor["factors"]
        )
        copies = f"  (second copies {', '.join(n for n in names.values() if n.endswith('_'))})"
        yield f"covariance {shown} where {where}{copies if factor['equations'] else ''}"


def _index_names(law: NumericLaw, name: str) -> dict[str, str]:
    """Names of the positions of a family as its definition writes them, with those of the second copies."""
    family = law.compiled.families[name]
    if family.statements:
        written = [str(slot) for slot in law.compiled.body[family.statements[0]].target.slots]
    else:
        written = list(next(entry.indices for entry in law.compiled.initial if entry.name == name))
    return {f"{k}{copy}": f"{index}{copy}" for copy in ("", "_") for k, index in enumerate(written)}

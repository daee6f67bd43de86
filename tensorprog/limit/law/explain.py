"""One quantity of the limit in words: its statement, the clause of Definition 1 used, and the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.limit.law.law import NumericLaw
from tensorprog.limit.law.structured_covariance import Covariance

__all__ = ["explain"]

Array = NDArray[Any]

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


# ---- words ----------------------------------------------------------------------------------------------------------


def _statements(law: NumericLaw, name: str) -> list[str]:
    """The definitions of a family as written, with their places; bases come first."""
    source = law.netsor if name in law.netsor.families else law.compiled
    found = [source.body[position] for position in source.families[name].statements]
    return [f"{s}   [{s.span}]" if str(s.span) else str(s) for s in found]


def _clause(law: NumericLaw, name: str) -> Iterator[str]:
    """What makes the limit of a family, and what it is conditional on."""
    family, compiler = law.compiled.families[name], law.compiler
    statement = law.compiled.body[family.statements[-1]] if family.statements else None
    given = ", ".join(sorted(_drawn(law.compiled, name) & compiler.random))
    averages = f"given the draws of {given} upstream; the numbers are averages over draws"
    covariance = f"given the draws of {given} upstream, this covariance is random; the numbers are averages over draws"
    if isinstance(statement, Dot) and compiler.is_finite(statement.left.name):
        width = compiler.width(statement.left.name)
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
    if isinstance(statement, MatMul) and compiler.is_finite(name):
        yield f"of width {compiler.width(name)}, which stays finite: so many coordinates, i.i.d. given its vectors"


def _drawn(netsor: Netsor, name: str) -> set[str]:
    """Scores, and Gaussian vectors of finite width, that a family depends on."""
    finite = dict(netsor.fixed_widths)
    positions = netsor.families[name].statements
    found = upstream(netsor, {reference.name for position in positions for reference in netsor.body[position].inputs})
    return {n for n in found if _is_product(netsor, n) and (n in netsor.scores or netsor.families[n].width in finite)}


def _is_product(netsor: Netsor, name: str) -> bool:
    statements = netsor.families[name].statements
    return all(isinstance(netsor.body[position], MatMul | Dot) for position in statements)


# ---- numbers --------------------------------------------------------------------------------------------------------


def _structured(law: NumericLaw, name: str) -> Covariance | None:
    """The covariance of a family whose members are Gaussian, or functions of Gaussian variables, without any draws."""
    if name in law.compiler.random and (name not in law.scores or law.compiler.layered):
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
    if cov is None:
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
    return law.compiled.families[name].kind == "scalar" and name not in law.compiler.random | law.compiler.scores.keys()


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

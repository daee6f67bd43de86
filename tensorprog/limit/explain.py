"""One quantity of the limit in words: its statement, the clause of Definition 1 used, and the numbers."""

from __future__ import annotations

import numpy as np

from tensorprog.ir import Dot, MatMul, Nonlin
from tensorprog.limit.law import Law

__all__ = ["explain"]

SOURCE = "Sakai et al. 2025, Definition 1"


def explain(law: Law, text: str) -> str:
    """Explain a family or one member of it."""
    name, box, _ = law.member(text)
    family = law.compiled.families[name]
    member = tuple(a for a, _ in box)
    lines = []
    if not family.statements:
        lines.append(f"{name}: an initial vector")
        clause = "(i): initial vectors are Gaussian with the mean and covariance declared"
    else:
        as_written = law.netsor.families.get(name)
        source = law.compiled if as_written is None else law.netsor
        statements = [source.body[position] for position in source.families[name].statements]
        for statement in statements:
            place = f"   [{statement.span}]" if str(statement.span) else ""
            lines.append(f"{statement}{place}")
        statement = statements[-1]  # bases first
        if isinstance(statement, MatMul):
            clause = (
                "(ii): Gaussian with mean 0; Cov = variance of the weight times E[Z Z'] of the vectors where it "
                "is the same, else 0"
            )
        elif isinstance(statement, Dot) and statement.scale == "n**-0.5":
            clause = "(iv): Gaussian with mean 0, independent of every vector; Cov = C(q,q') C(k,k') + C(q,k') C(k,q')"
        elif isinstance(statement, Dot):
            clause = "an average: the number E[Z Z'] (Yang 2019, Netsor+)"
        else:
            assert isinstance(statement, Nonlin)
            clause = "(iii): the same function of the limits" + (
                ", given the scores" if name in law.compiler.random else ""
            )
    lines.append(f"  {SOURCE} {clause}")
    mean, error = law.mean(text, with_error=True)
    if np.ndim(mean) == 0:
        lines.append(f"  mean      {mean:.10g} +- {error:.1e}")
        if name in law.compiler.scores:
            moment = law.cov(name)
            lines.append(f"  variance  {float(moment.at(member, member)):.10g} +- {moment.error:.1e}")
        elif name in law.compiler.random:
            value, error = law.moment(text, 2, with_error=True)
            lines.append(f"  variance  {value:.10g} +- {error:.1e}")
            value, error = law.kurtosis(text, with_error=True)
            lines.append(f"  kurtosis  {value:.8g} +- {error:.1e}  (a Gaussian has 3)")
        elif family.kind == "vector":
            moment = law.cov(name)
            lines.append(f"  variance  {float(moment.at(member, member)):.10g} +- {moment.error:.1e}")
    elif (family.kind == "vector" and name not in law.compiler.random) or name in law.compiler.scores:
        names = _index_names(law, name)
        for factor in law.cov(name).written(names):
            where = " and ".join(factor["equations"]) or "always"
            shown = " times ".join(
                f"{float(values.flat[0]):.10g}"
                if values.size == 1 or np.all(values == values.flat[0])
                else f"values from {values.min():.6g} to {values.max():.6g}"
                for _, values in factor["factors"]
            )
            copies = f"  (second copies {', '.join(n for n in names.values() if n.endswith('_'))})"
            lines.append(f"  covariance {shown} where {where}{copies if factor['equations'] else ''}")
    return "\n".join(lines)


def _index_names(law: Law, name: str) -> dict[str, str]:
    """Names of the positions of a family as its definition writes them, with those of the second copies."""
    family = law.compiled.families[name]
    if family.statements:
        written = [str(slot) for slot in law.compiled.body[family.statements[0]].target.slots]
    else:
        written = list(next(entry.indices for entry in law.compiled.initial if entry.name == name))
    return {f"{k}{copy}": f"{index}{copy}" for copy in ("", "_") for k, index in enumerate(written)}

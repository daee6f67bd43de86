"""Averages and widths, which results beyond Assumption 1 cover; and the induction."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NETSOR_PLUS, Context
from tensorprog.assumptions.layers import ITERATED
from tensorprog.assumptions.report import Claim, Finding
from tensorprog.ir import Dot

__all__ = ["averages", "induction", "widths"]


def averages(check: Context) -> Iterator[Finding]:
    """Dots of scale 1/n are averages: numbers in the limit."""
    good: list[int] = []
    given: list[int] = []
    for position in sorted(check.structure.relevant):
        dot = check.netsor.body[position]
        if not (isinstance(dot, Dot) and dot.scale == "1/n"):
            continue
        if position in check.structure.score_dependent:
            given.append(position)
        else:
            good.append(position)
    if good:
        names = ", ".join(check.text(p) for p in good)
        check.claim(Claim("averages", "proved", f"{names} converge to numbers ({NETSOR_PLUS})"))
        yield check.finding(
            "holds", tuple(good), f"{names}: 1/n scale, so averages, which converge to numbers ({NETSOR_PLUS})"
        )
    if given:
        score = next(p for p in check.structure.scores if p in check.structure.ancestors(given[0]))
        chain = check.structure.chain(score, given[0])
        names = ", ".join(dict.fromkeys(check.text(p) for p in given))
        check.claim(
            Claim(ITERATED, "conjecture", f"{names}: averages behind scores converge to functions of the scores")
        )
        yield check.finding(
            "holds",
            (given[0],),
            f"{names}: averages over vectors that depend on the score {check.text(score)} through "
            f"{check.chain_text(chain)}, so random in the limit, functions of the scores (a conjecture)",
            chain=chain,
        )


def widths(check: Context) -> Iterator[Finding]:
    """Several widths go to infinity together; fixed ones stay finite."""
    used = {
        check.netsor.families[v.name].width
        for p in check.structure.relevant
        for v in (check.netsor.body[p].target, *check.netsor.body[p].inputs)
    } - {""}
    fixed = [name for name, _ in check.netsor.fixed_widths if name in used]
    growing = used - set(fixed)
    if len(growing) > 1:
        names = ", ".join(sorted(growing))
        check.claim(
            Claim(
                "several widths",
                "proved",
                f"the widths {names} go to infinity together, in fixed ratios "
                "(Yang 2019, Theorem 5.4 with several widths)",
            )
        )
        yield check.finding("holds", (), f"the widths {names} go to infinity together, in fixed ratios (Yang 2019)")
    if fixed:
        names = ", ".join(fixed)
        check.claim(
            Claim("fixed width", "exact", f"{names} stays finite: scores are products of Gaussians there")
        )
        yield check.finding(
            "holds", (), f"the width {names} stays finite; scores are products of Gaussians there, exactly"
        )


def induction(check: Context) -> Iterator[Finding]:
    """Definitions are inductive; the program's construction has checked it."""
    yield check.finding(
        "holds",
        (),
        "every vector is made of earlier ones; recurrences decrease along an index (Sakai et al. 2025, footnote 2)",
    )

"""Averages and widths, which results beyond Assumption 1 cover; and the induction."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NETSOR_PLUS, NOT_COVERED, Context
from tensorprog.assumptions.report import Claim, Finding
from tensorprog.ir import Dot

__all__ = ["averages", "induction", "widths"]


def averages(check: Context) -> Iterator[Finding]:
    """Dots of scale 1/n are averages: numbers in the limit."""
    good = []
    for position in sorted(check.structure.relevant):
        dot = check.netsor.body[position]
        if not (isinstance(dot, Dot) and dot.scale == "1/n"):
            continue
        if position in check.structure.score_dependent:
            score = next(p for p in check.structure.scores if p in check.structure.ancestors(position))
            chain = check.structure.chain(score, position)
            yield check.finding(
                "fails",
                (position,),
                f"the average {dot.target} is taken over vectors that depend on the score "
                f"{check.text(score)} through {check.chain_text(chain)}; its limit is random, a function of the "
                "scores, and no theorem cited here covers it",
                "average vectors before the scores enter",
                NOT_COVERED,
                chain,
            )
        else:
            good.append(position)
    if good:
        names = ", ".join(check.text(p) for p in good)
        check.claims.append(Claim("averages", "proved", f"{names} converge to numbers ({NETSOR_PLUS})"))
        yield check.finding(
            "holds", tuple(good), f"{names}: 1/n scale, so averages, which converge to numbers ({NETSOR_PLUS})"
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
        check.claims.append(
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
        check.claims.append(
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

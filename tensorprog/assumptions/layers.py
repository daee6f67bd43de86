"""Layers of scores: one, or several taken one after another by conditioning on the scores before.

Source    Sakai et al. 2025, Theorem 1; theory.md section 6 for several layers
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorprog.assumptions.context import NOT_COVERED, Context
from tensorprog.assumptions.report import Claim, Finding
from tensorprog.facts import FAILS, HOLDS, Verdict
from tensorprog.ir import MatMul

__all__ = ["ITERATED", "one_layer"]

ITERATED = "iterated layers"


def one_layer(check: Context) -> Iterator[Finding]:
    """No weight multiplies a vector that depends on a score; else no weight of a score is used in a later layer."""
    behind = list(check.structure.behind_scores)
    if not behind:
        return
    reused = list(_reused(check))
    yield from reused
    if reused:
        return
    names = ", ".join(dict.fromkeys(check.text(p) for p in behind))
    check.claim(
        Claim(
            ITERATED,
            "conjecture",
            f"{names}: weights behind scores; given the scores of one layer the next is a Netsor program whose "
            "covariances depend on them, because no weight that made a score operand is used again",
        )
    )
    score = next(p for p in check.structure.scores if p in check.structure.ancestors(behind[0]))
    chain = check.structure.chain(score, behind[0])
    yield check.finding(
        "holds",
        (behind[0],),
        f"{check.netsor.body[behind[0]]} depends on the score {check.text(score)} through {check.chain_text(chain)}, "
        "beyond Theorem 1, which covers one layer of scores; the layers are taken one after another (a conjecture)",
        chain=chain,
    )


def _reused(check: Context) -> Iterator[Finding]:
    """Weights that make an operand of a score and, in a layer that depends on it, of another score."""
    structure, body = check.structure, check.netsor.body
    makers = [
        (operand.dot, operand.definer, statement.weight.name)
        for operand in structure.operands
        if operand.definer is not None and isinstance(statement := body[operand.definer], MatMul)
    ]
    told: set[str] = set()
    shared: dict[tuple[int, int], tuple[int, int, Verdict]] = {}  # scores that share a weight, and the MatMuls
    for (one, first, name), (two, second, other) in product(dict.fromkeys(makers), repeat=2):
        if name != other or name in told:
            continue
        for index in structure.loops(first, second):
            verdict, _ = structure.same_member(first, second, apart=index)
            if verdict is not HOLDS and name not in told:
                told.add(name)
                yield _again(check, (one, first), (two, second), verdict, f" at a later {index}")
        verdict, _ = structure.same_member(first, second)
        if one != two and first != second and verdict is not HOLDS:  # one vector may serve the scores of many layers
            shared[one, two] = first, second, verdict
    tangled = structure.tangled(shared)
    for (one, two), (first, second, verdict) in shared.items():
        weight = body[first]
        assert isinstance(weight, MatMul)
        if one in tangled and weight.weight.name not in told and (structure.precedes(one, two) or one < two):
            told.add(weight.weight.name)
            yield _again(check, (one, first), (two, second), verdict, "")


def _again(
    check: Context, first: tuple[int, int], second: tuple[int, int], verdict: Verdict, where: str
) -> Finding:
    (one, maker), (two, other) = first, second
    old, new = check.source(maker), check.source(other)
    assert isinstance(old, MatMul)
    assert isinstance(new, MatMul)
    may = "is used" if verdict is FAILS else "may be used"
    return check.finding(
        "fails" if verdict is FAILS else "unknown",
        (other, maker),
        f"{old.matrix} makes {check.text(maker)}, an operand of the score {check.text(one)}, and {may} again{where} "
        f"for {check.text(other)}, an operand of the score {check.text(two)} in a layer behind it. Layers can be taken "
        "one after another only if no weight that made a score operand is used again",
        f"give {check.text(other)} a weight of its own, one for each layer",
        NOT_COVERED,
        (maker, one, other, two),
        (check.weight(old.weight.name),),
    )

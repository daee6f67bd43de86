"""Layers of scores: one, or several taken one after another by conditioning on the scores before.

Source    Sakai et al. 2025, Theorem 1; theory.md section 6 for several layers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tensorprog.check.clauses.context import Context, Maker
from tensorprog.check.clauses.report import Claim, Finding
from tensorprog.check.rewrites import linear_given_scores
from tensorprog.language.facts import FAILS, HOLDS, Verdict

__all__ = ["ITERATED", "one_layer"]

ITERATED = "iterated layers"


def one_layer(check: Context) -> Iterator[Finding]:
    """No weight multiplies a vector that depends on a score; else no weight of a score is used in a later layer.

    Weights that could be moved inside combinations with scalar coefficients count as moved, where writing that out
    would be too long or cannot be done for a recurrence.
    """
    behind = list(check.structure.behind_scores)
    if not behind:
        return
    if linear_given_scores(check.netsor):
        names = ", ".join(dict.fromkeys(check.text(p) for p in behind))
        message = (
            f"{names}: these weights multiply combinations of vectors whose coefficients are scalars; moved inside, "
            "which is exact, they leave one layer of scores (not written out: a recurrence, or too long)"
        )
        yield check.finding("holds", tuple(behind), message)
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
    ancestors = check.structure.ancestors(behind[0])
    score = next(p for p in check.structure.scores if p in ancestors)
    chain = check.structure.chain(score, behind[0])
    yield check.finding(
        "holds",
        (behind[0],),
        f"{check.netsor.body[behind[0]]} depends on the score {check.text(score)} through {check.chain_text(chain)}, "
        "beyond Theorem 1, which covers one layer of scores; the layers are taken one after another (a conjecture)",
        ways=(chain,),
        source="",
    )


def _reused(check: Context) -> Iterator[Finding]:
    """Weights that make an operand of a score and, in a layer that depends on it, of another score."""
    structure = check.structure
    by_weight: dict[str, list[Maker]] = {}
    for maker in check.makers(structure.operands):
        by_weight.setdefault(maker.statement.weight.name, []).append(maker)
    told: set[str] = set()
    shared: dict[tuple[int, int], tuple[Maker, Maker, Verdict]] = {}  # scores that share a weight, and the MatMuls
    for name, makers in by_weight.items():
        later = next(_later(check, makers), None)
        if later is not None:
            told.add(name)
            yield later
            continue
        for first, second in product(makers, repeat=2):
            if first.dot != second.dot and first.position != second.position:  # one vector may serve many layers
                verdict, _ = structure.same_member(first.position, second.position)
                if verdict is not HOLDS:
                    shared[first.dot, second.dot] = first, second, verdict
    if not shared:
        return
    tangled = structure.tangled(shared)
    pairs = [(one, two) for one, two in shared if one in tangled]
    behind = [pair for pair in pairs if structure.precedes(*pair)]  # else the layers meet through other scores
    for pair in behind or [(one, two) for one, two in pairs if one < two]:
        first, second, verdict = shared[pair]
        name = first.statement.weight.name
        if name not in told:
            told.add(name)
            yield _again(check, first, second, verdict)


def _later(check: Context, makers: Sequence[Maker]) -> Iterator[Finding]:
    """Where a weight of score operands is used again in a later round of a recurrence, unless no score is behind it."""
    for first, second in product(makers, repeat=2):
        for index in check.structure.loops(first.position, second.position):
            verdict, _ = check.structure.same_member(first.position, second.position, apart=index)
            if verdict is not HOLDS and _behind_score(check, first.dot, second.dot):
                yield _again(check, first, second, verdict, index)


def _behind_score(check: Context, *dots: int) -> bool:
    """Whether some scores depend on scores; those that do not are one layer, whatever weights they share."""
    return not check.structure.ancestors(*dots).isdisjoint(check.structure.scores)


def _again(check: Context, first: Maker, second: Maker, verdict: Verdict, apart: str = "") -> Finding:
    old, new = check.written_product(first.position), check.written_product(second.position)
    where = f" at a later {apart}" if apart else ""
    may = "is used" if verdict is FAILS else "may be used"
    message = (
        f"{old.matrix} makes {old.target}, an operand of the score {check.text(first.dot)}, and {may} again{where} "
        f"for {new.target}, an operand of the score {check.text(second.dot)} in a layer behind it. Layers can be taken "
        "one after another only if no weight that made a score operand is used again"
    )
    back = check.structure.chain(first.dot, second.position)
    message += f"; the way there: {check.chain_text(back)}" if back else ""
    ways = ((first.position, first.dot), back, (second.position, second.dot))
    return check.used_again(verdict, first.position, second.position, message, ways, apart)

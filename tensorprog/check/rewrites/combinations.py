"""Whether weights behind scores could all be moved inside the combinations that they multiply, however long that is."""

from __future__ import annotations

from tensorprog.check.rewrites.editor import Editor
from tensorprog.check.rewrites.steps import combined
from tensorprog.language.ir import Dot, Netsor, Nonlin

__all__ = ["linear_given_scores"]


def linear_given_scores(netsor: Netsor) -> bool:
    """Whether every weight behind a score multiplies a combination of vectors whose coefficients are scalars.

    The vectors of a combination do not depend on scores, or are products of such combinations with weights, or such
    combinations again; by induction over members all are sums of c(p) W_k .. W_1 x, where x depends on no score.  So
    moving all MatMuls inside is exact at every n, and leaves one layer of scores.  False where averages behind scores
    may be among the coefficients, or there are widths that stay finite.

    Source    theory.md sections 3 and 4
    """
    editor = Editor(netsor, ())
    structure, body = editor.structure, netsor.body
    behind = {position for later in structure.behind_scores for position in structure.ancestors(later)}
    random = (body[position] for position in structure.random & behind)
    if structure.finite_dependent or any(isinstance(s, Dot) and s.scale == "1/n" for s in random):
        return False
    waiting = [definer for definers in structure.behind_scores.values() for definer in definers]
    seen: set[int] = set()
    while waiting:
        position = waiting.pop()
        statement = body[position]
        if position in seen or position not in structure.score_dependent or not isinstance(statement, Nonlin):
            continue
        seen.add(position)
        scored = combined(editor, statement.expr, editor.scored)
        if scored is None:
            return False
        waiting += [definer for vector in scored for definer in structure.definers(position, vector)]
    return True

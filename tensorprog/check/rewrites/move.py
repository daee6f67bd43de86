"""`move`: weights behind scores taken inside the combinations of vectors that they multiply.

    W (sum_j a_j v_j) = sum_j a_j W v_j      a_j scalars, of scores too

Exact, because a matrix is linear; products of such sums are multiplied out.  It is of use only where it goes on until
no weight is behind a score.

Source    the theory page, "Exact rewrites"; Sakai et al. 2025 (arXiv 2506.00846), App. A.1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.check.rewrites.linear import leaves, taken_inside
from tensorprog.language.expr import Variable, variables
from tensorprog.language.ir import MatMul, Nonlin

__all__ = ["move"]


def move(editor: Editor) -> Iterator[Rewrite]:
    """Take MatMuls behind scores inside the combinations of vectors that they read.

    Raises    Stuck if there is one for which that will never be possible
    """
    for position, definers in editor.structure.behind_scores.items():
        if _waits(editor, definers):
            continue
        moved = taken_inside(editor, position, "vector", editor.scored)
        if moved is not None:
            yield editor.becomes("move", position, moved)
        elif not _may_become_a_combination(editor, definers):
            yield from _unfold(editor, definers)


def _waits(editor: Editor, definers: Sequence[int]) -> bool:
    """Whether combinations read what is to be moved first: taken one by one, k weights in a row make k new MatMuls."""
    nonlins = [(d, s) for d in definers if isinstance(s := editor.netsor.body[d], Nonlin)]
    read = {p for d, s in nonlins for v in s.inputs for p in editor.structure.definers(d, v)}
    return not read.isdisjoint(editor.structure.behind_scores)


def _may_become_a_combination(editor: Editor, definers: Sequence[int]) -> bool:
    """Whether a vector is made by a single MatMul: a later round may move that one."""
    return len(definers) == 1 and isinstance(editor.netsor.body[definers[0]], MatMul)


def _unfold(editor: Editor, definers: Sequence[int]) -> Iterator[Rewrite]:
    """Write out the score-dependent vectors beside vector factors in a Nonlin, so that the factors reach what is below.

    Raises    Stuck if that is not possible
    """
    position, nonlin = definers[0], editor.netsor.body[definers[0]]
    if len(definers) > 1 or not isinstance(nonlin, Nonlin):
        raise Stuck
    scored = leaves(editor, nonlin.expr, editor.scored)
    beside = {v for leaf in scored if not isinstance(leaf, Variable) for v in variables(leaf) if editor.scored(v)}
    known = {v for v in beside if not _may_become_a_combination(editor, editor.structure.definers(position, v))}
    if not beside:
        raise Stuck
    if known and position not in editor.changed:
        expr = editor.written_out(position, nonlin, known)
        if expr == nonlin.expr:
            raise Stuck
        yield editor.becomes("inline", position, expr)

"""`expand`: scores of sums written as sums of scores.

    (c u + d v).k = c (u.k) + d (v.k)      c, d scalars

Exact, because an inner product is linear in each operand; a score of a family of several definitions is split first.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.rewrites.linear import split_apart, taken_inside

__all__ = ["expand"]


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    for position in editor.structure.scores:
        expanded = (taken_inside(editor, position, side, editor.vector) for side in ("left", "right"))
        expr = next((expr for expr in expanded if expr is not None), None)
        if expr is not None:
            yield editor.becomes("expand", position, expr)
            continue
        splits = (split_apart(editor, position, side, editor.vector) for side in ("left", "right"))
        split = next((split for split in splits if split is not None), None)
        if split is not None:
            yield split

"""`expand`: scores of sums written as sums of scores.

    (c u + d v).k = c (u.k) + d (v.k)      c, d scalars

Exact, because an inner product is linear in each operand; a score of a family of several definitions is split first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.rewrites.linear import split_apart, taken_inside
from tensorprog.language.ir import Nonlin

__all__ = ["expand"]


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    body = editor.netsor.body
    made = {o.dot for o in editor.structure.operands if o.definer is not None and isinstance(body[o.definer], Nonlin)}
    for position in sorted(made):
        expanded = (taken_inside(editor, position, side, editor.vector) for side in ("left", "right"))
        expr = next((expr for expr in expanded if expr is not None), None)
        if expr is not None:
            yield editor.becomes("expand", position, expr)
            continue
        splits = (split_apart(editor, position, side, editor.vector) for side in ("left", "right"))
        yield from islice(filter(None, splits), 1)

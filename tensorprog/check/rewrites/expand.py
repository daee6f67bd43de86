"""`expand`: scores of sums written as sums of scores, where an operand needs it.

    (c u + d v).k = c (u.k) + d (v.k)      c, d scalars

Exact, because an inner product is linear in each operand.  A score whose operands are functions of MatMul outputs that
have a limit as they are, with averages among their coefficients, stays: written as a sum, its parts would only have to
be added again.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.operands import coordinatewise
from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.rewrites.linear import taken_inside
from tensorprog.language.expr import variables
from tensorprog.language.ir import Nonlin

__all__ = ["expand"]


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    body, families = editor.netsor.body, editor.netsor.families
    averaged = set[int]()  # scores with operands that read averages, by position
    made = set[int]()
    for o in editor.structure.operands:
        statement = None if o.definer is None else body[o.definer]
        if isinstance(statement, Nonlin):
            made.add(o.dot)
            if any(families[v.name].kind == "scalar" for v in variables(statement.expr)):
                averaged.add(o.dot)
    kept = averaged & coordinatewise(editor.structure).keys() if averaged else set[int]()
    for position in sorted(made - kept):
        expanded = (taken_inside(editor, position, side, editor.vector) for side in ("left", "right"))
        expr = next((expr for expr in expanded if expr is not None), None)
        if expr is not None:
            yield editor.becomes("expand", position, expr)

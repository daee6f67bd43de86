"""`ratios`: scores that stand in ratios only, in which their scale cancels, written as averages.

    p_j / sum_k p_k,    p_j = n**-0.5 u.v_j,    is the same function of n**-1 u.v_j

Exact at every n, where all that outputs and weights read is unchanged when these scores are multiplied by a number.
Scores of two MatMul outputs, and others of mean zero, are left: as averages they would be 0 / 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.signs import coordinatewise
from tensorprog.language.expr import Call, Expr, Number, Reduction, Variable, fold
from tensorprog.language.ir import Dot, Nonlin

__all__ = ["ratios"]

POSITIVE = ("add", "subtract", "negative", "abs", "relu", "leaky_relu", "maximum", "minimum")  # f(c x) = c f(x), c > 0
LOST = Fraction(10**6)  # stands for what is multiplied by no power of the number


def ratios(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of functions of vectors, of which everything is a ratio, as averages."""
    structure, body = editor.structure, editor.netsor.body
    made = {o.dot for o in structure.operands if isinstance(o.statement, Nonlin) and not structure.fixed(o.dot)}
    scores = made - coordinatewise(structure).keys() if made else made
    degrees: dict[str, Fraction] = {}
    for position, statement in [*enumerate(body)] * 2 if scores else ():  # again, with what recurrences make
        if isinstance(statement, Nonlin):
            degree = _degree(statement.expr, degrees)
        else:  # of a MatMul or a Dot that reads what is multiplied, nothing is asked
            degree = Fraction(position in scores) if all(not degrees.get(v.name) for v in statement.inputs) else LOST
        if degree is LOST or degrees.setdefault(statement.target.name, degree) != degree:
            return
    if not any(degrees.get(name) for name in editor.netsor.outputs):
        for position in sorted(scores):
            dot = body[position]
            assert isinstance(dot, Dot)
            editor.changed[position] = new = replace(dot, scale="1/n")
            yield Rewrite("ratios", editor.origin[position], dot.span.line, f"{dot} becomes {new}, in ratios only")


def _degree(expr: Expr, degrees: Mapping[str, Fraction]) -> Fraction:
    """The power of a number by which an expression is multiplied where the scores are multiplied by the number."""

    def leaf(node: Expr) -> Fraction | None:
        if isinstance(node, Variable):
            return degrees.get(node.name, Fraction(0))
        return None if node.children else Fraction(0)

    def applied(node: Expr, *own: Fraction) -> Fraction:
        if LOST in own:
            return LOST
        if not any(own):
            return Fraction(0)
        if isinstance(node, Reduction):
            return own[0] if node.reducer in ("sum", "mean", "max", "min") else LOST
        assert isinstance(node, Call)
        if node.atom in ("multiply", "divide"):
            return own[0] + own[1] if node.atom == "multiply" else own[0] - own[1]
        if node.atom == "power" and isinstance(node.args[1], Number):
            return own[0] * Fraction(node.args[1].value)
        if node.atom == "sqrt":
            return own[0] / 2
        same = len(set(own[: len(node.args)] if node.atom == "leaky_relu" else own)) == 1
        return own[0] if node.atom in POSITIVE and same else LOST

    return fold(expr, {}, leaf, applied)

"""What stands in scores: initial vectors as MatMuls, and scores that stand in ratios only as averages.

    biases      b_i = W_i 1, the entries of W_i having the variance of b_i, equal in law at every n
    ratios      p_j / sum_k p_k, p_j = n**-0.5 u.v_j, is the same function of n**-1 u.v_j

The first writes initial vectors as products of dedicated weights and the constant vector 1.  The second is exact at
every n, where all that outputs and weights read is unchanged when these scores are multiplied by a number.  Scores of
two MatMul outputs, and others of mean zero, are left: as averages they would be 0 / 0.

Source    the theory page, "Exact rewrites"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.signs import coordinatewise
from tensorprog.language.expr import Call, Constant, Expr, Number, Reduction, Variable, fold, slots_of
from tensorprog.language.initials import initial_law
from tensorprog.language.ir import ConstantDef, Dot, MatMul, Nonlin, Table, Weight

POSITIVE = ("add", "subtract", "negative", "abs", "relu", "leaky_relu", "maximum", "minimum")  # f(c x) = c f(x), c > 0
LOST = Fraction(10**6)  # stands for what is multiplied by no power of the number


def biases(editor: Editor) -> Iterator[Rewrite]:
    """Write score operands that are independent initial vectors of mean zero as MatMuls of the constant vector 1."""
    operands = {o.reference.name for o in editor.structure.operands if o.statement is None}
    for initial in editor.netsor.initial:
        law = initial_law(editor.netsor, initial) if initial.name in operands else None
        if law is None or np.any(law.mean) or np.any(law.blocks * ~np.eye(law.blocks.shape[-1], dtype=bool)):
            continue
        variance, slots = initial.cov, slots_of(initial.indices)
        if law.joint or not isinstance(variance, Expr) or initial.data is not None:
            values, order = np.diagonal(law.blocks, axis1=-2, axis2=-1), (*law.independent, *law.joint)
            if order:
                table = Table.of(values.reshape([editor.size_of(index) for index in order]))
                editor.constants.append(ConstantDef(editor.name(f"v_{initial.name}"), table, order))
            variance = Constant(editor.constants[-1].name, slots_of(order)) if order else Number(values.item())
        weight = editor.name(f"W_{initial.name}")
        editor.weights.append(Weight(weight, initial.indices, variance, (initial.width, initial.width), initial.span))
        editor.initials[weight] = initial.name
        target = Variable(initial.name, slots)
        ones = editor.ones(-1, initial.width, str(target))
        made = MatMul(target, Variable(weight, slots), ones, initial.span)
        editor.add(-1, made, str(target))
        text = f"the initial vectors {target} become {made}"
        yield Rewrite("biases", str(target), initial.span.line, text, "equal in law at every n")


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
        if LOST in own or not any(own):
            return LOST if LOST in own else Fraction(0)
        match node:
            case Reduction("sum" | "mean" | "max" | "min"):
                return own[0]
            case Call("multiply"):
                return own[0] + own[1]
            case Call("divide"):
                return own[0] - own[1]
            case Call("power", (_, Number(exponent))):
                return own[0] * Fraction(exponent)
            case Call("sqrt"):
                return own[0] / 2
            case Call(atom) if atom in POSITIVE and len(set(own)) == 1:
                return own[0]
        return LOST

    return fold(expr, {}, leaf, applied)

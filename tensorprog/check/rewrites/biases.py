"""Initial vectors in scores written as MatMuls of the constant vector 1 by dedicated weights.

    b_i = W_i 1,    the entries of W_i having the variance of b_i,    equal in law at every n

Source    the theory page, "Exact rewrites"
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.language.expr import Constant, Expr, Number, Variable, slots_of
from tensorprog.language.initials import initial_law
from tensorprog.language.ir import ConstantDef, MatMul, Table, Weight

__all__ = ["biases"]


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

"""Initial vectors in scores written as MatMuls of the constant vector 1 by dedicated weights.

    b_i = sum_k L_ik (W_k 1),    L L^T = Cov(b),    equal in law at every n

Source    theory.md section 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.language.expr import Call, Constant, Expr, Number, Reduction, Variable, slots_of
from tensorprog.language.initials import InitialLaw, initial_law
from tensorprog.language.ir import ConstantDef, Initial, MatMul, Nonlin, Table, Weight

__all__ = ["biases"]

MAX_FACTOR = 4_000_000  # entries of the factor of a covariance


def biases(editor: Editor) -> Iterator[Rewrite]:
    """Write initial vectors of mean zero that are score operands as MatMuls of the constant vector 1."""
    operands = {o.reference.name for o in editor.structure.operands if o.definer is None}
    for initial in editor.netsor.initial:
        law = initial_law(editor.netsor, initial) if initial.name in operands else None
        if law is None or np.any(law.mean):
            continue
        made: MatMul | Nonlin
        if isinstance(initial.cov, Expr) and initial.data is None and not law.joint:
            made = _product(editor, initial, initial.name, initial.indices, initial.cov)
        elif not initial.indices:
            made = _product(editor, initial, initial.name, (), Number(law.blocks.item()))
        elif law.blocks.size <= MAX_FACTOR:
            made = _joint(editor, initial, law)
        else:
            continue
        editor.add(-1, made, str(made.target))
        editor.replaced.add(initial.name)
        text = f"the initial vectors {made.target} become {made}"
        yield Rewrite("biases", str(made.target), initial.span.line, text, "equal in law at every n")


def _product(editor: Editor, initial: Initial, name: str, indices: Sequence[str], variance: Expr) -> MatMul:
    """The family `name` of dedicated weights times the constant vector 1."""
    weight, slots = editor.name(f"W_{initial.name}"), slots_of(indices)
    editor.weights.append(Weight(weight, tuple(indices), variance, (initial.width, initial.width), initial.span))
    editor.initials[weight] = initial.name
    ones = editor.ones(-1, initial.width, str(Variable(initial.name, slots_of(initial.indices))))
    return MatMul(Variable(name, slots), Variable(weight, slots), ones, initial.span)


def _joint(editor: Editor, initial: Initial, law: InitialLaw) -> Nonlin:
    """b_i = sum_k L_ik (W_k 1), with L L^T the covariance over the joint indices."""
    target = Variable(initial.name, slots_of(initial.indices))
    copies = tuple(editor.copy_index(name) for name in law.joint)
    sizes = [editor.size_of(name) for name in law.joint]
    factor = Table.of(law.factor.reshape(*law.blocks.shape[:-2], *sizes, *sizes))
    indices = (*law.independent, *law.joint, *copies)
    constant = ConstantDef(editor.name(f"L_{initial.name}"), factor, indices, initial.span)
    editor.constants.append(constant)
    source = _product(editor, initial, editor.name(f"{initial.name}_x"), (*law.independent, *copies), Number(1))
    editor.add(-1, source, str(target))
    product = Call("multiply", (Constant(constant.name, slots_of(constant.indices)), source.target))
    return Nonlin(target, Reduction("sum", copies, product), "", initial.span)

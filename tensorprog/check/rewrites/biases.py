"""Initial vectors in scores written as MatMuls of the constant vector 1 by dedicated weights.

    b_i = sum_k L_ik (W_k 1),    L L^T = Cov(b),    equal in law at every n

Source    the theory page, "Exact rewrites"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

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
        diagonal = not np.any(law.blocks * ~np.eye(law.blocks.shape[-1], dtype=bool))
        if not diagonal and law.blocks.size > MAX_FACTOR:
            continue
        made = _independent(editor, initial, law) if diagonal else _joint(editor, initial, law)
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


def _table(editor: Editor, name: str, array: NDArray[np.float64], indices: Sequence[str]) -> Expr:
    """An array as a constant of the program, read at its indices."""
    if not indices:
        return Number(array.item())
    values = Table.of(array.reshape([editor.size_of(index) for index in indices]))
    editor.constants.append(ConstantDef(editor.name(name), values, tuple(indices)))
    return Constant(editor.constants[-1].name, slots_of(indices))


def _independent(editor: Editor, initial: Initial, law: InitialLaw) -> MatMul:
    """b_i = W_i 1 for members that are independent of each other."""
    variance = initial.cov
    if law.joint or not isinstance(variance, Expr) or initial.data is not None:
        values = np.diagonal(law.blocks, axis1=-2, axis2=-1)
        variance = _table(editor, f"v_{initial.name}", values, (*law.independent, *law.joint))
    return _product(editor, initial, initial.name, initial.indices, variance)


def _joint(editor: Editor, initial: Initial, law: InitialLaw) -> Nonlin:
    """b_i = sum_k L_ik (W_k 1), with L L^T the covariance over the joint indices."""
    target = Variable(initial.name, slots_of(initial.indices))
    copies = tuple(editor.copy_index(name) for name in law.joint)
    factor = _table(editor, f"L_{initial.name}", law.factor, (*law.independent, *law.joint, *copies))
    source = _product(editor, initial, editor.name(f"{initial.name}_x"), (*law.independent, *copies), Number(1))
    editor.add(-1, source, str(target))
    return Nonlin(target, Reduction("sum", copies, Call("multiply", (factor, source.target))), "", initial.span)

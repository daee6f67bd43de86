"""`turn`: W^T of a weight that is used in no other way, declared as a weight of its own.

Exact in law: the entries of W^T are independent and Gaussian like those of W, N(0, v / columns of W); as a weight with
the widths exchanged they are N(0, v' / columns of W^T) with v' = v rows / columns of W.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorprog.check.rewrites.editor import Editor, Rewrite
from tensorprog.check.signs import transposed_weight
from tensorprog.language.ir import MatMul

__all__ = ["turn"]


def turn(editor: Editor) -> Iterator[Rewrite]:
    """Declare the transposes of weights that are used in no other way as the weights."""
    by_weight: dict[str, dict[int, MatMul]] = {weight.name: {} for weight in editor.netsor.weights}
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, MatMul):
            by_weight[statement.weight.name][position] = statement
    for weight in editor.netsor.weights:
        uses = by_weight[weight.name]
        finite = {width in dict(editor.netsor.fixed_widths) for width in weight.shape}
        if uses and len(finite) == 1 and all(s.transposed for s in uses.values()):
            name = editor.name(f"{weight.name}_T")
            editor.weights.append(transposed_weight(editor.netsor, weight, name))
            editor.replaced.add(weight.name)
            for position, s in uses.items():
                editor.changed[position] = replace(s, weight=replace(s.weight, name=name), transposed=False)
            first = min(uses)
            text = f"the transpose of {weight.name} is declared as the weight {name}"
            yield Rewrite("turn", editor.origin[first], uses[first].span.line, text)

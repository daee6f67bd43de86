"""Linear layers, matrix products, embeddings, attention, normalisation, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorprog.importing.operations import Result, TracedCall, random, rule
from tensorprog.importing.parameters import Parameters
from tensorprog.importing.products import added, einsum, multiplied, summed
from tensorprog.importing.values import Axes, AxisPart, FixedTensor, Traced, atoms_of, sizes_of
from tensorprog.language.expr import Number, Reduction, free_indices

Operand = Traced | FixedTensor


def rank_of(operand: Operand) -> int:
    """The number of axes."""
    return len(operand.axes) if isinstance(operand, Traced) else len(operand.shapes[0])


def biased(sketch: Parameters, value: Traced, bias: Operand | None) -> Traced:
    """A bias added."""
    return value if bias is None else added(sketch, value, bias)


@rule("linear")
def linear(sketch: Parameters, operation: TracedCall) -> Result:
    """x W^T + b."""
    x, weight, bias = operation.tensor(0), operation.tensor(1, "weight"), operation.tensor(2, "bias")
    lead = [f"b{k}" for k in range(rank_of(x) - 1)]
    made = einsum(sketch, x, [*lead, "in"], weight, ["out", "in"], [*lead, "out"])
    return biased(sketch, made, bias)


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__")
def matmul(sketch: Parameters, operation: TracedCall) -> Result:
    """A matrix product."""
    return matrix_product(sketch, operation.tensor(0), operation.tensor(1))


def matrix_product(sketch: Parameters, left: Operand, right: Operand) -> Traced:
    """left @ right, with broadcasting of leading axes."""
    ranks = rank_of(left), rank_of(right)
    width = max(max(ranks) - 2, 0)
    batch = [f"b{k}" for k in range(width)]
    one = [*batch[width - max(ranks[0] - 2, 0) :], *(["row"] if ranks[0] > 1 else []), "in"]
    other = [*batch[width - max(ranks[1] - 2, 0) :], "in", *(["column"] if ranks[1] > 1 else [])]
    out = [*batch, *(["row"] if ranks[0] > 1 else []), *(["column"] if ranks[1] > 1 else [])]
    return einsum(sketch, left, one, right, other, out)


@rule("einsum")
def einsums(sketch: Parameters, operation: TracedCall) -> Result:
    """torch.einsum with one or two operands."""
    text, operands = operation.plain(0), operation.plain(1)
    left, _, out = text.replace(" ", "").partition("->")
    inputs = left.split(",")
    if "..." in text or len(inputs) != 2 or any(len(set(labels)) < len(labels) for labels in inputs):
        raise sketch.refuse(f"einsum {text}", "use two operands, distinct letters and no dots")
    out = out if "->" in text else "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    return einsum(sketch, operands[0], list(inputs[0]), operands[1], list(inputs[1]), list(out))


@rule("embedding")
def embedding(sketch: Parameters, operation: TracedCall) -> Result:
    """RandomRows of a table at fixed places: random vectors, equal where the places are."""
    table, places = operation.tensor(0), operation.tensor(1, "indices")
    if not isinstance(places, FixedTensor):
        raise sketch.refuse("which rows are read depends on numbers that flow through the network", "fix the tokens")
    ids = np.asarray(places.arrays[0])
    if not np.array_equal(ids, places.arrays[1]):
        raise sketch.refuse("the tokens change with the width", "use the same tokens at every width")
    if isinstance(table, FixedTensor):
        return FixedTensor((table.arrays[0][ids], table.arrays[1][ids]))
    assert isinstance(table, Traced)
    if not table.parameter:
        raise sketch.refuse("a table that is computed", "use nn.Embedding")
    axes: list[tuple[AxisPart, ...]] = [(sketch.atom((size, size)),) if size > 1 else () for size in ids.shape]
    kept = [k for k, size in enumerate(ids.shape) if size > 1 and not (ids == ids.take([0], k)).all()]
    small = ids[tuple(slice(None) if k in kept else 0 for k in range(ids.ndim))].reshape(-1)
    seen = small != sketch.entry(table).law.padding
    gram = (small[:, None] == small[None, :]).astype(float) * seen[:, None] * seen[None, :]
    width = [atom for atom in table.axes[1] if atom.is_width]
    own = [atom for atom in table.axes[1] if not atom.is_width]
    made = sketch.rows_of(table, [axes[k][0] for k in kept], own, width[0] if width else None, None, gram)
    return replace(made, axes=(*axes, table.axes[1]))


# ---- reductions -----------------------------------------------------------------------------------------------------


def _dims(operation: TracedCall, position: int, rank: int) -> list[int]:
    dims = operation.plain(position, "dim")
    dims = range(rank) if dims is None or dims == () else [dims] if isinstance(dims, int) else dims
    return sorted(dim % rank for dim in dims)


def _left(value: Traced, dims: Sequence[int], keep: bool) -> Axes:
    return tuple(() if k in dims else axis for k, axis in enumerate(value.axes) if keep or k not in dims)


def averaged(sketch: Parameters, value: Traced, atoms: Sequence[AxisPart], axes: Axes) -> Traced:
    """The mean over some atoms."""
    value = sketch.settled(value)
    if not any(atom.is_width for atom in atoms):
        mentioned = [atom for atom in atoms if atom.name in free_indices(value.expr)]
        expr = sketch.reduced("mean", mentioned, value.expr) if mentioned else value.expr
        return replace(value, expr=expr, axes=axes)
    one, other = sizes_of(atoms)
    return multiplied(sketch, summed(sketch, value, atoms, axes), FixedTensor((1 / one, 1 / other)))


@rule("mean", "sum")
def means(sketch: Parameters, operation: TracedCall) -> Result:
    """Sums and means over axes."""
    value = random(sketch, operation.tensor(0))
    dims = _dims(operation, 1, len(value.axes))
    over = averaged if operation.operation.kind == "mean" else summed
    axes = _left(value, dims, bool(operation.plain(2, "keepdim", False)))
    return over(sketch, value, atoms_of(tuple(value.axes[k] for k in dims)), axes)


@rule("amax", "amin", "logsumexp", "softmax", "_softmax", "max", "min")
def over_indices(sketch: Parameters, operation: TracedCall) -> Result:
    """What acts over indices: largest entries, softmax."""
    kind = operation.operation.kind.lstrip("_")
    if kind in ("max", "min") and not isinstance(operation.plain(1, "dim"), int):
        raise sketch.refuse(f"{kind} of two tensors or of all entries", "use torch.maximum, torch.minimum or amax")
    value = sketch.level(random(sketch, operation.tensor(0)), f"the argument of {kind}")
    dims = _dims(operation, 1, len(value.axes))
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    if any(atom.is_width for atom in atoms):
        raise sketch.refuse(f"{kind} acts over the coordinates of a vector", "let it act over tokens")
    if kind == "softmax":
        names = tuple(atom.name for atom in atoms)
        return replace(value, expr=Reduction(kind, names, value.expr) if atoms else Number(1))
    expr = -value.expr if "min" in kind else value.expr
    expr = sketch.reduced(kind if kind == "logsumexp" else "max", atoms, expr) if atoms else expr
    axes = _left(value, dims, bool(operation.plain(2, "keepdim", False)))
    made = replace(value, expr=-expr if "min" in kind else expr, axes=axes)
    return (made, None) if kind in ("max", "min") else made


def column(operand: Operand | None, rank: int) -> Operand | None:
    """Numbers of channels on the axis of channels, of a tensor with so many axes behind the batch."""
    if isinstance(operand, FixedTensor):
        return operand.each(lambda array: array.reshape(-1, *[1] * (rank - 1)))
    return operand if operand is None else operand.on((*operand.axes, *((),) * (rank - 1)))

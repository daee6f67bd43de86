"""Linear layers, matrix products, embeddings, attention, normalisation, reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tensorprog.importing.elementwise import raised
from tensorprog.importing.laws import Pieces
from tensorprog.importing.masks import NEVER, condition, masked, unchanging
from tensorprog.importing.operations import Result, TracedCall, random, rule
from tensorprog.importing.parameters import Parameters
from tensorprog.importing.products import added, einsum, multiplied, summed, together
from tensorprog.importing.values import Axes, AxisPart, FixedTensor, Traced, atoms_of, shapes_of, sizes_of
from tensorprog.language.expr import Number, Reduction, call, free_indices

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


@rule("addmm", "baddbmm")
def addmm(sketch: Parameters, operation: TracedCall) -> Result:
    """b + x W."""
    if operation.plain(9, "alpha", 1) != 1 or operation.plain(9, "beta", 1) != 1:
        raise sketch.refuse("addmm with factors", "write x @ W + b")
    return biased(sketch, matrix_product(sketch, operation.tensor(1), operation.tensor(2)), operation.tensor(0))


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
    gram = (small[:, None] == small[None, :]).astype(float)
    padding = _zero_row(sketch, table)
    if padding is not None:
        gram = gram * (small != padding)[:, None] * (small != padding)[None, :]
    width = [atom for atom in table.axes[1] if atom.is_width]
    own = [atom for atom in table.axes[1] if not atom.is_width]
    made = sketch.rows_of(table, [axes[k][0] for k in kept], own, width[0] if width else None, None, gram)
    return replace(made, axes=(*axes, table.axes[1]))


def _zero_row(sketch: Parameters, table: Traced) -> int | None:
    """The row of padding, which is zero; the other rows then have the one law of the table."""
    if table.parameter in sketch.captured.padding:
        return sketch.captured.padding[table.parameter]
    entry = sketch.entry(table)
    pieces = entry.laws[0]
    zeros = [(low, high) for low, high, law in pieces if not law.random and not law.mean]
    if len(pieces) == 1 or len(zeros) != 1 or zeros[0][1] - zeros[0][0] != 1:
        return None

    def rest(rows: Pieces) -> Pieces:
        return tuple((low, high, law) for low, high, law in rows if low != zeros[0][0])

    sketch.captured.parameters[table.parameter] = replace(
        entry,
        laws=(rest(entry.laws[0]), rest(entry.laws[1])),
        frozen=entry.frozen and rest(entry.frozen),
    )
    sketch.captured.padding[table.parameter] = zeros[0][0]
    return zeros[0][0]


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


@rule("mean", "sum", "var", "std", "var_mean")
def reductions(sketch: Parameters, operation: TracedCall) -> Result:
    """Sums, means and variances over axes."""
    kind = operation.operation.kind
    value = random(sketch, operation.tensor(0))
    dims = _dims(operation, 1, len(value.axes))
    keep = bool(operation.plain(2 if kind in ("mean", "sum") else 3, "keepdim", False))
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    if kind == "sum":
        return summed(sketch, value, atoms, _left(value, dims, keep))
    if kind == "mean":
        return averaged(sketch, value, atoms, _left(value, dims, keep))
    correction = operation.plain(2, "correction", 1)
    correction = int(correction) if isinstance(correction, int | bool | float) else 1
    mean, centred = _centred(sketch, value, dims)
    spread = averaged(sketch, _square(sketch, centred), atoms, _left(value, dims, keep))
    if correction and not any(atom.is_width for atom in atoms):
        size = math.prod(atom.size for atom in atoms)
        spread = multiplied(sketch, spread, FixedTensor((size / (size - 1),) * 2))
    elif correction and sketch.at:
        whole = float(math.prod(sketch.at * sketch.ratio(atom) if atom.is_width else atom.size for atom in atoms))
        spread = multiplied(sketch, spread, FixedTensor((whole / (whole - 1),) * 2))
    elif correction:
        sketch.note(f"a variance over n coordinates divides by n, not by n - 1: {sketch.place.alike}")
    if kind == "std":
        return raised(sketch, spread, 0.5)
    return (spread, mean.on(_left(value, dims, keep))) if kind == "var_mean" else spread


@rule("linalg_vector_norm", "norm")
def norm(sketch: Parameters, operation: TracedCall) -> Result:
    """The Euclidean norm over axes."""
    value = random(sketch, operation.tensor(0))
    if operation.plain(1, "ord" if operation.operation.kind == "linalg_vector_norm" else "p", 2) != 2:
        raise sketch.refuse("a norm that is not Euclidean", "use the norm of order 2")
    dims = _dims(operation, 2, len(value.axes))
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    keep = bool(operation.plain(3, "keepdim", False))
    total = summed(sketch, _square(sketch, value), atoms, _left(value, dims, keep))
    return raised(sketch, total, 0.5)


def _square(sketch: Parameters, value: Traced) -> Traced:
    value = sketch.named(value, "input")
    return replace(value, expr=value.expr**2, power=2 * value.power)


def _centred(sketch: Parameters, value: Traced, dims: Sequence[int]) -> tuple[Traced, Traced]:
    """The mean over axes, kept with size 1, and the value minus it."""
    value = sketch.named(value)
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    mean = sketch.named(averaged(sketch, value, atoms, _left(value, dims, True)), "mean")
    return mean, added(sketch, value, mean, -1.0)


@rule("amax", "amin", "logsumexp", "softmax", "_softmax", "log_softmax", "max", "min")
def over_indices(sketch: Parameters, operation: TracedCall) -> Result:
    """What acts over indices: largest entries, softmax."""
    kind = operation.operation.kind.lstrip("_")
    if kind in ("max", "min") and not isinstance(operation.plain(1, "dim"), int):
        raise sketch.refuse(f"{kind} of two tensors or of all entries", "use torch.maximum, torch.minimum or amax")
    value = sketch.level(random(sketch, operation.tensor(0)), f"the argument of {kind}")
    dims = _dims(operation, 1, len(value.axes))
    keep = "softmax" in kind or bool(operation.plain(2, "keepdim", False))
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    if any(atom.is_width for atom in atoms):
        raise sketch.refuse(f"{kind} acts over the coordinates of a vector", "let it act over tokens")
    axes = value.axes if "softmax" in kind else _left(value, dims, keep)
    if not atoms:
        only = Traced(axes, Number(int(kind == "softmax"))) if "softmax" in kind else value.on(axes)
        return (only, None) if kind in ("max", "min") else only
    names = tuple(atom.name for atom in atoms)
    if kind == "log_softmax":
        value = sketch.named(value)
        others = {atom.name: sketch.atom(atom.sizes, start=atom.start) for atom in atoms}
        inside = sketch.read_at(value, {name: other.slot for name, other in others.items()})
        total = Reduction("logsumexp", tuple(other.name for other in others.values()), inside.expr)
        return replace(value, expr=value.expr - total)
    if kind == "softmax":
        return replace(value, expr=Reduction(kind, names, value.expr))
    if kind in ("amin", "min"):
        made = replace(value, expr=-sketch.reduced("max", atoms, -value.expr), axes=axes)
        return (made, None) if kind == "min" else made
    made = replace(value, expr=sketch.reduced({"amax": "max"}.get(kind, kind), atoms, value.expr), axes=axes)
    return (made, None) if kind == "max" else made


# ---- normalisation --------------------------------------------------------------------------------------------------


def normalised(sketch: Parameters, value: Traced, dims: Sequence[int], eps: float, centre: bool = True) -> Traced:
    """(x - mean) / sqrt(variance + eps) over some axes; without the mean if it is not centred."""
    value = sketch.named(value, "input")
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    plain = replace(value, power=value.power * 0)
    if centre:
        mean = sketch.named(averaged(sketch, plain, atoms, _left(value, dims, True)), "mean")
        plain = sketch.named(added(sketch, plain, mean, -1.0), "centred")
    square = averaged(sketch, replace(plain, expr=plain.expr**2), atoms, _left(value, dims, True))
    square = sketch.named(square, "square")
    if sketch.without_eps(replace(square, power=2 * value.power), eps):
        eps = 0.0
    if value.power and eps and sketch.at is None:
        raise sketch.refuse(
            "what is normalised vanishes or grows with the width, beside eps",
            "scale the initialisation with the width, or give at=",
        )
    if value.power and sketch.at is not None:
        eps = eps * sketch.at ** float(-2 * value.power)
    root = call("sqrt", square.expr + _number(eps) if eps else square.expr)
    return replace(plain, expr=call("divide", plain.expr, root))


def _number(value: float) -> Number:
    return Number(float(f"{value:.6g}"))


def _affine(sketch: Parameters, value: Traced, weight: Operand | None, bias: Operand | None) -> Traced:
    if weight is not None:
        value = multiplied(sketch, value, weight)
    return biased(sketch, value, bias)


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def layer_norm(sketch: Parameters, operation: TracedCall) -> Result:
    """nn.LayerNorm, and nn.RMSNorm, which has no mean and no bias."""
    centre = "layer" in operation.operation.kind
    value = random(sketch, operation.tensor(0))
    rank = len(value.axes)
    eps = operation.plain(4 if centre else 3, "eps", 1e-5 if centre else None)
    eps = float(np.finfo(np.float32).eps) if eps is None else eps
    made = normalised(sketch, value, range(rank - len(operation.plain(1, "normalized_shape")), rank), eps, centre)
    return _affine(sketch, made, operation.tensor(2, "weight"), operation.tensor(3, "bias") if centre else None)


@rule("group_norm")
def group_norm(sketch: Parameters, operation: TracedCall) -> Result:
    """nn.GroupNorm: channels in groups, with all positions."""
    from tensorprog.importing.views import reshaped

    value, groups = random(sketch, operation.tensor(0)), operation.plain(1, "num_groups")
    (b, *one), (_, *other) = operation.shapes
    split = ((b, groups, one[0] // groups, *one[1:]), (b, groups, other[0] // groups, *other[1:]))
    value = reshaped(sketch, value, split)
    made = normalised(sketch, value, range(2, len(value.axes)), operation.plain(4, "eps", 1e-5))
    made = reshaped(sketch, made, operation.shapes)
    return _affine(
        sketch, made, column(operation.tensor(2, "weight"), len(one)), column(operation.tensor(3, "bias"), len(one))
    )


def column(operand: Operand | None, rank: int) -> Operand | None:
    """Numbers of channels on the axis of channels, of a tensor with so many axes behind the batch."""
    if isinstance(operand, FixedTensor):
        return operand.each(lambda array: array.reshape(-1, *[1] * (rank - 1)))
    return operand if operand is None else operand.on((*operand.axes, *((),) * (rank - 1)))


@rule("batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
def batch_norm(sketch: Parameters, operation: TracedCall) -> Result:
    """nn.BatchNorm in evaluation mode: fixed statistics."""
    value = random(sketch, operation.tensor(0))
    weight, bias, mean, variance = (operation.tensor(k) for k in range(1, 5))
    fixed = isinstance(mean, FixedTensor) and isinstance(variance, FixedTensor)
    named = "no_training" in operation.operation.kind  # by which the flag is left out, and three results are given
    eps = operation.plain(6 if named else 7, "eps", 1e-5)
    if (not named and operation.plain(5, "training", False)) or not fixed:
        raise sketch.refuse(
            "batch normalisation in training mode",
            "call module.eval(): fixed statistics, 0 and 1 at "
            "initialisation; programs/batchnorm_mlp.yaml shows the other kind",
        )
    rank = len(value.axes) - 1
    made = added(sketch, value, column(mean, rank), -1.0)  # type: ignore[arg-type]
    root = column(variance.each(lambda array: np.sqrt(array + eps)), rank)
    made = multiplied(sketch, made, root, divide=True)  # type: ignore[arg-type]
    made = _affine(sketch, made, column(weight, rank), column(bias, rank))
    return (made, None, None) if named else made


# ---- attention ------------------------------------------------------------------------------------------------------


@rule("scaled_dot_product_attention")
def attention(sketch: Parameters, operation: TracedCall) -> Result:
    """softmax(q k^T scale + mask) v."""
    q, k, v = (random(sketch, operation.tensor(position)) for position in range(3))
    mask = operation.tensor(3, "attn_mask")
    if operation.plain(4, "dropout_p", 0.0):
        raise sketch.refuse("dropout in training mode", "call module.eval(), or set p=0")
    rank = len(q.axes)
    if operation.plain(7, "enable_gqa", False):
        k, v = (_groups(sketch, operation, x, q, name) for x, name in ((k, "k"), (v, "v")))
    lead = [f"b{axis}" for axis in range(rank - 2)]
    scores = einsum(sketch, q, [*lead, "i", "c"], k, [*lead, "j", "c"], [*lead, "i", "j"])
    one, other = sizes_of(q.axes[-1])
    scale = operation.pair(6, "scale")
    scale = scale if scale[0] is not None else (one**-0.5, other**-0.5)
    scores = sketch.level(multiplied(sketch, scores, FixedTensor(scale)), "a score")
    if operation.plain(5, "is_causal", False):
        seen = np.tril(np.ones(shapes_of(scores.axes[-2:])[0], bool))
        mask = FixedTensor((seen, seen))
    if mask is not None:
        scores = hidden(sketch, scores, mask)
    places = atoms_of(scores.axes[-1:])
    weights = replace(scores, expr=Reduction("softmax", tuple(atom.name for atom in places), scores.expr))
    if not places:
        weights = replace(scores, expr=Number(1))
    return einsum(sketch, weights, [*lead, "i", "j"], v, [*lead, "j", "c"], [*lead, "i", "c"])


def hidden(sketch: Parameters, scores: Traced, mask: Operand) -> Traced:
    """Scores with -inf where a mask hides them, or with a fixed or random bias."""
    if isinstance(mask, Traced):
        return added(sketch, scores, mask)
    array = np.asarray(mask.arrays[0])
    _, _, axes = together(sketch, scores, mask)
    if array.dtype == bool:
        where = condition(sketch, unchanging(sketch, *mask.arrays), axes)
        if where is False:
            raise sketch.refuse("a mask hides everything", "let each token see at least one")
        if where is True:
            return scores
        return replace(scores, expr=call("where", where, scores.expr, Number(-math.inf)))
    unchanging(sketch, *(np.asarray(given, float) <= NEVER for given in mask.arrays))
    rests = [masked(sketch, scores.on(axes), given)[1] for given in mask.arrays]
    scores, _ = masked(sketch, scores.on(axes), array)
    return added(sketch, scores, FixedTensor((rests[0], rests[1]))) if any(rest.any() for rest in rests) else scores


def _groups(sketch: Parameters, operation: TracedCall, x: Traced, q: Traced, name: str) -> Traced:
    """Keys or values, each for a group of heads."""
    heads, groups = sizes_of(q.axes[1])[0], sizes_of(x.axes[1])[0]
    if heads == groups:
        return x
    times = sketch.axis((operation.name, name), heads // groups, heads // groups)
    return x.on((x.axes[0], (*x.axes[1], *times), *x.axes[2:]))

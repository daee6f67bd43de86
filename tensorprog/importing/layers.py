"""Sums of products: linear layers, matrix products, einsum, embeddings; products and sums of tensors; reductions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tensorprog.importing.operations import Result, TracedCall, random, rule
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.values import (
    Axes,
    AxisPart,
    FixedTensor,
    Inner,
    Outer,
    Traced,
    along,
    atoms_of,
    product,
    scaled,
    sizes_of,
    varying,
    whole,
)
from tensorprog.language.expr import Expr, Number, Reduction, call, free_indices, is_call
from tensorprog.language.ir import MatMul
from tensorprog.language.recognised import recognised

__all__ = ["added", "einsum", "met_on", "multiplied", "number_of", "summed", "together"]

SHORT = ("gelu_tanh", "gelu", "silu", "relu")  # that modules spell out, with constants in single precision

Operand = Traced | FixedTensor
Labels = Sequence[Hashable]
DOTS = "ABCDEF"  # labels of what an einsum calls ...
EXACT_INPUTS = 8  # features up to which an input layer that is not Gaussian is written out


def together(sketch: Sketch, left: Operand, right: Operand) -> tuple[Operand, Operand, Axes]:
    """Two tensors on the same axes, as broadcasting has it."""
    ranks = [len(x.axes) if isinstance(x, Traced) else len(x.shapes[0]) for x in (left, right)]
    rank = max(ranks)
    if isinstance(left, FixedTensor) or isinstance(right, FixedTensor):
        known, value = (left, right) if isinstance(left, FixedTensor) else (right, left)
        assert isinstance(value, Traced) and isinstance(known, FixedTensor)
        axes = list(((),) * (rank - len(value.axes)) + value.axes)
        for k, (one, other) in enumerate(zip(*known.shapes, strict=True), start=rank - len(known.shapes[0])):
            if not axes[k] and (one, other) != (1, 1):
                axes[k] = sketch.axis((sketch.operation, "fixed", k), one, other)
        moved = value.on(tuple(axes))
        return (known, moved, tuple(axes)) if isinstance(left, FixedTensor) else (moved, known, tuple(axes))
    left, right = (x.on(((),) * (rank - len(x.axes)) + x.axes) for x in (left, right))
    right = sketch.apart(right, left.atoms)
    axes_of: list[tuple[AxisPart, ...]] = []
    first: dict[str, object] = {}
    second: dict[str, object] = {}
    first_axes, second_axes = list(left.axes), list(right.axes)
    for k, (a, b) in enumerate(zip(left.axes, right.axes, strict=True)):
        if a and b:
            both, sub_a, sub_b = sketch.unified(a, b)
            first |= sub_a
            second |= sub_b
            first_axes[k] = second_axes[k] = both
            axes_of.append(both)
        else:
            axes_of.append(a or b)
    left = sketch.read_at(left, first, tuple(first_axes))  # type: ignore[arg-type]
    right = sketch.read_at(right, second, tuple(second_axes))  # type: ignore[arg-type]
    return left, right, tuple(axes_of)


def met_on(sketch: Sketch, left: Operand, right: Operand) -> tuple[Traced, Traced, Axes]:
    """The same, with fixed tensors as expressions."""
    left, right, axes = together(sketch, left, right)
    one = left if isinstance(left, Traced) else sketch.constant(left, axes)
    other = right if isinstance(right, Traced) else sketch.constant(right, axes)
    return one, other, axes


def multiplied(sketch: Sketch, left: Operand, right: Operand, divide: bool = False) -> Traced:
    """left * right, or left / right."""
    one, other, axes = met_on(sketch, left, right)
    sign = -1 if divide else 1
    if one.parameter and isinstance(other.expr, Number) and not other.parameter:
        factor = float(other.expr.value) ** sign
        return replace(one, axes=axes, scale=one.scale * factor, power=one.power + sign * other.power)
    if other.parameter and isinstance(one.expr, Number) and not divide and not one.parameter:
        return replace(other, axes=axes, scale=other.scale * float(one.expr.value), power=one.power + other.power)
    one, other = (sketch.settled(x) if x.parameter else x for x in (one, other))
    places = [[k for k, axis in enumerate(x.axes) if any(atom.is_width for atom in axis)] for x in (one, other)]
    if one.outer or other.outer or (all(places) and places[0] != places[1]):
        return _waiting(sketch, one, other, axes, divide)
    scalars = not (one.is_vector or other.is_vector or one.copies or other.copies)
    if other.inner is not None and (divide or one.inner is not None or not scalars):
        other = sketch.settled(other, divide)
    if one.inner is not None and not scalars:
        one = sketch.settled(one)
    copies = sketch.met(one, other)
    inner = one.inner or other.inner
    expr = _quotient(one.expr, other.expr) if divide else product(one.expr, other.expr)
    expr = recognised(expr, 1e-6, SHORT)
    return Traced(axes, expr, one.power + sign * other.power, inner, copies)


def _waiting(sketch: Sketch, one: Traced, other: Traced, axes: Axes, divide: bool) -> Traced:
    """A product of vectors of two widths, or of such a product and another tensor."""
    if divide and (other.outer or not one.outer):
        raise sketch.two_widths()
    if not one.outer and not other.outer:
        (a,), (b,) = one.widths, other.widths
        b = sketch.like([b])[b.name] if a == b else b
        axes = tuple(
            mine or tuple(b if atom.is_width else atom for atom in axis)
            for mine, axis in zip(one.axes, other.axes, strict=True)
        )
        return Traced(axes, Number(1), outer=(Outer(one.on(((a,),)), other.on(((b,),))),))
    value, factor = (one, other) if one.outer else (other, one)
    if factor.outer:
        raise sketch.two_widths()
    widths = factor.widths if sketch.holds_vector(factor.expr) else ()
    factor = factor.on(tuple(tuple(a for a in axis if not a.is_width or a in widths) for axis in factor.axes))
    terms = []
    for term in value.outer:
        sides = [term.left, term.right]
        k = next((k for k, side in enumerate(sides) if side.widths == widths), 0)
        if widths and sides[k].widths != widths:
            raise sketch.two_widths()
        made = multiplied(
            sketch, _on(sides[k], axes, term.over), factor.on((*factor.axes, *(() for _ in term.over))), divide
        )
        sides[k] = made.on((sides[k].widths,))
        terms.append(Outer(sides[0], sides[1], term.over))
    return replace(value, axes=axes, outer=tuple(terms))


def _on(factor: Traced, axes: Axes, over: Sequence[AxisPart]) -> Traced:
    """One of two factors on the axes of their product, and on those over which it is summed."""
    own = (tuple(atom for atom in axis if not atom.is_width or atom in factor.widths) for axis in axes)
    return factor.on((*own, *((atom,) for atom in over)))


def _collapsed(sketch: Sketch, value: Traced, atoms: Sequence[AxisPart], axes: Axes) -> Traced:
    """The sum over some atoms of products that wait: of one width, that of the other factor times an inner product."""
    width = next((atom for atom in atoms if atom.is_width), None)
    new = sketch.like(atom for atom in atoms if not atom.is_width)
    outer = sketch.read_at(value, {name: atom.slot for name, atom in new.items()}).outer
    outer = tuple(replace(term, over=(*term.over, *new.values())) for term in outer)
    if width is None:
        return replace(value, axes=axes, outer=outer)
    found: Traced | None = None
    for term in outer:
        sides = [_on(side, value.axes, term.over) for side in (term.left, term.right)]
        left, right = sides if width in sides[0].widths else reversed(sides)
        inner = summed(sketch, left, [width], tuple(tuple(a for a in axis if a != width) for axis in left.axes))
        rest = [atom for atom in atoms if atom.is_width and atom != width]
        made = summed(sketch, multiplied(sketch, inner, right), [*term.over, *rest], axes)
        found = made if found is None else added(sketch, found, made)
    assert found is not None
    return found


def _quotient(left: Expr, right: Expr) -> Expr:
    short = isinstance(right, Number) and float(right.value).is_integer() and abs(right.value) < 1e6
    if isinstance(right, Number) and (right.value == 1 or not short or isinstance(left, Number)):
        return scaled(left, 1 / right.value)
    return call("divide", left, right)


def added(sketch: Sketch, left: Operand, right: Operand, factor: float = 1.0) -> Traced:
    """left + factor * right; what has the smaller power of n vanishes in the limit, and is left out."""
    if isinstance(right, FixedTensor) and not np.any(right.arrays[0]) and not np.any(right.arrays[1]):
        _, other, axes = together(sketch, left, right)
        assert isinstance(left, Traced)
        return left.on(axes)
    one, other, axes = met_on(sketch, left, right)
    if one.outer and other.outer:
        other = other if factor == 1 else multiplied(sketch, other, FixedTensor((factor, factor)))
        return replace(one, axes=axes, outer=(*one.outer, *other.outer))
    one, other = sketch.settled(one), sketch.settled(other)
    copies = sketch.met(one, other)
    if one.power != other.power and sketch.at:
        one, other = sketch.level(one, "a term"), sketch.level(other, "a term")
    if one.power != other.power and not (one.expr == Number(0) or other.expr == Number(0)):
        for square, number in ((one, other), (other, one)):
            if (
                factor > 0
                and isinstance(number.expr, Number)
                and not number.power
                and sketch.without_eps(square, float(number.expr.value))
            ):
                return replace(square, axes=axes)
        small, large = sorted((one, other), key=lambda value: value.power)
        sketch.left_out(replace(small, power=small.power - large.power))
        sketch.note(
            f"a term that falls like n**({small.power - large.power}) beside another is left out of the limit: "
            f"{sketch.place.alike}"
        )
        kept = large if large is one else replace(other, expr=scaled(other.expr, factor))
        return replace(kept, axes=axes, copies=copies)
    power = other.power if one.expr == Number(0) else one.power
    return Traced(axes, _sum(one.expr, other.expr, factor), power, copies=copies)


def _sum(left: Expr, right: Expr, factor: float) -> Expr:
    if right == Number(0):
        return left
    if left == Number(0):
        return scaled(right, factor)
    if factor < 0:
        return call("subtract", left, scaled(right, -factor))
    return call("add", left, scaled(right, factor))


def summed(sketch: Sketch, value: Traced, atoms: Sequence[AxisPart], axes: Axes) -> Traced:
    """The sum over some atoms; over a width it is an inner product, whose scale is still to come."""
    if value.outer:
        return _collapsed(sketch, value, atoms, axes)
    value = sketch.settled(value)
    if value.expr == Number(0):
        return value.on(axes)
    indices = [atom for atom in atoms if not atom.is_width]
    widths = [atom for atom in atoms if atom.is_width]
    if len(widths) > 1:
        raise sketch.refuse("a sum over two widths", "sum over one after the other")
    if widths:
        return _over_width(sketch, value, widths[0], indices, axes)
    expr, power = value.expr, value.power
    mentioned = [atom for atom in indices if _mentions(expr, atom)]
    repeated = math.prod(atom.size for atom in indices if atom not in mentioned)
    if mentioned:
        expr = sketch.reduced("sum", mentioned, expr)
    return replace(value, axes=axes, expr=scaled(expr, repeated), power=power)


def _mentions(expr: Expr, atom: AxisPart) -> bool:
    return atom.name in free_indices(expr)


def _over_width(sketch: Sketch, value: Traced, width: AxisPart, indices: Sequence[AxisPart], axes: Axes) -> Traced:
    """An inner product of two factors that are vectors, or of a vector with ones."""
    (factor, expr), ratio = number_of(value.expr), sketch.ratio(width)
    pair: tuple[Expr, ...] = (expr.args[0],) * 2 if is_call(expr, "power") and expr.args[1] == Number(2) else ()
    pair = expr.args if is_call(expr, "multiply") else pair
    if not pair or not all(map(sketch.holds_vector, pair)):
        vectors = [sketch.vector(Traced(((width,),), expr)), sketch.one(ratio)]
    else:
        numbers, parts = zip(*map(number_of, pair), strict=True)
        factor *= math.prod(numbers)
        made = {part: sketch.vector(Traced(((width,),), part), "operand") for part in dict.fromkeys(parts)}
        vectors = [made[part] for part in parts]
    over = tuple(atom for atom in indices if any(_mentions(vector, atom) for vector in vectors))
    factor *= math.prod(atom.size for atom in indices if atom not in over)
    return Traced(axes, Number(whole(factor)), value.power, Inner(vectors[0], vectors[1], ratio, over))


def einsum(sketch: Sketch, left: Operand, one: Labels, right: Operand, other: Labels, out: Labels) -> Traced:
    """sum over labels that are not in `out` of left[one] * right[other]."""
    labels = [*out, *(label for label in dict.fromkeys([*one, *other]) if label not in out)]
    left, right = _aligned(left, one, labels), _aligned(right, other, labels)
    known, value = (left, right) if isinstance(left, FixedTensor) else (right, left)
    if isinstance(known, FixedTensor) and isinstance(value, Traced):
        if not np.any(known.arrays[0]) and not np.any(known.arrays[1]):  # such as the state before the first step
            return Traced(together(sketch, known, value)[2][: len(out)], Number(0))
        if not value.parameter or not any(atom.is_width for atom in atoms_of(value.axes[len(out) :])):
            found = _input_layer(sketch, known, value, len(out)) if value.parameter else None
            return found or _summed_product(sketch, left, right, len(out))
        axes = together(sketch, known, value)[2]  # vectors that are fixed, such as positions
        positions = sketch.constant(
            known, tuple(a if n > 1 else () for a, n in zip(axes, known.shapes[0], strict=True))
        )
        left, right = (positions, right) if left is known else (left, positions)
    assert isinstance(left, Traced) and isinstance(right, Traced)
    if left.parameter and right.parameter:  # vectors that are parameters, under a matrix
        left = sketch.settled(left) if len(left.widths) < len(right.widths) else left
        right = sketch.settled(right) if len(right.widths) < len(left.widths) else right
    if right.parameter:  # a square matrix may act on what it gave before
        right = _renewed(sketch, right, left.atoms)
    elif left.parameter:
        left = _renewed(sketch, left, right.atoms)
    weight = right if right.parameter else left
    fans = [atom for atom in atoms_of(weight.axes[len(out) :]) if atom.is_width] if weight.parameter else []
    if not fans:
        return _summed_product(sketch, left, right, len(out))
    first, second, axes = together(sketch, left, right)
    assert isinstance(first, Traced) and isinstance(second, Traced)
    value, weight = (first, second) if second.parameter else (second, first)
    if value.parameter:
        raise sketch.refuse("two parameters are multiplied with each other", "apply one after the other to the vector")
    return _weighted(sketch, value, weight, fans, atoms_of(axes[len(out) :]), axes[: len(out)])


def _aligned(value: Operand, own: Labels, labels: Labels) -> Operand:
    """A tensor on the axes of labels, of size 1 where it has none."""
    if isinstance(value, Traced):
        return value.on(tuple(value.axes[own.index(label)] if label in own else () for label in labels))
    order = [own.index(label) for label in labels if label in own]
    new = [k for k, label in enumerate(labels) if label not in own]
    return value.each(lambda array: np.expand_dims(array.transpose(order), new))


def _summed_product(sketch: Sketch, left: Operand, right: Operand, lead: int) -> Traced:
    """The product summed over the axes behind the first ones."""
    left, right, axes = together(sketch, left, right)
    left, right = (sketch.settled(x) if isinstance(x, Traced) and not x.outer else x for x in (left, right))
    return summed(sketch, multiplied(sketch, left, right), atoms_of(axes[lead:]), axes[:lead])


def _renewed(sketch: Sketch, value: Traced, taken: Sequence[AxisPart]) -> Traced:
    """A parameter with names of its own for widths that another tensor has too."""
    names = {atom.name for atom in taken}
    return value.on(
        tuple(
            tuple(sketch.atom(atom.sizes, atom.key) if atom.is_width and atom.name in names else atom for atom in axis)
            for axis in value.axes
        )
    )


def number_of(expr: Expr) -> tuple[float, Expr]:
    """A number and what it multiplies."""
    if is_call(expr, "multiply") and isinstance(expr.args[0], Number):
        return float(expr.args[0].value), expr.args[1]
    if is_call(expr, "divide") and isinstance(expr.args[1], Number):
        return 1 / float(expr.args[1].value), expr.args[0]
    return 1.0, expr


def _weighted(
    sketch: Sketch,
    value: Traced,
    weight: Traced,
    fans: Sequence[AxisPart],
    contracted: Sequence[AxisPart],
    axes: Axes,
) -> Traced:
    """A weight matrix times vectors."""
    if len(fans) > 1 or len([atom for atom in contracted if atom.is_width]) > 1:
        raise sketch.refuse("a sum over two widths", "let the width be one axis")
    (fan,) = (atom for atom in contracted if atom.is_width)
    rows = [atom for atom in weight.widths if atom not in contracted]
    if len(rows) > 1:
        raise sketch.refuse("a weight with three widths", "use matrices, n by n")
    value = sketch.settled(value)
    x = sketch.vector(value, "input")
    entry = sketch.entry(weight)
    fan_own = replace(fan, key=fans[0].key)
    matrix, power = sketch.weight(weight, fan_own, sketch.ratio(rows[0]) if rows else Fraction(1))
    made, copies = sketch.shared(weight, sketch.state(MatMul, matrix, x, role="product"), bool(rows))
    if copies and value.copies:
        raise sketch.refuse(f"{entry.name} acts on readouts", "let vectors keep their width")
    over = [atom for atom in contracted if not atom.is_width]
    whole = Traced((*axes, tuple(over)), scaled(made, weight.scale), value.power + power, copies=copies)
    return summed(sketch, whole, over, axes) if over else whole.on(axes)


def _input_layer(sketch: Sketch, known: FixedTensor, value: Traced, lead: int) -> Traced | None:
    """Fixed features times a parameter: random vectors with the Gram matrix of the features; None for other cases."""
    features = atoms_of(value.axes[lead:])
    sizes = known.shapes[0]
    count = math.prod(atom.size for atom in features)
    exact = not sketch.entry(value).law.gaussian and count <= EXACT_INPUTS
    shared = any(axis and size > 1 for axis, size in zip(value.axes[:lead], sizes, strict=False))
    if shared or exact or not features or any(atom.is_width for atom in features) or math.prod(sizes[lead:]) != count:
        return None
    if not np.array_equal(*known.arrays):
        raise sketch.refuse("the fixed inputs of a layer change with the width", "use the same inputs at every width")
    array = np.asarray(known.arrays[0], float)
    kept = [k for k in varying(array) if k < lead]
    key = ("input", value.parameter)
    axes = [axis or sketch.axis((*key, k), sizes[k], sizes[k]) for k, axis in enumerate(value.axes[:lead])]
    flat = sum(len(axes[k]) for k in kept if k > 0) if key in sketch.decisions.flat else 0
    data = along(array, [*kept, *range(lead, array.ndim)]).reshape(-1, count)
    rest = atoms_of(value.axes[:lead])
    own = [atom for atom in rest if not atom.is_width]
    width = next((atom for atom in rest if atom.is_width), None)
    batch = [atom for k in kept for atom in axes[k]]
    made = sketch.rows_of(value, batch, own, width, data, data @ data.T, flat)
    return replace(made, axes=tuple(axes), expr=scaled(made.expr, value.scale))


def rank_of(operand: Operand) -> int:
    """The number of axes."""
    return len(operand.axes) if isinstance(operand, Traced) else len(operand.shapes[0])


def biased(sketch: Sketch, value: Traced, bias: Operand | None) -> Traced:
    """A bias added."""
    return value if bias is None else added(sketch, value, bias)


@rule("linear")
def linear(sketch: Sketch, operation: TracedCall) -> Result:
    """x W^T + b."""
    x, weight, bias = operation.tensor(0), operation.tensor(1, "weight"), operation.tensor(2, "bias")
    lead = [f"b{k}" for k in range(rank_of(x) - 1)]
    made = einsum(sketch, x, [*lead, "in"], weight, ["out", "in"], [*lead, "out"])
    return biased(sketch, made, bias)


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__")
def matmul(sketch: Sketch, operation: TracedCall) -> Result:
    """A matrix product."""
    return matrix_product(sketch, operation.tensor(0), operation.tensor(1))


def matrix_product(sketch: Sketch, left: Operand, right: Operand) -> Traced:
    """left @ right, with broadcasting of leading axes."""
    ranks = rank_of(left), rank_of(right)
    width = max(max(ranks) - 2, 0)
    batch = [f"b{k}" for k in range(width)]
    one = [*batch[width - max(ranks[0] - 2, 0) :], *(["row"] if ranks[0] > 1 else []), "in"]
    other = [*batch[width - max(ranks[1] - 2, 0) :], "in", *(["column"] if ranks[1] > 1 else [])]
    out = [*batch, *(["row"] if ranks[0] > 1 else []), *(["column"] if ranks[1] > 1 else [])]
    return einsum(sketch, left, one, right, other, out)


@rule("einsum")
def einsums(sketch: Sketch, operation: TracedCall) -> Result:
    """torch.einsum, two operands after the other."""
    text, operands = operation.plain(0), operation.plain(1)
    left, arrow, out = text.replace(" ", "").partition("->")
    inputs = left.split(",")
    out = out if arrow else "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    ranks = [
        rank_of(operand) - len(labels.replace("...", "")) for labels, operand in zip(inputs, operands, strict=True)
    ]
    inputs = [labels.replace("...", DOTS[len(DOTS) - rank :]) for labels, rank in zip(inputs, ranks, strict=True)]
    out = out.replace("...", DOTS[len(DOTS) - max(ranks) :])
    if len(inputs) < 2 or any(len(set(labels)) < len(labels) for labels in inputs):
        raise sketch.refuse(f"einsum {text}", "use several operands, and distinct letters in each")
    made, have = operands[0], inputs[0]
    for k in range(1, len(inputs)):
        kept = {*out, *"".join(inputs[k + 1 :])}
        new = out if k == len(inputs) - 1 else "".join(c for c in dict.fromkeys(have + inputs[k]) if c in kept)
        made, have = einsum(sketch, made, list(have), operands[k], list(inputs[k]), list(new)), new
    return made


@rule("embedding")
def embedding(sketch: Sketch, operation: TracedCall) -> Result:
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
    kept = varying(ids)
    small = along(ids, kept).reshape(-1)
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


def averaged(sketch: Sketch, value: Traced, atoms: Sequence[AxisPart], axes: Axes) -> Traced:
    """The mean over some atoms."""
    value = value if value.outer else sketch.settled(value)
    if not any(atom.is_width for atom in atoms):
        mentioned = [atom for atom in atoms if atom.name in free_indices(value.expr)]
        expr = sketch.reduced("mean", mentioned, value.expr) if mentioned else value.expr
        return replace(value, expr=expr, axes=axes)
    one, other = sizes_of(atoms)
    return multiplied(sketch, summed(sketch, value, atoms, axes), FixedTensor((1 / one, 1 / other)))


@rule("mean", "sum")
def means(sketch: Sketch, operation: TracedCall) -> Result:
    """Sums and means over axes."""
    value = random(sketch, operation.tensor(0))
    dims = _dims(operation, 1, len(value.axes))
    over = averaged if operation.operation.kind == "mean" else summed
    axes = _left(value, dims, bool(operation.plain(2, "keepdim", False)))
    return over(sketch, value, atoms_of(tuple(value.axes[k] for k in dims)), axes)


@rule("amax", "amin", "logsumexp", "softmax", "_softmax", "max", "min")
def over_indices(sketch: Sketch, operation: TracedCall) -> Result:
    """What acts over indices: largest entries, softmax."""
    kind = operation.operation.kind.lstrip("_")
    if kind in ("max", "min") and not isinstance(operation.plain(1, "dim"), int):
        raise sketch.refuse(f"{kind} of two tensors or of all entries", "use torch.maximum, torch.minimum or amax")
    value = sketch.level(random(sketch, operation.tensor(0)), f"the argument of {kind}")
    dims = _dims(operation, 1, len(value.axes))
    atoms = atoms_of(tuple(value.axes[k] for k in dims))
    if any(atom.is_width for atom in atoms):
        if kind != "softmax":
            raise sketch.refuse(f"{kind} acts over the coordinates of a vector", "let it act over tokens")
        made = sketch.named(replace(value, expr=call("exp", value.expr)))
        parts = multiplied(sketch, made, averaged(sketch, made, atoms, _left(value, dims, True)), divide=True)
        one, other = sizes_of(atoms)
        return multiplied(sketch, parts, FixedTensor((1 / one, 1 / other)))
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

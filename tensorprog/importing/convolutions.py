"""Convolutions and pooling: sums over a shifted index, zeros beyond the border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tensorprog.importing.layers import averaged, biased, column, einsum
from tensorprog.importing.operations import Result, TracedCall, random, rule
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.values import AxisPart, FixedTensor, Traced, atoms_of, shapes_of
from tensorprog.language.expr import Affine, Number, Reduction, is_call
from tensorprog.language.ir import Nonlin

Numbers = Sequence[int]


def _several(value: Any, count: int, default: int) -> list[int]:
    """A number, or one for each dimension."""
    if value is None or value == ():
        return [default] * count
    return (
        [int(value)] * count
        if isinstance(value, int)
        else [int(v) for v in (value * count if len(value) == 1 else value)]
    )


@rule("conv1d", "conv2d", "conv3d", "convolution")
def convolution(sketch: Sketch, operation: TracedCall) -> Result:
    """A convolution with weights of its own for each offset."""
    x, weight, bias = operation.tensor(0), operation.tensor(1, "weight"), operation.tensor(2, "bias")
    if isinstance(weight, FixedTensor) and not (weight.arrays[0].any() or weight.arrays[1].any()):
        both = zip(*operation.shapes, strict=True)
        none = Traced(tuple(sketch.axis((operation.name, k), *pair) for k, pair in enumerate(both)), Number(0))
        return biased(sketch, none, column(bias, len(none.axes) - 1))
    if not isinstance(weight, Traced):
        raise sketch.refuse("the weights of a convolution are fixed", "use weights that are initialised at random")
    count = len(weight.axes) - 2
    kernel = shapes_of(weight.axes[2:])[0]
    stride, dilation = (_several(operation.plain(k, name), count, 1) for k, name in ((3, "stride"), (5, "dilation")))
    padding = operation.plain(4, "padding", 0)
    pads = (
        [d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True)]
        if padding == "same"
        else _several(0 if padding == "valid" else padding, count, 0)
    )
    groups = operation.pair(8 if operation.operation.kind == "convolution" else 6, "groups", 1)
    alone = groups != (1, 1) and groups == (shapes_of(weight.axes)[0][0], shapes_of(weight.axes)[1][0])
    if groups != (1, 1) and (not alone or isinstance(x, FixedTensor)):
        raise sketch.refuse("a convolution in groups", "use groups=1, or a group for each channel of the width")
    space = [f"y{k}" for k in range(count)]
    if {*kernel, *stride, *dilation} == {1} and not any(pads):  # whatever the positions are
        flat = weight.on(weight.axes[:2])
        made = einsum(sketch, x, ["b", "in", *space], flat, ["out", "in"], ["b", "out", *space])
        return biased(sketch, made, column(bias, count + 1))
    sizes = [shape[2:] for shape in operation.shapes]
    if sizes[0] != sizes[1]:
        raise sketch.refuse("positions change with the width", "let channels grow, not images")
    offsets = [f"d{k}" for k in range(count)]
    if isinstance(x, FixedTensor):
        patches = x.each(lambda array: _patches(array.astype(float), kernel, stride, pads, dilation, sizes[0]))
        flat = weight.on((weight.axes[0], atoms_of(weight.axes[1:])))
        made = einsum(sketch, patches, ["b", "in", *space], flat, ["out", "in"], ["b", "out", *space])
    else:
        moved = _shifted(sketch, random(sketch, x), kernel, stride, pads, dilation, sizes[0], (operation.name,))
        labels = [label for pair in zip(space, offsets, strict=True) for label in pair]
        channels = ["in"] if alone else ["out", "in"]  # numbers of its own for each channel, or a sum over all of them
        weight = weight.on((weight.axes[0], *weight.axes[2:])) if alone else weight
        own = [*channels, *offsets]
        made = einsum(sketch, moved, ["b", "in", *labels], weight, own, ["b", channels[0], *space])
    return biased(sketch, made, column(bias, count + 1))


def _patches(array: Any, kernel: Numbers, stride: Numbers, pads: Numbers, dilation: Numbers, sizes: Numbers) -> Any:
    """What a kernel sees at each position, (batch, channels * kernel, *positions)."""
    ends = [
        max(p, s * (size - 1) + d * (k - 1) + 1 - p - length)
        for p, s, size, d, k, length in zip(pads, stride, sizes, dilation, kernel, array.shape[2:], strict=True)
    ]  # "same" pads more at the end
    padded = np.pad(array, [(0, 0), (0, 0), *zip(pads, ends, strict=True)])
    sides = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    windows = sliding_window_view(padded, sides, axis=tuple(range(2, array.ndim)))
    steps = [slice(0, s * size, s) for s, size in zip(stride, sizes, strict=True)]
    found = windows[(slice(None), slice(None), *steps, *(slice(None, None, d) for d in dilation))]
    places, offsets = range(2, array.ndim), range(array.ndim, found.ndim)
    return found.transpose(0, 1, *offsets, *places).reshape(found.shape[0], -1, *found.shape[2 : array.ndim])


def _shifted(
    sketch: Sketch,
    value: Traced,
    kernel: Numbers,
    stride: Numbers,
    pads: Numbers,
    dilation: Numbers,
    sizes: Numbers,
    key: tuple[Any, ...],
) -> Traced:
    """The value on axes (batch, channels, then position and offset for each dimension)."""
    value = sketch.settled(value)
    bordered: dict[str, Affine] = {}
    atoms: list[AxisPart | None] = []
    axes = list(value.axes)
    for k, pad in enumerate(pads):
        axis = value.axes[2 + k]
        if len(axis) > 1 or (not axis and (kernel[k] > 1 or pad)):
            raise sketch.refuse("a convolution over an axis that is split, or of size 1", "convolve over whole images")
        atom = axis[0] if axis else None
        beyond = atom is not None and stride[k] * (sizes[k] - 1) + dilation[k] * (kernel[k] - 1) - pad >= atom.size
        if atom is not None and (pad or beyond) and atom.boundary != "zero":
            new = sketch.atom(atom.sizes, atom.key, boundary="zero")
            bordered[atom.name] = new.slot
            axes[2 + k] = (new,)
            atom = new
        atoms.append(atom)
    if bordered:
        value = sketch.read_at(value, bordered, tuple(axes))
        if not value.expr.children:  # a family that is declared without a border
            value = replace(value, expr=sketch.state(Nonlin, value.expr, role="input"))
        value = sketch.named(value, "input")
    elif value.expr.children:
        value = sketch.named(value, "input")
    slots: dict[str, Affine] = {}
    found = list(value.axes[:2])
    for k, atom in enumerate(atoms):
        place = sketch.axis((*key, "y", k), sizes[k], sizes[k])
        offset = sketch.axis((*key, "d", k), kernel[k], kernel[k])
        form = Affine((), -pads[k])
        form = form + stride[k] * place[0].slot if place else form
        form = form + dilation[k] * offset[0].slot if offset else form
        if atom is not None:
            slots[atom.name] = form
        found += [place, offset]
    return sketch.read_at(value, slots, tuple(found))


def _window(sketch: Sketch, operation: TracedCall, value: Traced, reducer: str) -> Traced:
    """A reduction over windows of positions."""
    count = len(value.axes) - 2
    kernel = _several(operation.plain(1, "kernel_size"), count, 1)
    given = operation.plain(2, "stride")
    stride = kernel if given is None or given == () else _several(given, count, 1)
    pads = _several(operation.plain(3, "padding", 0), count, 0)
    value = sketch.level(value, "what is pooled") if reducer == "max" else sketch.settled(value)
    line = sketch.stated(value.expr)
    inside = line.expr if isinstance(line, Nonlin) else value.expr
    if any(pads) and reducer == "max" and not is_call(inside, "relu"):
        raise sketch.refuse(
            "a maximum over windows that leave the image",
            "use padding=0, or pool behind relu, where zeros beyond the border change nothing",
        )
    first: Any = operation.operation.shapes[0]
    sizes = (first[0] if isinstance(first[0], tuple) else first)[2:]
    have = shapes_of(value.axes[2:])[0]
    if any(s * (size - 1) + k > h + 2 * p for s, size, k, h, p in zip(stride, sizes, kernel, have, pads, strict=True)):
        raise sketch.refuse("the last window leaves the image", "use ceil_mode=False")
    moved = _shifted(sketch, value, kernel, stride, pads, [1] * len(pads), sizes, (operation.name,))
    over = atoms_of(moved.axes[3::2])
    expr = Reduction(reducer, tuple(atom.name for atom in over), moved.expr) if over else moved.expr
    return replace(moved, expr=expr, axes=(*moved.axes[:2], *moved.axes[2::2]))


@rule("max_pool1d", "max_pool2d", "max_pool2d_with_indices")
def max_pool(sketch: Sketch, operation: TracedCall) -> Result:
    """The largest of a window."""
    if any(d != 1 for d in _several(operation.plain(4, "dilation", 1), 1, 1)):
        raise sketch.refuse("pooling with dilation", "use dilation=1")
    made = _window(sketch, operation, random(sketch, operation.tensor(0)), "max")
    return (made, None) if "indices" in operation.operation.kind else made


@rule("avg_pool1d", "avg_pool2d")
def average_pool(sketch: Sketch, operation: TracedCall) -> Result:
    """The mean of a window."""
    if operation.plain(6, "divisor_override") is not None or any(_several(operation.plain(3, "padding", 0), 1, 0)):
        raise sketch.refuse("a mean over windows with a border or a divisor of its own", "use the kernel size alone")
    return _window(sketch, operation, random(sketch, operation.tensor(0)), "mean")


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d")
def adaptive_pool(sketch: Sketch, operation: TracedCall) -> Result:
    """The mean over all positions."""
    value = random(sketch, operation.tensor(0))
    if any(size != 1 for size in operation.shapes[0][2:]):
        raise sketch.refuse("adaptive pooling to several positions", "use avg_pool with a kernel size")
    return averaged(sketch, value, atoms_of(value.axes[2:]), (*value.axes[:2], *((),) * len(value.axes[2:])))

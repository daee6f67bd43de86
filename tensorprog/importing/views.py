"""Views and joins: what moves numbers about without changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tensorprog.importing.operations import Result, TracedCall, random, rule
from tensorprog.importing.sketch import Again, Sketch
from tensorprog.importing.values import AxisPart, Complex, FixedTensor, Traced, atoms_of, shapes_of, sizes_of
from tensorprog.language.expr import Affine, Constant, Expr, Variable, free_indices, rebuild
from tensorprog.language.ir import Nonlin

Shape = tuple[int, ...]
WHOLE = {f"torch.{name}" for name in ("bool", "uint8", "int8", "int16", "int32", "int64")}  # types without fractions


@rule(
    "dropout",
    "contiguous",
    "to",
    "_to_copy",
    "alias",
    "detach",
    "clone",
    "type_as",
    "feature_dropout",
    "float",
    "identity",
    "lift_fresh_copy",
    "alpha_dropout",
)
def same(sketch: Sketch, call: TracedCall) -> Result:
    """The same numbers."""
    if "dropout" in call.operation.kind and call.plain(2, "train", False):
        raise sketch.refuse("dropout in training mode", "call module.eval(), or set p=0")
    given = [*call.operation.args[0], *call.operation.kwargs[0].values()]
    if any(str(value) in WHOLE for value in given):
        raise sketch.refuse("numbers of the network are rounded to whole numbers", "keep them as they are")
    return call.tensor(0)


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
def regrouped(sketch: Sketch, call: TracedCall) -> Result:
    """The same numbers on other axes, in the same order."""
    return reshaped(sketch, random(sketch, call.tensor(0)), call.shapes)


def reshaped(sketch: Sketch, value: Traced, shapes: tuple[Shape, Shape]) -> Traced:
    """The value on axes of these sizes; axes are split where that is needed."""
    while True:
        flat = list(value.atoms)
        axes = []
        for one, other in zip(*shapes, strict=True):
            axis: list[AxisPart] = []
            have = [1, 1]
            while have != [one, other]:
                if not flat:
                    raise sketch.refuse("axes are regrouped in a way that does not follow their order", "use transpose")
                atom = flat[0]
                rest = one // have[0], other // have[1]
                if rest[0] % atom.sizes[0] or rest[1] % atom.sizes[1]:
                    break
                axis.append(flat.pop(0))
                have = [have[0] * atom.sizes[0], have[1] * atom.sizes[1]]
            else:
                axes.append(tuple(axis))
                continue
            break
        else:
            return value.on(tuple(axes))
        common = math.gcd(rest[0], atom.sizes[0]), math.gcd(rest[1], atom.sizes[1])
        if common in ((1, 1), atom.sizes):
            raise sketch.refuse(f"an axis of size {atom.sizes[0]} is regrouped into {one}", "split axes into factors")
        parts, slots = sketch.split(atom, common)
        value = sketch.read_at(
            value, slots, tuple(tuple(p for a in axis for p in (parts if a == atom else (a,))) for axis in value.axes)
        )


@rule("transpose", "permute")
def permuted(sketch: Sketch, call: TracedCall) -> Result:
    """Axes in another order."""
    value = random(sketch, call.tensor(0))
    rank = len(value.axes)
    if call.operation.kind == "permute":
        order = [k % rank for k in call.plain(1, "dims")]
    else:
        order, (a, b) = list(range(rank)), (call.plain(k, f"dim{k - 1}") % rank for k in (1, 2))
        order[a], order[b] = b, a
    return value.on(tuple(value.axes[k] for k in order))


@rule("expand", "expand_as", "broadcast_to")
def expanded(sketch: Sketch, call: TracedCall) -> Result:
    """Axes of size 1 repeated."""
    value = random(sketch, call.tensor(0))
    axes: list[tuple[AxisPart, ...]] = []
    lead = len(call.shapes[0]) - len(value.axes)
    for k, (one, other) in enumerate(zip(*call.shapes, strict=True)):
        axis = value.axes[k - lead] if k >= lead else ()
        axes.append(axis or sketch.axis((call.name, k), one, other))
    return value.on(tuple(axes))


@rule("select")
def selected(sketch: Sketch, call: TracedCall) -> Result:
    """One place of an axis."""
    value = random(sketch, call.tensor(0))
    dim = call.plain(1, "dim") % len(value.axes)
    places = call.pair(2, "index")
    part = sliced(sketch, value, dim, places, (1, 1))
    return part.on(tuple(axis for k, axis in enumerate(part.axes) if k != dim))


@rule("slice", "narrow")
def cut(sketch: Sketch, call: TracedCall) -> Result:
    """A range of an axis."""
    value = random(sketch, call.tensor(0))
    dim = call.plain(1, "dim", 0) % len(value.axes)
    sizes = sizes_of(value.axes[dim])
    begin = call.pair(2, "start", 0)
    steps = call.plain(4, "step", 1) if call.operation.kind == "slice" else 1
    one, other = (slice(start, None).indices(size)[0] for start, size in zip(begin, sizes, strict=True))
    return sliced(sketch, value, dim, (one, other), (call.shapes[0][dim], call.shapes[1][dim]), steps)


@rule("index", "index_select")
def picked(sketch: Sketch, call: TracedCall) -> Result:
    """Entries of an axis by a fixed list."""
    value = random(sketch, call.tensor(0))
    rank = len(value.axes)
    if call.operation.kind == "index":
        given = {k: places for k, places in enumerate(call.plain(1)) if places is not None}
    else:
        given = {call.plain(1): call.plain(2)}
    for dim, places in given.items():
        if len(given) > 1 or np.ndim(places.arrays[0]) > 1 or places.arrays[0].dtype == bool:
            raise sketch.refuse(
                "entries are picked by several lists, or by a mask", "pick them axis by axis: x[:, [2, 0]]"
            )
        dim = dim % rank
        size = sizes_of(value.axes[dim])
        if size[0] != size[1]:
            raise sketch.refuse(
                "coordinates of a vector are picked or moved", "cut vectors into equal parts: chunk, view"
            )
        runs: list[list[int]] = []
        for place in np.atleast_1d(places.arrays[0]) % size[0]:
            last = runs[-1] if runs and len(value.axes[dim]) == 1 else []
            if (len(last) == 1 and place != last[0]) or (len(last) > 1 and place - last[-1] == last[1] - last[0]):
                last.append(int(place))
            else:
                runs.append([int(place)])
        parts = [sliced(sketch, value, dim, (r[0],) * 2, (len(r),) * 2, r[1] - r[0] if len(r) > 1 else 1) for r in runs]
        value = parts[0] if len(parts) == 1 else join(sketch, parts, dim, f"{call.name}.{dim}")
    return value


def sliced(
    sketch: Sketch, value: Traced, dim: int, starts: tuple[int, int], lengths: tuple[int, int], step: int = 1
) -> Result:
    """Entries from a place on, so many, of one axis; none of them are a fixed tensor without numbers."""
    sizes = sizes_of(value.axes[dim])
    if lengths == (0, 0):
        one, other = (np.zeros([*shape[:dim], 0, *shape[dim + 1 :]]) for shape in shapes_of(value.axes))
        return FixedTensor((one, other))
    starts = (starts[0] % sizes[0], starts[1] % sizes[1])
    if lengths == sizes and step == 1:
        return value
    atoms = value.axes[dim]
    first = atoms[0]
    if not any(atom.is_width for atom in atoms) and (starts[0] != starts[1] or lengths[0] != lengths[1]):
        raise sketch.refuse("which entries are read changes with the width", "read the same ones at every width")
    if len(atoms) == 1 and not first.is_width:
        new = sketch.axis((("part", str(value.expr), dim), starts[0], lengths[0]), *lengths) if lengths[0] > 1 else ()
        form = (step * new[0].slot if new else Affine()) + starts[0]
        return sketch.read_at(value, {first.name: form}, _with(value, dim, new))
    if step > 1:
        begin = starts[0] % step
        whole = sliced(sketch, value, dim, (starts[0] - begin,) * 2, (lengths[0] * step, lengths[1] * step))
        atoms = whole.axes[dim]
        if starts[0] != starts[1] or atoms[-1].size % step:
            raise sketch.refuse("coordinates are taken in steps", "cut vectors into equal parts: chunk, view")
        if atoms[-1].size != step:
            sketch.split(atoms[-1], (atoms[-1].sizes[0] // step, atoms[-1].sizes[1] // step))
        return sketch.read_at(whole, {atoms[-1].name: Affine((), begin)}, _with(whole, dim, atoms[:-1]))
    rest = (sizes[0] // first.sizes[0], sizes[1] // first.sizes[1])
    place = starts[0] // rest[0]
    if (
        len(atoms) > 1
        and not first.is_width
        and all(s // r == (s + length - 1) // r == place for s, length, r in zip(starts, lengths, rest, strict=True))
    ):
        inside = sketch.read_at(value, {first.name: Affine((), place)}, _with(value, dim, atoms[1:]))
        return sliced(sketch, inside, dim, (starts[0] - place * rest[0], starts[1] - place * rest[1]), lengths)
    aligned = all(not x % r for xs in (starts, lengths) for x, r in zip(xs, rest, strict=True))
    if len(atoms) > 1 and aligned and not first.is_width:
        begin, length = starts[0] // rest[0], lengths[0] // rest[0]
        new = (sketch.atom((length, length)),) if length > 1 else ()
        form = (new[0].slot if new else Affine()) + begin
        return sketch.read_at(value, {first.name: form}, _with(value, dim, (*new, *atoms[1:])))
    common = tuple(math.gcd(math.gcd(s, n), size) for s, n, size in zip(starts, lengths, sizes, strict=True))
    outer = sizes[0] // common[0], sizes[1] // common[1]
    if not first.is_width or outer[0] != outer[1] or len(atoms) > 1:
        raise sketch.refuse(
            "a part of the coordinates of a vector is taken that is no whole fraction of them",
            "cut vectors into equal parts: chunk, view",
        )
    sketch.split(first, outer)
    raise AssertionError("axes are split where they arise")


def _with(value: Traced, dim: int, atoms: Sequence[AxisPart]) -> tuple[tuple[AxisPart, ...], ...]:
    return tuple(tuple(atoms) if k == dim else axis for k, axis in enumerate(value.axes))


@rule("getitem")
def item(sketch: Sketch, call: TracedCall) -> Result:
    """One of several results."""
    return call.plain(0)[call.plain(1)]


@rule("view_as_complex")
def pairs(sketch: Sketch, call: TracedCall) -> Result:
    """Complex numbers out of pairs on the last axis."""
    value = random(sketch, call.tensor(0))
    parts = (sliced(sketch, value, len(value.axes) - 1, (k, k), (1, 1)) for k in range(2))
    return Complex(*(part.on(part.axes[:-1]) for part in parts))


@rule("view_as_real")
def parts_of(sketch: Sketch, call: TracedCall) -> Result:
    """Complex numbers as pairs on a last axis."""
    value = call.tensor(0)
    parts = [part.on((*part.axes, ())) for part in (value.real, value.imag)]
    return join(sketch, parts, len(parts[0].axes) - 1, call.name)


@rule("cat", "concat")
def joined(sketch: Sketch, call: TracedCall) -> Result:
    """Tensors one after the other along an axis."""
    given = call.plain(0)
    values = [random(sketch, entry) if isinstance(entry, Traced) else entry for entry in given]
    rank = max(len(v.axes) if isinstance(v, Traced) else len(v.shapes[0]) for v in values)
    dim = call.plain(1, "dim", 0)
    dim = dim % rank
    values = [v for v in values if isinstance(v, Traced) or v.arrays[0].size]
    if len(values) == 1 and isinstance(values[0], Traced):
        return values[0]
    return join(sketch, values, dim, call.name)


def join(sketch: Sketch, values: Sequence[Any], dim: int, key: str) -> Traced:
    """One family, defined part by part along an axis."""
    frame = next(v for v in values if isinstance(v, Traced))
    made: list[Traced] = []
    for k, v in enumerate(values):
        if isinstance(v, FixedTensor):
            axes = tuple(
                sketch.axis((key, "part", k), v.shapes[0][dim], v.shapes[1][dim]) if a == dim else axis
                for a, axis in enumerate(frame.axes)
            )
            v = sketch.constant(v, axes)
        made.append(_in_one_row(sketch, sketch.settled(v), dim))
    rest = _common_rest(sketch, made, dim, [sizes_of(v.axes[dim]) for v in made])
    own = sketch.like(atom for atom in rest if not atom.is_width)
    rest = tuple(own.get(atom.name, atom) for atom in rest)
    inner = tuple(atom.slot for atom in own.values())
    made = [part for v in made for part in _by_one_index(sketch, v, dim, len(rest))]
    counts = [sizes_of(v.axes[dim])[0] // math.prod(a.sizes[0] for a in rest) for v in made]
    new = sketch.atom((sum(counts), sum(counts)))
    target = sketch.fresh("v")
    others = [
        sketch.axis((key, "other", k), *sizes_of(frame.axes[k])) if k != dim else () for k in range(len(frame.axes))
    ]
    powers = {v.power for v in made}
    if len(powers) > 1:
        made = [sketch.level(v, "a part") for v in made]
    start = 0
    used: set[str] = set()
    pieces = []
    for v, count in zip(made, counts, strict=True):
        v = sketch.apart(v, atoms_of(tuple(others)))
        slots: dict[str, Affine] = {}
        for k, axis in enumerate(v.axes):
            if k != dim and axis:
                _, first, second = sketch.unified(others[k], axis)
                if first:
                    raise sketch.refuse("parts whose axes are split differently are joined", "join before splitting")
                slots |= second
        place = Affine((), start)
        if count > 1:
            places = sketch.atom((count, count), start=start)
            slots[v.axes[dim][0].name] = places.slot + -start
            place = places.slot
        slots |= {a.name: b.slot for a, b in zip(v.axes[dim][-len(rest) :], rest, strict=False) if not b.is_width}
        v = sketch.read_at(v, slots, ())
        used |= set(free_indices(v.expr)) & {a.name for a in atoms_of(tuple(others))}
        pieces.append((v, place))
        start += count
    outer = [a for a in atoms_of(tuple(others)) if a.name in used]
    for v, place in pieces:
        expr = (
            v.expr
            if not frame.is_vector or sketch.holds_vector(v.expr)
            else v.expr * sketch.one(sketch.ratio(frame.widths[0]) if frame.widths else Fraction(1))
        )
        sketch.state(Nonlin, expr, role="joined", slots=(*(a.slot for a in outer), place, *inner), name=target)
    axes = tuple((new, *rest) if k == dim else axis for k, axis in enumerate(others))
    copies = frozenset(name for v in made for name in v.copies)
    read = Variable(target, (*(a.slot for a in outer), new.slot, *inner))
    return replace(made[0], axes=axes, expr=read, copies=copies)


def _in_one_row(sketch: Sketch, value: Traced, dim: int) -> Traced:
    """Positions in several dimensions as one index, on an axis that is joined with others."""
    atoms = value.axes[dim]
    if len(atoms) < 2 or any(atom.is_width for atom in atoms):
        return value
    keys = {atom.key[:2] for atom in atoms if atom.key is not None and atom.key[0] == "input"}
    if len(keys) != 1:
        raise sketch.refuse("an axis made of several indices is joined with another", "join before the axes are merged")
    if not keys <= sketch.decisions.flat:
        sketch.decisions.flat |= keys
        raise Again
    row, size = Affine(), 1
    for atom in reversed(atoms):
        row, size = size * atom.slot + row, size * atom.size
    new = sketch.atom((size, size))
    names = {atom.name for atom in atoms}

    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Variable | Constant):
            return None
        slots = tuple(
            new.slot if slot.terms and set(slot.terms) == set(row.terms) and not slot.offset else slot
            for slot in node.slots
        )
        if any(names & set(slot.indices) for slot in slots):
            raise sketch.refuse("an axis made of several indices is joined with another", "join before they are merged")
        return type(node)(node.name, slots)

    return replace(value, expr=rebuild(value.expr, change), axes=_with(value, dim, (new,)))


def _common_rest(
    sketch: Sketch, made: Sequence[Traced], dim: int, sizes: Sequence[tuple[int, int]]
) -> tuple[AxisPart, ...]:
    """The width that parts of an axis have in common, with indices inside of it; none if the axis is an index."""
    axes = [v.axes[dim] for v in made]
    if all(len(axis) <= 1 and not any(a.is_width for a in axis) for axis in axes):
        return ()
    if any(a.is_width for axis in axes for a in axis) and not all(any(a.is_width for a in axis) for axis in axes):
        raise sketch.refuse(
            "a vector of the width is joined with numbers that do not grow",
            "give each a layer of its own, and add what they make: one(x) + other(h)",
        )
    inside = [axis[k + 1 :] for axis in axes for k, atom in enumerate(axis) if atom.is_width]
    deepest = max(inside, key=len, default=())
    for axis, have in zip(axes, map(len, inside), strict=False):
        if have < len(deepest):
            wide, inner = axis[-1 - have].sizes, deepest[-1 - have].size
            sketch.split(axis[-1 - have], (wide[0] // inner, wide[1] // inner))
    count, size = len(deepest) + 1, math.prod(atom.size for atom in deepest)
    last = [(axis[-count].sizes if axis else (1, 1)) for axis in axes]
    one, other = (math.gcd(*(s[k] // size for s in sizes), *(s[k] for s in last)) for k in range(2))
    for axis, have_ in zip(axes, last, strict=True):
        if have_ != (one, other):
            sketch.split(axis[-count], (have_[0] // one, have_[1] // other))
    return axes[0][-count:]


def _by_one_index(sketch: Sketch, value: Traced, dim: int, rest: int) -> list[Traced]:
    """A part of an axis as parts that run over one index each, before the last `rest` atoms."""
    atoms = value.axes[dim]
    if len(atoms) - rest < 2:
        return [value]
    parts = (
        sketch.read_at(value, {atoms[0].name: Affine((), place)}, _with(value, dim, atoms[1:]))
        for place in range(atoms[0].size)
    )
    return [each for part in parts for each in _by_one_index(sketch, part, dim, rest)]

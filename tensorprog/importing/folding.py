"""Families stay families: layers that are alike become an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tensorprog.importing.sketch import RandomRows, Sentence, Sketch, WeightMatrix
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    replace_variables,
    slots_of,
    substitute,
    variables,
)

__all__ = ["finished", "folded"]

# ---- layers that are alike ------------------------------------------------------------------------------------------


@dataclass
class _Alike:
    """Two consecutive layers that say the same: how names of the first become those of the second."""

    names: dict[str, str] = field(default_factory=dict)
    base: dict[str, tuple[Variable, Variable, dict[str, str]]] = field(default_factory=dict)


def folded(sketch: Sketch, result: Expr) -> Expr:
    """Let layers that are alike become members of families over an index."""
    for prefix in _containers(sketch.lines):
        _hoist(sketch, prefix)
        result = _fold(sketch, result, prefix)
    return result


def _containers(lines: Sequence[Sentence]) -> list[str]:
    """Paths of lists of modules, outermost first."""
    found: dict[str, set[int]] = {}
    for line in lines:
        for match in re.finditer(r"(?:^|\.)(\d+)(?=\.|$)", line.place.path):
            found.setdefault(line.place.path[: match.start()], set()).add(int(match[1]))
    return sorted((prefix for prefix, numbers in found.items() if len(numbers) > 1), key=lambda p: (p.count("."), p))


def _hoist(sketch: Sketch, prefix: str) -> None:
    """Move what the first of several layers makes for all, such as angles of positions, before the first."""
    numbers = {line.name: _number(line.place.path, prefix) for line in sketch.lines}
    reads = {line.name: {variable.name for arg in line.args for variable in variables(arg)} for line in sketch.lines}
    free: set[str] = set()  # what reads nothing of its layer
    readers: dict[str, set[int | None]] = {}
    for name, read in reads.items():
        if numbers[name] is not None and all(numbers.get(other) is None or other in free for other in read):
            free.add(name)
        for other in read:
            readers.setdefault(other, set()).add(numbers[name])
    moved: set[str] = set()
    names = [name for name in free if len(readers.get(name, ())) > 1]
    while names:
        moved.add(name := names.pop())
        names += (reads[name] & free) - moved
    first = next((k for k, line in enumerate(sketch.lines) if numbers[line.name] is not None), 0)
    out = [replace(line, place=replace(line.place, path=prefix)) for line in sketch.lines if line.name in moved]
    sketch.lines[first:] = [*out, *(line for line in sketch.lines[first:] if line.name not in moved)]


def _number(path: str, prefix: str) -> int | None:
    rest = path[len(prefix) :].removeprefix(".") if path.startswith(f"{prefix}.") or not prefix else ""
    head = rest.split(".")[0]
    return int(head) if head.isdigit() else None


def _fold(sketch: Sketch, result: Expr, prefix: str) -> Expr:
    numbers = [_number(line.place.path, prefix) for line in sketch.lines]
    inside = [k for k, number in enumerate(numbers) if number is not None]
    if not inside:
        return result
    segments: list[list[Sentence]] = []
    last: int | None = None
    for k in range(inside[0], inside[-1] + 1):
        if numbers[k] is None or numbers[k] != last or not segments:
            segments.append([])
        if numbers[k] is not None:
            segments[-1].append(sketch.lines[k])
        last = numbers[k]
    runs: list[tuple[int, int, list[_Alike]]] = []
    start = 0
    steps: list[_Alike] = []
    for k in range(len(segments)):
        step = None
        if k + 1 < len(segments):
            before = [line.name for line in segments[k - 1]] if k > start else []
            step = _alike(sketch, segments[k], segments[k + 1], before)
        if step is not None:
            steps.append(step)
            continue
        if steps:
            runs.append((start, k, steps))
        start, steps = k + 1, []
    for first, end, found in runs:
        result = _folded_run(sketch, result, segments[first : end + 1], found)
    return result


def _alike(sketch: Sketch, one: Sequence[Sentence], other: Sequence[Sentence], before: Sequence[str]) -> _Alike | None:
    """Whether a layer says what the one before it says."""
    if len(one) != len(other) or not one:
        return None
    own = {line.name for line in one}
    found = _Alike(dict(zip((line.name for line in one), (line.name for line in other), strict=True)))
    if len(set(found.names)) < len(one):
        return None
    positions = {line.name: k for k, line in enumerate(one)}
    for a, b in zip(one, other, strict=True):
        same = (a.kind, a.role, a.scale, a.width, len(a.slots)) == (b.kind, b.role, b.scale, b.width, len(b.slots))
        if not same or _relative(a.place.path) != _relative(b.place.path):
            return None
        indices: dict[str, str] = {}
        if not _slots_match(sketch, a.slots, b.slots, indices):
            return None
        for x, y in zip(a.args, b.args, strict=True):
            if not _match(sketch, x, y, indices, found, own, before, positions):
                return None
    return found


def _relative(path: str) -> str:
    return re.sub(r"\d+", "#", path)


def _slots_match(sketch: Sketch, one: Sequence[Affine], other: Sequence[Affine], indices: dict[str, str]) -> bool:
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.offset != b.offset or len(a.terms) != len(b.terms):
            return False
        for (x, p), (y, q) in zip(a.terms, b.terms, strict=True):
            if p != q or not _index_match(sketch, x, y, indices):
                return False
    return True


def _index_match(sketch: Sketch, one: str, other: str, indices: dict[str, str]) -> bool:
    if one in indices:
        return indices[one] == other
    a, b = sketch.atoms[one], sketch.atoms[other]
    if (a.sizes, a.start) != (b.sizes, b.start) or other in indices.values():
        return False
    indices[one] = other
    return True


def _match(
    sketch: Sketch,
    x: Expr,
    y: Expr,
    indices: dict[str, str],
    found: _Alike,
    own: set[str],
    before: Sequence[str],
    positions: dict[str, int],
) -> bool:
    if isinstance(x, Variable) and isinstance(y, Variable):
        if y.name in own:  # read from the layer before
            if x.name in before:
                return before[positions[y.name]] == x.name and _slots_match(sketch, x.slots, y.slots, indices)
            return not before and _base(sketch, x, y, indices, found, own)
        if x.name in sketch.matrices or x.name in sketch.rows:
            same = x.name == y.name and x.name not in found.names
            return (same or _declared_match(sketch, x, y, found)) and _slots_match(sketch, x.slots, y.slots, indices)
        return found.names.get(x.name, x.name) == y.name and _slots_match(sketch, x.slots, y.slots, indices)
    if type(x) is not type(y):
        return False
    if isinstance(x, Number) and isinstance(y, Number):
        return x.value == y.value
    if isinstance(x, IndexValue) and isinstance(y, IndexValue):
        return _index_match(sketch, x.name, y.name, indices)
    if isinstance(x, Constant) and isinstance(y, Constant):
        return x.name == y.name and _slots_match(sketch, x.slots, y.slots, indices)
    if isinstance(x, Call) and isinstance(y, Call) and x.atom != y.atom:
        return False
    if (
        isinstance(x, Reduction)
        and isinstance(y, Reduction)
        and (
            x.reducer != y.reducer
            or len(x.indices) != len(y.indices)
            or not all(_index_match(sketch, a, b, indices) for a, b in zip(x.indices, y.indices, strict=True))
        )
    ):
        return False
    return len(x.children) == len(y.children) and all(
        _match(sketch, a, b, indices, found, own, before, positions)
        for a, b in zip(x.children, y.children, strict=True)
    )


def _base(sketch: Sketch, x: Variable, y: Variable, indices: dict[str, str], found: _Alike, own: set[str]) -> bool:
    """What the first layer reads where later ones read the layer before."""
    bare = [slot.bare for slot in y.slots]
    if x.name in own or None in bare or len(set(bare)) < len(bare) or any(slot.bare is None for slot in x.slots):
        return False
    for slot in x.slots:  # its indices are among those of the later reading
        name = slot.bare or ""
        if name not in indices and not any(_index_match(sketch, name, b or "", indices) for b in bare):
            return False
    known = found.base.get(y.name)
    if known is not None:
        return known[0].name == x.name
    found.base[y.name] = (x, y, indices)
    return True


def _declared_match(sketch: Sketch, x: Variable, y: Variable, found: _Alike) -> bool:
    if x.name in found.names:
        return found.names[x.name] == y.name
    a: WeightMatrix | RandomRows | None = sketch.matrices.get(x.name) or sketch.rows.get(x.name)
    b: WeightMatrix | RandomRows | None = sketch.matrices.get(y.name) or sketch.rows.get(y.name)
    if x.name == y.name or a is None or type(a) is not type(b) or y.name in found.names.values():
        return False
    indices: dict[str, str] = {}
    if not _slots_match(sketch, slots_of(a.indices), slots_of(b.indices if b else ()), indices):
        return False
    if isinstance(a, WeightMatrix) and isinstance(b, WeightMatrix):
        same = a.shape == b.shape and _at(a.variance, indices) == b.variance and a.role == b.role
    else:
        assert isinstance(a, RandomRows) and isinstance(b, RandomRows)
        same = (
            a.width == b.width
            and len(a.options) == len(b.options)
            and a.role == b.role
            and all(
                k == m and isinstance(v, Expr) and _at(v, indices) == w
                for (k, v), (m, w) in zip(a.options, b.options, strict=True)
            )
        )
    if same:
        found.names[x.name] = y.name
    return same


def _at(expr: Expr, indices: dict[str, str]) -> Expr:
    slots = {old: Affine.index(new) for old, new in indices.items()}
    slots |= {f"{old}_": Affine.index(f"{new}_") for old, new in indices.items()}
    return substitute(expr, slots, along=True)


def _folded_run(sketch: Sketch, result: Expr, segments: Sequence[Sequence[Sentence]], steps: Sequence[_Alike]) -> Expr:
    """Put one segment with an index in the place of several."""
    first = segments[0]
    count = len(segments)
    layer = sketch.atom((count, count), start=1)
    member: dict[str, tuple[str, int]] = {line.name: (line.name, 1) for line in first}
    declared = [name for name in steps[0].names if name in sketch.matrices or name in sketch.rows]
    member |= {name: (name, 1) for name in declared}
    for k, step in enumerate(steps, start=2):
        for old, new in step.names.items():
            member[new] = (member[old][0], k)
    base = steps[0].base
    own = {line.name for line in first}

    def inside(number: int) -> Callable[[Variable], Expr | None]:
        def change(ref: Variable) -> Expr | None:
            if ref.name not in member:
                return None
            name, where = member[ref.name]
            return Variable(name, (layer.slot + (where - number), *ref.slots))

        return change

    def outside(ref: Variable) -> Expr | None:
        if ref.name not in member:
            return None
        name, where = member[ref.name]
        return Variable(name, (Affine((), where, "L" if where == count else ""), *ref.slots))

    second = segments[1]  # which reads the layer before by its name
    lines: list[Sentence] = []
    start = next(k for k, line in enumerate(sketch.lines) if line is first[0])
    stop = next(k for k, line in enumerate(sketch.lines) if line is segments[-1][-1]) + 1
    lines += [
        replace(line, args=tuple(replace_variables(a, outside) for a in line.args)) for line in sketch.lines[:start]
    ]
    for name, (source, later, indices) in base.items():
        back = {new: old for old, new in indices.items()}
        slots = tuple(Affine.index(back.get(slot.bare or "", slot.bare or "")) for slot in later.slots)
        line = next(line for line in first if line.name == name)
        lines.append(Sentence(name, (Affine((), 0), *slots), "Nonlin", (source,), line.place, f"base:{line.role}"))
    for line, later_line in zip(first, second, strict=True):
        lines.append(
            replace(
                line,
                slots=(layer.slot, *later_line.slots),
                repeats=count,
                args=tuple(replace_variables(a, inside(2)) for a in later_line.args),
            )
        )
    rest = [line for line in sketch.lines[start:stop] if line.name not in member]
    lines += [
        replace(line, args=tuple(replace_variables(a, outside) for a in line.args))
        for line in [*rest, *sketch.lines[stop:]]
    ]
    sketch.lines = lines
    for name in declared:
        if name in sketch.matrices:
            matrix = sketch.matrices[name]
            sketch.matrices[name] = replace(matrix, indices=(layer.name, *matrix.indices), repeats=count)
        else:
            rows = sketch.rows[name]
            sketch.rows[name] = replace(rows, indices=(layer.name, *rows.indices), repeats=count)
    gone = {name for name, (_, where) in member.items() if where > 1}
    sketch.matrices = {name: entry for name, entry in sketch.matrices.items() if name not in gone}
    sketch.rows = {name: entry for name, entry in sketch.rows.items() if name not in gone}
    sketch.layers.append(layer)
    assert own
    return replace_variables(result, outside)


def finished(sketch: Sketch, result: Expr) -> Expr:
    """The output as a whole family, which is what outputs are."""
    assert isinstance(result, Variable)
    own = [line for line in sketch.lines if line.name == result.name]
    if (
        len(own) == 1
        and len(own[0].slots) == len(result.slots)
        and all(slot.bare for slot in (*own[0].slots, *result.slots))
        and own[0].kind != "Dot"
    ):
        return result
    sketch.place = own[0].place if own else sketch.place
    return sketch.state("Nonlin", (result,), "output")

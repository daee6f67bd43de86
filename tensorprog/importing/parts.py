"""Parts of families that are defined or read one by one get a statement and a name each: halves, queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tensorprog.importing.refusals import SourcePlace
from tensorprog.importing.sketch import Record, Sketch, changed, place_of, read_by
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    call,
    is_call,
    rebuild,
    replace_variables,
    substitute,
    sum_of,
    variables,
    walk,
)
from tensorprog.language.ir import Initial, MatMul, Nonlin, Statement, Table

__all__ = ["pruned", "separated", "unrolled"]

PARTS = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n")}  # gates, in torch's order
FEW = 4  # parts that get a statement or a name each


def _label(place: SourcePlace, size: int, value: int) -> str:
    """What one of several parts is called."""
    names = PARTS.get(place.operation, ("q", "k", "v") if size == 3 else ())
    return names[value] if len(names) == size and value < size else str(value + 1)


def _definitions(sketch: Sketch) -> dict[str, list[Statement]]:
    """Statements by the families that they define."""
    found: dict[str, list[Statement]] = {}
    for line in sketch.body:
        found.setdefault(line.target.name, []).append(line)
    return found


def _numbered(lines: Sequence[Statement]) -> list[int]:
    """Slots at which all definitions of a family have numbers."""
    return [k for k in range(len(lines[0].target.slots)) if all(not line.target.slots[k].terms for line in lines)]


def _kept(line: Statement) -> set[str]:
    """Indices that a statement normalises along: a softmax needs all its entries."""
    nodes = (node for expr in read_by(line) for node in walk(expr))
    return {index for node in nodes if isinstance(node, Reduction) and not node.removes for index in node.indices}


def _fixed(sketch: Sketch, record: Record, index: str, value: int, **others: Any) -> Record:
    """A record where an index has a value."""
    to = {index: Affine((), value), f"{index}_": Affine((), value)}
    return changed(record, lambda expr: _looked_up(sketch, _at(sketch, expr, to)), **others)


# ---- parts that are defined one by one ----------------------------------------------------------------------------


def unrolled(sketch: Sketch, result: Expr) -> None:
    """What reads a few joined parts by an index, statement by statement: the halves of rotary positions."""
    joined = {}
    for name, lines in _definitions(sketch).items():
        numbered = _numbered(lines)
        if place_of(lines[0]).role == "joined" and len(numbered) == 1 and 1 < len(lines) <= FEW:
            joined[name] = numbered[0]
    if any(variable.name in joined for variable in variables(result)):
        return
    found: list[Statement] = []
    for line in sketch.body:
        read = [node for expr in read_by(line) for node in variables(expr) if node.name in joined]
        indices = dict.fromkeys(index for node in read for index in node.slots[joined[node.name]].indices)
        versions = [line]
        for index in indices if line.target.name not in joined else ():
            if index in _kept(line):
                continue
            atom, slots = sketch.atoms[index], line.target.slots
            values = range(atom.start, atom.start + atom.size)
            if Affine.index(index) in slots:
                joined[line.target.name] = slots.index(Affine.index(index))
                versions = [
                    _fixed(sketch, each, index, value, target=substitute(each.target, {index: Affine((), value)}))
                    for each in versions
                    for value in values
                ]
            else:
                summed = partial(_summed_out, sketch, index, values)
                versions = [changed(each, summed) for each in versions]
        found += versions
    sketch.body = found
    parts = {name: lines for name, lines in _definitions(sketch).items() if place_of(lines[0]).role == "joined"}
    sketch.body = [changed(line, partial(_read_through, parts, line)) for line in found]


def _read_through(parts: dict[str, list[Statement]], line: Statement, expr: Expr) -> Expr:
    """References to joined parts that only repeat other families, or their negatives, as references to these."""

    def change(ref: Variable) -> Expr | None:
        lines = parts.get(ref.name, ())
        if any(all(slot.terms for slot in part.target.slots) for part in lines):
            return None  # a part that is several members
        for part in lines:
            slots = part.target.slots
            if all(own.terms or own == slot for own, slot in zip(slots, ref.slots, strict=True)):
                (arg,) = read_by(part)
                inner = arg.args[0] if isinstance(line, Nonlin) and is_call(arg, "negative") else arg
                if not isinstance(inner, Variable) or not all(slot.bare or not slot.terms for slot in slots):
                    return None
                return substitute(arg, {own.bare: slot for own, slot in zip(slots, ref.slots, strict=True) if own.bare})
        return None

    return rebuild(replace_variables(expr, change), _difference)


def _difference(node: Expr) -> Expr | None:
    """a + (-b) * c as a - b * c."""
    if is_call(node, "add") and is_call(node.args[1], "multiply") and is_call(node.args[1].args[0], "negative"):
        second = node.args[1]
        return call("subtract", node.args[0], call("multiply", second.args[0].children[0], second.args[1]))
    return None


def _summed_out(sketch: Sketch, index: str, values: range, expr: Expr) -> Expr:
    """Sums over an index written out."""

    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Reduction) or index not in node.indices or node.reducer != "sum":
            return None
        rest = tuple(name for name in node.indices if name != index)
        inside = Reduction("sum", rest, node.arg) if rest else node.arg
        return sum_of(_at(sketch, inside, {index: Affine((), value)}) for value in values)

    return rebuild(expr, change)


# ---- parts that are read one by one ---------------------------------------------------------------------------------


def separated(sketch: Sketch, result: Expr) -> Expr:
    """Give families whose members are read one by one a name for each: queries, keys and values of one matrix."""
    while True:
        found = _to_separate(sketch, result)
        if found is None:
            return result
        result = _separate(sketch, result, *found)


def _to_separate(sketch: Sketch, result: Expr) -> tuple[str, int, list[int]] | None:
    """A family, one of its slots, and the few numbers that are read there."""
    places: dict[str, Sequence[int]] = {
        entry.name: range(len(entry.indices))
        for entry in sketch.declared.values()
        if not isinstance(entry, Initial) or entry.data is None
    }
    for name, lines in _definitions(sketch).items():
        slots, kept = lines[0].target.slots, _kept(lines[0])
        single = [k for k, slot in enumerate(slots) if slot.bare and slot.bare not in kept]
        places[name] = single if len(lines) == 1 else _numbered(lines)
    references: dict[str, list[Variable]] = {}
    for expr in (*read_by(*sketch.body), result):
        for node in variables(expr):
            references.setdefault(node.name, []).append(node)
    for name, read in references.items():
        for position in places.get(name, ()):
            found = {ref.slots[position] for ref in read}
            if len(found) <= FEW and not any(slot.terms for slot in found):
                return name, position, sorted(slot.offset for slot in found)
    return None


def _separate(sketch: Sketch, result: Expr, name: str, position: int, values: Sequence[int]) -> Expr:
    names = {value: f"{name}_{value}" for value in values}

    def change(ref: Variable) -> Expr | None:
        if ref.name != name:
            return None
        return Variable(names[ref.slots[position].offset], (*ref.slots[:position], *ref.slots[position + 1 :]))

    def changing(expr: Expr) -> Expr:
        return replace_variables(expr, change)

    body: list[Statement] = []
    for line in sketch.body:
        if line.target.name != name:
            body.append(changed(line, changing))
            continue
        own, place = line.target.slots[position], place_of(line)
        slots = (*line.target.slots[:position], *line.target.slots[position + 1 :])
        # queries, keys and values are products
        size = sketch.atoms[own.bare].size if own.bare and isinstance(line, MatMul) else 0
        for value in values if own.bare else set(values) & {own.offset}:
            role = f"{place.role}:{_label(place, size, value)}"
            target, span = Variable(names[value], slots), replace(place, role=role)
            body.append(changed(_fixed(sketch, line, own.bare or "", value), changing, target=target, span=span))
    sketch.body = body
    entry = sketch.declared.pop(name, None)
    for value in values if entry else ():
        assert entry is not None
        index = entry.indices[position]
        span = replace(place_of(entry), role=_label(place_of(entry), sketch.atoms[index].size, value))
        indices = (*entry.indices[:position], *entry.indices[position + 1 :])
        made = _fixed(sketch, entry, index, value, name=names[value], indices=indices, span=span)
        sketch.declared[made.name] = made
    return changing(result)


def _at(sketch: Sketch, expr: Expr, values: dict[str, Affine]) -> Expr:
    """An expression where indices have values; members of families outside of their borders are zero, and so are
    products with them."""
    expr = substitute(expr, values)
    if not any(isinstance(node, Variable) and any(not slot.terms for slot in node.slots) for node in walk(expr)):
        return expr
    inside: dict[tuple[str, int], set[int]] = {}
    for line in sketch.body:
        for k, slot in enumerate(line.target.slots):
            atom = sketch.atoms[slot.bare] if slot.bare else None
            numbers = range(atom.start, atom.start + atom.size) if atom else (slot.offset,)
            inside.setdefault((line.target.name, k), set()).update(numbers)

    def outside(node: Expr) -> bool:
        return isinstance(node, Variable) and any(
            not slot.terms and (node.name, k) in inside and slot.offset not in inside[node.name, k]
            for k, slot in enumerate(node.slots)
        )

    def change(node: Expr) -> Expr | None:
        if outside(node):
            return Number(0)
        if not is_call(node, "multiply", "add"):
            return None
        left, right = (rebuild(arg, change) for arg in node.args)
        if node.atom == "add" and Number(0) in (left, right):
            return right if left == Number(0) else left
        return Number(0) if Number(0) in (left, right) else call(node.atom, left, right)

    return rebuild(expr, change) if any(map(outside, walk(expr))) else expr


def _looked_up(sketch: Sketch, expr: Expr) -> Expr:
    """The number of a table that is read at numbers, and the branch of a choice between numbers."""
    if isinstance(expr, Constant) and all(not slot.terms for slot in expr.slots):
        table = sketch.tables[expr.name].value
        assert isinstance(table, Table)
        return Number(float(table.array[tuple(slot.offset for slot in expr.slots)]))
    if isinstance(expr, Call) and expr.atom == "where" and isinstance(expr.args[0], Call):
        left, right = expr.args[0].args
        if isinstance(left, Number | IndexValue) and left == right:
            return _looked_up(sketch, expr.args[1])
    return expr


def pruned(sketch: Sketch, result: Expr) -> None:
    """Leave out what nothing reads."""
    lines = _definitions(sketch)
    wanted: set[str] = set()
    names = [variable.name for variable in variables(result)]
    while names:
        if (name := names.pop()) not in wanted:
            wanted.add(name)
            names += [variable.name for expr in read_by(*lines.get(name, ())) for variable in variables(expr)]
    sketch.body = [line for line in sketch.body if line.target.name in wanted]
    read = (variable for expr in (*read_by(*sketch.body), result) for variable in variables(expr))
    order = dict.fromkeys(variable.name for variable in read)
    sketch.declared = {name: sketch.declared[name] for name in order if name in sketch.declared}
    exprs = read_by(*sketch.body, *sketch.declared.values())
    tables = {node.name for expr in exprs for node in walk(expr) if isinstance(node, Constant)}
    sketch.tables = {name: entry for name, entry in sketch.tables.items() if name in tables}

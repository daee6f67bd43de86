"""Families of a sketch as they are written: parts that are read one by one get a statement and a name each
(queries and keys), what nothing reads is left out, and layers that are alike become an index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
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
    replace_variables,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Dot, Initial, MatMul, Nonlin, Statement, Table

__all__ = ["finished", "folded", "pruned", "separated"]

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
    """Indices that a statement normalises along, as a softmax needs all its entries, or reads at shifted places."""
    nodes = [node for expr in read_by(line) for node in walk(expr)]
    kept = {index for node in nodes if isinstance(node, Reduction) and not node.removes for index in node.indices}
    slots = [slot for node in nodes if isinstance(node, Variable) for slot in node.slots if not slot.bare]
    return kept.union(*(slot.indices for slot in slots))


def _fixed(sketch: Sketch, record: Record, index: str, value: int, **others: Any) -> Record:
    """A record where an index has a value."""
    to = {index: Affine((), value), f"{index}_": Affine((), value)}
    return changed(record, lambda expr: _looked_up(sketch, substitute(expr, to)), **others)


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


# ---- layers that are alike -------------------------------------------------------------------------------------------


def folded(sketch: Sketch, result: Expr) -> Expr:
    """Let layers that are alike become members of families over an index."""
    for prefix in _containers(sketch.body):
        _hoist(sketch, prefix)
        result = _fold(sketch, result, prefix)
    return result


def _containers(body: Sequence[Statement]) -> list[str]:
    """Paths of lists of modules, outermost first."""
    found: dict[str, set[int]] = {}
    for line in body:
        path = place_of(line).path
        for match in re.finditer(r"(?:^|\.)(\d+)(?=\.|$)", path):
            found.setdefault(path[: match.start()], set()).add(int(match[1]))
    return sorted((prefix for prefix, numbers in found.items() if len(numbers) > 1), key=lambda p: (p.count("."), p))


def _number(line: Statement, prefix: str) -> int | None:
    """The layer of a list that a statement belongs to."""
    path = place_of(line).path
    rest = path[len(prefix) :].removeprefix(".") if path.startswith(f"{prefix}.") or not prefix else ""
    head = rest.split(".")[0]
    return int(head) if head.isdigit() else None


def _reads(line: Statement) -> set[str]:
    return {variable.name for expr in read_by(line) for variable in variables(expr)}


def _readers(body: Sequence[Statement], prefix: str) -> dict[str, set[int | None]]:
    """The layers that read a family."""
    found: dict[str, set[int | None]] = {}
    for line in body:
        for name in _reads(line):
            found.setdefault(name, set()).add(_number(line, prefix))
    return found


def _hoist(sketch: Sketch, prefix: str) -> None:
    """Move what the first of several layers makes for all, such as angles of positions, before the first."""
    numbers = {line.target.name: _number(line, prefix) for line in sketch.body}
    reads = {line.target.name: _reads(line) for line in sketch.body}
    free: set[str] = set()  # what reads nothing of its layer
    for name, read in reads.items():
        if numbers[name] is not None and all(numbers.get(other) is None or other in free for other in read):
            free.add(name)
    readers = _readers(sketch.body, prefix)
    moved: set[str] = set()
    names = [name for name in free if len(readers.get(name, ())) > 1]
    while names:
        moved.add(name := names.pop())
        names += (reads[name] & free) - moved
    first = next((k for k, line in enumerate(sketch.body) if numbers[line.target.name] is not None), 0)
    shared = [line for line in sketch.body if line.target.name in moved]
    out = [replace(line, span=replace(place_of(line), path=prefix)) for line in shared]
    sketch.body[first:] = [*out, *(line for line in sketch.body[first:] if line.target.name not in moved)]


def _fold(sketch: Sketch, result: Expr, prefix: str) -> Expr:
    groups = groupby(sketch.body, lambda line: _number(line, prefix))
    segments = [[*lines] for number, lines in groups if number is not None]
    shared = {name for name, found in _readers(sketch.body, prefix).items() if len(found - {None}) > 1}
    runs: list[list[_Layer]] = []
    for segment in segments:
        last = runs[-1][-1] if runs else None
        layer = _Layer(sketch, segment, shared, last)
        if last is not None and layer.repeats(last, len(runs[-1]) == 1):
            runs[-1].append(layer)
        else:
            runs.append([_Layer(sketch, segment, shared, None)])
    for run in runs:
        result = _folded_run(sketch, result, run) if len(run) > 1 else result
    return result


class _Layer:
    """What a layer says, in a form in which layers that are alike are equal: names and indices by their numbers."""

    def __init__(self, sketch: Sketch, lines: Sequence[Statement], shared: set[str], last: _Layer | None) -> None:
        self.sketch, self.lines, self.shared = sketch, lines, shared
        self.names = [line.target.name for line in lines]
        self.declared: dict[tuple[Any, ...], str] = {}  # for this layer alone
        self.keys: dict[str, Any] = {name: ("before", k) for k, name in enumerate(last.names if last else ())}
        self.keys |= {name: ("own", k) for k, name in enumerate(self.names)}
        # what is said, in parts; of references they themselves, and the indices of the statement by their numbers
        self.said: list[tuple[Any, Variable | None, list[str]]] = []
        self.base: dict[str, tuple[Expr, Variable]] = {}  # what the first layer reads where others read the last one
        for line in lines:
            self.indices: list[str] = []
            place, path = place_of(line), re.sub(r"\d+", "#", place_of(line).path)
            options = getattr(line, "scale", ""), getattr(line, "width", "")
            self._say(type(line), place.role, options, path, self._slots(line.target.slots))
            for expr in read_by(line):
                self._read(expr)

    def repeats(self, last: _Layer, first: bool) -> bool:
        """Whether it says what the layer before says; if that is the first, other families may stand for its base."""
        if len(last.said) != len(self.said):
            return False
        pairs = zip(last.said, self.said, strict=True)
        return all(one[0] == own[0] or (first and self._stands_for(one, own)) for one, own in pairs)

    def _stands_for(self, one: Any, own: Any) -> bool:
        (said, x, old), (says, y, new) = one, own
        if x is None or y is None or says[1][0] != "before" or said[1][0] in ("own", "before"):
            return False
        to = {a: Affine.index(b) for a, b in zip(old, new, strict=False)}
        bare = [slot.bare for slot in y.slots]
        if None in bare or len({*bare}) < len(bare) or any(slot.bare not in to for slot in x.slots):
            return False
        source = substitute(x, to)
        known, read = self.base.setdefault(y.name, (source, y))  # it is read at other indices as it was read first
        moved = substitute(known, {a.bare or "": b for a, b in zip(read.slots, y.slots, strict=True)})
        return {i for slot in x.slots for i in to[slot.bare or ""].indices} <= {*bare} and moved == source

    def _say(self, *text: Any, ref: Variable | None = None) -> None:
        self.said.append((text, ref, [*self.indices]))

    def _index(self, name: str) -> tuple[Any, ...]:
        own = name.rstrip("_")
        if own not in self.indices:
            self.indices.append(own)
        atom = self.sketch.atoms[own]
        return self.indices.index(own), name != own, atom.sizes, atom.start

    def _slots(self, slots: Sequence[Affine]) -> tuple[Any, ...]:
        return tuple((slot.offset, *((self._index(name), factor) for name, factor in slot.terms)) for slot in slots)

    def _read(self, expr: Expr) -> None:
        for node in walk(expr):
            if isinstance(node, Variable):
                self._say("ref", self._key(node.name), self._slots(node.slots), ref=node)
            elif isinstance(node, Reduction):
                self._say(node.reducer, *map(self._index, node.indices))
            elif isinstance(node, Call):
                self._say(node.atom, len(node.args))
            elif isinstance(node, IndexValue):
                self._say(self._index(node.name))
            elif isinstance(node, Constant):
                self._say(node.name, self._slots(node.slots))
            elif isinstance(node, Number):
                self._say(node.value)

    def _key(self, name: str) -> Any:
        """How a family is called; what is declared for this layer alone by its declaration."""
        entry = self.sketch.declared.get(name)
        if name in self.keys or entry is None or name in self.shared:
            return self.keys.get(name, name)
        kept, self.indices, self.said = (self.indices, self.said), [], []
        place = place_of(entry)
        widths = getattr(entry, "shape", ""), getattr(entry, "width", ""), getattr(entry, "data", None)
        self._say(widths, place.role, *map(self._index, entry.indices))
        for expr in read_by(entry):
            self._read(expr)
        said = ("declared", re.sub(r"\d+", "#", place.parameter), *(text for text, *_ in self.said))
        self.indices, self.said = kept
        self.keys[name] = (*said, sum(key[:-1] == said for key in self.declared))
        self.declared[self.keys[name]] = name
        return self.keys[name]


def _folded_run(sketch: Sketch, result: Expr, run: Sequence[_Layer]) -> Expr:
    """Put one layer with an index in the place of several."""
    first, second, count = run[0], run[1], len(run)
    layer = sketch.atom((count, count), start=1)
    declared = {key: name for key, name in first.declared.items() if key in second.declared}
    member: dict[str, tuple[str, int]] = {}
    for k, each in enumerate(run, start=1):
        member |= {name: (own, k) for own, name in zip(first.names, each.names, strict=True)}
        member |= {each.declared[key]: (name, k) for key, name in declared.items()}

    def moved(expr: Expr, inside: bool) -> Expr:
        """As the second layer reads it, or as what stands before and behind all layers does."""

        def change(ref: Variable) -> Expr | None:
            if ref.name not in member:
                return None
            name, where = member[ref.name]
            return Variable(name, (layer.slot + (where - 2) if inside else Affine((), where), *ref.slots))

        return replace_variables(expr, change)

    start = next(k for k, line in enumerate(sketch.body) if line is first.lines[0])
    body = sketch.body[:start]
    for line in first.lines:
        if line.target.name in second.base:
            source, later = second.base[line.target.name]
            target, place = Variable(line.target.name, (Affine((), 0), *later.slots)), place_of(line)
            body.append(Nonlin(target, moved(source, False), span=replace(place, role=f"base:{place.role}")))
    for line, own in zip(first.lines, second.lines, strict=True):
        target = Variable(line.target.name, (layer.slot, *own.target.slots))
        body.append(changed(own, lambda expr: moved(expr, True), target=target, span=line.span))
    rest = (line for line in sketch.body[start:] if line.target.name not in member)
    sketch.body = [*body, *(changed(line, lambda expr: moved(expr, False)) for line in rest)]
    for name in declared.values():
        entry = sketch.declared[name]
        sketch.declared[name] = replace(entry, indices=(layer.name, *entry.indices))
    gone = {name for name, (_, where) in member.items() if where > 1}
    sketch.declared = {name: entry for name, entry in sketch.declared.items() if name not in gone}
    sketch.layers.append(layer)
    return moved(result, False)


def finished(sketch: Sketch, result: Expr) -> Expr:
    """The output as a whole family, which is what outputs are."""
    assert isinstance(result, Variable)
    own = [line for line in sketch.body if line.target.name == result.name]
    whole = len(own) == 1 and not isinstance(own[0], Dot) and len(own[0].target.slots) == len(result.slots)
    if whole and all(slot.bare for slot in (*own[0].target.slots, *result.slots)):
        return result
    sketch.place = place_of(own[0]) if own else sketch.place
    return sketch.state(Nonlin, result, role="output")

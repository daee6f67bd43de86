"""Families stay families: layers that are alike become an index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from tensorprog.importing.sketch import Sentence, Sketch
from tensorprog.language.expr import (
    Affine,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    replace_variables,
    substitute,
    variables,
)

__all__ = ["finished", "folded"]

# ---- layers that are alike ------------------------------------------------------------------------------------------


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
    segments = [
        [sketch.lines[k] for k in group]
        for number, group in groupby(range(len(numbers)), key=lambda k: numbers[k])
        if number is not None
    ]
    users: dict[str, set[int | None]] = {}
    for line, number in zip(sketch.lines, numbers, strict=True):
        for name in {variable.name for arg in line.args for variable in variables(arg)}:
            users.setdefault(name, set()).add(number)
    shared = {name for name, found in users.items() if len(found - {None}) > 1}
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


@dataclass(frozen=True)
class _Token:
    """A part of what a layer says: equal where layers say the same."""

    text: tuple[Any, ...]
    ref: Variable | None = field(default=None, compare=False)
    indices: tuple[str, ...] = field(default=(), compare=False)  # of the statement, by their numbers


class _Layer:
    """What a layer says, in a form in which layers that are alike are equal: names and indices by their numbers."""

    def __init__(self, sketch: Sketch, lines: Sequence[Sentence], shared: set[str], last: _Layer | None) -> None:
        self.sketch, self.lines, self.shared = sketch, lines, shared
        self.names = [line.name for line in lines]
        self.declared: dict[tuple[Any, ...], str] = {}  # for this layer alone
        before = last.lines if last else ()
        self.keys: dict[str, tuple[Any, ...]] = {line.name: ("before", k) for k, line in enumerate(before)}
        self.keys |= {name: ("own", k) for k, name in enumerate(self.names)}
        self.tokens: list[_Token] = []
        self.base: dict[str, tuple[Expr, Variable]] = {}  # what the first layer reads where others read the last one
        for line in lines:
            self.indices: list[str] = []
            path = re.sub(r"\d+", "#", line.place.path)
            self._say(line.kind, line.role, line.scale, line.width, path, self._slots(line.slots))
            for arg in line.args:
                self._read(arg)

    def repeats(self, last: _Layer, first: bool) -> bool:
        """Whether it says what the layer before says; if that is the first, other families may stand for its base."""
        if len(last.tokens) != len(self.tokens) or len({*self.names}) != len(last.names):
            return False
        for one, own in zip(last.tokens, self.tokens, strict=True):
            if one != own and not (first and self._stands_for(one, own)):
                return False
        return True

    def _stands_for(self, one: _Token, own: _Token) -> bool:
        x, y = one.ref, own.ref
        if x is None or y is None or own.text[1][0] != "before" or one.text[1][0] in ("own", "before"):
            return False
        to = {a: Affine.index(b) for a, b in zip(one.indices, own.indices, strict=False)}
        bare = [slot.bare for slot in y.slots]
        if None in bare or len({*bare}) < len(bare) or any(slot.bare not in to for slot in x.slots):
            return False
        source = substitute(x, to)
        return {i for slot in x.slots for i in to[slot.bare or ""].indices} <= {*bare} and (
            self.base.setdefault(y.name, (source, y))[0] == source or self._same_base(y, source)
        )

    def _same_base(self, y: Variable, source: Expr) -> bool:
        """Whether it is read at other indices as it was read first."""
        known, first = self.base[y.name]
        return substitute(known, {a.bare or "": b for a, b in zip(first.slots, y.slots, strict=True)}) == source

    def _say(self, *text: Any) -> None:
        self.tokens.append(_Token(text))

    def _index(self, name: str) -> tuple[Any, ...]:
        own = name.rstrip("_")
        if own not in self.indices:
            self.indices.append(own)
        atom = self.sketch.atoms[own]
        return self.indices.index(own), name != own, atom.sizes, atom.start

    def _slots(self, slots: Sequence[Affine]) -> tuple[Any, ...]:
        return tuple((slot.offset, *((self._index(name), factor) for name, factor in slot.terms)) for slot in slots)

    def _read(self, expr: Expr) -> None:
        if isinstance(expr, Variable):
            text = ("ref", self._key(expr.name), self._slots(expr.slots))
            self.tokens.append(_Token(text, expr, tuple(self.indices)))
        elif isinstance(expr, Constant):
            self._say(expr.name, self._slots(expr.slots))
        elif isinstance(expr, Number):
            self._say(expr.value)
        elif isinstance(expr, IndexValue):
            self._say(self._index(expr.name))
        elif isinstance(expr, Reduction):
            self._say(expr.reducer, *map(self._index, expr.indices))
        else:
            self._say(getattr(expr, "atom", type(expr)), len(expr.children))
        for child in expr.children:
            self._read(child)

    def _key(self, name: str) -> Any:
        """How a family is called; what is declared for this layer alone by its declaration."""
        entry = self.sketch.declared.get(name)
        if name in self.keys or entry is None or name in self.shared:
            return self.keys.get(name, name)
        kept, self.indices, self.tokens = (self.indices, self.tokens), [], []
        self._say(entry.widths, entry.role, *map(self._index, entry.indices))
        for key, value in entry.options:
            self._say(key)
            self._read(value) if isinstance(value, Expr) else self._say(name)
        path = re.sub(r"\d+", "#", entry.parameter)
        said = ("declared", path, *(token.text for token in self.tokens))
        self.indices, self.tokens = kept
        self.keys[name] = (*said, sum(key[:-1] == said for key in self.declared))
        self.declared[self.keys[name]] = name
        return self.keys[name]


def _folded_run(sketch: Sketch, result: Expr, run: Sequence[_Layer]) -> Expr:
    """Put one layer with an index in the place of several."""
    first, second, count = run[0], run[1], len(run)
    layer = sketch.atom((count, count), start=1)
    member = {
        name: (own, k) for k, each in enumerate(run, start=1) for own, name in zip(first.names, each.names, strict=True)
    }
    declared = {key: name for key, name in first.declared.items() if key in second.declared}
    for k, each in enumerate(run, start=1):
        member |= {each.declared[key]: (name, k) for key, name in declared.items()}

    def inside(ref: Variable) -> Expr | None:
        """As the second layer reads it."""
        if ref.name not in member:
            return None
        name, where = member[ref.name]
        return Variable(name, (layer.slot + (where - 2), *ref.slots))

    def outside(ref: Variable) -> Expr | None:
        if ref.name not in member:
            return None
        name, where = member[ref.name]
        return Variable(name, (Affine((), where, "L" if where == count else ""), *ref.slots))

    start = next(k for k, line in enumerate(sketch.lines) if line is first.lines[0])
    lines = list(sketch.lines[:start])
    for line in first.lines:
        if line.name in second.base:
            source, later = second.base[line.name]
            slots = (Affine((), 0), *later.slots)
            lines.append(Sentence(line.name, slots, "Nonlin", (source,), line.place, f"base:{line.role}"))
    for line, own in zip(first.lines, second.lines, strict=True):
        args = tuple(replace_variables(arg, inside) for arg in own.args)
        lines.append(replace(line, slots=(layer.slot, *own.slots), repeats=count, args=args))
    lines += [line for line in sketch.lines[start:] if line.name not in member]
    sketch.lines = [
        line
        if line.repeats == count and line.name in member
        else replace(line, args=tuple(replace_variables(arg, outside) for arg in line.args))
        for line in lines
    ]
    for name in declared.values():
        entry = sketch.declared[name]
        sketch.declared[name] = replace(entry, indices=(layer.name, *entry.indices), repeats=count)
    gone = {name for name, (_, where) in member.items() if where > 1}
    sketch.declared = {name: entry for name, entry in sketch.declared.items() if name not in gone}
    sketch.layers.append(layer)
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

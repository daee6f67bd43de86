"""A sketch as a program: names from the paths of modules, a letter for each index; and its file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from tensorprog.importing.refusals import SourcePlace, refused
from tensorprog.importing.sketch import Record, Sketch, changed, place_of, read_by
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    Number,
    Variable,
    call,
    index_names,
    rebuild,
    substitute,
    walk,
)
from tensorprog.language.ir import ConstantDef, Dot, Index, Initial, MatMul, Netsor, Nonlin, Statement, Table, Weight

__all__ = ["named"]

LETTERS = (("i", "j", "t"), ("a", "b"), ("m", "r"), ("c", "e"), ("f", "g"), ("s", "u"))
RESERVED = {*ATOMS, *REDUCTIONS, "n", "inf", "pi", "min", "max", "MatMul", "Nonlin", "Dot"}
PLAIN = {  # names of what statements do not say of themselves
    **{name: name for name in ("score", "one", "angle")},
    "output": "y",
    "joined": "x",
    "uniform": "b",
    "hidden": "h",
    "start": "h",
    "memory": "c",
    "state": "u",
    "inputs": "x",
    "update": "z",
}
Kind = tuple[int, int, Literal["", "zero", "wrap"]]  # range and boundary of an index


def named(sketch: Sketch, result: Expr, name: str, title: str) -> tuple[Netsor, dict[str, str]]:
    """The program of a sketch, and the names that families got.

    Raises    ProgramError for what the language refuses, with the operation that it came from
    """
    assert isinstance(result, Variable)
    writer = _Names(sketch, result.name)
    try:
        return writer.program(name, title), writer.names
    except ProgramError as error:
        raise refused(error.problems) from error


class _Names:
    """Names and letters of a program."""

    def __init__(self, sketch: Sketch, result: str) -> None:
        self.sketch, self.result = sketch, result
        self.layers = {atom.size: f"L{k}" if k > 1 else "L" for k, atom in enumerate(sketch.layers, start=1)}
        indices = {atom.name: atom.size for atom in sketch.layers}
        firsts = [(line.target.name, line.target.slots[0].bare) for line in sketch.body if line.target.slots]
        self.last = {name: indices[bare] for name, bare in firsts if bare in indices}  # members that layers became
        self.pools: dict[Kind, tuple[str, ...]] = {(1, 1 + k, ""): (label.lower(),) for k, label in self.layers.items()}
        self.index: dict[str, Kind] = {}  # letters that are used
        self.weights = [entry for entry in sketch.declared.values() if isinstance(entry, Weight)]
        self.initial = [entry for entry in sketch.declared.values() if isinstance(entry, Initial)]
        self.declared: list[Weight | Initial] = [*self.weights, *self.initial]
        widths = [*(width for entry in self.weights for width in entry.shape), *(entry.width for entry in self.initial)]
        widths += [line.width for line in sketch.body if isinstance(line, Nonlin) and line.width]
        letters = iter(("w", *(f"w{k}" for k in range(2, len(widths) + 2))))
        self.widths = {"n": "n"}
        for width in dict.fromkeys(widths):
            if width not in self.widths:
                small = sketch.ratios[width] < 1 and "d" not in self.widths.values()
                self.widths[width] = "d" if small else next(letters)
        self.taken = {*RESERVED, *self.layers.values(), *self.widths.values()}
        self.taken |= {letter for pool in (*LETTERS, *self.pools.values()) for letter in pool}
        self.names: dict[str, str] = {}
        self._choose()

    # -- names --------------------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """Names of families after the modules and parameters that made them."""
        for line in self.sketch.body:
            if line.target.name == self.result and self.result not in self.last:
                self._give(self.result, "y")
            elif not place_of(line).role.startswith("base"):
                self._give(line.target.name, self._wish(line))
        for entry in self.declared:
            place = place_of(entry)
            bias = place.parameter.endswith("bias") or "bias_" in place.parameter
            self._give(entry.name, f"{'W_' if isinstance(entry, Weight) else 'b_' if bias else ''}{_part(place)}")
        for table in self.sketch.tables.values():
            assert isinstance(table.value, Table)
            mask = len(table.indices) == 2 and set(np.unique(table.value.array)) <= {0.0, 1.0}
            self._give(table.name, "mask" if mask else "table")

    def _give(self, own: str, wish: str) -> None:
        """The name of a family, or a number behind it; the first one stays."""
        wish = re.sub(r"\W", "_", wish).strip("_") or "x"
        wish = f"x{wish}" if wish[0].isdigit() else wish
        name, number = wish, 2
        while name in self.taken:
            name, number = f"{wish}{'_' * wish[-1].isdigit()}{number}", number + 1
        if own not in self.names:
            self.names[own] = name
            self.taken.add(name)

    def _wish(self, line: Statement) -> str:
        """A name that says what a statement makes: its part, its weight, its role, its function, its module."""
        place, top = place_of(line), read_by(line)[0]
        role, _, part = place.role.partition(":")
        if part in ("q", "k", "v"):
            return part
        if isinstance(line, MatMul) and role != "state":
            return _part(place_of(self.sketch.declared[line.weight.name]))
        if isinstance(line, Dot) and role == "average":
            return "square" if line.left == line.right else "mu"
        if role in PLAIN:
            return f"{PLAIN[role]}_{part}" if part else PLAIN[role]
        if isinstance(top, Call) and top.atom in ("add", "subtract"):
            return "centred" if top.atom == "subtract" and "norm" in place.owner.lower() else "x"
        if role:
            return f"{top.atom}_out" if isinstance(top, Call) and len(top.args) == 1 else "h"
        return "x" if place.operation in ("cat", "embedding", "dropout") else _last(place.path) or "x"

    def letters(self, names: Iterable[str]) -> dict[str, str]:
        """A letter for each index of a record."""
        found: dict[str, str] = {}
        for name in dict.fromkeys(name.rstrip("_") for name in names):
            atom = self.sketch.atoms[name]
            kind = (atom.start, atom.start + atom.size, atom.boundary)
            if kind not in self.pools:
                used = len(self.pools) - len(self.layers)
                self.pools[kind] = LETTERS[used] if used < len(LETTERS) else (f"i{used}", f"j{used}")
            pool = self.pools[kind]
            more = (f"{pool[0]}{k}" for k in range(2, len(found) + len(self.names) + 3))
            letter = next(
                c
                for c in (*pool, *more)
                if c not in found.values() and self.index.get(c, kind) == kind and c not in self.names.values()
            )
            found[name] = letter
            self.index[letter] = kind
        return found

    # -- records ------------------------------------------------------------------------------------------------

    def program(self, name: str, title: str) -> Netsor:
        """All records, validated."""
        body = tuple(map(self._written, self.sketch.body))
        initial, weights = tuple(map(self._written, self.initial)), tuple(map(self._written, self.weights))
        constants = [ConstantDef(label, size) for size, label in self.layers.items()]
        constants += map(self._written, self.sketch.tables.values())
        texts = {(1, 1 + size, ""): f"1..{label}" for size, label in self.layers.items()}
        ratios = [(own, self.sketch.ratios[width], width) for width, own in self.widths.items() if width != "n"]
        common = math.lcm(*(ratio.denominator for _, ratio, _ in ratios))
        return Netsor(
            name,
            tuple(constants),
            tuple(Index(key, *kind, texts.get(kind, "")) for key, kind in sorted(self.index.items())),
            initial,
            weights,
            body,
            (self.names[self.result],),
            tuple(ratios),
            title=title,
            run=(("width", tuple(-(-width // common) * common for width in (64, 256))), ("samples", 2000)),
        )

    def _written(self, record: Record) -> Record:
        """A record with the names that are written."""
        others: dict[str, Any] = {}
        if isinstance(record, Weight | Initial | ConstantDef):
            letters = self.letters(record.indices)
            others = {"name": self.names[record.name], "indices": tuple(letters[name] for name in record.indices)}
        else:
            nodes = (node for expr in (record.target, *read_by(record)) for node in walk(expr))
            letters = self.letters(name for node in nodes for name in index_names(node))
        slots = {f"{old}{end}": Affine.index(f"{new}{end}") for old, new in letters.items() for end in ("", "_")}

        def change(node: Expr) -> Expr | None:
            if isinstance(node, Variable | Constant):
                return type(node)(self.names[node.name], self._last_layer(node))
            return _nice(node) if isinstance(node, Number) else None

        def written(expr: Expr) -> Expr:
            return rebuild(substitute(expr, slots, along=True), change)

        if isinstance(record, Weight):
            others["shape"] = tuple(self.widths[width] for width in record.shape)
        elif isinstance(record, Initial):
            others["width"] = self.widths[record.width]
        elif not isinstance(record, ConstantDef):
            others["target"] = written(record.target)
            if isinstance(record, Nonlin):
                others["width"] = self.widths.get(record.width, "").removeprefix("n")
        grid = isinstance(record, Initial) and record.grid  # whose numbers are not written
        return replace(record, **others) if grid else changed(record, written, **others)

    def _last_layer(self, node: Variable | Constant) -> tuple[Affine, ...]:
        """Slots in which the last layer is called by its name."""
        size = self.last.get(node.name)
        if size and not node.slots[0].terms and node.slots[0].offset == size:
            return (Affine((), size, self.layers[size]), *node.slots[1:])
        return node.slots


def _last(path: str) -> str:
    """The last part of a module's path that is a word, with the number behind it."""
    words = path.split(".")
    if words[-1].isdigit():
        return "".join(words[-2:]) if len(words) > 1 and not words[-2].isdigit() else f"layer{words[-1]}"
    return words[-1]


def _part(place: SourcePlace) -> str:
    """The part of a module that a parameter belongs to."""
    if place.role in ("q", "k", "v"):
        return place.role
    if not place.parameter:
        return "ones" if place.role == "ones" else "coordinate"
    *path, last = place.parameter.split(".")
    name = re.sub(r"_?(weight|bias)(_|$)", r"\2", last).strip("_") or _last(".".join(path))
    return f"{name}_{place.role}" if place.role else name


def _nice(node: Number) -> Expr:
    """A number as a person would write it."""
    value = node.value
    if isinstance(value, int) or math.isinf(value):
        return node
    short = float(f"{value:.10g}")
    if short.is_integer() and abs(short) < 1e15:
        return Number(int(short))
    fraction = Fraction(value).limit_denominator(200)
    if len(repr(short)) > 8 and abs(float(fraction) - value) < 1e-12 * abs(value):
        return call("divide", Number(fraction.numerator), Number(fraction.denominator))
    return Number(short)

"""A sketch as a program: names from the paths of modules, a letter for each index, records of the language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from tensorprog.importing.refusals import refused
from tensorprog.importing.sketch import Declared, Sentence, Sketch
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError
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
    rebuild,
    substitute,
    walk,
)
from tensorprog.language.ir import (
    ConstantDef,
    Dot,
    Draft,
    Index,
    Initial,
    MatMul,
    Netsor,
    Nonlin,
    Statement,
    Table,
    Weight,
)
from tensorprog.language.reading import loads
from tensorprog.language.writing import dump

__all__ = ["Written", "written"]

SMALL = 64  # numbers of a table that stays in the text
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


@dataclass(frozen=True)
class Written:
    """A program, its file, the tables beside it, and the names that families got."""

    netsor: Netsor
    text: str
    arrays: dict[str, Any]
    names: dict[str, str]


def written(sketch: Sketch, result: Expr, name: str, title: str, comments: Sequence[str]) -> Written:
    """The program of a sketch.

    Raises    ProgramError for what the language refuses, with the operation that it came from
    """
    return _Writer(sketch, result).program(name, title, comments)


class _Writer:
    """Names and letters of a program, and its records."""

    def __init__(self, sketch: Sketch, result: Expr) -> None:
        assert isinstance(result, Variable)
        self.sketch, self.result = sketch, result.name
        self.arrays: dict[str, Any] = {}
        self.layers = {atom.size: f"L{k}" if k > 1 else "L" for k, atom in enumerate(sketch.layers, start=1)}
        self.repeats = {line.name: line.repeats for line in sketch.lines if line.repeats > 1}
        self.pools: dict[Kind, tuple[str, ...]] = {
            (1, 1 + size, ""): (label.lower(),) for size, label in self.layers.items()
        }
        self.index: dict[str, Kind] = {}  # letters that are used
        entries = sorted(sketch.declared.values(), key=lambda entry: not entry.is_weight)
        ratios = [Fraction(1), *(ratio for entry in entries for ratio in entry.widths)]
        ratios += [line.width for line in sketch.lines if line.width is not None]
        names = iter(("w", *(f"w{k}" for k in range(2, len(ratios) + 2))))
        self.widths = {Fraction(1): "n"}
        for ratio in dict.fromkeys(ratios):
            if ratio not in self.widths:
                self.widths[ratio] = "d" if ratio < 1 and "d" not in self.widths.values() else next(names)
        self.taken = {*RESERVED, *self.layers.values(), *self.widths.values()}
        self.taken |= {letter for pool in (*LETTERS, *self.pools.values()) for letter in pool}
        self.names: dict[str, str] = {}
        self._choose_names()

    # -- names --------------------------------------------------------------------------------------------------

    def _choose_names(self) -> None:
        """Names of families after the modules and parameters that made them."""
        for line in self.sketch.lines:
            if line.name == self.result and line.repeats == 1:
                self._give(line.name, "y")
            elif not line.role.startswith("base"):
                self._give(line.name, self._wish(line))
        for entry in sorted(self.sketch.declared.values(), key=lambda entry: not entry.is_weight):
            bias = entry.parameter.endswith("bias") or "bias_" in entry.parameter
            self._give(entry.name, f"{'W_' if entry.is_weight else 'b_' if bias else ''}{_part(entry)}")
        for table in self.sketch.tables.values():
            mask = len(table.indices) == 2 and set(np.unique(table.array)) <= {0.0, 1.0}
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

    def _wish(self, line: Sentence) -> str:
        """A name that says what a statement makes: its part, its weight, its role, its function, its module."""
        role, _, part = line.role.partition(":")
        if part in ("q", "k", "v"):
            return part
        if line.kind == "MatMul" and role != "state":
            return _part(self.sketch.declared[getattr(line.args[0], "name", "")])
        if line.kind == "Dot" and role == "average":
            return "square" if line.args[0] == line.args[1] else "mu"
        if role in PLAIN:
            return f"{PLAIN[role]}_{part}" if part else PLAIN[role]
        top = line.args[0]
        if isinstance(top, Call) and top.atom in ("add", "subtract"):
            return "centred" if top.atom == "subtract" and "norm" in line.place.owner.lower() else "x"
        if role:
            return f"{top.atom}_out" if isinstance(top, Call) and len(top.args) == 1 else "h"
        return "x" if line.place.operation in ("cat", "embedding", "dropout") else _last(line.place.path) or "x"

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

    def program(self, name: str, title: str, comments: Sequence[str]) -> Written:
        """All records, validated; the file begins with comments."""
        sketch = self.sketch
        body = tuple(map(self._statement, sketch.lines))
        initial = tuple(self._initial(entry) for entry in sketch.declared.values() if not entry.is_weight)
        weights = tuple(self._weight(entry) for entry in sketch.declared.values() if entry.is_weight)
        constants = [ConstantDef(label, size) for size, label in self.layers.items()]
        constants += map(self._constant, sketch.tables.values())
        labels = {(1, 1 + size, ""): f"1..{label}" for size, label in self.layers.items()}
        common = int(np.lcm.reduce([ratio.denominator for ratio in self.widths]))
        draft = Draft(
            name,
            tuple(constants),
            tuple(Index(key, *self.index[key], labels.get(self.index[key], "")) for key in sorted(self.index)),
            initial,
            weights,
            body,
            (self.names[self.result],),
            tuple((key, ratio, _multiple(ratio)) for ratio, key in self.widths.items() if ratio != 1),
            title=title,
            run=(("width", tuple(-(-width // common) * common for width in (64, 256))), ("samples", 2000)),
        )
        text = "".join(f"# {comment}\n" for comment in comments) + dump(draft)
        try:
            return Written(loads(text, base=self.arrays), text, self.arrays, self.names)
        except ProgramError as error:
            first = text[: text.index("\nbody:\n")].count("\n") + 3
            places = {first + k: line.place for k, line in enumerate(sketch.lines)}
            raise refused(error.problems, places) from error

    def _expr(self, expr: Expr, letters: dict[str, str]) -> Expr:
        """An expression with the names that are written."""
        slots = {old: Affine.index(new) for old, new in letters.items()}
        slots |= {f"{old}_": Affine.index(f"{new}_") for old, new in letters.items()}

        def change(node: Expr) -> Expr | None:
            if isinstance(node, Variable):
                return Variable(self.names[node.name], self._last_layer(node.name, node.slots))
            if isinstance(node, Constant):
                return Constant(self.names[node.name], node.slots)
            return _nice(node) if isinstance(node, Number) else None

        return rebuild(substitute(expr, slots, along=True), change)

    def _last_layer(self, name: str, slots: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Slots in which the last layer is called by its name."""
        if name in self.repeats and not slots[0].terms and slots[0].offset == self.repeats[name]:
            return (Affine((), slots[0].offset, self.layers[self.repeats[name]]), *slots[1:])
        return slots

    def _statement(self, line: Sentence) -> Statement:
        letters = self.letters(_indices(line))
        slots = tuple(slot.at({old: Affine.index(new) for old, new in letters.items()}) for slot in line.slots)
        target = Variable(self.names[line.name], slots)
        args: list[Any] = [self._expr(arg, letters) for arg in line.args]
        if line.kind == "MatMul":
            return MatMul(target, *args)
        if line.kind == "Dot":
            return Dot(target, args[0], args[1], "1/n" if line.scale else "n**-0.5")
        width = "" if line.width in (None, 1) else self.widths[line.width or Fraction(1)]
        return Nonlin(target, args[0], width)

    def _weight(self, entry: Declared) -> Weight:
        letters = self.letters(entry.indices)
        rows, columns = (self.widths[ratio] for ratio in entry.widths)
        variance = self._expr(dict(entry.options)["variance"], letters)
        own = tuple(letters[name] for name in entry.indices)
        return Weight(self.names[entry.name], own, variance, (rows, columns))

    def _initial(self, entry: Declared) -> Initial:
        name, width = self.names[entry.name], self.widths[entry.widths[0]]
        options, letters = dict(entry.options), self.letters(entry.indices)
        own = tuple(letters[name] for name in entry.indices)
        if "grid" in options:
            return Initial(name, (), Number(0.5), Number(1 / 12), None, width, grid=True)
        data = self._table(name, options["data"]) if "data" in options else None
        cov = self._expr(options["cov" if data is None else "variance"], letters)
        return Initial(name, own, self._expr(options.get("mean", Number(0)), letters), cov, data, width)

    def _constant(self, entry: Any) -> ConstantDef:
        letters = self.letters(entry.indices)
        own = tuple(letters[name] for name in entry.indices)
        name = self.names[entry.name]
        return ConstantDef(name, self._table(name, entry.array), own)

    def _table(self, name: str, array: Any) -> Table:
        table = Table.of(array)
        if np.size(array) <= SMALL:
            return table
        self.arrays[f"{name}.npy"] = table.array
        return replace(table, file=f"{name}.npy")


def _indices(line: Sentence) -> list[str]:
    """Indices of a statement in order of appearance."""
    names = [name for slot in line.slots for name in slot.indices]
    for arg in line.args:
        for node in walk(arg):
            if isinstance(node, Variable | Constant):
                names += [name for slot in node.slots for name in slot.indices]
            elif isinstance(node, Reduction | IndexValue):
                names += node.indices if isinstance(node, Reduction) else [node.name]
    return names


def _last(path: str) -> str:
    """The last part of a module's path that is a word, with the number behind it."""
    words = path.split(".")
    if words[-1].isdigit():
        return "".join(words[-2:]) if len(words) > 1 and not words[-2].isdigit() else f"layer{words[-1]}"
    return words[-1]


def _part(entry: Declared) -> str:
    """The part of a module that a parameter belongs to."""
    if entry.role in ("q", "k", "v"):
        return entry.role
    if not entry.parameter:
        return "ones" if entry.role == "ones" else "coordinate"
    *path, last = entry.parameter.split(".")
    name = re.sub(r"_?(weight|bias)(_|$)", r"\2", last).strip("_") or _last(".".join(path))
    return f"{name}_{entry.role}" if entry.role else name


def _multiple(ratio: Fraction) -> str:
    top = "n" if ratio.numerator == 1 else f"{ratio.numerator}*n"
    return top if ratio.denominator == 1 else f"{top}/{ratio.denominator}"


def _nice(node: Number) -> Expr:
    """A number as a person would write it."""
    value = node.value
    if isinstance(value, int) or value in (float("inf"), float("-inf")):
        return node
    short = float(f"{value:.10g}")
    if short.is_integer() and abs(short) < 1e15:
        return Number(int(short))
    fraction = Fraction(value).limit_denominator(200)
    if len(repr(short)) > 8 and abs(float(fraction) - value) < 1e-12 * abs(value):
        return call("divide", Number(fraction.numerator), Number(fraction.denominator))
    return Number(short)

"""A sketch as a program file that a person could have written: names from modules, few letters, comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tensorprog.importing.refusals import SourcePlace
from tensorprog.importing.sketch import RandomRows, Sentence, Sketch, WeightMatrix
from tensorprog.language.atoms import ATOMS, REDUCTIONS
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

__all__ = ["Written"]

SMALL = 64  # numbers of a table that stays in the text
LETTERS = (("i", "j", "t"), ("a", "b"), ("m", "r"), ("c", "e"), ("f", "g"), ("s", "u"))
RESERVED = {*ATOMS, *REDUCTIONS, "n", "inf", "pi", "min", "max", "MatMul", "Nonlin", "Dot"}


class Written:
    """Text and data files of a program, and the names that families got."""

    def __init__(self, sketch: Sketch, result: Expr, name: str, title: str, comments: Sequence[str]) -> None:
        self.sketch, self.result = sketch, result
        self.pools: dict[tuple[int, int, str], tuple[str, ...]] = {}
        self.index: dict[str, tuple[int, int, str]] = {}  # declared indices
        self.constants: dict[str, int] = {}
        self.arrays: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.places: dict[int, SourcePlace] = {}  # of the operations that lines of the text came from
        self._choose_letters()
        self.taken = {*RESERVED, *(letter for pool in self.pools.values() for letter in pool), *self.constants}
        self.widths = self._choose_widths()
        self.taken |= {*self.widths.values()}
        self._choose_names()
        assert isinstance(result, Variable)
        self.output = self.names[result.name]
        self.text = self._whole(name, title, comments)

    def became(self, parameter: str) -> str:
        """The families that a parameter became."""
        entries: list[WeightMatrix | RandomRows] = [*self.sketch.matrices.values(), *self.sketch.rows.values()]
        found = [self.names[entry.name] for entry in entries if _same_parameter(entry, parameter)]
        return ", ".join(dict.fromkeys(found))

    # -- names --------------------------------------------------------------------------------------------------

    def _choose_letters(self) -> None:
        """Letters for indices of each range, those of tokens first."""

        def kind(name: str) -> tuple[int, int, str]:
            atom = self.sketch.atoms[name.rstrip("_")]
            return atom.start, atom.start + atom.size, atom.boundary

        softmaxed = [
            name
            for line in self.sketch.lines
            for arg in line.args
            for node in walk(arg)
            if isinstance(node, Reduction) and not node.removes
            for name in node.indices
        ]
        softmaxed += [name for line in self.sketch.lines if line.role == "score" for name in _indices(line)]
        layers = list(dict.fromkeys((1, 1 + atom.size, "") for atom in self.sketch.layers))
        for k, layer in enumerate(layers):
            letter = "l" if not k else f"l{k + 1}"
            self.pools[layer] = (letter,)
            self.constants["L" if not k else f"L{k + 1}"] = layer[1] - 1
        letters = iter(LETTERS)
        every = [name for line in self.sketch.lines for name in _indices(line)]
        every += [name for rows in self.sketch.rows.values() for name in rows.indices]
        every += [name for matrix in self.sketch.matrices.values() for name in matrix.indices]
        every += [name for table in self.sketch.tables.values() for name in table.indices]
        for name in (*softmaxed, *every):
            if kind(name) not in self.pools:
                self.pools[kind(name)] = next(letters, (f"i{len(self.pools)}", f"j{len(self.pools)}"))
        self.kind = kind

    def letters(self, names: Iterable[str]) -> dict[str, str]:
        """A letter for each index of a statement."""
        found: dict[str, str] = {}
        for name in names:
            if name in found or name.endswith("_"):
                continue
            kind = self.kind(name)
            pool = self.pools[kind]
            taken = set(found.values())
            letter = next((c for c in pool if c not in taken), None)
            number = 2
            while letter is None:
                wish = f"{pool[0]}{number}"
                letter = (
                    wish
                    if wish not in taken and self.index.get(wish, kind) == kind and (wish not in self.taken)
                    else None
                )
                number += 1
            found[name] = letter
            self.index[letter] = kind
        return found

    def _choose_names(self) -> None:
        """Names of families after the modules and parameters that made them."""
        taken = self.taken

        def give(own: str, wish: str) -> None:
            wish = re.sub(r"\W", "_", wish).strip("_") or "x"
            wish = f"x{wish}" if wish[0].isdigit() else wish
            name, number = wish, 2
            while name in taken:
                name, number = f"{wish}{'_' * wish[-1].isdigit()}{number}", number + 1
            taken.add(name)
            self.names[own] = name

        for line in self.sketch.lines:
            if isinstance(self.result, Variable) and line.name == self.result.name and line.repeats == 1:
                give(line.name, "y") if line.name not in self.names else None
            elif line.name not in self.names and not line.role.startswith("base"):
                give(line.name, self._wish(line))
        for entry in self.sketch.matrices.values():
            give(entry.name, f"W_{_part(entry)}")
        for rows in self.sketch.rows.values():
            bias = rows.parameter.endswith("bias") or "bias_" in rows.parameter
            give(rows.name, f"b_{_part(rows)}" if bias else _part(rows))
        for table in self.sketch.tables.values():
            zero_one = len(table.indices) == 2 and set(np.unique(table.array)) <= {0.0, 1.0}
            read = {
                node.name
                for row in self.sketch.rows.values()
                for _, option in row.options
                if isinstance(option, Expr)
                for node in walk(option)
                if isinstance(node, Constant)
            }
            give(
                table.name,
                "same"
                if zero_one and table.name in read
                else "mask"
                if zero_one
                else "gram"
                if table.name in read
                else "table",
            )

    def _wish(self, line: Sentence) -> str:
        """A name that says what a statement makes: its part, its weight, its role, its function, its module."""
        role, _, part = line.role.partition(":")
        if part in ("q", "k", "v"):
            return part
        plain = {
            "score": "score",
            "one": "one",
            "output": "y",
            "joined": "x",
            "mean": "mu",
            "square": "square",
            "centred": "centred",
            "uniform": "b",
            "hidden": "h",
            "memory": "c",
            "state": "u",
            "inputs": "x",
            "update": "z",
            "start": "h",
            "angle": "angle",
        }
        if role in plain:
            return f"{plain[role]}_{part}" if part else plain[role]
        if line.kind == "Dot":
            own = next((each for each in self.sketch.lines if each.name == getattr(line.args[0], "name", "")), line)
            return "mu" if line.args[0] != line.args[1] else "var" if own.role == "centred" else "square"
        if line.kind == "MatMul":
            return _part(self.sketch.matrices[getattr(line.args[0], "name", "")])
        top = line.args[0]
        if isinstance(top, Call) and top.atom == "add" and role == "operand" and isinstance(top.args[0], Variable):
            return f"{self.names[top.args[0].name]}b"  # with its bias
        if isinstance(top, Call) and top.atom in ("add", "subtract"):
            return "x"
        if role and isinstance(top, Call) and len(top.args) == 1 and top.atom != "negative":
            return f"{top.atom}_out"
        if role:
            return "h"
        return "x" if line.place.operation in ("cat", "embedding", "dropout") else _last(line.place.path) or "x"

    def _choose_widths(self) -> dict[Fraction, str]:
        ratios = [Fraction(1)]
        for matrix in self.sketch.matrices.values():
            ratios += matrix.shape
        ratios += [rows.width for rows in self.sketch.rows.values()]
        ratios += [line.width for line in self.sketch.lines if line.width is not None]
        found = {Fraction(1): "n"}
        for ratio in dict.fromkeys(ratios):
            if ratio not in found:
                names = ["d"] if ratio < 1 else []
                names += ["w", *(f"w{k}" for k in range(2, len(found) + 3))]
                found[ratio] = next(name for name in names if name not in found.values())
        return found

    # -- text ---------------------------------------------------------------------------------------------------

    def _whole(self, name: str, title: str, comments: Sequence[str]) -> str:
        body = [self._statement(line) for line in self.sketch.lines]
        weights = [self._matrix(entry) for entry in self.sketch.matrices.values()]
        initial = [self._rows(entry) for entry in self.sketch.rows.values()]
        tables = [self._table(entry) for entry in self.sketch.tables.values()]
        lines = [f"# {comment}" for comment in comments]
        lines += [f"program: {name}", f"title: {title}"]
        if tables:
            lines += ["constants:", *(f"  {key}: {value}" for key, value in self.constants.items()), *tables]
        elif self.constants:
            lines.append(f"constants: {{{', '.join(f'{key}: {value}' for key, value in self.constants.items())}}}")
        if self.index:
            lines.append(
                "indices: {"
                + ", ".join(f"{key}: {self._range(kind)}" for key, kind in sorted(self.index.items()))
                + "}"
            )
        if len(self.widths) > 1:
            lines.append(
                "widths: {"
                + ", ".join(f"{key}: {_multiple(ratio)}" for ratio, key in self.widths.items() if ratio != 1)
                + "}"
            )
        declared: tuple[tuple[str, list[str], Iterable[RandomRows | WeightMatrix]], ...] = (
            ("initial:", initial, self.sketch.rows.values()),
            ("weights:", weights, self.sketch.matrices.values()),
        )
        for section, texts, entries in declared:
            lines += [section] if texts else []
            for text, entry in zip(texts, entries, strict=True):
                lines.append(text)
                self.places[len(lines)] = entry.place
        target = max((len(left) for left, _, _ in body if len(left) <= 30), default=0)
        lines.append("body:")
        shown = ""
        for (left, right, path), line in zip(body, self.sketch.lines, strict=True):
            self.places[len(lines) + 1] = line.place
            text = f"  - {left:{target}} = {right}"
            if path and path != shown:
                text = f"{text:70}  # {path}"
                shown = path
            lines.append(text)
        lines += [
            f"outputs: [{self.output}]",
            f"run: {{width: [{', '.join(map(str, self._run_widths()))}], samples: 2000}}",
        ]
        return "\n".join(lines) + "\n"

    def _run_widths(self) -> tuple[int, ...]:
        common = int(np.lcm.reduce([ratio.denominator for ratio in self.widths]))
        return tuple(-(-width // common) * common for width in (64, 256))

    def _range(self, kind: tuple[int, int, str]) -> str:
        start, stop, boundary = kind
        name = next((key for key, value in self.constants.items() if (1, value + 1, "") == kind), None)
        size = f"1..{name}" if name else str(stop) if not start else f"{start}..{stop - 1}"
        return f"{{size: {size}, boundary: {boundary}}}" if boundary else size

    def _expr(self, expr: Expr, letters: dict[str, str]) -> str:
        """An expression with the names that are written."""
        slots = {old: Affine.index(new) for old, new in letters.items()}
        slots |= {f"{old}_": Affine.index(f"{new}_") for old, new in letters.items()}
        expr = substitute(expr, slots, along=True)

        def change(node: Expr) -> Expr | None:
            if isinstance(node, Variable):
                return Variable(self.names[node.name], self._slots(node.name, node.slots))
            if isinstance(node, Constant):
                return Constant(self.names[node.name], node.slots)
            return _nice(node) if isinstance(node, Number) else None

        return str(rebuild(expr, change))

    def _slots(self, name: str, slots: Sequence[Affine]) -> tuple[Affine, ...]:
        """Slots in which the last layer is called by its name."""
        if name not in self._layered or slots[0].terms or slots[0].offset != self._layered[name]:
            return tuple(slots)
        label = next(key for key, value in self.constants.items() if value == self._layered[name])
        return (Affine((), slots[0].offset, label), *slots[1:])

    @property
    def _layered(self) -> dict[str, int]:
        return {line.name: line.repeats for line in self.sketch.lines if line.repeats > 1}

    def _statement(self, line: Sentence) -> tuple[str, str, str]:
        letters = self.letters(_indices(line))
        slots = [slot.at({old: Affine.index(new) for old, new in letters.items()}) for slot in line.slots]
        left = self.names[line.name] + (f"[{','.join(map(str, slots))}]" if slots else "")
        args = [self._expr(arg, letters) for arg in line.args]
        if line.scale:
            args.append(f"scale={line.scale}")
        if line.width is not None and line.width != 1:
            args.append(f"width={self.widths[line.width]}")
        path = "" if line.role.startswith("base") or line.role == "output" else _starred(line.place.path, line.repeats)
        return left, f"{line.kind}({', '.join(args)})", path

    def _head(self, entry: WeightMatrix | RandomRows) -> tuple[str, dict[str, str]]:
        letters = self.letters(entry.indices)
        own = [letters[name] for name in entry.indices]
        return self.names[entry.name] + (f"[{','.join(own)}]" if own else ""), letters

    def _matrix(self, entry: WeightMatrix) -> str:
        head, letters = self._head(entry)
        variance = self._expr(entry.variance, letters)
        shape = [self.widths[ratio] for ratio in entry.shape]
        value = variance if shape == ["n", "n"] else f"{{variance: {_quoted(variance)}, shape: [{', '.join(shape)}]}}"
        return self._commented(f"  {head}: {value}", entry)

    def _rows(self, entry: RandomRows) -> str:
        head, letters = self._head(entry)
        grid = dict(entry.options).get("grid", False)
        parts = {"grid": "true"} if grid else {"mean": "0"}
        for key, option in () if grid else entry.options:
            if isinstance(option, Expr):
                parts[key] = _quoted(self._expr(option, letters))
            else:
                parts[key] = f"{self.names[entry.name]}.npy"
                self.arrays[parts[key]] = np.asarray(option, float)
        if entry.width != 1:
            parts["width"] = self.widths[entry.width]
        return self._commented(f"  {head}: {{{', '.join(f'{key}: {value}' for key, value in parts.items())}}}", entry)

    def _table(self, entry: Any) -> str:
        letters = self.letters(entry.indices)
        head = f"{self.names[entry.name]}[{','.join(letters[name] for name in entry.indices)}]"
        short = entry.array.size <= SMALL and all(len(repr(v)) < 8 for v in entry.array.ravel().tolist())
        if entry.array.size <= 8 or short:
            return f"  {head}: {_listed(entry.array.tolist())}"
        file = f"{self.names[entry.name]}.npy"
        self.arrays[file] = entry.array
        return f"  {head}: {file}"

    def _commented(self, text: str, entry: WeightMatrix | RandomRows) -> str:
        comment = self.sketch.fates.get(entry.parameter, "")
        own = "to make numbers of vectors" if isinstance(entry, WeightMatrix) else "positions"
        origin = _starred(entry.parameter, entry.repeats) or own
        return f"{text:48}  # {origin}" + (f": {comment}" if comment else "")


def _indices(line: Sentence) -> list[str]:
    """Indices of a statement in order of appearance."""
    names = [name for slot in line.slots for name in slot.indices]
    for arg in line.args:
        for node in walk(arg):
            if isinstance(node, Variable | Constant):
                names += [name for slot in node.slots for name in slot.indices]
            elif isinstance(node, Reduction):
                names += node.indices
            elif isinstance(node, IndexValue):
                names.append(node.name)
    return names


def _last(path: str) -> str:
    """The last part of a module's path that is a word, with the number behind it."""
    words = path.split(".")
    if words[-1].isdigit():
        return "".join(words[-2:]) if len(words) > 1 and not words[-2].isdigit() else f"layer{words[-1]}"
    return words[-1]


def _part(entry: WeightMatrix | RandomRows) -> str:
    """The part of a module that a parameter belongs to."""
    if entry.role in ("q", "k", "v"):
        return entry.role
    if not entry.parameter:
        return "ones" if entry.role == "ones" else "coordinate"
    words = entry.parameter.split(".")
    last = re.sub(r"_?(weight|bias)(_|$)", r"\2", words[-1]).strip("_")
    name = last if last else _last(".".join(words[:-1]))
    return f"{name}_{entry.role}" if entry.role else name


def _same_parameter(entry: WeightMatrix | RandomRows, parameter: str) -> bool:
    return entry.parameter == parameter or (
        entry.repeats > 1 and _starred(entry.parameter, entry.repeats) == _starred(parameter, entry.repeats)
    )


def _starred(path: str, repeats: int) -> str:
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path, count=1) if repeats > 1 else path


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


def _quoted(text: str) -> str:
    return f'"{text}"' if re.search(r"[\[\],{}]", text) else text


def _listed(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_listed, values))}]"
    return str(int(values)) if float(values).is_integer() else repr(float(values))

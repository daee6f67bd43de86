"""Witnesses: numbers that refute a property, found along lines through the arguments' space, and what they show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.falsifier.line import Line
from tensorprog.check.falsifier.refutations import REFUTATIONS, Refutation
from tensorprog.check.graph import Structure
from tensorprog.language.errors import ProgramError
from tensorprog.language.evaluate import BATCH, Open, Scope, affine_values, evaluate
from tensorprog.language.expr import COMPARISONS, Call, Expr, Number, Reduction, Variable, variables, walk
from tensorprog.language.ir import Netsor, Range

__all__ = ["Probe", "Witness"]

Kind = Literal["jump", "slope", "growth", "nan", "infinite"]
Array = NDArray[np.float64]
# np.unique would import masked arrays
NEAR_ZERO = sorted({0.0, *np.linspace(-6, 6, 61), *(sign * 10.0**k for k in (1, 2) for sign in (1, -1))})
LOGS = 2.0 ** np.arange(0, 330, 0.5)
Direction = str  # "equal", "varied", "shifted", or the name of the only family that moves
NARROW = 1e-11  # relative distance of the two sides of a jump
PIECE = 1 << 21  # numbers that one evaluation reads at most
CELLS = 4  # places of each grid that are looked at closely
SWITCHES = (*COMPARISONS, "sign", "step")
BOOLEAN = (*SWITCHES, "logical_and", "logical_or")
SUMS = ("add", "subtract")
ROUNDING = 1e-14  # of the largest number met on the way to a comparison
SHAKEN = 1e-15  # relative change of all numbers on the way, some nine times that of rounding
PHASES = (1.0, 2.0, 3.0)  # of the changes, which are tried in turn
LISTED = 4  # members that are named with their values


@dataclass(frozen=True)
class Witness:
    """Points at which the values of `expr` refute a property; free indices are at their first values.

    `at`: the points, as numbers t on a line (`argument`): every argument is t; "varied": t times a number of its own;
    "shifted": such a multiple and a number of its own; the name of a family: "shifted", but all others stand still.
    `values`: the values there.  Kinds:
    "jump": the two values differ by more than 1e-3 of 1 + |value| although the points almost coincide;
    "slope": |values[k] - values[0]| / |t_k - t_0| rises without bound as the later points draw near to the first;
    "growth": |values| rises along the points, in a way that the property forbids;
    "nan": there is no real number;  "infinite": a number over 0, or log 0.
    `members`: some of the members that are read, as names with indices; `more`: how many others there are.
    """

    kind: Kind
    expr: Expr
    at: tuple[float, ...]
    values: tuple[float, ...]
    line: Direction = "equal"
    members: tuple[tuple[str, tuple[int, ...]], ...] = ()
    more: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The families that are read."""
        return tuple(sorted({v.name for v in variables(self.expr)}))

    def argument(self, name: str, index: Sequence[int], point: int) -> float:
        """Value of one member of a family at one of the points."""
        start, direction = self.ray(name, index)
        return start + self.at[point] * direction

    def ray(self, name: str, index: Sequence[int]) -> tuple[float, float]:
        """(a, d) of a member of a family: its value is a + t d."""
        start, direction = _ray(self.line, name, np.array(_phase(self.names, name, index)))
        return float(start), float(direction)

    def place(self, point: int) -> str:
        """The arguments at one of the points, with all their digits."""
        names = [f"{name}[{','.join(map(str, index))}]" if index else name for name, index in self.members]
        values = [repr(self.argument(*member, point)).removesuffix(".0") for member in self.members]
        listed = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
        return listed + (f" and {self.more} more" if self.more else "")

    def __str__(self) -> str:
        t, v = self.at, self.values
        if self.kind == "nan":
            return f"undefined (no real number) at {self.place(0)}"
        if self.kind == "infinite":
            return f"infinite at {self.place(0)}"
        if self.kind == "jump":
            return f"value {v[0]:.6g} at {self.place(0)}, but {v[1]:.6g} at {self.place(1)}"
        if self.kind == "slope":
            steep = [abs(x - v[0]) / abs(s - t[0]) for s, x in zip(t[1:], v[1:], strict=True)]
            return (
                f"slope {steep[0]:.3g} between {self.place(0)} and {self.place(1)}, "
                f"{steep[-1]:.3g} between the first and a point {abs(t[-1] - t[0]):.0e} away"
            )
        return f"|value| about {abs(v[0]):.3g} at {self.place(0)}, {abs(v[-1]):.3g} at {self.place(-1)}"


def _shaken(expr: Expr, phase: float) -> Expr:
    """The expression with each number on the way changed by a little, as rounding might."""
    counter = itertools.count(1)

    def go(node: Expr) -> Expr:
        if isinstance(node, Reduction):
            return replace(node, arg=go(node.arg))
        if not isinstance(node, Call) or not variables(node):
            return node
        new = replace(node, args=tuple(map(go, node.args)))
        if node.atom in BOOLEAN:
            return new
        return Call("multiply", (new, Number(1 + SHAKEN * math.sin(phase * next(counter)))))

    return go(expr)


def _phase(names: Sequence[str], name: str, index: Sequence[int]) -> float:
    return 1 + names.index(name) + sum((2.0 + k) * value for k, value in enumerate(index))


def _ray(line: Direction, name: str, phase: Array) -> tuple[Array, Array]:
    """Start and direction of a line, for members of a family with the given phases."""
    start = np.zeros_like(phase) if line in ("equal", "varied") else np.sin(phase)
    if line in ("equal", "varied", "shifted", name):
        return start, np.ones_like(phase) if line == "equal" else np.cos(phase)
    return start, np.zeros_like(phase)


class Probe:
    """An expression along lines x = t * direction through its arguments' space, for the search for witnesses."""

    def __init__(self, netsor: Netsor, expr: Expr, ranges: dict[str, Range]) -> None:
        self.netsor, self.expr = netsor, expr
        self.names = tuple(sorted({v.name for v in variables(expr)}))
        kept = {n for node in walk(expr) if isinstance(node, Reduction) for n in node.indices}
        self.ranges = {name: span if name in kept else (span[0], span[0] + 1) for name, span in ranges.items()}
        self.size = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in kept)
        numbers = [float(n.value) for n in walk(expr) if isinstance(n, Number) and math.isfinite(n.value)]
        self.grid = np.array(sorted({*NEAR_ZERO, *numbers, *(-x for x in numbers)}))
        self._lines: dict[Direction, Line] = {}

    @property
    def lines(self) -> tuple[Direction, ...]:
        """The lines along which witnesses are looked for."""
        return ("equal", "varied", "shifted", *(self.names if len(self.names) > 1 else ()))

    def averages(self, structure: Structure) -> bool:
        """Whether averages occur, which are no free arguments."""
        return any(name in structure.averages for name in self.names)

    def __call__(self, t: Array, line: Direction, expr: Expr | None = None) -> Array:
        """Values on the line, of the whole or of a subexpression (with reduced indices at their first values)."""
        return self.members(t, line, expr)[:, 0]

    def members(self, t: Array, line: Direction, expr: Expr | None = None) -> Array:
        """Values on the line, one column for each member over reduced indices."""

        def variable(reference: Variable, _: object) -> Open:
            if line == "equal":
                return Open((BATCH,), t)
            axes = list(dict.fromkeys(n for s in reference.slots for n in s.indices))
            phase = np.full((1,) * len(axes), _phase(self.names, reference.name, ()))
            for weight, slot in enumerate(reference.slots):
                value = affine_values(slot, self.ranges)
                order = [n for n in axes if n in value.axes]
                shape = [value.data.shape[value.axes.index(n)] if n in value.axes else 1 for n in axes]
                data = value.data.transpose([value.axes.index(n) for n in order]) if order else value.data
                phase = phase + (2.0 + weight) * data.reshape(shape)
            start, direction = _ray(line, reference.name, phase)
            return Open((BATCH, *axes), start + t.reshape(-1, *(1,) * len(axes)) * direction)

        try:
            result = evaluate(self.expr if expr is None else expr, Scope(self.netsor, self.ranges, variable))
        except (ProgramError, KeyError):
            return np.full((*t.shape, 1), np.nan)
        data = np.asarray(result.data, dtype=np.float64).reshape(len(t) if BATCH in result.axes else 1, -1)
        return np.broadcast_to(data, (len(t), data.shape[1]))

    def along(self, line: Direction) -> Line:
        """The values along a line, for the search."""
        if line not in self._lines:
            grids = self.grid, -LOGS[::-1], LOGS
            x = np.array(sorted({*map(float, np.concatenate(grids))}))
            near = self.grid[np.abs(self.grid) <= 10]
            self._lines[line] = Line(lambda t: self._in_pieces(t, line), grids, x, CELLS, rounding=0.0, places=near)
        return self._lines[line]

    def _in_pieces(self, t: Array, line: Direction) -> Array:
        pieces = np.array_split(t, 1 + len(t) * self.size // PIECE)
        return np.concatenate([self(piece, line) for piece in pieces]) if t.size else t

    def refute(self, name: str, line: Direction) -> Witness | None:
        """A witness against being 'bounded', 'pseudo-Lipschitz' or 'controlled'; None if none is found."""
        with np.errstate(all="ignore"):
            f = self.along(line)
            found = self._undefined(self(self.grid, line), line, isolated=name == "pseudo-Lipschitz")
            rules = REFUTATIONS[name] if found is None and f.reaches else ()
            shown = (self._shown(refutation, line) for rule in rules for refutation in rule(f))
            return next((witness for witness in shown if witness is not None), found)

    def _shown(self, found: Refutation, line: Direction) -> Witness | None:
        """A refutation as a witness, if neither rounding nor a division by 0 stands behind it."""
        if found.kind == "growth":
            witness = self._witness("growth", found.at, line)
            return witness if self._steady(witness) else None
        if found.kind == "slope":
            whole = self._witness("slope", found.at, line)
            return self._witness("slope", found.at[[0, 1, 3, 5]], line) if self._sure(whole) else None
        aside = NARROW * (1 + abs(found.at[0]))  # the jump itself may be a division by 0
        witness = self._witness("jump", found.at + np.array([-aside, aside]), line)
        change = abs(witness.values[1] - witness.values[0])
        large = change > 1e-3 * (1 + max(map(abs, witness.values)))
        return witness if large and self._sure(witness) and self._decided(witness) else None

    def _sure(self, witness: Witness) -> bool:
        """Whether neither a division by 0 nor rounding stands behind the values of a witness."""
        t = np.array(witness.at)
        quotients = [node for node in walk(self.expr) if isinstance(node, Call) and node.atom == "divide"]
        return all(np.isfinite(self(t, witness.line, q)).all() for q in quotients) and self._steady(witness)

    def _witness(self, kind: Kind, t: Array, line: Direction) -> Witness:
        values = self(t, line)
        members, more = self._read(line)
        return Witness(kind, self.expr, tuple(map(float, t)), tuple(map(float, values)), line, members, more)

    def _read(self, line: Direction) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], int]:
        """Some of the members that are read, those that move first, and how many others there are."""
        listed: list[tuple[str, tuple[int, ...]]] = []
        count = 0
        for name in sorted(self.names, key=lambda name: name != line):
            rows = [self._indices(v) for v in variables(self.expr) if v.name == name]
            unique = np.unique(np.concatenate(rows), axis=0)
            count += len(unique)
            listed += [(name, tuple(map(int, row))) for row in unique[: LISTED - len(listed)]]
        return tuple(listed), count - len(listed)

    def _indices(self, reference: Variable) -> NDArray[np.int64]:
        """Index values of the members that a reference reads, one row each."""
        names = list(dict.fromkeys(n for slot in reference.slots for n in slot.indices))
        grid = np.meshgrid(*(np.arange(*self.ranges[n]) for n in names), indexing="ij")
        values = dict(zip(names, (axis.ravel() for axis in grid), strict=True))
        size = math.prod(len(np.arange(*self.ranges[n])) for n in names)
        slots = [sum((c * values[n] for n, c in s.terms), np.full(size, s.offset)) for s in reference.slots]
        return np.stack(slots, axis=-1) if slots else np.zeros((1, 0), dtype=np.int64)

    def _noise(self, t: Array, line: Direction, expr: Expr | None = None) -> Array:
        """How much values change when all numbers on the way do, more than by rounding."""
        whole = self.expr if expr is None else expr
        values = self(t, line, whole)
        changed = [np.abs(self(t, line, _shaken(whole, phase)) - values) for phase in PHASES]
        return np.asarray(np.max(changed, axis=0))

    def _steady(self, found: Witness) -> bool:
        """Whether a witness is none of rounding, as where terms cancel."""
        v, noise = np.array(found.values), self._noise(np.array(found.at), found.line)
        first = slice(-1) if found.kind == "growth" else slice(1)  # each point with the one before, or with the first
        shown = np.abs(np.abs(v[1:]) - np.abs(v[first])) if found.kind == "growth" else np.abs(v[1:] - v[first])
        return bool((np.maximum(noise[1:], noise[first]) <= 0.1 * shown).all())

    def _undefined(self, values: Array, line: Direction, isolated: bool) -> Witness | None:
        """No real number, or a pole: not a number that is too large, or too small, for the computer.

        isolated: whether to count points such as those of 0 / 0, near which the function may be as tame as elsewhere
        """
        for t in self.grid[~np.isfinite(values)]:
            point = np.array([t])
            around = np.array([t - 1e-3 * (1 + abs(t)), t + 1e-3 * (1 + abs(t))])
            for node in walk(self.expr):
                if not isinstance(node, Call) or np.isfinite(self(point, line, node)[0]):
                    continue
                if not np.isfinite([self(point, line, arg)[0] for arg in node.arguments]).all():
                    continue
                last = node.args[1] if node.atom == "divide" else node.args[0]
                zero = self(point, line, last)[0] == 0
                # else 0 stands for a tiny number, or for what rounding leaves where terms cancel
                near = np.abs(self(around, line, last)).max() > max(1e-100, 1e-12 * self._terms(around, line, last))
                if zero and near and node.atom in ("divide", "log", "power"):
                    kind: Kind = "nan" if np.isnan(self(point, line)[0]) else "infinite"
                    if isolated or kind == "infinite":
                        return self._witness(kind, point, line)
                sure = self._noise(point, line, last)[0] <= 0.1 * abs(self(point, line, last)[0])
                if np.isnan(self(point, line, node)[0]) and not zero and sure:
                    return self._witness("nan", point, line)
        return None

    def _terms(self, t: Array, line: Direction, expr: Expr) -> float:
        """Size of the largest term that is added or subtracted on the way to a value."""
        sums = [node for node in walk(expr) if isinstance(node, Reduction) or node.children[1:]]
        terms = [term for node in sums if not isinstance(node, Call) or node.atom in SUMS for term in node.children]
        sizes = [np.abs(self.members(t, line, term)) for term in terms]
        return max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)

    def _decided(self, witness: Witness) -> bool:
        """Whether comparisons change by more than rounding, which else makes a jump of its own."""
        t = np.array(witness.at)
        for node in walk(self.expr):
            if not (isinstance(node, Call) and node.atom in SWITCHES):
                continue
            outcome = self.members(t, witness.line, node)
            changed = outcome[0] != outcome[1]
            if not changed.any():
                continue
            difference = Call("subtract", node.args) if len(node.args) == 2 else node.args[0]
            gap = np.abs(self.members(t, witness.line, difference)).max(axis=0)[changed]
            sizes = [np.abs(self.members(t, witness.line, part)) for part in walk(node) if part is not node]
            if not (gap > ROUNDING * max(float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes)).all():
                return False
        return True

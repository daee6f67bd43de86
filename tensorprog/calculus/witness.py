"""Witnesses: numbers that refute a property, found along lines through the arguments' space, and what they show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, Open, affine_values
from tensorprog.errors import ProgramError
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Call, Expr, Number, Reduction, Variable, variables, walk
from tensorprog.graph import Structure
from tensorprog.ir import Netsor, Range

__all__ = ["Probe", "Witness"]

Kind = Literal["jump", "slope", "growth", "nan", "infinite"]
Array = NDArray[np.floating[Any]]
GRID = np.unique([0.0, *np.linspace(-6, 6, 61), *(sign * 10.0**k for k in (1, 2) for sign in (1, -1))])
NARROW = 1e-11  # relative distance of the two sides of a jump


@dataclass(frozen=True)
class Witness:
    """Points at which the values of `expr` refute a property; free indices are at their first values.

    `at`: the points, as numbers t on a line: every argument is t or, where `varied`, t times a number of its own
    (`argument`).  `values`: the values there.  Kinds:
    "jump": the two values differ by more than 1e-3 of 1 + |value| although the points almost coincide;
    "slope": |values[k] - values[0]| / |t_k - t_0| rises without bound as the later points draw near to the first;
    "growth": |values| rises along the points, in a way that the property forbids;
    "nan": there is no real number;  "infinite": the expression has a pole.
    """

    kind: Kind
    expr: Expr
    at: tuple[float, ...]
    values: tuple[float, ...]
    varied: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The families that are read."""
        return tuple(sorted({v.name for v in variables(self.expr)}))

    def argument(self, name: str, index: Sequence[int], point: int) -> float:
        """Value of one member of a family at one of the points."""
        t = self.at[point]
        return t * math.cos(_phase(self.names, name, index)) if self.varied else t

    def __str__(self) -> str:
        read = variables(self.expr)
        what = ", ".join(map(str, read[:2])) + (", ..." if len(read) > 2 else "")
        where = f"on a line through {what}" if self.varied else f"{'along' if len(read) > 1 else 'at'} {what} = t"
        t, v = self.at, self.values
        if self.kind == "nan":
            return f"{where}: no real number at t = {t[0]:g}"
        if self.kind == "infinite":
            return f"{where}: infinite at t = {t[0]:g}"
        if self.kind == "jump":
            near = f"{t[0]:.12g} + {t[1] - t[0]:.1g}"
            return f"{where}: value {v[0]:.4g} at t = {t[0]:.12g}, but {v[1]:.4g} at t = {near}"
        if self.kind == "slope":
            steep = [abs(x - v[0]) / abs(s - t[0]) for s, x in zip(t[1:], v[1:], strict=True)]
            return (
                f"{where}: slope {steep[0]:.3g} between t = {t[0]:g} and a point {abs(t[1] - t[0]):.0e} away, "
                f"{steep[-1]:.3g} and {abs(t[-1] - t[0]):.0e} away"
            )
        return f"{where}: |value| = {abs(v[0]):.4g} at t = {t[0]:g}, {abs(v[-1]):.4g} at t = {t[-1]:g}"


def _phase(names: Sequence[str], name: str, index: Sequence[int]) -> float:
    return 1 + names.index(name) + sum((2.0 + k) * value for k, value in enumerate(index))


class Probe:
    """An expression along lines x = t * direction through its arguments' space, for the search for witnesses."""

    def __init__(self, netsor: Netsor, expr: Expr, ranges: dict[str, Range]) -> None:
        self.netsor, self.expr = netsor, expr
        self.names = tuple(sorted({v.name for v in variables(expr)}))
        kept = {n for node in walk(expr) if isinstance(node, Reduction) for n in node.indices}
        self.ranges = {name: span if name in kept else (span[0], span[0] + 1) for name, span in ranges.items()}
        self.size = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in kept)
        numbers = [float(n.value) for n in walk(expr) if isinstance(n, Number) and math.isfinite(n.value)]
        self.grid = np.unique([*GRID, *numbers, *(-x for x in numbers)])

    def averages(self, structure: Structure) -> bool:
        """Whether averages occur, which are no free arguments."""
        return any(name in structure.averages for name in self.names)

    def __call__(self, t: Array, varied: bool, expr: Expr | None = None) -> Array:
        """Values on the line, of the whole or of a subexpression (with reduced indices at their first values)."""

        def variable(reference: Variable, _: object) -> Open:
            if not varied:
                return Open((BATCH,), t)
            axes = list(dict.fromkeys(n for s in reference.slots for n in s.indices))
            phase = np.full((1,) * len(axes), _phase(self.names, reference.name, ()))
            for weight, slot in enumerate(reference.slots):
                value = affine_values(slot, self.ranges)
                order = [n for n in axes if n in value.axes]
                shape = [value.data.shape[value.axes.index(n)] if n in value.axes else 1 for n in axes]
                data = value.data.transpose([value.axes.index(n) for n in order]) if order else value.data
                phase = phase + (2.0 + weight) * data.reshape(shape)
            return Open((BATCH, *axes), t.reshape(-1, *(1,) * len(axes)) * np.cos(phase))

        try:
            result = evaluate(self.expr if expr is None else expr, Scope(self.netsor, self.ranges, variable))
        except (ProgramError, KeyError):
            return np.full(t.shape, np.nan)
        data = np.asarray(result.data, dtype=np.float64)
        return np.broadcast_to(data.reshape(len(t) if BATCH in result.axes else 1, -1)[:, 0], t.shape)

    def refute(self, name: str, varied: bool) -> Witness | None:
        """A witness against being 'bounded', 'pseudo-Lipschitz' or 'controlled'; None if none is found."""
        with np.errstate(all="ignore"):
            values = self(self.grid, varied)
            found = self._undefined(values, varied)
            if found is None:
                grows = {"bounded": self._unbounded, "controlled": self._wild, "pseudo-Lipschitz": self._no_power}[name]
                found = grows(1.0, varied) or grows(-1.0, varied)
            if found is None and name == "pseudo-Lipschitz":
                found = self._jump(values, varied) or self._steep(varied)
            return found

    def _witness(self, kind: Kind, t: Array, varied: bool) -> Witness:
        values = self(t, varied)
        return Witness(kind, self.expr, tuple(map(float, t)), tuple(map(float, values)), varied)

    def _undefined(self, values: Array, varied: bool) -> Witness | None:
        """No real number, or a pole: not a number that is too large, or too small, for the computer."""
        for t in self.grid[~np.isfinite(values)]:
            point = np.array([t])
            around = np.array([t - 1e-3 * (1 + abs(t)), t + 1e-3 * (1 + abs(t))])
            for node in walk(self.expr):
                if not isinstance(node, Call) or np.isfinite(self(point, varied, node)[0]):
                    continue
                if not np.isfinite([self(point, varied, arg)[0] for arg in node.arguments]).all():
                    continue
                last = node.args[1] if node.atom == "divide" else node.args[0]
                zero = self(point, varied, last)[0] == 0
                near = np.abs(self(around, varied, last)).max() > 1e-100  # else 0 stands for a tiny number
                if zero and near and node.atom in ("divide", "log", "power"):
                    return self._witness("nan" if np.isnan(self(point, varied)[0]) else "infinite", point, varied)
                if np.isnan(self(point, varied, node)[0]) and not zero:
                    return self._witness("nan", point, varied)
        return None

    def _unbounded(self, sign: float, varied: bool) -> Witness | None:
        t = sign * np.logspace(1, 6, 6)
        v = np.abs(self(t, varied))
        steps = np.diff(v)
        if np.isnan(v).any() or not (np.isinf(v[-1]) or ((steps > 0).all() and (steps[1:] >= 0.5 * steps[:-1]).all())):
            return None
        finite = t[np.isfinite(v)]
        return self._witness("growth", finite, varied) if len(finite) > 1 else None

    def _wild(self, sign: float, varied: bool) -> Witness | None:
        # log |f| along t, 2**0.5 t, 2 t, ...: the local exponent r of exp(|t|**r) is at least 1.96 at the end
        t = sign * 2.0 ** np.arange(0, 6, 0.5)
        logs = np.log(np.abs(self(t, varied)))
        last = np.flatnonzero(np.isfinite(logs) & (logs > 4))[-4:]
        if len(last) < 4 or last[-1] - last[0] != 3 or not (logs[last[1:]] / logs[last[:-1]] > 3.9**0.5).all():
            return None
        return self._witness("growth", t[last], varied)

    def _no_power(self, sign: float, varied: bool) -> Witness | None:
        # the local exponents of |t|**r rise beyond every power that an expression is likely to mean
        for start in (25.0, 6.0, 1.5):
            t = sign * start * 2.0 ** np.arange(5)
            logs = np.log(np.abs(self(t, varied)))
            kept = int(np.isfinite(logs).cumprod().sum())
            powers = np.diff(logs[:kept]) / math.log(2)
            if kept >= 3 and (powers > np.array([15, 30, 60, 120])[: kept - 1]).all():
                return self._witness("growth", t[:kept], varied)
        return None

    def _jump(self, values: Array, varied: bool) -> Witness | None:
        """Two points a tiny distance apart whose values are not."""
        slope = np.abs(np.diff(values)) / np.diff(self.grid)
        for k in np.argsort(slope)[::-1][:4]:
            a, b = self.grid[k], self.grid[k + 1]
            while b - a > NARROW * (1 + abs(a)):
                middle = (a + b) / 2
                left, centre, right = self(np.array([a, middle, b]), varied)
                a, b = (a, middle) if abs(centre - left) >= abs(right - centre) else (middle, b)
            found = self._witness("jump", np.array([a, b]), varied)
            around = self(np.array([a - 1e-7, b + 1e-7]), varied)
            change, scale = abs(found.values[1] - found.values[0]), 1 + max(map(abs, found.values))
            if change > 1e-3 * scale and change > 0.1 * abs(around[1] - around[0]):  # a slope would change more
                return found
        return None

    def _steep(self, varied: bool) -> Witness | None:
        """A point at which the slope is infinite."""
        steps = np.array([0.0, 1e-4, 1e-6, 1e-8])
        points = self.grid[np.abs(self.grid) <= 10]
        for sign in (1.0, -1.0):
            moved = np.stack([self(points + sign * h, varied) for h in steps])
            rise = np.abs(moved[1:] - moved[0])
            steep = rise / steps[1:, None]
            bad = (steep[2] > 2 * steep[1]) & (steep[1] > 2 * steep[0]) & (rise[2] > 1e-6)
            if bad.any():
                return self._witness("slope", points[int(np.flatnonzero(bad)[0])] + sign * steps, varied)
        return None

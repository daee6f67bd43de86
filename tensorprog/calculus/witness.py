"""The search for witnesses: numbers that refute a property, found along lines through the arguments' space."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tensorprog.arrays import BATCH, Open, affine_values
from tensorprog.errors import ProgramError
from tensorprog.evaluate import Scope, evaluate
from tensorprog.expr import Expr, Number, Reduction, Variable, variables, walk
from tensorprog.graph import Structure
from tensorprog.ir import Netsor, Range

__all__ = ["Probe"]


class Probe:
    """An expression along lines x = t * direction through its arguments' space, for the search for witnesses."""

    def __init__(self, netsor: Netsor, expr: Expr, ranges: dict[str, Range]) -> None:
        self.netsor, self.expr = netsor, expr
        self.variables = variables(expr)
        self.names = sorted({v.name for v in self.variables})
        kept = {n for node in walk(expr) if isinstance(node, Reduction) for n in node.indices}
        self.ranges = {name: span if name in kept else (span[0], span[0] + 1) for name, span in ranges.items()}
        self.size = math.prod(self.ranges[name][1] - self.ranges[name][0] for name in kept)
        self.expr_numbers = [float(n.value) for n in walk(expr) if isinstance(n, Number) and math.isfinite(n.value)]

    def averages(self, structure: Structure) -> bool:
        """Whether averages occur, which are no free arguments."""
        return any(name in structure.averages for name in self.names)

    def __call__(self, t: NDArray[np.float64], varied: bool) -> NDArray[np.float64]:
        """Values on the line: all arguments equal to t, or, varied, to t times numbers of their own."""

        def variable(reference: Variable, ranges: object) -> Open:
            if not varied:
                return Open((BATCH,), t)
            total = Open((), np.asarray(float(1 + self.names.index(reference.name))))
            axes = list(dict.fromkeys(n for s in reference.slots for n in s.indices))
            phase = np.asarray(total.data).reshape((1,) * len(axes))
            for weight, slot in enumerate(reference.slots):
                value = affine_values(slot, self.ranges)
                shape = [value.data.shape[value.axes.index(n)] if n in value.axes else 1 for n in axes]
                order = [n for n in axes if n in value.axes]
                data = value.data.transpose([value.axes.index(n) for n in order]) if order else value.data
                phase = phase + (2.0 + weight) * data.reshape(shape)
            return Open((BATCH, *axes), t.reshape(-1, *(1,) * len(axes)) * np.cos(phase))

        try:
            result = evaluate(self.expr, Scope(self.netsor, self.ranges, variable))
        except (ProgramError, KeyError):
            return np.full(t.shape, np.nan)
        data = result.data
        if BATCH not in result.axes:
            return np.full(t.shape, float(np.ravel(data)[0]))
        first: NDArray[np.float64] = data.reshape(len(t), -1)[:, 0].astype(np.float64)
        return first

    def refute(self, name: str, varied: bool) -> str:
        """Text of a witness against being 'bounded', 'pseudo-Lipschitz' or 'controlled'; '' if none is found."""
        with np.errstate(all="ignore"):
            return self._refute(name, varied)

    def _refute(self, name: str, varied: bool) -> str:
        what = ", ".join(str(v) for v in self.variables[:2]) + (", ..." if len(self.variables) > 2 else "")
        where = (
            f"along {what} = t"
            if len(self.variables) > 1 and not varied
            else (f"at {what} = t" if not varied else f"on a line through {what}")
        )
        numbers = [x for c in self.expr_numbers for x in (c, -c)]
        grid = np.unique(
            np.array([0.0, *numbers, *np.linspace(-6, 6, 61), *(s * 10.0**k for k in (1, 2) for s in (1, -1))])
        )
        values = self(grid, varied)
        if np.isnan(values).any():
            return f"{where}: no real number at t = {grid[np.isnan(values)][0]:g}"
        for sign in (1.0, -1.0):
            if name == "bounded":
                t: NDArray[np.float64] = sign * np.logspace(1, 6, 6)
                v = np.abs(self(t, varied))
                steps = np.diff(v)
                if not np.isnan(v).any() and (
                    np.isinf(v[-1]) or ((steps > 0).all() and (steps[1:] >= 0.5 * steps[:-1]).all())
                ):
                    finite = int(np.flatnonzero(np.isfinite(v))[-1]) if np.isfinite(v).any() else 0
                    return f"{where}: |value| = {v[0]:.4g} at t = {t[0]:g}, {v[finite]:.4g} at t = {t[finite]:g}"
                continue
            t = sign * np.array([4.0, 8.0, 16.0, 32.0])
            # log |f| itself: local exponents of log|f| tell exp(|t|**r), those of |f| tell powers
            v = np.abs(self(t, varied))
            if np.isinf(values).any():
                return f"{where}: not finite at t = {grid[np.isinf(values)][0]:g}"
            logs = np.log(v)
            ratio = logs[1:] / logs[:-1]
            good = np.isfinite(logs) & (logs > 4)
            if name == "controlled":
                pairs = good[1:] & good[:-1]
                if pairs.any() and (ratio[pairs] > 3.9).all() and (pairs.sum() >= 1):
                    k = int(np.flatnonzero(pairs)[0])
                    return f"{where}: log|value| = {logs[k]:.4g} at t = {t[k]:g}, {logs[k + 1]:.4g} at t = {t[k + 1]:g}"
                continue
            t = sign * np.array([25.0, 50.0, 100.0, 200.0, 400.0])
            logs = np.log(np.abs(self(t, varied)))
            if (
                np.isfinite(logs[:3]).all()
                and (
                    np.diff(logs[np.isfinite(logs)]) / math.log(2)
                    > [15, 30, 60, 120][: int(np.isfinite(logs).sum()) - 1]
                ).all()
            ):
                first, second = (math.exp(min(x, 700)) for x in logs[:2])
                return f"{where}: |value| = {first:.3g} at t = {t[0]:g}, {second:.3g} at t = {t[1]:g}"
        return self._steep(grid, values, varied, where) if name == "pseudo-Lipschitz" else ""

    def _steep(self, grid: NDArray[np.float64], values: NDArray[np.float64], varied: bool, where: str) -> str:
        """Two points a tiny distance apart whose values are not: a jump, or an infinite slope."""
        slope = np.abs(np.diff(values)) / np.diff(grid)
        places = [x for x in grid if abs(x) <= 10]
        for k in np.argsort(slope)[::-1][:4]:
            a, b = grid[k], grid[k + 1]
            for _ in range(60):
                middle = (a + b) / 2
                left, centre, right = self(np.array([a, middle, b]), varied)
                if not (a < middle < b):
                    break
                a, b = (a, middle) if abs(centre - left) >= abs(right - centre) else (middle, b)
            if b - a < 1e-9:
                left, right = self(np.array([a, b]), varied)
                if abs(right - left) > 1e-3:
                    return f"{where}: value {left:.4g} at t = {a:.12g}, but {right:.4g} at t = {a:.12g} + {b - a:.1g}"
        steps = np.array([1e-4, 1e-6, 1e-8])
        for sign in (1.0, -1.0):
            points = np.array(places)
            here = self(points, varied)
            moved = np.stack([self(points + sign * h, varied) for h in steps])
            steep = np.abs(moved - here) / steps[:, None]
            bad = (steep[2] > 5 * steep[1]) & (steep[1] > 5 * steep[0]) & (np.abs(moved[2] - here) > 1e-6)
            if bad.any():
                k = int(np.flatnonzero(bad)[0])
                return (
                    f"{where}: slope {steep[0][k]:.3g} between t = {points[k]:g} and a point 1e-4 away, "
                    f"{steep[2][k]:.3g} and 1e-8 away"
                )
        return ""

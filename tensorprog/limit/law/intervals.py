"""Expressions while scores move over boxes: ranges, and what is left of functions whose arguments move too fast.

Between the nodes of a quadrature rule an integrand can do what the rule does not see only where the argument of some
function in it runs through that function's structure: a kink, a jump, the bend of a tanh.  So a function is *followed*
on a box where its argument, by interval arithmetic, meets no kink and moves no more than its features allow; elsewhere
it may take any value of its range over the box.  With every function that is followed held at the centre of the box,
what is left of the range of the whole is the certified effect of those that are not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.evaluate import BATCH, Open, Scope, align, broadcast, evaluate, gather, union
from tensorprog.language.expr import Call, Expr, Reduction, Variable
from tensorprog.limit.draw.normals import Points
from tensorprog.limit.draw.sampler import Sampler

__all__ = ["TAME", "Moving", "Steepness"]

Array = NDArray[Any]
Pair = tuple[Array, Array]  # lower and upper ends
WIDEST = 1.5  # half of the way an argument may take through a feature, in its scale: see `gaussian.rules`
ANGLE = 0.6  # and farther from it, over the distance of the midpoint
FAR = 45.0  # exp(-45) = 3e-20
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
POWERS = 8  # polynomials up to this degree are followed everywhere
EVERYWHERE = ("sin", "cos", "exp")  # their structure does not fade away from the origin
TAME = 3.0  # speed of an argument at which the nodes of rules and the points of draws see what a function does
REGION, PROBED = 8.0, 64  # standard deviations; values of averages
MANY = 512  # normals whose slopes are found one by one; beyond, as many random directions
NUMBERS = 1 << 18  # held at once
TILES = {1: 16, 2: 16, 3: 8, 4: 4}  # boxes along each normal that cover the region
PROBES, MARGIN = 9, 1.0  # of functions of which no range is known: values looked at, and how far the range is widened


class _Boxes(ABC):
    """A reader of expressions while normals run over boxes, in a batch of so many blocks of boxes as `rows` says.

    The first two are lower and upper ends, the last two the same with functions held that are followed.  Coefficients
    come out as the centre of what is left then, or as half of it if `half`.
    """

    rows: int

    def __init__(self, sampler: Sampler, boxes: int) -> None:
        self.boxes, self.half = boxes, False
        values = {name: self._score(sampler, name) for name in sampler.scores}

        values = sampler.derived(
            values, self.rows * boxes, sampler.reader(values), walk=self.over,
            average=lambda name: self._average(sampler, name),
        )  # fmt: skip
        self._read = sampler.reader(values)

    @abstractmethod
    def _score(self, sampler: Sampler, name: str) -> Open:
        """Blocks of a score, which is linear in the normals."""

    @abstractmethod
    def _average(self, sampler: Sampler, name: str) -> Open:
        """Blocks of an average, known value by value only: its range is that of a few values."""

    @abstractmethod
    def _applied(self, name: str, blocks: Sequence[Array]) -> Sequence[Array]:
        """Blocks of a function from those of its arguments and parameters."""

    @abstractmethod
    def _reduced(self, name: str, blocks: Array) -> Sequence[Array]:
        """Blocks of a function, not linear, over the last axis."""

    def halved(self) -> Self:
        """The same, with halves in place of centres."""
        found = copy(self)
        found.half = True
        return found

    def __call__(self, reference: Variable, ranges: Mapping[str, Any]) -> Open:
        """The blocks of a variable."""
        value: Open = self._read(reference, ranges)
        return value

    def walk(self, expr: Expr, scope: Scope) -> Open:
        """The centre or half of the range of an expression, with followed functions held.

        Shapes    (boxes, ...)
        """
        value = self.over(expr, scope)
        if BATCH not in value.axes:
            return Open(value.axes, np.zeros_like(value.data)) if self.half else value
        *_, low, high = self._blocks(value.data)
        with np.errstate(invalid="ignore", over="ignore"):
            ends = (high - low) / 2 if self.half else low / 2 + high / 2
            found = np.where(low == high, 0.0 if self.half else low, ends)
        return Open(value.axes, np.where(np.isnan(found), np.inf, found) if self.half else found)

    def _blocks(self, data: Array, moves: bool = True) -> Array:
        """(rows * boxes, ...) -> (rows, boxes, ...)."""
        return data.reshape(self.rows, self.boxes, *data.shape[1:])

    def over(self, expr: Expr, scope: Scope) -> Open:
        """Blocks of an expression; what reads no variable that moves is one array, without a batch."""
        if isinstance(expr, Call):
            args = [self.over(arg, scope) for arg in expr.args]
            if not any(BATCH in arg.axes for arg in args):
                return evaluate(expr, scope)
            axes = union(*(arg.axes for arg in args))
            aligned = [align(arg, axes) for arg in args]
            shape = np.broadcast_shapes(*(data.shape for data in aligned))
            blocks = [self._blocks(np.broadcast_to(data, shape), BATCH in arg.axes)
                      for data, arg in zip(aligned, args, strict=True)]  # fmt: skip
            return Open(axes, np.concatenate(self._applied(expr.atom, blocks)))
        if not isinstance(expr, Reduction):
            return evaluate(expr, scope)
        local = scope
        if expr.at:  # over the full range, then read at the forms
            full = {name: scope.netsor.ranges[name.rstrip("*")] for name in expr.indices}
            local = replace(scope, ranges={**scope.ranges, **full})
        inner = self.over(expr.arg, local)
        if BATCH not in inner.axes:
            return evaluate(expr, scope)

        def reduced(data: Array) -> Array:
            if REDUCTIONS[expr.reducer].linear:
                return np.asarray(data.sum(axis=-1) if expr.reducer == "sum" else data.mean(axis=-1))
            return np.concatenate(self._reduced(expr.reducer, self._blocks(data)))

        return _over_index(expr, inner, scope, local, reduced)


def _beyond(least: Array, most: Array) -> tuple[Array, Array]:
    """A range wider than that of the values seen, by their spread; averages of one sign keep it, as variances do."""
    spread = most - least
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low = np.where(least > 0, np.maximum(least - spread, least * (least / most)), least - spread)
        high = np.where(most < 0, np.minimum(most + spread, most * (most / least)), most + spread)
    return low, high


class Moving(_Boxes):
    """Expressions over boxes of normals, with the functions held that are followed on a box.

    Shapes    low, high (boxes, dim)
    """

    rows = 4

    def __init__(self, sampler: Sampler, low: Array, high: Array) -> None:
        self.middle, self.away = (low + high) / 2, (high - low) / 2
        super().__init__(sampler, len(low))

    def _score(self, sampler: Sampler, name: str) -> Open:
        slope = sampler.scores_of(name, Points(sampler.sources, np.eye(sampler.dim)))
        matrix = slope.data.reshape(sampler.dim, -1)
        centre, away = self.middle @ matrix, self.away @ np.abs(matrix)
        data = np.concatenate([centre - away, centre + away, centre, centre])
        return Open(slope.axes, data.reshape(len(data), *slope.data.shape[1:]))

    def _average(self, sampler: Sampler, name: str) -> Open:
        steps = np.linspace(-1, 1, PROBES)[:, None, None]
        found = sampler.draw((self.middle + steps * self.away).reshape(-1, sampler.dim))[name]
        each = found.data.reshape(PROBES, self.boxes, *found.data.shape[1:])
        centre = each[PROBES // 2]
        return Open(found.axes, np.concatenate([*_beyond(each.min(axis=0), each.max(axis=0)), centre, centre]))

    def _applied(self, name: str, blocks: Sequence[Array]) -> Sequence[Array]:
        moved = [(part[0], part[1]) for part in blocks]
        over, kept = _image(name, moved), _image(name, [(part[2], part[3]) for part in blocks])
        followed = _followed(name, moved)
        if ATOMS[name].operator in COMPARISONS:  # one value inside the box, if no jump is
            with np.errstate(invalid="ignore"):
                value = ATOMS[name].numpy(*((low + high) / 2 for low, high in moved)).astype(np.float64)
            over = np.where(followed, value, over[0]), np.where(followed, value, over[1])
            kept = over
        return *over, np.where(followed, kept[0], over[0]), np.where(followed, kept[1], over[1])

    def _reduced(self, name: str, blocks: Array) -> Sequence[Array]:
        over, kept = (_index_image(name, low, high) for low, high in (blocks[:2], blocks[2:]))
        followed = _index_followed(name, blocks[0], blocks[1])
        if not REDUCTIONS[name].removes:
            followed = followed[..., None]
        return *over, np.where(followed, kept[0], over[0]), np.where(followed, kept[1], over[1])


class Steepness(_Boxes):
    """A reader over the whole region of normals: how fast the arguments of functions move, in units of their structure.

    A batch holds five blocks of boxes that cover the region: lower and upper end, a bound on the sum of the sizes of
    the derivatives by the normals, and both ends with functions held that are tame: without jump, their arguments
    moving no faster than TAME.
    `steepest` is the largest speed met; it is infinite where a function has a kink, a jump or a singularity.
    """

    rows = 5

    def __init__(self, sampler: Sampler) -> None:
        self.steepest = 0.0
        self.along = TILES.get(sampler.dim, 1)
        edge = REGION * (2 * np.arange(self.along) + 1 - self.along) / self.along
        tiles = np.meshgrid(*[edge] * sampler.dim, indexing="ij") if self.along > 1 else [np.zeros(1)] * sampler.dim
        self.centres = np.stack([a.reshape(-1) for a in tiles], axis=1)
        self.away = REGION / self.along
        super().__init__(sampler, len(self.centres))

    def _score(self, sampler: Sampler, name: str) -> Open:
        """Derivatives along the axes of boxes, or in any direction of the whole region."""
        dim = sampler.dim
        if dim <= MANY:
            slope = sampler.scores_of(name, Points(sampler.sources, np.eye(dim)))
            matrix = slope.data.reshape(dim, -1)
            middle = self.centres @ matrix if self.along > 1 else np.zeros((1, matrix.shape[1]))
            speed = np.abs(matrix).sum(axis=0) if self.along > 1 else np.linalg.norm(matrix, axis=0)
        else:
            square: Any = 0.0
            rng, step = np.random.default_rng(0), max(1, NUMBERS // dim)
            for start in range(0, MANY, step):
                unit = rng.standard_normal((min(step, MANY - start), dim)) / math.sqrt(MANY)
                slope = sampler.scores_of(name, Points(sampler.sources, unit))
                square = square + np.square(slope.data.reshape(len(unit), -1)).sum(axis=0)
            middle, speed = np.zeros((1, square.size)), np.sqrt(square)
        far = self.away * speed
        data = np.stack([middle - far, middle + far, speed + 0 * middle, middle, middle])
        return Open(slope.axes, data.reshape(5 * self.boxes, *slope.data.shape[1:]))

    def _average(self, sampler: Sampler, name: str) -> Open:
        found = sampler.draw(np.random.default_rng(0).standard_normal((PROBED, sampler.dim)))[name]
        least, most = found.data.min(axis=0), found.data.max(axis=0)
        centre = (most + least) / 2
        rows = np.stack([*_beyond(least, most), most - least, centre, centre])
        return Open(found.axes, np.repeat(rows, self.boxes, axis=0))

    def mass(self) -> Array:
        """Of the boxes."""
        from scipy.special import ndtr

        return np.asarray((ndtr(self.centres + self.away) - ndtr(self.centres - self.away)).prod(axis=1))

    def walk(self, expr: Expr, scope: Scope) -> Open:
        """As for all boxes; centres are finite."""
        found = super().walk(expr, scope)
        return found if self.half or BATCH not in found.axes else Open(found.axes, np.nan_to_num(found.data))

    def _blocks(self, data: Array, moves: bool = True) -> Array:
        blocks = super()._blocks(data)
        if not moves:
            blocks = np.array(blocks)
            blocks[2] = 0.0
        return blocks

    def _met(self, speed: Array) -> None:
        self.steepest = max(self.steepest, float(np.max(np.nan_to_num(speed, nan=np.inf), initial=0.0)))

    def _applied(self, name: str, blocks: Sequence[Array]) -> Sequence[Array]:
        over = _image(name, [(row[0], row[1]) for row in blocks])
        held = _image(name, [(row[3], row[4]) for row in blocks])
        speed, tame = self._speed(name, blocks)
        if not (ATOMS[name].operator in ("+", "-", "*") or name in ("negative", "where")):
            held = np.where(tame, held[0], over[0]), np.where(tame, held[1], over[1])
        return *over, np.nan_to_num(speed, nan=np.inf), *held

    @np.errstate(all="ignore")
    def _speed(self, name: str, rows: Sequence[Array]) -> tuple[Array, NDArray[np.bool_]]:
        """Bound on the derivatives of a function, and where it is tame."""
        atom = ATOMS[name]
        own = rows[0][2]
        every = np.ones(own.shape, dtype=bool)
        size = [np.maximum(np.abs(row[0]), np.abs(row[1])) for row in rows]
        if name == "negative":
            return own, every
        if atom.operator in ("+", "-"):
            return own + rows[1][2], every
        if name == "multiply":
            return np.where(rows[1][2] > 0, size[0] * rows[1][2], 0) + np.where(own > 0, size[1] * own, 0), every
        if name == "where":
            return np.maximum(rows[1][2], rows[2][2]), every
        if name in ("minimum", "maximum") or atom.operator in (*COMPARISONS, "&", "|"):
            meets = (rows[0][0] < rows[1][1]) & (rows[0][1] > rows[1][0])
            speed = np.maximum(own, rows[1][2])
            if atom.operator in ("&", "|"):
                return 0 * own, np.asarray(own >= 0) & (rows[0][3] == rows[0][4]) & (rows[1][3] == rows[1][4])
            self._met(np.where(meets, np.inf, 0.0))
            jumps = bool(atom.operator)
            return 0 * own if jumps else speed, ~meets if jumps else ~meets | (speed <= TAME)
        if name == "divide":
            low, high, speed = rows[1][0], rows[1][1], rows[1][2]
            nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
            relative = np.where(speed > 0, speed / nearest, 0.0)
            self._met(relative)
            return own / nearest + size[0] * relative / nearest, relative <= TAME
        slope = np.array(own)
        meets = np.zeros(own.shape, dtype=bool)
        speed = np.zeros(own.shape)
        ends = [np.broadcast_to(row[k], own.shape).reshape(-1) for row in rows for k in (0, 1)]
        for places, (span, params) in _each(ends, 1):
            local = atom.regularity_on(span, *params)
            bound = local.lipschitz if local.modulus == 0 else np.inf
            if not np.isfinite(bound) and atom.derivative is not None and np.isfinite(span).all():
                slopes = np.abs(atom.derivative(np.linspace(span[0], span[1], 257), *params))
                bound = 2 * float(np.nanmax(slopes, initial=0.0))
            fast = own.reshape(-1)[places]
            slope.reshape(-1)[places] = np.where(fast > 0, fast * bound, 0.0)
            kinks = atom.kinks(*params) if atom.kinks is not None else ()
            whole = name == "power" and params[0] >= 0 and params[0] == round(params[0])
            meets.reshape(-1)[places] = not whole and any(span[0] < kink < span[1] for kink in kinks)
            scales = [scale for _, scale in atom.features(*params)] or ([1.0] if atom.kinks is None else [])
            speed.reshape(-1)[places] = max((fast.max() / scale for scale in scales), default=0.0)
        self._met(np.where(meets, np.inf, speed))
        continuous = atom.continuous and atom.domain[0] == -np.inf
        return slope, (~meets | continuous) & (np.maximum(speed, np.where(meets, own, 0.0)) <= TAME)

    @np.errstate(all="ignore")
    def _reduced(self, name: str, blocks: Array) -> Sequence[Array]:
        low, high, speed, first, last = blocks
        over, held = _index_image(name, low, high), _index_image(name, first, last)
        fastest = speed.max(axis=-1)
        if name == "max":
            self._met(np.where(_index_followed(name, low, high), 0.0, np.inf))
            tame = fastest <= TAME
        else:
            second = np.sort(speed, axis=-1)[..., -2] if speed.shape[-1] > 1 else 0 * fastest
            self._met(fastest + second)
            tame = fastest + second <= TAME
        if not REDUCTIONS[name].removes:
            fastest, tame = np.broadcast_to(fastest[..., None], speed.shape), tame[..., None]
        return *over, fastest, np.where(tame, held[0], over[0]), np.where(tame, held[1], over[1])


# ---- ranges of functions ---------------------------------------------------------------------------------------------


def _image(name: str, args: Sequence[Pair]) -> Pair:
    """Range of a function over ranges of its arguments."""
    atom = ATOMS[name]
    if name == "where":
        (low, high), (a, b), (c, d) = args
        yes, no = (low > 0) | (high < 0), (low == 0) & (high == 0)
        return np.where(yes, a, np.where(no, c, np.minimum(a, c))), np.where(yes, b, np.where(no, d, np.maximum(b, d)))
    same = np.logical_and.reduce([low == high for low, high in args])
    with np.errstate(all="ignore"):
        value = np.asarray(atom.numpy(*(low for low, _ in args)), dtype=np.float64)
    first, last = np.array(value), np.array(value)
    moving = np.flatnonzero(~same.reshape(-1))
    if moving.size:
        ends = [np.broadcast_to(end, same.shape).reshape(-1)[moving] for pair in args for end in pair]
        for places, (*spans, params) in _each(ends, atom.arity):
            found = _range(name, spans, params)
            first.reshape(-1)[moving[places]], last.reshape(-1)[moving[places]] = found
    return first, last


def _each(ends: Sequence[Array], arity: int) -> Iterator[tuple[Array, list[Any]]]:
    """Different intervals of arguments and parameters, with the places where they are."""
    values, where = np.unique(np.stack(ends), axis=1, return_inverse=True)
    order = np.argsort(where, kind="stable")
    for places, column in zip(np.split(order, np.cumsum(np.bincount(where))[:-1]), values.T.tolist(), strict=True):
        spans = [(column[2 * k], column[2 * k + 1]) for k in range(arity)]
        yield places, [*spans, column[2 * arity :: 2]]


def _range(name: str, spans: Sequence[tuple[float, float]], params: Sequence[float]) -> tuple[float, float]:
    atom = ATOMS[name]
    if any(np.isnan(end) for span in spans for end in span):
        return -np.inf, np.inf
    if atom.arity > 1:
        found = atom.image(*spans, *params) if atom.image is not None else (-np.inf, np.inf)
    else:
        found = atom.range_on(spans[0], *params)
        if found == (-np.inf, np.inf) and not (atom.image or atom.monotone) and np.isfinite(spans[0]).all():
            with np.errstate(all="ignore"):
                values = atom.numpy(np.linspace(spans[0][0], spans[0][1], PROBES), *params)
            spread = MARGIN * np.ptp(values)
            found = float(values.min() - spread), float(values.max() + spread)
    low, high = found
    return (-np.inf if np.isnan(low) else float(low)), (np.inf if np.isnan(high) else float(high))


def _followed(name: str, args: Sequence[Pair]) -> NDArray[np.bool_]:
    """Where a function is smooth at the scale on which its arguments move.

    Shapes    (boxes, ...)
    """
    atom = ATOMS[name]
    low, high = args[0]
    every = np.ones(low.shape, dtype=bool)
    if atom.operator in ("+", "-", "*", "&", "|") or name in ("negative", "where"):
        return every
    with np.errstate(invalid="ignore"):
        if atom.operator in COMPARISONS or name in ("minimum", "maximum"):
            return np.asarray((low >= args[1][1]) | (high <= args[1][0]))
        if name == "divide":
            low, high = args[1]
        half, middle = (high - low) / 2, (high + low) / 2
        if name == "divide":
            return np.asarray((half <= ANGLE * np.abs(middle)) | (half == 0))
        if name == "power":
            exponent = args[1][0]
            entire = (exponent >= 0) & (exponent == np.round(exponent)) & (exponent <= POWERS)
            return np.asarray(entire | (half <= ANGLE * np.abs(middle)) | (half == 0))
        params = [p for p, _ in args[1:]]
        for kink in () if atom.kinks is None else atom.kinks(*params):
            every &= ~((low < kink) & (kink < high))
        for centre, scale in atom.features(*params) if atom.kinks is not None else ((0.0, 1.0),):
            away = 0.0 if name in EVERYWHERE or atom.declared else ANGLE * np.abs(middle - centre)
            every &= half <= np.maximum(WIDEST * scale, away)
    return every


@np.errstate(all="ignore")
def _index_image(name: str, low: Array, high: Array) -> Pair:
    function = REDUCTIONS[name].numpy
    if name != "softmax":  # increasing in every argument
        return np.asarray(function(low, (low.ndim - 1,))), np.asarray(function(high, (high.ndim - 1,)))
    if np.array_equal(low, high):
        value = function(np.array(low), (low.ndim - 1,))
        return value, value

    def share(own: Array, others: Array) -> Array:
        """Softmax at one place with an argument of its own and those of others elsewhere, for every place."""
        nothing = np.full((*others.shape[:-1], 1), -np.inf)
        before = np.logaddexp.accumulate(others, axis=-1)
        after = np.logaddexp.accumulate(others[..., ::-1], axis=-1)[..., ::-1]
        rest = np.logaddexp(
            np.concatenate([nothing, before[..., :-1]], axis=-1), np.concatenate([after[..., 1:], nothing], axis=-1)
        )
        return np.asarray(np.where(np.isneginf(own), 0.0, 1 / (1 + np.exp(rest - own))))

    return share(low, high), share(high, low)


@np.errstate(all="ignore")
def _index_followed(name: str, low: Array, high: Array) -> NDArray[np.bool_]:
    """Where a function over the last axis is smooth at the scale on which its arguments move."""
    top = np.argmax(low, axis=-1)[..., None]
    others = np.array(high)
    np.put_along_axis(others, top, -np.inf, axis=-1)
    gap = np.take_along_axis(low, top, axis=-1)[..., 0] - others.max(axis=-1)
    if name == "max":
        return np.asarray(gap >= 0)
    if name not in ("softmax", "logsumexp"):
        return np.zeros(gap.shape, dtype=bool)
    matters = high > low.max(axis=-1, keepdims=True) - FAR
    moves = np.where(matters & (high > low), (high - low) / 2, 0.0).max(axis=-1)
    return np.asarray((moves <= WIDEST) | (gap >= FAR))


def _over_index(
    expr: Reduction, inner: Open, scope: Scope, local: Scope, function: Callable[[Array], Array]
) -> Open:
    """A function over indices, given on the last axis, of its evaluated argument."""
    axes = union(inner.axes, expr.indices)
    sizes = {name: stop - start for name, (start, stop) in local.ranges.items()}
    data = broadcast(inner, axes, sizes | dict(zip(inner.axes, inner.data.shape, strict=True)))
    places = [axes.index(name) for name in expr.indices]
    rest = [k for k in range(1, len(axes)) if k not in places]
    order = [0, *rest, *places]
    shape = data.shape
    flat = data.transpose(order).reshape(shape[0], *(shape[k] for k in rest), -1)
    result = function(flat)
    kept = tuple(axes[k] for k in (0, *rest))
    if expr.removes:
        return Open(kept, result)
    wide = result.reshape([shape[k] for k in order])
    value = Open(axes, wide.transpose(np.argsort(order)))
    if not expr.at:
        return value
    starts = {name: start for name, (start, _) in local.ranges.items()}
    return gather(value, dict(zip(expr.indices, expr.at, strict=True)), scope.ranges, starts)

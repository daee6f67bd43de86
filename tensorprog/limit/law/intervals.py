"""Expressions while scores move over boxes: ranges, and what is left of functions whose arguments move too fast.

Between the nodes of a quadrature rule an integrand can do what the rule does not see only where the argument of some
function in it runs through that function's structure: a kink, a jump, the bend of a tanh.  So a function is *followed*
on a box where its argument, by interval arithmetic, meets no kink and moves no more than its features allow; elsewhere
it may take any value of its range over the box.  With every function that is followed held at the centre of the box,
what is left of the range of the whole is the certified effect of those that are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.evaluate import BATCH, Open, Scope, align, broadcast, evaluate, gather, union
from tensorprog.language.expr import Call, Expr, Reduction, Variable
from tensorprog.limit.draw.normals import Points
from tensorprog.limit.draw.sampler import Sampler

__all__ = ["Moving"]

Array = NDArray[Any]
Pair = tuple[Array, Array]  # lower and upper ends
WIDEST = 1.5  # half of the way an argument may take through a feature, in its scale: see `gaussian.rules`
ANGLE = 0.6  # and farther from it, over the distance of the midpoint
FAR = 45.0  # exp(-45) = 3e-20
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
POWERS = 8  # polynomials up to this degree are followed everywhere
EVERYWHERE = ("sin", "cos", "exp")  # their structure does not fade away from the origin
CELL = 0.5  # radius of a ball of normals on which the nodes of rules and the points of draws see what functions do
REGION, PROBED = 8.0, 64  # standard deviations; values of averages
MANY = 512  # normals whose slopes are found one by one; beyond, as many random directions
NUMBERS = 1 << 18  # held at once
TILES = {1: 16, 2: 16, 3: 8, 4: 4}  # boxes along each normal that cover the region
PROBES, MARGIN = 9, 1.0  # of functions of which no range is known: values looked at, and how far the range is widened


class Moving:
    """A reader of expressions while normals run over boxes, with the functions held that are followed on a box.

    A batch holds five blocks of boxes: lower and upper ends; how far a variable moves to both sides over a cell, which
    is the box itself or, within `region`, a ball of radius CELL around any of its points; both ends with functions held
    that are followed.  Coefficients come out as the centre of what is left then, or as half of it if `half`.
    `bends` has the functions met that are not followed, or have a kink inside.

    Shapes    middle (boxes, dim), away (boxes, dim) or (boxes, 1)
    """

    def __init__(self, sampler: Sampler, middle: Array, away: Array, cells: bool = False) -> None:
        self.middle, self.away, self.cells = middle, away, cells
        self.boxes, self.half = len(middle), False
        self.bends: set[str] = set()
        values = {name: self._score(sampler, name) for name in sampler.scores}
        values = sampler.derived(
            values, 5 * self.boxes, sampler.reader(values), walk=self.over,
            average=lambda name: self._average(sampler, name),
        )  # fmt: skip
        self._read = sampler.reader(values)

    @classmethod
    def region(cls, sampler: Sampler) -> Moving:
        """Over boxes that cover all normals that matter: tiles of few of them, else one box."""
        along = TILES.get(sampler.dim, 1)
        edge = REGION * (2 * np.arange(along) + 1 - along) / along
        tiles = np.meshgrid(*[edge] * sampler.dim, indexing="ij") if along > 1 else [np.zeros(1)] * sampler.dim
        centres = np.stack([a.reshape(-1) for a in tiles], axis=1) if sampler.dim else np.zeros((1, 0))
        return cls(sampler, centres, np.full((len(centres), 1), REGION / along), cells=True)

    def _score(self, sampler: Sampler, name: str) -> Open:
        """Blocks of a score, which is linear in the normals; over a whole region in any direction."""
        dim, whole = sampler.dim, self.cells and self.boxes == 1
        square: Any = 0.0
        for unit in _directions(dim) if dim else [np.zeros((1, 0))]:  # scores of nothing random are 0
            slope = sampler.scores_of(name, Points(sampler.sources, unit))
            matrix = slope.data.reshape(len(unit), -1)
            square = square + np.square(matrix).sum(axis=0)
        if whole:
            speed, middle, far = np.sqrt(square), np.zeros((1, square.size)), self.away * np.sqrt(square)
        else:
            away = np.broadcast_to(self.away, self.middle.shape)
            speed, middle, far = np.abs(matrix).sum(axis=0), self.middle @ matrix, away @ np.abs(matrix)
        move = CELL * speed + 0 * far if self.cells else far
        data = np.concatenate([middle - far, middle + far, move, middle, middle])
        return Open(slope.axes, data.reshape(len(data), *slope.data.shape[1:]))

    def _average(self, sampler: Sampler, name: str) -> Open:
        """Blocks of an average, known value by value only: its range is that of a few values."""
        steps = np.linspace(-1, 1, PROBES)[:, None, None]
        points = self.middle + steps * self.away
        if self.cells:
            points = np.random.default_rng(0).standard_normal((PROBED, 1, sampler.dim))
        found = sampler.draw(points.reshape(-1, sampler.dim))[name]
        each = found.data.reshape(*points.shape[:2], *found.data.shape[1:])
        least, most = each.min(axis=0), each.max(axis=0)
        centre = (least + most) / 2
        rows = np.stack([*_beyond(least, most), (most - least) / 2, centre, centre])
        data = np.broadcast_to(rows, (5, self.boxes, *rows.shape[2:])).reshape(5 * self.boxes, *rows.shape[2:])
        return Open(found.axes, data)

    def halved(self) -> Moving:
        """The same, with halves in place of centres."""
        found = copy(self)
        found.half = True
        return found

    def mass(self) -> Array:
        """Of the boxes."""
        from scipy.special import ndtr

        return np.asarray((ndtr(self.middle + self.away) - ndtr(self.middle - self.away)).prod(axis=1))

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
        if self.half:
            return Open(value.axes, np.where(np.isnan(found), np.inf, found))
        return Open(value.axes, np.nan_to_num(found) if self.cells else found)

    def _blocks(self, data: Array, moves: bool = True) -> Array:
        """(5 * boxes, ...) -> (5, boxes, ...)."""
        blocks = data.reshape(5, self.boxes, *data.shape[1:])
        if not moves:
            blocks = np.array(blocks)
            blocks[2] = 0.0
        return blocks

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

    def _applied(self, name: str, blocks: Sequence[Array]) -> Sequence[Array]:
        """Blocks of a function from those of its arguments and parameters."""
        over, held = _image(name, [(b[0], b[1]) for b in blocks]), _image(name, [(b[3], b[4]) for b in blocks])
        followed = self._followed(name, blocks)
        if ATOMS[name].operator in COMPARISONS:  # one value inside the box, if no jump is
            with np.errstate(invalid="ignore"):
                value = ATOMS[name].numpy(*((b[0] + b[1]) / 2 for b in blocks)).astype(np.float64)
            held = over = np.where(followed, value, over[0]), np.where(followed, value, over[1])
        return self._joined(over, held, followed, lambda: _slope_times(name, blocks))

    def _joined(
        self, over: Pair, held: Pair, followed: NDArray[np.bool_], bound: Callable[[], Array]
    ) -> Sequence[Array]:
        with np.errstate(invalid="ignore", over="ignore"):
            move = (over[1] - over[0]) / 2
            if self.cells:
                move = np.fmin(move, bound())
        move = np.nan_to_num(move, nan=np.inf, posinf=np.inf)
        return *over, move, np.where(followed, held[0], over[0]), np.where(followed, held[1], over[1])

    def _reduced(self, name: str, blocks: Array) -> Sequence[Array]:
        """Blocks of a function, not linear, over the last axis."""
        low, high, move, *ends = blocks
        over, held = _index_image(name, low, high), _index_image(name, *ends)
        followed = self._smooth(*_index_followed(name, low, high, move), name)
        fastest = move.max(axis=-1)
        if not REDUCTIONS[name].removes:
            followed, fastest = followed[..., None], fastest[..., None]
        return self._joined(over, held, followed, lambda: fastest)

    def _smooth(self, smooth: NDArray[np.bool_], kinked: NDArray[np.bool_], name: str) -> NDArray[np.bool_]:
        """Where a function counts as followed: continuous kinks matter to panels only."""
        if not smooth.all() or kinked.any():
            self.bends.add(name)
        return smooth if self.cells else smooth & ~kinked

    @np.errstate(invalid="ignore")
    def _followed(self, name: str, args: Sequence[Array]) -> NDArray[np.bool_]:
        """Where a function is smooth at the scale on which its arguments move.

        Shapes    (boxes, ...)
        """
        atom = ATOMS[name]
        low, high, move = args[0][:3]
        smooth, kinked = np.ones(low.shape, dtype=bool), np.zeros(low.shape, dtype=bool)
        if atom.operator in ("+", "-", "*", "&", "|") or name in ("negative", "where"):
            return smooth
        if atom.operator in COMPARISONS or name in ("minimum", "maximum"):
            meets = (low < args[1][1]) & (high > args[1][0])
            if atom.operator:
                return self._smooth(~meets, kinked, name)
            return self._smooth(~meets | (np.maximum(move, args[1][2]) <= WIDEST), meets, name)
        if name == "divide":
            low, high, move = args[1][:3]
        half, middle = (high - low) / 2, (high + low) / 2

        def fades(centre: float) -> Any:
            return ANGLE * (np.abs(middle - centre) - half + move)

        if name in ("divide", "power"):
            smooth = (move <= fades(0.0)) | (half == 0)
            if name == "power":
                exponent = args[1][0]
                smooth |= (exponent >= 0) & (exponent == np.round(exponent)) & (exponent <= POWERS)
            return self._smooth(smooth, kinked, name)
        params = [p for p, *_ in args[1:]]
        for kink in () if atom.kinks is None else atom.kinks(*params):
            kinked |= (low < kink) & (kink < high)
        if kinked.any():
            smooth &= ~kinked | (np.asarray(atom.continuous and atom.domain[0] == -np.inf) & (move <= WIDEST))
        for centre, scale in atom.features(*params) if atom.kinks is not None else ((0.0, 1.0),):
            away = 0.0 if name in EVERYWHERE or atom.declared else fades(centre)
            smooth &= move <= np.fmax(WIDEST * scale, away)
        return self._smooth(smooth, kinked, name)


def _directions(dim: int) -> Iterator[Array]:
    """Unit vectors of normals, or of many normals some random ones, whose squared slopes add up alike."""
    if dim <= MANY:
        yield np.eye(dim)
        return
    rng, step = np.random.default_rng(0), max(1, NUMBERS // dim)
    for start in range(0, MANY, step):
        yield rng.standard_normal((min(step, MANY - start), dim)) / math.sqrt(MANY)


def _beyond(least: Array, most: Array) -> tuple[Array, Array]:
    """A range wider than that of the values seen, by their spread; averages of one sign keep it, as variances do."""
    spread = most - least
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low = np.where(least > 0, np.maximum(least - spread, least * (least / most)), least - spread)
        high = np.where(most < 0, np.minimum(most + spread, most * (most / least)), most + spread)
    return low, high


@np.errstate(all="ignore")
def _slope_times(name: str, args: Sequence[Array]) -> Any:
    """How far a function moves at most while its arguments move: bounds on its derivatives over their ranges."""
    atom = ATOMS[name]
    own = args[0][2]
    size = [np.maximum(np.abs(row[0]), np.abs(row[1])) for row in args]
    if atom.operator in ("+", "-"):
        return own + args[1][2]
    if name == "multiply":
        return np.where(args[1][2] > 0, size[0] * args[1][2], 0) + np.where(own > 0, size[1] * own, 0)
    if name == "where":
        return np.maximum(args[1][2], args[2][2])
    if atom.operator in (*COMPARISONS, "&", "|"):
        return np.zeros(own.shape)
    if name == "negative":
        return own
    if name in ("minimum", "maximum"):
        return np.maximum(own, args[1][2])
    if name == "divide":
        low, high, move = args[1][:3]
        nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        return own / nearest + size[0] * np.where(move > 0, move / nearest, 0.0) / nearest
    slope = np.array(own)
    ends = [np.broadcast_to(row[k], own.shape).reshape(-1) for row in args for k in (0, 1)]
    for places, (span, params) in _each(ends, 1):
        local = atom.regularity_on(span, *params)
        bound = local.lipschitz if local.modulus == 0 else np.inf
        if not np.isfinite(bound) and atom.derivative is not None and np.isfinite(span).all():
            slopes = np.abs(atom.derivative(np.linspace(span[0], span[1], 257), *params))
            bound = 2 * float(np.nanmax(slopes, initial=0.0))
        fast = own.reshape(-1)[places]
        slope.reshape(-1)[places] = np.where(fast > 0, fast * bound, 0.0)
    return slope


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
def _index_followed(name: str, low: Array, high: Array, move: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where a function over the last axis is smooth at the scale on which its arguments move; where it has a kink."""
    top = np.argmax(low, axis=-1)[..., None]
    others = np.array(high)
    np.put_along_axis(others, top, -np.inf, axis=-1)
    gap = np.take_along_axis(low, top, axis=-1)[..., 0] - others.max(axis=-1)
    none = np.zeros(gap.shape, dtype=bool)
    matters = high > low.max(axis=-1, keepdims=True) - FAR
    slow = np.where(matters & (high > low), move, 0.0).max(axis=-1) <= WIDEST
    if name == "max":
        return np.asarray((gap >= 0) | slow), np.asarray(gap < 0)
    if name not in ("softmax", "logsumexp"):
        return none, none
    return np.asarray(slow | (gap >= FAR)), none


def _over_index(expr: Reduction, inner: Open, scope: Scope, local: Scope, function: Callable[[Array], Array]) -> Open:
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

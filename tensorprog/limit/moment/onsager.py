"""Onsager terms: what products with W^T have fixed of products with W, and the other way round, in the limit.

With h_j = W^T y_j made before, W x is a fresh Gaussian vector, the hat of W x, plus a combination of the y_j,

    Z^{W x} = hat + v sum_j c_j Z^{y_j},        c = Cov(hats of h)^+ (E[hat_j Z^x])_j,

v the variance of W.  This is Stein's form of c_j = E[dZ^x / dhat_j]: it asks for no derivative, so functions may jump.
At points the hats of h are L z with normals z, so c is the pseudo-inverse of L^T times the means of z Z^x: the exact
recursion of `finite.matmul` with averages in place of sums.  Where products are linear in Gaussian vectors, as powers
of W^T W are, the moments are those of the recursion itself, and exact.

Source    Yang 2020 (arXiv 2009.10685), NetsorT; Bolthausen 2014 for the conditioning behind it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import COORDINATE, Scope, broadcast, evaluate
from tensorprog.language.expr import Variable
from tensorprog.language.ir import MatMul, Range
from tensorprog.language.schedule import steps, upstream
from tensorprog.language.weight_members import variances
from tensorprog.limit.form.definitions import Corrected, place, target_box
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.moment.numbers import EXACT, Numbers
from tensorprog.limit.moment.values import REPLICATE, Value

if TYPE_CHECKING:
    from tensorprog.limit.moment.points import VectorsAtPoints

__all__ = ["coefficients_at_points", "exact_coefficients"]

Array = NDArray[Any]
SMALLEST = 1e-6  # of a singular value beside the largest: what is below is rounding in single precision


def coefficients_at_points(points: VectorsAtPoints, statement: Corrected, ranges: dict[str, Range], step: int) -> None:
    """Enter the coefficients of the products that a step makes."""
    columns, netsor, product, other = points.columns, points.netsor, statement.product, statement.other
    family = netsor.families[product.target.name]
    flat = np.arange(math.prod(family.shape)).reshape(family.shape)[place(target_box(product, ranges), family.ranges)]
    member, column = (table[product.target.name][flat.reshape(-1)] for table in (columns.member, columns.column))
    members, back = np.unique(member, return_inverse=True)
    vectors = np.zeros((points.lead, len(members), int(column.max(initial=-1)) + 1, points.total), np.float32)
    vectors[:, back, column] = _at(points, product.vector, product, ranges).reshape(points.lead, -1, points.total)

    before = _made_before(points, other, members, upstream(netsor, [product.vector.name]), step)
    stop = int(np.flatnonzero(before.any(axis=0)).max(initial=-1)) + 1
    before = before[:, :stop]
    factor = points.factor(other, members, stop) * before[..., None]
    along = (vectors @ points.normals[other][:, members, :stop].swapaxes(-1, -2)) / points.total
    found = along @ np.linalg.pinv(factor, SMALLEST)  # rows c with c factor = along
    found = (found * variances(netsor, product.weight.name)[members][:, None, None])[:, back, column]
    for coefficient in statement.coefficients:
        name = coefficient.target.name
        sizes = math.prod(family.shape), math.prod(netsor.families[coefficient.right.name].shape)
        entries = points.coefficients.setdefault(name, np.zeros((points.lead, *netsor.families[name].shape)))
        owned = columns.owner[other][members, :stop] == columns.families[other].index(coefficient.right.name)
        own, opposite = np.nonzero((owned & before)[back])
        places = columns.place[other][members, :stop][back[own], opposite]
        entries.reshape(points.lead, *sizes)[:, flat.reshape(-1)[own], places] = found[:, own, opposite]


def exact_coefficients(numbers: Numbers, statement: Corrected) -> dict[str, Value]:
    """The coefficients of a product, by name, from moments that need no points.

    Shapes    over REPLICATE, if there are replicates, and the positions of the coefficients
    """
    netsor, hat, lead = numbers.netsor, statement.product.target.name, numbers.over({})
    opposite = [coefficient.right.name for coefficient in statement.coefficients]
    sizes = {name: math.prod(netsor.families[name].shape) for name in (hat, *opposite)}

    def whole(value: Value, ranges: Mapping[str, Range], rows: str, columns: str) -> Array:
        spans = {axis: stop - start for axis, (start, stop) in (*lead.items(), *ranges.items())}
        both = [broadcast(part, tuple(spans), spans) for part in (value.value, value.error)]
        return np.stack(both).reshape(2, -1, sizes[rows], sizes[columns])  # values and errors

    moments, covariances = list[Array](), list[Array]()
    for coefficient, name in zip(statement.coefficients, opposite, strict=True):
        ranges = numbers.over(position_names(netsor, coefficient.target.name))
        value = numbers.average_of(netsor.families[coefficient.target.name].statements[0], ranges)
        moments.append(whole(value, ranges, hat, name))
        pairs = [(numbers.value_of(numbers.base(name, o)), numbers.pair_ranges(name, o), name, o) for o in opposite]
        covariances.append(np.concatenate([whole(*pair) for pair in pairs], axis=-1))
    (b, b_off), (c, c_off) = np.concatenate(moments, axis=-1), np.concatenate(covariances, axis=-2)
    columns = Columns(netsor, steps(netsor))
    rows, met = columns.member[hat], np.concatenate([columns.member[name] for name in opposite])
    same = (rows[:, None] == met) * variances(netsor, statement.product.weight.name)[rows][:, None]
    inverse = np.linalg.pinv(c, EXACT, hermitian=True)
    found = b @ inverse * same
    error = (b_off + np.abs(b @ inverse) @ c_off) @ np.abs(inverse) * same
    result, ends = {}, np.cumsum([sizes[name] for name in opposite])[:-1]
    for k, coefficient in enumerate(statement.coefficients):
        ranges = {**lead, **position_names(netsor, coefficient.target.name)}
        parts = (np.split(part, ends, axis=-1)[k] for part in (found, error))
        data, off = (part.reshape([stop - start for start, stop in ranges.values()]) for part in parts)
        result[coefficient.target.name] = Value.of(data, tuple(ranges), off)
    return result


def _at(points: VectorsAtPoints, vector: Variable, product: MatMul, ranges: Any) -> Array:
    """The vectors that a product multiplies, over the members of the product.

    Shapes    (replicates, *members, points)
    """
    names = [str(slot.bare) for slot in product.target.slots]
    sizes = {name: ranges[name][1] - ranges[name][0] for name in names}
    value = evaluate(vector, Scope(points.netsor, ranges, points.read))
    return np.asarray(
        broadcast(value, (REPLICATE, *names, COORDINATE), sizes | {REPLICATE: points.lead, COORDINATE: points.total})
    )


def _made_before(points: VectorsAtPoints, weight: str, members: Array, names: Any, step: int) -> Array:
    """Which products of a weight are made before a step and read by some vectors.

    Shapes    (weight members, columns)
    """
    columns, netsor = points.columns, points.netsor
    found = np.zeros((len(members), columns.owner[weight].shape[1]), bool)
    for each in points.steps[:step]:
        target = each.statement.target
        if columns.weight.get(target.name) == weight and isinstance(each.statement, MatMul) and target.name in names:
            family, ranges = netsor.families[target.name], each.ranges(netsor.ranges)
            flat = np.arange(math.prod(family.shape)).reshape(family.shape)
            flat = flat[place(target_box(each.statement, ranges), family.ranges)].reshape(-1)
            at = np.searchsorted(members, columns.member[target.name][flat])
            held = np.isin(columns.member[target.name][flat], members)
            found[at[held], columns.column[target.name][flat][held]] = True
    return found

"""Onsager terms: what products with W^T have fixed of products with W, and the other way round, in the limit.

With h_j = W^T y_j made before, W x is a fresh Gaussian vector, the hat of W x, plus a combination of the y_j,

    Z^{W x} = hat + v sum_j c_j Z^{y_j},        c = Cov(hats of h)^+ (E[hat_j Z^x])_j,

v the variance of W.  This is Stein's form of c_j = E[dZ^x / dhat_j]: it asks for no derivative, so functions may jump.
At points the hats of h are L z with normals z, so c is the pseudo-inverse of L^T times the means of z Z^x
(`VectorsAtPoints._coefficients`): the exact recursion of `finite.block.Lazy` with averages in place of sums.  Where x
needs no points and the product is in no recurrence (`by_moments`), c follows from the moments of the recursion itself,
and is exact where these are: for powers of W^T W, say.

Source    Yang 2020 (arXiv 2009.10685), NetsorT; Bolthausen 2014 for the conditioning behind it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import broadcast
from tensorprog.language.ir import Range
from tensorprog.language.weight_members import variances
from tensorprog.limit.form.definitions import Corrected
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.moment.numbers import EXACT, Numbers
from tensorprog.limit.moment.values import Value

__all__ = ["exact_coefficients"]

Array = NDArray[Any]


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
    member = numbers.weight_columns.member
    rows, met = member[hat], np.concatenate([member[name] for name in opposite])
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

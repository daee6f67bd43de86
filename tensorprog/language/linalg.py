"""Linear algebra for positive semidefinite matrices that may be singular.

Gram matrices of repeated, dependent or nearly dependent vectors are normal here, so factorisations must give exact
zeros in dependent directions: a normalised rounding residue would poison later products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

ASYMMETRY, INDEFINITE = 1e-10, 1e-8  # allowed whatever the precision of a covariance, relative to its largest entry
CLEAR = 1000  # tolerances: below, a pivot may be mostly rounding
COLUMNS = 32  # taken at a time off what is left of a matrix, so that large matrices cost products of matrices


def psd_cholesky(gram: Array) -> Array:
    """A matrix L with L L^T = gram, for positive semidefinite matrices of any rank.

    It is the lower triangle of LAPACK where every pivot is clearly above rounding, else that of `pivoted_cholesky`.

    Shapes    gram (..., m, m) -> (..., m, m)
    """
    return _factored(gram, lambda matrices: pivoted_cholesky(matrices)[0])


def _factored(gram: Array, otherwise: Callable[[Array], Array]) -> Array:
    """Triangles of LAPACK, or others where a pivot is small, which depends on each matrix alone."""
    m = gram.shape[-1]
    matrices = gram.reshape(math.prod(gram.shape[:-2]), m, m)
    factor = _plain_cholesky(matrices)
    singular = ~_clear(factor, matrices, CLEAR).all(axis=1)
    if singular.any():
        factor[singular] = otherwise(matrices[singular])
    return factor.reshape(gram.shape)


def _plain_cholesky(matrices: Array) -> Array:
    """Lower triangles by LAPACK; nan for matrices that it refuses, which are then taken one by one."""
    with suppress(np.linalg.LinAlgError):
        return np.linalg.cholesky(matrices)
    result = np.full_like(matrices, np.nan)
    for one, matrix in enumerate(matrices):
        with suppress(np.linalg.LinAlgError):
            result[one] = np.linalg.cholesky(matrix)
    return result


def _clear(factor: Array, matrices: Array, least: float) -> NDArray[np.bool_]:
    """Which pivots of lower triangles are above so many tolerances of the diagonal; none that is nan is."""
    pivots = np.einsum("bii->bi", factor) ** 2
    return np.asarray(pivots > least * _tolerance(matrices) * np.einsum("bii->bi", matrices))


def _tolerance(matrices: Array) -> float:
    """What counts as nothing of a squared length of 1."""
    return 64.0 * float(matrices.shape[-1]) * float(np.finfo(matrices.dtype).eps)


def pivoted_cholesky(gram: Array, scale: Array | None = None) -> tuple[Array, NDArray[np.intp]]:
    """L with L L^T = gram, a lower triangle up to the order of its rows, and that order.

    The next row is the one of which most is left relative to its scale; once no more than 64 m eps of any is left, the
    remaining columns are zero.  (Taking rows as they come would divide what a dropped pivot leaves behind by later
    small pivots.)

    Shapes    gram (..., m, m) -> L (..., m, m) and the rows in order (..., m): column j begins at row order[..., j], or
              is zero; scale (..., m): what squared lengths are compared with, by default the diagonal (of residuals,
              say, the squared lengths of the vectors they are left of)
    Scale     gram in any units u**2 gives a factor in u
    Accuracy  backward error of order m eps of the scale; an indefinite matrix is treated as one that is not, as near as
              can be; one with infinities or nan gives nan
    Source    Higham 2002, Accuracy and Stability of Numerical Algorithms, section 10.3 (complete pivoting)
    """
    m, lead = gram.shape[-1], gram.shape[:-2]
    matrices = gram.reshape(math.prod(lead), m, m)
    rest = np.einsum("bii->bi", matrices).copy()
    known = rest.copy() if scale is None else np.broadcast_to(scale, (*lead, m)).reshape(rest.shape)
    scaled = known > 0
    tolerance = _tolerance(matrices)
    factor = np.zeros_like(matrices)
    order = np.zeros(rest.shape, dtype=np.intp)
    left = np.ones(rest.shape, dtype=bool)  # rows not taken yet
    every, start = np.arange(len(matrices)), 0
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(matrices).all(axis=(1, 2))
        for j in range(m):
            # a quotient, so that what is left of rows of which nothing was taken is exactly 1, whatever the rounding
            share = np.where(left, np.divide(rest, known, out=np.zeros_like(rest), where=scaled), -1)
            row = share.argmax(axis=1)
            taken = share[every, row] > tolerance
            order[:, j] = row
            left[every, row] = False
            if not taken.any():
                break
            if j == start + COLUMNS:
                done, start = factor[:, :, start:j], j
                product = np.matmul(done, done.swapaxes(1, 2))
                matrices = np.subtract(matrices, product, out=product)
            column = matrices[every, :, row]
            if j > start:
                column = column - np.matmul(factor[:, :, start:j], factor[every, row, start:j, None])[..., 0]
            pivot = np.sqrt(np.where(taken, rest[every, row], 1))
            column = np.where(left & taken[:, None], column / pivot[:, None], 0)
            column[every, row] = np.where(taken, pivot, 0)
            factor[:, :, j] = column
            rest -= column * column
        factor[~finite] = np.nan
    return factor.reshape(gram.shape), order.reshape(*lead, m)


def unit_roundoff(values: Array) -> float:
    """The relative rounding that numbers show: that of the narrowest floating-point type that holds all of them."""
    with np.errstate(over="ignore"):
        kinds = (kind for kind in (np.float16, np.float32) if np.array_equal(values, values.astype(kind).astype(float)))
        return float(np.finfo(next(kinds, np.float64)).eps) / 2


def fault_of_covariance(matrix: Array) -> str:
    """What keeps a matrix from being a covariance: symmetric and positive semidefinite, up to the rounding it shows.

    Entries rounded to a relative u, after an operation or two, make a matrix E of errors with |E_ij| at most
    2 u sqrt(a_ii a_jj): its eigenvalues are at most 2 u times the trace, which is at most m times the largest of a.
    """
    if not np.isfinite(matrix).all():
        return "has entries that are not finite"
    unit, matrix = unit_roundoff(matrix), matrix / np.abs(matrix).max(initial=1e-300)
    if np.abs(matrix - matrix.T).max() > max(ASYMMETRY, 4 * unit):
        return "is not symmetric: it must not change when i and i_ swap"
    try:  # much quicker than eigenvalues, which are needed for the message only
        np.linalg.cholesky(matrix + 0.5 * INDEFINITE * np.eye(len(matrix)))
        return ""
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
    if lowest >= -max(INDEFINITE, 2 * unit * float(np.trace(matrix))):
        return ""
    return f"is not positive semidefinite (lowest eigenvalue {lowest:.3g} of its largest entry)"


def nearest_semidefinite(gram: Array) -> tuple[Array, float]:
    """The symmetric positive semidefinite matrix nearest to one, and its distance: how far eigenvalues go below 0.

    What double precision rounds is left alone: then the matrix is returned as it is, and the distance is 0.

    Shapes    gram (m, m), symmetric -> (m, m)
    Accuracy  the distance is that of the spectral norm, so that no entry changes by more
    """
    top = np.diagonal(gram).max(initial=0.0)
    try:  # much quicker than eigenvalues
        np.linalg.cholesky(gram + 64 * len(gram) * np.finfo(np.float64).eps * top * np.eye(len(gram)))
        return gram, 0.0
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(gram)
    near = vectors * np.maximum(values, 0.0) @ vectors.T
    return (near + near.T) / 2, max(0.0, -float(values[0]))


LEAST_PIVOT = 1e-14  # beside the variance


def triangular(cov: NDArray[Any]) -> NDArray[Any]:
    """Lower triangular factors, in the order given; a variable that those before it determine has pivot 0.

    It is determined where the pivot is rounding beside its variance.  LAPACK is ten times as quick where none is.

    Shapes    (..., d, d) -> (..., d, d)
    """
    return _factored(cov, lambda matrices: extended(np.zeros((len(matrices), 0, 0)), matrices))


def undetermined(cov: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
    """Deviations that may be left where pivots are rounding; negative where variables are others, in every number.

    Each is another multiple, from 1 to 2, of what rounding may leave, so that variables moved by them part.

    Shapes    cov, factor (..., d, d) -> (..., d)
    """
    var = np.einsum("...ii->...i", cov)
    lost = (np.einsum("...ii->...i", factor) == 0) & (var > 0)
    found = np.sqrt(np.where(lost, LEAST_PIVOT * var, 0.0)) * np.linspace(1, 2, var.shape[-1])
    if lost.any():
        equal = (cov == var[..., :, None]) & (cov == var[..., None, :])
        found = np.where(np.tril(equal, -1).any(axis=-1), -found, found)
    return found


def extended(known: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """The triangular factor of the first variables, with the rows of further ones from their covariances.

    Shapes    known (..., k, k), rows (..., d - k, d) -> (..., d, d)
    """
    done, size = known.shape[-1], rows.shape[-1]
    scale = np.einsum("...ii->...i", rows[..., done:])
    factor = np.zeros((*rows.shape[:-2], size, size), rows.dtype)
    factor[..., :done, :done] = known
    for k in range(size):
        first = max(k, done)
        rest = rows[..., first - done :, k] - (factor[..., first:, :k] @ factor[..., k, :k, None])[..., 0]
        pivot = np.square(factor[..., k, k]) if k < done else rest[..., 0]
        real = pivot > (0 if k < done else LEAST_PIVOT * scale[..., k - done])
        root = np.sqrt(np.where(real, pivot, 1.0))
        factor[..., first:, k] = np.where(real[..., None], rest / root[..., None], 0.0)
    return factor

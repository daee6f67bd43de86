"""Linear algebra for positive semidefinite matrices that may be singular.

Gram matrices of repeated or dependent vectors are normal here, so factorisations must give exact
zeros in dependent directions: a normalised rounding residue would poison later products.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

__all__ = ["psd_cholesky"]


def psd_cholesky(gram: Array, known: Array | None = None, cross: Array | None = None) -> Array:
    """Rows of the Cholesky factor of a positive semidefinite matrix, with zero columns at dependent pivots.

    With `known` (the factor of k earlier vectors) and `cross` (inner products of the m new with the k earlier
    vectors) it returns the m new rows of the factor of all k + m vectors; otherwise k = 0.

    Shapes    gram (..., m, m), known (..., k, k), cross (..., m, k) -> (..., m, k + m); batches broadcast
    Scale     gram in any units u**2 gives a factor in u
    Accuracy  a pivot below 64 (k + m) eps of its diagonal entry counts as zero; backward error of that order
    Raises    nothing: an indefinite input is treated as its nearest pivot-wise semidefinite one
    Source    Higham 2002, Accuracy and Stability, section 10.3 (semidefinite Cholesky), without pivoting
    """
    m = gram.shape[-1]
    k = 0 if known is None else known.shape[-1]
    if known is not None and cross is not None:
        batch = np.broadcast_shapes(gram.shape[:-2], known.shape[:-2], cross.shape[:-2])
    else:
        batch = gram.shape[:-2]
    rows = np.zeros((*batch, m, k + m), dtype=gram.dtype)
    tolerance = 64 * (k + m) * np.finfo(gram.dtype).eps
    for j in range(k + m):
        # left-looking: column j minus what the earlier columns explain
        if j < k:
            assert known is not None and cross is not None
            pivot = known[..., j, j]
            column = cross[..., :, j] - np.matmul(rows[..., :, :j], known[..., j, :j, None])[..., 0]
            start = 0
        else:
            i = j - k
            column = gram[..., i:, i] - np.matmul(rows[..., i:, :j], rows[..., i, :j, None])[..., 0]
            squared = column[..., 0]
            pivot = np.sqrt(np.where(squared > tolerance * gram[..., i, i], squared, 0))
            start = i
        safe = np.where(pivot > 0, pivot, 1)
        rows[..., start:, j] = np.where((pivot > 0)[..., None], column / safe[..., None], 0)
        if j >= k:
            rows[..., start, j] = pivot
    return rows

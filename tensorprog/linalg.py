"""Linear algebra for positive semidefinite matrices that may be singular.

Gram matrices of repeated or dependent vectors are normal here, so factorisations must give exact
zeros in dependent directions: a normalised rounding residue would poison later products.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

__all__ = ["psd_cholesky"]


def psd_cholesky(gram: Array, scale: Array | None = None) -> Array:
    """Lower Cholesky factor of a positive semidefinite matrix, with zero columns at dependent pivots.

    Shapes    gram (..., m, m) -> (..., m, m); scale (..., m): what pivots are compared with, by default the diagonal
              (of residuals, say, the squared lengths of the vectors they are left of)
    Scale     gram in any units u**2 gives a factor in u
    Accuracy  a pivot below 64 m eps of its scale counts as zero; backward error of that order
    Raises    nothing: an indefinite input is treated as its nearest pivot-wise semidefinite one
    Source    Higham 2002, Accuracy and Stability, section 10.3 (semidefinite Cholesky), without pivoting
    """
    m = gram.shape[-1]
    factor = np.zeros(gram.shape, dtype=gram.dtype)
    tolerance = 64 * m * np.finfo(gram.dtype).eps
    for j in range(m):
        # left-looking: column j minus what the earlier columns explain
        column = gram[..., j:, j]
        if j:
            column = column - np.matmul(factor[..., j:, :j], factor[..., j, :j, None])[..., 0]
        squared = column[..., 0]
        known = gram[..., j, j] if scale is None else scale[..., j]
        pivot = np.sqrt(np.where(squared > tolerance * known, squared, 0))
        safe = np.where(pivot > 0, pivot, 1)
        factor[..., j:, j] = np.where((pivot > 0)[..., None], column / safe[..., None], 0)
        factor[..., j, j] = pivot
    return factor

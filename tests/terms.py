"""Functions of one variable from sums of terms."""

import numpy as np

from tensorprog.gaussian import RealFunction
from tensorprog.gaussian.function import terms_call


def from_terms(terms, features=None, parity=0):
    """The function a list of terms defines: steps give its kinks, erf and gaussian their own features."""
    kinks = []
    centres = []
    widths = []
    for term in terms:
        scale = np.asarray(term.scale, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = np.asarray(np.where(scale == 0, np.inf, -np.asarray(term.shift) / scale))
            width = np.asarray(np.where(scale == 0, np.inf, 1 / np.abs(scale)))
        if term.kind == "step":
            kinks.append(centre)
        elif term.kind in ("erf", "gaussian", "sin", "cos", "exp"):
            centres.append(centre)
            widths.append(np.broadcast_to(width, centre.shape))
    shape = np.broadcast_shapes(*(np.shape(k) for k in kinks), *(np.shape(c) for c in centres))
    stacked = [np.broadcast_to(k, shape) for k in kinks]
    own = [
        np.stack([np.broadcast_to(c, shape), np.broadcast_to(w, shape)], axis=-1)
        for c, w in zip(centres, widths, strict=True)
    ]
    return RealFunction(
        call=terms_call(tuple(terms)),
        kinks=np.stack(stacked, axis=-1) if stacked else np.zeros(0),
        features=features if features is not None else (np.stack(own, axis=-2) if own else np.zeros((0, 2))),
        parity=parity,
        terms=tuple(terms),
    )

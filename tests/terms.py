"""Functions of one variable from sums of terms."""

import numpy as np
from scipy import special

from tensorprog.gaussian import RealFunction

KINDS = {
    "one": np.ones_like,
    "step": lambda t: (t > 0).astype(float),
    "erf": special.erf,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "gaussian": lambda t: np.exp(-0.5 * t * t),
}


def terms_call(terms):
    """The function of x (shape batch + (m,)) that the terms sum to."""

    def value(term, x):
        c, a, b = (np.asarray(number, dtype=float)[..., None] for number in (term.coefficient, term.scale, term.shift))
        return c * x**term.power * KINDS[term.kind](a * x + b)

    return lambda x: sum((value(term, x) for term in terms), np.zeros_like(x))


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

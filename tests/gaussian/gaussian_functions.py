"""Functions with terms, kinks and features written by hand: scales, shifts and widths that atoms do not have."""

import numpy as np
from scipy import special

from tensorprog.gaussian import FunctionTerm as Term
from tensorprog.gaussian import RealFunction

RELU = (Term(1.0, 1, "step"),)


def clip_terms(c):
    # -c + (x + c)_+ - (x - c)_+
    return (
        Term(-c, 0),
        Term(1.0, 1, "step", 1.0, c),
        Term(c, 0, "step", 1.0, c),
        Term(-1.0, 1, "step", 1.0, -c),
        Term(c, 0, "step", 1.0, -c),
    )


def softplus(x):
    return np.logaddexp(0.0, x)


ROOT = np.sqrt(0.5)
POINT = np.array([[0.0, 1.0]])
NONE = np.zeros(0)


def smooth(call, parity=0):
    return RealFunction(call, NONE, POINT, parity)


FUNCTIONS = {
    "identity": RealFunction(lambda x: x, NONE, parity=-1, terms=(Term(1.0, 1),)),
    "cube": RealFunction(lambda x: x**3 - x + 2, NONE, terms=(Term(1.0, 3), Term(-1.0, 1), Term(2.0, 0))),
    "relu": RealFunction(lambda x: np.maximum(x, 0), np.array([0.0]), terms=RELU),
    "abs": RealFunction(np.abs, np.array([0.0]), parity=1, terms=(Term(2.0, 1, "step"), Term(-1.0, 1))),
    "step": RealFunction(lambda x: (x > 0.5) * 1.0, np.array([0.5]), terms=(Term(1.0, 0, "step", 1.0, -0.5),)),
    "clip": RealFunction(lambda x: np.clip(x, -1, 1), np.array([-1.0, 1.0]), parity=-1, terms=clip_terms(1.0)),
    "wideclip": RealFunction(
        lambda x: np.clip(x, -100, 100), np.array([-100.0, 100.0]), parity=-1, terms=clip_terms(100.0)
    ),
    "erf": RealFunction(special.erf, NONE, POINT, -1, (Term(1.0, 0, "erf"),)),
    "gelu": RealFunction(lambda x: x * special.ndtr(x), NONE, POINT, 0, (Term(0.5, 1), Term(0.5, 1, "erf", ROOT))),
    "bell": RealFunction(lambda x: np.exp(-x * x), NONE, POINT, 1, (Term(1.0, 0, "gaussian", np.sqrt(2.0)),)),
    "sin": RealFunction(
        lambda x: np.sin(2 * x + 0.25), NONE, np.array([[0.0, 0.5]]), 0, (Term(1.0, 0, "sin", 2.0, 0.25),)
    ),
    "cos": RealFunction(np.cos, NONE, parity=1, terms=(Term(1.0, 0, "cos"),)),
    "exp": RealFunction(lambda x: np.exp(x / 2), NONE, terms=(Term(1.0, 0, "exp", 0.5),)),
    "xgaussian": RealFunction(
        lambda x: np.exp(-((2 * x - 1) ** 2) / 2),
        NONE,
        np.array([[0.5, 0.5]]),
        terms=(Term(1.0, 0, "gaussian", 2.0, -1.0),),
    ),
    "elu": RealFunction(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), np.array([0.0]), POINT),
    "tanh": smooth(np.tanh, -1),
    "sigmoid": smooth(special.expit),
    "softplus": smooth(softplus),
    "silu": smooth(lambda x: x * special.expit(x)),
    "gelu_tanh": smooth(lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2),
}

"""Monotonicity, kinks and relative moduli of atoms on an interval, and of the operators of arithmetic.

All is about functions of vectors and scores in the order "member by member".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorprog.check.certificates.profile import Kinks, Profile, join_kinks
from tensorprog.language.atoms import Atom, Interval
from tensorprog.language.expr import Call, Expr

__all__ = ["crossing", "moved", "relative_modulus", "trend", "unary_kinks"]

Trend = tuple[bool, bool]  # rises, falls


def _power(interval: Interval, exponent: float) -> Trend:
    # the derivative, exponent * x**(exponent - 1), has one sign on either side of 0
    low, high = interval
    whole, up = exponent == int(exponent), exponent >= 0
    if low >= 0 if up else low > 0:
        return up, not up
    if not whole:
        return False, False
    if exponent % 2:
        return up, not up and high < 0
    return not up and high < 0, up and high <= 0


def _valley(interval: Interval) -> Trend:
    return interval[0] >= 0, interval[1] <= 0


def _kinked(interval: Interval, slope: float) -> Trend:
    # slope `slope` below 0 and 1 above; elu's slope below 0 has the sign of alpha
    return slope >= 0 or interval[0] >= 0, slope <= 0 and interval[1] <= 0


# where monotonicity depends on the interval or on parameters
LOCAL: dict[str, Callable[..., Trend]] = {
    "abs": _valley,
    "gaussian": lambda interval: _valley(interval)[::-1],
    "power": _power,
    "leaky_relu": _kinked,
    "elu": _kinked,
}


def trend(atom: Atom, inner: Profile, params: Sequence[float]) -> Trend:
    """Whether an atom of one argument rises, falls as a function of all arguments."""
    local = LOCAL.get(atom.name)
    rises, falls = local(inner.interval, *params) if local else (atom.monotone > 0, atom.monotone < 0)
    return (
        (rises and inner.rises) or (falls and inner.falls) or (inner.rises and inner.falls),
        (rises and inner.falls) or (falls and inner.rises) or (inner.rises and inner.falls),
    )


# |x f'(x)| <= C (1 + |f(x)|): f varies, relative to its value, no more than its argument does relative to its own
STEADY = ("negative", "abs", "relu", "leaky_relu", "elu", "selu", "gelu", "silu", "softplus", "clip", "tanh", "sigmoid",
          "erf", "gaussian")


def relative_modulus(atom: Atom, inner: Profile, params: Sequence[float]) -> float:
    """Modulus of f(g) relative to its own value (`Profile.relative`)."""
    if atom.name == "exp":  # its own slope; and x exp(x) is bounded where x is bounded above
        return min(inner.modulus, inner.steepness if inner.high < math.inf else math.inf)
    away = inner.low > 0 or inner.high < 0
    regular = params[0] >= 1 or away if atom.name == "power" else atom.name in STEADY
    return inner.steepness if regular or (away and atom.name in ("sqrt", "log")) else math.inf


def unary_kinks(atom: Atom, argument: Expr, inner: Profile, params: Sequence[float]) -> Kinks:
    """Kinks of an atom of one argument: its own where its argument can be, and those of the argument."""
    if atom.kinks is None:
        return None
    own = tuple(k for k in atom.kinks(*params) if math.isfinite(k) and inner.low <= k <= inner.high)
    return join_kinks(inner.kinks, ((argument, own),))


def crossing(sides: Sequence[Expr], args: Sequence[Profile]) -> Kinks:
    """Where two expressions can be equal: at a threshold of one if the other is a number, else where they cross."""
    (first, second), (a, b) = sides, args
    if a.high < b.low or b.high < a.low or not (a.depends or b.depends):
        return ()
    if _narrow(b):
        return ((first, (b.high,)),)
    return ((second, (a.high,)),) if _narrow(a) else ((Call("subtract", (first, second)), (0.0,)),)


def _narrow(p: Profile) -> bool:
    """Whether a value is one number, up to rounding."""
    return p.constant or (not p.depends and p.high - p.low <= 1e-14 * abs(p.high))


# which way each argument moves the value
SIGNS = {"add": (1, 1), "subtract": (1, -1), "minimum": (1, 1), "maximum": (1, 1)}


def moved(node: Call, args: Sequence[Profile], found: Profile) -> Profile:
    """Monotonicity and kinks of an operator of two arguments that is neither a product nor a quotient."""
    kinks = join_kinks(*(p.kinks for p in args))
    if node.atom not in ("add", "subtract", "logical_and", "logical_or"):
        kinks = join_kinks(kinks, crossing(node.args, args))
    signs = SIGNS.get(node.atom)
    if signs is None:
        return replace(found, kinks=kinks)
    ways = [(p.rises, p.falls) if sign > 0 else (p.falls, p.rises) for p, sign in zip(args, signs, strict=True)]
    return replace(found, rises=all(r for r, _ in ways), falls=all(f for _, f in ways), kinks=kinks)

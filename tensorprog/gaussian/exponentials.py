"""E exp(a X + b) g(Y): the exponential moves the mean of Y by a times the covariance, and leaves its mass.

So exp(x) at a variance of 1000 does not overflow where exp(500) is the answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import FunctionTerm, RealFunction
from tensorprog.gaussian.integrand import FactoredIntegrand, Integrand
from tensorprog.gaussian.quadrature import integrate_line

__all__ = ["exponential_factor"]


def exponential_factor(integrand: Integrand) -> Callable[[FactoredIntegrand], Estimate] | None:
    """For two functions, one of which is a multiple of an exponential; the other is integrated over a line."""
    if not isinstance(integrand, FactoredIntegrand) or len(integrand.functions) == 1:
        return None
    found = [(k, term) for k, f in enumerate(integrand.functions) if (term := _exponential(f)) is not None]
    if not found:
        return None
    k, term = found[0]

    def answer(part: FactoredIntegrand) -> Estimate:
        mu, var, other = part.mu[k], part.var[k], 1 - k
        exponent = np.asarray(term.scale * mu + term.shift)
        gain = term.scale * term.scale * var / 2
        with np.errstate(over="ignore", invalid="ignore"):
            mass = np.asarray(term.coefficient * np.exp(exponent + gain))
            size = 2 + np.abs(term.scale * mu) + np.abs(term.shift) + 2 * gain
            moved = np.broadcast_to(part.mu[other] + term.scale * part.cov, part.shape)
            line = integrate_line([(part.functions[other], moved, np.broadcast_to(part.sd[other], part.shape))])
            return (Estimate(mass, np.asarray(2 * EPS * size * np.abs(mass))) * line).reshape(part.shape).settled()

    return answer


def _exponential(f: RealFunction) -> FunctionTerm | None:
    """The one term c exp(a x + b) that f consists of, if it does."""
    only = f.terms[0] if f.terms is not None and len(f.terms) == 1 else None
    return only if only is not None and only.kind == "exp" and only.power == 0 else None

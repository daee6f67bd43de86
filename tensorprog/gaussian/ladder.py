"""E f(X), E f(X) g(Y) and E f(Z) for Gaussian variables: one ladder of methods, each answering the members it can.

A method takes an integrand and returns how it answers parts of its batch (`Answer`: an infinite error where it cannot),
an `Estimate` of all members if there is nothing to improve, or None: ask the next. A member keeps the first answer
whose stated error is within the tolerance of the integrand (rounding, for functions of one and two variables), else the
answer with the smallest stated error. A new method is a file of its own and a line in LADDER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tensorprog.gaussian.arc_kernels import arc_kernel
from tensorprog.gaussian.closed_forms import closed_form
from tensorprog.gaussian.estimate import EPS, Estimate
from tensorprog.gaussian.function import RealFunction, evaluate
from tensorprog.gaussian.integrand import FactoredIntegrand, Integrand, toeplitz_values, toeplitz_view, unanswered
from tensorprog.gaussian.normal import CORRELATION_SLACK
from tensorprog.gaussian.quadrature import along_a_line, over_conditional_means, over_the_plane
from tensorprog.gaussian.series import MOST_LAWS, mehler_series
from tensorprog.gaussian.several import JointIntegrand, gauss_hermite, quasi_monte_carlo

Array = NDArray[np.floating]
Answer = Callable[[Any], Estimate]
Method = Callable[[Integrand], Answer | Estimate | None]

__all__ = ["LADDER", "Answer", "Method", "cross", "expectation", "integrate", "mean"]

GOOD = 2e-4  # asked of functions of several variables, relative to their size


def zero_by_parity(integrand: Integrand) -> Answer | None:
    """Exactly 0: odd times even at means 0, or an odd function of a variable at mean 0, independent of the other."""
    if not isinstance(integrand, FactoredIntegrand) or all(f.parity >= 0 for f in integrand.functions):
        return None

    def answer(part: FactoredIntegrand) -> Estimate:
        odd = [(f.parity < 0) & (mu == 0) for f, mu in zip(part.functions, part.mu, strict=True)]
        zero = odd[0] if len(odd) == 1 else (part.cov == 0) & (odd[0] | odd[1])
        if len(odd) == 2 and part.functions[0].parity * part.functions[1].parity < 0:
            zero = zero | ((part.mu[0] == 0) & (part.mu[1] == 0))
        return Estimate.exact(np.zeros(part.shape)).where(zero, unanswered(part.shape))

    return answer


def at_a_point(integrand: Integrand) -> Answer | None:
    """f(mu) where there is no variance, with the rounding of an evaluation."""
    if not isinstance(integrand, FactoredIntegrand) or len(integrand.functions) > 1 or np.all(integrand.var[0]):
        return None

    def value(part: FactoredIntegrand) -> Estimate:
        found = evaluate(part.functions[0], np.broadcast_to(part.mu[0], part.shape)[..., None])[..., 0]
        return Estimate(found, np.where(np.isfinite(found), 4 * EPS * np.abs(found), np.inf))

    return lambda part: part.for_members(np.broadcast_to(part.var[0] == 0, part.shape), value)


def independent(integrand: Integrand) -> Answer | None:
    """The product of two means."""
    if not isinstance(integrand, FactoredIntegrand) or len(integrand.functions) == 1:
        return None

    def product(part: FactoredIntegrand) -> Estimate:
        return (expectation(part.single(0)) * expectation(part.single(1))).reshape(part.shape)

    def answer(part: FactoredIntegrand) -> Estimate:
        chosen = np.broadcast_to(part.cov == 0, part.shape)
        if 2 * np.count_nonzero(chosen) < sum(places.size for places in part.places):
            return part.for_members(chosen, product)
        return product(part).where(chosen, unanswered(part.shape)) if chosen.any() else unanswered(part.shape)

    return answer


LADDER: tuple[Method, ...] = (
    arc_kernel,
    zero_by_parity,
    at_a_point,
    mehler_series,
    independent,
    closed_form,
    along_a_line,
    over_conditional_means,
    over_the_plane,
    gauss_hermite,
    quasi_monte_carlo,
)


def expectation(integrand: Integrand) -> Estimate:
    """The expectation of an integrand.

    Shapes    batch
    """
    if isinstance(integrand, FactoredIntegrand) and (cut := integrand.halves(MOST_LAWS)):
        axis, *halves = cut
        one, two = (expectation(half).reshape(half.shape) for half in halves)
        return Estimate(np.concatenate((one.value, two.value), axis), np.concatenate((one.error, two.error), axis))
    answers: list[Answer] = []
    for method in LADDER:
        answer = method(integrand)
        if isinstance(answer, Estimate):
            return answer
        if answer is not None:
            answers.append(answer)
    return integrand.in_parts(partial(_climbed, answers))


def _climbed(answers: Sequence[Answer], part: Integrand) -> Estimate:
    """Every method is asked about the members that those before it left open."""
    best = answers[0](part)
    for answer in answers[1:]:
        pending = part.pending(best)
        if not np.any(pending):
            break
        found = part.for_members(pending, answer)
        best = found.where((found.error < best.error) | np.isnan(best.value), best)
    return best


def mean(f: RealFunction, mu: ArrayLike, var: ArrayLike) -> Estimate:
    """E f(X) for X ~ N(mu, var).

    Shapes    mu, var and the parameters of f broadcast to the batch -> Estimate of shape batch
    Scale     any units; var = 0 means X = mu
    Accuracy  error bounds rounding for closed forms (f has terms) and estimates it, conservatively, for quadrature;
              exactly 0 for odd f and mu = 0; an integral that overflows has infinite error
    Raises    ValueError for a negative or non-finite argument, FloatingPointError if f returns nan
    """
    found = expectation(FactoredIntegrand.of((f,), (mu,), (var,)))
    return found.reshape(np.broadcast_shapes(found.value.shape, np.shape(mu), np.shape(var)))


def cross(
    f: RealFunction,
    g: RealFunction,
    mu_f: ArrayLike,
    mu_g: ArrayLike,
    var_f: ArrayLike,
    var_g: ArrayLike,
    cov: ArrayLike,
    *,
    slack: float = CORRELATION_SLACK,
    pairs: int = 0,
) -> Estimate:
    """E f(X) g(Y) for (X, Y) Gaussian with the given means, variances and covariance.

    `slack` is how far |cov| may exceed sqrt(var_f var_g), relatively; such a covariance counts as correlation +-1.
    `pairs` says that the last axes of the batch are (*i, *j) with so many indices i of X and as many j of Y, so that
    for one function and symmetric arguments the result is symmetric: half of it is computed, the other half read.

    Shapes    all arguments and the parameters of f and g broadcast to the batch -> Estimate of shape batch; where one
              bound on the error serves all members of an axis, its array has stride 0 along it
    Scale     any units; zero variances and correlations of exactly +-1 are ordinary arguments
    Accuracy  as `mean`; exactly 0 where both means are 0 and the parities opposite, and where cov = 0 and one of
              the two means of f(X), g(Y) is exactly 0
    Raises    ValueError for a negative or non-finite argument or |cov| beyond sqrt(var_f var_g),
              FloatingPointError if a function returns nan
    """
    integrand = FactoredIntegrand.of((f, g), (mu_f, mu_g), (var_f, var_g), cov, slack, pairs)
    numbers = (*integrand.mu, *integrand.var)
    stationary = pairs == 1 and integrand.cov.ndim == 2 and all(array.size == 1 for array in numbers)
    diagonals = toeplitz_values(integrand.cov) if stationary and integrand.plain else None
    if diagonals is None:
        found = expectation(integrand)
        return found.reshape(np.broadcast_shapes(found.value.shape, *map(np.shape, (mu_f, mu_g, var_f, var_g))))
    (a, b), (v, w) = ([array.ravel() for array in arrays] for arrays in (integrand.mu, integrand.var))
    found = expectation(FactoredIntegrand.of(integrand.functions, (a, b), (v, w), diagonals, slack))
    return Estimate(*(toeplitz_view(array, integrand.cov.shape) for array in (found.value, found.error)))


def integrate(call: Callable[[Array], Array], mu: Array, cov: Array, smooth: bool, tolerance: float = GOOD) -> Estimate:
    """E call(Z) for Z ~ N(mu, cov), batches of them, to an error of tolerance * sqrt(E call(Z)**2) where possible.

    Shapes    call maps z of shape batch + (dim, m) to batch + (m,); mu batch + (dim,), cov batch + (dim, dim)
              -> Estimate of shape batch
    Scale     any units; fewer points for each member of a larger batch
    Accuracy  differences of Gauss-Hermite rules, which mean something for smooth functions only, or what replicates of
              quasi-Monte Carlo state, whichever is smaller
    Raises    FloatingPointError if call returns nan
    """
    return expectation(JointIntegrand(call, mu, cov, smooth, tolerance))

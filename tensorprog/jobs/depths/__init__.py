"""Depth profiles: what happens to tokens from layer to layer, and the constants for which it is as wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

from tensorprog.finite.workers import one_blas_thread
from tensorprog.jobs.depths.networks import WIDTHS, curves_of_networks
from tensorprog.jobs.depths.profile import Curves, curves, curves_of_limit, gradients_of_limit, with_gradients
from tensorprog.jobs.depths.question import Question, Variant, ask
from tensorprog.jobs.depths.results import DepthProfile
from tensorprog.jobs.depths.root import NoSolutionError, Wanted, root
from tensorprog.language.errors import NotCompiledError, OutsideError, check_count, fail, need_xarray
from tensorprog.program import Program
from tensorprog.show.progress import Listener, watched

__all__ = ["DRAWS", "NETWORKS", "NoSolutionError", "depth", "per_replicate", "profile", "solve"]

DRAWS, NETWORKS = 4096, 1024
REPLICATES = 16


def depth(
    program: Any,
    of: str,
    *,
    index: str | None = None,
    to: int | None = None,
    over: Mapping[str, Iterable[Any]] | None = None,
    tokens: str | None = None,
    gradients: bool = False,
    width: int | Iterable[int] = (),
    draws: int = DRAWS,
    samples: int = NETWORKS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """What happens to the tokens of a family in every layer of the limit: `of` is its name, z of z[t,i].

    `index` is that of layers, by default the one in which the program goes on from layer to layer; `to` is the last
    layer, in place of the constant that bounds the index.  The tokens are the members along the index `tokens`, by
    default the last of the family; quantities are means over further indices.  `over` has values of constants,
    {"g": [1, 4, 16]}.  With widths, networks of these widths are drawn beside the limit.

    - variance: mean over tokens of `E[z_i**2]`
    - token_correlation: mean over pairs of tokens of `E[z_i z_j / sqrt(E z_i**2 E z_j**2)]`
    - effective_rank: exp of the entropy of the eigenvalues of the Gram matrix `E[z_i z_j]`, divided by its trace
    - attention_entropy: mean over all rows of softmaxes of scalars of the entropy of the row
    - kurtosis: mean over tokens of the fourth central moment over the squared variance
    - gradient_norm, with `gradients`: mean over tokens of the squared norm of the gradient of
      `sum_i xi_i . y_i / sqrt(n)` by z_i, for all outputs y_i with fresh standard normal xi_i, by the program that
      `tp.backward` makes: 1 for the identity; where no limit of gradients is claimed, as behind scores, networks of
      the widths 64, 128 and 256 are drawn, if no others are asked for

    Expectations over coordinates are given the scores; what they make is averaged over draws of the scores, the same
    for all values of constants, so that curves are smooth.  A quantity that there is none of is left out.

    Shapes    an xarray.Dataset: each quantity and NAME_error (*constants, layer); with widths NAME_finite and
              NAME_finite_se (*constants, width, layer); the attribute `grade` is that of the limit
    Accuracy  errors over `draws` draws of the scores hold with a probability of 99.9 %; without scores they are those
              of the moments; beside networks stand standard errors; what is extrapolated follows a line in 1/n, with
              its noise and how far it moves without the smallest width, and is no theorem
    Raises    ProgramError for mistakes, with place and advice; OutsideError, NotCompiledError where there is no limit,
              unless networks are asked for
    """
    need_xarray("depth profiles")
    question = ask(program, of, index, to, over, tokens, gradients)
    with nullcontext(progress) if progress is not None else watched("layers of the limit") as told:
        return profile(question, _widths(width), draws, samples, seed, _Telling(told)).to_xarray()


def solve(
    program: Any,
    constant: str,
    quantity: str,
    value: float,
    *,
    of: str,
    index: str | None = None,
    to: int | None = None,
    tokens: str | None = None,
    growth: bool = False,
    between: tuple[float, float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """The constant for which a quantity of the last layer of the limit has a value, and the error of that constant.

    `quantity` is one of those of `depth`, of the family `of`; with `growth` it is the factor by which the quantity
    changes from the last layer but one to the last.  Gradients go backwards: `gradient_norm` is that of the first
    layer, with `growth` its factor from the last layer to the one before.

    Values are tried outwards from that in the program, up to a thousand times as large and as small, or from one end of
    `between` to the other; the first that is met is given.

    Shapes    (value, error)
    Accuracy  the error of the quantity, as `depth` states it, divided by the slope of the quantity in the constant: to
              first order, with the probability of that error
    Raises    ProgramError for mistakes; NoSolutionError, with the values seen, where the quantity is never so large
    """
    question = ask(program, of, index, to, None, tokens, quantity == "gradient_norm")
    with one_blas_thread():
        found = root(question, Wanted(constant, quantity, float(value), growth), per_replicate(draws), seed, between)
    return found.value, found.error


class _Telling(Listener):
    """Passes on how many choices of constants are done."""

    def __init__(self, tell: Callable[[int, int], None] | None) -> None:
        self._tell = tell

    def progress(self, done: int, total: int) -> None:
        if self._tell is not None:
            self._tell(done, total)


def _widths(width: int | Iterable[int]) -> tuple[int, ...]:
    listed = list(width) if isinstance(width, Iterable) else [width]
    return tuple(dict.fromkeys(check_count("width", each) for each in listed))


def per_replicate(draws: int) -> int:
    """Draws of each of the replicates: a power of 2.

    Raises    ProgramError
    """
    each = check_count("draws", draws, REPLICATES) / REPLICATES
    return 1 << max(0, round(math.log2(each)))


def profile(
    question: Question, widths: tuple[int, ...], draws: int, samples: int, seed: int, told: Listener
) -> DepthProfile:
    """Compute what was asked."""
    each = per_replicate(draws)
    check_count("samples", samples, 2 * REPLICATES)
    check_count("seed", seed, 0)
    report = Program.from_netsor(question.base).check()
    found = DepthProfile(question, report, REPLICATES * each, samples, seed, {})
    backward = question.choices[0].backward
    gradient = None if backward is None else Program.from_netsor(backward).check()
    found.gradients = gradient
    with one_blas_thread():
        for number, choice in enumerate(question.choices):
            told.progress(number, len(question.choices))
            checked = Program.from_netsor(choice.netsor).check()
            try:
                if checked.grade == "outside":
                    raise OutsideError(f"no limit is claimed for {question.base.name}:\n{checked}")
                found.limit[choice.position] = curves_of_limit(question, choice, each, seed)
            except (OutsideError, NotCompiledError) as error:
                if not widths:
                    raise
                found.refused[choice.position] = str(error)
            if gradient is not None and choice.position in found.limit:
                try:
                    found.limit[choice.position] = _with_gradients(question, choice, found, gradient, each)
                except (OutsideError, NotCompiledError) as error:
                    found.refused_gradients[choice.position] = str(error)
            drawn = widths or (WIDTHS if choice.position in found.refused_gradients else ())
            for width in drawn:
                found.finite[choice.position, width] = curves_of_networks(question, choice, width, samples, seed)
    told.progress(len(question.choices), len(question.choices))
    if not found.names:
        raise fail(f"there is nothing to say of {question.axes.name}")
    return found


def _with_gradients(question: Question, choice: Variant, found: DepthProfile, report: Any, draws: int) -> Curves:
    """The limit's curves of one choice of constants with those of gradients.

    Raises    OutsideError where no limit of gradients is claimed, NotCompiledError
    """
    if report.grade == "outside":
        failing = ", ".join(dict.fromkeys(finding.rule for finding in report.failing))
        raise OutsideError(
            f"none is claimed ({failing}; tp.backward(P).check() says more); networks of given widths have gradients"
        )
    backward = curves(gradients_of_limit(question, choice, draws, found.seed))
    return with_gradients(question, choice, found.limit[choice.position], backward)

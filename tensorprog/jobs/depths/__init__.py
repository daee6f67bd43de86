"""Depth profiles: what happens to tokens from layer to layer, and the constants for which it is as wanted.

question    a family, its layers and tokens, constants: read and checked
quantities  variance, correlation, rank, entropy, kurtosis of the limit and of networks, layer by layer
results     the Dataset, tables, depth.png
solving     `solve`: the constant for which a quantity has a value
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorprog.finite.run import one_blas_thread
from tensorprog.jobs.choices import said
from tensorprog.jobs.depths.quantities import GROUPS, REPLICATES, measured, of_networks, per_replicate
from tensorprog.jobs.depths.question import Variant, ask
from tensorprog.jobs.depths.results import dataset, part
from tensorprog.jobs.depths.solving import NoSolutionError, Search
from tensorprog.language.errors import NotCompiledError, OutsideError, check_count, need_package
from tensorprog.program import Program

__all__ = ["DRAWS", "NETWORKS", "NoSolutionError", "depth", "solve"]

DRAWS, NETWORKS = 4096, 1024


def depth(
    program: Any,
    of: str,
    *,
    index: str | None = None,
    to: int | None = None,
    over: Mapping[str, Iterable[Any]] | None = None,
    gradients: bool = False,
    width: int | Iterable[int] = (),
    draws: int = DRAWS,
    samples: int = NETWORKS,
    seed: int = 0,
    max_memory: str | int = "1GiB",
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """What happens to the tokens of a family in every layer of the limit: `of` is its name, z of z[t,i].

    `index` is that of layers, by default the one in which the program goes on from layer to layer; `to` is the last
    layer, in place of the constant that bounds the index.  The tokens are the members along the last other index of the
    family; quantities are means over further indices.  `over` has values of constants, {"g": [1, 4, 16]}.  With widths,
    networks of these widths are drawn beside the limit.

    - variance: mean over tokens of `E[z_i**2]`
    - token_correlation: mean over pairs of tokens of `E[z_i z_j / sqrt(E z_i**2 E z_j**2)]`
    - effective_rank: exp of the entropy of the eigenvalues of the Gram matrix `E[z_i z_j]`, divided by its trace
    - attention_entropy: mean over all rows of softmaxes of scalars of the entropy of the row
    - kurtosis: mean over tokens of the fourth central moment over the squared variance
    - gradient_norm, with `gradients`: mean over tokens of the squared norm of the gradient of
      `sum_i xi_i . y_i / sqrt(n)` by z_i, for all outputs y_i with fresh standard normal xi_i, by the program that
      `tp.backward` makes: 1 for the identity; where no limit of gradients is claimed, as behind layers of scores,
      networks of the widths given have them

    Expectations over coordinates are given the scores; what they make is averaged over draws of the scores, the same
    for all values of constants, so that curves are smooth.  A quantity that there is none of is left out.

    Shapes    an xarray.Dataset: each quantity and NAME_error (*constants, layer); with widths NAME_finite and
              NAME_finite_se (*constants, width, layer); the attribute `grade` is that of the limit
    Accuracy  errors over `draws` draws of the scores hold with a probability of 99.9 %; without scores they are those
              of the moments; beside networks stand standard errors
    Raises    ProgramError for mistakes, with place and advice; OutsideError, NotCompiledError where there is no limit,
              unless networks are asked for; MemoryLimitError where `max_memory` does not suffice
    """
    need_package("xarray", "depth profiles", "sweep")
    question, each = ask(program, of, index, to, gradients, max_memory), per_replicate(draws)
    variants = question.variants(over)
    widths = dict.fromkeys(check_count("width", n) for n in ([width] if not isinstance(width, Iterable) else width))
    check_count("samples", samples, 2 * GROUPS), check_count("seed", seed, 0)
    report = Program.from_netsor(question.base).check()
    attributes: dict[str, Any] = {"grade": report.grade, "claims": json.dumps([str(claim) for claim in report.claims])}
    attributes |= {"draws": REPLICATES * each, "seed": str(seed)} | ({"samples": samples} if widths else {})
    attributes |= _gradients(variants[0])
    with_gradients = gradients and "no_gradients" not in attributes
    parts, refused = list[Any](), dict[str, str]()
    with one_blas_thread():
        for number, choice in enumerate(variants, 1):
            try:
                checked = Program.from_netsor(choice.netsor).check()
                if checked.grade == "outside":
                    raise OutsideError(f"no limit is claimed for {choice.netsor.name}:\n{checked}")
                kinds = [False, True] if with_gradients else [False]
                found = [measured(question, choice, each, seed, backward) for backward in kinds]
                curves = {name: value.curve() for kind in found for name, value in kind.items()}
                parts.append(part(choice.values, question.layers, curves, ("", "_error")))
            except (OutsideError, NotCompiledError) as error:
                if not widths:
                    raise
                refused[said(choice.values)] = str(error)
            for n in widths:
                curves = of_networks(question, choice, n, samples, seed)
                parts.append(part(choice.values | {"width": n}, question.layers, curves, ("_finite", "_finite_se")))
            if progress is not None:
                progress(number, len(variants))
    return dataset(question, variants, parts, attributes | ({"no_limit": json.dumps(refused)} if refused else {}))


def _gradients(choice: Variant) -> dict[str, str]:
    """The grade of the limit of gradients, and if none is claimed why."""
    if choice.backward is None:
        return {}
    report = Program.from_netsor(choice.backward).check()
    found = {"gradients_grade": str(report.grade)}
    if report.grade != "outside":
        return found
    failing = ", ".join(dict.fromkeys(finding.rule for finding in report.failing))
    said = f"none is claimed ({failing}; tp.backward(P).check() says more); networks of given widths have gradients"
    return found | {"no_gradients": said}


def solve(
    program: Any,
    constant: str,
    quantity: str,
    value: float,
    *,
    of: str,
    index: str | None = None,
    to: int | None = None,
    growth: bool = False,
    between: tuple[float, float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    max_memory: str | int = "1GiB",
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
    question = ask(program, of, index, to, quantity == "gradient_norm", max_memory)
    found = Search(question, constant, quantity, float(value), growth, draws, seed).find(between)
    return found["value"], found["error"]

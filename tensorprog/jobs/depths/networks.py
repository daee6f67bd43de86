"""The same quantities of networks of a given width: averages over their coordinates, then over networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tensorprog.jobs.depths.profile import Curves, curves, entropies, with_gradients
from tensorprog.jobs.depths.quantities import Sums
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.averages import unused
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.limit.law.by_layer import ordered
from tensorprog.program import Program

__all__ = ["FEWEST", "WIDTHS", "curves_of_networks", "extrapolated"]

Array = NDArray[np.float64]
GROUPS = 16  # of networks, whose spread is the standard error
ORDERS = (1, 2, 3, 4)
WIDTHS = (64, 128, 256)  # where nothing but networks answers
FEWEST = 3  # widths that tell how straight a line is
CERTAIN = 3.29  # standard errors of a bound with a probability of 99.9 %


def curves_of_networks(question: Question, choice: Variant, width: int, samples: int, seed: int) -> Curves:
    """The quantities at one width, with standard errors."""
    name, (layer, token) = question.axes.name, (question.axes.layer, question.axes.token)
    ranges = choice.larger.families[name].ranges
    taken = {*choice.larger.index, *choice.larger.families, *choice.larger.constant}
    names = [unused(f"place{k}", taken) for k in range(len(ranges))]
    second = list(names)
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    if token is not None:
        second[token] = unused("other", taken)
        indices.append(Index(second[token], *ranges[token]))
    extended = replace(choice.larger, indices=(*choice.larger.indices, *indices))
    one, two = Variable(name, slots_of(names)), Variable(name, slots_of(second))
    gram, raw = unused("gram", taken), [unused(f"moment{k}", taken) for k in ORDERS]
    free = ",".join([*names, *([second[token]] if token is not None else [])])
    averages = {f"{gram}[{free}]": str(one * two)}
    averages |= {f"{own}[{','.join(names)}]": str(one**k) for own, k in zip(raw, ORDERS, strict=True)}
    program, keep = Program.from_netsor(extended), [attention.name for attention in choice.attention]
    backward = None if choice.backward is None else _squares(question, choice.backward)
    parts, gradients = list[Sums](), list[Sums]()
    for group in range(GROUPS):
        drawn = program.run(width, max(1, samples // GROUPS), seed=GROUPS * seed + group, keep=keep, averages=averages)
        matrix = np.asarray(drawn.averages[gram])
        if token is None:
            matrix = matrix[..., None]
        grams = np.moveaxis(
            matrix, [1 + layer, *([1 + token] if token is not None else [])], [1, *([-2] if token is not None else [])]
        )
        grams = grams if token is not None else grams[..., None]
        tokens = grams.shape[-1]
        total = Sums()
        total.add(
            grams.reshape(*grams.shape[:2], -1, tokens, tokens),
            np.stack([ordered(np.asarray(drawn.averages[own]), question.axes) for own in raw]),
            entropies(question, choice, {own: np.asarray(drawn[own]) for own in keep}),
        )
        parts.append(total)
        if backward is not None:
            adjoint, squares = backward
            found = adjoint.run(width, max(1, samples // GROUPS), seed=GROUPS * seed + group, averages=squares)
            norms = ordered(np.asarray(found.averages[next(iter(squares)).partition("[")[0]]), question.gradient)
            gradients.append(Sums())
            gradients[-1].add(norms.mean(axis=-1)[..., None, None], None, None)
    forward = curves(parts, stated=False)
    return with_gradients(question, choice, forward, curves(gradients, stated=False)) if gradients else forward


def _squares(question: Question, backward: Netsor) -> tuple[Program, dict[str, str]]:
    """The adjoint program, and the averages that squared norms of gradients are."""
    name, ranges = question.gradient.name, backward.families[question.gradient.name].ranges
    taken = {*backward.index, *backward.families, *backward.constant}
    names = [unused(f"place{k}", taken) for k in range(len(ranges))]
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    square = f"{unused('square', taken)}[{','.join(names)}]"
    program = Program.from_netsor(replace(backward, indices=(*backward.indices, *indices)))
    return program, {square: str(Variable(name, slots_of(names)) ** 2)}


def extrapolated(found: Mapping[int, Curves]) -> Curves:
    """Where straight lines in 1/n through the values of several widths lead, each point weighted by its standard error.

    Accuracy  99.9 % bounds of the noise, and how far the line moves without the smallest width; no theorem says that
              networks follow a line
    """
    widths = sorted(found)
    values, errors = dict[str, Array](), dict[str, Array]()
    for name in found[widths[0]].values:
        value, error = (
            np.stack([getattr(found[width], part)[name] for width in widths]) for part in ("values", "errors")
        )
        whole, noise = _line(widths, value, error)
        values[name] = whole
        errors[name] = CERTAIN * noise + np.abs(whole - _line(widths[1:], value[1:], error[1:])[0])
    return Curves(values, errors)


def _line(widths: Sequence[int], value: Array, error: Array) -> tuple[Array, Array]:
    """The value at 1/n = 0 of the line of least squares, and its standard error.

    Shapes    value, error (widths, layers) -> (layers,), twice
    """
    x = 1 / np.array(widths)[:, None]
    # a number without noise, such as the gradient of the output itself, has all the weight there is
    weight = 1 / np.maximum(error, 1e-12 * np.maximum(np.abs(value), 1e-300)) ** 2
    total = weight.sum(axis=0)
    middle, mean = (weight * x).sum(axis=0) / total, (weight * value).sum(axis=0) / total
    spread = (weight * (x - middle) ** 2).sum(axis=0)
    slope = (weight * (x - middle) * value).sum(axis=0) / spread
    return mean - slope * middle, np.sqrt(1 / total + middle**2 / spread)

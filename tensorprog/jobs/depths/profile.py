"""Depth profiles of the limit: the quantities of every layer with their errors, for each choice of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, deviations, standard_errors
from tensorprog.jobs.depths.quantities import QUANTITIES, Sums, widened
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.limit.law.by_layer import LayerDraws
from tensorprog.limit.law.law import NumericLaw

__all__ = ["Curves", "curves", "curves_of_limit", "entropies", "gradients_of_limit", "sums_of_limit", "with_gradients"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """The quantities of one choice of constants over the layers, each with its error; nan where there is none.

    Shapes    each (layers,)
    """

    values: dict[str, Array]
    errors: dict[str, Array]


def sums_of_limit(
    question: Question, choice: Variant, draws: int, seed: int, replicates: int = REPLICATES
) -> list[Sums]:
    """Sums over the draws of each replicate, all of them or the first few; one where nothing is random."""
    law = NumericLaw(choice.larger)
    source = LayerDraws(law, question.axes, [attention.name for attention in choice.attention], seed)
    found: dict[int, Sums] = {}
    for piece in source.replicates(draws, replicates):
        total = found.setdefault(piece.replicate, Sums())
        total.add(piece.gram, piece.raw, entropies(question, choice, piece.scalars), piece.relative)
    return list(found.values())


def gradients_of_limit(
    question: Question, choice: Variant, draws: int, seed: int, replicates: int = REPLICATES
) -> list[Sums]:
    """The same sums of gradients, by the adjoint program: coordinates of its families are those of gradients."""
    assert choice.backward is not None
    source = LayerDraws(NumericLaw(choice.backward), question.gradient, (), seed, moments=False)
    found: dict[int, Sums] = {}
    for piece in source.replicates(draws, replicates):
        found.setdefault(piece.replicate, Sums()).add(piece.gram, None, None, piece.relative)
    return list(found.values())


def with_gradients(question: Question, choice: Variant, forward: Curves, backward: Curves) -> Curves:
    """Curves with the squared norms of gradients; nan in layers that no output depends on."""
    assert choice.backward is not None
    start, _ = choice.backward.families[question.gradient.name].ranges[question.axes.layer]
    both = []
    for found in (backward.values["variance"], backward.errors["variance"]):
        placed = np.full(len(question.layers), np.nan)
        for k, number in enumerate(found):
            if 0 <= start + k - question.layers[0] < len(placed):
                placed[start + k - question.layers[0]] = number
        both.append(placed)
    return Curves({**forward.values, "gradient_norm": both[0]}, {**forward.errors, "gradient_norm": both[1]})


def entropies(question: Question, choice: Variant, scalars: dict[str, Array]) -> Array | None:
    """The mean entropy of the rows of attention in each layer.

    Shapes    each of scalars (draws, *members) -> (draws, layers), nan where there is none
    """
    if not choice.attention:
        return None
    draws = max(len(value) for value in scalars.values())
    total, count = np.zeros((draws, len(question.layers))), np.zeros(len(question.layers))
    first = question.layers[0]
    for attention in choice.attention:
        value = np.broadcast_to(scalars[attention.name], (draws, *scalars[attention.name].shape[1:]))
        if attention.form is None:
            total += value.reshape(draws, -1).mean(axis=1)[:, None]
            count += 1
            continue
        rows = value.reshape(draws, value.shape[1], -1).mean(axis=-1)
        ((_, step),) = attention.form.terms
        for k in range(rows.shape[1]):
            layer = step * (attention.start + k) + attention.form.offset - first
            if 0 <= layer < len(question.layers):
                total[:, layer] += rows[:, k]
                count[layer] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def curves_of_limit(question: Question, choice: Variant, draws: int, seed: int) -> Curves:
    """The quantities in the limit, with errors that hold with a probability of 99.9 % where draws are averaged."""
    return curves(sums_of_limit(question, choice, draws, seed))


def curves(parts: Sequence[Sums], stated: bool = True, growth: bool = False) -> Curves:
    """Values from the sums of all parts, errors from how far the parts differ: as laws state them, or standard ones.

    With `growth` the factors by which the quantities change from layer to layer, beginning with the second.
    """
    whole = sum(parts, start=Sums())
    each = [part.values for part in parts]
    if growth:
        relative = whole.relative[..., 1:] + whole.relative[..., :-1] if whole.relative.ndim else whole.relative
        return _curves(_grown(whole.values), [_grown(values) for values in each], stated, whole.tokens, relative)
    return _curves(whole.values, each, stated, whole.tokens, whole.relative)


def _grown(values: dict[str, Array]) -> dict[str, Array]:
    """Factors from layer to layer."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {name: value[1:] / value[:-1] for name, value in values.items()}


def _curves(
    whole: dict[str, Array], each: Sequence[dict[str, Array]], stated: bool, tokens: int, relative: Array
) -> Curves:
    values, errors = dict[str, Array](), dict[str, Array]()
    for name in (name for name in QUANTITIES if name in whole):
        values[name] = whole[name]
        spread = standard_errors([found[name] for found in each]) if len(each) > 1 else np.zeros(values[name].shape)
        spread = spread if stated else spread / deviations(len(each))
        errors[name] = spread + widened(name, values[name], tokens, relative)
    return Curves(values, errors)

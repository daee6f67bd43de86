"""The quantities of every layer with their errors: of the limit, and of networks of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, deviations, standard_errors
from tensorprog.jobs.depths.quantities import QUANTITIES, Sums, widened
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.averages import unused
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.limit.law.by_layer import LayerDraws, ordered
from tensorprog.limit.law.law import NumericLaw
from tensorprog.program import Program

__all__ = ["Curves", "gradients_of_limit", "of_limit", "of_networks", "sums_of_limit"]

Array = NDArray[np.float64]
GROUPS = 16  # of networks, whose spread is the standard error
ORDERS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Curves:
    """The quantities of one choice of constants over the layers, each with its error; nan where there is none.

    Shapes    each (layers,)
    """

    values: dict[str, Array]
    errors: dict[str, Array]


def curves(parts: Sequence[Sums], stated: bool = True) -> Curves:
    """Values from the sums of all parts, errors from how far the parts differ: as laws state them, or standard ones."""
    whole = sum(parts, start=Sums())
    each = [part.values for part in parts]
    values, errors = whole.values, dict[str, Array]()
    for name in (name for name in QUANTITIES if name in values):
        spread = standard_errors([found[name] for found in each]) if len(each) > 1 else np.zeros(values[name].shape)
        spread = spread if stated else spread / deviations(len(each))
        errors[name] = spread + widened(name, values[name], whole.tokens, whole.relative)
    return Curves({name: values[name] for name in errors}, errors)


# ---- the limit -------------------------------------------------------------------------------------------------------


def sums_of_limit(question: Question, choice: Variant, draws: int, seed: int) -> list[Sums]:
    """Sums over the draws of each replicate; one where nothing is random."""
    source = LayerDraws(NumericLaw(choice.larger), question.axes, [each.name for each in choice.attention], seed)
    found: dict[int, Sums] = {}
    for piece in source.replicates(draws, REPLICATES):
        total = found.setdefault(piece.replicate, Sums())
        total.add(piece.gram, piece.raw, _entropies(question, choice, piece.scalars), piece.relative)
    return list(found.values())


def gradients_of_limit(question: Question, choice: Variant, draws: int, seed: int) -> list[Sums]:
    """The same sums of gradients, by the adjoint program: coordinates of its families are those of gradients."""
    assert choice.backward is not None
    source = LayerDraws(NumericLaw(choice.backward), question.gradient, (), seed, moments=False)
    found: dict[int, Sums] = {}
    for piece in source.replicates(draws, REPLICATES):
        found.setdefault(piece.replicate, Sums()).add(piece.gram, None, None, piece.relative)
    return list(found.values())


def of_limit(question: Question, choice: Variant, draws: int, seed: int, gradients: bool) -> Curves:
    """The quantities in the limit, with errors that hold with a probability of 99.9 % where draws are averaged."""
    found = curves(sums_of_limit(question, choice, draws, seed))
    if gradients:
        return _with_gradients(question, choice, found, curves(gradients_of_limit(question, choice, draws, seed)))
    return found


def _with_gradients(question: Question, choice: Variant, forward: Curves, backward: Curves) -> Curves:
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


def _entropies(question: Question, choice: Variant, scalars: dict[str, Array]) -> Array | None:
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


# ---- networks --------------------------------------------------------------------------------------------------------


def of_networks(question: Question, choice: Variant, width: int, samples: int, seed: int) -> Curves:
    """The same quantities at one width, averages over coordinates, then over networks, with standard errors."""
    name, (layer, token) = question.axes.name, (question.axes.layer, question.axes.token)
    program, names, taken = _indexed(choice.larger, name)
    second = list(names)
    if token is not None:
        second[token] = unused("other", taken)
        index = Index(second[token], *choice.larger.families[name].ranges[token])
        program = replace(program, indices=(*program.indices, index))
    one, two = Variable(name, slots_of(names)), Variable(name, slots_of(second))
    gram, raw = unused("gram", taken), [unused(f"moment{k}", taken) for k in ORDERS]
    free = ",".join([*names, *([second[token]] if token is not None else [])])
    averages = {f"{gram}[{free}]": str(one * two)}
    averages |= {f"{own}[{','.join(names)}]": str(one**k) for own, k in zip(raw, ORDERS, strict=True)}
    keep = [attention.name for attention in choice.attention]
    parts, gradients = list[Sums](), list[Sums]()
    for group in range(GROUPS):
        each, own_seed = max(1, samples // GROUPS), GROUPS * seed + group
        drawn = Program.from_netsor(program).run(width, each, seed=own_seed, keep=keep, averages=averages)
        matrix = np.asarray(drawn.averages[gram])
        if token is None:
            grams = np.moveaxis(matrix, 1 + layer, 1)[..., None, None]
        else:
            grams = np.moveaxis(matrix, [1 + layer, 1 + token], [1, -2])
        total = Sums()
        total.add(
            grams.reshape(*grams.shape[:2], -1, *grams.shape[-2:]),
            np.stack([ordered(np.asarray(drawn.averages[own]), question.axes) for own in raw]),
            _entropies(question, choice, {own: np.asarray(drawn[own]) for own in keep}),
        )
        parts.append(total)
        if choice.backward is not None:
            adjoint, places, _ = _indexed(choice.backward, question.gradient.name)
            square = str(Variable(question.gradient.name, slots_of(places)) ** 2)
            norms = Program.from_netsor(adjoint).run(
                width, each, seed=own_seed, averages={f"square[{','.join(places)}]": square}
            )
            gradients.append(Sums())
            norm = ordered(np.asarray(norms.averages["square"]), question.gradient)
            gradients[-1].add(norm.mean(axis=-1)[..., None, None], None, None)
    forward = curves(parts, stated=False)
    if not gradients:
        return forward
    return _with_gradients(question, choice, forward, curves(gradients, stated=False))


def _indexed(netsor: Netsor, name: str) -> tuple[Netsor, list[str], set[str]]:
    """The program with an index for each place of a family, their names, and all names that are taken then."""
    ranges = netsor.families[name].ranges
    taken = {*netsor.index, *netsor.families, *netsor.constant}
    names = [unused(f"place{k}", taken) for k in range(len(ranges))]
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    return replace(netsor, indices=(*netsor.indices, *indices)), names, taken

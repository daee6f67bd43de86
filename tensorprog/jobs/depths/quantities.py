"""The quantities of every layer with their errors, of the limit and of networks of a given width.

    variance             mean over tokens of E[z_i**2]
    token_correlation    mean over pairs of tokens of E[z_i z_j / sqrt(E z_i**2 E z_j**2)]
    effective_rank       E of exp of the entropy of the eigenvalues of the Gram matrix over its trace
    attention_entropy    mean over rows of E[-sum_j a_j log a_j]
    kurtosis             mean over tokens of the fourth central moment over the squared variance
    gradient_norm        mean over tokens of |d(sum xi . y / sqrt(n)) / dz_i|**2, xi standard normal for every output

Inner expectations are over coordinates, given the scores; the outer ones over draws of the scores.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, deviations, standard_errors
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.averages import unused
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.limit.law.by_layer import LayerDraws, ordered
from tensorprog.limit.law.law import NumericLaw
from tensorprog.program import Program

__all__ = ["LONG_NAMES", "Curves", "Sums", "merged", "of_limit", "of_networks", "parts_of_limit", "widened"]

Array = NDArray[np.float64]
Curves = dict[str, tuple[Array, Array]]  # quantity -> values and errors, each (layers,)
LONG_NAMES = {
    "variance": "mean square of a coordinate",
    "token_correlation": "mean correlation of two tokens",
    "effective_rank": "effective rank of the tokens",
    "attention_entropy": "entropy of attention",
    "kurtosis": "kurtosis (Gaussian = 3)",
    "gradient_norm": "squared norm of the gradient",
}
TINY = 1e-300
GROUPS = 16  # of networks, whose spread is the standard error
ORDERS = (1, 2, 3, 4)


def _correlations(gram: Array) -> Array:
    """The mean over pairs of tokens of their correlation.

    Shapes    gram (..., tokens, tokens) -> (...)
    """
    tokens = gram.shape[-1]
    root = np.sqrt(np.maximum(np.einsum("...ii->...i", gram), TINY))
    found = gram / root[..., :, None] / root[..., None, :]
    total = found.sum(axis=(-2, -1)) - np.einsum("...ii->...", found)
    return np.asarray(total / (tokens * (tokens - 1)))


def _effective_ranks(gram: Array) -> Array:
    """exp of the entropy of the eigenvalues, divided by their sum: 1 for equal tokens, their number for orthogonal
    ones of one length.

    Shapes    gram (..., tokens, tokens) -> (...)
    """
    trace = np.maximum(np.einsum("...ii->...", gram), TINY)
    share = np.maximum(np.linalg.eigvalsh(gram / trace[..., None, None]), 0.0)
    share = share / share.sum(axis=-1, keepdims=True)
    return np.asarray(np.exp(-np.sum(share * np.log(np.maximum(share, TINY)), axis=-1)))


def widened(name: str, value: Array, tokens: int, relative: Array) -> Array:
    """What errors of Gram matrices, relative to the lengths of tokens, do to a quantity at most.

    A correlation moves by twice the error.  Of eigenvalues that add up to 1, the sum of all moves is at most t = tokens
    times twice the error, and an entropy by no more than t log(tokens / t) (Fannes).

    Shapes    value (layers,), relative (2, layers), of diagonals and of all entries -> (layers,)
    """
    diagonal, relative = np.broadcast_to(relative, (2, *value.shape))
    if name == "token_correlation":
        return 2 * relative
    if name == "effective_rank":
        moved = np.clip(2 * tokens * relative, TINY, 1 / math.e)
        return np.asarray(value * np.expm1(moved * np.log(tokens / moved)))
    return np.asarray((4 if name == "kurtosis" else 1) * diagonal * np.abs(value))


class Sums:
    """Sums over draws, from which the quantities of all layers follow.

    Shapes    each sum (layers,), plain moments (orders, layers, others, tokens)
    """

    def __init__(self) -> None:
        self.draws, self.tokens, self.sums, self.relative = 0, 1, dict[str, Array](), np.zeros(())

    def include(self, draws: int, tokens: int, sums: Mapping[str, Array], relative: Array) -> None:
        """Sums over more draws."""
        self.draws, self.tokens, self.relative = self.draws + draws, tokens, np.maximum(self.relative, relative)
        for name, value in sums.items():
            self.sums[name] = np.asarray(self.sums.get(name, 0.0) + value)

    def add(self, gram: Array, raw: Array | None, entropy: Array | None, relative: Array | float = 0.0) -> None:
        """More draws; without plain moments `raw` there is no kurtosis.

        Shapes    gram (draws, layers, others, tokens, tokens), raw (orders, draws, layers, others, tokens),
                  entropy (draws, layers), nan where there is no attention
        """
        tokens = gram.shape[-1]
        found = {"variance": np.einsum("...ii->...", gram) / tokens}
        if tokens > 1:
            found |= {"token_correlation": _correlations(gram), "effective_rank": _effective_ranks(gram)}
        sums = {name: value.mean(axis=2).sum(axis=0) for name, value in found.items()}
        if entropy is not None:
            sums["attention_entropy"] = entropy.sum(axis=0)
        sums["raw"] = np.asarray(math.nan) if raw is None else raw.sum(axis=1)
        self.include(len(gram), tokens, sums, np.asarray(relative))

    @property
    def values(self) -> dict[str, Array]:
        """The quantities by name.

        Shapes    each (layers,)
        """
        found = {name: np.asarray(total / self.draws) for name, total in self.sums.items()}
        raw = found.pop("raw")
        if np.isfinite(raw).any():
            mean, second, third, fourth = raw
            with np.errstate(over="ignore", invalid="ignore"):  # nan where the fourth moment is no number
                central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
                kurtosis = central / np.maximum(second - mean**2, TINY) ** 2
            found["kurtosis"] = np.asarray(kurtosis.mean(axis=(-2, -1)))
        return found


def merged(parts: Sequence[Sums]) -> Sums:
    """The sums over the draws of all parts."""
    whole = Sums()
    for part in parts:
        whole.include(part.draws, part.tokens, part.sums, part.relative)
    return whole


def _curves(parts: Sequence[Sums], stated: bool = True) -> Curves:
    """Values from the sums of all parts, errors from how far the parts differ: as laws state them, or standard ones."""
    whole, each = merged(parts), [part.values for part in parts]
    found = Curves()
    for name, value in whole.values.items():
        spread = standard_errors([own[name] for own in each]) if len(each) > 1 else np.zeros(value.shape)
        spread = spread if stated else spread / deviations(len(each))
        found[name] = value, spread + widened(name, value, whole.tokens, whole.relative)
    return found


def parts_of_limit(question: Question, choice: Variant, draws: int, seed: int, backward: bool = False) -> list[Sums]:
    """Sums over the draws of each replicate, one where nothing is random; `backward` of gradients, by the adjoint
    program: coordinates of its families are those of gradients.
    """
    if backward:
        assert choice.backward is not None
        source = LayerDraws(NumericLaw(choice.backward), question.gradient, (), seed, moments=False)
    else:
        source = LayerDraws(NumericLaw(choice.larger), question.axes, choice.entropies, seed)
    found = defaultdict[int, Sums](Sums)
    for piece in source.replicates(draws, REPLICATES):
        entropy = _entropies(question, choice, piece.scalars)
        found[piece.replicate].add(piece.gram, piece.raw, entropy, piece.relative)
    return list(found.values())


def of_limit(question: Question, choice: Variant, draws: int, seed: int, gradients: bool) -> Curves:
    """The quantities in the limit, with errors that hold with a probability of 99.9 % where draws are averaged."""
    found = _curves(parts_of_limit(question, choice, draws, seed))
    if gradients:
        found |= _norms(question, choice, _curves(parts_of_limit(question, choice, draws, seed, backward=True)))
    return found


def _norms(question: Question, choice: Variant, found: Curves) -> Curves:
    """Squared norms of gradients from variances of the adjoint program; nan in layers that no output depends on."""
    assert choice.backward is not None
    first = choice.backward.families[question.gradient.name].ranges[question.axes.layer][0] - question.layers[0]
    placed = np.full((2, len(question.layers)), np.nan)
    placed[:, first : first + len(found["variance"][0])] = found["variance"]
    return {"gradient_norm": (placed[0], placed[1])}


def _entropies(question: Question, choice: Variant, scalars: Mapping[str, Array]) -> Array | None:
    """The mean entropy of the rows of attention in each layer.

    Shapes    each of scalars (draws, layers of attention, ...) -> (draws, layers), nan where there is none
    """
    if not scalars:
        return None
    shape = max(map(len, scalars.values())), len(question.layers)
    total, count = np.zeros(shape), np.zeros(shape[1])
    for name, value in scalars.items():
        rows = value.reshape(*value.shape[:2], -1).mean(axis=-1)
        layers = np.arange(*choice.larger.families[name].ranges[0]) - question.layers[0]
        inside = (layers >= 0) & (layers < shape[1])
        total[:, layers[inside]] += rows[:, inside]
        count[layers[inside]] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def of_networks(question: Question, choice: Variant, width: int, samples: int, seed: int) -> Curves:
    """The same quantities at one width, averages over coordinates, then over networks, with standard errors."""
    axes, token = question.axes, question.axes.token
    program, places, taken = _indexed(choice.larger, axes.name)
    second, others = list(places), list[str]()
    if token is not None:
        second[token] = unused("other", taken)
        others = [second[token]]
        index = Index(second[token], *choice.larger.families[axes.name].ranges[token])
        program = replace(program, indices=(*program.indices, index))
    one, two = Variable(axes.name, slots_of(places)), Variable(axes.name, slots_of(second))
    gram, raw = unused("gram", taken), [unused(f"moment{k}", taken) for k in ORDERS]
    averages = {f"{gram}[{','.join([*places, *others])}]": str(one * two)}
    averages |= {f"{own}[{','.join(places)}]": str(one**k) for own, k in zip(raw, ORDERS, strict=True)}
    parts, gradients = list[Sums](), list[Sums]()
    for group in range(GROUPS):
        each, own_seed = max(1, samples // GROUPS), GROUPS * seed + group
        sampler = Program.from_netsor(program)
        drawn = sampler.run(width, each, seed=own_seed, keep=choice.entropies, averages=averages)
        matrix = np.asarray(drawn.averages[gram])
        if token is None:
            matrix = np.moveaxis(matrix, 1 + axes.layer, 1)[..., None, None]
        else:
            matrix = np.moveaxis(matrix, [1 + axes.layer, 1 + token], [1, -2])
        parts.append(Sums())
        parts[-1].add(
            matrix.reshape(*matrix.shape[:2], -1, *matrix.shape[-2:]),
            np.stack([ordered(np.asarray(drawn.averages[own]), axes) for own in raw]),
            _entropies(question, choice, {own: np.asarray(drawn[own]) for own in choice.entropies}),
        )
        if choice.backward is not None:
            adjoint, own, _ = _indexed(choice.backward, question.gradient.name)
            square = {f"square[{','.join(own)}]": str(Variable(question.gradient.name, slots_of(own)) ** 2)}
            norms = Program.from_netsor(adjoint).run(width, each, seed=own_seed, averages=square).averages["square"]
            gradients.append(Sums())
            gradients[-1].add(ordered(np.asarray(norms), question.gradient).mean(axis=-1)[..., None, None], None, None)
    found = _curves(parts, stated=False)
    return found | (_norms(question, choice, _curves(gradients, stated=False)) if gradients else {})


def _indexed(netsor: Netsor, name: str) -> tuple[Netsor, list[str], set[str]]:
    """The program with an index for each place of a family, their names, and all names that are taken then."""
    ranges = netsor.families[name].ranges
    taken = {*netsor.index, *netsor.families, *netsor.constant}
    names = [unused(f"place{k}", taken) for k in range(len(ranges))]
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    return replace(netsor, indices=(*netsor.indices, *indices)), names, taken

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import REPLICATES, deviations, standard_errors
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.averages import unused
from tensorprog.language.errors import check_count
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.limit.law.by_layer import LayerDraws, ordered
from tensorprog.limit.law.law import NumericLaw
from tensorprog.program import Program

__all__ = ["GROUPS", "LONG_NAMES", "REPLICATES", "Curves", "Measured", "measured", "of_networks", "per_replicate"]

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


@dataclass(frozen=True)
class Measured:
    """A quantity in every layer: over all draws, in each of several groups of them, and what errors of moments add.

    Shapes    whole, wide (layers,), each (groups, layers)
    """

    whole: Array
    each: Array
    wide: Array

    def curve(self, stated: bool = True) -> tuple[Array, Array]:
        """Values, and errors from how far the groups differ: as laws state them, or standard ones."""
        count = len(self.each)
        spread = standard_errors(list(self.each)) if count > 1 else np.zeros(self.whole.shape)
        spread = np.where(np.isnan(spread) & np.isfinite(self.whole), math.inf, spread)  # one draw has no kurtosis
        return self.whole, spread / (1 if stated else deviations(count)) + self.wide


def _sums(gram: Array, raw: Array | None, entropy: Array | None) -> dict[str, Array]:
    """Sums over draws, from which the quantities of all layers follow; without plain moments there is no kurtosis.

    Shapes    gram (draws, layers, others, tokens, tokens), raw (orders, draws, layers, others, tokens), entropy
              (draws, layers) -> each (layers,), plain moments (orders, layers, others, tokens)
    """
    tokens, diagonal = gram.shape[-1], np.einsum("...ii->...i", gram)
    found = {"variance": diagonal.mean(axis=-1)}
    if tokens > 1:
        root, trace = np.sqrt(np.maximum(diagonal, TINY)), np.maximum(diagonal.sum(axis=-1), TINY)
        correlations = gram / root[..., :, None] / root[..., None, :]
        total = correlations.sum(axis=(-2, -1)) - np.einsum("...ii->...", correlations)
        found["token_correlation"] = total / (tokens * (tokens - 1))
        share = np.maximum(np.linalg.eigvalsh(gram / trace[..., None, None]), 0.0)
        share = share / share.sum(axis=-1, keepdims=True)
        found["effective_rank"] = np.exp(-np.sum(share * np.log(np.maximum(share, TINY)), axis=-1))
    sums = {name: value.mean(axis=2).sum(axis=0) for name, value in found.items()}
    sums |= {} if entropy is None else {"attention_entropy": entropy.sum(axis=0)}
    return sums | ({} if raw is None else {"raw": raw.sum(axis=1)})


def _quantities(means: dict[str, Array]) -> dict[str, Array]:
    """Means over draws with the kurtosis in place of plain moments.

    Shapes    each (..., layers), plain moments (..., orders, layers, others, tokens)
    """
    if "raw" not in means or not np.isfinite(means["raw"]).any():
        return {name: value for name, value in means.items() if name != "raw"}
    mean, second, third, fourth = np.moveaxis(means.pop("raw"), -4, 0)
    with np.errstate(all="ignore"):  # nan where the fourth moment is no number
        central = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
        kurtosis = (central / np.maximum(second - mean**2, TINY) ** 2).mean(axis=(-2, -1))
    return means | {"kurtosis": np.where(np.isfinite(kurtosis), kurtosis, math.nan)}


def _widened(name: str, value: Array, tokens: int, relative: Array) -> Array:
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


def _gathered(parts: Iterable[tuple[int, Any, Any, Any, Any, Any]]) -> dict[str, Measured]:
    """The quantities of draws that come in parts: the number of the group, Gram matrices, plain moments, entropies,
    relative errors of Gram matrices and errors of entropies.  Groups are of one size.
    """
    unknown, draws = 0.0, 0
    groups, relative, tokens = dict[int, tuple[int, dict[str, Array]]](), np.zeros(()), 1
    for group, gram, raw, entropy, wrong, error in parts:
        count, before = groups.get(group, (0, {}))
        sums = {name: value + before.get(name, 0.0) for name, value in _sums(gram, raw, entropy).items()}
        groups[group] = count + len(gram), sums
        relative, tokens, draws = np.maximum(relative, wrong), gram.shape[-1], draws + len(gram)
        unknown = unknown + (0.0 if error is None else error.sum(axis=0))
    means = {name: np.stack([sums[name] / count for count, sums in groups.values()]) for name in sums}
    whole, each = _quantities({name: value.mean(axis=0) for name, value in means.items()}), _quantities(means)
    wide = {name: _widened(name, v, tokens, relative) for name, v in whole.items()}
    if "attention_entropy" in wide:
        wide["attention_entropy"] = wide["attention_entropy"] + unknown / draws
    return {name: Measured(v, each[name], wide[name]) for name, v in whole.items()}


def measured(question: Question, choice: Variant, draws: int, seed: int, backward: bool = False) -> dict[str, Measured]:
    """The quantities in the limit over replicates of so many draws, one where nothing is random; `backward` the norms
    of gradients, by the adjoint program: coordinates of its families are those of gradients.
    """
    law = NumericLaw((choice.backward if backward else None) or choice.larger, max_memory=question.max_memory)
    with law.budget.within():
        if backward:
            source = LayerDraws(law, question.gradient, (), seed, moments=False)
        else:
            source = LayerDraws(law, question.axes, choice.entropies, seed)
        found = _gathered(
            (piece.replicate, piece.gram, piece.raw, _entropies(question, choice, piece.scalars), piece.relative,
             _entropies(question, choice, piece.errors))
            for piece in source.replicates(draws, REPLICATES)
        )  # fmt: skip
    return {"gradient_norm": _placed(question, choice, found["variance"])} if backward else found


def _placed(question: Question, choice: Variant, norm: Measured) -> Measured:
    """Squared norms of gradients from variances of the adjoint program; nan in layers that no output depends on."""
    assert choice.backward is not None
    start, _ = choice.backward.families[question.gradient.name].ranges[question.axes.layer]
    before = start - question.layers[0]
    ends = before, len(question.layers) - before - len(norm.whole)
    parts = (norm.whole, norm.each, norm.wide)
    return Measured(*(np.pad(x, [(0, 0)] * (x.ndim - 1) + [ends], constant_values=math.nan) for x in parts))


def per_replicate(draws: int) -> int:
    """Draws of each of the replicates: a power of 2.

    Raises    ProgramError
    """
    return 1 << max(0, round(math.log2(check_count("draws", draws, REPLICATES) / REPLICATES)))


def _entropies(question: Question, choice: Variant, scalars: Mapping[str, Array]) -> Array | None:
    """The mean entropy of the rows of attention in each layer.

    Shapes    each of scalars (draws, layers of attention, ...) -> (draws, layers), nan where there is none
    """
    if not scalars:
        return None
    found = np.full((len(scalars), max(map(len, scalars.values())), len(question.layers)), math.nan)
    for own, (name, value) in zip(found, scalars.items(), strict=True):
        layers = np.arange(*choice.larger.families[name].ranges[0]) - question.layers[0]
        inside = (layers >= 0) & (layers < len(question.layers))
        own[:, layers[inside]] = value.reshape(*value.shape[:2], -1).mean(axis=-1)[:, inside]
    mean: Any = np.ma.masked_invalid(found).mean(axis=0)
    return np.asarray(mean.filled(math.nan))


def of_networks(question: Question, choice: Variant, width: int, samples: int, seed: int) -> Curves:
    """The same quantities at one width, averages over coordinates, then over networks, with standard errors."""
    axes, token, size = question.axes, question.axes.token, samples // GROUPS
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

    def run(netsor: Netsor, **asked: Any) -> Any:
        return Program.from_netsor(netsor).run(width, GROUPS * size, seed=seed, max_memory=question.max_memory, **asked)

    def found(gram: Array, raw: Array | None, entropy: Array | None) -> dict[str, Measured]:
        cuts = [slice(k * size, (k + 1) * size) for k in range(GROUPS)]
        parts = ((gram[s], raw if raw is None else raw[:, s], entropy if entropy is None else entropy[s]) for s in cuts)
        return _gathered((k, *part, 0.0, None) for k, part in enumerate(parts))

    drawn = run(program, keep=choice.entropies, averages=averages)
    matrix = drawn.averages[gram] if others else drawn.averages[gram][..., None]
    known = found(
        np.stack([ordered(matrix[..., k], axes) for k in range(matrix.shape[-1])], axis=-1),
        np.stack([ordered(drawn.averages[own], axes) for own in raw]),
        _entropies(question, choice, {own: drawn[own] for own in choice.entropies}),
    )
    if choice.backward is not None:
        adjoint, own, _ = _indexed(choice.backward, question.gradient.name)
        square = {f"square[{','.join(own)}]": str(Variable(question.gradient.name, slots_of(own)) ** 2)}
        norms = ordered(run(adjoint, averages=square).averages["square"], question.gradient).mean(axis=-1)
        norm = found(norms[..., None, None], None, None)["variance"]
        known["gradient_norm"] = _placed(question, choice, norm)
    return {name: value.curve(stated=False) for name, value in known.items()}


def _indexed(netsor: Netsor, name: str) -> tuple[Netsor, list[str], set[str]]:
    """The program with an index for each place of a family, their names, and all names that are taken then."""
    ranges = netsor.families[name].ranges
    taken = {*netsor.index, *netsor.families, *netsor.constant}
    names = [unused(f"place{k}", taken) for k in range(len(ranges))]
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    return replace(netsor, indices=(*netsor.indices, *indices)), names, taken

"""The same quantities of networks of a given width: averages over their coordinates, then over networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorprog.jobs.depths.profile import Curves, curves, entropies, with_gradients
from tensorprog.jobs.depths.quantities import Sums
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index, Netsor
from tensorprog.limit.law.by_layer import ordered
from tensorprog.program import Program

__all__ = ["curves_of_networks"]

GROUPS = 16  # of networks, whose spread is the standard error
ORDERS = (1, 2, 3, 4)


def curves_of_networks(question: Question, choice: Variant, width: int, samples: int, seed: int) -> Curves:
    """The quantities at one width, with standard errors."""
    name, (layer, token) = question.axes.name, (question.axes.layer, question.axes.token)
    ranges = choice.larger.families[name].ranges
    taken = {*choice.larger.index, *choice.larger.families, *choice.larger.constant}
    names = [_unused(f"place{k}", taken) for k in range(len(ranges))]
    second = list(names)
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    if token is not None:
        second[token] = _unused("other", taken)
        indices.append(Index(second[token], *ranges[token]))
    extended = replace(choice.larger, indices=(*choice.larger.indices, *indices))
    one, two = Variable(name, slots_of(names)), Variable(name, slots_of(second))
    gram, raw = _unused("gram", taken), [_unused(f"moment{k}", taken) for k in ORDERS]
    free = ",".join([*names, *([second[token]] if token is not None else [])])
    averages = {f"{gram}[{free}]": str(one * two)}
    averages |= {f"{own}[{','.join(names)}]": str(one**k) for own, k in zip(raw, ORDERS, strict=True)}
    program, keep = Program.from_netsor(extended), [attention.name for attention in choice.attention]
    parts, gradients = list[Sums](), list[Sums]()
    for group in range(GROUPS):
        drawn = program.run(width, max(1, samples // GROUPS), seed=GROUPS * seed + group, keep=keep, averages=averages)
        matrix = np.asarray(drawn.averages[gram])
        if token is None:
            matrix = matrix[..., None]
        grams = np.moveaxis(matrix, [1 + layer, *([1 + token] if token is not None else [])],
                            [1, *([-2] if token is not None else [])])
        grams = grams if token is not None else grams[..., None]
        tokens = grams.shape[-1]
        total = Sums()
        total.add(grams.reshape(*grams.shape[:2], -1, tokens, tokens),
                  np.stack([ordered(np.asarray(drawn.averages[own]), question.axes) for own in raw]),
                  entropies(question, choice, {own: np.asarray(drawn[own]) for own in keep}))
        parts.append(total)
        if choice.backward is not None:
            gradients.append(_gradients(question, choice.backward, width, max(1, samples // GROUPS),
                                        GROUPS * seed + group))
    found = curves(parts, stated=False)
    return with_gradients(question, choice, found, curves(gradients, stated=False)) if gradients else found


def _gradients(question: Question, backward: Netsor, width: int, samples: int, seed: int) -> Sums:
    """Squares of gradients of some networks, as diagonals of Gram matrices."""
    name, ranges = question.gradient.name, backward.families[question.gradient.name].ranges
    taken = {*backward.index, *backward.families, *backward.constant}
    names = [_unused(f"place{k}", taken) for k in range(len(ranges))]
    indices = [Index(own, *span) for own, span in zip(names, ranges, strict=True)]
    square = _unused("square", taken)
    program = Program.from_netsor(replace(backward, indices=(*backward.indices, *indices)))
    drawn = program.run(width, samples, seed=seed,
                        averages={f"{square}[{','.join(names)}]": str(Variable(name, slots_of(names)) ** 2)})
    squares = ordered(np.asarray(drawn.averages[square]), question.gradient).mean(axis=-1)
    total = Sums()
    total.add(squares[..., None, None], None, None)
    return total


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "x"
    taken.add(name)
    return name

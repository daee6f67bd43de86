"""The same quantities of networks of a given width: averages over their coordinates, then over networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorprog.jobs.depths.profile import Curves, curves, entropies
from tensorprog.jobs.depths.quantities import Sums
from tensorprog.jobs.depths.question import Question, Variant
from tensorprog.language.expr import Variable, slots_of
from tensorprog.language.ir import Index
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
    parts = []
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
    return curves(parts, stated=False)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "x"
    taken.add(name)
    return name

"""Clips that never act: what a program can be drawn without at a width, and how surely.

clip(u, -100, 100) is u unless a coordinate passes 100, and a Gaussian vector need not be drawn in all its coordinates.
So a plan leaves out clips of Gaussian vectors that act in no network that anybody will ever draw.

The bound.  Let e^-L be small.  A standard normal g exceeds z = sqrt(2 L) in size with a probability of at most e^-L,
and a standard normal vector G of R^n has |G|^2 > n t, where t = 1 + 2 sqrt(L / n) + 2 L / n, with a probability of at
most e^-L (Laurent & Massart 2000, Lemma 1).  Now go through the program.  An initial vector is m + d G.  A product u
= W x by weights that made nothing upstream of x has, given x, independent coordinates N(0, sigma^2 |x|^2 / n_in):
wherever |x|^2 <= n_in r^2, |u_a| <= sigma r z for every coordinate and |u|^2 <= n_out sigma^2 r^2 t, but for n_out +
1 events of conditional probability at most e^-L.  So all vectors stay within their bounds outside N events, where N
counts the coordinates, and once more the members, of all initial vectors and products upstream.  There a clip left
out is its argument: the laws of M networks with and without it differ by at most M N e^-L in total variation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from tensorprog.finite.demand import vectors_of
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Call, Variable, free_indices, is_call, variables
from tensorprog.language.initials import initial_laws
from tensorprog.language.ir import MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.language.weight_members import variances

__all__ = ["LEAST", "LeftOut", "without_inactive"]

LeftOut = tuple[tuple[Nonlin, Nonlin], ...]  # statements as they are written, and as they are drawn
LEAST = -45  # decimal logarithm of the probability that a clip left out acts in one network, at most
SLACK = 1 + 1e-9  # for the rounding of bounds
FAR = math.inf, math.inf


def without_inactive(netsor: Netsor, widths: Mapping[str, int], kept: Collection[str]) -> LeftOut:
    """The statements y = clip(x, low, high) of Gaussian vectors x that act in no network, without their clips.

    `widths` are whole numbers by name.
    """
    sizes = {name: math.prod(family.shape) for name, family in netsor.families.items()}
    needed = upstream(netsor, kept)
    events = sum((widths[netsor.families[name].width] + 1) * sizes[name] for name in needed & vectors_of(netsor))
    level = math.log(max(events, 1)) - LEAST * math.log(10)
    reach: dict[str, tuple[float, float]] = {}  # of coordinates, and of their root mean square
    behind: dict[str, frozenset[str]] = {}  # weights that made a family

    def gaussian(name: str, mean: float, deviation: float) -> None:
        ratio = level / widths[netsor.families[name].width]
        far = mean + deviation * math.sqrt(2 * level) * SLACK
        reach[name] = far, mean + deviation * math.sqrt(1 + 2 * math.sqrt(ratio) + 2 * ratio) * SLACK

    for name, law in initial_laws(netsor).items():
        gaussian(name, float(np.abs(law.mean).max()), math.sqrt(float((law.factor**2).sum(-1).max())))
    found = []
    for statement in netsor.body:
        name = statement.target.name
        single = len(netsor.families[name].statements) == 1
        made = (behind.get(reference.name, frozenset()) for reference in statement.inputs)
        behind[name] = behind.get(name, frozenset()).union(*made)
        if isinstance(statement, MatMul):
            weight, rms = statement.weight.name, reach.get(statement.vector.name, FAR)[1]
            if single and weight not in behind[name] and not statement.transposed and rms < math.inf:
                gaussian(name, 0.0, math.sqrt(float(variances(netsor, weight).max(initial=0.0))) * rms)
            behind[name] |= {weight}
        elif isinstance(statement, Nonlin) and isinstance(clip := statement.expr, Call) and is_call(clip, "clip"):
            x, *ends = clip.args
            if isinstance(x, Variable) and not any(map(variables, ends)):
                low, high = (index_array(netsor, end, free_indices(end)) for end in ends)
                far, rms = reach.get(x.name, FAR)
                if low.max() <= -far and far <= high.min() and name in needed:
                    found.append((statement, replace(statement, expr=x)))
                if single and low.max() <= 0 <= high.min():
                    most = float(max(-low.min(), high.max()))
                    reach[name] = min(far, most), min(rms, most)
    return tuple(found)

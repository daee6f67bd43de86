"""The figures by name."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorprog.paper.convergence import Convergence
from tensorprog.paper.densities import Densities
from tensorprog.paper.experiment import WIDTHS, Case, Drawing, Together
from tensorprog.paper.scores import Scores

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: what it is called there, what it shows, and its drawing."""

    name: str
    title: str
    shows: str
    drawing: Drawing
    rows: int = 2  # of its legend


def _cases(program: str, heads: int) -> tuple[Case, ...]:
    return tuple(Case(program, n, (("H", heads),)) for n in WIDTHS)


def _lowrank(heads: int, dimension: int = 64) -> Case:
    # the paper's scripts add the heads up without 1/sqrt(H)
    return Case("attention_lowrank", dimension * heads, (("H", heads),), math.sqrt(heads))


FIGURES = {figure.name: figure for figure in (
    Figure("fig1a", "Fig. 1 (A)", "densities of an output for n = 16, 64, 256, 1024 at H = 2, and their limit",
           Densities(_cases("attention", 2))),
    Figure("fig1b", "Fig. 1 (B)", "KL divergence from the limit against n, over several trials, with its noise floor",
           Together({"H2": Convergence(_cases("attention", 2)), "H1": Convergence(_cases("attention", 1))}), rows=3),
    Figure("fig2a", "Fig. 2 (A)", "a score at n = 256 on the scales 1/sqrt(n) and 1/n, and the limits",
           Scores(Case("attention", 256, (("H", 2),)))),
    Figure("fig2b", "Fig. 2 (B)", "an output at n = 256 for H = 1 and 256, the limits, and infinitely many heads",
           Densities(tuple(Case("attention", 256, (("H", heads),)) for heads in (1, 256)), histogram=True)),
    Figure("fig3", "Fig. 3", "low-rank attention, heads of dimension 64, for H = 1, 4, 16, and the limits",
           Densities(tuple(map(_lowrank, (1, 4, 16))), reach=10.0), rows=3),
    Figure("relu", "Fig. 1 with ReLU", "Fig. 1 (A) and (B) with ReLU in place of clipping",
           Together({"densities": Densities(_cases("attention_relu", 2)),
                     "kl": Convergence(_cases("attention_relu", 2))}), rows=3),
)}

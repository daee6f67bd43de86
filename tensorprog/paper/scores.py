"""A score under the scales 1/sqrt(n) and 1/n: Fig. 2 (A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorprog.comparison import compare
from tensorprog.paper import drawing
from tensorprog.paper.experiment import Case, Data, Settings, chosen, stacked
from tensorprog.study import Listener

__all__ = ["Scores"]

SCORE = "p[0,0,0]"
AVERAGE = {"average": "q[0,0] * k[0,0]"}  # the same operands on the scale 1/n
POWERS = (0.5, 1.0)  # of 1/n
NAMES = ("$1/\\sqrt{n}$", "$1/n$")
BINS = 60
REACH = 4.5  # standard deviations on either side
POINTS = 401


@dataclass(frozen=True)
class Scores:
    """Two panels, linear and on a log scale: histograms of one score on both scales, from the same networks."""

    case: Case
    panels = 2

    def cost(self, settings: Settings) -> float:
        """Rough seconds for drawing networks."""
        return self.case.cost(settings)

    def data(self, settings: Settings, told: Listener) -> Data:
        """Histograms; the density of the limit under 1/sqrt(n), whose limit under 1/n is the number zero."""
        net = self.case.networks(settings, told, averages=AVERAGE)
        law = self.case.reference.law
        draws = (net["p"].reshape(net.samples, -1)[:, 0], net.averages["average"])
        bars = []
        for power, x in zip(POWERS, draws, strict=True):
            reach = REACH * float(x.std())
            density, edges = np.histogram(x, np.linspace(-reach, reach, BINS + 1))
            bars.append(({"power": power}, {"left": edges[:-1], "right": edges[1:],
                                            "density": density / (len(x) * np.diff(edges))}))
        reach = 1.1 * REACH * math.sqrt(law.var(SCORE))
        y = np.linspace(-reach, reach, POINTS)
        limit, error = law.density(SCORE, y, with_error=True)
        table = {"y": y, "limit": limit, "limit_error": np.broadcast_to(error, y.shape)}
        found = compare(net, self.case.reference, [SCORE, "average"])
        row, average = found[SCORE], found.average("average")
        n = self.case.width
        lines = [
            f"1/sqrt(n): variance {row.variance:.4f} ± {row.variance_se:.4f}, limit {row.limit_variance:.4f}; "
            f"kurtosis {row.kurtosis:.3f} ± {row.kurtosis_se:.3f}, limit 3",
            f"1/n: standard deviation {average.std:.5f} ± {average.std_se:.5f}, 1/sqrt(n) = {n**-0.5:.5f}; limit 0",
        ]
        rows = [row.to_json() | {"power": 0.5}, average.to_json() | {"power": 1.0}]
        numbers = {"variable": SCORE, "rows": [found | self.case.key | self.case.run(net) for found in rows]}
        return Data({"histogram": stacked(bars), "": table}, numbers, lines)

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Both panels show the same."""
        limit = data.tables[""]
        for ax, kind in zip(axes, ("", ", log scale"), strict=True):
            handles = []
            for power, name, colour in zip(POWERS, NAMES, drawing.colours(2), strict=True):
                table = chosen(data.tables["histogram"], {"power": power})
                handles.append(drawing.bars(ax, table, colour, f"n = {self.case.width}, {name}"))
            first, second = drawing.colours(2)
            handles.append(drawing.curve(ax, limit["y"], limit["limit"], first, f"limit, {NAMES[0]}"))
            handles.append(drawing.spike(ax, second, f"limit, {NAMES[1]}: point mass at 0"))
            drawing.labels(ax, f"score {SCORE}", f"probability density{kind}")
        axes[0].set_xlim(-3, 3)
        axes[1].set_yscale("log")
        axes[1].set_xlim(limit["y"][0], limit["y"][-1])
        axes[1].set_ylim(1e-5, 20)
        return handles

"""A score under the scales 1/sqrt(n) and 1/n: Fig. 2 (A)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.language.formats import quantity

from . import drawing
from .experiment import Case, Data, Listener, Settings, Table, chosen, stacked

Array = NDArray[Any]

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

    def data(self, settings: Settings, told: Listener) -> Data:
        """Histograms; the density of the limit under 1/sqrt(n), whose limit under 1/n is the number zero."""
        net = self.case.networks(settings, told, averages=AVERAGE)
        draws = (net["p"].reshape(net.samples, -1)[:, 0], net.averages["average"])
        bars = [({"power": power}, _histogram(x)) for power, x in zip(POWERS, draws, strict=True)]
        found = tp.compare(net, self.case.reference, [SCORE, *AVERAGE])
        row, average = found[SCORE], found["average"]
        deviation = math.sqrt(average.variance)
        lines = [
            f"1/sqrt(n): variance {quantity(row.variance, row.variance_se)}, limit {row.limit_variance:.6g}; "
            f"kurtosis {quantity(row.kurtosis, row.kurtosis_se)}, limit {row.limit_kurtosis:.6g}",
            f"1/n: standard deviation {quantity(deviation, average.variance_se / (2 * deviation))}, "
            f"limit {math.sqrt(average.limit_variance):.6g}",
        ]
        rows = [row.to_json() | {"power": 0.5}, average.to_json() | {"power": 1.0}]
        numbers = {"variable": SCORE, "rows": [found | self.case.key | self.case.run(net) for found in rows]}
        return Data({"histogram": stacked(bars), "": self._limit()}, numbers, lines)

    def _limit(self) -> Table:
        """The density under 1/sqrt(n)."""
        law = self.case.reference.law
        reach = 1.1 * REACH * math.sqrt(law.var(SCORE))
        y = np.linspace(-reach, reach, POINTS)
        limit, error = law.density(SCORE, y, with_error=True)
        return {"y": y, "limit": limit, "limit_error": np.broadcast_to(error, y.shape)}

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Both panels show the same; a density exists under 1/sqrt(n) only."""
        limit = data.tables[""]
        reaches = {"linear": (-3, 3), "log": (limit["y"][0], limit["y"][-1])}
        for ax, (kind, reach) in zip(axes, reaches.items(), strict=True):
            handles = []
            for power, name, colour in zip(POWERS, NAMES, drawing.colours(2), strict=True):
                table = chosen(data.tables["histogram"], {"power": power})
                handles.append(drawing.bars(ax, table, colour, f"n = {self.case.width}, {name}", power == POWERS[1]))
            first, second = drawing.colours(2)
            handles.append(drawing.curve(ax, limit["y"], limit["limit"], first, f"limit, {NAMES[0]}"))
            handles.append(drawing.spike(ax, second, f"limit, {NAMES[1]}: point mass at 0"))
            ax.set_xlim(*reach)
            if kind == "log":
                ax.set_yscale("log")
                ax.set_ylim(1e-5, 20)
            drawing.labels(ax, f"score {SCORE}", "probability density")
        return handles


def _histogram(x: Array) -> Table:
    """A histogram about zero; draws beyond it count in its mass."""
    reach = REACH * float(x.std())
    counts, edges = np.histogram(x, np.linspace(-reach, reach, BINS + 1))
    return {"left": edges[:-1], "right": edges[1:], "density": counts / (len(x) * np.diff(edges))}

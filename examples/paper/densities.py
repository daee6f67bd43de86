"""Densities of an output at finite width beside those of the limit: Fig. 1 (A), Fig. 2 (B), Fig. 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.language.formats import chance, quantity
from tensorprog.results.conditional import gaussians
from tensorprog.results.distances import KL_POINTS, binned_kde

from . import drawing
from .experiment import HEADS, OUTPUT, Case, Data, Listener, Settings, chosen, stacked

Array = NDArray[Any]

REACH = 10.0  # standard deviations on either side
BIN = 0.2  # of the histograms, in standard deviations
POINTS = 41  # of precise densities


@dataclass(frozen=True)
class Densities:
    """Two panels: kernel estimates or histograms with the limits, and on a log scale the tails.

    Cases of one limit share its curve.  `reach` is the range of the linear panel.  With histograms there is a third
    panel, in which what differs can be seen: what networks and limits have more than the Gaussian.
    """

    cases: tuple[Case, ...]
    reach: float = 3.0
    histogram: bool = False

    @property
    def panels(self) -> int:
        """Panels side by side."""
        return 3 if self.histogram else 2

    @property
    def one_limit(self) -> bool:
        """Whether all cases have the same limit."""
        return len({(case.program, case.constants) for case in self.cases}) == 1

    @property
    def _name(self) -> str:
        """What stands on the horizontal axis."""
        return OUTPUT if all(case.scale == 1 for case in self.cases) else rf"$\sqrt{{H}}$ {OUTPUT}"

    def data(self, settings: Settings, told: Listener) -> Data:
        """Curves, histograms, tails, and the comparison of each case with its limit.

        Accuracy  `limit_error` bounds the error of the limit's density; `error` in the tails is a counting error
        """
        curves, bars, tails, precise, rows = [], [], [], [], []
        for case in self.cases:
            net = case.networks(settings, told, conditional=True)
            x = net["y"][:, 0] * case.scale
            spread = case.spread * case.scale
            curves.append((case.key, _curves(case, x, spread)))
            if self.histogram:
                bars.append((case.key, _histogram(x, BIN * spread)))
                precise.append((case.key, _precise(case, net, self.reach)))
            tails.append((case.key, dict(zip(("y", "density", "error"), tp.plots.tail_bins(x), strict=True))))
            row = tp.compare(net, case.reference, [OUTPUT])[OUTPUT].to_json()
            rows.append(row | case.key | case.run(net) | {"scale": case.scale})
        tables = {"": stacked(curves), "tails": stacked(tails)}
        tables |= {"histogram": stacked(bars), "precise": stacked(precise)} if self.histogram else {}
        return Data(tables, {"variable": OUTPUT, "rows": rows}, [_line(row) for row in rows])

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """The linear panel, then the log panel, then that of differences."""
        linear, log, *differences = axes
        pairs = list(zip(self.cases, drawing.colours(len(self.cases)), strict=True))
        handles = [self._finite(linear, log, data, case, colour, k) for k, (case, colour) in enumerate(pairs)]
        curves, tails = data.tables[""], data.tables["tails"]
        for ax in differences:
            for k, (case, colour) in enumerate(pairs):
                own = chosen(curves, case.key)
                drawing.difference(ax, chosen(data.tables["precise"], case.key), own["y"], own["gaussian"], colour, k)
        for case, colour in pairs[:1] if self.one_limit else pairs:
            own = chosen(curves, case.key)
            shade, name = (drawing.LIMIT, "limit") if self.one_limit else (colour, f"limit, H = {case.heads}")
            dotted = not self.one_limit and case is self.cases[-1] and self.histogram
            handles.append(drawing.both(drawing.curve, (linear, log), own["y"], own["limit"], shade, name, dotted))
            for ax in differences:
                drawing.curve(ax, own["y"], own["limit"] - own["gaussian"], shade, name, dotted)
        for case in {case.scale: case for case in self.cases}.values():  # variances differ by the scale only
            own = chosen(curves, case.key)
            gaussian = drawing.both(drawing.gaussian, (linear, log), own["y"], own["gaussian"])
            for ax in differences:
                drawing.gaussian(ax, own["y"], 0 * own["gaussian"])
        floor = 10.0 ** math.floor(math.log10(tails["density"].min() / 2))
        reach = max(1.05 * float(np.abs(tails["y"]).max()), float(np.abs(curves["y"][curves["limit"] > floor]).max()))
        linear.set_xlim(-self.reach, self.reach)
        linear.set_ylim(bottom=0)
        log.set_yscale("log")
        log.set_xlim(-reach, reach)
        log.set_ylim(floor, 2 * float(tails["density"].max()))
        for ax in (linear, log):
            drawing.labels(ax, self._name, "probability density")
        for ax in differences:
            ax.set_xlim(-self.reach, self.reach)
            drawing.labels(ax, self._name, "density \u2212 Gaussian")
        return [*handles, gaussian]

    def _finite(self, linear: Any, log: Any, data: Data, case: Case, colour: Any, k: int) -> Any:
        """The networks of one case in both panels."""
        label = f"n = {case.width}" + ("" if self.one_limit else f", H = {case.heads}")
        drawing.points(log, chosen(data.tables["tails"], case.key), colour, label, k)
        if self.histogram:
            return drawing.bars(linear, chosen(data.tables["histogram"], case.key), colour, label, k > 0)
        own = chosen(data.tables[""], case.key)
        return drawing.kernel(linear, own["y"], own["kernel"], colour, label, k, len(self.cases))


def _line(row: dict[str, Any]) -> str:
    kurtosis = quantity(row["kurtosis"], row["kurtosis_se"])
    return (
        f"n = {row['n']}, H = {row['H']}: kurtosis {kurtosis}, limit {row['limit_kurtosis']:.4f}, "
        f"z = {row['z_kurtosis']:.1f}; KS {quantity(row['ks'], row['ks_se'])}, p {chance(row['ks_p'])}; "
        f"KL {quantity(row['kl_precise'], row['kl_precise_se'])}"
    )


def _curves(case: Case, x: Array, spread: float) -> dict[str, Array]:
    """The kernel estimate of the draws x, the density of the limit, and the Gaussian for infinitely many heads."""
    y = np.linspace(-REACH * spread, REACH * spread, KL_POINTS)
    law, scale = case.reference.law, case.scale
    density, error = law.density(OUTPUT, y / scale, with_error=True)
    gaussian = law.infinite_heads(HEADS).density(OUTPUT, y / scale)
    return {
        "y": y,
        "kernel": binned_kde(x, y[0], y[-1]),
        "limit": density / scale,
        "limit_error": np.broadcast_to(error / scale, y.shape),
        "gaussian": gaussian / scale,
    }


def _histogram(x: Array, width: float) -> dict[str, Array]:
    """A histogram of mass one, a bin centred at zero."""
    last = math.ceil(float(np.abs(x).max()) / width)
    edges = (np.arange(-last, last + 2) - 0.5) * width
    density, _ = np.histogram(x, edges, density=True)
    return {"left": edges[:-1], "right": edges[1:], "density": density}


def _precise(case: Case, net: tp.Samples, reach: float) -> dict[str, Array]:
    """The density of networks as the average of those given all weights but the last, which are Gaussian."""
    mean, variance = (part.ravel() for part in gaussians(net, "y", 0))
    y = np.linspace(-reach, reach, POINTS)
    found = [np.exp(-0.5 * (at / case.scale - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance) for at in y]
    density, error = (np.array([part(each) for each in found]) / case.scale for part in (np.mean, np.std))
    return {"y": y, "density": density, "error": error / math.sqrt(len(mean))}

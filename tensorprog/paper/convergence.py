"""KL divergence from the limit against the width: Fig. 1 (B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.distances import kernel_kl
from tensorprog.paper import drawing
from tensorprog.paper.experiment import Case, Data, Settings, Table
from tensorprog.reference import column, split
from tensorprog.study import Listener

__all__ = ["Convergence"]

Array = NDArray[Any]

OUTPUT = "y[0]"


@dataclass(frozen=True)
class Convergence:
    """One panel: the paper's estimate of KL(finite || limit) with its noise floor.

    As in the paper's scripts: in each trial fresh networks of each width and fresh draws of the limit, kernel estimates
    of both on 500 points over the range of all draws of all trials; mean and standard deviation of log KL over trials.
    """

    cases: tuple[Case, ...]  # one limit, several widths
    panels = 1

    def data(self, settings: Settings, told: Listener) -> Data:
        """One row for each network ensemble, and the same estimator on draws of the limit and of a Gaussian."""
        first = self.cases[0]
        columns: dict[tuple[int, int], Array] = {}
        rows: list[dict[str, float]] = []
        for trial in range(settings.repeats):
            columns[trial, 0] = first.limit_draws(OUTPUT, settings, trial)
            for case in self.cases:
                net = case.networks(settings, told, trial)
                columns[trial, case.width] = column(net, *split(net.netsor, OUTPUT))[:, 0]
                rows.append(case.key | {"trial": trial, "seed": net.seed})
        low, high = (float(f([f(x) for x in columns.values()])) for f in (np.min, np.max))
        for row in rows:
            trial = int(row["trial"])
            row["kl_kernel"] = kernel_kl(columns[trial, int(row["n"])], columns[trial, 0], low, high)
        floor = self._floor(settings, low, high)
        table = _table(rows)
        means = _means(table)
        tables = {"": table, "floor": floor, "mean": means}
        numbers = {"variable": OUTPUT, "points_low": low, "points_high": high,
                   "kl_kernel_floor": _mean(floor["limit"]), "kl_kernel_gaussian": _mean(floor["gaussian"])}
        lines = [f"n = {n:.0f}, H = {first.heads}: mean log KL {mean:.2f}, standard deviation {sd:.2f}"
                 for n, mean, sd in zip(means["n"], means["log_kl_kernel"], means["log_kl_kernel_sd"], strict=True)]
        return Data(tables, numbers, lines)

    def _floor(self, settings: Settings, low: float, high: float) -> Table:
        """The paper's estimator where there is nothing to see, and where there is a Gaussian of equal variance."""
        case = self.cases[0]
        rng = np.random.default_rng([settings.seed, 1])
        rows = []
        for trial in range(settings.repeats):
            x = case.limit_draws(OUTPUT, settings, trial)
            y = case.limit_draws(OUTPUT, settings, settings.repeats + trial)
            gauss = case.spread(OUTPUT) * rng.standard_normal(settings.samples)
            rows.append({"trial": trial, "limit": kernel_kl(y, x, low, high),
                         "gaussian": kernel_kl(gauss, x, low, high)})
        return _table(rows)

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Means of log KL with one standard deviation, on a log axis."""
        (ax,) = axes
        means, floor = data.tables["mean"], data.tables["floor"]
        low, middle, high = (np.exp(means["log_kl_kernel"] + k * means["log_kl_kernel_sd"]) for k in (-1, 0, 1))
        handles = [drawing.trials(ax, means["n"], low, middle, high, drawing.FIRST, "KL of kernel estimates", 0),
                   drawing.level(ax, floor["limit"], drawing.GREY, "the same, limit for limit"),
                   drawing.level(ax, floor["gaussian"], drawing.VERMILION, "the same, Gaussian for limit")]
        drawing.widths(ax, means["n"])
        ax.set_yscale("log")
        drawing.labels(ax, "width n", f"KL(finite || limit) / nats, H = {self.cases[0].heads}")
        return handles


def _table(rows: Sequence[dict[str, float]]) -> Table:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _means(table: Table) -> Table:
    """Mean and standard deviation over trials of log KL (ddof 0, as in the paper's scripts)."""
    n = np.unique(table["n"])
    logs = [np.log(table["kl_kernel"][table["n"] == width]) for width in n]
    return {"n": n, "log_kl_kernel": np.array([x.mean() for x in logs]),
            "log_kl_kernel_sd": np.array([x.std() for x in logs])}


def _mean(x: Array) -> dict[str, float]:
    return {"mean": float(x.mean()), "se": float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")}

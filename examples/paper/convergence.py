"""KL divergence from the limit against the width: Fig. 1 (B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.language.formats import quantity
from tensorprog.results.distances import kernel_kl
from tensorprog.results.rates import Rate, fit
from tensorprog.show.plots import width_axis

from . import drawing
from .experiment import OUTPUT, Case, Data, Listener, Settings, Table

Array = NDArray[Any]

KERNEL = "kernel estimates"
FITS = {"rate": "rate"}
FITTED = 200  # points of the fitted curve


@dataclass(frozen=True)
class Convergence:
    """One panel: the paper's estimate of KL(finite || limit) with its noise floor, and the precise one.

    The estimate is that of the paper's scripts: in each trial fresh networks of each width and fresh draws of the
    limit, kernel estimates of both on 500 points over the range of all draws of all trials; mean and standard deviation
    of log KL over trials.  The precise one is of the same networks, by averages of conditional Gaussians.
    """

    cases: tuple[Case, ...]  # one limit, several widths
    panels = 1

    def data(self, settings: Settings, told: Listener) -> Data:
        """One row for each width and trial, their means, and the paper's estimate where nothing is to be seen.

        Accuracy  `kl_se` and the errors of the means are standard errors over networks
        """
        first = self.cases[0]
        columns: dict[tuple[int, int], Array] = {}
        rows: list[dict[str, float]] = []
        for trial in range(settings.repeats):
            columns[trial, 0] = first.limit_draws(settings, trial)
            for case in self.cases:
                net = case.networks(settings, told, trial, conditional=True)
                columns[trial, case.width] = net["y"][:, 0]
                value, error = tp.kl(net, case.reference, OUTPUT)
                rows.append(case.key | {"trial": trial, "seed": net.seed, "kl": value, "kl_se": error})
        low, high = (float(f([f(x) for x in columns.values()])) for f in (np.min, np.max))
        for row in rows:
            trial = int(row["trial"])
            row["kl_kernel"] = kernel_kl(columns[trial, int(row["n"])], columns[trial, 0], low, high)
        table, floor = _table(rows), _table(self._floor(settings, low, high))
        means = _means(table)
        rates = {"rate": _rate(table)}
        gaussian, error = tp.kl_gaussian(first.reference, OUTPUT)
        numbers = {
            "variable": OUTPUT,
            "H": first.heads,
            "points_low": low,
            "points_high": high,
            **{name: rate.to_json() if rate else None for name, rate in rates.items()},
            "limit_to_gaussian": gaussian,
            "limit_to_gaussian_error": error,
            "kernel_floor": _mean(floor["limit"]),
            "kernel_gaussian": _mean(floor["gaussian"]),
        }
        return Data({"": table, "mean": means, "floor": floor}, numbers, _lines(means, numbers, rates))

    def _floor(self, settings: Settings, low: float, high: float) -> list[dict[str, float]]:
        """The paper's estimate with fresh draws of the limit for networks, and with a Gaussian of equal variance."""
        case = self.cases[0]
        rng = np.random.default_rng([settings.seed, 1])
        rows = []
        for trial in range(settings.repeats):
            limit, again = (case.limit_draws(settings, k) for k in (trial, settings.repeats + trial))
            gaussian = case.spread * rng.standard_normal(settings.samples)
            rows.append(
                {
                    "trial": trial,
                    "limit": kernel_kl(again, limit, low, high),
                    "gaussian": kernel_kl(gaussian, limit, low, high),
                }
            )
        return rows

    def draw(self, axes: Sequence[Any], data: Data) -> list[Any]:
        """Both estimates on log axes, with the power law, and what is to be told from the limit: a Gaussian."""
        (ax,) = axes
        means, floor, numbers = data.tables["mean"], data.tables["floor"], data.numbers
        n, kernel, spread = (means[name] for name in ("n", "log_kl_kernel", "log_kl_kernel_sd"))
        low, middle, high = (np.exp(kernel + k * spread) for k in (-1, 0, 1))
        precise, error = means["kl"], means["kl_se"]
        handles = [
            drawing.trials(ax, n, low, middle, high, drawing.FIRST, f"{KERNEL}, as in the paper", 0),
            drawing.level(ax, floor["limit"], drawing.GREY, f"{KERNEL}: limit to limit"),
            drawing.level(ax, floor["gaussian"], drawing.VERMILION, f"{KERNEL}: Gaussian to limit"),
            drawing.trials(ax, n, precise - error, precise, precise + error, drawing.SECOND, "precise", 1, False),
        ]
        title = f"H = {numbers['H']}"
        if rate := numbers["rate"]:
            between = np.geomspace(n[0], n[-1], FITTED)
            law = rate["coefficient"] * between ** rate["exponent"]
            handles.append(drawing.power(ax, between, law, drawing.SECOND, "precise: a power of n, fitted"))
            title += f", exponent b = {quantity(rate['exponent'], rate['exponent_se'])}".replace("-", "\u2212")
        handles.append(drawing.line(ax, numbers["limit_to_gaussian"], drawing.VERMILION, "precise: limit to Gaussian"))
        width_axis(ax, n.tolist())
        ax.set_yscale("log")
        ax.set_title(title, fontsize="small")
        drawing.labels(ax, "width n", "KL(finite || limit) / nats")
        return handles


def _table(rows: Sequence[dict[str, float]]) -> Table:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _trials(table: Table, name: str) -> Array:
    """One column by width and trial."""
    return np.array([table[name][table["n"] == n] for n in np.unique(table["n"])])


def _means(table: Table) -> Table:
    """Over trials: mean and standard deviation (ddof 0, as in the scripts) of log KL; mean and error of the precise."""
    logs, precise, errors = np.log(_trials(table, "kl_kernel")), _trials(table, "kl"), _trials(table, "kl_se")
    return {
        "n": np.unique(table["n"]),
        "log_kl_kernel": logs.mean(axis=1),
        "log_kl_kernel_sd": logs.std(axis=1),
        "kl": precise.mean(axis=1),
        "kl_se": np.sqrt((errors**2).sum(axis=1)) / errors.shape[1],
    }


def _rate(table: Table) -> Rate | None:
    """The power of n with which the precise KL falls; None where too few widths stand out from the noise."""
    try:
        return fit(np.unique(table["n"]).tolist(), _trials(table, "kl"), _trials(table, "kl_se"))
    except tp.ProgramError:
        return None


def _mean(x: Array) -> dict[str, float]:
    return {"mean": float(x.mean()), "se": float(x.std(ddof=1) / np.sqrt(len(x)))}


def _lines(means: Table, numbers: dict[str, Any], rates: Mapping[str, Rate | None]) -> list[str]:
    rows = zip(*means.values(), strict=True)
    said = [
        f"n = {n}, H = {numbers['H']}: precise KL {quantity(value, error)}; by kernel estimates log KL {log:.2f}, "
        f"standard deviation {sd:.2f}"
        for n, log, sd, value, error in rows
    ]
    floor, gaussian = numbers["kernel_floor"], numbers["kernel_gaussian"]
    value, error = numbers["limit_to_gaussian"], numbers["limit_to_gaussian_error"]
    return [
        *said,
        *(f"precise KL, {FITS[name]}: {rate}" for name, rate in rates.items() if rate),
        f"KL(limit || Gaussian) = {value:.4e}, error {error:.1e}",
        f"by kernel estimates: limit to limit {quantity(floor['mean'], floor['se'])}, "
        f"Gaussian to limit {quantity(gaussian['mean'], gaussian['se'])}",
    ]

"""The pictures of the gallery, each a function of this file and what it draws of a shipped program.

    python docs/_ext/gallery.py

draws them anew, into docs/pictures/gallery; pages show the files.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tensorprog as tp
from tensorprog.show import plots

FOLDER = Path(__file__).resolve().parent.parent / "pictures" / "gallery"
Draw = Callable[[Any], Any]


def covariance(P: tp.Program, variable: str) -> Draw:
    """The covariances of a family's members."""
    law = P.limit()
    return lambda ax: plots.covariance(law, variable, ax)


def density(P: tp.Program, variable: str) -> Draw:
    """The density of one output, with the tails, beside the Gaussian's."""
    law = P.limit()
    return lambda ax: plots.density((), law, variable, ax, "log")


def scores(P: tp.Program, variable: str) -> Draw:
    """One score of networks of three widths."""
    runs = [P.run(width=n, samples=4_000, seed=0) for n in (16, 64, 256)]
    low, high = np.quantile(np.stack([run[variable] for run in runs]), [0.002, 0.998])

    def draw(ax: Any) -> None:
        for panel in np.atleast_1d(plots.density(runs, None, variable, ax, "linear")):
            drawn = np.concatenate([line.get_xdata() for line in panel.lines])
            panel.set_xlim(max(low, drawn.min()), min(high, drawn.max()))

    return draw


def layers(P: tp.Program, families: str) -> Draw:
    """The correlations of the first input with the others, from family to family."""
    names, law = families.split(","), P.limit()
    values = np.array([law.cov(name)[0] / np.sqrt(law.var(name)[0] * law.var(name)) for name in names])
    labels = [f"inputs 0 and {k}" for k in range(values.shape[1])]
    return _lines(names, values.T[1:], labels[1:], "correlation in the limit")


def against(P: tp.Program, what: str) -> Draw:
    """A number of the limit against a constant: method, variable, constant and its values."""
    method, variable, constant, *values = what.split(",")
    numbers = [getattr(tp.load(P.name, **{constant: float(value)}).limit(), method)(variable) for value in values]
    return _lines(values, np.array([numbers]), [""], f"{LONG[method]} of {variable}", constant)


def kurtosis(P: tp.Program, variable: str) -> Draw:
    """The kurtosis of every member, beside that of a Gaussian."""
    found = P.limit().kurtosis(variable)
    names = [f"{variable}[{k}]" for k in range(len(found))]
    return _lines(names, np.array([found]), [""], "kurtosis, 3 of a Gaussian", "", "o", 3.0)


def overlap(P: tp.Program, variables: str) -> Draw:
    """The mean over coordinates of the product of two outputs, from network to network: widths, and the limit."""
    product = {"m": variables.replace(",", " * ")}
    runs = [(f"n = {n}", P.run(width=n, samples=4_000, seed=0, averages=product)) for n in (64, 1024)]
    runs.append(("limit", P.limit().sample(20_000, averages=product)))
    drawn = [(name, run.averages["m"]) for name, run in runs]
    return lambda ax: plots.density_of(drawn, product["m"], None, ax, "linear")


def _lines(
    places: Sequence[str],
    rows: Any,
    labels: Sequence[str],
    title: str,
    below: str = "",
    style: str = "o-",
    level: float | None = None,
) -> Draw:
    """A line with points for each row, or points, and a level that they are held against."""

    def draw(ax: Any) -> None:
        (panel,) = plots.axes_of(ax, 1, 5.0, 3.6)
        for row, name, colour in zip(rows, labels, plots.colours(len(rows)), strict=True):
            panel.plot(range(len(places)), row, style, color=colour, label=name)
        if level is not None:
            panel.axhline(level, linestyle="--", color="#888888")
        panel.set_xticks(range(len(places)), places)
        plots.frame(panel, below, title)
        if any(labels):
            plots.legend([panel])

    return draw


LONG = {"var": "variance", "kurtosis": "kurtosis"}
PICTURES: dict[str, tuple[Callable[[tp.Program, str], Draw], str]] = {
    "mlp": (layers, "x,u1,u2,u3,f"),
    "resnet": (against, "var,f[0],T,1,2,4,8,16,32,64"),
    "cnn_pool": (covariance, "x2"),
    "rnn": (covariance, "f"),
    "batchnorm_mlp": (layers, "x,u1,u2,f"),
    "attention": (density, "y[0]"),
    "attention_masked": (kurtosis, "y"),
    "attention_1n": (scores, "p[0,0,0]"),
    "gpt2": (overlap, "y[0],y[2]"),
    "vit": (covariance, "y"),
    "mixture_of_experts": (against, "kurtosis,y[0],E,2,4,8,16,32"),
    "mamba_like": (density, "y"),
    "whisper_like": (kurtosis, "y"),
    "attention_tied": (scores, "p[0,0,0]"),
}
CONSTANTS = {"whisper_like": {"T": 6}}  # that are not the shipped ones


def draw(name: str) -> str:
    """The picture of a program as SVG."""
    kind, what = PICTURES[name]
    return plots.svg(kind(tp.load(name, **CONSTANTS.get(name, {})), what))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name), encoding="utf-8")

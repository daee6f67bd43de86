"""The directive `picture`: ```` ```{picture} covariance vit y ```` draws a shipped program when the site is built.

What stands first is the kind of the picture, a function of this file; the last word is what it draws.  The grade of the
program stands below, and its graph is folded up.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import tensorprog as tp
from tensorprog.blocks import Picture
from tensorprog.blocks.html import to_html
from tensorprog.show import plots
from tensorprog.show.graphs import to_svg

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
KINDS: dict[str, tuple[Callable[[tp.Program, str], Draw], str]] = {
    "covariance": (covariance, "The covariance of {of} in the limit"),
    "density": (density, "The density of {of} in the limit, beside a Gaussian of equal variance"),
    "scores": (scores, "The score {of} at three widths"),
    "layers": (layers, "Correlations of inputs from layer to layer: {of}"),
    "against": (against, "A number of the limit against a constant: {of}"),
    "kurtosis": (kurtosis, "The kurtosis of the members of {of}"),
    "overlap": (overlap, "How like two outputs are, from network to network: {of}"),
}


class Pictured(SphinxDirective):
    """A picture of a program, and its graph: kind, program, variable, and a constant if it is not the shipped one."""

    required_arguments, optional_arguments = 3, 1

    def run(self) -> list[nodes.Node]:
        """Compile or draw the program, and show it as HTML."""
        kind, name, variable, *constants = self.arguments
        draw, label = KINDS[kind]
        P = tp.load(name, **{own: int(value) for own, value in (text.split("=") for text in constants)})
        key = re.sub(r"\W+", "-", f"{kind}-{name}-{variable}")
        shown = Picture(plots.svg(draw(P, variable)), label.format(of=f"{variable} of {name}"))
        report = P.check()
        graph = to_html([Picture(to_svg(P.graph(), report), f"The program {name} as a graph")])
        folded = f"<details><summary>{name} as a graph, statement by statement</summary>{graph}</details>"
        html = to_html([shown, report.summary]) + folded
        return [nodes.raw("", f'<div class="gallery {key}">{html}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the directive."""
    app.add_directive("picture", Pictured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The directive `picture`: ```` ```{picture} covariance vit y ```` draws a shipped program when the site is built.

`covariance` and `density` draw an output in the limit, `scores` one score at three widths; the grade of the program
stands below, and its graph is folded up.
"""

import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import tensorprog as tp
from tensorprog.blocks import Folded, Picture
from tensorprog.blocks.html import to_html
from tensorprog.show import plots
from tensorprog.show.graphs import to_svg


def covariance(P: tp.Program, variable: str) -> Callable[[Any], Any]:
    """The covariances of an output's members."""
    law = P.limit()
    return lambda ax: plots.covariance(law, variable, ax)


def density(P: tp.Program, variable: str) -> Callable[[Any], Any]:
    """The density of one output, with the tails, beside the Gaussian's."""
    law = P.limit()
    return lambda ax: plots.density((), law, variable, ax, "log")


def scores(P: tp.Program, variable: str) -> Callable[[Any], Any]:
    """One score of networks of three widths."""
    runs = [P.run(width=n, samples=4_000, seed=0) for n in (16, 64, 256)]
    return lambda ax: plots.density(runs, None, variable, ax, "linear")


KINDS = {"covariance": (covariance, "The covariance of {of} in the limit"),
         "density": (density, "The density of {of} in the limit, beside a Gaussian of equal variance"),
         "scores": (scores, "The score {of} at three widths")}


class Pictured(SphinxDirective):
    """A picture of a program, and its graph: kind, program, variable."""

    required_arguments = 3

    def run(self) -> list[nodes.Node]:
        """Compile or draw the program, and show it as HTML."""
        kind, name, variable = self.arguments
        draw, label = KINDS[kind]
        P, key = tp.load(name), re.sub(r"\W+", "-", f"{kind}-{name}-{variable}")
        shown = Picture(plots.svg(draw(P, variable)), key, label.format(of=f"{variable} of {name}"), "",
                        fixed=plots.INKS)
        report = P.check()
        graph = Picture(to_svg(P.graph(), report), f"graph-{name}", f"The program {name} as a graph", "",
                        scroll=True)
        html = to_html([shown, report.summary, Folded(f"{name} as a graph, statement by statement", (graph,))])
        return [nodes.raw("", f'<div class="gallery">{html}</div>', format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Enter the directive."""
    app.add_directive("picture", Pictured)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

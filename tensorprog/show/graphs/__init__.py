"""Drawings of the networkx view of a program: where boxes go (`layout`), what a check marks, and the drawings."""

from tensorprog.show.graphs.drawings import captions, to_dot, to_mermaid, to_svg
from tensorprog.show.graphs.layout import Placement, layout
from tensorprog.show.graphs.marks import BLAME, REMARK

__all__ = ["BLAME", "REMARK", "Placement", "captions", "layout", "to_dot", "to_mermaid", "to_svg"]

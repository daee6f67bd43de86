"""Drawings of the networkx view of a program: SVG, Graphviz and Mermaid."""

from tensorprog.show.graphs.drawing import to_svg
from tensorprog.show.graphs.layout import Layout, layout
from tensorprog.show.graphs.styles import BLAME, REMARK
from tensorprog.show.graphs.texts import captions, to_dot, to_mermaid

__all__ = ["BLAME", "REMARK", "Layout", "captions", "layout", "to_dot", "to_mermaid", "to_svg"]

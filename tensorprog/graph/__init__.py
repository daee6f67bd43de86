"""Networkx views of the family-level program: ancestry, weight reuse, and drawings."""

from tensorprog.graph.drawing import to_svg
from tensorprog.graph.layout import Layout, layout
from tensorprog.graph.roles import roles
from tensorprog.graph.structure import Operand, Structure
from tensorprog.graph.styles import BLAME, REMARK
from tensorprog.graph.texts import captions, to_dot, to_mermaid
from tensorprog.graph.view import between, build, ways

__all__ = [
    "BLAME", "REMARK", "Layout", "Operand", "Structure", "between", "build", "captions", "layout", "roles", "to_dot",
    "to_mermaid", "to_svg", "ways",
]

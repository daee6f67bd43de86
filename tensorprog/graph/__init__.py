"""Networkx views of the family-level program: ancestry, weight reuse, and drawings."""

from tensorprog.graph.drawing import BLAME, Layout, layout, to_dot, to_mermaid, to_svg
from tensorprog.graph.structure import Operand, Structure
from tensorprog.graph.view import build

__all__ = ["BLAME", "Layout", "Operand", "Structure", "build", "layout", "to_dot", "to_mermaid", "to_svg"]

"""The table of operations: from the name of one in torch to the rule that says it in the program's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorprog.importing.capture import Operation, Ref
from tensorprog.importing.refusals import refusal
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.values import FixedTensor, Traced

__all__ = ["RULES", "Result", "Rule", "TracedCall", "rule"]

Result = Any  # a Traced, a FixedTensor, or a tuple of these


@dataclass(frozen=True)
class TracedCall:
    """An operation with the tensors that it reads."""

    operation: Operation
    tensors: Mapping[str, Any]

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the result at both widths."""
        one, other = self.operation.shapes
        return one, other

    @property
    def name(self) -> str:
        """The name of the result."""
        return self.operation.name

    def pair(self, position: int, key: str = "", default: Any = None) -> tuple[Any, Any]:
        """An argument at both widths, by position or by name; tensors as what they became."""
        found = []
        for args, kwargs in zip(self.operation.args, self.operation.kwargs, strict=True):
            value = args[position] if position < len(args) else kwargs.get(key, default)
            found.append(self._looked_up(value))
        return found[0], found[1]

    def plain(self, position: int, key: str = "", default: Any = None) -> Any:
        """An argument that is the same at every width; of shapes what it is at the first.

        Raises    ProgramError for a number that changes with the width
        """
        one, other = self.pair(position, key, default)
        if isinstance(one, int | float) and isinstance(other, int | float) and one != other:
            raise refusal(
                self.operation.place,
                f"it is given {one:g} at one width and {other:g} at another",
                "scale tensors by powers of the width, and keep other numbers the same",
            )
        return one

    def tensor(self, position: int, key: str = "") -> Any:
        """A tensor among the arguments: a Traced, a FixedTensor, or None; numbers count as fixed tensors."""
        one, other = self.pair(position, key)
        if isinstance(one, int | float) and not isinstance(one, bool):
            return FixedTensor((float(one), float(other)))
        return one

    def _looked_up(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.tensors[value.name]
        return tuple(map(self._looked_up, value)) if isinstance(value, tuple) else value


Rule = Callable[[Sketch, TracedCall], Result]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of operations."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def random(sketch: Sketch, value: Any) -> Traced:
    """A tensor that must be random here."""
    if isinstance(value, Traced):
        return value
    assert isinstance(value, FixedTensor)
    return sketch.constant(value, tuple(() for _ in value.shapes[0]))

"""The module read operation by operation, again and again until its axes are known: statements and the result."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from tensorprog.importing import convolutions, elementwise, layers, recurrent, views
from tensorprog.importing.capture import Captured, Operation
from tensorprog.importing.operations import RULES, Rule, TracedCall
from tensorprog.importing.parameters import Parameters
from tensorprog.importing.refusals import Refusal, refusal
from tensorprog.importing.sketch import Again, Decisions
from tensorprog.importing.values import FixedTensor, Traced
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import variables

__all__ = ["translated"]

TABLES = (convolutions, elementwise, layers, recurrent, views)  # whose rules are entered when they are imported
MAX_READINGS = 10_000


def translated(captured: Captured, at: int | None, exact: bool = False) -> tuple[Parameters, Traced]:
    """The statements of a module, and the tensor that it returns; with `exact` what the language writes as the limit
    of what the module has, such as a random number for all coordinates, is as the module has it at each width.

    Raises    ProgramError for what cannot be imported
    """
    decisions = Decisions()
    for _ in range(MAX_READINGS):
        try:
            return _read(captured, decisions, at, exact)
        except Again:
            continue
    raise AssertionError("axes are split without end")


def _read(captured: Captured, decisions: Decisions, at: int | None, exact: bool) -> tuple[Parameters, Traced]:
    sketch = Parameters(captured, decisions, at, exact)
    tensors: dict[str, object] = {name: _known(pair) for name, pair in captured.known.items()}
    tensors |= {node: sketch.parameter(captured.copies.get(node, node)) for node in captured.parameters}
    if captured.copies:
        sketch.note(
            "some parameters begin as copies of others, the same random numbers, and are one weight here "
            "(layers of nn.TransformerEncoder are copies of the one that is given to it)"
        )
    places = {operation.name: operation.place.path for operation in captured.operations}
    blocks = {path[: match.end()] for path in places.values() for match in re.finditer(r"(^|\.)\d+(?=\.)", path)}
    for operation in captured.operations:
        sketch.place, sketch.operation = operation.place, operation.name
        rule = RULES.get(operation.kind)
        if rule is None:
            close = difflib.get_close_matches(operation.kind, RULES, 1)
            raise refusal(
                operation.place,
                "there is no rule for this operation",
                f"write it with other operations{f', such as {close[0]}' if close else ''}",
            )
        result = _applied(rule, sketch, TracedCall(operation, tensors))
        if isinstance(result, Traced) and not result.parameter and len(result.widths) > 1:
            raise sketch.refuse(
                "it makes a matrix of two widths out of vectors",
                "multiply vectors first: (q @ k.T) @ v and not q @ (k.T @ v)",
            )
        named = len(operation.users) > 1 or operation.name == captured.result or _leaves(operation, places, blocks)
        if named and isinstance(result, Traced) and result.inner is None and not result.parameter:
            result = sketch.named(result) if result.expr.children else result
        tensors[operation.name] = result
    found = tensors[captured.result]
    if not isinstance(found, Traced):
        raise refusal(
            sketch.place,
            "what the module returns does not depend on its random parameters",
            "return a tensor that does",
        )
    value = sketch.settled(found)
    if captured.results > 1:
        sketch.note(f"the module returns {captured.results} tensors, of which the first is here")
    if value.power:
        if at:
            value = sketch.level(value, "the output")
        else:
            sketch.note(f"the output of the module grows like n**({value.power}); the program gives it divided by that")
    if not variables(value.expr):
        raise refusal(
            sketch.place, "the output vanishes in the limit", "let its last layer not begin with zeros, or give at="
        )
    return sketch, sketch.named(value)


def _applied(rule: Rule, sketch: Parameters, operation: TracedCall) -> Any:
    """What a rule makes of an operation; a form of it that the rule does not expect is refused."""
    try:
        return rule(sketch, operation)
    except (Again, Refusal):
        raise
    except (ProgramError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refusal(
            sketch.place,
            f"its rule does not know this form of it ({type(error).__name__}: {error})",
            "write it in its plainest form, or with other operations",
        ) from error


def _leaves(operation: Operation, places: Mapping[str, str], blocks: Collection[str]) -> bool:
    """Whether a result is read outside of the block of layers that made it."""

    def block(path: str) -> str:
        return max((name for name in blocks if f"{path}.".startswith(f"{name}.")), key=len, default="")

    own = block(operation.place.path)
    return bool(own) and any(block(places.get(user, "")) != own for user in operation.users)


def _known(pair: tuple[object, object]) -> object:
    return FixedTensor(pair) if hasattr(pair[0], "shape") else pair[0]

"""Gaussian expectations of functions of one, two and several variables, each with value and stated error.

In go functions (`RealFunction`, or any callable of several variables) and batches of laws; out comes an `Estimate` for
each law: `expectation` for one and two variables, `several` for more.  Two functions, relu and tanh say, of two
correlated variables meet in `expectation.cross`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorprog.gaussian.estimate import Estimate
    from tensorprog.gaussian.expectation import cross, mean
    from tensorprog.gaussian.function import FunctionTerm, RealFunction
    from tensorprog.gaussian.several import integrate, normal_points

__all__ = ["Estimate", "FunctionTerm", "RealFunction", "cross", "integrate", "mean", "normal_points"]


# loaded when asked for, so that importing tensorprog stays quick
_HOMES = {
    "Estimate": "estimate",
    **dict.fromkeys(("FunctionTerm", "RealFunction"), "function"),
    **dict.fromkeys(("cross", "mean"), "expectation"),
    **dict.fromkeys(("integrate", "normal_points"), "several"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value

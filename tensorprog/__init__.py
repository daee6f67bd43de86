"""tensorprog: Tensor Programs from text to numbers.

Declare a Netsor program in a file or in Python, check the assumptions of its limit theorem, run it at finite width and
sample its infinite-width limit.  Every nonlinearity of the registry is a function of this module: `tensorprog.clip`,
`tensorprog.softmax[j]`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

__version__ = "0.1.0"

__all__ = [
    "AccuracyError",
    "Comparison",
    "Law",
    "MemoryLimitError",
    "NotCompiledError",
    "OutsideError",
    "Program",
    "ProgramError",
    "Report",
    "Samples",
    "TensorprogError",
    "WorkerError",
    "atom",
    "backward",
    "compare",
    "compare_torch",
    "depth",
    "from_torch",
    "kl",
    "kl_gaussian",
    "load",
    "ntk",
    "rate",
    "solve",
    "sweep",
]

# loaded when asked for: `tp check` must not wait for what it does not use
_HOMES = {
    **dict.fromkeys(
        (
            "AccuracyError",
            "MemoryLimitError",
            "NotCompiledError",
            "OutsideError",
            "ProgramError",
            "TensorprogError",
            "WorkerError",
        ),
        "language.errors",
    ),
    "Program": "program",
    "load": "program",
    "Report": "check.clauses",
    "Law": "law",
    "Samples": "language.samples",
    "Comparison": "results.comparison",
    "compare": "results.comparison",
    "atom": "check.declare",
    "kl": "results.divergence",
    "kl_gaussian": "results.divergence",
    "sweep": "jobs.sweeps",
    "depth": "jobs.depths",
    "solve": "jobs.depths",
    "rate": "results.rates",
    "backward": "gradients",
    "ntk": "gradients",
    "from_torch": "importing",
    "compare_torch": "importing",
}

if TYPE_CHECKING:
    from tensorprog import sklearn as sklearn
    from tensorprog.check.clauses import Report
    from tensorprog.check.declare import atom
    from tensorprog.gradients import backward, ntk
    from tensorprog.importing import compare_torch, from_torch
    from tensorprog.jobs.depths import depth, solve
    from tensorprog.jobs.sweeps import sweep
    from tensorprog.language.errors import (
        AccuracyError,
        MemoryLimitError,
        NotCompiledError,
        OutsideError,
        ProgramError,
        TensorprogError,
        WorkerError,
    )
    from tensorprog.language.samples import Samples
    from tensorprog.law import Law
    from tensorprog.program import Program, load
    from tensorprog.results.comparison import Comparison, compare
    from tensorprog.results.divergence import kl, kl_gaussian
    from tensorprog.results.rates import rate
    from tensorprog.show import plots as plots


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"tensorprog.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name == "plots":
        value = import_module("tensorprog.show.plots")
        value.__class__ = _Submodule
        return value
    if name == "sklearn":
        return import_module("tensorprog.sklearn")
    if not name.startswith("_"):
        from tensorprog.language.expr import function, function_names

        if name in function_names():
            return function(name)
        raise _no_function(name)
    raise AttributeError(f"module 'tensorprog' has no attribute {name!r}")


def _no_function(name: str) -> Exception:
    """The error for a name that is no function of the module."""
    from tensorprog.language.errors import NoNameError, Problem, did_you_mean
    from tensorprog.language.habits import elsewhere
    from tensorprog.language.meant import in_python, not_here

    fix = (
        in_python(name)
        or elsewhere(name)
        or not_here(name)
        or did_you_mean(name, __dir__(), ("`tp list --atoms` shows all functions; tp.atom declares one of your own"))
    )
    return NoNameError(Problem(f"tensorprog has no function {name}", fix=fix))


def __dir__() -> list[str]:
    from tensorprog.language.expr import function_names

    return sorted({*__all__, *function_names(), "__version__", "plots", "sklearn"})


class _Package(ModuleType):
    """Submodules that are imported do not hide functions of the same name: `tensorprog.gaussian` stays exp(-x**2).

    One that is called, as `tensorprog.limit(P)`, says how its name is meant.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "gaussian" or not isinstance(value, ModuleType):
            if type(value) is ModuleType:
                value.__class__ = _Submodule
            super().__setattr__(name, value)


class _Submodule(ModuleType):
    """A submodule, which is no function."""

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        name = self.__name__.rpartition(".")[2]
        if name != "plots":
            raise _no_function(name)
        from tensorprog.language.errors import NoOperationError, Problem

        raise NoOperationError(
            Problem(
                "plots is no function: its functions draw one kind of picture each",
                fix=('tp.plots.density(samples, law, "y[0]")'),
            )
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from tensorprog.language.errors import NoNameError, Problem, did_you_mean

        known = [public for public in getattr(self, "__all__", ()) if public.islower()]
        fix = did_you_mean(name, known, f"its functions are {', '.join(known)}" if known else "")
        raise NoNameError(Problem(f"{self.__name__} has no function {name}", fix=fix))


sys.modules[__name__].__class__ = _Package

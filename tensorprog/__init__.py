"""tensorprog: Tensor Programs from text to numbers.

Declare a Netsor program in a file or in Python, check the assumptions of its limit theorem, run it at finite width and
sample its infinite-width limit.  Every nonlinearity of the registry is a function of this module: `tensorprog.clip`,
`tensorprog.softmax[j]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tensorprog.version import __version__ as __version__

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
    "exponents",
    "from_torch",
    "gradient_descent",
    "kl",
    "kl_gaussian",
    "load",
    "ntk",
    "predict",
    "rate",
    "solve",
    "sweep",
    "train",
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
    "atom": "language.atoms.declared",
    "kl": "results.divergence",
    "kl_gaussian": "results.divergence",
    "sweep": "jobs.sweeps",
    "depth": "jobs.depths",
    "solve": "jobs.depths",
    "rate": "results.rates",
    "backward": "gradients",
    "ntk": "gradients",
    "gradient_descent": "training",
    "predict": "training",
    "train": "training",
    "exponents": "training",
    "from_torch": "importing",
    "compare_torch": "importing",
}

if TYPE_CHECKING:
    from tensorprog import sklearn as sklearn
    from tensorprog.check.clauses import Report
    from tensorprog.gradients import backward, ntk
    from tensorprog.importing import compare_torch, from_torch
    from tensorprog.jobs.depths import depth, solve
    from tensorprog.jobs.sweeps import sweep
    from tensorprog.language.atoms.declared import atom
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
    from tensorprog.training import exponents, gradient_descent, predict, train


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(f"tensorprog.{_HOMES[name]}"), name)
        return value
    if name in ("plots", "sklearn"):
        return import_module(f"tensorprog.{'show.plots' if name == 'plots' else name}")
    if name.startswith("_"):
        raise AttributeError(f"module 'tensorprog' has no attribute {name!r}")
    from tensorprog.language.errors import did_you_mean
    from tensorprog.language.expr import function, function_names
    from tensorprog.language.meant import not_here

    if name in function_names():
        return function(name)
    otherwise = "`tp list --atoms` shows all functions; tp.atom declares one of your own"
    fix = not_here(name) or did_you_mean(name.lower(), __dir__(), otherwise)
    raise AttributeError(f"tensorprog has no function {name}\n  try   {fix}")


def __dir__() -> list[str]:
    from tensorprog.language.expr import function_names

    return sorted({*__all__, *function_names(), "__version__", "plots", "sklearn"})


import_module("tensorprog.gaussian")  # once, and here, so that no later import hides the function of this name
del globals()["gaussian"]

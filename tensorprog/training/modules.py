"""What of a torch module moves in training, and how fast: parameters behind weights and vectors of its program.

A parameter w makes m*w of the program's scale, of variance v_p, where w has v; m**2 = v_p/(c v) for weights with c
columns.  If w moves by lr times its gradient, m*w moves by lr m**2, which is rate * rows/c: rate = lr v_p/(v rows).
So it is for initial vectors, whose rows are their width.  v is a number times a power of n, from two widths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import Any, cast

from tensorprog.language.errors import did_you_mean, fail
from tensorprog.language.expr import Expr, Number
from tensorprog.language.ir import Netsor, Nonlin
from tensorprog.language.parse import constant_value
from tensorprog.program import Program
from tensorprog.results.imported import Fate, Imported
from tensorprog.training.readouts import with_readout

__all__ = ["Module", "of_module"]


@dataclass(frozen=True)
class Module:
    """The program of a module with its readout, rates of what moves, and functions of initial vectors that do."""

    netsor: Netsor
    rates: Mapping[str, str]
    own: Mapping[str, str]  # the same rates, in the units of the module's parameters
    parameters: tuple[str, ...]
    remarks: tuple[str, ...]


def of_module(netsor: Netsor, imported: Imported, lr: Any, rates: Mapping[str, Any]) -> Module:
    """A module with the rates of its parameters, as torch's SGD has them; patterns name parameters.

    Raises    ProgramError for patterns that name none, and parameters whose moves the program cannot follow
    """
    matrices = {*netsor.weight}  # whose entries may be taken as Gaussian
    if len(netsor.outputs) == 1 and netsor.families[netsor.outputs[0]].kind == "vector":
        netsor = with_readout(netsor, netsor.outputs[0], imported.power)
    known = {fate.parameter: fate for fate in imported.fates}
    for pattern in rates:
        if not any(fnmatch(name, pattern) for fate in known.values() for name in (fate.parameter, fate.became)):
            raise fail(f"{pattern} is no parameter of the module", fix=did_you_mean(pattern, list(known)))
    (one, other), found, left = imported.widths, dict[str, tuple[str, str, str]](), list[str]()
    weights, vectors = netsor.weight, {vector.name: vector for vector in netsor.initial}
    read = {reference.name for s in netsor.body for reference in s.references}
    groups = imported.behind(read & {*weights}, read & {*vectors})
    followed = {fate.parameter for names, fates in groups.items() for fate in fates if names == (fate.became,)}
    for name, fate in known.items():
        given = [rate for pattern, rate in rates.items() if fnmatch(name, pattern) or fnmatch(fate.became, pattern)]
        if name not in followed:
            if given and str(given[-1]) != "0":
                said = f"{name} has a rate, {given[-1]}, and does not move: the program has no part for it"
                raise fail(said, fix=f'"{name}": 0 as its last rate, and keep it fixed in torch too')
            left.append(name)
            continue
        moves, variance = fate.became, cast("Expr", Number(1.0))
        if fate.became in weights:
            rows, variance = weights[moves].shape[0], weights[moves].variance
        else:
            rows, cov = vectors[moves].width, vectors[moves].cov
            variance = cov if isinstance(cov, Expr) else variance
            if not fate.gaussian and moves not in matrices:
                moves, variance = _function(netsor, fate)
        power = math.log(fate.variances[1] / fate.variances[0]) / math.log(other / one)
        factor = float(constant_value(variance, netsor.scalars)) / fate.variances[0] * one**power
        factor /= float(netsor.width_of(rows, 1))
        own = str(given[-1] if given else lr)
        text = f"({own}) * {factor!r} * n**({-1 - power!r})"
        if found.setdefault(moves, (name, text, own))[1] != text:
            raise fail(f"{name} and {found[moves][0]} are one family of the program, and have other rates")
    told = f"{', '.join(left)} stay as they are: the program has no part for them, so keep them fixed in torch too."
    functions = tuple(name for name in found if name not in weights and name not in vectors)
    texts = {name: text for name, (_, text, _) in found.items()}
    plain = {name: own for name, (_, _, own) in found.items()}
    return Module(netsor, texts, plain, functions, (told,) if left else ())


def _function(netsor: Netsor, fate: Fate) -> tuple[str, Expr]:
    """The function of a Gaussian vector that stands for a parameter of another law, and its variance."""
    readers = [s for s in netsor.body if any(reference.name == fate.became for reference in s.inputs)]
    if len(readers) != 1 or not isinstance(readers[0], Nonlin) or len(readers[0].inputs) != 1:
        raise fail(f"{fate.parameter} is not Gaussian, and its moves are not followed", fix="initialise it by normal_")
    name = readers[0].target.name
    alone = replace(netsor, body=(readers[0],), outputs=(name,))
    variance = Program.from_netsor(alone).limit().var(name)
    return name, Number(float(variance if isinstance(variance, float) else variance.ravel()[0]))

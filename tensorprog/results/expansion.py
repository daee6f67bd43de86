"""The first order in 1/n of moments: quantity(n) = limit + a/n + O(n**-2).

Given all but the weights used last a coordinate of an output is N(m, V) (`conditional`), so that its moments are
averages of polynomials in V and in averages of powers of m; of other vectors they are averages of powers.  These are
scalars of a program with a few more statements, whose second differences `limit.draw.perturbed` has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.several import standard_errors
from tensorprog.language.averages import unused, with_averages
from tensorprog.language.errors import NotCompiledError, ProgramError, check_count
from tensorprog.language.expr import Variable
from tensorprog.language.ir import Netsor, Nonlin
from tensorprog.language.parse import parse_target
from tensorprog.limit.draw.factors import Streams
from tensorprog.limit.draw.perturbed import Moved
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.results.conditional import with_conditional

__all__ = ["QUANTITIES", "FirstOrder", "correction", "first_order", "first_orders"]

Array = NDArray[Any]
Numbers = Mapping[str, Array]
QUANTITIES = {"mean": 1, "variance": 2, "kurtosis": 4}  # with the highest of the moments that they are made of
GROUPS = 16  # of draws, whose spread is the error
STEP = 2.0**-11
DRAWS = 1 << 15
TINY = 1e-20
STEPPED = 64  # times its square and the quantity, which a step of the differences adds at most where it was looked at
BLOCK = 128  # draws of each group at once
QUICK = 8192  # numbers of one draw up to which some thousands take a few seconds
NUMBERS = 1 << 21  # of one block of draws at once, about


@dataclass(frozen=True)
class MemberMoments:
    """How the raw moments of one vector member, or scalar, are made of scalars of a program.

    `variance` is the conditional variance, `powers` the averages of the powers of the conditional mean, or of the
    variable itself; `scalar` is a family of scalars, of which member `index` is the mean, or the variable itself.
    """

    variance: str = ""
    powers: tuple[str, ...] = ()
    scalar: str = ""
    index: tuple[int, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the averages that the moments are taken from."""
        return tuple(name for name in (self.variance, *self.powers, self.scalar) if name)

    def moments(self, values: Numbers, order: int) -> Array:
        """E[y**k | all that is drawn] for k = 1, ..., order.

        Shapes    (order, draws)
        """
        draws = len(values[self.read[0]])
        if self.scalar:
            found = np.moveaxis(values[self.scalar], 0, -1)[self.index]
            powers = [found**k for k in range(order + 1)]
        else:
            powers = [np.ones(draws), *(values[name].reshape(draws) for name in self.powers)]
            powers += [np.zeros(draws)] * (order + 1 - len(powers))
        variance = values[self.variance].reshape(draws) if self.variance else np.zeros(draws)
        even = [math.prod(range(2 * j - 1, 0, -2)) * variance**j for j in range(order // 2 + 1)]  # of N(0, variance)
        return np.array([
            sum(math.comb(k, 2 * j) * even[j] * powers[k - 2 * j] for j in range(k // 2 + 1))
            for k in range(1, order + 1)
        ])  # fmt: skip


class FirstOrder:
    """First orders in 1/n of the moments, up to an order, of a member of a vector, or of a scalar.

    Raises    NotCompiledError where the first order in 1/n is not known
    """

    def __init__(self, netsor: Netsor, member: Variable, order: int) -> None:
        self.order = order
        whole, self.probe = _with_probe(netsor, member, order)
        self.layers = Moved(whole, dict.fromkeys(self.probe.read), NUMBERS)
        self.behind = NumericRecursion(netsor, True, NUMBERS).layered

    def groups(self, draws: int, seed: int) -> Array:
        """Means and second differences of the moments in each group of draws.

        Shapes    (groups, 2, order)
        """
        each = max(1, -(-draws // GROUPS))
        at_once = max(1, min(each, BLOCK, NUMBERS // (GROUPS * self.layers.width)))
        total, steps = np.zeros(()), (0.0, STEP, -STEP)
        for number, done in enumerate(range(0, each, at_once)):
            size = GROUPS * min(at_once, each - done)
            values = self.layers.at_steps(Streams(self.layers.sources, size, seed, number), steps)
            limit, more, less = (
                self.probe.moments({name: value[k] for name, value in values.items()}, self.order)
                for k in range(len(steps))
            )
            found = np.array([limit, (more + less - 2 * limit) / (2 * STEP**2)])
            total = total + found.reshape(*found.shape[:-1], GROUPS, -1).sum(axis=-1)
        return np.moveaxis(total, -1, 0) / each


def first_order(groups: Array, quantity: Callable[[Array], Any]) -> tuple[float, float]:
    """The first order of a function of moments and its error, by leaving out one group after the other.

    Shapes    groups (groups, 2, *moments); quantity maps complex moments to a number
    """

    def along(group: Array) -> float:
        return float(np.imag(quantity(group[0] + TINY * 1j * group[1])) / TINY)

    total, number = groups.sum(axis=0), len(groups)
    whole = along(total / number)
    each = np.array([number * whole - (number - 1) * along((total - group) / (number - 1)) for group in groups])
    adds = STEPPED * STEP**2 * abs(quantity(total[0] / number))  # far below the error of thousands of draws
    return float(each.mean()), float(standard_errors(each) + adds)


def _with_probe(netsor: Netsor, member: Variable, order: int) -> tuple[Netsor, MemberMoments]:
    """The program with the scalars that moments of a member are made of."""
    family = netsor.families[member.name]
    if family.kind == "scalar":
        index = tuple(slot.offset - start for slot, (start, _) in zip(member.slots, family.ranges, strict=True))
        return netsor, MemberMoments(scalar=member.name, index=index)
    target = Variable(unused("probe", netsor.taken))
    larger = replace(netsor, body=(*netsor.body, Nonlin(target, member)), outputs=(target.name,))
    variance, mean = "", target.name
    with suppress(NotCompiledError):
        given = with_conditional(larger)
        larger, variance, mean = given.netsor, given.variance[target.name], given.mean.get(target.name, "")
    if mean and larger.families[mean].kind == "scalar":
        return larger, MemberMoments(variance, scalar=mean)
    powers = {f"power{k}": mean + (f"**{k}" if k > 1 else "") for k in range(1, order + 1)} if mean else {}
    added = with_averages(larger, powers)
    return added.netsor, MemberMoments(variance, tuple(added.families.values()))


def first_orders(netsor: Netsor, name: str, draws: int) -> dict[str, tuple[float, float]] | None:
    """The first orders of variance and kurtosis of one member; None where they would take longer than a moment.

    Raises    NotCompiledError where they are not known
    """
    order = FirstOrder(netsor, parse_target(name, netsor.names), 4)
    if order.behind or order.layers.width > QUICK:
        return None
    groups = order.groups(draws, 0)
    known = ("variance", "kurtosis") if FUNCTIONS["variance"](groups.mean(axis=0)[0]) > 0 else ("variance",)
    return {name: first_order(groups, FUNCTIONS[name]) for name in known}


def correction(
    netsor: Netsor, quantity: str, name: str, draws: int = DRAWS, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """A quantity of one member in the limit, as an average over the draws; and the a of limit + a/n, with its error.

    Raises    ProgramError for an unknown quantity, NotCompiledError where the first order is not known
    """
    if quantity not in QUANTITIES:
        raise ProgramError(f"the quantities are {', '.join(QUANTITIES)}, not {quantity!r}")
    moved, function = FirstOrder(netsor, parse_target(name, netsor.names), QUANTITIES[quantity]), FUNCTIONS[quantity]
    if quantity == "kurtosis" and not FUNCTIONS["variance"](moved.groups(GROUPS, 1).mean(axis=0)[0]) > 0:
        raise ProgramError(f"{name} is a constant: its variance is 0, and it has no kurtosis")
    groups = moved.groups(check_count("draws", draws), check_count("seed", seed, 0))
    return float(np.real(function(groups.mean(axis=0)[0]))), first_order(groups, function)


def _central(raw: Array, order: int) -> Any:
    mean, raws = raw[0], [1.0, *raw]
    return sum(math.comb(order, k) * raws[k] * (-mean) ** (order - k) for k in range(order + 1))


FUNCTIONS: Mapping[str, Callable[[Array], Any]] = {  # of raw moments
    "mean": lambda m: m[0],
    "variance": lambda m: _central(m, 2),
    "kurtosis": lambda m: _central(m, 4) / _central(m, 2) ** 2,
}

"""Enclosures hold what they are said to hold, against exact and high-precision arithmetic that shares no code."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from calculus_exact import ATOMS as EXACT

from tensorprog.check.certificates import Calculus
from tensorprog.language.atoms import ATOMS
from tensorprog.language.atoms.outward import product, quotient, sums
from tensorprog.language.expr import Call, Number
from tensorprog.language.ir import Nonlin
from tests.corpus import Case

NUMBERS = (0.0, 1.0, -1.0, 0.1, -0.3, 1 / 3, 5e-324, 1e-300, -1e-160, 1e160, 1.7e308, -1.7e308, 2.0**52 + 1, 1e-17)
POINTS = (*NUMBERS, 0.5, -0.7517915246935645, -1.2784645427610738, 20.0, -40.0, 700.0, -745.5, 1e-9, -1e-9, 3.1, 26.0)
PARAMS = {"leaky_relu": (0.01,), "elu": (1.3,), "clip": (-0.1, 0.3)}
OWN = {name for name, atom in ATOMS.items() if atom.arity == 1 and not atom.declared and name in EXACT} - {"power"}


@pytest.mark.parametrize("operation", [sums, product, quotient])
def test_sums_products_and_quotients_are_enclosed_by_neighbours(operation) -> None:
    how = {sums: Fraction.__add__, product: Fraction.__mul__, quotient: Fraction.__truediv__}[operation]
    for a, b in itertools.product(NUMBERS, repeat=2):
        if operation is quotient and b == 0:
            continue
        low, high = operation(a, b)
        value = how(Fraction(a), Fraction(b))
        assert low == -math.inf or Fraction(low) <= value, (a, b)
        assert high == math.inf or value <= Fraction(high), (a, b)
        assert low == high or high == math.nextafter(low, math.inf), (a, b)
        exact = abs(value) <= Fraction(1.7e308) and Fraction(float(value)) == value
        assert (low == high) == exact, (a, b)


@pytest.mark.parametrize("name", sorted(OWN))
def test_ranges_hold_values_with_fifty_digits(name: str) -> None:
    atom, params = ATOMS[name], PARAMS.get(name, ())
    for x, y in itertools.pairwise(sorted(POINTS)):
        if not (atom.domain[0] <= x and y <= atom.domain[1]):
            continue
        for a, b in ((x, x), (x, y), (-math.inf, x), (x, math.inf)):
            if a < atom.domain[0]:
                continue
            low, high = atom.range_on((a, b), *params)
            for end in (x, y) if b > x else (x,):
                if not a <= end <= b:
                    continue
                value = EXACT[name](mp.mpf(end), *map(mp.mpf, params))
                assert mp.isnan(value) or low <= value <= high, (end, (a, b), (low, high), value)


@pytest.mark.parametrize("power", [2, 3, -1, 0.5, 0.1, 1.7, -0.3])
def test_ranges_of_powers_hold_values_with_fifty_digits(power: float) -> None:
    for x in POINTS:
        if x > 0 or (x < 0 and power == int(power)):
            low, high = ATOMS["power"].range_on((x, x), power)
            assert low <= mp.mpf(x) ** mp.mpf(power) <= high, x


# what stands beside i, over i = 0, 1, 2, 3; decimals mean what is written
CLOSED = (
    "0.1 + 0.2 - 0.3", "1/3 + 1/3 + 1/3 - 1", "sqrt(2)**2 - 2", "exp(1)**2 - exp(2)", "sin(pi)", "cos(pi) + 1", "0.3",
    "1e-17 + 1 - 1", "log(6) - log(2) - log(3)", "0.1 * (i + 1) - 0.3", "i / 3 - 1/3",
    "exp(-0.1 * i) * exp(0.1 * i) - 1",
    "0.7**i - 0.49", "(0.1 * i)**2 - 0.01 * i**2", "tanh(0.2 * i) + tanh(-0.2 * i)", "1 / (i + 0.1) - 10",
    "2**i - i**2",
    "sum[j](0.1 * j) - 0.6", "mean[j](0.3 + 0 * j) - 0.3", "max[j](0.1 * j) - 0.3",
    "logsumexp[j](0.1 * i + 0 * j) - log(4)",
    "where(i < 2, 0.1, 0.3) - 0.1", "sqrt(i) * sqrt(i) - i", "gelu(0.1 * i - 0.2)",
    "elu(-0.1 * i) - exp(-0.1 * i) + 1", "clip(0.1 * i, 0.1, 0.2)", "erf(i - 2) + erf(2 - i)", "sigmoid(0.1*i) - 0.5",
    "1e300 * 1e-300 * i", "1e-200 * 1e-200 * (i + 1)", "abs(0.1 * i - 0.3)", "silu(i) - i * sigmoid(i)",
    "i**0.5 - sqrt(i)",
)  # fmt: skip


def _true(node, i: int) -> mp.mpf:
    """The value at one i, with fifty digits: decimals as they are written, and pi as itself."""
    kind = type(node).__name__
    if kind == "Number":
        return mp.pi if node.value == math.pi else mp.mpf(repr(node.value))
    if kind == "IndexValue":
        return mp.mpf(i if node.name == "i" else _true.j)
    if kind == "Reduction":
        values = []
        for _true.j in range(4):
            values.append(_true(node.arg, i))
        total = mp.fsum(map(mp.exp, values))
        return {
            "sum": mp.fsum(values),
            "mean": mp.fsum(values) / 4,
            "max": max(values),
            "logsumexp": mp.log(total),
            "softmax": None,
        }[node.reducer]
    if node.atom == "where":
        return _true(node.args[1 if _true(node.args[0], i) else 2], i)
    return EXACT[node.atom](*(_true(arg, i) for arg in node.args))


@pytest.mark.parametrize("text", CLOSED)
def test_numbers_and_indices_are_enclosed(text: str) -> None:
    netsor = Case("closed", base="nothing", then=f"y[i] = Nonlin({text} + 0 * i + h)").load()
    statement = netsor.body[0]
    assert isinstance(statement, Nonlin)
    sides = statement.expr.children[0]
    calculus = Calculus(netsor)
    interval = calculus.closed(sides)
    assert interval is not None
    values = [_true(sides, i) for i in range(4)]
    assert interval[0] <= min(values) and max(values) <= interval[1], (interval, values)
    size = max(1.0, *(abs(float(value)) for value in values))
    assert interval[1] - interval[0] <= float(max(values) - min(values)) + 1e-12 * size


def test_numbers_that_people_write_stay_exact() -> None:
    netsor = Case("exact", base="nothing", then="y[i] = Nonlin(h + i)").load()
    calculus = Calculus(netsor)
    half, third = (Call("divide", (Number(1), Number(k))) for k in (2, 3))
    assert calculus.closed(Call("add", (half, half))) == (1.0, 1.0)
    assert calculus.closed(Call("multiply", (third, Number(3)))) == (1.0, 1.0)
    assert calculus.closed(Call("sqrt", (Number(2.25),))) == (1.5, 1.5)
    assert calculus.closed(Call("multiply", (Number(0.1), Number(10)))) == (1.0, 1.0)
    assert calculus.closed(Call("exp", (Number(0),))) == (1.0, 1.0)
    low, high = calculus.closed(Number(0.1)) or (np.nan, np.nan)
    assert Fraction(low) <= Fraction(1, 10) <= Fraction(high) and high == math.nextafter(low, 1)

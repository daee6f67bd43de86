"""Limits of programs with declared functions: those of the shipped functions they copy, with honest errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import tensorprog as tp
from tensorprog.language.atoms import ATOMS


def network(f: Callable[[Any], Any]) -> tp.Program:
    """One layer on three correlated inputs."""
    P = tp.Program("layer")
    i = P.index("i", 3)
    h = P.initial("h[i]", mean=0, cov=0.6 ** abs(i - P.second(i)))
    W, V = P.weights("W", "V")
    u = P.matmul("u[i]", W, h[i])
    x = P.nonlin("x[i]", f(u[i]))
    P.outputs(P.matmul("v[i]", V, x[i]))
    return P


COPIES: list[tuple[Callable[[Any], Any], Callable[[Any], Any], dict[str, Any], float]] = [
    (np.tanh, lambda u: tp.tanh(u), {"range": (-1, 1), "lipschitz": 1, "parity": -1, "kinks": ()}, 1e-12),
    (np.tanh, lambda u: tp.tanh(u), {"growth": (1, 0)}, 1e-12),
    (lambda x: np.maximum(x, 0), lambda u: tp.relu(u), {"lipschitz": 1, "kinks": (0,)}, 1e-12),
    (lambda x: np.maximum(x - 0.3, 0), lambda u: tp.relu(u - 0.3), {"growth": (1, 1), "kinks": (0.3,)}, 1e-12),
    (lambda x: np.where(x > 0.3, 1.0, 0.0), lambda u: tp.step(u - 0.3), {"growth": (1, 0), "kinks": (0.3,)}, 1e-12),
    (
        lambda x: np.tanh(50 * x - 35),
        lambda u: tp.tanh(50 * u - 35),
        {"growth": (1, 0)},
        1.0,
    ),  # steep, and nobody says so
    (lambda x: np.tanh(300 * x), lambda u: tp.tanh(300 * u), {"growth": (1, 0), "kinks": ()}, 1.0),
]


@pytest.mark.parametrize(("fn", "shipped", "facts", "most"), COPIES)
def test_covariances_are_those_of_the_shipped_function(
    fn: Callable[[Any], Any], shipped: Callable[[Any], Any], facts: dict[str, Any], most: float
) -> None:
    mine = network(tp.atom("mine", fn, **facts)).limit().cov("v")
    theirs = network(shipped).limit().cov("v")
    assert np.abs(np.asarray(mine) - np.asarray(theirs)).max() <= mine.error + theirs.error
    assert mine.error < most


def test_formulas_name_a_function_without_formula() -> None:
    f = tp.atom("mine", np.tanh, range=(-1, 1), lipschitz=1, parity=-1, kinks=())
    law = network(f).limit(symbolic=True)
    assert "mine" in str(law.cov("v"))
    assert "mine" in law.latex()
    numbers = network(f).limit().cov("v")
    assert np.isfinite(np.asarray(numbers)).all()


def test_formulas_use_the_formula_that_is_given() -> None:
    f = tp.atom("mine", lambda x: x**2 * 1.0, modulus=(1, 1), kinks=(), sympy=lambda x: x**2)
    assert "mine" in str(network(f).limit(symbolic=True).cov("v"))
    x = sp.Symbol("x", real=True)
    assert ATOMS["mine"].sympy(sp, x) == x**2
    opaque = tp.atom("other", np.tanh)
    assert abs(float(ATOMS[opaque.__name__].sympy(sp, sp.Rational(1, 2)).evalf()) - np.tanh(0.5)) < 1e-12


def test_a_law_is_saved_with_values_of_its_functions(tmp_path: Path) -> None:
    f = tp.atom("mine", np.tanh, range=(-1, 1), lipschitz=1, kinks=())
    law = network(f).limit()
    law.save(tmp_path / "law.npz")
    again = tp.Law.load(tmp_path / "law.npz")
    assert np.array_equal(np.asarray(again.cov("v")), np.asarray(law.cov("v")))
    del ATOMS["mine"]
    with pytest.raises(tp.ProgramError, match="there is no function mine"):
        tp.Law.load(tmp_path / "law.npz")
    tp.atom("mine", np.sin)
    with pytest.raises(tp.ProgramError, match=r"mine was another function when the file was written: mine\("):
        tp.Law.load(tmp_path / "law.npz")

"""Functions of many numbers, on whole arrays and compiled."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

import mpmath
import numpy as np
import pytest

from tensorprog.finite import functions
from tensorprog.finite.functions import gelu
from tensorprog.language.atoms import ATOMS

ENGINES = ["numpy", pytest.param("numba", marks=pytest.mark.skipif(find_spec("numba") is None, reason="no numba"))]


def numbers() -> np.ndarray:
    rng = np.random.default_rng(0)
    halves = (np.arange(-4352, 4352, 97) + 0.5) / 512  # furthest from the tables
    edges = [side * np.nextafter(8.5, way) for side in (-1, 1) for way in (0, 9)]
    return np.concatenate([rng.standard_normal(1500) * 3, halves, edges, [0.0, 1e-300, -1e-20, 40.0, -40.0, 1e300]])


def by_mpmath(x: float) -> mpmath.mpf:
    return mpmath.mpf(x) * mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2


def kernels(engine: str) -> ModuleType | None:
    if engine == "numpy":
        return None
    from tensorprog.finite import kernels

    return kernels


@pytest.mark.parametrize("engine", ENGINES)
def test_gelu_is_as_exact_as_stated(engine: str) -> None:
    x = numbers()
    found = gelu(x, kernels=kernels(engine))
    with mpmath.workdps(40):
        errors = [float(abs(by_mpmath(float(a)) - mpmath.mpf(float(b)))) for a, b in zip(x, found, strict=True)]
    assert (np.array(errors) <= 5e-16 * np.abs(x)).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_small_values_are_exact_relatively(engine: str) -> None:
    x = np.linspace(-6, 1, 999)
    expected = ATOMS["gelu"].numpy(x)
    assert np.allclose(gelu(x, kernels=kernels(engine)), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_number_stays_so(engine: str) -> None:
    found = gelu(np.array([np.nan, np.inf, -np.inf, 2.0]), kernels=kernels(engine))
    assert not np.isfinite(found[:3]).any()
    assert np.isfinite(found[3])


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5), (2, functions.PIECE + 1)])
def test_both_give_the_same_bits_in_any_shape(shape: tuple[int, ...]) -> None:
    pytest.importorskip("numba")
    x = np.asarray(np.random.default_rng(1).standard_normal(shape)) * 4
    out = np.empty(shape)
    assert np.array_equal(gelu(x, kernels=kernels("numba")), gelu(x, out))
    assert np.array_equal(out, gelu(x))

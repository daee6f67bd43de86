"""Normals and chi variables: one law, and the same bits whichever engine draws them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from scipy import stats

from tensorprog.finite.normals import COMPILED, chi, engine, standard_normal

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="the extra `fast` is not installed")


def sfc(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts as a process does, and leaves no trace."""
    for name, value in (("module", None), ("tried", False), ("_asked", 0.0)):
        monkeypatch.setattr(COMPILED, name, value)
    monkeypatch.delenv("TENSORPROG_FAST", raising=False)


@pytest.fixture
def numba(fresh: None) -> None:
    COMPILED.prepare(np.inf)
    assert engine() == "numba"


def same_state(first: np.random.Generator, second: np.random.Generator) -> bool:
    ours, theirs = first.bit_generator.state, second.bit_generator.state
    assert np.array_equal(ours.pop("state")["state"], theirs.pop("state")["state"])
    return bool(ours == theirs)


@needs_numba
@pytest.mark.parametrize("seed", range(3))
def test_numba_draws_the_normals_of_numpy(numba: None, seed: int) -> None:
    ours, theirs = sfc(seed), sfc(seed)
    out = np.empty(2_000_003)
    standard_normal(ours, out)
    assert np.array_equal(out.view(np.int64), theirs.standard_normal(out.size).view(np.int64))  # signs of zeros too
    assert np.abs(out).max() > 3.7  # some are from the tail
    assert same_state(ours, theirs)


@needs_numba
def test_other_generators_and_types_are_left_to_numpy(numba: None) -> None:
    for bits in (np.random.PCG64(1), np.random.MT19937(1), np.random.Philox(1)):
        state = bits.state
        out = np.empty(1000)
        standard_normal(np.random.Generator(bits), out)
        bits.state = state
        assert np.array_equal(out, np.random.Generator(bits).standard_normal(1000))
    single = np.empty(1000, np.float32)
    standard_normal(sfc(1), single)
    assert np.array_equal(single, sfc(1).standard_normal(1000, dtype=np.float32))


def test_short_runs_do_not_start_numba() -> None:
    COMPILED.prepare(1e6)
    assert engine() == "numpy"
    assert not COMPILED.tried


def test_without_numba_numpy_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tensorprog.finite.kernels", raising=False)
    monkeypatch.delattr("tensorprog.finite.kernels", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    COMPILED.prepare(np.inf)
    assert engine() == "numpy"
    assert COMPILED.tried  # and is not looked for again
    out = np.empty((3, 5))
    standard_normal(sfc(1), out)
    assert np.array_equal(out, sfc(1).standard_normal((3, 5)))


def run(code: str, **environment: str) -> str:
    code = f"import sys; from tensorprog.finite import normals, run; {code}"
    command, settings = [sys.executable, "-W", "error", "-c", code], {**os.environ, **environment}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout.strip()


@needs_numba
@pytest.mark.parametrize("off", [{"NUMBA_DISABLE_JIT": "1"}, {"TENSORPROG_FAST": "0"}])
def test_numba_switched_off_is_not_used(off: dict[str, str]) -> None:
    assert run("normals.COMPILED.prepare(1e12); print(normals.engine())", **off) == "numpy"


def test_nothing_loads_numba_before_it_pays() -> None:
    assert run("normals.COMPILED.prepare(1e6); print('numba' in sys.modules)") == "False"


@pytest.mark.parametrize("nu", [1, 2, 3, 4, 17, 1024])
def test_chi_variables_have_their_law(nu: int) -> None:
    drawn = chi(sfc(nu), [nu], 20_000)[0]
    assert stats.kstest(drawn, stats.chi(nu).cdf).pvalue > 1e-3


def test_chi_without_degrees_of_freedom_is_zero() -> None:
    generator = sfc(1)
    assert np.array_equal(chi(generator, [0, 0], 5), np.zeros((2, 5)))
    assert same_state(generator, sfc(1))  # and draws nothing
    assert chi(generator, [2, 1, 0], 0).shape == (3, 0)

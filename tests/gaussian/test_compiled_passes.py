"""Compiled passes over tiles of pairs: the numbers of numpy, within the errors stated."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import mpmath
import numpy as np
import pytest
from gaussian_functions import FUNCTIONS
from test_arc_kernels import ELEMENTARY, gram

import tensorprog as tp
from tensorprog.gaussian import fast, pairs, steps
from tensorprog.gaussian.kernels import elementary, kernel, values
from tensorprog.gaussian.pairs import SIDE, Pairs
from tensorprog.gaussian.steps import ONE, KernelSteps, Kind

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="the extra `fast` is not installed")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts as a process does, and leaves no trace."""
    for name, value in (("module", None), ("tried", False), ("_asked", 0.0)):
        monkeypatch.setattr(fast.COMPILED, name, value)
    monkeypatch.delenv("TENSORPROG_FAST", raising=False)


@pytest.fixture
def started(fresh: None) -> None:
    fast.COMPILED.prepare(np.inf)
    assert fast.passes() is not None


@needs_numba
@pytest.mark.parametrize("name", ELEMENTARY)
def test_closed_forms_of_tiles(started: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, rng = elementary(ELEMENTARY[name]), np.random.default_rng(0)
    assert f is not None
    var = rng.uniform(0.2, 3.0, 164) ** 6
    var[[5, 44]] = 0.0
    v, w = var[:74, None], var[74:]
    near = np.array([0.0, 1.0, -1.0, 1 - 1e-15, 1 - 1e-9, 1e-5 - 1, 0.9995, 0.5, -0.999])
    rho = np.concatenate([rng.uniform(-1, 1, (74, 81)), np.resize(near, (74, 9))], axis=1)
    cov = rho * np.sqrt(v) * np.sqrt(w)
    found = values(f, f, v, w, cov)
    monkeypatch.setattr(fast.COMPILED, "module", None)
    usual = kernel(f, f, v, w, cov)
    assert np.all(np.abs(found - usual.value) <= usual.error)


@needs_numba
@pytest.mark.parametrize("name", ELEMENTARY)
@pytest.mark.parametrize(
    "shapes",
    [((3, 1, 900), (2, 900)), ((5400, 1), (1,)), ((2, 1), (1, 2700)), ((1,), (6, 1, 900)), ((60, 90), (1, 90))],
)
def test_closed_forms_of_arrays_of_any_shape(
    started: None, name: str, shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As covariances of places of images, whose variances are those of both places, and in any order."""
    f, rng = elementary(ELEMENTARY[name]), np.random.default_rng(1)
    assert f is not None
    v, w = (np.asfortranarray(rng.uniform(0.2, 3.0, shape)) for shape in shapes)
    cov = rng.uniform(-1, 1, np.broadcast_shapes(*shapes)) * np.sqrt(v) * np.sqrt(w)
    found = values(f, f, v, w, cov)
    monkeypatch.setattr(fast.COMPILED, "module", None)
    usual = kernel(f, f, v, w, cov)
    assert np.all(np.abs(found - usual.value) <= usual.error)


@needs_numba
def test_steps_without_sides_in_a_part_of_a_larger_array(started: None) -> None:
    steps, given = KernelSteps(), np.random.default_rng(0).standard_normal((128, 300))
    steps.result = steps.add(Kind.LINEAR, steps.add(Kind.KNOWN), total=ONE, number=2.0)
    larger = np.full((128, 1000), np.nan)
    assert np.array_equal(steps.run([given], given.shape, out=larger[:, 100:400]), 2 * given + 1)


@needs_numba
def test_angles_have_two_units_of_rounding() -> None:
    from tensorprog.gaussian.compiled import _asin

    near = 1 - 2.0 ** -np.arange(1, 54)
    r = np.concatenate([np.linspace(-1, 1, 1001), near, -near, 2.0 ** -np.arange(60), 0.5 + 1e-3 * near])
    off = [abs((mpmath.asin(mpmath.mpf(x)) - _asin(x)) / np.spacing(abs(_asin(x)))) for x in r.tolist()]
    assert max(off) <= 2


@needs_numba
@pytest.mark.parametrize("name", ["relu", "erf", "gelu", "tanh", "softplus"])
def test_matrices(started: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    k = gram(SIDE + 70)
    k[3] = k[:, 3] = k[4]
    k[3, 3] = k[3, 4] = k[4, 4]  # one input twice

    def matrix() -> Pairs:
        found = Pairs.of(k, np.zeros(len(k))).under(FUNCTIONS[name])
        assert found is not None
        return found

    one = matrix().estimate
    monkeypatch.setattr(fast.COMPILED, "module", None)
    two = matrix().estimate
    assert np.all(np.abs(one.value - two.value) <= two.error)
    assert np.array_equal(one.value, one.value.T)


# layers whose steps have numbers of both sides, of one of them, or none
LAYERS = {
    "a bias before a series": "tanh({z} + {b})",
    "skipped": "relu({z}) + {z} + erf({z}) / 3",
    "bells": "exp(-({z} + {b})**2) + 0.3",
    "steep": "sign({z}) + {z}",
    "gates": "relu({z}) * gelu({w} + {b})",
    "scaled": "silu({z} / 2 + {b}) - {w} / 4",
}


def two_layers(body: str) -> tp.Program:
    """On inputs of which some are the same, opposite, or small."""
    program, inputs = tp.Program("network"), np.random.default_rng(3).standard_normal((111, 20))
    inputs[5], inputs[11], inputs[7] = inputs[4], -inputs[4], 1e-3 * inputs[7]
    i = program.index("i", len(inputs))
    z, w = (program.initial(f"{name}[i]", data=inputs, variance=2.0) for name in "zw")
    for layer in "12":
        b = program.initial(f"b{layer}", mean=0, cov=0.1)
        x = program.nonlin(f"x{layer}[i]", body.format(z=z[i], w=w[i], b=b))
        z, w = (program.matmul(f"{name}{layer}[i]", program.weight(name.upper() + layer), x[i]) for name in "zw")
    program.outputs(z)
    return program


@needs_numba
@pytest.mark.parametrize("body", LAYERS.values(), ids=LAYERS)
def test_networks_in_tiles(started: None, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tiles are, and where they end; compiled, however few entries they have."""
    monkeypatch.setattr(steps, "MANY", 1)
    found = []
    for module, side, wide in ((fast.passes(), 16, 48), (fast.passes(), 128, 1024), (None, 16, 16), (None, 128, 128)):
        monkeypatch.setattr(fast.COMPILED, "module", module)
        monkeypatch.setattr(pairs, "SIDE", side)
        monkeypatch.setattr(pairs, "WIDE", wide)
        found.append(np.asarray(two_layers(body).limit().cov("z2")))
    size = np.sqrt(np.diag(found[-1]))
    for each in found[:-1]:
        assert np.all(np.abs(each - found[-1]) <= 1e-11 * np.outer(size, size))
        assert np.array_equal(each, each.T)


def test_small_matrices_do_not_start_numba() -> None:
    fast.COMPILED.prepare(1e6)
    assert fast.passes() is None
    assert not fast.COMPILED.tried


@pytest.mark.parametrize(
    ("before", "off"),
    [("", {"NUMBA_DISABLE_JIT": "1"}), ("", {"TENSORPROG_FAST": "0"}), ("import sys; sys.modules['numba'] = None", {})],
)
def test_without_numba_numpy_computes(before: str, off: dict[str, str]) -> None:
    code = f"{before}\nfrom tensorprog.gaussian import fast; fast.COMPILED.prepare(1e12); print(fast.passes())"
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | off, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"

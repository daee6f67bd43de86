"""All methods draw from one law, at widths small enough that a wrong conditional law would show.

Compared with `dense`: means, second and fourth moments, cross moments up to x**2 y**2, between all outputs, kept
vectors and scores, as they are and on a logarithmic scale (where heavy tails leave moments their power), and whole
distributions by the two-sample Kolmogorov-Smirnov test.  Seeds are fixed, so a pass stays a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tensorprog.finite import block, normals, plan
from tensorprog.finite.block import Lazy
from tensorprog.finite.plan import METHODS, make_job
from tensorprog.finite.run import run
from tensorprog.finite.vectors import Recipe

from . import oracles
from .agreement_programs import CASES, Case

Array = NDArray[np.float64]

THRESHOLD = 4.9  # a two-sided normal exceeds it once in a million
SMALLEST_P = 1e-6  # of a Kolmogorov-Smirnov test: a few hundred are made
QUICK = 8192
COLUMNS = 24  # of one program: more are thinned out evenly
CHUNK = 1 << 13
KS_NETWORKS = 200_000
OTHERS = [method for method in METHODS if method != "dense"]


@dataclass(frozen=True)
class Drawn:
    """Numbers of many networks: one column for each member and coordinate, and the family of each column."""

    columns: Array  # (networks, columns)
    families: tuple[str, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[np.floating]]) -> Drawn:
        flat = {name: np.asarray(array, dtype=float).reshape(len(array), -1) for name, array in arrays.items()}
        families = [name for name, array in flat.items() for _ in range(array.shape[1])]
        return cls(np.concatenate(list(flat.values()), axis=1), tuple(families))

    def membership(self) -> Array:
        """Weights that average the columns of each family (columns, families)."""
        member = np.array([[family == name for name in dict.fromkeys(self.families)] for family in self.families])
        return member / member.sum(axis=0)  # type: ignore[no-any-return]

    def spread(self, most: int) -> list[int]:
        """Positions of at most so many columns, evenly spaced."""
        total = len(self.families)
        return sorted({round(position) for position in np.linspace(0, total - 1, min(most, total))})


@dataclass(frozen=True)
class Moments:
    """Averages over networks, with their standard errors and the sizes they are measured against."""

    names: tuple[str, ...]
    mean: Array
    error: Array
    size: Array

    def z(self, other: Moments) -> Array:
        """Differences in standard errors; differences by rounding alone are none."""
        rounding = 1e-9 * np.maximum(self.size, other.size) + 1e-30
        return np.abs(self.mean - other.mean) / np.hypot(np.hypot(self.error, other.error), rounding)  # type: ignore[no-any-return]


def moments(drawn: Drawn, scale: Array) -> Moments:
    """Means of x, x y, x**2 y, x**2 y**2 over columns, then of x**2 and x**4 averaged over each family.

    `scale` is the size of each column, the same for all methods.
    """
    chosen = drawn.spread(COLUMNS)
    member = drawn.membership()
    upper = np.triu_indices(len(chosen))
    total = np.zeros((2, 0))
    for start in range(0, len(drawn.columns), CHUNK):
        sums: list[tuple[Array, Array]] = []  # of values and of their squares
        whole = drawn.columns[start : start + CHUNK] / scale
        for values in (whole, logarithmic(whole)):
            squares = values * values
            pooled = np.concatenate([squares @ member, (squares * squares) @ member], axis=1)
            x, x2 = (values, squares) if len(chosen) == values.shape[1] else (values[:, chosen], squares[:, chosen])
            x4 = x2 * x2
            square = x2.T @ x2
            sums += [
                (x.sum(axis=0), x2.sum(axis=0)),
                ((x.T @ x)[upper], square[upper]),
                ((x2.T @ x).ravel(), (x4.T @ x2).ravel()),
                (square[upper], (x4.T @ x4)[upper]),
                (pooled.sum(axis=0), (pooled * pooled).sum(axis=0)),
            ]
        part = np.array([np.concatenate(column) for column in zip(*sums, strict=True)])
        total = total + part if total.size else part
    mean, square = total / len(drawn.columns)
    error = np.sqrt(np.maximum(square - mean**2, 0) / len(drawn.columns))
    return Moments(_names(drawn, chosen), mean, error, np.sqrt(square))


def logarithmic(columns: Array) -> Array:
    """Columns of size 1 on a scale on which heavy tails are light."""
    return np.arcsinh(3 * columns)


def _names(drawn: Drawn, chosen: list[int]) -> tuple[str, ...]:
    """What `moments` computes, in its order."""
    labels = [f"{drawn.families[column]}#{column}" for column in chosen]
    pairs = [(labels[i], labels[j]) for i, j in zip(*np.triu_indices(len(labels)), strict=True)]
    names = [
        *labels,
        *(f"{a} {b}" for a, b in pairs),
        *(f"{a}**2 {b}" for a in labels for b in labels),
        *(f"{a}**2 {b}**2" for a, b in pairs),
        *(f"{family}**{power} pooled" for power in (2, 4) for family in dict.fromkeys(drawn.families)),
    ]
    return (*names, *(f"log {name}" for name in names))


def scales(drawn: Drawn) -> Array:
    """Root mean squares of the columns, 1 for columns of zeros."""
    size = np.sqrt((drawn.columns**2).mean(axis=0))
    return np.where(size > 0, size, 1.0)


@dataclass(frozen=True)
class Comparison:
    """The worst disagreements of two sets of draws."""

    z: float
    moment: str
    p: float
    column: str

    @property
    def agrees(self) -> bool:
        return self.z < THRESHOLD and self.p > SMALLEST_P


def compare(reference: Drawn, moments_of_reference: Moments, scale: Array, other: Drawn) -> Comparison:
    """Hold draws against as many of a reference.

    Numbers being equal, a difference of means is symmetric if the laws are one, and a symmetric sum over its own
    standard error has no heavier tails than a normal variable: heavy tails cost power, but raise no false alarm.
    """
    assert reference.families == other.families
    assert len(reference.columns) == len(other.columns)
    found = moments(other, scale)
    z = found.z(moments_of_reference)
    worst = int(np.argmax(z))
    tests = [(_ks(reference.columns[:, c] / scale[c], other.columns[:, c] / scale[c]), c) for c in other.spread(4)]
    p, column = min(tests)
    return Comparison(float(z[worst]), found.names[worst], p, f"{other.families[column]}#{column}")


def _ks(a: Array, b: Array) -> float:
    # rounded, because equal atoms may differ by rounding
    return float(stats.ks_2samp(a[:KS_NETWORKS].round(7), b[:KS_NETWORKS].round(7), method="asymp").pvalue)


def draw(case: Case, method: str, samples: int, seed: int) -> Drawn:
    return Drawn.of(
        run(
            case.netsor,
            case.width,
            samples,
            method=method,
            seed=seed,
            coordinates=case.coordinates,
            keep=case.keep,
        )
    )


@lru_cache(maxsize=2)  # for the methods of one program, which are tested in turn
def reference(name: str, samples: int) -> tuple[Drawn, Moments, Array]:
    drawn = draw(CASES[name], "dense", samples, 1)
    scale = scales(drawn)
    return drawn, moments(drawn, scale), scale


def against_dense(name: str, method: str, samples: int) -> Comparison:
    return compare(*reference(name, samples), draw(CASES[name], method, samples, 2))


@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("name", CASES)
def test_few_networks_agree_with_dense(name: str, method: str) -> None:
    comparison = against_dense(name, method, QUICK)
    assert comparison.agrees, comparison


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS)
@pytest.mark.parametrize("name", CASES)
def test_many_networks_agree_with_dense(name: str, method: str) -> None:
    comparison = against_dense(name, method, CASES[name].samples)
    assert comparison.agrees, comparison


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS)
def test_a_few_networks_at_a_time(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("attention", "shared_keys", "recurrence_beside_shared_keys", "layer_norm_of_inner_products_only"):
        reference(name, QUICK)
        with monkeypatch.context() as patched:
            patched.setattr(plan, "MAX_BLOCK", 8)
            comparison = against_dense(name, method, QUICK)
        assert comparison.agrees, comparison


@lru_cache(maxsize=2)
def by_hand(name: str, samples: int) -> tuple[Drawn, Moments, Array]:
    drawn = Drawn.of(oracles.simulate(name, samples, 3))
    scale = scales(drawn)
    return drawn, moments(drawn, scale), scale


def against_oracle(name: str, method: str, samples: int) -> Comparison:
    return compare(*by_hand(name, samples), draw(CASES[name], method, samples, 4))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", oracles.ORACLES)
def test_few_networks_agree_with_numpy(name: str, method: str) -> None:
    comparison = against_oracle(name, method, QUICK)
    assert comparison.agrees, comparison


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", oracles.ORACLES)
def test_many_networks_agree_with_numpy(name: str, method: str) -> None:
    comparison = against_oracle(name, method, 250_000)
    assert comparison.agrees, comparison


def test_reused_weights_know_their_history() -> None:
    """E |W x|**2 |W W x|**2 / n**2 at n = 4: independent rows given the Gram matrix would give 1.12, not 1.87."""
    # With |x|**2 = n, A = |u1|**2 ~ chi2(n) and z = (x.u1)**2 / n ~ chi2(1), a component of A: given u1,
    # u2 = u1 (x.u1) / n + N(0, (A - z) / n), so E A |u2|**2 = E A**2 z / n + E A**2 - E A z, where
    # E A**2 = n (n + 2), E A z = n + 2 and E A**2 z = E A**3 / n = (n + 2) (n + 4): (12 + 24 - 6) / 16 = 1.875
    for method in METHODS:
        y = run(CASES["powers"].netsor, 4, 200_000, method=method, seed=5)["y"]
        error = y.std() / np.sqrt(y.size)
        assert abs(y.mean() - 1.875) < THRESHOLD * error, (method, y.mean(), error)
        assert error < 0.05


def test_dependent_inputs_give_dependent_products_exactly() -> None:
    for method in METHODS:
        drawn = run(CASES["dependent"].netsor, 8, 2000, method=method, seed=3)
        u, w = drawn["u"], drawn["w"]
        np.testing.assert_allclose(u[:, 0], u[:, 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(w, u[:, 2] + 3 * u[:, 0], rtol=0, atol=1e-9)


def test_zero_vectors_and_equal_tokens_give_exact_scores() -> None:
    for method in METHODS:
        zero = run(CASES["zero_vectors"].netsor, 3, 500, method=method, seed=1)["p"]
        assert np.all(zero[:, 0, :] == 0)
        assert np.all(zero[:, :, 0] == 0)
        assert np.all(zero[:, 1, 1] != 0)
        equal = run(CASES["duplicated_tokens"].netsor, 3, 500, method=method, seed=1)["p"]
        np.testing.assert_allclose(equal[:, 0], equal[:, 1], rtol=0, atol=1e-9)
        np.testing.assert_allclose(equal[:, :, 0], equal[:, :, 1], rtol=0, atol=1e-9)


def test_scores_of_two_dimensional_tokens_have_rank_two() -> None:
    for method in METHODS:
        p = run(CASES["tokens_of_two_dimensions"].netsor, 5, 200, method=method, seed=1)["p"]
        singular = np.linalg.svd(p, compute_uv=False)
        assert np.all(singular[:, 2] < 1e-7 * singular[:, 0])
        assert np.median(singular[:, 1] / singular[:, 0]) > 0.01


@pytest.mark.parametrize(
    "name", ["reuse", "dependent", "linear_recurrence_width_2", "one_weight_in_two_statements_dependent"]
)
def test_a_forgotten_history_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lazy engine that takes every product of a weight for the first one fails."""
    matmul = Lazy.matmul
    monkeypatch.setattr(Lazy, "matmul", lambda self, *arguments: matmul(type(self)(), *arguments))
    assert against_dense(name, "lazy", 50_000).z > 1.5 * THRESHOLD


def _one_degree_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    chi = normals.chi
    monkeypatch.setattr(normals, "chi", lambda g, degrees, size: chi(g, [max(0, nu - 1) for nu in degrees], size))


def _nothing_along_earlier_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = block.gaussian_vectors

    def forgetful(generator: np.random.Generator, recipe: Recipe, *arguments: Any) -> NDArray[Any]:
        drawn = vectors(generator, recipe, *arguments)
        if recipe.degrees:  # there is a frame
            drawn[..., : recipe.known] = 0
        return drawn

    monkeypatch.setattr(block, "gaussian_vectors", forgetful)


@pytest.mark.parametrize("name", ["attention", "shared_keys", "plain_scores", "output_weight_outside_the_sum"])
@pytest.mark.parametrize("mistake", [_one_degree_fewer, _nothing_along_earlier_directions])
def test_a_wrong_frame_is_found(
    name: str, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert against_dense(name, "collapsed", QUICK).z > 1.5 * THRESHOLD


def test_most_programs_are_collapsed() -> None:
    """The comparison means something: chi variables are drawn, and fewer normals than by `lazy`."""
    collapses = 0
    for case in CASES.values():
        lazy, framed = (
            make_job(case.netsor, case.width, 0, method, case.coordinates, case.keep).plan
            for method in ("lazy", "collapsed")
        )
        assert lazy.chi_squares == 0
        collapses += framed.chi_squares > 0 and framed.normals < lazy.normals
    assert collapses > 0.9 * len(CASES)

"""What must agree for one program, whoever interprets it; each function raises AssertionError or says what it compared.

Statistics compare bounded functions of scaled outputs, whose averages have finite variance whatever the law's tails.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog import NotCompiledError, Program, ProgramError
from tensorprog.language.ir import Dot, MatMul
from tensorprog.limit.formulas import estimate
from tests.reading import Netsor, dump, loads

from .generator import BOUNDED, OTHERS, write

__all__ = ["THRESHOLD", "Found", "built", "draws_agree", "examine", "program"]

Array = NDArray[Any]
MORE = ("clip", "exp", "max", "mean", "softmax", "sqrt", "sum", "where")  # functions besides
THRESHOLD = 5.3  # of z-scores: a two-sided normal exceeds it once in ten million, and a program has some tens of them


def program(text: str) -> Program:
    """A program from its text."""
    made = Program.from_netsor(loads(text))
    assert isinstance(made, Program)
    return made


def built(netsor: Netsor) -> Netsor:
    """The same program through the Python front end: every right side is evaluated on handles."""
    P = tp.Program(netsor.name)
    scope: dict[str, Any] = {name: getattr(tp, name) for name in (*BOUNDED, *OTHERS, *MORE)} | {"inf": np.inf}

    def of(part: Any) -> Any:
        return eval(str(part), {"__builtins__": {}}, scope)  # the text is this generator's own

    for name, index in netsor.index.items():
        scope[name] = P.index(name, f"{index.start}..{index.stop - 1}", index.boundary)
    for initial in netsor.initial:
        law = {"cov": str(initial.cov)} if initial.data is None else {"data": initial.data.array, "variance": 1}
        scope[initial.name] = P.initial(_left(initial.name, initial.indices), **law)
    for weight in netsor.weights:
        scope[weight.name] = P.weight(_left(weight.name, weight.indices), str(weight.variance))
    for statement in netsor.body:
        left = str(statement.target)
        if isinstance(statement, MatMul):
            made = P.matmul(left, of(statement.weight), of(statement.vector))
        elif isinstance(statement, Dot):
            made = P.dot(left, of(statement.left), of(statement.right), scale=statement.scale)
        else:
            made = P.nonlin(left, of(statement.expr))
        scope[statement.target.name] = made
    P.outputs(*netsor.outputs)
    return P.netsor


def _left(name: str, indices: Sequence[str]) -> str:
    return f"{name}[{','.join(indices)}]" if indices else name


def functions(columns: Array, scale: Array) -> Array:
    """Bounded functions of scaled columns: of each, and of pairs.

    Shapes    columns (draws, members), scale (members,) -> (draws, functions)
    """
    x = columns / scale
    each = [np.tanh(x), np.tanh(x) ** 2, np.tanh(2 * x) ** 2, np.cos(x)]
    pairs = list(itertools.combinations(range(x.shape[1]), 2))[:6]
    each += [np.tanh(x[:, [i]]) * np.tanh(x[:, [j]]) for i, j in pairs]
    return np.concatenate(each, axis=1)


def columns(draws: Any, names: tuple[str, ...], most: int = 6) -> Array:
    """Members of the outputs, side by side."""
    flat = [np.asarray(draws[name], dtype=float).reshape(len(draws[name]), -1) for name in names]
    return np.concatenate(flat, axis=1)[:, :most]


def mean_and_error(values: Array) -> tuple[Array, Array]:
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def worst(first: Array, error: Array, second: Array, other: Array, allowed: Array | float = 0.0) -> float:
    """The largest z-score of differences, beyond what is allowed."""
    distance = np.maximum(np.abs(first - second) - allowed - 1e-9, 0)
    return float(np.max(distance / (np.hypot(error, other) + 1e-12), initial=0.0))


def methods_agree(P: Program, samples: int, width: int = 6) -> float:
    """Dense, lazy and collapsed networks have one law."""
    names = P.netsor.outputs
    drawn = {
        m: columns(P.run(width, samples, seed=k, method=m), names) for k, m in enumerate(("dense", "lazy", "collapsed"))
    }
    scale = np.sqrt((drawn["dense"] ** 2).mean(axis=0)) + 1e-300
    found = {m: mean_and_error(functions(x, scale)) for m, x in drawn.items()}
    return max(worst(*found["dense"], *found[m]) for m in ("lazy", "collapsed"))


def numbers(law: Any) -> Iterator[tuple[str, Array, Array]]:
    """Means, covariances and kurtoses of outputs with their errors."""
    for name in law.outputs:
        yield f"mean {name}", *map(np.asarray, law.mean(name, with_error=True))
    for first, second in itertools.combinations_with_replacement(law.outputs, 2):
        value, error = law.cov(first, second, with_error=True)
        yield f"cov {first} {second}", np.asarray(value), np.asarray(error)


def draws_agree(law: Any, samples: int) -> float:
    """A law and its own draws: covariances as averages, with heavy tails bounded by few members."""
    names = law.outputs
    drawn = law.sample(samples, seed=1)
    found = 0.0
    for name in names:
        x = np.asarray(drawn[name]).reshape(samples, -1)
        mean, error = mean_and_error(x)
        value, stated = map(np.asarray, law.mean(name, with_error=True))
        found = max(found, worst(mean, error, value.ravel(), stated.ravel()))
        second = x[:, :, None] * x[:, None, :]
        second = second.reshape(samples, -1)
        mean, error = mean_and_error(second)
        cov, stated = (np.asarray(a).reshape(mean.shape) for a in law.cov(name, with_error=True))
        centre = value.ravel()
        found = max(found, worst(mean, error, cov + np.outer(centre, centre).ravel(), stated))
        for k in range(min(2, x.shape[1])):
            member = f"{name}[{','.join(map(str, index_of(law, name, k)))}]" if np.ndim(value) else name
            grid = np.quantile(x[:, k], [0.05, 0.3, 0.6, 0.9])
            below, stated = law.cdf(member, grid + 0.003 * x[:, k].std(), with_error=True)
            share = (x[:, [k]] <= grid + 0.003 * x[:, k].std()).mean(axis=0)
            error = np.sqrt(np.maximum(share * (1 - share), 1e-4) / samples)
            found = max(found, worst(share, error, below, stated))
    return found


def index_of(law: Any, name: str, k: int) -> list[int]:
    """Values of the indices of the k-th member of a family."""
    ranges = law.compiled.families[name].ranges
    place = np.unravel_index(k, [stop - start for start, stop in ranges])
    return [int(p) + start for p, (start, _) in zip(place, ranges, strict=True)]


def networks_agree(P: Program, law: Any, samples: int, width: int = 96) -> float:
    """Networks of width n and 2 n, extrapolated in 1/n, and draws of the limit.

    What the extrapolation leaves is of second order: a quarter of the difference of the widths is allowed for it.
    """
    names = P.netsor.outputs
    limit = columns(law.sample(4 * samples, seed=2), names)
    scale = np.sqrt(np.quantile(limit**2, 0.7, axis=0)) + 1e-12 * (1 + np.abs(limit).max())
    exact, error = mean_and_error(functions(limit, scale))
    (small, e1), (large, e2) = (
        mean_and_error(functions(columns(P.run(n, samples, seed=n), names), scale)) for n in (width, 2 * width)
    )
    other = np.hypot(e1, 2 * e2)
    return worst(exact, error, 2 * large - small, other, 0.25 * np.abs(large - small))


def laws_equal(first: Any, second: Any) -> float:
    """Numbers of two laws of one program: the largest difference over the errors stated."""
    found = 0.0
    for (what, a, da), (_, b, db) in zip(numbers(first), numbers(second), strict=True):
        allowed = da + db + 1e-12 * max(1.0, float(np.abs(a).max(initial=0.0)))
        assert a.shape == b.shape, what
        found = max(found, float(np.max(np.abs(a - b) / allowed, initial=0.0)))
    return found


def formulas_agree(P: Program, law: Any) -> float | None:
    """Formulas of covariances, evaluated, and their numbers; None where no formula is compiled."""
    try:
        symbolic = P.limit(symbolic=True)
        found = 0.0
        for name in law.outputs:
            if law.scores and name in law.recursion.random:
                continue
            formula = symbolic.cov(name)
            value, error = map(np.asarray, law.cov(name, with_error=True))
            own = np.asarray(formula) if formula.shape else np.asarray(formula.at())
            made = [estimate(entry) for entry in np.ravel(own)]
            flat = np.array([entry.value for entry in made]).reshape(value.shape)
            allowed = error + np.array([entry.error for entry in made]).reshape(value.shape)
            allowed += 1e-12 * (1 + np.abs(value))
            found = max(found, float(np.max(np.abs(flat - value) / allowed, initial=0.0)))
        return found
    except NotCompiledError:
        return None
    except ProgramError as error:
        if "must be given values first" in str(error):
            return None  # a formula that holds an average over draws, which only numbers can give
        raise


@dataclass
class Found:
    """What was compared for one program: z-scores of statistics, and differences over stated errors."""

    grade: str
    features: tuple[str, ...]
    z: dict[str, float] = field(default_factory=dict)
    ratio: dict[str, float] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """What does not agree."""
        return [f"{what}: z = {value:.1f}" for what, value in self.z.items() if not value < THRESHOLD] + [
            f"{what}: {value:.3g} times the errors stated" for what, value in self.ratio.items() if not value <= 1
        ]


def examine(seed: int, samples: int) -> Found:
    """Everything that is compared for the program of a seed.

    Raises    AssertionError where front ends or styles differ
    """
    written = write(seed)
    P, other = program(written.text), program(write(seed, seed + 1).text)
    assert loads(dump(P.netsor)) == P.netsor
    assert built(P.netsor) == P.netsor
    found = Found(P.check().grade, written.features)
    assert other.check().grade == found.grade
    if found.grade == "outside":
        return found
    found.z["dense, lazy and collapsed networks"] = methods_agree(P, samples)
    law = P.limit()
    with suppress(NotCompiledError):  # sums inside nonlinear functions behind scores are refused when they are read
        found.z["the law and its own draws"] = draws_agree(law, 4 * samples)
        found.z["networks, extrapolated, and the law"] = networks_agree(P, law, samples)
        found.ratio["laws of two styles"] = laws_equal(law, other.limit())
        rewritten = P.rewritten()
        if rewritten.netsor != P.netsor:
            found.ratio["laws of the program and of its rewritten form"] = laws_equal(law, rewritten.limit())
    formulas = formulas_agree(P, law)
    if formulas is not None:
        found.ratio["formulas and numbers"] = formulas
    return found

"""How many of the errors that laws state hold: an adversarial battery of laws against high-precision quadrature.

Every law is y = g(p) v + m(p), p ~ N(0, K**2) a score and v ~ N(0, K), or two tokens under a softmax, whose conditional
variance is a function of one Gaussian.  So every number is an integral over one variable, which panels that crowd at
the places where g and m change resolve to 1e-12; nothing of `tensorprog.limit` is used for it.  Spikes, steps, narrow
noise, heavy tails, atoms, zeros of g, covariances that are nearly singular, sums of independent heads.

    python benchmarks/soundness.py [--every K] [--family NAME] [--failures]
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import tensorprog as tp
from tensorprog.language.reading import loads

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
Marks = tuple[tuple[float, float], ...]
REACH = 13.0  # standard deviations of the score
NODES = 24  # per panel
QUANTITIES = ("mean", "variance", "kurtosis", "density", "cdf", "quantile", "kl_gaussian")


@dataclass(frozen=True)
class Case:
    """A program, and the mean and standard deviation of y given one Gaussian variable of standard deviation `sd`.

    `marks` are (place, width) where these change; `heads` independent copies are averaged.
    """

    family: str
    text: str
    mean: Function
    deviation: Function
    sd: float
    marks: Marks = ()
    heads: int = 1
    gaussian: bool = False  # the law is Gaussian

    @property
    def name(self) -> str:
        return f"{self.family}: {self.text.split('y = Nonlin(')[1].splitlines()[0][:-1]}"


PROGRAM = """
program: case
indices: {{a: {heads}, j: {tokens}}}
initial:
  "x[j]": {{cov: "{cov}"}}
weights:
  "Q[a]": 1
  "K[a]": 1
  "V[a]": 1
body:
  - q[a,j] = MatMul(Q[a], x[j])
  - k[a,j] = MatMul(K[a], x[j])
  - v[a,j] = MatMul(V[a], x[j])
  - p[a,j] = Dot(q[a,0], k[a,j])
  - y = Nonlin({y})
outputs: [y]
"""


def one(family: str, y: str, g: Function, m: Function | None = None, K: float = 0.6,
        marks: Marks = (), heads: int = 1, gaussian: bool = False) -> Case:  # fmt: skip
    """y = g(p) v + m(p); for several heads the sum of g(p[a]) v[a] divided by sqrt(heads)."""
    cov = repr(K)
    index = "0" if heads == 1 else "a"
    body = re.sub(r"\b[pv]\b", lambda name: f"{name.group()}[{index},0]", y)
    body = body if heads == 1 else f"sum[a]({body}) * {heads**-0.5!r}"
    text = PROGRAM.format(heads=heads, tokens=1, cov=cov, y=body)
    zero: Function = lambda p: np.zeros_like(p)  # noqa: E731
    return Case(family, text, m or zero, lambda p: np.abs(g(p)) * math.sqrt(K), K, marks, heads, gaussian)


def two_tokens(rho: float, scale: float, K: float = 1.0) -> Case:
    """sum of softmax(scale * p) v over two tokens with correlation rho: a function of the difference of the scores."""
    cov = f"where(j == j_, {K!r}, {K * rho!r})"
    text = PROGRAM.format(heads=1, tokens=2, cov=cov, y=f"sum[j](softmax[j]({scale} * p[0,j]) * v[0,j])")
    sd = K * math.sqrt(2 * (1 - rho))

    def deviation(d: Array) -> Array:
        w = _sigmoid(scale * d)
        return np.asarray(np.sqrt(K * np.maximum(1 - 2 * w * (1 - w) * (1 - rho), 0)))

    return Case("two tokens", text, lambda d: np.zeros_like(d), deviation, sd, ((0.0, 1 / scale),))


def cases() -> Iterator[Case]:
    """The battery, family by family."""
    for height in (3, 30, 100):
        for steep in (10, 100, 1000):
            for place in (0.3, 0.911, 1.6, -1.3):
                yield one(
                    "spike",
                    f"(1 + {height}*gaussian({steep}*(p - ({place}))))*v",
                    lambda p, h=height, s=steep, c=place: 1 + h * np.exp(-((s * (p - c)) ** 2)),
                    marks=((place, 1 / steep),),
                )
    for height in (1, 30):
        for steep in (5, 40, 200, 1000):
            for place in (0.0, 0.2, 1.3, 2.0):
                yield one(
                    "step",
                    f"(1 + {height}*sigmoid({steep}*(p - {place})))*v",
                    lambda p, h=height, s=steep, c=place: 1 + h * _sigmoid(s * (p - c)),
                    marks=((place, 1 / steep),),
                )
    for steep in (3, 8, 20):
        for place in (0.0, 0.2, 1.3):
            yield one(
                "soft gate",
                f"sigmoid({steep}*(p - {place}))*v",
                lambda p, s=steep, c=place: _sigmoid(s * (p - c)),
                marks=((place, 1 / steep),),
            )
    moved: dict[str, tuple[Function, tuple[tuple[float, float], ...]]] = {
        "p": (lambda p: p, ()),
        "tanh(3*p)": (lambda p: np.tanh(3 * p), ((0.0, 0.3),)),
        "sin(4*p)": (lambda p: np.sin(4 * p), ()),
        "p**2": (lambda p: p**2, ()),
        "abs(p)": (np.abs, ((0.0, 1.0),)),
        "relu(p)": (lambda p: np.maximum(p, 0), ((0.0, 1.0),)),
        "tanh(50*p)": (lambda p: np.tanh(50 * p), ((0.0, 0.02),)),
    }
    for noise in (1.0, 0.1, 0.01, 0.001):
        for text, (m, marks) in moved.items():
            yield one(
                "narrow noise",
                f"{noise}*v + {text}",
                lambda p, a=noise: np.full_like(p, a),
                m,
                marks=marks,
                gaussian=text == "p",
            )
    for noise in (0.3, 0.01):
        yield one("narrow noise", f"{noise}*p*v + p", lambda p, a=noise: a * p, lambda p: p, marks=((0.0, 1.0),))
    for power in (1, 2, 3, 4):
        yield one("zero", f"p**{power}*v", lambda p, k=power: p**k, marks=((0.0, 1.0),))
        yield one("zero", f"(p - 0.4)**{power}*v", lambda p, k=power: (p - 0.4) ** k, marks=((0.4, 1.0),))
        yield one("heavy tail", f"(1 + p**2)**{power}*v", lambda p, k=power: (1 + p**2) ** k)
        yield one("heavy tail", f"(0.1 + p**{power})*v + p", lambda p, k=power: 0.1 + p**k, lambda p: p)
    for place in (0.0, 0.3, -0.5, 1.2):
        yield one("atom", f"relu(p - ({place}))*v", lambda p, c=place: np.maximum(p - c, 0), marks=((place, 1.0),))
        yield one(
            "atom",
            f"clip(p - ({place}), 0, 0.5)*v",
            lambda p, c=place: np.clip(p - c, 0, 0.5),
            marks=((place, 0.5), (place + 0.5, 0.5)),
        )
        yield one(
            "kink", f"abs(p - ({place}))*v + 0.2*v", lambda p, c=place: np.abs(p - c) + 0.2, marks=((place, 1.0),)
        )
    for rho in (0.0, 0.9, 0.999, 1 - 1e-6):
        for scale in (1, 5, 25, 200):
            yield two_tokens(rho, scale)
    for heads in (2, 3, 8, 40):
        for text, g in (
            ("tanh(2*p)*v", lambda p: np.tanh(2 * p)),
            ("p*v", lambda p: p),
            ("(1 + 10*gaussian(30*(p - 0.7)))*v", lambda p: 1 + 10 * np.exp(-((30 * (p - 0.7)) ** 2))),
        ):
            yield one("heads", text, g, heads=heads, marks=((0.7, 1 / 30), (0.0, 0.5)))


def _sigmoid(x: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(x))


# ---- references -----------------------------------------------------------------------------------------------------


def _edges(low: float, high: float, marks: Marks, finer: int) -> Array:
    """Edges of panels that crowd at the marks, at all scales."""
    edges = [np.linspace(low, high, 48 * finer + 1)]
    for place, width in marks:
        near = width * np.arange(0, 8 * finer + 1) / finer
        far = (high - low) * 2.0 ** (-np.arange(0, 52 * finer) / finer)
        edges += [place + near, place - near, place + far, place - far]
    every = np.unique(np.concatenate(edges))
    return every[(every >= low) & (every <= high)]


def _rule(edges: Array) -> tuple[Array, Array]:
    x, w = np.polynomial.legendre.leggauss(NODES)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


@dataclass(frozen=True)
class Truth:
    """Numbers of a case by quadrature; every answer is (value, error), the error from twice as many panels."""

    case: Case

    def _integral(self, f: Callable[[Array, Array], Array], marks: Marks = ()) -> tuple[float, float]:
        """E f(mean, deviation) over the Gaussian variable."""
        sd, found = self.case.sd, []
        for finer in (1, 2):
            p, w = _rule(_edges(-REACH * sd, REACH * sd, (*self.case.marks, *marks), finer))
            weight = w * np.exp(-0.5 * (p / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
            found.append(float(weight @ f(self.case.mean(p), self.case.deviation(p))))
        return found[1], abs(found[1] - found[0]) + 1e-13 * abs(found[1])

    def mean(self) -> tuple[float, float]:
        return self._integral(lambda m, s: m)

    def variance(self) -> tuple[float, float]:
        centre = self.mean()[0]
        return self._integral(lambda m, s: (m - centre) ** 2 + s**2)

    def kurtosis(self) -> tuple[float, float]:
        centre, (variance, wrong) = self.mean()[0], self.variance()
        top, error = self._integral(lambda m, s: (m - centre) ** 4 + 6 * (m - centre) ** 2 * s**2 + 3 * s**4)
        value = 3 + (top / variance**2 - 3) / self.case.heads
        return value, (error / variance**2 + 2 * wrong * top / variance**3) / self.case.heads

    def _crossings(self, y: float) -> tuple[tuple[float, float], ...]:
        """Where the conditional mean passes y: there a narrow conditional density is large."""
        p, _ = _rule(_edges(-REACH * self.case.sd, REACH * self.case.sd, self.case.marks, 1))
        m, s = self.case.mean(p) - y, self.case.deviation(p)
        if not m.any() or not np.any(self.case.mean(p)):
            return ()
        marks = []
        for k in np.flatnonzero(np.sign(m[1:]) * np.sign(m[:-1]) <= 0):
            low, high = p[k], p[k + 1]
            for _ in range(60):
                middle = (low + high) / 2
                same = (self.case.mean(np.array([middle]))[0] - y) * m[k] > 0
                low, high = (middle, high) if same else (low, middle)
            slope = abs((m[k + 1] - m[k]) / (p[k + 1] - p[k]))
            marks.append((float(low), float(s[k] / max(slope, 1e-3))))
        nearest = int(np.argmin(np.abs(m)))
        return (*marks, (float(p[nearest]), float(max(s[nearest], 1e-6))))

    def density(self, y: float) -> tuple[float, float]:
        places = np.array([place for place, _ in self.case.marks])
        still = (self.case.deviation(places) == 0) & (np.abs(self.case.mean(places) - y) < 1e-12)
        if still.any():  # E[1 / deviation] is infinite: the deviation is a power of the distance, or 0 on an interval
            return math.inf, 0.0

        def f(m: Array, s: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                value = np.exp(-0.5 * ((y - m) / s) ** 2) / (s * math.sqrt(2 * math.pi))
            return np.where(s > 0, value, 0.0)

        return self._integral(f, self._crossings(y))

    def cdf(self, y: float) -> tuple[float, float]:
        from scipy.special import ndtr

        def f(m: Array, s: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(s > 0, ndtr((y - m) / s), m <= y)

        return self._integral(f, self._crossings(y))

    def kl_gaussian(self) -> tuple[float, float] | None:
        """KL to the Gaussian of equal mean and variance, where the conditional mean is 0."""
        if self.case.gaussian:
            return 0.0, 0.0
        deviation = math.sqrt(self.variance()[0])
        found = []
        for finer, step in ((1, 0.08), (2, 0.04)):  # y = exp(t), symmetric
            p, w = _rule(_edges(-REACH * self.case.sd, REACH * self.case.sd, self.case.marks, finer))
            if self.case.mean(p).any():
                return None
            s = self.case.deviation(p)
            weight = w * np.exp(-0.5 * (p / self.case.sd) ** 2) / (self.case.sd * math.sqrt(2 * math.pi))
            if weight[s == 0].sum() > 1e-9:
                return math.inf, 0.0  # an atom
            weight, s = weight[s > 0], s[s > 0]
            least = min(1e-45 * deviation, 1e-3 * s[weight > 1e-25].min())  # f may be singular at 0
            t = np.arange(math.log(least), math.log(60 * s.max()), step)
            y = np.exp(t)
            parts = (np.exp(-0.5 * (part[:, None] / s) ** 2) @ (weight / s) for part in np.array_split(y, 64))
            f = np.concatenate(list(parts)) / math.sqrt(2 * math.pi)
            log = np.log(np.maximum(f, 1e-300)) + 0.5 * (y / deviation) ** 2
            log += math.log(deviation * math.sqrt(2 * math.pi))
            found.append(float(np.sum(2 * y * f * log) * step))
        return found[1], abs(found[1] - found[0]) + 1e-9


# ---- comparison -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """One stated number beside the true one; the error is beaten by `factor`, which is 1 or less if it holds."""

    case: Case
    quantity: str
    at: float
    value: float
    error: float
    truth: float
    factor: float

    def __str__(self) -> str:
        where = f"({self.at:.6g})" if self.quantity in ("density", "cdf", "quantile") else ""
        stated = f"{self.quantity}{where} = {self.value:.10g} +- {self.error:.2g}"
        return f"{self.case.name}: {stated}, true {self.truth:.10g}, factor {self.factor:.3g}"


def factor(value: float, error: float, truth: float, wrong: float) -> float:
    """By how much the stated error is beaten, allowing for the reference's own error and rounding."""
    if math.isnan(value) or math.isnan(error):
        return math.inf
    if math.isinf(error) or value == truth:
        return 0.0
    if math.isinf(value) or math.isinf(truth):
        return math.inf
    return abs(value - truth) / (abs(error) + 3 * wrong + 1e-13 * abs(truth) + 1e-15)


def outcomes(case: Case) -> Iterator[Outcome]:
    """Every number of a case that has a reference."""
    law, truth = tp.Program.from_netsor(loads(case.text)).limit(), Truth(case)  # type: ignore[attr-defined]

    def row(quantity: str, at: float, stated: tuple[float, float], known: tuple[float, float]) -> Outcome:
        value, error = map(float, stated)
        return Outcome(case, quantity, at, value, error, known[0], factor(value, error, *known))

    for quantity, ask in (("mean", law.mean), ("variance", law.var), ("kurtosis", law.kurtosis)):
        yield row(quantity, 0.0, ask("y", with_error=True), getattr(truth, quantity)())
    if case.heads > 1:
        return
    centre, spread = truth.mean()[0], math.sqrt(truth.variance()[0])
    points = [centre + k * spread for k in (-1.7, -0.31, 0.011, 0.57, 3.0)]
    if not case.mean(np.linspace(-1, 1, 9)).any():
        points.append(0.0)  # where y is v times something small
    for quantity, grid in (("density", law.density), ("cdf", law.cdf)):
        values, errors = grid("y", points, with_error=True)
        for y, value, error in zip(points, values, errors, strict=True):
            if quantity == "cdf" and case.family == "atom" and y == 0:
                known = truth.cdf(0.0)  # the atom counts
            else:
                known = getattr(truth, quantity)(y)
            if not 1e6 < known[0] * spread < math.inf:  # a peak that high lies beyond the reach of the quadrature
                yield row(quantity, y, (value, error), known)
    for level in (0.02, 0.8, 0.999):
        place = float(law.quantile("y", level))
        error = float(law.cdf("y", place, with_error=True)[1])
        known = truth.cdf(place)
        jump = truth.cdf(place - 1e-9 * spread)[0]  # at an atom
        reached = min(max(level, jump), known[0])
        yield row("quantile", level, (level, error + 1e-12), (reached, known[1]))
    divergence = truth.kl_gaussian()
    if divergence is not None:
        yield row("kl_gaussian", 0.0, tp.kl_gaussian(law, "y"), divergence)


def summary(found: list[Outcome]) -> str:
    """Of each quantity: how many errors hold, how many are beaten by ten, how many are infinite."""
    lines = [f"{'quantity':12} {'numbers':>8} {'hold':>6} {'share':>8} {'tenfold':>9} {'not known':>10} {'worst':>9}"]
    for quantity in (*QUANTITIES, "all"):
        own = [o for o in found if quantity in ("all", o.quantity)]
        if own:
            hold = sum(o.factor <= 1 for o in own)
            ten, unknown = sum(o.factor > 10 for o in own), sum(math.isinf(o.error) for o in own)
            lines.append(
                f"{quantity:12} {len(own):8} {hold:6} {hold / len(own):8.2%} {ten:9} {unknown:10} "
                f"{max(o.factor for o in own):9.3g}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every K-th law")
    parser.add_argument("--family", help="laws of one family only")
    parser.add_argument("--failures", action="store_true", help="print each number whose error does not hold")
    args = parser.parse_args()
    chosen = [case for case in cases() if args.family in (None, case.family)][:: args.every]
    found: list[Outcome] = []
    started = time.process_time()
    for case in chosen:
        try:
            own = list(outcomes(case))
        except tp.TensorprogError as error:
            print(f"{case.name}: refused: {str(error).splitlines()[0]}", flush=True)
            continue
        found += own
        if args.failures:
            for outcome in own:
                if outcome.factor > 1:
                    print(outcome, flush=True)
    print(f"{len(chosen)} laws, {time.process_time() - started:.0f} s of processor time")
    print(summary(found))


if __name__ == "__main__":
    main()

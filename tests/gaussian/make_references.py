"""Writes references.json: Gaussian expectations to 24 digits, by mpmath alone.

    python tests/gaussian/make_references.py [--all | --verify]

Works out what the file lacks, say for a new function below; with --all everything, a quarter of an hour on one core
with gmpy2, twice that without. Shares no code with tensorprog. Every number is one
integral over z, of f(mu_f + sd_f z) E[g(Y) | z] phi(z), by composite Gauss-Legendre rules in 34 digits:

- panels end at kinks and shrink geometrically towards places where f or E[g | z] changes fast;
- E[g | z] is a textbook formula for polynomials, piecewise linear functions, erf, gelu, elu, exp, sin, cos, gaussian;
- for sigmoid and its relatives it is the trapezoidal rule in y where y is narrow (geometrically convergent: analytic
  around the real line), else a sum over half-lines, 1 / (1 + exp(-y)) = sum over k of (-1)^k exp(-k y) for y > 0, whose
  terms have Gaussian means exp(..) erfc(..). They are moments of a positive measure on (0, 1), so that Cohen,
  Rodriguez Villegas & Zagier 2000 (Convergence acceleration of alternating series, algorithm 1) gets 34 digits from 48.

--verify compares the pieces with mpmath's own adaptive quadrature, conditional means in one and some cases in two
dimensions. Laws are exact doubles; a covariance beyond sqrt(var var) by rounding means correlation +-1.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from multiprocessing import Pool
from pathlib import Path

import mpmath as mp

mp.mp.dps = 34
WINDOW = 13  # exp(-13^2 / 2) = 2e-37
ORDER = 40  # points on a panel
DIGITS = 24
FILE = Path(__file__).with_name("references.json")


def pdf(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


# conditional means: E g(Y) for Y ~ N(m, s^2)


def hinge(m, s, t=0):
    """E (Y - t)_+"""
    d = (m - t) / s
    return (m - t) * cdf(d) + s * pdf(d)


def square_hinge(m, s, n):
    """E Y^n 1(Y > 0), by parts: E_n = m E_(n-1) + (n - 1) s^2 E_(n-2) for n > 1."""
    before, here = cdf(m / s), hinge(m, s)
    for k in range(2, n + 1):
        before, here = here, m * here + (k - 1) * s * s * before
    return here


def clip_mean(lo, hi):
    return lambda m, s: lo + hinge(m, s, lo) - hinge(m, s, hi)


def elu_mean(alpha):
    return lambda m, s: hinge(m, s) + alpha * (mp.exp(m + s * s / 2) * cdf(-(m + s * s) / s) - cdf(-m / s))


def gelu_mean(m, s):
    n = mp.sqrt(1 + s * s)
    return m * cdf(m / n) + s * s / n * pdf(m / n)


def gaussian_mean(m, s):
    n = 1 + 2 * s * s
    return mp.exp(-m * m / n) / mp.sqrt(n)


def x_erf_mean(m, s):
    n = 1 + 2 * s * s
    return m * mp.erf(m / mp.sqrt(n)) + 2 * s * s / mp.sqrt(mp.pi * n) * mp.exp(-m * m / n)


def alternating(term, n=48):
    """sum over k >= 0 of (-1)^k term(k), terms moments of a positive measure on (0, 1): error 5.8^-n of the first."""
    d = (3 + mp.sqrt(8)) ** n
    d = (d + 1 / d) / 2
    b, c, total = mp.mpf(-1), -d, mp.mpf(0)
    for k in range(n):
        c = b - c
        total += c * term(k)
        b = b * (k + n) * (k - n) / ((k + mp.mpf(1) / 2) * (k + 1))
    return total / d


def decay(k, m, s, power=0):
    """E[Y^power exp(-k Y) 1(Y > 0)]"""
    shift = m - k * s * s
    mass = mp.exp(-k * m + k * k * s * s / 2)
    return mass * (cdf(shift / s) if power == 0 else shift * cdf(shift / s) + s * pdf(shift / s))


def sigmoid_mean(m, s):
    return alternating(lambda k: decay(k, m, s)) + alternating(lambda k: decay(k + 1, -m, s))


def tanh_mean(m, s):
    return 2 * sigmoid_mean(2 * m, 2 * s) - 1


def softplus_mean(m, s):
    return hinge(m, s) + alternating(lambda k: (decay(k + 1, m, s) + decay(k + 1, -m, s)) / (k + 1))


def silu_mean(m, s):
    with mp.workdps(70):  # the two parts of a decay nearly cancel
        return alternating(lambda k: decay(k, m, s, 1)) - alternating(lambda k: decay(k + 1, -m, s, 1))


@dataclass(frozen=True)
class Reference:
    """A function, what is known about its means, and where it changes fast."""

    call: Callable
    mean: Callable  # of N(m, s^2)
    kinks: tuple = ()
    length: float = 0  # panels next to 0 of this length resolve f; 0: no structure
    reach: float = 0  # beyond this distance from 0 there is no structure
    pole: float = 0  # distance of the nearest pole, for functions whose narrow means take the trapezoidal rule
    growth: float = 0  # of exp
    frequency: float = 0


def trapezoid(f, m, s):
    """E f(m + s w): the rule with step h errs by exp(-2 pi pole / (s h)) and exp(-2 pi^2 / h^2)."""
    step = min(mp.mpf(1) / 2, mp.pi * f.pole / (mp.mpf(45) * s))
    count = int(mp.ceil(WINDOW / step))
    return step * mp.fsum(weight * f.call(m + s * x) for x, weight in grid(step, count))


@cache
def grid(step, count):
    return [(k * step, pdf(k * step)) for k in range(-count, count + 1)]


def conditional(f, m, s):
    """E f(m + s w)"""
    return trapezoid(f, m, s) if f.pole and s < 2 * f.pole else f.mean(m, s)


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x):
    return max(x, mp.mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def elu(alpha):
    return lambda x: x if x > 0 else alpha * mp.expm1(x)


ALPHA, LAMBDA = mp.mpf(1.6732632423543772), mp.mpf(1.0507009873554805)
FUNCTIONS = {
    "x": Reference(lambda x: x, lambda m, s: m),
    "x**2": Reference(lambda x: x * x, lambda m, s: m * m + s * s),
    "x**3": Reference(lambda x: x**3, lambda m, s: m**3 + 3 * m * s * s),
    "-x": Reference(lambda x: -x, lambda m, s: -m),
    "abs(x)": Reference(abs, lambda m, s: 2 * hinge(m, s) - m, (0,)),
    "relu(x)": Reference(lambda x: max(x, mp.mpf(0)), hinge, (0,)),
    "leaky_relu(x)": Reference(
        lambda x: x if x > 0 else mp.mpf(0.01) * x,
        lambda m, s: hinge(m, s) - mp.mpf(0.01) * hinge(-m, s),
        (0,),
    ),
    "leaky_relu(x, -0.25)": Reference(
        lambda x: x if x > 0 else x / -4, lambda m, s: hinge(m, s) + hinge(-m, s) / 4, (0,)
    ),
    "clip(x, -1, 1)": Reference(lambda x: min(max(x, mp.mpf(-1)), mp.mpf(1)), clip_mean(-1, 1), (-1, 1)),
    "clip(x, -0.5, 2)": Reference(
        lambda x: min(max(x, mp.mpf(-0.5)), mp.mpf(2)), clip_mean(mp.mpf(-0.5), 2), (mp.mpf(-0.5), 2)
    ),
    "sign(x)": Reference(mp.sign, lambda m, s: mp.erf(m / s / mp.sqrt(2)), (0,)),
    "step(x)": Reference(lambda x: mp.mpf(x > 0), lambda m, s: cdf(m / s), (0,)),
    "erf(x)": Reference(mp.erf, lambda m, s: mp.erf(m / mp.sqrt(1 + 2 * s * s)), (), 2, 9),
    "gelu(x)": Reference(lambda x: x * cdf(x), gelu_mean, (), 2.5, 13),
    "gaussian(x)": Reference(lambda x: mp.exp(-x * x), gaussian_mean, (), 2, 9),
    "exp(x)": Reference(mp.exp, lambda m, s: mp.exp(m + s * s / 2), growth=1),
    "sin(x)": Reference(mp.sin, lambda m, s: mp.sin(m) * mp.exp(-s * s / 2), frequency=1),
    "cos(x)": Reference(mp.cos, lambda m, s: mp.cos(m) * mp.exp(-s * s / 2), frequency=1),
    "elu(x)": Reference(elu(1), elu_mean(1), (0,), 4, 80),
    "elu(x, 0.5)": Reference(elu(mp.mpf(0.5)), elu_mean(mp.mpf(0.5)), (0,), 4, 80),
    "selu(x)": Reference(lambda x: LAMBDA * elu(ALPHA)(x), lambda m, s: LAMBDA * elu_mean(ALPHA)(m, s), (0,), 4, 80),
    "tanh(x)": Reference(mp.tanh, tanh_mean, (), 2, 40, mp.pi / 2),
    "sigmoid(x)": Reference(sigmoid, sigmoid_mean, (), 4, 80, mp.pi),
    "softplus(x)": Reference(softplus, softplus_mean, (), 4, 80, mp.pi),
    "silu(x)": Reference(lambda x: x * sigmoid(x), silu_mean, (), 4, 80, mp.pi),
    "x * erf(x)": Reference(lambda x: x * mp.erf(x), x_erf_mean, (), 2, 9),
    "x**2 * relu(x)": Reference(lambda x: x * x * max(x, mp.mpf(0)), lambda m, s: square_hinge(m, s, 3), (0,)),
    "x * sin(x)": Reference(
        lambda x: x * mp.sin(x),
        lambda m, s: (m * mp.sin(m) + s * s * mp.cos(m)) * mp.exp(-s * s / 2),
        frequency=1,
    ),
}
# one function for each one-argument atom; monomials stand for `power`
PAIRED = [name for name in FUNCTIONS if name not in ("leaky_relu(x, -0.25)", "elu(x, 0.5)", "-x", "clip(x, -1, 1)")]
PAIRED = [name for name in PAIRED if "*" not in name.replace("**", "")]
PAIRED += ["-x"]


# panels


def around(f, mu, sd):
    """Edges in z of the panels on which z -> f(mu + sd z) is smooth."""
    return [(k - mu) / sd for k in f.kinks] + geometric(-mu / sd, f.length / abs(sd), f.reach / abs(sd))


def smoothed(f, mu, sd, width):
    """Edges for z -> E f(mu + sd z + |sd| width w)."""
    edges = [(k - mu) / sd + t * width for k in f.kinks for t in (-13, -6, -2, 2, 6, 13)]
    length = f.length / abs(sd)
    return edges + geometric(-mu / sd, mp.hypot(length, 3 * width) if length else 0, f.reach / abs(sd) + 13 * width)


def geometric(centre, length, reach):
    if not length:
        return []
    edges, distance = [centre], length
    while distance < 4 * reach and distance < 100:
        edges += [centre - distance, centre + distance]
        distance *= 4
    return edges


def integral(integrand, edges, lo, hi, longest):
    """Over [lo, hi], panels no longer than `longest`."""
    inside = [lo, *sorted(e for e in set(edges) if lo < e < hi), hi]
    total = mp.mpf(0)
    for a, b in pairwise(inside):
        pieces = int(mp.ceil((b - a) / longest))
        half = (b - a) / (2 * pieces)
        for i in range(pieces):
            middle = a + (2 * i + 1) * half
            total += half * mp.fsum(w * integrand(middle + half * x) for x, w in legendre())
    return total


@cache
def legendre(n=ORDER):
    """Nodes and weights by Newton's iteration on the three-term recurrence, with digits to spare."""
    found = []
    with mp.workdps(mp.mp.dps + 15):
        for i in range(n):
            x = mp.cos(mp.pi * (i + 0.75) / (n + 0.5))
            for _ in range(8):
                before, here = mp.mpf(1), x
                for k in range(2, n + 1):
                    before, here = here, ((2 * k - 1) * x * here - (k - 1) * before) / k
                slope = n * (x * here - before) / (x * x - 1)
                x -= here / slope
            found.append((x, 2 / ((1 - x * x) * slope**2)))
    return found


def longest(frequency):
    """exp(i omega t) on a panel of half-length 20 / omega has Chebyshev coefficients below 1e-32 beyond degree 79."""
    return min(mp.mpf(WINDOW) / 2, 40 / frequency) if frequency else mp.mpf(WINDOW) / 2


# expectations


def line(parts):
    """E of the product of f(mu + sd z) over parts (f, mu, sd)."""
    edges = [e for f, mu, sd in parts for e in around(f, mu, sd)]
    shift = sum(f.growth * sd for f, mu, sd in parts)
    step = longest(sum(f.frequency * abs(sd) for f, mu, sd in parts))
    lo, hi = min(shift, 0) - WINDOW, max(shift, 0) + WINDOW
    return integral(lambda z: pdf(z) * mp.fprod(f.call(mu + sd * z) for f, mu, sd in parts), edges, lo, hi, step)


def plane(f, g, mu_f, mu_g, sd_f, sd_g, rho, s):
    """E f(X) g(Y), |rho| < 1: integral over the standardised X."""
    slope, width = sd_g * rho, sd_g * s
    edges = around(f, mu_f, sd_f) + smoothed(g, mu_g, slope, s / abs(rho))
    shift = f.growth * sd_f + g.growth * slope
    lo, hi = min(shift, 0) - WINDOW, max(shift, 0) + WINDOW
    # below exp(-800) nothing is left of an oscillation, however poor the rule
    heard = g.frequency * abs(slope) if width < 40 else 0
    step = longest(f.frequency * sd_f + heard)
    return integral(
        lambda z: pdf(z) * f.call(mu_f + sd_f * z) * conditional(g, mu_g + slope * z, width), edges, lo, hi, step
    )


def standard(var_f, var_g, cov):
    """rho and sqrt(1 - rho^2) of exact numbers."""
    with mp.workdps(80):
        product = var_f * var_g
        det = product - cov * cov
        if det <= 0:
            return mp.sign(cov), mp.mpf(0)
        return cov / mp.sqrt(product), mp.sqrt(det / product)


def expectation(f, g, first, second, cov):
    """E f(X) g(Y) for the names of functions and marginals (mean, variance)."""
    (mu_f, var_f), (mu_g, var_g) = ([mp.mpf(v) for v in marginal] for marginal in (first, second))
    f, g, cov = FUNCTIONS[f], FUNCTIONS[g], mp.mpf(cov)
    sd_f, sd_g = mp.sqrt(var_f), mp.sqrt(var_g)
    if f.frequency and g.growth:
        f, g, mu_f, mu_g, var_f, var_g, sd_g = g, f, mu_g, mu_f, var_g, var_f, sd_f
    if f.growth and g.frequency:
        # cancels below any number of digits; exp(X) times the law is exp(mu + var / 2) times a law of other means
        return mp.exp(mu_f + var_f / 2) * g.mean(mu_g + cov, sd_g)
    if cov == 0:
        return line([(f, mu_f, sd_f)]) * line([(g, mu_g, sd_g)])
    rho, s = standard(var_f, var_g, cov)
    if s == 0:
        return line([(f, mu_f, sd_f), (g, mu_g, sd_g * rho)])
    # the inner variable: a formula rather than a sum, then what oscillates, then the narrower one
    if (bool(f.pole), -f.frequency, sd_f) < (bool(g.pole), -g.frequency, sd_g):
        return plane(g, f, mu_g, mu_f, sd_g, sd_f, rho, s)
    return plane(f, g, mu_f, mu_g, sd_f, sd_g, rho, s)


def moments(name, marginal):
    """E f(X) and E f(X)^2."""
    mu, var = (mp.mpf(v) for v in marginal)
    part = (FUNCTIONS[name], mu, mp.sqrt(var))
    return line([part]), line([part, part])


# cases

MARGINALS = [
    (0.0, 1.0), (0.0, 1.7), (0.0, 0.6), (0.0, 1e-6), (0.0, 1e-3), (0.0, 0.1), (0.0, 4.0), (0.0, 30.0), (0.0, 1e3),
    (0.0, 1e6), (0.5, 1.0), (-1.25, 0.6), (2.0, 1.7), (-0.3, 1.7), (0.5, 1e-6), (-2.0, 1e-6), (0.25, 0.01), (3.0, 4.0),
    (-3.0, 0.25), (-1.0, 30.0), (20.0, 1e3), (-0.5, 1e6), (700.0, 1e6), (0.001, 1e-6),
]  # fmt: skip
CORNERS = [0.0, 1.0, -1.0, 1 - 1e-9, -(1 - 1e-9), 1 - 1e-13, -(1 - 1e-13)]
PAIR_LAWS = [
    (0, 2, 0.3), (10, 11, -0.7), (3, 23, 0.5), (21, 9, -0.9), (3, 9, 0.6), (12, 16, 0.0), (1, 12, 1.0), (13, 1, -1.0),
    (17, 7, 1 - 1e-9), (11, 10, -(1 - 1e-9)), (8, 20, 1 - 1e-13), (0, 12, -(1 - 1e-13)),
]  # fmt: skip


def laws(count=200):
    """(marginal, marginal, cov): those of the pairs, then others; half of the correlations are corners."""
    rng = random.Random(4)
    chosen = list(PAIR_LAWS)
    while len(chosen) < count:
        i, j = rng.randrange(len(MARGINALS)), rng.randrange(len(MARGINALS))
        corner = len(chosen) % 2
        rho = CORNERS[len(chosen) // 2 % len(CORNERS)] if corner else round(rng.uniform(-1, 1), 3)
        if corner and rng.random() < 0.4:
            j = i
        chosen.append((i, j, rho))
    return [(i, j, covariance(MARGINALS[i][1], MARGINALS[j][1], rho)) for i, j, rho in chosen]


def covariance(v, w, rho):
    """The double nearest to rho sqrt(v w)."""
    return float(mp.mpf(rho) * mp.sqrt(mp.mpf(v) * mp.mpf(w)))


def text(value, digits=DIGITS):
    return mp.nstr(value, digits, strip_zeros=True) if value else "0"


def left_out(first, second, var_f, var_g):
    """Whether exp meets a variable so wide that hardly any result is a double."""
    wide = (FUNCTIONS[first].growth and var_f > 1e5) or (FUNCTIONS[second].growth and var_g > 1e5)
    return wide and not {"gaussian(x)", "sin(x)", "cos(x)"} & {first, second}


def representable(value):
    """The value as text; null for one that is no double."""
    return text(value) if abs(value) < 1e300 else None


def work(task):
    """One row: texts of the values, null where the case is left out."""
    kind, first, second = task
    if kind == "moments":
        rows = [(None, None) if left_out(first, first, m[1], m[1]) else moments(first, m) for m in MARGINALS]
        return task, [[None if r[k] is None else text(r[k]) for r in rows] for k in (0, 1)]
    table = laws() if first == second else laws()[: len(PAIR_LAWS)]
    row = []
    for i, j, cov in table:
        a, b = MARGINALS[i], MARGINALS[j]
        skip = left_out(first, second, a[1], b[1])
        row.append(None if skip else representable(expectation(first, second, a, b, cov)))
    return task, row


def main() -> None:
    tasks = [("self", name, name) for name in FUNCTIONS] + [("moments", name, "") for name in FUNCTIONS]
    tasks += [("pair", f, g) for f, g in combinations(PAIRED, 2)]
    found = {} if "--all" in sys.argv else stored()
    # the long ones first
    tasks.sort(key=lambda t: (t[0] != "self", not any(n and FUNCTIONS[n].pole for n in t[1:])))
    tasks = [task for task in tasks if task not in found]
    with Pool(2) as pool:
        for task, row in pool.imap_unordered(work, tasks):
            print(*task, flush=True)
            found[task] = row
    content = {
        "marginals": MARGINALS,
        "laws": laws(),
        "means": {name: found["moments", name, ""][0] for name in FUNCTIONS},
        "squares": {name: found["moments", name, ""][1] for name in FUNCTIONS},
        "self": {name: found["self", name, name] for name in FUNCTIONS},
        "pairs": [[f, g, found["pair", f, g]] for f, g in combinations(PAIRED, 2)],
    }
    lines = [f"{json.dumps(key)}: {rows(value)}" for key, value in content.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def stored():
    """Rows of the present file, by task, if its laws are still these."""
    content = json.loads(FILE.read_text()) if FILE.exists() else {}
    if [content.get("marginals"), content.get("laws")] != json.loads(json.dumps([MARGINALS, laws()])):
        return {}
    lines = {("moments", f, ""): [row, content["squares"][f]] for f, row in content["means"].items()}
    pairs = {("pair", f, g): row for f, g, row in content["pairs"]}
    return lines | pairs | {("self", f, f): row for f, row in content["self"].items()}


def rows(value):
    """JSON with one line for each row."""
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n}"
    return "[\n" + ",\n".join(json.dumps(v) for v in value) + "\n]"


# verification against mpmath's own quadrature

VERIFIED = [("tanh(x)", 0.3, 1.7), ("sigmoid(x)", -2.0, 4.0), ("softplus(x)", 1.0, 2.5), ("silu(x)", -0.7, 12.0)]
PLANES = [
    ("tanh(x)", "silu(x)", (0.0, 1.0), (0.5, 1.7), 0.4), ("softplus(x)", "sigmoid(x)", (-1.0, 30.0), (3.0, 4.0), -6.0),
    ("elu(x)", "clip(x, -0.5, 2)", (0.5, 1.0), (-1.25, 0.6), 0.6), ("sin(x)", "gelu(x)", (2.0, 1.7), (0.0, 4.0), 2.0),
    ("exp(x)", "selu(x)", (0.5, 1.0), (0.0, 1.7), -0.9), ("gaussian(x)", "x * erf(x)", (0.5, 1.0), (0.2, 0.6), 0.1),
    ("x**2 * relu(x)", "cos(x)", (-0.3, 1.7), (0.0, 0.6), -0.5), ("leaky_relu(x)", "step(x)", (0.5, 1), (-0.3, 1), 0.5),
]  # fmt: skip


def verify() -> None:
    worst = mp.mpf(0)
    for name, f in FUNCTIONS.items():
        for m, s in [(mp.mpf("0.3"), mp.mpf("1.7")), (mp.mpf(-2), mp.mpf(4)), (mp.mpf("-0.7"), mp.mpf(12))]:
            kinks = [(k - m) / s for k in (f.kinks or (0,))]
            points = sorted({mp.mpf(-14), *kinks, *(k + t / s for k in kinks for t in (-8, -2, 2, 8)), mp.mpf(26)})
            truth = mp.quad(lambda z, f=f, m=m, s=s: pdf(z) * f.call(m + s * z), points)
            off = abs(f.mean(m, s) - truth) / max(abs(truth), 1)
            ours = abs(conditional(f, m, s) - truth) / max(abs(truth), 1)
            worst = max(worst, off, ours)
            print(f"{name:22} mean at {mp.nstr(m, 3)}, {mp.nstr(s, 3)}: {mp.nstr(off, 3)} {mp.nstr(ours, 3)}")
    for f, g, a, b, cov in PLANES:
        with mp.workdps(22):
            off = abs(expectation(f, g, a, b, cov) - by_brute_force(f, g, a, b, cov))
        print(f, "and", g, mp.nstr(off, 3), flush=True)
        worst = max(worst, off * mp.mpf(10) ** -8)
    print("worst, in units of 1e-28:", mp.nstr(worst * mp.mpf(10) ** 28, 3))


def by_brute_force(f, g, first, second, cov):
    """The density of (X, Y) integrated over rectangles between kinks, in x and y themselves."""
    (mx, vx), (my, vy) = ([mp.mpf(v) for v in marginal] for marginal in (first, second))
    cov = mp.mpf(cov)
    det = vx * vy - cov * cov
    f, g = FUNCTIONS[f], FUNCTIONS[g]
    move = f.growth * vx, f.growth * cov

    def density(x, y):
        u, v = x - mx, y - my
        return mp.exp(-(vy * u * u - 2 * cov * u * v + vx * v * v) / (2 * det)) / (2 * mp.pi * mp.sqrt(det))

    sides = []
    for h, m, v, shift in ((f, mx, vx, move[0]), (g, my, vy, move[1])):
        sd = mp.sqrt(v)
        grid = [m + shift + k * sd for k in mp.linspace(-10, 10, 1 + int(mp.ceil(8 * max(1, sd / 2))))]
        sides.append(sorted({*grid, *(mp.mpf(k) for k in h.kinks)}))
    xs, ys = ([(p, w) for p, w in nodes(side)] for side in sides)
    values = [(y, w * g.call(y)) for y, w in ys]
    return mp.fsum(w * f.call(x) * mp.fsum(c * density(x, y) for y, c in values) for x, w in xs)


def nodes(edges):
    return [((a + b) / 2 + (b - a) / 2 * x, (b - a) / 2 * w) for a, b in pairwise(edges) for x, w in legendre(30)]


if __name__ == "__main__":
    verify() if "--verify" in sys.argv else main()

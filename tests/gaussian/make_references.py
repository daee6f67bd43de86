"""Writes references.json: Gaussian expectations to 20 digits and more, by mpmath alone.

    python tests/gaussian/make_references.py

Shares no code with tensorprog. E f(X) g(Y) is the integral over z of f(mu_f + sd_f z) E[g(Y) | z] phi(z); the inner
conditional mean is a textbook formula where there is one (piecewise linear, erf, gelu, elu, polynomial, exp, sin, cos,
gaussian), else the trapezoidal rule in w, which converges geometrically for functions analytic around the real line.
"""

from __future__ import annotations

import json
from itertools import pairwise
from multiprocessing import Pool
from pathlib import Path

import mpmath as mp

mp.mp.dps = 30
HALF_WIDTH = 13  # exp(-13^2 / 2) = 2e-37


def pdf(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def hinge(m, s, t=0):
    """E (Y - t)_+"""
    d = (m - t) / s
    return (m - t) * cdf(d) + s * pdf(d)


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x):
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


def elu_mean(m, s):
    return hinge(m, s) + mp.exp(m + s * s / 2) * cdf(-(m + s * s) / s) - cdf(-m / s)


def gaussian_mean(m, s):
    # gaussian: exp(-(2 x - 1)^2 / 2)
    n = 1 + 4 * s * s
    return mp.exp(-((2 * m - 1) ** 2) / (2 * n)) / mp.sqrt(n)


def gelu_mean(m, s):
    n = mp.sqrt(1 + s * s)
    return m * cdf(m / n) + s * s / n * pdf(m / n)


# name: (function, conditional mean or None, places where structure sits, its scale)
FUNCTIONS = {
    "identity": (lambda x: x, lambda m, s: m, [], 1),
    "cube": (lambda x: x**3 - x + 2, lambda m, s: m**3 + 3 * m * s * s - m + 2, [], 1),
    "relu": (lambda x: max(x, mp.mpf(0)), hinge, [0], 0),
    "abs": (lambda x: abs(x), lambda m, s: 2 * hinge(m, s) - m, [0], 0),
    "step": (lambda x: mp.mpf(x > mp.mpf(0.5)), lambda m, s: cdf((m - mp.mpf(0.5)) / s), [0.5], 0),
    "clip": (
        lambda x: max(min(x, mp.mpf(1)), mp.mpf(-1)),
        lambda m, s: -1 + hinge(m, s, -1) - hinge(m, s, 1),
        [-1, 1],
        0,
    ),
    "wideclip": (
        lambda x: max(min(x, mp.mpf(100)), mp.mpf(-100)),
        lambda m, s: m + hinge(-m, s, 100) - hinge(m, s, 100),
        [-100, 100],
        0,
    ),
    "erf": (mp.erf, lambda m, s: mp.erf(m / mp.sqrt(1 + 2 * s * s)), [0], 1),
    "gelu": (lambda x: x * cdf(x), gelu_mean, [0], 1),
    "sin": (lambda x: mp.sin(2 * x + 0.25), lambda m, s: mp.sin(2 * m + 0.25) * mp.exp(-2 * s * s), [], 1),
    "cos": (mp.cos, lambda m, s: mp.cos(m) * mp.exp(-s * s / 2), [], 1),
    "exp": (lambda x: mp.exp(x / 2), lambda m, s: mp.exp(m / 2 + s * s / 8), [], 1),
    "xgaussian": (
        lambda x: mp.exp(-((2 * x - 1) ** 2) / 2),
        gaussian_mean,
        [0.5],
        0.5,
    ),
    "elu": (lambda x: x if x > 0 else mp.expm1(x), elu_mean, [0], 1),
    "tanh": (mp.tanh, None, [0], 1),
    "sigmoid": (sigmoid, None, [0], 1),
    "softplus": (softplus, None, [0], 1),
    "silu": (lambda x: x * sigmoid(x), None, [0], 1),
}


def breaks(places, sd, mu, slope, width):
    """Places in z where mu + sd slope z meets structure, with a few points around each at its own width."""
    points = [mp.mpf(k) for k in (-HALF_WIDTH, -4, 0, 4, HALF_WIDTH)]
    for place in places:
        if slope * sd == 0:
            continue
        centre = (mp.mpf(place) - mu) / (sd * slope)
        w = abs(width / (sd * slope))
        points += [centre] + [centre + sign * k * w for k in (1, 4, 16, 64, 512) for sign in (-1, 1)]
    inside = sorted({p for p in points if abs(p) <= HALF_WIDTH})
    return [p for i, p in enumerate(inside) if i == 0 or p - inside[i - 1] > mp.mpf(10) ** -25]


def panels(integrand, points, order=40):
    """Composite Gauss-Legendre (mpmath's own nodes), intervals split to at most 1.5."""
    nodes = legendre(order)
    total = mp.mpf(0)
    for a, b in pairwise(points):
        pieces = int(mp.ceil((b - a) / 2))
        for i in range(pieces):
            lo = a + (b - a) * i / pieces
            half = (b - a) / (2 * pieces)
            total += half * mp.fsum(w * integrand(lo + half + half * x) for x, w in nodes)
    return total


def legendre(n, cache={}):  # noqa: B006
    """Nodes and weights by Newton's iteration on the three-term recurrence, with digits to spare."""
    if n not in cache:
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
        cache[n] = found
    return cache[n]


def trapezoid(function, m, s):
    """E g(m + s w): error exp(-2 pi d / h) with d = distance of the poles over s; h follows s."""
    step = min(mp.mpf(1) / 2, mp.mpf(1) / (6 * s))
    count = int(mp.ceil(11 / step))
    return step * mp.fsum(pdf(k * step) * function(m + s * k * step) for k in range(-count, count + 1))


def expectation(f, g, mu_f, mu_g, var_f, var_g, cov):
    mu_f, mu_g, var_f, var_g, cov = (mp.mpf(v) for v in (mu_f, mu_g, var_f, var_g, cov))
    f_call, _, f_places, f_scale = FUNCTIONS[f]
    g_call, g_mean, g_places, g_scale = FUNCTIONS[g]
    sd_f, sd_g = mp.sqrt(var_f), mp.sqrt(var_g)
    with mp.workdps(60):
        det = var_f * var_g - cov * cov
        rho = cov / mp.sqrt(var_f * var_g)
        s = mp.sqrt(max(det, 0) / (var_f * var_g))
    if s == 0:
        points = sorted(set(breaks(f_places, sd_f, mu_f, 1, f_scale) + breaks(g_places, sd_g, mu_g, rho, g_scale)))
        return panels(lambda z: pdf(z) * f_call(mu_f + sd_f * z) * g_call(mu_g + sd_g * rho * z), points)
    inner = g_mean or (lambda m, d: trapezoid(g_call, m, d))
    width = mp.sqrt(mp.mpf(g_scale) ** 2 + (sd_g * s) ** 2)
    points = sorted(set(breaks(f_places, sd_f, mu_f, 1, f_scale) + breaks(g_places, sd_g, mu_g, rho, width)))
    order = 40 if g_mean else 30
    return panels(lambda z: pdf(z) * f_call(mu_f + sd_f * z) * inner(mu_g + sd_g * rho * z, sd_g * s), points, order)


PAIRS = [
    ("relu", "relu"), ("abs", "relu"), ("step", "step"), ("clip", "clip"), ("clip", "relu"), ("step", "cube"),
    ("wideclip", "wideclip"), ("erf", "erf"), ("gelu", "gelu"), ("erf", "relu"), ("gelu", "clip"), ("step", "erf"),
    ("cube", "cube"), ("sin", "sin"), ("sin", "cos"), ("exp", "cos"), ("exp", "relu"), ("exp", "gelu"), ("sin", "relu"),
    ("xgaussian", "step"), ("xgaussian", "gelu"), ("xgaussian", "xgaussian"), ("elu", "elu"), ("elu", "abs"),
    ("tanh", "relu"), ("tanh", "clip"), ("silu", "erf"), ("tanh", "identity"), ("sin", "erf"),
]  # fmt: skip
SMOOTH = [("tanh", "tanh"), ("sigmoid", "softplus"), ("silu", "silu"), ("softplus", "tanh")]
# (mu_f, mu_g, var_f, var_g, correlation as a float factor of sqrt(var_f var_g))
LAWS = [
    (0.0, 0.0, 1.0, 1.0, 0.3), (0.0, 0.0, 1.7, 0.6, -0.7), (0.5, -1.25, 1.7, 1.0, 0.3),
    (0.0, 0.0, 1e-6, 1e-6, 0.3), (3.0, -2.0, 1e-6, 1.0, -0.7), (0.0, 0.0, 1e6, 1.7, -0.7), (0.0, 0.0, 1e6, 1e6, 0.3),
    (0.0, 0.0, 1.7, 1.7, 1 - 1e-9), (0.5, 0.5, 1.0, 1.0, -(1 - 1e-9)), (0.5, 0.5, 1.0, 1.0, 1 - 1e-13),
    (0.0, 0.0, 1.7, 1.7, 1.0), (0.25, -0.5, 1.7, 1.7, -1.0),
]  # fmt: skip


def main() -> None:
    cases = []
    for f, g in PAIRS + SMOOTH:
        smooth = (f, g) in SMOOTH
        for mu_f, mu_g, var_f, var_g, factor in LAWS:
            if smooth and max(var_f, var_g) > 100 and abs(factor) < 0.9:
                continue  # the trapezoidal rule is hopeless there; identity x tanh and tanh x relu cover it
            if "exp" in (f, g) and max(var_f, var_g) > 100:
                continue  # overflows
            if {"sin", "cos"} & {f, g} and max(var_f, var_g) > 100:
                continue  # oscillates hundreds of times: no panels here for that
            cov = float(factor * mp.sqrt(mp.mpf(var_f) * mp.mpf(var_g)))
            cases.append([f, g, mu_f, mu_g, var_f, var_g, cov])
    # the corner of narrow steps in wide variables: elu is stiff at 1e6, tanh at 1 - 1e-9
    cases.append(["tanh", "tanh", 0.0, 0.0, 1e6, 1e6, 1e6 * (1 - 1e-9)])
    cases.append(["clip", "clip", 0.0, 0.0, 1e6, 1e6, -1e6 * (1 - 1e-9)])
    with Pool(2) as pool:
        result = list(pool.imap(row, cases, chunksize=4))
    Path(__file__).with_name("references.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in result) + "\n]\n")


def row(case):
    """The case with its value and sqrt(E f^2 E g^2)."""
    print(case, flush=True)
    f, g, mu_f, mu_g, var_f, var_g, _ = case
    norm = mp.sqrt(square(f, mu_f, var_f) * square(g, mu_g, var_g))
    return [*case, mp.nstr(expectation(*case), 24), mp.nstr(norm, 8)]


def square(name, mu, var, cache={}):  # noqa: B006
    """E f(X)^2."""
    if (name, mu, var) not in cache:
        cache[name, mu, var] = expectation(name, name, mu, mu, var, var, var)
    return cache[name, mu, var]


if __name__ == "__main__":
    main()

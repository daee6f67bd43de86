"""Every atom and every pair of atoms against references of 24 digits, at laws of every kind."""

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from battery import (
    FUNCTIONS,
    LAWS,
    MARGINALS,
    QUADRATURE,
    REFERENCES,
    USED,
    cases,
    from_atom,
    honest,
    roots,
    violations,
)

from tensorprog.gaussian import cross, mean
from tensorprog.language.atoms import ATOMS

PAIRS = {(f, g): values for f, g, values in REFERENCES["pairs"]}
SELF = {(f, f): values for f, values in REFERENCES["self"].items()}


def kinds(f):
    return {term.kind for term in f.terms or ()}


def hopeless(f, g, case):
    """Waves of hundreds of periods and exponentials whose squares overflow, in wide variables or in equal ones."""
    waves = (kinds(f) | kinds(g)) & {"exp", "sin", "cos", "gaussian"}
    first, second, covariance = case.law[2:]
    equal = np.abs(covariance) > (1 - 1e-12) * np.sqrt(first * second)
    return bool(waves) & (equal | (np.maximum(first, second) > 10))


def check(f, g, known):
    """E f(X) g(Y) and E g(Y) f(X)."""
    for first, second, case in ((f, g, known), (g, f, known.swapped)):
        found = cross(first, second, *case.law)
        bad = violations(found, case.truth, case.norm, QUADRATURE)
        # errors of points hold for 99.9 of 100, and there are thousands of laws
        kept = honest(replace(found, error=2 * found.error), case.truth, case.norm) & hopeless(f, g, case)
        bad = bad[~kept[bad]]
        columns = (*case.law, found.value, found.error, case.truth, case.norm)
        assert not bad.size, "\n".join(str([float(column[k]) for column in columns]) for k in bad)


SPELLED_IN_MPMATH = {
    "arctan": mp.atan,
    "softsign": lambda x: x / (1 + abs(x)),
    "log_cosh": lambda x: mp.log(mp.cosh(x)),
    "mish": lambda x: x * mp.tanh(mp.log1p(mp.exp(x))),
}


@pytest.mark.parametrize("name", SPELLED_IN_MPMATH)
def test_functions_beside_the_battery(name):
    """E f(X) and E f(X) Y^3, which is an integral over X too."""
    f, call = from_atom(name), SPELLED_IN_MPMATH[name]
    cube = from_atom("power", 3)
    for mu, v, c in ((0.0, 1.0, 0.5), (0.7, 4.0, -1.5), (0.0, 0.09, 0.2)):
        with mp.workdps(25):
            sd, slope = mp.sqrt(mp.mpf(v)), mp.mpf(c) / mp.mpf(v)
            rest = 1 - slope * c  # the variance of Y given X, Y of mean 0 and variance 1
            edges = sorted({mp.mpf(-14), -mp.mpf(mu) / sd, mp.mpf(14)})
            weigh = lambda h: mp.quad(lambda z: call(mu + sd * z) * h(slope * sd * z) * mp.npdf(z), edges)  # noqa: B023, E731
            truths = weigh(lambda y: 1), weigh(lambda y: y**3 + 3 * y * rest)  # noqa: B023
        for found, truth in zip((mean(f, mu, v), cross(f, cube, mu, 0.0, v, 1.0, c)), truths, strict=True):
            assert abs(found.value - float(truth)) <= found.error + 1e-16
            assert found.error < 1e-11


def test_the_battery_has_every_atom_of_one_argument_on_the_whole_line():
    whole = {name for name, atom in ATOMS.items() if atom.arity == 1 and atom.domain == (-np.inf, np.inf)}
    whole -= {"gelu_tanh", *SPELLED_IN_MPMATH}  # are compared with mpmath by themselves
    assert {atom for atom, _ in USED.values()} == whole
    with_parameters = {name for name in whole if ATOMS[name].params}
    assert all(sum(atom == name for atom, _ in USED.values()) > 1 for name in with_parameters)
    paired = {frozenset((USED[f][0], USED[g][0])) for f, g in PAIRS}
    assert paired >= {frozenset((a, b)) for a in whole for b in whole if a != b}
    assert len(LAWS) == 200
    assert {len(values) for values in PAIRS.values()} == {12}


@pytest.mark.slow
@pytest.mark.parametrize("f", REFERENCES["self"])
def test_an_atom_with_itself(f):
    check(FUNCTIONS[f], FUNCTIONS[f], cases(f, f, SELF[f, f]))


@pytest.mark.slow
@pytest.mark.parametrize("f", REFERENCES["self"])
def test_an_atom_with_every_other(f):
    for (first, second), values in PAIRS.items():
        if first == f:
            check(FUNCTIONS[first], FUNCTIONS[second], cases(first, second, values))


@pytest.mark.parametrize("f", REFERENCES["means"])
def test_means(f):
    kept = [k for k, text in enumerate(REFERENCES["means"][f]) if text is not None]
    truth = np.array([float(REFERENCES["means"][f][k]) for k in kept])
    found = mean(FUNCTIONS[f], *MARGINALS[kept].T)
    bad = violations(found, truth, roots(f)[kept], QUADRATURE)
    wide = bool(kinds(FUNCTIONS[f]) & {"exp", "sin", "cos"}) & (MARGINALS[kept][:, 1] > 10)
    bad = bad[~(wide & honest(found, truth, roots(f)[kept]))[bad]]
    assert not bad.size, (MARGINALS[kept][bad], found.value[bad], truth[bad], found.error[bad])


@pytest.mark.slow
@pytest.mark.parametrize("f", REFERENCES["self"])
def test_quadrature_alone(f):
    known, bare = cases(f, f, SELF[f, f][:40]), replace(FUNCTIONS[f], terms=None)
    found = cross(bare, bare, *known.law)
    assert np.all(honest(found, known.truth, known.norm))
    if f not in ("exp(x)", "sin(x)", "cos(x)", "x * sin(x)"):  # which need closed forms in wide variables
        assert np.all(np.abs(found.value - known.truth) <= QUADRATURE * known.norm)


# the battery itself: would it see a mistake?


@pytest.mark.slow
@pytest.mark.parametrize("f", REFERENCES["self"])
def test_a_factor_wrong_by_a_billionth_is_seen(f):
    right = FUNCTIONS[f]
    terms = right.terms and tuple(replace(t, coefficient=(1 + 1e-9) * t.coefficient) for t in right.terms)
    wrong = replace(right, call=lambda x: (1 + 1e-9) * right.call(x), terms=terms)
    with pytest.raises(AssertionError):
        check(wrong, wrong, cases(f, f, SELF[f, f][:40]))


# single numbers


def test_the_second_moment_of_a_clip_that_gauss_hermite_misses():
    with mp.workdps(30):
        var = mp.mpf(1.7)
        sd = mp.sqrt(var)
        cdf, pdf = mp.ncdf(1 / sd), mp.npdf(1 / sd)
        truth = float(var * (2 * cdf - 1 - 2 * pdf / sd) + 2 * (1 - cdf))
    clip = FUNCTIONS["clip(x, -1, 1)"]
    result = cross(clip, clip, 0.0, 0.0, 1.7, 1.7, 1.7)
    assert abs(result.value - truth) <= 1e-14 * truth
    assert result.error < 1e-13


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-13])
def test_signs_of_nearly_equal_variables(gap):
    var_f, var_g = 1.7, 0.6
    cov = float(np.sqrt(var_f * var_g) * (1 - gap))
    with mp.workdps(40):
        truth = float(2 / mp.pi * mp.asin(cov / mp.sqrt(mp.mpf(var_f) * mp.mpf(var_g))))
    result = cross(FUNCTIONS["sign(x)"], FUNCTIONS["sign(x)"], 0.0, 0.0, var_f, var_g, cov)
    assert abs(result.value - truth) <= min(result.error, 1e-15)

"""Every atom and every pair of atoms against references of 24 digits, at laws of every kind (make_references.py)."""

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from battery import CLOSED, FUNCTIONS, LAWS, MARGINALS, QUADRATURE, REFERENCES, USED, cases, roots, violations

from tensorprog.atoms import ATOMS
from tensorprog.gaussian import Estimate, cross, mean

PAIRS = {(f, g): values for f, g, values in REFERENCES["pairs"]}
SELF = {(f, f): values for f, values in REFERENCES["self"].items()}


def accuracy(*functions):
    return CLOSED if all(f.terms is not None for f in functions) else QUADRATURE


def check(f, g, known, functions=FUNCTIONS):
    """E f(X) g(Y) and E g(Y) f(X)."""
    f, g = functions[f], functions[g]
    for first, second, case in ((f, g, known), (g, f, known.swapped)):
        found = cross(first, second, *case.law)
        bad = violations(found, case.truth, case.norm, accuracy(f, g))
        shown = [(*(float(v[k]) for v in case.law), found.value[k], case.truth[k], found.error[k], case.norm[k]) for k in bad]
        assert not shown, "\n".join(map(str, shown))


def test_the_battery_has_every_atom_of_one_argument_on_the_whole_line():
    whole = {name for name, atom in ATOMS.items() if atom.arity == 1 and atom.domain == (-np.inf, np.inf)}
    assert {atom for atom, _ in USED.values()} == whole
    with_parameters = {name for name in whole if ATOMS[name].params}
    assert all(sum(atom == name for atom, _ in USED.values()) > 1 for name in with_parameters)
    paired = {frozenset((USED[f][0], USED[g][0])) for f, g in PAIRS}
    assert paired >= {frozenset((a, b)) for a in whole for b in whole if a != b}
    assert len(LAWS) == 200
    assert {len(values) for values in PAIRS.values()} == {12}


@pytest.mark.parametrize("f", REFERENCES["self"])
def test_an_atom_with_itself(f):
    check(f, f, cases(f, f, SELF[f, f]))


@pytest.mark.parametrize("f", REFERENCES["self"])
def test_an_atom_with_every_other(f):
    for (first, second), values in PAIRS.items():
        if first == f:
            check(first, second, cases(first, second, values))


@pytest.mark.parametrize("f", REFERENCES["means"])
def test_means(f):
    kept = [k for k, text in enumerate(REFERENCES["means"][f]) if text is not None]
    truth = np.array([float(REFERENCES["means"][f][k]) for k in kept])
    found = mean(FUNCTIONS[f], *MARGINALS[kept].T)
    bad = violations(found, truth, roots(f)[kept], accuracy(FUNCTIONS[f]))
    assert not bad.size, (MARGINALS[kept][bad], found.value[bad], truth[bad], found.error[bad])

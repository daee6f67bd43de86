"""The functions of references.json as the registry of atoms knows them, the laws, and the check they must pass.

The references have 24 digits.  They were worked out by mpmath in 34 digits, without any code of tensorprog: one
integral over z of f(mu_f + sd_f z) E[g(Y) | z] phi(z) each, by Gauss-Legendre rules on panels that end at kinks,
with formulas for the conditional means, and compared with mpmath's own quadrature in one and two dimensions.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tensorprog.gaussian import FunctionTerm, RealFunction
from tensorprog.language.atoms import ATOMS

REFERENCES = json.loads(Path(__file__).with_name("references.json").read_text())
MARGINALS = np.array(REFERENCES["marginals"])
LAWS = np.array(REFERENCES["laws"])
# largest distance from the truth, and largest reported error, relative to sqrt(E f(X)^2 E g(Y)^2)
QUADRATURE, REPORTED = 1e-10, 1e-10
# what references and doubles are good for: 30 digits of the norm, half a unit of rounding, and where they underflow
DIGITS, HALF_ULP, SMALLEST = 1e-29, 2.0**-53, 1e-300


def from_atom(name, *given):
    """An atom, its parameters filled in from the defaults, as a function to integrate."""
    atom = ATOMS[name]
    params = given or tuple(atom.params.values())
    terms = atom.terms(*params) if atom.terms is not None else None
    return RealFunction(
        call=lambda x: atom.numpy(x, *params),
        kinks=np.array(atom.kinks(*params)),
        features=np.reshape(np.array(atom.features(*params), dtype=float), (-1, 2)),
        parity=atom.parity,
        terms=None if terms is None else tuple(FunctionTerm(*term) for term in terms),
    )


def times_power(power, f):
    call = f.call
    terms = tuple(replace(term, power=term.power + power) for term in f.terms)
    return replace(f, call=lambda x: x**power * call(x), parity=f.parity * (-1) ** power, terms=terms)


def parse(name):
    """'elu(x, 0.5)': the name of an atom and its parameters."""
    atom, rest = name[:-1].split("(x")
    return atom, tuple(float(part) for part in rest.split(",")[1:])


SPELLED = {"x": ("power", (1,)), "x**2": ("power", (2,)), "x**3": ("power", (3,)), "-x": ("negative", ())}
PRODUCTS = {"x * erf(x)": (1, "erf"), "x**2 * relu(x)": (2, "relu"), "x * sin(x)": (1, "sin")}
USED = {name: SPELLED.get(name) or parse(name) for name in REFERENCES["self"] if name not in PRODUCTS}
FUNCTIONS = {name: from_atom(atom, *params) for name, (atom, params) in USED.items()}
FUNCTIONS |= {name: times_power(power, from_atom(atom)) for name, (power, atom) in PRODUCTS.items()}


@dataclass(frozen=True, eq=False)
class Cases:
    """Laws of (X, Y) as arrays, with the true E f(X) g(Y) and sqrt(E f(X)^2 E g(Y)^2)."""

    law: tuple
    truth: np.ndarray
    norm: np.ndarray

    @property
    def swapped(self):
        mu_f, mu_g, var_f, var_g, cov = self.law
        return replace(self, law=(mu_g, mu_f, var_g, var_f, cov))


def roots(name):
    """sqrt(E f^2) at each of the marginals; infinite where it is no double."""
    return np.sqrt([np.inf if text is None else float(text) for text in REFERENCES["squares"][name]])


def cases(f, g, values):
    """What is known about a pair of functions; laws without a value, not a double, are left out."""
    kept = [k for k, text in enumerate(values) if text is not None]
    i, j = LAWS[kept, 0].astype(int), LAWS[kept, 1].astype(int)
    (mu_f, var_f), (mu_g, var_g) = MARGINALS[i].T, MARGINALS[j].T
    norm = roots(f)[i] * roots(g)[j]
    return Cases((mu_f, mu_g, var_f, var_g, LAWS[kept, 2]), np.array([float(values[k]) for k in kept]), norm)


def honest(estimate, truth, norm):
    """Where the distance from the truth is at most the reported error, as far as the reference can tell."""
    slack = HALF_ULP * np.abs(truth) + DIGITS * np.where(np.isfinite(norm), norm, 0.0)
    return np.abs(estimate.value - truth) <= estimate.error + slack


def violations(estimate, truth, norm, accuracy):
    """Members whose error is not honest or above REPORTED, or whose distance from the truth is above the accuracy."""
    accurate = np.abs(estimate.value - truth) <= accuracy * norm + SMALLEST
    useful = np.isfinite(estimate.error) & (estimate.error <= REPORTED * norm + SMALLEST)
    return np.flatnonzero(~(honest(estimate, truth, norm) & accurate & useful))

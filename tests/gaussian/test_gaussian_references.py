"""Every pair of functions and every kind of law against 20-digit references."""

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from gaussian_functions import FUNCTIONS

from tensorprog.gaussian import cross, mean

CASES = json.loads(Path(__file__).with_name("references.json").read_text())
PAIRS = {tuple(pair): list(rows) for pair, rows in groupby(sorted(CASES), key=lambda row: row[:2])}
# sin or cos with a sign function closes only through Faddeeva functions: quadrature answers
OPEN = {("sin", "relu"), ("sin", "erf")}


def columns(rows):
    law = [np.array([row[k] for row in rows]) for k in range(2, 7)]
    return law, np.array([float(row[7]) for row in rows]), np.array([float(row[8]) for row in rows])


def check(estimate, truth, norm, accuracy):
    distance = np.abs(estimate.value - truth)
    # the reference is rounded to double here
    assert np.all(distance <= estimate.error + 1.2e-16 * np.abs(truth)), (estimate, truth)
    assert np.all(distance <= accuracy * norm), (norm, estimate)
    assert np.all(estimate.error <= 1e-10 * norm + 1e-304), (norm, estimate)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_ladder_meets_the_references_within_its_stated_error(pair):
    law, truth, norm = columns(PAIRS[pair])
    f, g = (FUNCTIONS[name] for name in pair)
    check(cross(f, g, *law), truth, norm, 1e-13)
    swapped = [law[1], law[0], law[3], law[2], law[4]]
    check(cross(g, f, *swapped), truth, norm, 1e-13)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p not in OPEN])
def test_quadrature_alone_meets_the_references_within_its_stated_error(pair):
    law, truth, norm = columns(PAIRS[pair])
    f, g = (replace(FUNCTIONS[name], terms=None) for name in pair)
    check(cross(f, g, *law), truth, norm, 1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_means_agree_with_quadrature_and_with_the_product_with_one(name):
    f = FUNCTIONS[name]
    mu = np.array([0.0, 0.5, -3.0, 0.25, 2.0, 0.0])
    var = np.array([1.0, 1.7, 1e-6, 1e4 if name not in ("exp", "sin", "cos") else 4.0, 0.0, 1.0])
    ladder, numeric = mean(f, mu, var), mean(replace(f, terms=None), mu, var)
    assert np.all(np.abs(ladder.value - numeric.value) <= ladder.error + numeric.error)
    assert np.all(ladder.error <= 1e-12 * np.maximum(1, np.abs(ladder.value)) * np.sqrt(1 + var))

"""Hypothesis draws the same examples in every run: a failure can be repeated, and a passing commit stays passing.

Functions that a test declares are gone after it.  BLAS has one thread in each process, and in those that tests start:
workers of pytest share the cores already, and threads of BLAS that wait for each other keep them busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from threadpoolctl import threadpool_limits

from tensorprog.atoms import ATOMS

threadpool_limits(1, "blas")  # libraries loaded by now; the others read what the environment says
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"))

# numbers found in the sources that are loaded would make other examples of every commit
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The registry of functions, as it was before the test when the test is over."""
    before = dict(ATOMS)
    yield
    ATOMS.clear()
    ATOMS.update(before)

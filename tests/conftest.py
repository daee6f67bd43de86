"""What all tests share: random examples that can be repeated, one BLAS thread, and the registry of functions.

Hypothesis draws the same examples in every run.  Functions that a test declares are gone after it.  BLAS has one thread
in each process, and in those that tests start, unless OPENBLAS_NUM_THREADS says otherwise: workers of pytest share the
cores already, and threads of BLAS that wait for each other keep them busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from threadpoolctl import threadpool_limits

from tensorprog.language.atoms import ATOMS

THREADS = os.environ.get("OPENBLAS_NUM_THREADS", "1")
threadpool_limits(int(THREADS), "blas")  # libraries loaded by now; the others read what the environment says
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), THREADS))

# numbers found in the sources that are loaded would make other examples in each process
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants
settings.register_profile("repeatable", deadline=None, database=None, suppress_health_check=list(HealthCheck))
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Seed Hypothesis, unless --hypothesis-seed is given."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = "0"


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The registry of functions, as it was before the test when the test is over."""
    before = dict(ATOMS)
    yield
    ATOMS.clear()
    ATOMS.update(before)

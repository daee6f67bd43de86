"""What all tests share: random examples that can be repeated, one BLAS thread, and the registry of functions.

Hypothesis draws the same examples in every run of a commit, others in the next: `tests/rotation.py` says which, and the
header of a run shows it.  Functions that a test declares are gone after it.  BLAS has one thread in each process, and
in those that tests start, unless OPENBLAS_NUM_THREADS says otherwise: workers of pytest share the cores already, and
threads of BLAS that wait for each other keep them busy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from threadpoolctl import threadpool_limits

from tensorprog.language.atoms import ATOMS
from tests import rotation

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
    """Seed Hypothesis with the number of the run, unless --hypothesis-seed is given."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(rotation.NUMBER)


def pytest_report_header() -> str:
    """What it takes to repeat the run."""
    number = "all" if rotation.ALL else rotation.NUMBER
    return (
        f"TENSORPROG_TESTS={number} (slices of large batteries, and the seed of random examples); "
        f"OPENBLAS_NUM_THREADS={THREADS}"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases of dear tests that have not their turn."""
    if rotation.ALL or config.option.keyword or any("::" in argument for argument in config.args):
        return
    turns = rotation.having_their_turn(items)
    config.hook.pytest_deselected(items=[item for item, turn in zip(items, turns, strict=True) if not turn])
    items[:] = [item for item, turn in zip(items, turns, strict=True) if turn]


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """The registry of functions, as it was before the test when the test is over."""
    before = dict(ATOMS)
    yield
    ATOMS.clear()
    ATOMS.update(before)

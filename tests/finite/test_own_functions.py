"""Finite networks with declared functions: all methods, threads, processes, and folders of results."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.finite.plan import make_job
from tensorprog.finite.run import opened, pack
from tensorprog.language.atoms import ATOMS


def bent(x: Any) -> Any:
    """As tanh, in a module that workers can import."""
    return np.tanh(x)


def network(f: Any) -> tp.Program:
    P = tp.Program("deep")
    t = P.index("t", 2)
    h = P.initial("h[t]", mean=0, cov=1)
    W, V = P.weights("W", "V")
    x = P.nonlin("x[t]", f(P.matmul("u[t]", W, h[t])[t]))
    P.outputs(P.nonlin("y[t]", f(P.matmul("v[t]", V, x[t])[t])))
    return P


RUN: dict[str, Any] = {"width": 16, "samples": 600, "seed": 3}


def same(first: tp.Samples, second: tp.Samples) -> bool:
    return bool(np.array_equal(first["y"], second["y"]))


@pytest.mark.parametrize("method", ["dense", "lazy", "collapsed"])
def test_runs_are_those_of_the_shipped_function(method: str) -> None:
    mine, shipped = network(tp.atom("bent", bent)), network(tp.tanh)
    assert same(mine.run(**RUN, method=method), shipped.run(**RUN, method=method))
    assert same(mine.run(**RUN, method=method, threads=2), shipped.run(**RUN, method=method))


def test_processes_receive_the_function() -> None:
    P = network(tp.atom("bent", bent))
    here = P.run(**RUN)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert same(P.run(**RUN, executor=pool), here)


def test_a_function_that_cannot_be_sent_is_named() -> None:
    P = network(tp.atom("local", lambda x: np.tanh(x)))
    with ProcessPoolExecutor(1) as pool, pytest.raises(tp.WorkerError, match="local cannot be sent") as caught:
        P.run(**RUN, executor=pool)
    assert "in a module that workers can import" in str(caught.value)


def test_a_worker_refuses_another_function_of_the_name() -> None:
    P = network(tp.atom("bent", bent))
    packed = pack(make_job(P.netsor, 16, method="dense"), 100.0)
    assert opened(packed).netsor == P.netsor
    del ATOMS["bent"]
    tp.atom("bent", np.sin)
    opened.cache_clear()
    with pytest.raises(tp.WorkerError, match="bent is another function there"):
        opened(packed)
    opened.cache_clear()


def test_a_folder_knows_the_function(tmp_path: Path) -> None:
    P = network(tp.atom("bent", bent))
    first = P.run(**RUN, store=tmp_path / "run")
    assert same(P.run(**RUN, store=tmp_path / "run"), first)
    del ATOMS["bent"]
    with pytest.raises(tp.ProgramError, match="another functions"):
        network(tp.atom("bent", np.sin)).run(**RUN, store=tmp_path / "run")

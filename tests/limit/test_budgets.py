"""max_memory is kept: by peaks of processes, and by errors that name what is too much."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp
from tensorprog import Program
from tests.reading import loads

MIB = 1 << 20
CHILD = """
import json, resource, sys
import numpy as np, scipy.stats, sympy
import tensorprog as tp
import tensorprog.law
allowed, *cases = json.loads(sys.argv[1])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
programs = [tp.load(program, **given) for program, given, _ in cases]
before, said = peak(), []
for program, (_, _, question) in zip(programs, cases):
    law = None
    try:
        law = program.limit(max_memory=f"{allowed}MiB")
        exec(question)
        said.append("")
    except tp.MemoryLimitError as error:
        said.append(str(error))
    del law
print(json.dumps([peak() - before, said]))
"""


def peak(allowed: int, *cases: tuple[str, dict[str, int], str]) -> tuple[float, list[str]]:
    """MiB that a process takes for questions one after another, and why each is refused."""
    command = [sys.executable, "-c", CHILD, json.dumps([allowed, *cases])]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    used, said = json.loads(found.stdout)
    return used, said


UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}


def quoted(message: str) -> list[float]:
    """The amounts that a message names: what is needed, and what is allowed."""
    found = re.search(r"would take ([\d.]+) (\w+).* more than max_memory, ([\d.]+) (\w+):", message)
    assert found, message
    return [float(found[k]) * UNITS[found[k + 1]] for k in (1, 3)]


def test_what_does_not_fit_is_refused_before_it_is_tried() -> None:
    used, said = peak(
        40,
        ("attention", {"s": 4000}, "law.sample(4)"),
        ("attention", {"s": 100_000}, "law.sample(1)"),
        ("attention", {"s": 100_000}, "law.cov('p')[0, 0]"),
        ("attention_correlated", {"s": 2000}, "law.sample(1)"),
        ("mlp", {"m": 2000}, "law.cov('f')"),
        ("attention", {"s": 8}, "law.sample(4)"),  # of all these, this fits
    )
    for message in said[:-1]:
        wanted, allowed = quoted(message)
        assert wanted > allowed == 40 * MIB
    assert not said[-1]
    assert used <= 40


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gru", "lstm", "attention_fixed_head", "batchnorm_mlp"])
def test_draws_of_what_is_carried_keep_to_the_budget(program: str) -> None:
    used, said = peak(100, (program, {}, "law.var(law.outputs[0])"))
    assert said == [""]
    assert used <= 100


def short(program: str) -> tp.Program:
    """A program on sentences, for three tokens."""
    text = (Path(tp.__file__).parents[1] / "programs" / f"{program}.yaml").read_text()
    return Program.from_netsor(loads(text.replace("data: data/tokens.npy, variance: sigma_w2", "cov: 0.5**abs(t - t_)"),
                                     {"T": 3, "S": 1}))  # fmt: skip


def test_few_draws_have_an_error() -> None:
    """A small budget leaves fewer draws in as many replicates: their spread is stated."""
    exact, few = (short("gru").limit(max_memory=m).cov("y") for m in ("64MiB", "2MiB"))
    assert few.error > 3 * exact.error > 0
    assert np.abs(np.asarray(few) - np.asarray(exact)).max() <= few.error + exact.error

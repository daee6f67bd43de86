"""Nothing that is printed depends on the order of sets, on threads, or on what was computed before."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# the JSON of checks of programs of several kinds, and of limits and small runs of some, without times
SCRIPT = """
import json, sys
import tensorprog as tp
from click.testing import CliRunner
from tensorprog.jobs.cli import main

PROGRAMS = {"attention": ["s=2", "H=1"], "attention_same_bias": [], "attention_shared_layers": [], "deep_attention": [],
            "layernorm_mlp": [], "lstm": []}
before, order = sys.argv[1] == "before", sys.argv[2] == "backwards"
if before:
    program = tp.load("attention", s=2, H=1)
    program.run(width=4, samples=10, seed=5)
    law = program.limit()
    law.sample(10, seed=7)
    law.kurtosis("y[1]")

def said(*arguments):
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert result.exit_code in (0, 1), result.output  # 1: outside, so there is no limit
    report = json.loads(result.stdout)
    for entry in report.get("finite") or ():
        del entry["seconds"]
    return {"code": result.exit_code} | report

printed = {}
for name, constants in sorted(PROGRAMS.items(), reverse=order):
    given = [name, *(f"--set={constant}" for constant in constants)]
    printed[name] = [said("check", *given)]
    if name in ("attention", "layernorm_mlp"):
        printed[name].append(said("limit", *given))
        small = ["--width", "8", "--samples", "40", "--threads", sys.argv[3], "--out", sys.argv[4], "--quiet"]
        printed[name].append(said("run", *given, *small))
print(json.dumps(printed, sort_keys=True))
"""
# hash seed, threads of BLAS and of the run, and what comes first
SETTINGS = [("0", "1", "nothing", "forwards"), ("1", "2", "before", "backwards")]


@pytest.mark.slow
def test_hash_seeds_threads_and_earlier_draws_change_nothing(tmp_path) -> None:
    printed = []
    for seed, threads, before, order in SETTINGS:
        many = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, before, order, threads, "out"],
            cwd=tmp_path,
            env=os.environ | many | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    first, *others = printed
    for setting, other in zip(SETTINGS[1:], others, strict=True):
        assert json.loads(other) == json.loads(first), setting  # says where they differ
        assert other == first, setting

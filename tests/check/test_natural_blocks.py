"""Blocks written the natural way get the grade that they deserve, and their rewrites are exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from networks import check_same

from tensorprog.check.rewrites import normalize, written_out
from tests.reading import dump, judge, loads

TABLE = yaml.safe_load(Path(__file__).with_name("natural_blocks.yaml").read_text(encoding="utf-8"))
BLOCKS: dict[str, dict[str, str]] = TABLE["blocks"]


def text_of(block: dict[str, str]) -> str:
    """The program file of a block."""

    def entries(key: str) -> list[str]:
        return [f"  {line}" for line in block.get(key, "").splitlines()]

    body = TABLE["bases"][block.get("base", "none")] + block["body"]
    return "\n".join(
        [
            "program: block",
            "constants:",
            "  s: 3",
            "  H: 2",
            "  L: 3",
            *entries("constants"),
            "indices:",
            "  i: s",
            "  j: s",
            "  a: H",
            *entries("indices"),
            block.get("extra", ""),
            "initial:",
            '  h[i]: {cov: "0.5**abs(i - i_)"}',
            *entries("initial"),
            "weights:",
            "  WQ[a]: 1",
            "  WK[a]: 1",
            "  WV[a]: 1",
            "  WO[a]: 1",
            *entries("weights"),
            "body:",
            *(f"  - {line}" for line in body.splitlines()),
            "outputs: [y]",
            "",
        ]
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[] if k % 6 == 0 else pytest.mark.slow) for k, name in enumerate(BLOCKS)
])  # fmt: skip
def test_block(name: str) -> None:
    netsor = loads(text_of(BLOCKS[name]))
    report: Any = judge(netsor)
    assert report.grade == BLOCKS[name]["grade"], str(report)
    rewritten, final = normalize(netsor), written_out(netsor)
    with np.errstate(all="ignore"):
        check_same(rewritten, netsor)
        check_same(final, netsor, rewritten.netsor)
    assert loads(dump(final.netsor)) == final.netsor
    lines = {statement.span.line for statement in netsor.body} | {v.span.line for v in netsor.initial}
    assert {step.line for step in final.steps} <= lines
    assert {finding.line for finding in report.findings} <= lines | {0}

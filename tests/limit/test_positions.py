"""Moments asked for at equal positions: the same numbers as the whole, and far fewer of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.limit.moment import recursion

PROGRAMS = Path(__file__).resolve().parents[2] / "programs"
NAMES = ("attention_masked", "attention_natural", "attention_relpos", "cnn", "cnn_pool", "layernorm_mlp", "mlp_bias")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_what_the_whole_has(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tp.load(PROGRAMS / f"{name}.yaml")
    whole = program.limit().recursion
    monkeypatch.setattr(recursion, "SMALL", 0)
    part = program.limit().recursion
    for family, declared in part.netsor.families.items():
        if (declared.kind == "vector" and family not in part.random) or family in part.scores:
            grids = np.meshgrid(*(np.arange(a, b) for a, b in declared.ranges), indexing="ij", sparse=True)
            at = {f"{k}{copy}": grid for k, grid in enumerate(grids) for copy in ("", "_")}
            ask = "score" if family in part.scores else "centred"
            one = getattr(whole, ask)(family, family).at(at)
            two = getattr(part, ask)(family, family, part.equal(family)).at(at)
            room = one.error + two.error + 1e-13 * np.max(np.abs(one.value))
            assert np.all(np.abs(one.value - two.value) <= room), family


def test_a_flattened_convolution_has_no_covariance_of_all_places(tmp_path: Path) -> None:
    """Every place has a readout of its own: only equal places are read, so that memory grows with places."""
    text, places = (PROGRAMS / "cnn.yaml").read_text().replace("P: 8", "P: 200"), 200
    (tmp_path / "cnn.yaml").write_text(text)
    law = tp.load(tmp_path / "cnn.yaml").limit()
    law.cov("f")
    kept = [(key, moment) for key, known in law.recursion._second.items() for moment in known.values()]
    sizes = [(key, max((t.value.estimate.value.size for t in m.terms), default=0)) for key, m in kept]
    functions = [size for key, size in sizes if key[0] in ("x1", "x2")]
    assert functions and max(functions) < 10 * places

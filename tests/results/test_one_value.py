"""One quantity has one value and one error, wherever it is shown: files, pages, notebooks, terminals and pipes."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorprog as tp
from tensorprog.blocks import to_text
from tensorprog.blocks.html import to_html
from tensorprog.jobs import run as job
from tensorprog.language.formats import chance, quantity
from tensorprog.results.study import Study, settings_of
from tensorprog.show.page import report_page

WIDTHS = (16, 64)
SHOWN = {"variance": "variance", "kurtosis": "kurtosis", "ks": "KS", "kl": "KL", "kl_precise": "precise KL"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def study(out: Path) -> Study:
    program = tp.load("attention", s=2)
    settings = settings_of(program.netsor, {"width": WIDTHS, "samples": 2000})
    return job.run(program, settings, out, page=report_page)


@pytest.fixture(scope="module")
def texts(study: Study, out: Path) -> dict[int, dict[str, str]]:
    """By width and column what y[0] has, from the numbers in report.json."""
    found: dict[int, dict[str, str]] = {}
    for entry in json.loads((out / "report.json").read_text())["finite"]:
        numbers = entry["outputs"]["y"]
        found[entry["width"]] = {
            heading: quantity(numbers[key][0], numbers[f"{key}_se"][0]) for key, heading in SHOWN.items()
        }
        found[entry["width"]] |= {"p": chance(numbers["ks_p"][0]), "KL floor": quantity(numbers["kl_floor"][0])}
    return found


def _words(text: str) -> list[str]:
    return re.sub(r"<[^>]*>|\x1b\[[0-9;]*m", " ", unescape(text)).split()


def _rows(words: list[str], first: str) -> list[list[str]]:
    """What follows each time the name stands before a width."""
    return [words[k + 2 :] for k, word in enumerate(words[:-1]) if word == first and words[k + 1] == str(WIDTHS[0])]


def test_pages_and_pipes_have_the_numbers_of_the_file(study: Study, out: Path, texts: Any) -> None:
    limit = json.loads((out / "report.json").read_text())["limit"]["outputs"]["y"]
    page = (out / "report.html").read_text()
    for shown in (to_text(study.blocks()), to_html(study.blocks()), page[page.index("Results</h") :]):
        row = next(iter(_rows(_words(shown), "y[0]")))
        wanted = list(texts[WIDTHS[0]].values())
        order = ["variance", "kurtosis", "KS", "p", "KL", "KL floor", "precise KL"]
        assert row[: len(wanted)] == [texts[WIDTHS[0]][name] for name in order]
        assert quantity(limit["variance"][0], limit["variance_error"][0]) in row
        assert quantity(limit["kurtosis"][0], limit["kurtosis_error"][0]) in row


def test_variances_are_the_diagonals_of_covariances(study: Study, out: Path) -> None:
    report = json.loads((out / "report.json").read_text())
    for entry in [*(found["outputs"]["y"] for found in report["finite"]), report["limit"]["outputs"]["y"]]:
        np.testing.assert_allclose(np.diagonal(entry["cov"]), entry["variance"], rtol=1e-12)
        assert np.linalg.eigvalsh(entry["cov"]).min() > 0
    assert study.reference is not None
    law = study.reference.law
    found = report["limit"]["outputs"]["y"]
    for key, ask in (("mean", law.mean), ("variance", law.var), ("kurtosis", law.kurtosis)):
        value, error = ask("y[0]", with_error=True)
        assert (found[key][0], found[f"{key}_error"][0]) == pytest.approx((value, error), rel=1e-9)
    assert all(math.isfinite(x) for row in found["cov"] for x in row)

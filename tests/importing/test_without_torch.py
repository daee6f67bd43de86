"""torch is optional: what asks for it says so, and nothing else loads it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

import tensorprog as tp


def test_the_package_does_not_load_torch() -> None:
    code = "import tensorprog as tp, sys; tp.load('attention').check(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
@pytest.mark.parametrize("name", ["from_torch", "compare_torch"])
def test_the_extra_is_named(name: str) -> None:
    with pytest.raises(tp.ProgramError, match=r"torch is not installed[\s\S]*install[\s\S]*torch\b"):
        getattr(tp, name)(tp.load("attention"), lambda n: None, 0)


def test_programs_that_were_written_have_no_story() -> None:
    assert tp.load("attention").imported is None

"""Texts of programs and back, and verdicts on them, as tests need them everywhere: without the classes around.

What is behind the public interface and needed in many files is imported here, so that moving it changes one file.
"""

from __future__ import annotations

from tensorprog.language.ir import Netsor
from tensorprog.language.reading import load, loads
from tensorprog.language.writing import dump
from tensorprog.results.limit_answers import check_with_limit as judge

__all__ = ["Netsor", "dump", "judge", "load", "loads"]

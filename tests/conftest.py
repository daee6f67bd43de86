"""Hypothesis draws the same examples in every run: a failure can be repeated, and a passing commit stays passing."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

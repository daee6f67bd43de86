"""Members by name, and numbers with their errors, as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

__all__ = ["BRACKETS", "chance", "label", "plain_fields", "quantity", "short"]

BRACKETS = "in brackets: the standard error of the last digits"


def label(name: str, index: Sequence[int]) -> str:
    """The name of a member as it is written: y[0], p[0,1,2], m."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def quantity(value: float, error: float = math.nan, figures: int = 2) -> str:
    """A number with its error to so many figures, in units of the last digit: 3.571(12); '-' if it is not a number."""
    if not math.isfinite(value):
        return "-"
    if not math.isfinite(error) or error < 0:
        return short(value)
    if error == 0 or error < abs(value) * 1e-12:
        return f"{value:.6g}"
    largest = max(abs(value), error)
    exponent = math.floor(math.log10(largest))
    shift = exponent if exponent < -3 or exponent > 6 else 0
    value, error = value / 10.0**shift, error / 10.0**shift
    digits = max(0, figures - 1 - math.floor(math.log10(error)))
    bracket = round(error * 10**digits)
    if bracket >= 10**figures and digits > 0:
        digits, bracket = digits - 1, round(error * 10 ** (digits - 1))
    text = f"{value:.{digits}f}({bracket})"
    return f"{text}e{shift}" if shift else text


def short(value: float) -> str:
    """A number of no stated accuracy, to two or three figures."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.1e}".replace("e-0", "e-") if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def chance(p: float) -> str:
    """A p-value."""
    return "-" if not math.isfinite(p) else "<1e-9" if p < 1e-9 else f"{p:.1g}" if p < 0.01 else f"{p:.2f}"


def plain_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain values; None for numbers that are not finite."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(record).items()}

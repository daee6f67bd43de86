"""What the frozen table asks of a program, by public names only, and when two answers agree.

A question is a list that JSON can hold: its kind, the member it is about, and numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorprog as tp

__all__ = ["agrees", "ask", "questions_about"]

CLOSED = 1e-9  # closed forms and quadratures agree to this part of their size


def questions_about(program: tp.Program, thorough: bool) -> list[list[Any]]:
    """Questions about the first and the last member of each output and score."""
    law, asked = program.limit(), []
    for family in [*law.outputs, *law.scores][: 4 if thorough else 1]:
        spans = program.netsor.families[family].ranges
        ends = (",".join(map(str, place)) for place in ([a for a, _ in spans], [b - 1 for _, b in spans]))
        first, last = (f"{family}[{end}]" if end else family for end in ends)
        asked += [["mean", first], ["var", first], ["kurtosis", first]]
        if last != first:
            asked += [["var", last], ["cov", first, last]]
        if thorough and family in law.outputs:
            asked += [["density", first, 0.0], ["density", first, 0.7], ["cdf", first, 0.5], ["quantile", first, 0.95]]
        if thorough:
            asked += [["run", 64, 2000, family, power] for power in (1, 2, 4)]
    return asked


def ask(program: tp.Program, question: list[Any]) -> tuple[float, float]:
    """The answer to one question, and its error: for `run` one standard error, for the others what the law states."""
    kind, *rest = question
    if kind == "run":
        width, samples, name, power = rest
        drawn = np.asarray(program.run(width=width, samples=samples, seed=1)[name], float).reshape(samples, -1)[:, 0]
        return float(np.mean(drawn**power)), float(np.std(drawn**power) / samples**0.5)
    if kind == "ntk":
        kernel = tp.ntk(program, rest[0])
        return float(np.asarray(kernel).flat[0]), float(np.max(kernel.error))
    if kind == "depth":
        profile = tp.depth(program, rest[0], draws=256).sel(layer=rest[2])
        return float(profile[rest[1]]), float(profile[f"{rest[1]}_error"])
    law = tp.backward(program).limit() if kind == "gradient" else program.limit()
    if kind == "correction":
        value, error = law.correction(rest[0], rest[1], draws=1024, seed=0)
    elif kind == "cov":
        value, error = law.cov(rest[0], rest[1], with_error=True)
    elif kind == "quantile":  # its error is that of the distribution function, over the density
        value = law.quantile(rest[0], [rest[1]])
        _, off = law.cdf(rest[0], value, with_error=True)
        error = np.max(off) / np.asarray(law.density(rest[0], value))
    elif kind in ("density", "cdf"):
        value, error = getattr(law, kind)(rest[0], [rest[1]], with_error=True)
    else:
        value, error = getattr(law, "var" if kind == "gradient" else kind)(rest[0], with_error=True)
    return float(np.asarray(value).ravel()[0]), float(np.max(error))


def agrees(question: list[Any], now: tuple[float, float], frozen: tuple[float, float]) -> bool:
    """Whether two answers differ by at most 1e-9 of their size and three of both errors (five standard errors)."""
    (value, error), (before, stated) = now, frozen
    allowed = (5 if question[0] == "run" else 3) * np.hypot(error, stated)
    return bool(abs(value - before) <= allowed + CLOSED * max(1.0, abs(before)))

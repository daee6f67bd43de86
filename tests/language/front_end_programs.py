"""Small programs for the tests of the front ends: a valid one, and ways to break it in one place."""

from __future__ import annotations

SECTIONS = {
    "program": "p",
    "constants": "{s: 3, c: 2}",
    "indices": "{i: s, j: s, t: 1..s}",
    "initial": "\n  h: {mean: 0, cov: 1}",
    "weights": "\n  W[i]: 1\n  V: 1",
    "body": [
        "u[i] = MatMul(W[i], h)",
        "x[i,j] = Nonlin(tanh(u[i]) * u[j] / c)",
        "y[t] = Nonlin(u[t-1])",
        "m = Dot(y[1], y[2])",
        "z[i] = Nonlin(sum[j](softmax[j](where(j <= i, m, -inf)) * x[i,j]))",
        "g = MatMul(V, z[0])",
    ],
    "outputs": "[y, g]",
}


def program(add: str | list[str] = (), **sections: str | list[str] | None) -> str:
    """The valid program with sections replaced (None: left out) and statements added."""
    parts = SECTIONS | sections
    text = ""
    for name, value in parts.items():
        if isinstance(value, list):
            more = [add] if isinstance(add, str) else list(add)
            value = "".join(f"\n  - {statement}" for statement in [*value, *more])
        if value is not None:
            text += f"{name}:{'' if value.startswith(chr(10)) else ' '}{value}\n"
    return text


def marked(text: str) -> tuple[str, int, int]:
    """Text without its mark «, and line and column where the mark stood (0, 0 without a mark)."""
    if "«" not in text:
        return text, 0, 0
    before = text[: text.index("«")]
    return text.replace("«", ""), before.count("\n") + 1, len(before) - before.rfind("\n")

"""Expressions that look certified and are not: infinite values, poles within rounding, jumps hidden by scales.

They are refused, or their regularity is assumed, which the claims say.

Beside them stand expressions that differ by little and are as good as they look.
"""

from __future__ import annotations

import pytest

from tensorprog import ProgramError
from tests.corpus import Case
from tests.reading import judge

TOKENS = """
m = Dot(h, h, scale=1/n)
{statements}
y[i] = Nonlin({expr})
z[i] = Nonlin(tanh(p[i,i]) * v[i])
"""
ALONE = """
u[i] = MatMul(W[i], h)
v[i] = MatMul(V, u[i])
m = Dot(h, h, scale=1/n)
y[i] = Nonlin({expr})
"""


def grade(expr: str, scored: bool = True) -> str:
    """The grade of a program with an expression, 'assumed', or 'error' where it is refused when it is read."""
    *statements, expr = expr.split(" ;; ")
    text = TOKENS if scored else ALONE
    body = text.format(expr=expr, statements="\n".join(statements))
    case = Case(
        "hostile",
        base="tokens" if scored else "nothing",
        then=body,
        constants={"s": 3},
        outputs=("y", "z") if scored else ("y",),
    )
    try:
        report = judge(case.load())
        return "assumed" if any(claim.name == "assumed" for claim in report.claims) else report.grade
    except ProgramError:
        return "error"


MASKED = "where(i < 1, p[i,0], -inf)"
REFUSED = {
    "inf in every spelling": (
        "sum[j](softmax[j](where(j <= i, p[i,j], inf)) * v[j])", "sum[j](softmax[j](p[i,j] + inf) * v[j])",
        "where(i <= 1, inf, p[i,0])", "tanh(inf * p[i,0])", "-(-inf) + p[i,0]", "p[i,0] / inf", "exp(inf) * p[i,0]",
        "sum[j](softmax[j](p[i,j] - where(j > i, 0, inf)) * v[j])", "softmax[i](p[i,i] * where(i < 1, 1, inf)) * v[i]",
        "sum[j](softmax[j](where(j <= i, p[i,j], 1e400)) * v[j])", "max(p[i,0], inf)",
        "sum[j](softmax[j](where(j <= i, p[i,j], 1/0)) * v[j])", "where(p[i,0] < inf, v[i], inf)",
        "sum[j](softmax[j](where(j <= i, p[i,j], 1 / (j - j))) * v[j])", "p[i,0] - -inf",
        "sum[j](softmax[j](p[i,j] / (j - i)) * v[j])", "clip(p[i,0], inf, inf)", "clip(p[i,0], -inf, -inf)",
        "sum[j](softmax[j](-where(j <= i, -p[i,j], -inf)) * v[j])",
    ),
    "rows that are masked everywhere": (
        "sum[j](softmax[j](-inf + p[i,j]) * v[j])", "max[j](-inf + p[i,j])", "softmax[i](-inf * 1 + p[i,i]) * v[i]",
        "sum[j](softmax[j](where(j < 0, p[i,j], -inf)) * v[j])",
        "sum[j](softmax[j](where(j > i, p[i,j], -inf)) * v[j])",
        "sum[j](softmax[j](p[i,j] + log(where(j > i, 1, 0))) * v[j])", "sum[j](softmax[j](p[i,j] + log(i)) * v[j])",
        "sum[j](softmax[j](p[i,j] + where(j > i, 0, -inf)) * v[j])", "sum[j](softmax[j](min(p[i,j], -inf)) * v[j])",
        "sum[j](softmax[j](max(-inf, where(i < 1, -inf, p[i,j]))) * v[j])", "exp(logsumexp[j](-inf - p[i,j]))",
        "sum[j](softmax[j](min(p[i,j], where(i < 2, 0, -inf))) * v[j])", "tanh(max[j](where(i < 1, p[i,j], -inf)))",
        "sum[j](softmax[j](where(p[i,j] > 0, p[i,j], -inf)) * v[j])", "max[j](where(j < i, p[i,j], -inf))",
        "v[i] / sum[j](exp(where(j > i, p[i,j], -inf)))", "log(sum[j](exp(where(j > i, p[i,j], -inf)))) * v[i]",
        "r[i] = Nonlin(where(i < 3, -inf, p[i,0])) ;; softmax[i](r[i]) * v[i]",
    ),
    "masks outside a softmax": (
        f"exp(-{MASKED}) * v[i]", f"relu(-{MASKED}) * v[i]", f"{MASKED} * 0 * v[i]", f"{MASKED}**2", f"abs({MASKED})",
        f"v[i] / exp({MASKED})", f"v[i] / sigmoid({MASKED})", f"clip({MASKED}, -1, 1)", f"sqrt({MASKED})", MASKED,
        f"gaussian({MASKED}) * v[i]", f"1 / (1 + tanh({MASKED}))", f"{MASKED} - {MASKED}",
    ),
    "poles within rounding": (
        *(f"v[i] / (relu(p[i,0]) + {zero})" for zero in (
            "0.1 + 0.4 - 0.5", "0.1 + 0.7 - 0.8", "1/3 + 1/3 + 1/3 - 1", "3*0.1 - 0.3", "sqrt(3)**2 - 3",
            "exp(1)**2 - exp(2)", "exp(2) - exp(1)**2", "log(6) - log(2) - log(3)", "log(2) + log(3) - log(6)",
            "sin(pi)", "cos(pi) + 1", "tanh(0.5) - (exp(1) - 1) / (exp(1) + 1)",
            "sum[j](0.1 * relu(u[j])) + 0.1*3 - 0.3",
            "sum[j](0.1) - 0.3", "0.3 - sum[j](0.1 + 0*j)", "abs(0.3 - 0.1 - 0.2)",
        )),
        "v[i] / (relu(p[i,0]) - 0.5 + 0.4 + 0.1)", "v[i] / (p[i,0]**2 + 0.1 + 0.2 - 0.3)",
        "v[i] / (p[i,0]**2 - 2*sqrt(2)*p[i,0] + 2)", "v[i] / (p[i,0]**2 - 0.6*p[i,0] + 0.09)",
        "v[i] / (1 - tanh(max(p[i,0], 20)))", "v[i] / (1 - sigmoid(max(p[i,0], 40)))", "v[i] / exp(min(p[i,0], -800))",
        "v[i] / gaussian(max(p[i,0], 40))", "v[i] / (1 - gaussian(clip(p[i,0], 0, 1e-9)))", "v[i] / (elu(p[i,0]) + 1)",
        "v[i] / (cos(clip(p[i,0], -1e-9, 1e-9)) - 1)", "v[i] / (clip(p[i,0], 0.1, 1) - 0.1)",
        "v[i] / (clip(p[i,0], 0.1, 1) + 0.2 - 0.3)", "v[i] / (clip(p[i,0], 0.1, 1) - 0.5 + 0.4)",
        "v[i] / (max(p[i,0], sqrt(2)) - sqrt(2))", "v[i] / (max(p[i,0], sqrt(2))**2 - 2)",
        "v[i] / (max(p[i,0], 0.7)**2 - 0.49)", "v[i] / (selu(p[i,0]) + 1.7580993408473768)",
        "v[i] / (silu(p[i,0]) + 0.2784645427610738)", "v[i] / (gelu(p[i,0]) + 0.16997120747990369)",
        "(relu(p[i,0]) + abs(0.1 + 0.2 - 0.3))**0.5", "sqrt(relu(p[i,0]) + 0.3 - 0.1 - 0.2)",
        "(relu(p[i,0]) + (0.1 + 0.2 - 0.3)**2)**-1 * v[i]", "log(relu(p[i,0]) + 0.1 + 0.2 - 0.3)",
    ),
    "jumps hidden by scales": (
        "1e13 * where(p[i,0] > 0, 1e-13, 0) * v[i]",
        "step(p[i,0] * 1e-300) * v[i]",
        "1e16 * where(p[i,0] > log(2), exp(p[i,0]) - 2 + 1e-16, 0) * v[i]", "sign(p[i,0] * 1e-200 * 1e-200) * v[i]",
        "where(p[i,0] > 0, p[i,0] + 1e-13, p[i,0]) * 1e13",
        "tanh(p[i,0]) + 1e-300 * exp(p[i,0]**2)", "tanh(p[i,0]) + exp(p[i,0]**2 - 1000)",
        "step(p[i,0]) * 1e-300 * 1e300 * v[i]", "p[i,0] / abs(p[i,0])", "p[i,0] / (abs(p[i,0]) + 1e-400)",
        "where(sqrt(p[i,0]) > 0.5, v[i], v[i])",
    ),
    "corners of ranges of indices": (
        "v[i] / i", "v[i] / (p[i,0]**2 + i)", "v[i] / (i * (i - 1) * (i - 2))", "v[i] / (1 - 0.5*i)",
        "v[i] / (0.3 - 0.1*(i + 1))", "v[i] / (0.3 - 0.1*(i + 1) + relu(p[i,0]))", "v[i] / where(i < 2, 1, 0)",
        "v[i] / where(0.1*(i + 1) < 0.3, 1, 0)", "v[i] / (i - 1 + relu(p[i,0]))", "log(i + relu(p[i,0])) * v[i]",
        "(relu(p[i,0]) + i)**(-1) * v[i]", "sqrt(i - 1) * v[i]", "p[i,0]**(i - 1)", "abs(p[i,0])**(0.5*i)",
        "sum[j](step(p[i,j]) * where(j == 2, 1, 0)) * v[i]", "sum[j](v[j] / (j - i))",
        "mean[j](v[j] / (2 + i - 2*j - i))",
    ),
    "averages at their limits": (
        "1e13 * where(m > 1, 1e-13, 0) * h", "step(m - 1) * h", "where(m * 1e-20 > 1e-20, 1, 2) * h", "h / (m - 1)",
        "sign((m - 1) * 1e-9) * h", "h / (m - 1 + 1e-17)", "h / (m**2 - 1)", "log(m - 1) * h", "sqrt(m - 1) * h",
        "h / sqrt(m - 1 + 0.1 + 0.2 - 0.3)", "h / (sqrt(m) - 1)", "h / sin(pi * m)", "h / (exp(m) - exp(1))",
        "h / relu(m - 1)", "where(m > 0.5, h / (m - 1), h)", "relu(m - 1)**0.01 * h",
    ),
}  # fmt: skip
WITHOUT_SCORES = (
    "v[i] / (relu(v[i]) + sqrt(2)**2 - 2)", "exp((abs(v[i])**0.7)**(20/7))", "exp(abs(v[i])**(2 - 1e-17))",
    "exp((v[i]**2)**(0.1*10))", "log(relu(v[i]) + 0.1 + 0.2 - 0.3)", "step((m - 1) * h) * v[i]", "h / (m - 1)",
    "step(1e-12 * (m - 1) * h)", "h / ((m - 1)**2 + relu(v[i]))", "where(log(v[i]) > 0.5, 1, 0)",
)  # fmt: skip
GOOD = (
    "sum[j](softmax[j](where(j <= i, p[i,j], -inf)) * v[j])",
    "sum[j](softmax[j](p[i,j] + log(where(j <= i, 1, 0))) * v[j])",
    "tanh(max[j](where(j <= i, p[i,j], -inf))) * v[i]", "sum[j](softmax[j](p[i,j] + log(j)) * v[j])",
    "clip(p[i,0], 0, inf) * v[i]", "max(p[i,0], -inf) * v[i]", "(p[i,0] - 1 + 1) * v[i]",
    "abs(p[i,0])**(1/2 + 1/2) * v[i]",
    "v[i] / (relu(p[i,0]) + 0.1 + 0.2 - 0.2)", "v[i] / (1 + p[i,0]**2)", "v[i] / (2 - tanh(p[i,0]))",
    "where(abs(p[i,0]) < 1.345, 0.5*p[i,0]**2, 1.345*(abs(p[i,0]) - 0.5*1.345)) * v[i]",
    "where(p[i,0] > 0.1, 10*p[i,0], 1) * v[i]",
    "where(p[i,0] > 0, 1.0507*p[i,0], 1.0507*1.67326*(exp(p[i,0]) - 1)) * v[i]",
    "where(p[i,0] > 0.3, p[i,0], 0.1 + 0.2) * v[i]", "v[i] / (0.4 - 0.1*(i + 1))", "v[i] / (i + 1)",
    "0.5*p[i,0]*(1 + tanh(sqrt(2/pi)*(p[i,0] + 0.044715*p[i,0]**3))) * v[i]", "sqrt(1 - 0.9*tanh(p[i,0])**2) * v[i]",
    "sum[j](where(j != i, v[j], 0) / where(j != i, j - i, 1))", "exp(-0.1*relu(p[i,0])) * v[i]",
)  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_nothing_is_certified_by_rounding_or_by_infinity(kind: str) -> None:
    found = {expr: grade(expr) for expr in REFUSED[kind]}
    assert {expr: g for expr, g in found.items() if g not in ("outside", "error", "assumed")} == {}


def test_nothing_is_certified_without_scores_either() -> None:
    found = {expr: grade(expr, scored=False) for expr in WITHOUT_SCORES}
    assert {expr: g for expr, g in found.items() if g not in ("outside", "error", "assumed")} == {}


def test_what_differs_by_little_and_is_sound_is_certified() -> None:
    found = {expr: grade(expr) for expr in GOOD}
    assert {expr: g for expr, g in found.items() if g not in ("theorem", "extension", "assumed")} == {}

"""The normal distribution as named functions: density phi, distribution function Phi."""

from __future__ import annotations

from typing import Any, ClassVar

import sympy as sp

__all__ = ["Phi", "phi"]


class _Named(sp.Function):  # type: ignore[misc]
    """A function with a name in LaTeX."""

    tex: ClassVar[str]

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"{self.tex}{power}\left({', '.join(map(printer._print, self.args))}\right)"

    def _eval_evalf(self, prec: int) -> Any:
        return self.rewrite(sp.erf)._eval_evalf(prec)


class phi(_Named):
    """Density of N(0, 1) at x."""

    nargs = 1
    tex = r"\varphi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Even."""
        return 1 / sp.sqrt(2 * sp.pi) if x.is_zero else cls(-x) if x.could_extract_minus_sign() else None

    def fdiff(self, argindex: int = 1) -> Any:
        """phi' = -x phi."""
        return -self.args[0] * self

    def _eval_rewrite_as_erf(self, x: Any, **_: Any) -> Any:
        return sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


class Phi(_Named):
    """Distribution function of N(0, 1) at x."""

    nargs = 1
    tex = r"\Phi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Phi(-x) is 1 - Phi(x)."""
        return sp.S.Half if x.is_zero else 1 - cls(-x) if x.could_extract_minus_sign() else None

    def fdiff(self, argindex: int = 1) -> Any:
        """Phi' = phi."""
        return phi(self.args[0])

    def _eval_rewrite_as_erf(self, x: Any, **_: Any) -> Any:
        return (1 + sp.erf(x / sp.sqrt(2))) / 2

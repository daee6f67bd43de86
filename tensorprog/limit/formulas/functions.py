"""The normal distribution as named functions: density phi, distribution function Phi, bivariate Phi2."""

from __future__ import annotations

from typing import Any, ClassVar

import sympy as sp

__all__ = ["Phi", "Phi2", "phi"]


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


class Phi2(_Named):
    """P(xi <= h, eta <= k) for standard normal xi, eta of correlation r."""

    nargs = 3
    tex = r"\Phi_2"

    @classmethod
    def eval(cls, h: Any, k: Any, r: Any) -> Any:
        """Signs of h and k are moved out, and the exact cases answered.

        Source    P(xi <= -h, eta <= k) = Phi(k) - P(xi <= h, -eta' <= k) with the correlation changed in sign
        """
        if r.is_zero:
            return Phi(h) * Phi(k)
        if r is sp.S.One:
            return Phi(sp.Min(h, k))
        if r is sp.S.NegativeOne:
            return sp.Max(0, Phi(h) + Phi(k) - 1)
        if h.is_zero and k.is_zero:
            return sp.Rational(1, 4) + sp.asin(r) / (2 * sp.pi)
        if h.could_extract_minus_sign():
            return Phi(k) - cls(-h, k, -r)
        if k.could_extract_minus_sign() or sp.default_sort_key(k) < sp.default_sort_key(h):
            return cls(k, h, r)
        return None

    def fdiff(self, argindex: int = 1) -> Any:
        """Along h the density there times the conditional probability; along r the bivariate density (Plackett)."""
        h, k, r = self.args
        s = sp.sqrt(1 - r**2)
        if argindex == 3:
            return phi(h) * phi((k - r * h) / s) / s
        h, k = (h, k) if argindex == 1 else (k, h)
        return phi(h) * Phi((k - r * h) / s)

    def _eval_evalf(self, prec: int) -> Any:
        """Phi(h) Phi(k) + int_0^asin(r) exp(-(h^2 + k^2 - 2 h k sin t) / (2 cos(t)^2)) dt / (2 pi)."""
        import mpmath  # type: ignore[import-untyped]

        if self.free_symbols:
            return None
        with mpmath.workprec(prec + 20):
            h, k, r = (arg.evalf(prec // 3 + 5)._to_mpmath(prec + 20) for arg in self.args)

            def density(t: Any) -> Any:
                return mpmath.exp(-(h * h + k * k - 2 * h * k * mpmath.sin(t)) / (2 * mpmath.cos(t) ** 2))

            end = mpmath.asin(r)
            value = mpmath.ncdf(h) * mpmath.ncdf(k) + mpmath.quad(density, [0, end / 2, end]) / (2 * mpmath.pi)
            return sp.Float._new(value._mpf_, prec)

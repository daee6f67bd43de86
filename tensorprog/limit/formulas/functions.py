"""The normal distribution as named functions: density phi, distribution function Phi, bivariate Phi2."""

from __future__ import annotations

from typing import Any, ClassVar

import sympy as sp

__all__ = ["Phi", "Phi2", "phi"]


def _negative(x: Any) -> bool:
    return bool(x.could_extract_minus_sign())


def _density(x: Any) -> Any:
    return sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


class _Named(sp.Function):  # type: ignore[misc]
    """A function with a name in LaTeX."""

    tex: ClassVar[str]

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"{self.tex}{power}\left({', '.join(map(printer._print, self.args))}\right)"


class phi(_Named):
    """Density of N(0, 1) at x."""

    nargs = 1
    tex = r"\varphi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Zero at infinity, and even."""
        if x.is_infinite:
            return sp.S.Zero
        if x.is_zero:
            return 1 / sp.sqrt(2 * sp.pi)
        if x.is_Float:
            return _density(x).evalf()
        return cls(-x) if _negative(x) else None

    def fdiff(self, argindex: int = 1) -> Any:
        """phi' = -x phi."""
        return -self.args[0] * self

    def _eval_rewrite_as_exp(self, x: Any, **_: Any) -> Any:
        return _density(x)

    def _eval_evalf(self, prec: int) -> Any:
        return _density(self.args[0])._eval_evalf(prec)


class Phi(_Named):
    """Distribution function of N(0, 1) at x."""

    nargs = 1
    tex = r"\Phi"

    @classmethod
    def eval(cls, x: Any) -> Any:
        """Phi(-x) is 1 - Phi(x)."""
        if x is sp.oo:
            return sp.S.One
        if x is -sp.oo:
            return sp.S.Zero
        if x.is_zero:
            return sp.S.Half
        if x.is_Float:
            return sp.erfc(-x / sp.sqrt(2)).evalf() / 2
        return 1 - cls(-x) if _negative(x) else None

    def fdiff(self, argindex: int = 1) -> Any:
        """Phi' = phi."""
        return phi(self.args[0])

    def _eval_rewrite_as_erf(self, x: Any, **_: Any) -> Any:
        return (1 + sp.erf(x / sp.sqrt(2))) / 2

    def _eval_evalf(self, prec: int) -> Any:
        return (sp.erfc(-self.args[0] / sp.sqrt(2)) / 2)._eval_evalf(prec)


class Phi2(_Named):
    """P(xi <= h, eta <= k) for standard normal xi, eta of correlation r."""

    nargs = 3
    tex = r"\Phi_2"

    @classmethod
    def eval(cls, h: Any, k: Any, r: Any) -> Any:
        """Signs of h and k are moved out, and the exact cases answered.

        Source    P(xi <= -h, eta <= k) = Phi(k) - P(xi <= h, -eta' <= k) with the correlation changed in sign
        """
        if h is -sp.oo or k is -sp.oo:
            return sp.S.Zero
        if h is sp.oo or k is sp.oo:
            return Phi(k if h is sp.oo else h)
        if r.is_zero:
            return Phi(h) * Phi(k)
        if r is sp.S.One:
            return Phi(sp.Min(h, k))
        if r is sp.S.NegativeOne:
            return sp.Max(0, Phi(h) + Phi(k) - 1)
        if h.is_zero and k.is_zero:
            return sp.Rational(1, 4) + sp.asin(r) / (2 * sp.pi)
        if _negative(h):
            return Phi(k) - cls(-h, k, -r)
        if _negative(k):
            return Phi(h) - cls(h, -k, -r)
        if sp.default_sort_key(k) < sp.default_sort_key(h):
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

        numbers = [arg.evalf(prec // 3 + 5) for arg in self.args]
        if not all(number.is_Number for number in numbers):
            return None
        with mpmath.workprec(prec + 20):
            h, k, r = (number._to_mpmath(prec + 20) for number in numbers)

            def density(t: Any) -> Any:
                return mpmath.exp(-(h * h + k * k - 2 * h * k * mpmath.sin(t)) / (2 * mpmath.cos(t) ** 2))

            end = mpmath.asin(r)
            value = mpmath.ncdf(h) * mpmath.ncdf(k) + mpmath.quad(density, [0, end / 2, end]) / (2 * mpmath.pi)
            return sp.Float._new(value._mpf_, prec)

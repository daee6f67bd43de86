"""The numbers of a cell: every numeric field of a comparison's row, with what it is and in which units."""

from __future__ import annotations

from dataclasses import fields

from tensorprog.results.comparison import Row

__all__ = ["LIMITS", "NUMBERS", "described"]

NUMBERS = tuple(field.name for field in fields(Row) if field.type in ("int", "float"))
LIMITS = tuple(name for name in NUMBERS if name.startswith("limit_"))  # the same at all widths and repeats

NAMES = {
    "n": "networks drawn",
    "effective": "independent draws",
    "mean": "mean",
    "variance": "variance",
    "kurtosis": "kurtosis (Gaussian = 3)",
    "ks": "Kolmogorov-Smirnov distance to the limit",
    "w1": "Wasserstein-1 distance to the limit",
    "energy": "energy distance to the limit",
    "kl": "KL(finite || limit) by kernel estimates",
    "kl_precise": "KL(finite || limit) of averaged conditional Gaussians",
}
SUFFIXES = {"_se": "standard error of ", "_error": "error of ", "_p": "p-value of ", "_floor": "noise floor of "}
PREFIXES = {"limit_": "limit's ", "z_": "z-score against the limit of "}


def described(name: str) -> dict[str, str]:
    """`long_name` and `units` of a field."""
    inner, words = name, ""
    for prefix, said in PREFIXES.items():
        if inner.startswith(prefix):
            inner, words = inner.removeprefix(prefix), said
    for suffix, said in SUFFIXES.items():
        if inner.endswith(suffix):
            inner, words = inner.removesuffix(suffix), said + words
    units = "nat" if inner.startswith("kl") and not name.endswith("_p") else "1"
    return {"long_name": words + NAMES.get(inner, inner.replace("_", " ")), "units": units}

"""Names that readers see: indices of families instead of positions, and every name as LaTeX."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp

from tensorprog.language.ir import Netsor
from tensorprog.limit.formulas.indexed import index_symbol

__all__ = ["index_names", "pair_names", "readable", "tex_name"]

GREEK = (
    " alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega "
)


def index_names(netsor: Netsor, family: str) -> list[str]:
    """The indices of a family as the program writes them."""
    positions = netsor.families[family].statements
    if positions:
        slots = netsor.body[positions[0]].target.slots
        return [slot.bare or f"k{number}" for number, slot in enumerate(slots)]
    declared = next((entry.indices for entry in netsor.initial if entry.name == family), ())
    return list(declared)


def pair_names(netsor: Netsor, families: Iterable[str]) -> dict[str, str]:
    """Position names '0', '0_', ... of one or two families by the names of their indices."""
    found: dict[str, str] = {}
    for copy, family in enumerate(families):
        for k, name in enumerate(index_names(netsor, family)):
            found[f"{k}{'_' * copy}"] = f"{name}{'_' * copy}"
    return found


def readable(formula: Any, positions: Mapping[str, str]) -> Any:
    """A formula with its indices named: positions as given, bound ones by their own names, all different."""
    taken = set(positions.values())
    names = {index_symbol(old): new for old, new in positions.items()}
    symbols = {s for s in formula.atoms(sp.Symbol) if s.is_integer and s not in names}
    for symbol in sorted(symbols, key=str):
        text = str(symbol)
        star = "*" * text.endswith("*")
        base = text.rstrip("*_'").split("~")[0]
        base = base if not base.isdigit() else "k"
        tail = "_" * text.endswith("_")
        new, number = f"{base}{tail}", 2
        while new in taken and not star:
            new, number = f"{base}{number}{tail}", number + 1
        if not star:
            taken.add(new)
        names[symbol] = new + star
    return formula.xreplace({old: index_symbol(new) for old, new in names.items()})


def tex_name(name: str) -> str:
    """A name of a program in mathematics: Greek letters, subscripts after underscores, primes for second copies."""
    primes = "'" * (len(name) - len(name.rstrip("_")))
    head, *subs = [piece for piece in name.rstrip("_").split("_") if piece] or ["\\_"]
    match = re.fullmatch(r"(.*?)(\d+)", head)
    if match and match[1]:
        head, subs = match[1], [match[2], *subs]
    sub = f"_{{{','.join(map(_piece, subs))}}}" if subs else ""
    return f"{_piece(head)}{sub}{primes}"


def _piece(text: str) -> str:
    plain = "".join(map(_ascii, text))
    if f" {plain} " in GREEK:
        return {"epsilon": r"\varepsilon", "phi": r"\varphi"}.get(plain, f"\\{plain}")
    if re.fullmatch(r"[A-Za-z]?\d*|\\_", plain):
        return plain
    return rf"\mathit{{{plain}}}"


def _ascii(letter: str) -> str:
    if letter.isascii():
        return letter if letter.isalnum() else ""
    kind, _, greek = unicodedata.name(letter, "").partition(" LETTER ")
    known = greek.capitalize() if "CAPITAL" in kind else greek.lower()
    if kind.startswith("GREEK") and f" {known} " in GREEK:
        return known
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"

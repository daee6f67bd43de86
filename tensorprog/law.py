"""`Law`, the limit as users hold it: its numbers, with formulas, checks, files and what notebooks show."""

from __future__ import annotations

import json
import math
import os
import zipfile
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorprog.blocks import Block
from tensorprog.blocks.html import Shown
from tensorprog.language.atoms.declared import check_sketch, declared_function
from tensorprog.language.errors import NotCompiledError, OutsideError, ProgramError, fail, need_package
from tensorprog.language.files import whole, writing
from tensorprog.language.formats import label, members, name_of
from tensorprog.limit.law.heads import InfiniteHeads
from tensorprog.limit.law.law import NumericLaw
from tensorprog.limit.law.summary import blocks_of

if TYPE_CHECKING:
    from tensorprog.results.selfcheck import LawCheck

__all__ = ["Law"]

ENTRY = "law.json"
MAX_TABLES = 400_000_000  # bytes of all arrays, which are held twice
NUMBER = (float, int, NoneType)
KINDS: dict[str, Any] = {"program": str, "accuracy": NUMBER, "seed": int, "functions": dict}


class Law(NumericLaw, Shown):
    """The infinite-width limit of a program: Definition 1, with a sampler for (Z, p-ring).

    Vectors stand for a typical coordinate Z, scores for p-ring.  Given p-ring, outputs that are linear in the vectors
    are Gaussian; their density and moments are averages of the conditional Gaussian over p-ring.

    Accuracy  every number has an error: a bound on rounding by closed forms, differences between rules by
              quadrature, Student's t at 99.9 % times the standard error where quasi-Monte Carlo averages over p-ring
    Source    Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846), Definition 1, Theorem 1, Corollary 2
    """

    def blocks(self) -> list[Block]:
        """What converges to what, and the numbers that are known or come at once."""
        return blocks_of(self)

    def to_dataframe(self, every: bool = False) -> Any:
        """Mean, variance and kurtosis with errors as a pandas.DataFrame: a row for each member of outputs, scores.

        With `every`, of every vector and scalar in the order of the statements: variances layer by layer of any model.

        Raises    NotCompiledError where one of them has no limit, TensorprogError where pandas is not installed
        """
        from tensorprog.results.reference import Reference

        pandas, reference, parts = need_package("pandas", "tables of limits", "sweep"), Reference(self), []
        made = dict.fromkeys(s.target.name for s in self.netsor.body if s.target.name in self.compiled.families)
        for name in made if every else (*self.outputs, *self.scores):
            pairs = reference.moments(name).items()
            numbers = {key: x for what, pair in pairs for key, x in zip((what, f"{what}_error"), pair, strict=True)}
            parts.append(pandas.DataFrame(numbers, [label(name, index) for index in members(self.netsor, name)]))
        return pandas.concat(parts).rename_axis("variable")

    def latex(self) -> str:
        """The derivation of the limit, line by line, in formulas: what `SymbolicLaw.latex` gives."""
        from tensorprog.limit.formulas import SymbolicLaw

        return SymbolicLaw(self.netsor, assumed=self.assumed).latex()

    def infinite_heads(self, index: str) -> InfiniteHeads:
        """The Gaussian law of the outputs when the range of an index, such as that of heads, goes to infinity.

        Raises    ProgramError unless outputs are sums over the index of independent heads with one law and mean zero,
                  divided by the square root of their number
        Source    Hron et al. 2020 (arXiv 2006.10540)
        """
        if self.recursion.layered:
            raise NotCompiledError(
                "infinite_heads is for one layer of scores and infinite widths; here vectors have random moments, from "
                "scores or finite widths that they depend on"
            )
        return InfiniteHeads(self, index)

    def check(self, samples: int = 2**16, seed: int = 0) -> LawCheck:
        """Compare the law's numbers with its own draws by z-scores.

        Of up to six members of each output and score: mean, variance, kurtosis, covariances, and the distribution
        function by the test of Kolmogorov and Smirnov.

        Shapes    a `LawCheck`: `agrees`, `contradicted`, `rows`, `to_json()`; printed, a table
        Accuracy  `threshold` is exceeded by any comparison of a right law with a probability of one in a million.
                  Draws see an event of probability q if samples * q is above about ten, and a wrong variance if it is
                  wrong by more than some 6 * sqrt(2 / samples) of itself
        """
        from tensorprog.results.selfcheck import check_law

        return check_law(self, samples, seed)

    # -- finite widths ----------------------------------------------------------------------------------------------

    def correction(self, quantity: str, name: str, *, draws: int = 2**15, seed: int = 0) -> tuple[float, float]:
        """The first order in 1/n and its error, (a, error): quantity = limit + a/n + O(1/n**2).

        `quantity` is "mean", "variance" or "kurtosis" of one member such as "y[0]".  An asymptotic expansion, not a
        bound: it says nothing of small n.  Other widths are their multiples of n.

        Accuracy  Student's t at 99.9 % times the standard error over `draws` draws
        Raises    NotCompiledError where the first order is not known: coordinate vectors, functions that jump, scores
                  whose operands are not products with weights of their own, and what has no second moments given scores
        Source    the theory page, "The first order in 1/n"
        """
        from tensorprog.results.expansion import correction

        self._one(name)
        with self.budget.within():
            return correction(self.netsor, quantity, name_of(name), draws, seed)[1]

    def width_for(
        self,
        quantity: str,
        name: str,
        *,
        within: float = 0.01,
        relative: bool = True,
        draws: int = 2**15,
        seed: int = 0,
    ) -> int:
        """The n from which the first order in 1/n of a quantity is at most `within`, of its limit if `relative`.

        That is (abs(a) + error) / within for (a, error) of `correction`, rounded up; an asymptotic expansion, not a
        bound.

        Raises    ProgramError for what is relative to a limit of 0; otherwise as for `correction`
        """
        from tensorprog.results.expansion import correction

        self._one(name)
        if isinstance(within, bool) or not isinstance(within, int | float) or not 0 < within < math.inf:
            raise fail(f"within is a positive number, not {within!r}")
        with self.budget.within():
            limit, (value, error) = correction(self.netsor, quantity, name_of(name), draws, seed)
        if relative and not abs(limit) > 0:
            raise fail(f"the limit of the {quantity} of {name} is 0", fix="relative=False")
        return max(1, math.ceil((abs(value) + error) / (within * (abs(limit) if relative else 1.0))))

    # -- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its tables, and the settings from which `Law.load` compiles the law again, exactly.

        The file is an .npz.  Functions declared in Python are not written, only a few of their values.
        """
        from tensorprog.language.writing import pack
        from tensorprog.version import __version__

        text, tables = pack(self.netsor)
        settings = {
            "program": text,
            "accuracy": self.accuracy,
            "seed": self._seed,
            "version": __version__,
            "functions": {name: declared_function(name).sketch for name in self.netsor.own},
        }
        with writing(path, "name a file in a folder that exists"), whole(path) as partial, partial.open("wb") as file:
            arrays: dict[str, Any] = {ENTRY: np.array(json.dumps(settings)), **tables}
            np.savez_compressed(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Law:
        """Read a law written by `save`; nothing in the file is executed, and the program is checked again.

        Raises    ProgramError if the file is not one, or too large, or calls a function that is not declared, or is
                  declared otherwise; OutsideError with the findings when no limit is claimed
        """
        from tensorprog.language.writing import read_tables, unpack
        from tensorprog.results.limit_answers import check_with_limit

        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
                if size > MAX_TABLES:
                    raise ValueError(f"it holds {size:,} bytes, and {MAX_TABLES:,} are allowed")
                found = _settings(archive)
                tables = read_tables(archive)
        except Exception as error:  # of an archive that is damaged, or none
            raise ProgramError(f"{path} is not a law written by Law.save ({error})") from None
        netsor = unpack(found["program"], tables)
        for name in netsor.own:
            check_sketch(name, found["functions"].get(name))
        report = check_with_limit(netsor)
        if report.grade == "outside":
            raise OutsideError(f"no limit is claimed for {netsor.name}:\n{report}")
        settings = {"accuracy": found["accuracy"], "seed": found["seed"], "assumed": report.assumed}
        return cls(netsor, grade=report.grade, **settings)


def _settings(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The settings, each of its kind."""
    with archive.open(f"{ENTRY}.npy") as stream:
        found: Any = json.loads(str(np.lib.format.read_array(stream, allow_pickle=False)))
    if not isinstance(found, dict) or not all(isinstance(found.get(key), kind) for key, kind in KINDS.items()):
        raise ValueError("entries of the wrong kind")
    return found

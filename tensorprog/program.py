"""`Program`, the user's handle: declare, check, run at finite width, compile the limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tensorprog.blocks import Block, Code, Picture, code, paragraph, strong
from tensorprog.blocks.html import Shown
from tensorprog.language.averages import with_averages
from tensorprog.language.builder import Builder
from tensorprog.language.errors import OutsideError, ProgramError, check_count, fail
from tensorprog.language.expr import Expr
from tensorprog.language.files import whole, write_text, writing
from tensorprog.language.memory import parse_memory
from tensorprog.shipped import resolve

if TYPE_CHECKING:
    from tensorprog.check.clauses import Report
    from tensorprog.finite.plan import Plan
    from tensorprog.language.ir import Netsor
    from tensorprog.language.samples import Samples
    from tensorprog.law import Law
    from tensorprog.limit.formulas import SymbolicLaw
    from tensorprog.results.imported import Imported

__all__ = ["Program", "load", "netsor_of"]


class Program(Builder, Shown):
    """A Netsor program with Dots: declared call by call (see `Builder`), or read by `load`.

    Two programs are equal when their declarations are, however they were written; title, reference and run defaults do
    not count.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.netsor == other.netsor

    __hash__ = None  # type: ignore[assignment]  # declarations may follow
    imported: Imported | None = None
    """What became of the parameters of a torch module, of a program that `from_torch` made."""

    @property
    def name(self) -> str:
        """The program's name."""
        return self.netsor.name

    def __repr__(self) -> str:
        return f"Program({self._draft.name!r}, {len(self._draft.body)} statements)"

    def __str__(self) -> str:
        from tensorprog.language.writing import shown

        return shown(self.netsor)

    def blocks(self) -> list[Block]:
        """Title, text and graph of the program."""
        from tensorprog.check.graph import build
        from tensorprog.show.graphs import to_svg

        netsor = self.netsor
        about = (code(netsor.name), *((", ", netsor.reference) if netsor.reference else ()))
        return [
            paragraph(strong(netsor.title or netsor.name)),
            paragraph(*about),
            Code(str(self).rstrip(), "program"),
            Picture(to_svg(build(netsor)), f"graph of {netsor.name}"),
        ]

    def to_yaml(self) -> str:
        """The program as a file; `load` reads it back to an equal program."""
        from tensorprog.language.writing import dump

        return dump(self.netsor)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the program into a folder, and beside it the numbers that it only names; returns the path of its file.

        Arrays of more than a hundred numbers get files of their own; `load` reads an equal program.

        Raises    ProgramError where files cannot be written
        """
        from tensorprog.language.writing import FOLDER, pack

        text, tables = pack(self.netsor)
        from tensorprog.results.study import default_out

        path = Path(folder) / f"{default_out(self.netsor).name}.yaml"
        for name, array in tables.items():
            file = path.parent / name.removeprefix(FOLDER)
            with writing(file, "name another folder"):
                file.parent.mkdir(parents=True, exist_ok=True)
                with whole(file) as partial, partial.open("wb") as stream:
                    np.save(stream, array, allow_pickle=False)
        with writing(path, "name another folder"):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        return path

    def check(self) -> Report:
        """Judge the program by Assumption 1: grade and findings.

        Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
        """
        from tensorprog.results.limit_answers import check_with_limit

        if "check" not in self.netsor.remembered:
            self.netsor.remembered["check"] = check_with_limit(self.netsor)
        report: Report = self.netsor.remembered["check"]
        return report

    def rewritten(self) -> Program:
        """The program in the theorem's form, after the exact rewrites that `check` judges by.

        MatMuls moved inside combinations, scores of sums expanded, biases in scores as MatMuls of ones, Nonlins written
        out, unused statements dropped: h = phi(g^1, ..., g^m; p_1, ..., p_r).

        Source    Sakai et al. 2025, Theorem 1 and App. A.1
        """
        from tensorprog.check.rewrites import written_out

        return Program.from_netsor(written_out(self.netsor).netsor)

    def graph(self) -> Any:
        """The program as a networkx.DiGraph: one node per statement, initial vector and weight, whatever the sizes."""
        from tensorprog.check.graph import build

        return build(self.netsor)

    def run(  # type: ignore[override]
        self,
        width: int,
        samples: int = 10_000,
        *,
        seed: int = 0,
        method: str = "auto",
        coordinates: int = 1,
        keep: Sequence[str] = (),
        averages: Mapping[str, str | Expr] | None = None,
        threads: int | None = None,
        max_memory: str | int = "1GiB",
        dtype: str = "float64",
        executor: Executor | None = None,
        store: str | os.PathLike[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        conditional: bool = False,
    ) -> Samples:
        """Draw independent networks at finite width; any valid program runs, inside the theory or not.

        `averages` names functions of vectors and scores, {"m": "tanh(y[0])**2"}: the samples' `averages["m"]` has
        (1/n) sum_a psi(y_a; p) of each network, which needs all coordinates, so that a run with averages draws other
        numbers than one without.  Arguments left out have the defaults given here, not those of the program's `run:`.
        With `store`, a folder, results go to disk as they are drawn and come back mapped to memory: a run that was
        stopped goes on where it was, and a longer one goes on from a shorter one.
        With `conditional` the samples' `conditional["y"]` has mean and variance of y given everything but the weights
        used last, for each output that is linear in products by such weights: given these it is exactly Gaussian.
        Clips that no network reaches are left out, see `plan`, unless `method` is "lazy" or "dense".

        Shapes    a mapping from outputs, scores and the names in `keep` to arrays (samples, *members), for vectors
                  (samples, coordinates, *members) if coordinates > 1
        Scale     "dense" draws every weight matrix, "lazy" O(width) numbers per vector, "collapsed" (chosen by "auto"
                  where it pays) far fewer for vectors that only inner products read, see `plan`; all from one law
        Raises    ProgramError for bad arguments or a store of another run, MemoryLimitError when `max_memory` does not
                  suffice, WorkerError when an executor loses its workers, NotCompiledError for `conditional` where no
                  output is Gaussian given all but the weights used last
        """
        from tensorprog.finite.plan import kept_families, make_job
        from tensorprog.finite.run import Resources, draw
        from tensorprog.results.conditional import with_conditional

        keep = kept_families(self.netsor, keep)  # not names that averages and conditional laws add
        added = with_averages(self.netsor, averages or {})
        beside = with_conditional(added.netsor) if conditional else None
        netsor = added.netsor if beside is None else beside.netsor
        job = make_job(netsor, width, seed, method, coordinates, keep, dtype)
        drawn = draw(job, samples, Resources(threads, max_memory, executor, store), progress)
        return added.separate(drawn if beside is None else beside.separate(drawn))

    def plan(
        self,
        width: int,
        *,
        method: str = "auto",
        coordinates: int = 1,
        keep: Sequence[str] = (),
        averages: Mapping[str, str | Expr] | None = None,
    ) -> Plan:
        """What `run` would do at this width: how each vector is represented, and the numbers drawn per network.

        A clip that is left out stands below, with a bound on the probability that it acts.

        Raises    ProgramError for bad arguments
        """
        from tensorprog.finite.plan import make_job

        netsor = with_averages(self.netsor, averages).netsor if averages else self.netsor
        return make_job(netsor, width, 0, method, coordinates, keep).plan

    @overload
    def limit(
        self,
        *,
        symbolic: Literal[False] = False,
        accuracy: float | None = None,
        max_memory: str | int = "1GiB",
        seed: int = 0,
    ) -> Law: ...

    @overload
    def limit(
        self,
        *,
        symbolic: Literal[True] | str | Sequence[str],
        accuracy: float | None = None,
        max_memory: str | int = "1GiB",
        seed: int = 0,
    ) -> SymbolicLaw: ...

    def limit(
        self,
        *,
        symbolic: bool | str | Sequence[str] = False,
        accuracy: float | None = None,
        max_memory: str | int = "1GiB",
        seed: int = 0,
    ) -> Law | SymbolicLaw:
        """Compile the infinite-width limit by Definition 1.

        `symbolic=True` gives formulas in all constants that are neither sizes nor exponents, `symbolic=["C"]` in
        those named; the other arguments are about numbers.

        Accuracy  averages over p-ring aim at an error of 1e-6, relative where numbers exceed 1 (1e-4 for variables that
                  are not Gaussian given the scores), and state the error they reached; with `accuracy` every number
                  has that error, relative where numbers exceed 1, or raises AccuracyError
        Raises    OutsideError with the findings when no limit is claimed, ProgramError for a constant that cannot be
                  a symbol
        """
        if accuracy is not None and (not isinstance(accuracy, int | float) or not 1e-7 <= accuracy <= 0.1):
            raise ProgramError(f"accuracy must lie between 1e-7 and 0.1, not {accuracy!r}")
        check_count("seed", seed, 0)
        report = self.check()
        if report.grade == "outside":
            raise OutsideError(f"no limit is claimed for {self.name}:\n{report}")
        grade, assumed = report.grade, report.assumed
        if symbolic is not False and symbolic is not None:
            from tensorprog.limit.formulas import SymbolicLaw

            return SymbolicLaw(self.netsor, symbolic, grade=grade, assumed=assumed)
        from tensorprog.law import Law

        memory = parse_memory(max_memory)
        return Law(self.netsor, grade=grade, accuracy=accuracy, max_memory=memory, seed=seed, assumed=assumed)

    def explain(self, name: str) -> str:
        """Statement, clause of Definition 1 and numbers behind one quantity such as 'p[0,1,2]'."""
        from tensorprog.limit.law.summary import explain

        return explain(self.limit(), name)


def load(source: str | os.PathLike[str], **overrides: float) -> Program:
    """Read a program file, or a shipped program by its bare name; keywords override constants.

    Raises    ProgramError with every mistake found: file, line, column, statement and what to write instead
    """
    from tensorprog.language.reading import load as read

    if not isinstance(source, str | os.PathLike):
        raise fail(
            f"load takes the path of a program file or the name of a shipped program, not {source!r}",
            fix='tp.load("attention")',
        )
    path = resolve(source) if isinstance(source, str) else source
    return Program.from_netsor(read(path, overrides))


def netsor_of(program: Any, what: str) -> Netsor:
    """The program that was given, or that of a file."""
    if isinstance(program, Builder):
        return program.netsor
    if isinstance(program, str | os.PathLike):
        return load(program).netsor
    kind = program if isinstance(program, type) else type(program)
    fix = f"tp.from_torch({kind.__name__}, inputs)" if hasattr(kind, "named_parameters") else 'tp.load("attention")'
    raise fail(f"{what} takes a program or the path of one, not {kind.__name__}", fix=fix)

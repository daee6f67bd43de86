"""Programs from torch modules: captured, translated, folded, written, and compared with the module itself.

    initialisers    laws of entries, recorded while a module's own initialisers run
    decompositions  operations that are written out as plainer ones
    capture         the module as operations at two widths
    refusals        what cannot be imported: where, why, and what to do
    values          tensors as axes and expressions; cosines and sines of rotary positions
    sketch          the program while it is drawn up; parameters as weights, initial vectors or numbers
    operations      the table of rules
    layers, elementwise, views, convolutions, recurrent   its rules
    families        parts that are read one by one get a name each; layers that are alike become an index
    text            names and letters
    importer        the module, operation by operation, and all of this in order
    agreement       program and module at small widths, before the program is given; the module beside the program

What is here is called without torch too, and says that it is needed; the files import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tensorprog.language.errors import fail, how_to_install

if TYPE_CHECKING:
    from tensorprog.importing.agreement import ModuleComparison
    from tensorprog.program import Program

__all__ = ["compare_torch", "from_torch", "needed"]


def from_torch(
    make: Callable[[int], Any],
    inputs: Any,
    widths: Sequence[int] = (64, 128),
    at: int | None = None,
    name: str = "",
    check: bool = True,
) -> Program:
    """The program of a torch module as it is at initialisation; its `imported` says what each parameter became.

    `make(n)` gives the `torch.nn.Module` of width n; `inputs` is a tensor, an array, a tuple of these, or a function
    of n that gives them.  The module is traced at two widths: axes whose sizes differ are widths, all others become
    indices.  Laws of parameters are those that the module's own initialisers draw from.  With `at`, a width, variances
    are taken as they are there; without, what vanishes with n is left out, and what diverges is refused.
    The program is compared with the module before it is given: both are drawn at two small widths, in a second or two,
    and one that does not agree is refused; with `check=False` it is given as it is.

    Accuracy  hidden weights that are not Gaussian are taken as Gaussian of the same variance, which the limit does not
              see; laws of vectors that are not exactly kept are named in the notes of `imported`
    Raises    ProgramError with the path of the module, the operation, its source line, and what to write instead; or
              with the number that differs where program and module do not agree
    """
    needed()
    from tensorprog.importing.importer import imported_program

    return imported_program(make, inputs, widths, at, name, check)


def compare_torch(
    program: Program,
    make: Callable[[int], Any],
    inputs: Any,
    width: int = 256,
    samples: int = 2000,
    *,
    seed: int = 0,
    limit: bool = True,
    max_memory: str | int = "1GiB",
) -> ModuleComparison:
    """The module of a width, made so many times by `make`, beside as many networks of the program of that width.

    The columns `limit_..` and `z_..` of its rows are about the program; its `limit` is the same module beside the limit
    of the program, None where that is not known or with `limit=False`.  A program that was imported with `at` is meant
    for that width; one without lacks what vanishes with n, and differs from the module by as much.

    Raises    ProgramError for a program that was not made by `from_torch`; MemoryLimitError where networks of the
              program take more than `max_memory`
    """
    needed()
    from tensorprog.importing.agreement import compared

    return compared(program, make, inputs, width, samples, seed, limit, max_memory)


def needed() -> None:
    """Nothing where torch is installed.

    Raises    ProgramError with the command that installs it
    """
    if find_spec("torch") is None:
        raise fail("torch is not installed, and modules are imported by it", fix=how_to_install("torch"))

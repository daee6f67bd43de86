"""Programs from torch modules: captured, translated, folded, written, and compared with the module itself.

    laws            the law of the entries of a parameter
    initialisers    laws recorded while a module's own initialisers run
    capture         the module as operations at two widths
    refusals        what cannot be imported: where, why, and what to do
    values          tensors as axes and expressions
    sketch          the program while it is drawn up
    parameters      parameters as weights, initial vectors or numbers
    products        linear layers, inner products, einsum
    masks           fixed masks as conditions on indices
    operations      the table of rules
    views, elementwise, layers, convolutions, recurrent   its rules
    translation     the module, operation by operation
    folding         layers that are alike become an index
    text            names, letters and comments: the file
    importer        `from_torch`
    beside          `compare_torch`

Nothing here is imported before it is asked for: torch is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tensorprog.language.errors import fail

if TYPE_CHECKING:
    from tensorprog.importing.beside import compare_torch
    from tensorprog.importing.importer import from_torch

__all__ = ["compare_torch", "from_torch"]


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError:
        raise fail("torch is not installed, and modules are imported by it",
                   fix='pip install "tensorprog[torch]"') from None
    from tensorprog.importing import beside, importer

    found: Callable[..., Any] = importer.from_torch if name == "from_torch" else beside.compare_torch
    return found

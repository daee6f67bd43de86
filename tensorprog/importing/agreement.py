"""Whether an imported program has the law of its module: both drawn at small widths, and compared before it is given.

The module is redrawn by its own initialisers.  Entries that the import takes as Gaussian, as its notes say, are then
replaced by Gaussian ones, and the program is written with variances as they are at that width: what is left is equal
in law if the import is right, whatever the width.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import stdtr

from tensorprog.blocks import Block, paragraph
from tensorprog.importing.capture import Captured, inputs_at
from tensorprog.language.errors import (
    AccuracyError,
    MemoryLimitError,
    NotCompiledError,
    OutsideError,
    ProgramError,
    check_count,
    fail,
)
from tensorprog.language.samples import Samples
from tensorprog.program import Program
from tensorprog.results.comparison import Comparison, compare

__all__ = ["AtWidth", "Layout", "ModuleComparison", "compared", "compared_at", "outputs_of", "small_widths"]

Layout = Sequence[tuple[int, int, int]]  # of an output: see `Imported`
SEED = 20_180_211
SMALLEST, WIDTHS = 8, 2  # the least width that is tried, and how many are compared
SIZES, SECONDS = (64, 128, 256, 512, 1024), 0.8  # networks of the module at each width, and how long all may take
SOME, PROGRAMS = 256, 4  # networks of the program at each width: first, and at least for each of the module
MEMBERS, PARTS = 6, 20  # members of the output, with their neighbours; of networks, whose spread gives errors
ALARM = 1e-6  # probability that a right import is refused
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@dataclass(frozen=True)
class AtWidth:
    """A program that has the law of its module at one width: what the module's output is of it, whether its coordinates
    are copies of one number, and the parameters whose entries it takes as Gaussian."""

    program: Program
    layout: Layout
    copies: bool
    as_gaussian: frozenset[str]
    captured: Captured


def small_widths(widths: tuple[int, int]) -> Iterator[int]:
    """Widths to compare at: the first by powers of two, the smallest first, then the second."""
    halves = [widths[0] >> k for k in range(widths[0].bit_length()) if not widths[0] % 2**k]
    return iter([*(width for width in reversed(halves) if width >= SMALLEST or width == widths[0]), widths[1]])


def outputs_of(
    make: Callable[[int], Any],
    inputs: Any,
    width: int,
    layout: Layout,
    seed: int,
    change: Callable[[Any], None] = lambda module: None,
) -> Generator[tuple[Any, Any]]:
    """The output of modules of a width, made one after the other: members by coordinates, and its type.

    Raises    ProgramError if `make` gives the same numbers each time
    """
    tensors = inputs_at(inputs, width)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        before: list[Any] = []
        for k in range(2**62):
            module = make(width).eval()
            if k < 2:
                drawn = [parameter.detach().clone() for parameter in module.parameters()]
                if before and all(torch.equal(one, other) for one, other in zip(before, drawn, strict=True)):
                    raise fail(f"make({width}) gives the same numbers each time", fix="set no seed inside of make")
                before = drawn
            change(module)
            result = module(*(tensor.clone() for tensor in tensors))
            first = next(leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
            yield _members(first.double().numpy(), layout), first.dtype


def _members(array: Any, layout: Layout) -> Any:
    """The output of a module as (members, .., coordinates), in the order of the members of the program's output."""
    sizes: list[int] = []
    for axis, size in enumerate(array.shape):
        inside = [entry[2] for entry in layout if entry[0] == axis]
        rest = size / math.prod(entry for entry in inside if entry)
        sizes += [entry or round(rest ** (1 / inside.count(0))) for entry in inside]
    members = sorted((place, k) for k, (_, place, _) in enumerate(layout) if place >= 0)
    wide = [k for k, (_, place, size) in enumerate(layout) if place < 0 and not size]
    alike = [k for k, (_, place, size) in enumerate(layout) if place < 0 and size]
    split = array.reshape(sizes).transpose([*(k for _, k in members), *wide, *alike])
    kept = split[(..., *(0 for _ in alike))]
    return kept.reshape(*(sizes[k] for _, k in members), -1)


def compared_at(
    make: Callable[[int], Any], inputs: Any, widths: tuple[int, int], at: Callable[[int], AtWidth | None]
) -> str:
    """Compare module and program at two small widths: why that could not be done, or nothing.

    Raises    ProgramError where they do not agree
    """
    why, done = "", 0
    for width in small_widths(widths):
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(SEED)
                given = at(width)
            sampled = given and (given, *_both(make, inputs, width, given))
        except Exception as error:  # of the module at a width that it was not made for
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if sampled:
            _judge(width, *sampled)
            done += 1
        if done == WIDTHS:
            return ""
    return "" if done else why or "its parameters do not grow in proportion to the width"


def _both(make: Callable[[int], Any], inputs: Any, width: int, given: AtWidth) -> tuple[Any, Any, float]:
    """Outputs of modules and of networks of the program, (networks, members, coordinates), and rounding errors."""
    netsor = given.program.netsor
    (name,) = netsor.outputs
    own = netsor.families[name]
    wide = own.kind == "vector" and any(place < 0 and not size for _, place, size in given.layout)
    count = min(int(netsor.width_of(own.width, width)), width) if wide and not given.copies else 1

    def run(size: int, seed: int) -> Any:
        samples = given.program.run(width, size, seed=seed, coordinates=count)
        return samples[name].reshape(size, count, -1)

    found: list[Any] = []
    rounding, began = 0.0, time.process_time()
    drawn = [run(SOME, SEED)]  # first, so that what the program refuses costs no module
    pace = (time.process_time() - began) / SOME * PROGRAMS
    with closing(outputs_of(make, inputs, width, given.layout, SEED, _gaussian(given))) as modules:
        for members, kind in modules:
            found.append(members[..., :1] if given.copies else members)
            rounding, done = ROUNDING.get(kind, 0.0), len(found)
            if done not in SIZES:
                continue
            if done == SIZES[-1] or time.process_time() - began + pace * done > SECONDS / 2:
                break
    if PROGRAMS * len(found) > SOME:
        drawn.append(run(PROGRAMS * len(found) - SOME, SEED + 1))
    networks = np.moveaxis(np.concatenate(drawn), 1, 2)
    module = np.array(found).reshape(len(found), networks.shape[1], -1)
    if module.shape[2] == netsor.width_of(own.width, width):
        module = module[..., :width]
    return module, networks, rounding


def _gaussian(given: AtWidth) -> Callable[[Any], None]:
    """What makes the entries Gaussian that the program takes as Gaussian, and keeps copies copies."""
    captured = given.captured
    entries = [entry for entry in captured.parameters.values() if entry.name in given.as_gaussian]
    copied = [
        (captured.parameters[first].name, captured.parameters[node].name) for node, first in captured.copies.items()
    ]

    def change(module: Any) -> None:
        named = dict(module.named_parameters(remove_duplicate=False))
        for entry in entries:
            law = entry.law
            named[entry.name].normal_().mul_(law.deviation).add_(law.mean)
            if law.padding is not None:
                named[entry.name][law.padding] = 0.0
        for first, other in copied:
            if first in given.as_gaussian:
                named[other].copy_(named[first])

    return change


# ---- what is compared -----------------------------------------------------------------------------------------------


def _judge(width: int, given: AtWidth, module: Any, program: Any, rounding: float) -> None:
    """Raise where some statistic of the outputs differs by more than chance."""
    if program.shape[2] not in (1, module.shape[2]):
        raise _disagreement(given, width, "number of coordinates", "", module.shape[2], program.shape[2])
    which = np.unique(np.linspace(0, module.shape[1] - 1, min(module.shape[1], MEMBERS)).astype(int))
    module, program = module[:, which], program[:, which]
    if not (np.isfinite(module).all() and np.isfinite(program).all()):
        return
    scale = np.sqrt(np.median((program**2).mean(axis=2), axis=0))
    scale = np.where(scale > 0, scale, 1.0)[:, None]
    ours = _bounded(program / scale)
    theirs = _bounded(module / scale, ours[0].mean(axis=0))
    chances = [_chances(*pair, rounding) for pair in zip(theirs, ours, strict=True)]
    least, count = min(chance.min() for chance in chances if chance.size), sum(chance.size for chance in chances)
    if least * count * WIDTHS < ALARM:
        k = min((chance[i], i) for chance in chances for i in range(len(chance)) if i < len(which))[1]
        both = (module, program)
        moments = [np.array([[*_moments(part, k).values()] for part in np.array_split(x, PARTS)]) for x in both]
        (one, other), (error, more) = ([f(x, axis=0) for x in moments] for f in (np.mean, np.std))
        most = int(np.argmax(np.abs(one - other) / (np.hypot(error, more) + 1e-300)))
        numbers = [f"{x[most]:.4g} +- {e[most] / PARTS**0.5:.2g}" for x, e in ((one, error), (other, more))]
        shape = given.program.netsor.families[given.program.netsor.outputs[0]].shape
        place = ",".join(str(int(x)) for x in np.unravel_index(int(which[k]), shape)) if shape else ""
        raise _disagreement(given, width, [*_moments(module, k)][most], place, *numbers)


def _moments(values: Any, k: int) -> Mapping[str, float]:
    """What is told of a member, where it differs."""
    x = values - values.mean(axis=(0, 2), keepdims=True)
    square = x[:, k] ** 2
    found = {
        "mean": values[:, k].mean(),
        "variance": square.mean(),
        "kurtosis": (x[:, k] ** 4).mean() / (square.mean() ** 2 or 1e-300),
        "variance of the averages over coordinates of the squares": square.mean(axis=1).var(),
    }
    return found | ({"covariance with the next": (x[:, k] * x[:, k + 1]).mean()} if k + 1 < x.shape[1] else {})


def _bounded(values: Any, centre: Any = None) -> list[Any]:
    """Statistics of each network, bounded so that no few networks decide: of the average of squares and of its square
    deviation from `centre`, of the size, the tails and the mean of coordinates, and of products of neighbours."""
    square = (values**2).mean(axis=2)
    near = (values[:, 1:] * values[:, :-1]).mean(axis=2)
    size = square / (1 + square)
    return [
        size,
        (size - (size.mean(axis=0) if centre is None else centre)) ** 2,
        np.exp(-(values**2) / 2).mean(axis=2),
        np.exp(-2 * values**2).mean(axis=2),
        np.tanh(values).mean(axis=2),
        near / (1 + np.abs(near)),
    ]


def _chances(one: Any, other: Any, rounding: float) -> Any:
    """Probabilities that means of two samples differ as much as they do, for each member and their average, by the
    larger of both variances: what is rare may be in only one of the samples."""
    if one.shape[1] > 1:
        one, other = (np.c_[sample, sample.mean(axis=1)] for sample in (one, other))
    spread = np.maximum(one.var(axis=0, ddof=1), other.var(axis=0, ddof=1))
    error = np.sqrt(spread * (1 / len(one) + 1 / len(other)) + rounding**2)
    return 2 * stdtr(len(other) - 1, -np.abs(one.mean(axis=0) - other.mean(axis=0)) / (error + 1e-300))


def _disagreement(given: AtWidth, width: int, what: str, place: str, theirs: object, ours: object) -> ProgramError:
    name = f"{given.program.netsor.outputs[0]}{f'[{place}]' if place else ''}"
    return fail(
        f"the import does not agree with the module: at width {width} the {what} of {name} is {theirs} in the module, "
        f"and {ours} in the program",
        fix="import parts of the module to find the operation, and write it in its plainest form; check=False gives "
        "the program all the same, which is then not that of the module",
    )


@dataclass(frozen=True, repr=False)
class ModuleComparison(Comparison):
    """A module beside the program that was made of it, at one width; `limit` sets it beside the limit."""

    limit: Comparison | None = None
    refused: str = ""  # why there is no limit to compare with
    left_out: tuple[str, ...] = ()  # parameters that vanish as the width grows, which only the module has

    @property
    def title(self) -> str:
        """What is compared with what."""
        return f"the module of width {self.width} against the program {self.program} at n = {self.width}"

    def blocks(self) -> list[Block]:
        """The table against the program, and the one against the limit."""
        found = [*super().blocks(), *(self.limit.blocks() if self.limit else ())]
        if self.left_out:
            names = ", ".join(self.left_out[:4]) + (", .." if len(self.left_out) > 4 else "")
            found.append(
                paragraph(
                    f"The program has no {names}: they vanish as the width grows, but the module of "
                    f"width {self.width} has them. from_torch(.., at={self.width}) keeps them.",
                    note=True,
                )
            )
        return found


def compared(
    program: Program, make: Callable[[int], Any], inputs: Any, width: int, samples: int, seed: int, limit: bool,
    max_memory: str | int,
) -> ModuleComparison:  # fmt: skip
    """What `compare_torch` gives."""
    if program.imported is None:
        raise fail(f"{program.name} was not imported from a module", fix="P = tp.from_torch(make, inputs)")
    check_count("samples", samples, 2)
    (name,) = program.netsor.outputs
    began = time.perf_counter()
    shape = program.netsor.families[name].shape
    values, where = np.empty((samples, *shape)), np.random.default_rng(seed)
    with closing(outputs_of(make, inputs, width, program.imported.layout, seed)) as modules:
        for k, (members, _) in zip(
            range(samples), modules, strict=False
        ):  # coordinates may have positions of their own
            values[k] = members[..., int(where.random() * members.shape[-1])]
    values /= width ** float(program.imported.power)
    module = Samples(program.netsor, {name: values}, samples, seed, "torch", width, seconds=time.perf_counter() - began)
    networks = program.run(width, samples, seed=seed + 1, max_memory=max_memory)
    found = compare(module, networks)
    beside, refused = None, ""
    if limit:
        try:
            beside = compare(module, program.limit(max_memory=max_memory))
        except (OutsideError, NotCompiledError, AccuracyError, MemoryLimitError) as error:
            refused = str(error)
    return ModuleComparison(
        found.rows,
        found.width,
        found.reference,
        found.program,
        found.averages,
        beside,
        refused,
        tuple(fate.parameter for fate in program.imported.fates if "left out" in fate.became),
    )

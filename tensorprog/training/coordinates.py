"""`tp.train`: sizes of activations, outputs and losses in the first steps of training, of the limit and of networks.

The training program (`steps`) gets averages of each family of vectors at each step, so that both interpreters give them
as they are.  What depends on n, rates and readouts on the scale n**-0.5, is a number at each width: networks of each
width run a program of their own, and the limit is that of n to infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorprog.finite.run import one_blas_thread
from tensorprog.language.averages import unused
from tensorprog.language.errors import (
    NotCompiledError,
    NotFiniteError,
    OutsideError,
    ProgramError,
    check_count,
    did_you_mean,
    fail,
    need_package,
)
from tensorprog.language.expr import (
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    Variable,
    replace_variables,
    slots_of,
    walk,
)
from tensorprog.language.ir import ConstantDef, Dot, Index, Netsor, Nonlin, Range, Statement, Table
from tensorprog.language.parse import Names, constant_value, parse_expression
from tensorprog.language.samples import program_text
from tensorprog.language.schedule import upstream
from tensorprog.program import Program, netsor_of
from tensorprog.training.modules import of_module
from tensorprog.training.readouts import with_readout
from tensorprog.training.report import SIZES, remarks
from tensorprog.training.steps import training_program
from tensorprog.version import libraries

__all__ = ["LOSSES", "rate_at", "train"]

Array = NDArray[Any]
FAR, SAME = 1e100, 1e-9  # a width at which a rate shows its limit, and a factor that is 1
LOSSES = {"square": "(f - y)**2 / 2", "logistic": "softplus(-y * f)"}


@dataclass(frozen=True)
class Course:
    """What is trained, and how."""

    netsor: Netsor
    loss: str  # the scalar that is reported
    descended: str  # the scalar whose gradient is followed, of a batch or the same
    outputs: tuple[str, ...]
    steps: int
    rate: Any
    rates: Mapping[str, Any]
    momentum: float
    decay: float
    tables: Mapping[str, Sequence[Array]]  # constants that differ from step to step
    parameters: tuple[str, ...] = ()  # functions of initial vectors that move in the place of these
    own: Mapping[str, str] = field(default_factory=dict)  # of modules: rates in the units of their parameters

    def at(self, n: float) -> tuple[Netsor, list[str], list[list[str]]]:
        """The program at a width, or in the limit for n = inf, with its sizes: see `_measured`."""
        source = _with_averages_for_scores(self.netsor, self.descended, n)
        rate = rate_at("lr", self.rate, source, n)
        rates = {name: rate_at(f"the rate of {name}", value, source, n) for name, value in self.rates.items()}
        source = replace(source, outputs=tuple(dict.fromkeys((self.loss, *self.outputs))))
        lost = {
            name: rate_at(f"the rate of {name} times decay", f"({value}) * {self.decay!r}", source, n)
            for name, value in self.own.items()
        }
        how = self.momentum, self.decay, self.tables, self.parameters, lost
        T = training_program(source, self.descended, self.steps, rate, rates, *how)
        return _measured(T, source, self.steps)


def train(
    program: Any,
    targets: Any = None,
    steps: int | None = None,
    lr: Any = None,
    widths: int | Iterable[int] = (256, 1024),
    *,
    loss: str | None = None,
    output: str | None = None,
    rates: Mapping[str, Any] | None = None,
    momentum: float | None = None,
    decay: float | None = None,
    batches: Sequence[Sequence[int]] | None = None,
    optimizer: str = "sgd",
    samples: int = 100,
    seed: int = 0,
    max_memory: str | int = "2GiB",
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """A coordinate check with its limit: outputs, losses and sizes of activations in the first steps of training.

    The program has an output `f` over its inputs, averages such as f[i] = Dot(v, z[i], scale=1/n), or a product with a
    weight, as modules of torch have, of which one coordinate is meant.  `targets` are its values, nan for inputs that
    are not learned; `loss` is "square", (f - y)**2 / 2, "logistic", log(1 + exp(-y f)), or an expression in f and y,
    and its mean is followed.  Without targets `loss` names a scalar of the program.  What is left out comes from the
    program's section `train:`; else 4 steps with a rate of 1.

    Rates are those of `gradient_descent`, where 1 is the scale of the maximal update parametrisation for all
    parameters; of a program from `from_torch` they are those of torch's SGD for the parameters of the module, named by
    patterns, and `decay` is its weight_decay.  A rate may depend on n: {"*.weight": "0.1/n**0.5"}.  `batches` are the
    inputs of each step: [[0], [1]].  Networks of the widths given are drawn beside the limit; they have
    readouts on the scale n**-0.5 and rates in n as they are, and where there is no limit they stand alone.

    Shapes    an xarray.Dataset: loss (step), each output (step, *members), and for each family of vectors and the
              outputs size, second_moment and change (step, family): mean absolute value, mean square and mean absolute
              change since step 0 of coordinates, averaged over members.  NAME_error is the error of the limit;
              NAME_finite and NAME_finite_se (width, ...) are means over networks and their standard errors.  The
              attributes `grade`, `no_limit` (why there is none) and `remarks`, what is not flat and why
    Raises    ProgramError for mistakes, and for networks whose numbers overflow
    Source    Yang & Hu 2021 (arXiv 2011.14522); coordinate checks as in Yang et al. 2022 (arXiv 2203.03466)
    """
    xarray = need_package("xarray", "coordinate checks", "sweep")
    if optimizer != "sgd":
        said = f"{optimizer} is no program: what divides entries of matrices by their sizes is no sum of outer products"
        raise fail(
            said, fix='tp.exponents(P, optimizer="adam") has its powers of n; here "sgd", with momentum and decay'
        )
    netsor = netsor_of(program, "train")
    options = {key: value for key, value in netsor.train if targets is None or key != "loss"}
    given = {"steps": steps, "rate": lr, "loss": loss, "rates": rates, "momentum": momentum, "decay": decay}
    options |= {key: value for key, value in given.items() if value is not None}
    check_rates(rates)
    imported = program.imported if isinstance(program, Program) else None
    module = (
        None if imported is None else of_module(netsor, imported, options.get("rate", 1.0), options.get("rates", {}))
    )
    if module is not None:
        netsor, options = module.netsor, options | {"rates": module.rates}
    question = _question(netsor, targets, options, output, batches)
    question = question if module is None else replace(question, parameters=module.parameters, own=module.own)
    each = [widths] if not isinstance(widths, Iterable) else widths
    chosen = list(dict.fromkeys(check_count("width", n) for n in each))
    check_count("samples", samples, 2), check_count("seed", seed, 0)
    attributes: dict[str, Any] = {"samples": samples, "seed": str(seed), "grade": "outside"}
    parts = list[Any]()
    with one_blas_thread():
        try:
            made, families, sizes = question.at(math.inf)
            P = Program.from_netsor(made)
            law = P.limit(max_memory=max_memory, seed=seed)
            numbers = {name: law.mean(name, with_error=True) for name in made.outputs}
            parts.append(_part(question, families, sizes, numbers, ("", "_error")))
            attributes["grade"] = law.grade
        except (OutsideError, NotCompiledError, NotFiniteError, ProgramError) as error:
            if not chosen:
                raise
            attributes["no_limit"] = str(error)
        for number, n in enumerate(chosen, 1):
            if progress is not None:
                progress(number, len(chosen) + 1)
            made, families, sizes = question.at(n)
            net = Program.from_netsor(made).run(n, samples, seed=seed, max_memory=max_memory)
            part = _part(question, families, sizes, net, ("_finite", "_finite_se"))
            parts.append(part.expand_dims(width=[n]))
        if progress is not None:
            progress(len(chosen) + 1, len(chosen) + 1)
    found = xarray.merge(parts, join="outer", compat="no_conflicts")
    found.attrs = {
        "title": f"{netsor.name}: {question.steps} steps of training",
        "program_name": netsor.name,
        "program": program_text(netsor),
        "outputs": json.dumps(question.outputs),
        "rate": str(question.rate),
        "rates": json.dumps({name: str(value) for name, value in question.rates.items()}),
        "versions": json.dumps(libraries()),
        **attributes,
    }
    found.attrs["remarks"] = json.dumps([*remarks(found), *(module.remarks if module else ())])
    return found


def check_rates(rates: Any) -> None:
    """Raise ProgramError for what gives no parameters rates."""
    if rates is not None and not isinstance(rates, Mapping):
        raise fail(f"rates gives parameters rates of their own, not {rates!r}", fix='rates={"W": "1/n"}; lr is of all')


# ---- what is asked ---------------------------------------------------------------------------------------------------


def _question(
    netsor: Netsor,
    targets: Any,
    options: dict[str, Any],
    output: str | None,
    batches: Sequence[Sequence[int]] | None,
) -> Course:
    steps, loss = check_count("steps", options.get("steps", 4)), options.get("loss")
    numbers = {key: options.get(key, 0.0) for key in ("momentum", "decay")}
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise fail(f"{key} is a number from 0 on, not {value!r}")
    how: dict[str, Any] = {"rate": options.get("rate", 1.0), "rates": dict(options.get("rates", ())), **numbers}
    if targets is None:
        if loss not in netsor.losses:
            said = f"{loss} is no scalar without indices" if loss else "there are neither targets nor a loss"
            raise fail(
                said, fix=did_you_mean(loss, netsor.losses) if loss else 'train(P, targets), or train(P, loss="L")'
            )
        if batches is not None:
            raise fail("batches are those of targets", fix="train(P, targets, batches=[[0], [1]])")
        outputs = tuple(name for name in netsor.outputs if netsor.families[name].kind == "scalar" and name != loss)
        return Course(netsor, loss, loss, outputs, steps, tables={}, **how)
    of = [name for name in netsor.outputs if netsor.families[name].shape] if output is None else [output]
    if len(of) != 1 or of[0] not in netsor.outputs:
        raise fail(f"targets are those of one output, not of {', '.join(of) or 'none'}", fix='output="f"')
    if netsor.families[of[0]].kind == "vector":
        netsor = with_readout(netsor, of[0])
    netsor, loss, descended, tables = _with_loss(netsor, of[0], targets, loss or "square", steps, batches)
    return Course(netsor, loss, descended, tuple(of), steps, tables=tables, **how)


def _with_loss(
    netsor: Netsor, output: str, targets: Any, loss: str, steps: int, batches: Sequence[Sequence[int]] | None
) -> tuple[Netsor, str, str, dict[str, list[Array]]]:
    """The program with the mean loss of an output, and that of a batch; with what differs from step to step."""
    shape = netsor.families[output].shape
    try:
        given = np.asarray(targets, dtype=float)
    except (TypeError, ValueError):
        raise fail(f"the targets of {output} are no numbers, or rows of them", fix="[1, -1, nan]") from None
    try:
        y = np.broadcast_to(given, shape)
    except ValueError:
        raise fail(f"the targets of {output} have the shape {shape}, not {np.shape(targets)}") from None
    learned = ~np.isnan(y)
    if not learned.any() or np.isinf(y).any():
        raise fail("targets are finite numbers, nan for inputs that are not learned, not all of them")
    names = netsor.taken
    indices = dict(netsor.index)
    slots = slots_of(_axes(indices, netsor.families[output].ranges, names))
    plain = tuple(str(slot) for slot in slots)
    new = {what: unused(what, names) for what in ("y", "share", "loss", "batch", "batch_loss")}
    values = {"f": Variable(output, slots), "y": Constant(new["y"], slots)}
    expr = _written(LOSSES.get(loss, loss), values)
    unknown = {node.name for node in walk(expr) if isinstance(node, Variable)} - {*netsor.families}
    if unknown:
        said = f"the loss {loss} reads {', '.join(sorted(unknown))}: of targets it is an expression in f and y"
        raise fail(said, fix=f'{", ".join(LOSSES)}, or loss="(f - y)**4"')

    def mean(share: str) -> Expr:
        return Reduction("sum", plain, Call("multiply", (Constant(new[share], slots), expr)))

    constants = [ConstantDef(new["y"], Table.of(np.where(learned, y, 0)), plain)]
    constants.append(ConstantDef(new["share"], Table.of(learned / learned.sum()), plain))
    body, tables = [Nonlin(Variable(new["loss"]), mean("share"))], {}
    if batches is not None:
        if len(batches) < steps:
            raise fail(f"{steps} steps take as many batches, not {len(batches)}")
        chosen = [np.zeros(shape) for _ in range(steps + 1)]
        for share, batch in zip(chosen, batches, strict=False):
            if not isinstance(batch, Iterable) or not shape or not {*batch} <= {*range(shape[0])}:
                raise fail(f"a batch has inputs from 0 to {math.prod(shape[:1]) - 1}, not {batch!r}")
            share[list(batch)] = learned[list(batch)]
            if not share.any():
                raise fail(f"the batch {batch!r} has no input that is learned")
            share /= share.sum()
        tables[new["batch"]] = chosen
        constants.append(ConstantDef(new["batch"], Table.of(chosen[0]), plain))
        body.append(Nonlin(Variable(new["batch_loss"]), mean("batch")))
    parts: dict[str, Any] = {
        **netsor.parts,
        "indices": tuple(indices.values()),
        "constants": (*netsor.constants, *constants),
        "body": (*netsor.body, *body),
    }
    return Netsor(**parts), new["loss"], body[-1].target.name, tables


def _axes(indices: dict[str, Index], ranges: Iterable[Range], names: set[str]) -> list[str]:
    """An index for each range, one of the program or another."""
    chosen: list[str] = []
    for start, stop in ranges:
        same = (name for name, one in indices.items() if (one.start, one.stop, one.boundary) == (start, stop, ""))
        found = next((name for name in same if name not in chosen), None)
        if found is None:
            found = unused("k", names)
            indices[found] = Index(found, start, stop)
        chosen.append(found)
    return chosen


# ---- what depends on n -----------------------------------------------------------------------------------------------


def rate_at(what: str, value: Any, netsor: Netsor, n: float) -> float:
    """A learning rate, a number or an expression in n, at a width; its limit for n = inf.

    Raises    ProgramError where it is no number, or has no finite limit
    """
    names = Names({**netsor.scalars, "n": 1}, frozenset())
    expr = parse_expression(str(value), names)

    def at(width: float) -> float:
        try:
            return float(constant_value(expr, {**netsor.scalars, "n": width}))
        except ProgramError as error:
            raise fail(
                f"{what}: {error.problems[0].message}", fix="a number, or an expression such as 0.1/n**0.5"
            ) from None

    if n < math.inf:
        return at(n)
    number, growth = at(FAR), at(2 * FAR) / (at(FAR) or 1.0)
    if growth > 1 + SAME:
        raise fail(f"{what}, {value}, grows without bound with n: there is no limit")
    return number if growth > 1 - SAME else 0.0


def _with_averages_for_scores(netsor: Netsor, loss: str, n: float) -> Netsor:
    """The program at a width, where scores n**-0.5 q.k that a loss depends on are roots of the width times averages.

    Raises    ProgramError for n = inf if there are such scores
    """
    known, names, body = upstream(netsor, [loss]), netsor.taken, list[Statement]()
    for s in netsor.body:
        if isinstance(s, Dot) and s.scale == "n**-0.5" and s.target.name in known:
            if n == math.inf:
                said = f"the loss depends on {s.target}, which is random in the limit on the scale n**-0.5"
                raise fail(said, s.span, f"Dot({s.left}, {s.right}, scale=1/n), the scale of muP")
            average = replace(s.target, name=unused(f"average_{s.target.name}", names))
            root = math.sqrt(netsor.width_of(netsor.families[s.left.name].width, int(n)))
            body += [
                replace(s, target=average, scale="1/n"),
                Nonlin(s.target, Call("multiply", (Number(root), average))),
            ]
        else:
            body.append(s)
    return replace(netsor, body=tuple(body))


# ---- sizes -----------------------------------------------------------------------------------------------------------


def _measured(T: Netsor, source: Netsor, steps: int) -> tuple[Netsor, list[str], list[list[str]]]:
    """A training program with the averages of `SIZES` of all families of vectors at all steps.

    The families; the scalars of their sizes step by step, in the order of families and `SIZES`, "" for what is 0.
    """
    names, indices = T.taken, dict(T.index)
    constant = {s.target.name for s in source.body if not s.inputs}
    vectors = [name for name, f in source.families.items() if f.kind == "vector" and name not in constant]
    vectors = [name for name in vectors if f"{name}_{steps}" in T.families]
    body, ones, sizes = list(T.body), dict[str, Variable](), [list[str]() for _ in range(steps + 1)]
    for step, name in product(range(steps + 1), vectors):
        first, now = (f"{name}_{t}" if f"{name}_{t}" in T.families else name for t in (0, step))
        ranges, width = T.families[now].ranges, T.families[now].width
        slots = slots_of(_axes(indices, ranges, names))
        if width not in ones:
            ones[width] = Variable(unused(f"ones_{width}", names))
            body.append(Nonlin(ones[width], Number(1), width))
        known = {"now": Variable(now, slots), "first": Variable(first, slots), "one": ones[width]}
        for what, (_, left, right) in SIZES.items():
            if step == 0 and what == "change":
                sizes[step].append("")  # nothing has moved
                continue
            factor, other = (_written(text, known) for text in (left, right))
            if not isinstance(factor, Variable):
                body.append(Nonlin(Variable(unused(f"{what}_of_{now}", names), slots), factor))
                factor = body[-1].target
            average = Variable(unused(f"{what}_{now}", names), slots)
            body.append(Dot(average, factor, cast("Variable", other), "1/n"))
            if slots:
                mean = Variable(unused(f"mean_{what}_{now}", names))
                body.append(Nonlin(mean, Reduction("mean", tuple(str(slot) for slot in slots), average)))
            sizes[step].append(body[-1].target.name)
    outputs = (*T.outputs, *filter(None, chain(*sizes)))
    parts: dict[str, Any] = {**T.parts, "indices": tuple(indices.values()), "body": tuple(body), "outputs": outputs}
    return Netsor(**parts), vectors, sizes


def _written(text: str, meant: Mapping[str, Expr]) -> Expr:
    """An expression in names that stand for others."""
    expr = parse_expression(text, Names({}, frozenset()))
    return replace_variables(expr, lambda node: None if node.slots else meant.get(node.name))


def _part(
    question: Course,
    families: Sequence[str],
    sizes: Sequence[Sequence[str]],
    numbers: Mapping[str, Any],
    ends: tuple[str, str],
) -> Any:
    """Losses, outputs and sizes of the limit, from values and errors, or of networks, from an array over them."""
    steps, drawn = range(question.steps + 1), ends[0] != ""

    def both(values: Any) -> tuple[Array, Array]:
        if not drawn:
            return np.asarray(values[0], dtype=float), np.asarray(values[1], dtype=float)
        values = np.asarray(values, dtype=float)
        with np.errstate(over="ignore"):  # of networks that diverge
            return values.mean(axis=0), values.std(axis=0, ddof=1) / math.sqrt(len(values))

    columns: dict[str, list[tuple[Array, Array]]] = {"loss": [both(numbers[f"{question.loss}_{t}"]) for t in steps]}
    dims: dict[str, tuple[str, ...]] = {"loss": ("step",)}
    for name in question.outputs:
        columns[name] = [both(numbers[f"{name}_{t}"]) for t in steps]
        ranges = question.netsor.families[name].ranges
        dims[name] = ("step", *(f"{name}_{k}" for k in range(len(ranges))))
    for place, what in enumerate(SIZES):
        rows = []
        for t in steps:
            found = [both(numbers[name]) if name else (0.0, 0.0) for name in sizes[t][place :: len(SIZES)]]
            found += [_of_output(what, numbers, name, t, drawn, both) for name in question.outputs]
            rows.append((np.array([value for value, _ in found]), np.array([error for _, error in found])))
        columns[what], dims[what] = rows, ("step", "family")
    about = {name: {"long_name": SIZES[name][0] if name in SIZES else name, "units": "1"} for name in columns}
    data = {
        name + end: (dims[name], np.array([row[side] for row in rows]), about[name])
        for name, rows in columns.items()
        for side, end in enumerate(ends)
    }
    coordinates = {"step": list(steps), "family": [*families, *question.outputs]}
    return need_package("xarray", "coordinate checks", "sweep").Dataset(data, coordinates)


def _of_output(
    what: str, numbers: Mapping[str, Any], name: str, step: int, drawn: bool, both: Callable[[Any], tuple[Array, Array]]
) -> tuple[Any, Any]:
    """The size of an output: averages over its members."""
    now, first = (numbers[f"{name}_{t}"] for t in (step, 0))
    if drawn:
        now, first = (np.asarray(x, dtype=float).reshape(len(x), -1) for x in (now, first))
        value = {"size": np.abs(now), "second_moment": now**2, "change": np.abs(now - first)}[what]
        return both(value.mean(axis=1))
    (value, off), (start, away) = (both(x) for x in (now, first))
    error = {"size": off, "second_moment": 2 * np.abs(value) * off + off**2, "change": (off + away) * (step > 0)}[what]
    number = {"size": np.abs(value), "second_moment": value**2, "change": np.abs(value - start)}[what]
    return number.mean(), error.mean()

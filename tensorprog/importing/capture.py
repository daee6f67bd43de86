"""A module as a list of operations at two widths, with what is known of its tensors.

`torch.export` traces the module without decomposing its operations; changes in place become new tensors.  What depends
on inputs, buffers and constants alone is computed here and now, at both widths, so that masks, positions and scales
are numbers when rules read them.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from tensorprog.importing.decompositions import table
from tensorprog.importing.initialisers import EntryLaw, built
from tensorprog.importing.refusals import SourcePlace, refusal
from tensorprog.language.errors import fail

__all__ = ["Captured", "Operation", "Parameter", "Ref", "capture", "frozen_at", "inputs_at"]

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
MAX_KNOWN = 50_000_000  # numbers of one tensor that are computed


@dataclass(frozen=True)
class Ref:
    """The result of an earlier operation as an argument."""

    name: str


@dataclass(frozen=True)
class Parameter:
    """A random parameter: name, shapes and the law of its entries at both widths, and the law where it is frozen."""

    name: str
    shapes: Shapes
    laws: tuple[EntryLaw, EntryLaw]
    frozen: EntryLaw | None = None

    @property
    def law(self) -> EntryLaw:
        """The law where it is frozen, or at the first width."""
        return self.frozen or self.laws[0]


@dataclass(frozen=True)
class Operation:
    """One operation of the traced module: its result by name, what it is called, and its arguments at both widths."""

    name: str
    kind: str
    args: tuple[tuple[Any, ...], tuple[Any, ...]]
    kwargs: tuple[Mapping[str, Any], Mapping[str, Any]]
    shapes: Any  # of the result at both widths; None of what is no tensor
    place: SourcePlace
    users: tuple[str, ...]


@dataclass
class Captured:
    """A module at two widths: operations in order, parameters, numbers that are known, and the name of its result."""

    widths: tuple[int, int]
    operations: list[Operation] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)  # parameters that begin as copies of others
    known: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # arrays, or numbers, at both widths
    module: str = ""  # its class
    result: str = ""
    results: int = 1  # tensors that the module returns, of which the first is imported
    statistics: bool = False  # whether it has layers of batch normalisation
    constants: dict[str, str] = field(default_factory=dict)  # parameters that are plain numbers, and which


def inputs_at(inputs: Any, width: int) -> tuple[Any, ...]:
    """The inputs of the module of a width, as tensors."""
    given = inputs(width) if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs
    given = given if isinstance(given, tuple | list) else (given,)
    made = []
    for value in given:
        array = value if isinstance(value, torch.Tensor) else np.asarray(value)
        if not isinstance(array, torch.Tensor) and array.dtype.kind not in "biufc":
            fix = "give them in the order of forward, such as (ids, mask)"
            raise fail(f"inputs are tensors or arrays of numbers, not {type(value).__name__}", fix=fix)
        tensor = array.detach().clone() if isinstance(array, torch.Tensor) else torch.tensor(array)
        made.append(tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor)
    return tuple(made)


def capture(make: Callable[[int], Any], inputs: Any, widths: tuple[int, int], at: int | None = None) -> Captured:
    """Trace the modules of two widths, and find the law of every parameter.

    Raises    ProgramError for modules that cannot be traced, or whose operations depend on the width
    """
    one, other = traces = _Trace(make, inputs, widths[0]), _Trace(make, inputs, widths[1])
    captured = Captured(widths, module=one.module, statistics=one.statistics)
    pairs = [*zip(one.nodes, other.nodes, strict=False)]
    differing = [pair for pair in pairs if _kind(pair[0]) != _kind(pair[1])]
    if differing or len(one.nodes) != len(other.nodes):
        node, instead = (*differing, pairs[-1])[0]
        raise refusal(
            _place(node),
            f"at the other width there stands {_kind(instead)}",
            "let the width change sizes, not which operations there are",
        )
    _take_parameters(captured, make, traces, at)
    for pair in pairs:
        _take_operation(captured, traces, pair)
    captured.known = {name: (_array(value), _array(other.values[name])) for name, value in one.values.items()}
    if all(entry.shapes[0] == entry.shapes[1] for entry in captured.parameters.values()):
        raise fail("no axis of a parameter grows with n", fix="let sizes of layers depend on n: lambda n: Net(n)")
    return captured


def frozen_at(captured: Captured, make: Callable[[int], Any], width: int) -> Captured | None:
    """The module with the laws of its parameters at a width of its own; None where their shapes are not in proportion.

    Raises    whatever the module raises at a width that it was not made for
    """
    module, laws = built(make, width)
    shapes = {name: tuple(one.shape) for name, one in module.named_parameters(remove_duplicate=False)}
    n = captured.widths[0]
    for entry in captured.parameters.values():
        pairs = zip(*entry.shapes, strict=True)
        wanted = tuple(one if one == other else one * width / n for one, other in pairs)
        if shapes.get(entry.name) != wanted:
            return None
    parameters = {node: replace(entry, frozen=laws[entry.name]) for node, entry in captured.parameters.items()}
    return replace(captured, parameters=parameters)


class _Numbers(TorchFunctionMode):  # type: ignore[misc]
    """Tracing without numbers, except of what no random parameter enters, so that choices may depend on these."""

    def __init__(self, module: Any, tensors: Sequence[Any]) -> None:
        super().__init__()
        self.forward, self.module = module.forward, module
        self.tensors, self.buffers = [x.clone() for x in tensors], {k: x.clone() for k, x in module.named_buffers()}
        self.known: dict[int, tuple[Any, int, Any]] = {}  # traced tensors, how often they were changed, and numbers

    def _enter(self, traced: Any, numbers: Any) -> None:
        for one, known in zip(tree_leaves(traced), tree_leaves(numbers), strict=True):
            if isinstance(one, torch.Tensor):
                self.known[id(one)] = one, one._version, known

    def _number(self, value: Any) -> Any:
        one, version, known = self.known.get(id(value), (None, 0, None))
        return known if one is not None and one._version == version else None

    def traced(self, *tensors: Any) -> Any:
        """The forward pass."""
        self._enter(tensors, self.tensors)
        buffers = dict(self.module.named_buffers())
        self._enter(list(buffers.values()), [self.buffers[name] for name in buffers])
        with self:
            return self.forward(*tensors)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        tensors = [value for value in tree_leaves(given) if isinstance(value, torch.Tensor)]
        if any(self._number(value) is None for value in tensors):
            return function(*given[0], **given[1])
        with _disable_current_modes():
            own = tree_map(lambda value: self._number(value) if isinstance(value, torch.Tensor) else value, given)
            known = function(*own[0], **own[1])
        if isinstance(known, bool | int | float | list) and tensors:
            return known
        result = function(*given[0], **given[1])
        self._enter((given, result), (own, known))
        return result


def _export(module: Any, tensors: tuple[Any, ...], width: int) -> Any:
    module.forward = _Numbers(module, tensors).traced
    told = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):  # what torch says of what is refused
        warnings.simplefilter("ignore")
        try:
            logging.disable(logging.CRITICAL)
            return torch.export.export(module, tensors, strict=False).run_decompositions(table())
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            place = _raised_at(error)
            if "data-dependent" in str(error).lower() or "guard on" in str(error).lower():
                raise refusal(
                    place,
                    "which way it goes depends on the numbers that flow through the network",
                    "write the choice with torch.where, or leave that branch out",
                ) from None
            raise refusal(
                place,
                f"torch.export stopped at width {width}: {first[:200]}",
                "torch.export.export(module, inputs, strict=False) must work; see its message",
            ) from None
        finally:
            logging.disable(told)


def _raised_at(error: BaseException) -> SourcePlace:
    """The last line of the user's own code, or of a library's, that was on the way to an error."""
    found, trace = SourcePlace(operation="the forward pass"), error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/torch/" not in code.co_filename and "tensorprog" not in code.co_filename:
            text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
            found = replace(found, file=code.co_filename, line=trace.tb_lineno, text=text)
        trace = trace.tb_next
    return found


def _place(node: Any) -> SourcePlace:
    """Where an operation of a graph stands."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, owner = stack[-1] if stack else ("", "")
    owner = owner if isinstance(owner, str) else getattr(owner, "__name__", "")
    path = re.sub(r"@\d+$", "", str(path)).removeprefix("L['self'].").removeprefix("L['self']")
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "/torch/" not in frame[0] and frame[0] != __file__] or frames
    file, line, text = own[-1] if own else ("", 0, "")
    return SourcePlace(file, int(line), 0, text, path, owner.rsplit(".", 1)[-1], _kind(node))


def _kind(node: Any) -> str:
    name = str(node.target) if node.op == "call_function" else str(node.op)
    for plain in ("getitem", "set_grad_enabled"):
        if plain in name:
            return plain
    name = name.removeprefix("aten.").split(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


class _Trace:
    """The graph of a module at one width, and tensors that are known: all that no random parameter enters."""

    def __init__(self, make: Callable[[int], Any], inputs: Any, width: int) -> None:
        module, self.laws = built(make, width)
        self.module = type(module).__name__
        self.statistics = any(isinstance(each, torch.nn.modules.batchnorm._BatchNorm) for each in module.modules())
        given = inputs_at(inputs, width)
        self.exported = _export(module.eval(), given, width)
        self.nodes = list(self.exported.graph.nodes)
        signature = self.exported.graph_signature
        self.parameters = signature.inputs_to_parameters
        self.states = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
            **self.exported.constants,
            **self.exported.state_dict,
        }
        targets = self.parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
        free = iter(list(given))
        self.values: dict[str, Any] = {
            node.name: self.states[targets[node.name]] if node.name in targets else next(free)
            for node in self.nodes
            if node.op == "placeholder"
        }


def _take_parameters(
    captured: Captured, make: Callable[[int], Any], traces: tuple[_Trace, _Trace], at: int | None
) -> None:
    """Laws of parameters; those that are random are not known, and may be copies of others."""
    (one, other), frozen = traces, built(make, at)[1] if at else None
    module, again = built(make, captured.widths[0])
    for name, parameter in module.named_parameters(remove_duplicate=False):
        law = one.laws[name]
        if again[name] != law:
            raise fail(
                f"{name} is drawn from another law each time that make is called",
                fix="let numbers that are drawn not enter the laws of others",
            )
        if law.kind == "unknown" and torch.equal(parameter, one.states[name]):
            one.laws[name] = EntryLaw("fixed")
    seen: dict[Any, tuple[str, list[Any]]] = {}
    drawn: dict[int, str] = {}
    for node, name in one.parameters.items():
        law = one.laws[name]
        if not law.random:
            captured.constants[name] = str(law)
            continue
        tensors = [trace.values.pop(node) for trace in traces]
        first, before = seen.setdefault((law.draw, str(law)), (node, tensors))
        if first != node and all(map(torch.equal, tensors, before)):
            captured.copies[node] = first
        elif law.draw in drawn:  # which 0 never is
            raise fail(
                f"{name} and {drawn[law.draw]} are made of the same random numbers",
                fix="draw each parameter by itself, or use one parameter in both places",
            )
        drawn |= {law.draw: name} if law.draw else {}
        shapes = tuple(tensors[0].shape), tuple(tensors[1].shape)
        captured.parameters[node] = Parameter(name, shapes, (law, other.laws[name]), frozen[name] if frozen else None)


def _take_operation(captured: Captured, traces: tuple[_Trace, _Trace], pair: tuple[Any, Any]) -> None:
    """An operation as one of the module, or its result where that is known."""
    one, kind = pair[0], _kind(pair[0])
    nodes = [a.name for a in torch.utils._pytree.tree_leaves((one.args, one.kwargs)) if isinstance(a, torch.fx.Node)]
    known = all(name in traces[0].values for name in nodes)
    if kind in ("placeholder", "_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size"):
        return
    if kind == "output":
        tensors = [name for name in traces[0].exported.graph_signature.user_outputs if isinstance(name, str)]
        if not tensors:
            raise fail("the module returns no tensor", fix="return the tensor whose law is wanted")
        captured.result, captured.results = tensors[0], len(tensors)
    elif kind == "get_attr":
        for node, trace in zip(pair, traces, strict=True):
            trace.values[node.name] = getattr(trace.exported.graph_module, node.target)
    elif kind in _RANDOM:
        raise refusal(
            _place(one),
            "random numbers are drawn in the forward pass",
            "draw them in __init__ as a parameter, or give them as inputs",
        )
    elif kind in _DROPOUTS and [*one.args, *one.kwargs.values()][2]:
        raise refusal(_place(one), "dropout in training mode", "call module.eval(), or set p=0")
    elif known or kind in _OF_SHAPES or (kind == "type_as" and nodes[0] in traces[0].values):
        for node, trace in zip(pair, traces, strict=True):
            shapes = {} if known else {a.name: torch.zeros(a.meta["val"].shape) for a in node.all_input_nodes}
            trace.values[node.name] = _computed(node, shapes | trace.values)
    elif any(isinstance(size, torch.SymInt) for value in tree_leaves(one.meta.get("val")) for size in np.shape(value)):
        raise refusal(
            _place(one),
            "numbers of the network decide how many entries are read",
            "keep all entries, and multiply by (x > c), which is 1 or 0",
        )
    else:
        args, kwargs = zip(*map(_arguments, pair), strict=True)
        sizes = tuple(_shape(node.meta.get("val")) for node in pair)
        users = tuple(user.name for user in one.users)
        captured.operations.append(Operation(one.name, kind, args, kwargs, sizes, _place(one), users))


_OF_SHAPES = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")  # whatever the numbers
_RANDOM = (
    "randn",
    "rand",
    "randn_like",
    "rand_like",
    "bernoulli",
    "normal",
    "randint",
    "randint_like",
    "multinomial",
    "randperm",
    "uniform",
    "exponential",
    "geometric",
    "log_normal",
    "cauchy",
    "random",
    "poisson",
    "binomial",
)
_DROPOUTS = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(int(size) for size in value.shape)
    return tuple(_shape(entry) for entry in value) if isinstance(value, list | tuple) else None


def _arguments(node: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return Ref(value.name)
        if isinstance(value, list | tuple):
            return tuple(plain(entry) for entry in value)
        return value

    return tuple(plain(arg) for arg in node.args), {key: plain(value) for key, value in node.kwargs.items()}


def _computed(node: Any, values: Mapping[str, Any]) -> Any:
    """The result of an operation whose arguments are all known."""
    args, kwargs = torch.utils._pytree.tree_map(
        lambda a: values[a.name] if isinstance(a, torch.fx.Node) else a, (node.args, node.kwargs)
    )
    with torch.no_grad():
        if "set_grad_enabled" in str(node.target):
            return args[1](*args[2:])
        result = node.target(*args, **kwargs)
    if isinstance(result, torch.Tensor) and result.numel() > MAX_KNOWN:
        raise refusal(_place(node), f"a fixed tensor of {result.numel()} numbers", "use smaller inputs")
    return result


def _array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        array = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        return array.astype(np.float64) if array.dtype.kind == "f" else array
    return tuple(_array(entry) for entry in value) if isinstance(value, list | tuple) else value

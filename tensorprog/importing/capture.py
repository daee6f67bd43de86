"""A module as a list of operations at two widths, with what is known of its tensors.

`torch.export` traces the module without decomposing its operations; changes in place become new tensors.  What depends
on inputs, buffers and constants alone is computed here and now, at both widths, so that masks, positions and scales
are numbers when rules read them.
"""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from tensorprog.importing.decompositions import table
from tensorprog.importing.initialisers import built, measured
from tensorprog.importing.laws import EntryLaw
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
    constants: dict[str, str] = field(default_factory=dict)  # parameters that are plain numbers, and which


def inputs_at(inputs: Any, width: int) -> tuple[Any, ...]:
    """The inputs of the module of a width, as tensors."""
    given = inputs(width) if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs
    given = given if isinstance(given, tuple | list) else (given,)
    made = []
    for value in given:
        tensor = value.detach().clone() if isinstance(value, torch.Tensor) else torch.tensor(np.asarray(value))
        made.append(tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor)
    return tuple(made)


def capture(make: Callable[[int], Any], inputs: Any, widths: tuple[int, int], at: int | None = None) -> Captured:
    """Trace the modules of two widths, and find the law of every parameter.

    Raises    ProgramError for modules that cannot be traced, or whose operations depend on the width
    """
    traced = []
    for width in widths:
        module, laws = built(make, width)
        tensors = inputs_at(inputs, width)
        traced.append((_export(module.eval(), tensors, width), module, laws, tensors))
    captured = _Graphs(make, traced, widths, at).captured
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
    _measure(make, width, laws)
    parameters = {node: replace(entry, frozen=laws[entry.name]) for node, entry in captured.parameters.items()}
    return replace(captured, parameters=parameters)


def _measure(make: Callable[[int], Any], width: int, laws: dict[str, EntryLaw], unsure: Sequence[str] = ()) -> None:
    """Measure laws that were not recorded."""
    unsure = unsure or [name for name, law in laws.items() if law.kind == "unknown"]
    for name, law in measured(make, width, unsure).items() if unsure else ():
        laws[name] = replace(law, draw=laws[name].draw)


def _export(module: Any, tensors: tuple[Any, ...], width: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
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
    own = [frame for frame in frames if "/torch/" not in frame[0]] or frames
    file, line, text = own[-1] if own else ("", 0, "")
    return SourcePlace(file, int(line), 0, text, path, owner.rsplit(".", 1)[-1], _kind(node))


def _kind(node: Any) -> str:
    if node.op != "call_function":
        return str(node.op)
    name = str(node.target)
    if "getitem" in name:
        return "getitem"
    if "set_grad_enabled" in name:
        return "set_grad_enabled"
    name = name.removeprefix("aten.").split(".")[0]
    return name if name.startswith("__") else name.rstrip("_")


class _Graphs:
    """The two graphs, read side by side."""

    def __init__(
        self, make: Callable[[int], Any], traced: Sequence[Any], widths: tuple[int, int], at: int | None
    ) -> None:
        self.captured = Captured(widths, module=type(traced[0][1]).__name__)
        graphs = [list(exported.graph.nodes) for exported, *_ in traced]
        self.values: tuple[dict[str, Any], dict[str, Any]] = ({}, {})  # tensors that are known
        if [(_kind(n), n.name) for n in graphs[0]] != [(_kind(n), n.name) for n in graphs[1]]:
            one, other = next(
                ((a, b) for a, b in zip(*graphs, strict=False) if _kind(a) != _kind(b)), (graphs[0][-1], graphs[1][-1])
            )
            raise refusal(
                _place(one),
                f"at the other width there stands {_kind(other)}",
                "let the width change sizes, not which operations there are",
            )
        self._inputs(make, traced, at)
        for one, other in zip(*graphs, strict=True):
            self._node(traced, one, other)
        for name in [name for name, value in self.values[0].items() if name not in self.captured.known]:
            pair = self.values[0][name], self.values[1][name]
            self.captured.known[name] = (_array(pair[0]), _array(pair[1]))

    def _inputs(self, make: Callable[[int], Any], traced: Sequence[Any], at: int | None) -> None:
        (one, _, laws_one, _), (_, _, laws_other, _) = traced
        again = built(make, self.captured.widths[0])[1]
        for name, law in laws_one.items():
            if again.get(name) != law:
                raise fail(
                    f"{name} is drawn from another law each time that make is called",
                    fix="let numbers that are drawn not enter the laws of others",
                )
        frozen = built(make, at)[1] if at else None
        unsure = [name for name, law in laws_one.items() if law.kind == "unknown"]
        for width, laws in zip((*self.captured.widths, at), (laws_one, laws_other, frozen), strict=True):
            if width and unsure and laws is not None:
                _measure(make, width, laws, unsure)
        targets = {
            **one.graph_signature.inputs_to_parameters,
            **one.graph_signature.inputs_to_buffers,
            **one.graph_signature.inputs_to_lifted_tensor_constants,
        }
        states = [
            {
                **dict(module.named_parameters(remove_duplicate=False)),
                **dict(module.named_buffers(remove_duplicate=False)),
                **exported.constants,
                **exported.state_dict,
            }
            for exported, module, *_ in traced
        ]
        users = iter([list(entry[3]) for entry in traced])
        free = [next(users), next(users)]
        seen: dict[Any, str] = {}
        drawn: dict[int, str] = {}
        parameters = one.graph_signature.inputs_to_parameters.values()
        for node in one.graph.nodes:
            if node.op != "placeholder":
                continue
            target = targets.get(node.name)
            if target is None:
                self.values[0][node.name], self.values[1][node.name] = free[0].pop(0), free[1].pop(0)
            elif target in parameters and laws_one[target].random:
                shapes = tuple(states[0][target].shape), tuple(states[1][target].shape)
                law = laws_one[target]
                key = (law.draw, str(law))
                if key in seen and all(torch.equal(state[target], state[targets[seen[key]]]) for state in states):
                    self.captured.copies[node.name] = seen[key]
                elif law.draw in drawn:  # which 0 never is
                    raise fail(
                        f"{target} and {drawn[law.draw]} are made of the same random numbers",
                        fix="draw each parameter by itself, or use one parameter in both places",
                    )
                drawn |= {law.draw: target} if law.draw else {}
                seen.setdefault(key, node.name)
                self.captured.parameters[node.name] = Parameter(
                    target, shapes, (law, laws_other[target]), frozen[target] if frozen else None
                )
            else:
                self.values[0][node.name], self.values[1][node.name] = states[0][target], states[1][target]
                if target in parameters:
                    self.captured.constants[target] = str(laws_one[target])

    def _node(self, traced: Sequence[Any], one: Any, other: Any) -> None:
        if one.op == "placeholder":
            return
        if one.op == "get_attr":
            for k, (node, (exported, *_)) in enumerate(zip((one, other), traced, strict=True)):
                self.values[k][node.name] = getattr(exported.graph_module, node.target)
            return
        if one.op == "output":
            tensors = [name for name in traced[0][0].graph_signature.user_outputs if isinstance(name, str)]
            if not tensors:
                raise fail("the module returns no tensor", fix="return the tensor whose law is wanted")
            self.captured.result, self.captured.results = tensors[0], len(tensors)
            return
        nodes = [a for a in torch.utils._pytree.tree_leaves((one.args, one.kwargs)) if isinstance(a, torch.fx.Node)]
        kind = _kind(one)
        if kind in ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size"):
            return
        if kind in _RANDOM:
            raise refusal(
                _place(one),
                "random numbers are drawn in the forward pass",
                "draw them in __init__ as a parameter, or give them as inputs",
            )
        if kind in _DROPOUTS and [*one.args, *one.kwargs.values()][2]:
            raise refusal(_place(one), "dropout in training mode", "call module.eval(), or set p=0")
        if all(node.name in self.values[0] for node in nodes):
            for k, node in enumerate((one, other)):
                self.values[k][node.name] = _computed(node, self.values[k])
            return
        if kind in _OF_SHAPES or (kind == "type_as" and nodes[0].name in self.values[0]):
            for k, node in enumerate((one, other)):
                shapes = {a.name: torch.zeros(a.meta["val"].shape) for a in node.all_input_nodes}
                self.values[k][node.name] = _computed(node, shapes | self.values[k])
            return
        converted = [_arguments(node) for node in (one, other)]
        self.captured.operations.append(
            Operation(
                one.name,
                kind,
                (converted[0][0], converted[1][0]),
                (converted[0][1], converted[1][1]),
                (_shape(one.meta.get("val")), _shape(other.meta.get("val"))),
                _place(one),
                tuple(user.name for user in one.users),
            )
        )


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

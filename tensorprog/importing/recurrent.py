"""RNN, LSTM and GRU: recurrences over an index of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorprog.importing.layers import added, einsum
from tensorprog.importing.operations import Result, TracedCall, rule
from tensorprog.importing.sketch import Sketch
from tensorprog.importing.values import FixedTensor, Traced, shapes_of
from tensorprog.importing.views import join, reshaped
from tensorprog.language.expr import Affine, Expr, Number, Variable, call, free_indices, sum_of, summands
from tensorprog.language.ir import MatMul, Nonlin

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(sketch: Sketch, operation: TracedCall) -> Result:
    """nn.RNN, nn.GRU, nn.LSTM, with several layers and both directions."""
    kind = operation.operation.kind
    x, start, flat = operation.tensor(0), operation.plain(1), operation.plain(2)
    biases, layers, dropout, train, both = (operation.plain(k) for k in range(3, 8))
    first = bool(operation.plain(8, "batch_first", False))
    if isinstance(flat, bool) or not isinstance(flat, tuple):
        raise sketch.refuse("sequences of different lengths, packed", "pad them, or import one length at a time")
    if dropout and train:
        raise sketch.refuse("dropout in training mode", "call module.eval(), or set dropout=0")
    for initial in start if isinstance(start, tuple) else (start,):
        if not isinstance(initial, FixedTensor) or np.any(initial.arrays[0]):
            raise sketch.refuse("a recurrence that starts from a state that is not zero", "start from zeros")
    directions = 2 if both else 1
    per = 4 if biases else 2
    if len(flat) != per * layers * directions:
        raise sketch.refuse("a recurrence with projections", "use proj_size=0")
    ends = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            place = per * (layer * directions + direction)
            output, end = _layer(sketch, kind, x, flat[place : place + per], first, bool(direction))
            outputs.append(output)
            ends.append(end)
        x = (
            outputs[0]
            if len(outputs) == 1
            else join(sketch, outputs, len(outputs[0].axes) - 1, f"{operation.name}.{layer}")
        )
    states = [
        _stacked(sketch, [end[k] for end in ends], f"{operation.name}.end{k}")
        for k in range(2 if kind == "lstm" else 1)
    ]
    return (x, *states)


def _stacked(sketch: Sketch, ends: Sequence[Traced], key: str) -> Traced:
    ends = [end.on(((), *end.axes)) for end in ends]
    return ends[0] if len(ends) == 1 else join(sketch, ends, 0, key)


def _layer(
    sketch: Sketch, kind: str, x: Any, flat: Sequence[Any], first: bool, backward: bool
) -> tuple[Traced, tuple[Traced, Traced]]:
    """One layer in one direction: its output, and its last states."""
    count = GATES[kind]
    rank = len(x.axes) if isinstance(x, Traced) else len(x.shapes[0])
    time = (1 if first else 0) if rank == 3 else 0
    lead = [f"a{k}" for k in range(rank - 1)]
    wide = [_by_gate(sketch, parameter, count) for parameter in flat]
    inputs = einsum(sketch, x, [*lead, "in"], wide[0], ["gate", "out", "in"], [*lead, "gate", "out"])
    if len(wide) > 2:
        inputs = added(sketch, inputs, wide[2])
    inputs = sketch.level(sketch.named(inputs, "inputs"), "the input of a gate")
    if len(inputs.axes[time]) != 1:
        raise sketch.refuse("a sequence of one step", "use at least two steps")
    (steps,), gates = inputs.axes[time], inputs.axes[-2]
    length = steps.size
    step = sketch.atom((length, length), start=1)
    at = (step.slot + -1) if not backward else (-1 * step.slot + length)
    batch = [
        atom
        for k, axis in enumerate(inputs.axes[:-2])
        if k != time
        for atom in axis
        if atom.name in free_indices(inputs.expr)
    ]
    slots = tuple(atom.slot for atom in batch)
    h, c = sketch.fresh("v"), sketch.fresh("v")
    ratio = sketch.ratio(inputs.widths[0])
    weight = wide[1]
    fan = weight.axes[-1][0]
    matrix, power = sketch.weight(weight, fan, ratio)
    if power:
        raise sketch.refuse(
            "the recurrent weights change with the width in another way than 1/n" + sketch.blame(),
            "initialise them with variance 1/n, or give at=",
        )
    zero, now = Affine((), 0), (*slots, step.slot)
    for name in (h, c) if kind == "lstm" else (h,):
        sketch.state(Nonlin, Number(0), role="start", slots=(*slots, zero), name=name, width=sketch.width(ratio))
    before = Variable(h, (*slots, step.slot + -1))
    own = weight.axes[0][0].name if weight.axes[0] else ""
    rows = (Affine.index(own),) if own else ()
    u = sketch.state(MatMul, matrix, before, role="state", slots=(*rows, *slots, step.slot))
    bias = sketch.settled(wide[3]) if len(wide) > 2 and isinstance(wide[3], Traced) else None
    if bias is not None:
        bias = sketch.level(bias, "a bias") if not bias.power or sketch.at else None

    def given(k: int) -> Expr:
        return sketch.read_at(inputs, {**{atom.name: Affine((), k) for atom in gates}, steps.name: at}).expr

    def state(k: int) -> Expr:
        """What comes of the state before, with its bias."""
        mine = Variable(u.name, (*((Affine((), k),) if own else ()), *slots, step.slot))
        if bias is None:
            return mine
        return sum_of([mine, sketch.read_at(bias, {atom.name: Affine((), k) for atom in bias.axes[0]}).expr])

    def gate(k: int) -> Expr:
        return sum_of([given(k), *summands(state(k))])

    if kind == "lstm":
        i, f, g, o = map(gate, range(4))
        memory = call("sigmoid", f) * Variable(c, (*slots, step.slot + -1)) + call("sigmoid", i) * call("tanh", g)
        sketch.state(Nonlin, memory, role="memory", slots=now, name=c)
        new = call("sigmoid", o) * call("tanh", Variable(c, now))
    elif kind == "gru":
        z = sketch.state(Nonlin, call("sigmoid", gate(1)), role="update", slots=now)
        fresh = call("tanh", sum_of([given(2), call("sigmoid", gate(0)) * state(2)]))
        new = (Number(1) - z) * fresh + z * before
    else:
        new = call(kind.removeprefix("rnn_"), gate(0))
    sketch.state(Nonlin, new, role="hidden", slots=now, name=h)
    out = sketch.atom((length, length))
    seen = (out.slot + 1) if not backward else (-1 * out.slot + length)
    axes = tuple((out,) if k == time else axis for k, axis in enumerate(inputs.axes) if k != rank - 1)
    output = Traced(axes, Variable(h, (*slots, seen)))
    last = tuple(axis for k, axis in enumerate(axes) if k != time)
    ends = tuple(Traced(last, Variable(name, (*slots, Affine((), length)))) for name in (h, c))
    return output, (ends[0], ends[1])


def _by_gate(sketch: Sketch, parameter: Any, count: int) -> Any:
    """The rows of a parameter by gates, on an axis of their own."""
    if isinstance(parameter, FixedTensor):
        return parameter.each(lambda array: array.reshape(count, -1, *array.shape[1:]))
    one, other = ((count, rows // count, *rest) for rows, *rest in shapes_of(parameter.axes))
    return reshaped(sketch, parameter, (one, other))

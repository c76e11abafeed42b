"""LSTM, GRU and RNN, which torch.export keeps whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._graph import Graph, Value
from ._table import TABLE, aten, refuse

# Of each kind: the order of torch's gates in ONNX's weights.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _ordered(g: Graph, kind: str, weight: str, size: int) -> str:
    """The gates' rows in ONNX's order."""
    order = _GATES[kind]
    if order == tuple(range(len(order))):
        return weight
    axis = g.ints([0])
    parts = [
        g.op("Slice", weight, g.ints([i * size]), g.ints([(i + 1) * size]), axis)
        for i in order
    ]
    return g.op("Concat", *parts, axis=0)


def _stacked(g: Graph, tensors: Sequence[str]) -> str:
    first = g.ints([0])
    return g.op("Concat", *(g.op("Unsqueeze", x, first) for x in tensors), axis=0)


def _part(g: Graph, x: str, first: int, count: int) -> str:
    return g.op("Slice", x, g.ints([first]), g.ints([first + count]), g.ints([0]))


def _layer(
    g: Graph, kind: str, x: str, states: Sequence[str], params: Sequence[Sequence[Value]],
    activation: str | None, size: int, lengths: str | None,
) -> list[str]:  # fmt: skip
    """One layer in one or two directions: its output [steps, batch, directions * size],
    and its last states. lengths: of the sequences, if not all steps count."""
    ways = len(params)
    weights = [_stacked(g, [_ordered(g, kind, p[i], size) for p in params]) for i in (0, 1)]
    bias = None
    if len(params[0]) == 4:
        rows = [
            g.op("Concat", *(_ordered(g, kind, p[i], size) for i in (2, 3)), axis=0)
            for p in params
        ]
        bias = _stacked(g, rows)
    outputs = g.ops(
        kind, x, *weights, bias, lengths, *states, count=1 + len(states), hidden_size=size,
        direction="bidirectional" if ways == 2 else "forward",
        activations=[activation] * ways if activation else None,
        linear_before_reset=1 if kind == "GRU" else None,
    )  # fmt: skip
    turned = g.op("Transpose", outputs[0], perm=[0, 2, 1, 3])
    return [g.op("Reshape", turned, g.ints([0, 0, -1])), *outputs[1:]]


def _recurrent(kind: str, activation: str | None = None) -> Any:
    def write(
        g: Graph, out: Any, x: Value, state: Any, params: Sequence[Value], bias: bool,
        layers: int, dropout: float, train: bool, both_ways: bool, batch_first: bool,
        lengths: Any = None,
    ) -> list[str]:  # fmt: skip
        if isinstance(batch_first, (list, tuple)) or x.rank != 3:
            return refuse("packed or unbatched sequences")
        if dropout and train:
            refuse("dropout in training; call eval()")
        states = list(state) if isinstance(state, (list, tuple)) else [state]
        ways, size = 2 if both_ways else 1, states[0].shape[2]
        if any(s.shape[2] != size for s in states):
            refuse("a projection of the hidden state")
        steps = g.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
        width = 4 if bias else 2
        ends = None if lengths is None else g.cast(lengths, torch.int32)
        finals: list[list[str]] = [[] for _ in states]
        for layer in range(layers):
            first = layer * ways
            chosen = [
                params[width * (first + way) : width * (first + way + 1)]
                for way in range(ways)
            ]
            begun = [_part(g, s, first, ways) for s in states]
            steps, *last = _layer(g, kind, steps, begun, chosen, activation, size, ends)
            for kept, each in zip(finals, last, strict=True):
                kept.append(each)
        result = g.op("Transpose", steps, perm=[1, 0, 2]) if batch_first else steps
        return [result, *(g.op("Concat", *kept, axis=0) for kept in finals)]

    return write


for _name, _handler in (
    ("lstm", _recurrent("LSTM")), ("gru", _recurrent("GRU")),
    ("rnn_tanh", _recurrent("RNN", "Tanh")), ("rnn_relu", _recurrent("RNN", "Relu")),
):  # fmt: skip
    TABLE[f"aten.{_name}.input"] = _handler
    TABLE[f"rabbet.{_name}.default"] = _handler  # the same, of _whole_layers


@aten("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
def _packed(*args: Any, **kwargs: Any) -> Any:
    return refuse("packed sequences")

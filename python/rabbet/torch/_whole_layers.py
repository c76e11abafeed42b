"""Recurrent layers stay whole in exports with a number of steps that varies.

torch traces LSTM, GRU and RNN step by step to tell the sizes of their results, so that an export
has the number of steps of its example alone. Operators of our own tell them without a trace.
Other functions have forms in _forms.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ._forms import FORMS

_LIBRARY = torch.library.Library("rabbet", "FRAGMENT")
_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _define(kind: str) -> Any:
    """The operator of a kind of layers; its arguments are those of torch's."""
    state, states = ("Tensor[]", 2) if kind == "lstm" else ("Tensor", 1)
    results = ", ".join(["Tensor"] * (1 + states))
    _LIBRARY.define(
        f"{kind}(Tensor x, {state} state, Tensor[] params, bool bias, int layers, "
        f"float dropout, bool train, bool both_ways, bool batch_first) -> ({results})"
    )

    def sizes(x: Any, state: Any, params: Any, bias: Any, layers: Any, dropout: Any,
              train: Any, both_ways: bool, batch_first: Any) -> Any:  # fmt: skip
        kept = list(state) if isinstance(state, (list, tuple)) else [state]
        width = kept[0].shape[2] * (2 if both_ways else 1)
        return (x.new_empty(*x.shape[:2], width), *map(torch.empty_like, kept))

    torch.library.register_fake(f"rabbet::{kind}", sizes, lib=_LIBRARY)
    return getattr(torch.ops.rabbet, kind).default


_OPERATORS = {getattr(torch._VF, kind): _define(kind) for kind in _KINDS}


class WholeLayers(TorchFunctionMode):
    """While it is active, layers whose number of steps varies are operators of ours, and
    functions that would fix sizes have other forms."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        operator = _OPERATORS.get(func)
        if operator is not None and _varies(*args):
            return operator(*args)
        kwargs = kwargs or {}
        if func in FORMS and not torch.compiler.is_dynamo_compiling():
            found = FORMS[func](*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


def _varies(x: Any, state: Any, params: Any, *others: Any) -> bool:
    """Whether it is a call with a number of steps that varies. Packed sequences have a
    vector of sizes in the place of the state."""
    is_packed = isinstance(params, torch.Tensor) or not isinstance(others[-1], bool)
    return not is_packed and x.dim() == 3 and any(
        isinstance(extent, torch.SymInt) for extent in x.shape[:2]
    )

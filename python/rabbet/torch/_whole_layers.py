"""Recurrent layers stay whole in exports with a number of steps that varies.

torch traces LSTM, GRU and RNN step by step to tell the sizes of their results, so that an export
has the number of steps of its example alone. Operators of our own tell them without a trace.
Of packed sequences torch knows no sizes at all. Other functions have forms in _forms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from ._forms import FORMS

_LIBRARY = torch.library.Library("rabbet", "FRAGMENT")
_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _define(kind: str) -> Any:
    """The operator of a kind of layers; its arguments are those of torch's."""
    state, states = ("Tensor[]", 2) if kind == "lstm" else ("Tensor", 1)
    results = ", ".join(["Tensor"] * (1 + states))
    _LIBRARY.define(
        f"{kind}(Tensor x, {state} state, Tensor[] params, bool bias, int layers, "
        f"float dropout, bool train, bool both_ways, bool batch_first, "
        f"Tensor? lengths=None) -> ({results})"
    )

    def sizes(x: Any, state: Any, params: Any, bias: Any, layers: Any, dropout: Any,
              train: Any, both_ways: bool, batch_first: Any,
              lengths: Any = None) -> Any:  # fmt: skip
        kept = list(state) if isinstance(state, (list, tuple)) else [state]
        width = kept[0].shape[2] * (2 if both_ways else 1)
        return (x.new_empty(*x.shape[:2], width), *map(torch.empty_like, kept))

    torch.library.register_fake(f"rabbet::{kind}", sizes, lib=_LIBRARY)
    return getattr(torch.ops.rabbet, kind).default


_OPERATORS = {getattr(torch._VF, kind): _define(kind) for kind in _KINDS}


class WholeLayers(TorchFunctionMode):
    """While it is active, layers whose number of steps varies, or that get packed sequences,
    are operators of ours, and functions that would fix sizes have other forms."""

    def __init__(self) -> None:
        super().__init__()
        self._packed = WeakIdKeyDictionary()  # Packings, by the batch sizes that torch has

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = _OPERATORS.get(func)
        if operator is not None and _varies(*args):
            return operator(*args)
        if torch.compiler.is_dynamo_compiling():  # a branch of torch.cond, a loop's step
            return func(*args, **kwargs)
        if func is _PACK:
            return self._pack(*args, **kwargs)
        if self._packed and (operator is not None or func is _PAD):
            packing = self._packed.get(args[1])
            if packing is not None:
                return packing.run(operator, *args) if operator else packing.padded(*args)
        is_first = func is torch.Tensor.__getitem__ and isinstance(args[1], int) and not args[1]
        if is_first and args[0] in self._packed:
            return self._packed[args[0]].mask.shape[1]
        if func in FORMS:
            found = FORMS[func](*args, **kwargs)
            if found is not NotImplemented:
                return found
        return func(*args, **kwargs)


    def _pack(self, x: Any, lengths: Any, batch_first: bool) -> Any:
        """The elements of the sequences, a step of all of them after the other."""
        x = x.transpose(0, 1) if batch_first else x
        lengths = lengths.to(x.device)
        mask = torch.arange(x.shape[0], device=x.device)[:, None] < lengths
        longest = lengths.max().item()
        torch._check(longest >= 0)
        torch._check(longest <= x.shape[0])
        sizes = mask.sum(1)[:longest].cpu()
        self._packed[sizes] = Packing(mask, lengths)
        return x[mask], sizes


class Packing(NamedTuple):
    """How sequences are packed."""

    mask: torch.Tensor
    """[steps, batch]: which elements there are."""
    lengths: torch.Tensor

    def _spread(self, data: Any, fill: float) -> Any:
        """[steps, batch, features]"""
        whole = data.new_full((*self.mask.shape, data.shape[1]), fill)
        return whole.masked_scatter(self.mask.unsqueeze(-1).expand_as(whole), data)

    def run(self, operator: Any, data: Any, sizes: Any, *args: Any) -> Any:
        """A layer, for packed data."""
        result, *states = operator(self._spread(data, 0), *args, False, self.lengths)
        return result[self.mask], *states

    def padded(
        self, data: Any, sizes: Any, batch_first: bool, fill: float, steps: Any
    ) -> Any:
        """What pad_packed_sequence gives: so many steps, and the lengths."""
        whole = self._spread(data, fill)
        more = whole.new_full((steps, *whole.shape[1:]), fill)
        whole = torch.cat([whole, more])[:steps]
        return whole.transpose(0, 1) if batch_first else whole, self.lengths.cpu()


_PACK = torch._VF._pack_padded_sequence  # type: ignore[attr-defined]
_PAD = torch._VF._pad_packed_sequence  # type: ignore[attr-defined]


def _varies(x: Any, state: Any, params: Any, *others: Any) -> bool:
    """Whether it is a call with a number of steps that varies. Packed sequences have a
    vector of sizes in the place of the state."""
    is_packed = isinstance(params, torch.Tensor) or not isinstance(others[-1], bool)
    return not is_packed and x.dim() == 3 and any(
        isinstance(extent, torch.SymInt) for extent in x.shape[:2]
    )

"""Plugins of the capabilities IPluginV3Quick... for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .._dims import Dims
from .._enums import PluginCapabilityType, TensorFormat, TensorRTPhase
from .._errors import PluginError
from ._bases import IPluginV3QuickBuild
from ._exprs import PluginTensorDesc, dynamic_desc, given_desc
from ._instance import (
    Bound,
    DescribedInput,
    QueryTensor,
    View,
    combination,
    destroy,
)
from ._v3 import V3Instance, capability, clone


def is_quick(calls: Any, plugin: Any) -> bool:
    """Whether a plugin has the quick capabilities."""
    build = calls.call(plugin, "get_capability_interface", PluginCapabilityType.BUILD)
    return isinstance(build, IPluginV3QuickBuild)


class QuickInstance(V3Instance):
    """A plugin of class IPluginV3 with the capabilities IPluginV3Quick..."""

    def _count_outputs(self) -> int:
        method = "get_num_outputs"
        return self.calls.integer(
            self.build, method, self.calls.call(self.build, method), 1
        )

    def _metadata_string(self) -> str | None:
        text: str | None = None
        if self.calls.has(self.build, "get_metadata_string"):
            text = self.calls.call(self.build, "get_metadata_string")
        return text

    def _timing_cache_id(self) -> str | None:
        identity: str | None = None
        if self.calls.has(self.build, "get_timing_cache_id"):
            identity = self.calls.call(self.build, "get_timing_cache_id")
        return identity

    def _has_aliases(self) -> bool:
        return self.calls.has(self.build, "get_aliased_input")

    def _type_arguments(
        self, inputs: Sequence[DescribedInput], numbers: tuple[int, ...]
    ) -> tuple[Any, ...]:
        types = [inputs[i][0] for i in numbers]
        return types, [len(inputs[i][1]) for i in numbers]

    # ---- Types and formats ----

    def combinations(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[list[tuple[int, int]]]:
        """Each combination as (type, format) of each tensor."""
        seen, inputs = self._seen(tensors, num_inputs)
        self._check_device(device)
        self._ranges = [tensor[2:] for tensor in seen]
        method = "get_supported_format_combinations"
        given = [dynamic_desc(t[0], t[1], t[2:]) for t in seen]
        found = self.calls.items(
            self.build,
            method,
            self.calls.call(self.build, method, given, inputs),
            PluginTensorDesc,
            None,
        )
        if not found or len(found) % len(seen):
            self.calls.fail(
                self.build,
                method,
                f"it returned {len(found)} descriptors; expected a multiple of "
                f"{len(seen)}, one for each input and output",
            )
        rows = []
        for at in range(0, len(found), len(seen)):
            chosen = iter(found[at : at + len(seen)])
            row = []
            for i, tensor in enumerate(tensors):
                if i < num_inputs and self._is_shape(i):
                    row.append((int(tensor[0]), int(TensorFormat.LINEAR)))
                else:
                    desc = next(chosen)
                    row.append((int(desc.type), int(desc.format)))
            rows.append(row)
        return rows

    # ---- Running ----

    def bind(
        self, device: str, tactic: int, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Bound:
        """What runs with these shapes."""
        numbers = self._numbers(len(inputs))
        seen = [inputs[i] for i in numbers]
        source = self.plugin
        if self.phase is TensorRTPhase.BUILD:
            views = [*seen, *outputs]
            if self._ranges is None:
                self._ranges = [(view[2],) * 4 for view in views]
            source = self._configure(combination(views), len(numbers)).plugin
        made = clone(self.calls, source)
        runtime = capability(self.calls, made, PluginCapabilityType.RUNTIME)
        self.calls.call(runtime, "set_tactic", tactic)
        return self._bound(
            runtime,
            tuple(given_desc(device, *view) for view in seen),
            tuple(given_desc(device, *view) for view in outputs),
            numbers,
            workspace=0,
            extra=(
                [Dims(_strides(view)) for view in seen],
                [Dims(_strides(view)) for view in outputs],
            ),
            release=partial(destroy, self.calls, made),
            declared=made,
        )


def _strides(view: View) -> list[int]:
    """Of the elements, as far as strides can tell a format; -1 where an extent is not
    known yet."""
    _, format_, dims = view
    if format_ is TensorFormat.LINEAR:
        order = list(range(len(dims)))
    elif format_ in (TensorFormat.HWC, TensorFormat.DHWC):
        order = [0, *range(2, len(dims)), 1]
    else:
        raise PluginError(f"{format_.name} has no strides; offer LINEAR or HWC")
    strides, step = [0] * len(dims), 1
    for axis in reversed(order):
        strides[axis] = step
        step = -1 if step < 0 or dims[axis] < 0 else step * max(dims[axis], 1)
    return strides

"""Plugins with the capabilities IPluginV3Quick..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from .. import _rabbet
from .._aot_kernels import INPUT, INTEGER, OUTPUT, hidden_arguments, images_of
from .._dims import Dims
from .._enums import (
    PluginArgDataType,
    PluginCapabilityType,
    TensorFormat,
    TensorRTPhase,
)
from .._errors import PluginError
from .._numbers import AOT, RUNS
from ._bases import (
    IPluginV3QuickAOTBuild,
    IPluginV3QuickBuild,
    IPluginV3QuickRuntime,
)
from ._calls import Caller
from ._exprs import (
    PluginTensorDesc,
    builder_for,
    dynamic_desc,
    exprs,
    given_desc,
    made_desc,
)
from ._instance import (
    Bound,
    DescribedInput,
    QueryTensor,
    View,
    combination,
    destroy,
)
from ._sym import ISymExpr, ISymExprs, KernelLaunchParams
from ._v3 import V3Instance, capability, clone


def is_quick(calls: Any, plugin: Any) -> bool:
    """Whether a plugin has the quick capabilities."""
    build = calls.call(plugin, "get_capability_interface", PluginCapabilityType.BUILD)
    return isinstance(build, IPluginV3QuickBuild)


class QuickInstance(V3Instance):
    """A plugin of class IPluginV3 with the capabilities IPluginV3Quick..."""

    def _count_outputs(self, owner: Any) -> int:
        method = "get_num_outputs"
        return self.calls.integer(owner, method, self.calls.call(owner, method), 1)

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
        """Supported combinations, each a (type, format) for each tensor."""
        seen, inputs = self._seen(tensors, num_inputs)
        build = self._asked()
        if build is None:
            return [[(int(t[0]), int(t[1])) for t in tensors]]
        self._begin(device)
        self._ranges = [tensor[2:] for tensor in seen]
        method = "get_supported_format_combinations"
        given = [dynamic_desc(t[0], t[1], t[2:]) for t in seen]
        found = self.calls.items(
            build,
            method,
            self.calls.call(build, method, given, inputs),
            PluginTensorDesc,
            None,
        )
        if not found or len(found) % len(seen):
            self.calls.fail(
                build,
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

    # ---- Kernels made ahead of time ----

    def _is_ready(self) -> bool:
        """Whether it provides kernels compiled ahead of time."""
        build = getattr(self, "build", None)
        return isinstance(build, IPluginV3QuickAOTBuild)

    def _runs(self) -> bool:
        """Whether it has a function to run. Also true if it has nothing to run: the
        call then reports the missing function."""
        if not self._is_ready():
            return True
        found = self.calls.call(
            self.plugin, "get_capability_interface", PluginCapabilityType.RUNTIME
        )
        return isinstance(found, IPluginV3QuickRuntime) and self.calls.has(
            found, "enqueue"
        )

    def _check_runtime(self) -> None:
        if not self._is_ready():
            super()._check_runtime()

    def kinds(self, device: str) -> int:
        """Ways to run: RUNS by enqueue, AOT by kernels compiled ahead of time."""
        ready = device.startswith("cuda") and self._is_ready()
        return RUNS * self._runs() + AOT * ready

    def serialize(
        self,
        device: str,
        tensors: Sequence[QueryTensor],
        num_inputs: int,
        tactic: int,
    ) -> dict[str, Any]:
        """The plugin's fields; empty if the kernels are in the plan."""
        if not self._runs():
            return {}
        return super().serialize(device, tensors, num_inputs, tactic)

    def launches(
        self,
        builder: _rabbet.DimBuilder,
        device: str,
        tensors: Sequence[QueryTensor],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        tactic: int,
    ) -> tuple[int, list[Any]]:
        """The kernel for these types, formats and tactic (see plugin_aot_kernels.c)."""
        calls = self.calls
        numbers = self._numbers(len(inputs))
        seen, count = self._seen(tensors, len(inputs))
        self._ranges = [tensor[2:] for tensor in seen]
        plugin = self._configure(combination(seen), count).plugin
        build = capability(calls, plugin, PluginCapabilityType.BUILD)
        calls.call(build, "set_tactic", tactic)
        launch, extra = KernelLaunchParams(), ISymExprs()
        calls.call(
            build,
            "get_launch_params",
            [exprs(builder, inputs[i]) for i in numbers],
            [dynamic_desc(t[0], t[1], t[2:]) for t in seen],
            count,
            launch,
            extra,
            builder_for(builder),
        )
        descs = [made_desc(*tensor[:3]) for tensor in seen]
        answer = calls.call(build, "get_kernel", descs[:count], descs[count:])
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            calls.fail(
                build, "get_kernel", f"it returned {answer!r}; expected (name, code)"
            )
        name, code = answer
        name = name.decode() if isinstance(name, bytes) else name
        check = _Check(calls, build)
        images = images_of(check, name, code)
        args: list[Any] = [(INPUT, i, 0, 0, None, None) for i in numbers]
        for i, item in enumerate(extra._items):
            dim = _dim(calls, build, builder, f"extra argument {i}", item)
            size = _BYTES_OF[item._dtype] if item is not None else 0
            args.append((INTEGER, 0, dim, size, None, None))
        args += [(OUTPUT, i, 0, 0, None, None) for i in range(len(outputs))]
        geometry = []
        for what in KernelLaunchParams.NAMES:
            value = getattr(launch, what)
            if value is None:
                geometry.append(builder.constant(int(what != "shared_mem")))
            else:
                geometry.append(_dim(calls, build, builder, what, value))
        args += hidden_arguments(check, name, images, args)
        nothing = builder.constant(0)
        return nothing, [(name, images, tuple(geometry), (0, 0, 0), False, args)]

    # ---- Running ----

    def bind(
        self, device: str, tactic: int, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Bound:
        """The plugin prepared to run with these shapes."""
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


class _Check:
    """Reports errors in a kernel's code."""

    def __init__(self, calls: Caller, owner: Any) -> None:
        self.calls, self.owner = calls, owner

    def fail(self, message: str) -> NoReturn:
        """Raises PluginError."""
        self.calls.fail(self.owner, "get_kernel", message)


_BYTES_OF = {
    PluginArgDataType.INT8: 1,
    PluginArgDataType.INT16: 2,
    PluginArgDataType.INT32: 4,
}


def _dim(calls: Caller, build: Any, builder: Any, what: str, value: Any) -> int:
    """Expression number of an ISymExpr or IDimensionExpr."""
    found = value._expr if isinstance(value, ISymExpr) else value
    if found is None:
        calls.fail(build, "get_launch_params", f"{what} was never set")
    if found._builder is not builder:
        calls.fail(
            build,
            "get_launch_params",
            f"{what} is an expression of an earlier call; they are valid only during "
            "the call",
        )
    number: int = found._dim
    return number


def _strides(view: View) -> list[int]:
    """Strides in elements, if the format determines them; -1 where an extent is
    unknown."""
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

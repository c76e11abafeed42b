"""rabbet.plugin.call: runs a single operator on arrays, with guarded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import _enums as e
from .._algorithms import IAlgorithmSelector
from .._arrays import as_numpy, dtype_of, from_bytes, is_torch
from .._builder import Builder
from .._callbacks import Logger
from .._classes._registry import get_plugin_registry
from .._convert import exporter, torch_dtype
from .._engine import ICudaEngine
from .._errors import Error
from .._flags import flag
from .._model import Model
from .._runtime import Runtime
from ._arguments import arranged, check_inputs
from ._definition import DefinitionError, near
from ._guards import CheckError, Input, Output, Run, findings
from ._plugin import QDP_REGISTRY, VERSION, PluginDef


class Operand(NamedTuple):
    """An array for an input."""

    dtype: e.DataType
    shape: tuple[int, ...]
    data: bytes


def _operand(value: Any, what: str) -> Operand:
    import numpy as np

    if is_torch(value):
        import torch

        dtype = _known_type(value.dtype, what, "x.to(torch...)")
        if value.layout is not torch.strided:
            raise TypeError(f"{what}: {value.layout}; make it dense: x.to_dense()")
        tensor = value.detach().cpu().contiguous()
        data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        return Operand(dtype, tuple(tensor.shape), data)
    array = as_numpy(value)
    dtype = _known_type(array.dtype, what, "x.astype(...)")
    return Operand(dtype, array.shape, np.ascontiguousarray(array).tobytes())


def _known_type(dtype: Any, what: str, how: str) -> e.DataType:
    try:
        return dtype_of(dtype)
    except TypeError as error:
        raise TypeError(f"{what}: {error}; convert it: {how}") from None


# ---- The network of one layer ----------------------------------------------


def _definition(plugin: Any) -> tuple[str, PluginDef | None]:
    """(id, the definition by decorators, or None for a creator of another kind)."""
    if isinstance(plugin, PluginDef):
        return plugin.id, plugin
    if not isinstance(plugin, str) or plugin.count("::") != 1:
        raise DefinitionError(
            f"rabbet.plugin.call: plugin is {plugin!r}; expected the id of a plugin, "
            "'namespace::name', or rabbet.plugin.op.NAMESPACE.NAME"
        )
    return plugin, QDP_REGISTRY.get(plugin)


def _check_known(plugin_id: str) -> tuple[str, str]:
    namespace, name = plugin_id.split("::")
    creators = get_plugin_registry().all_creators_recursive
    known = {f"{c.plugin_namespace}::{c.name}" for c in creators} | set(QDP_REGISTRY)
    if plugin_id not in known:
        raise DefinitionError(
            f"rabbet.plugin.call: no plugin '{plugin_id}' is registered"
            f"{near(plugin_id, known)} There are {', '.join(sorted(known)) or 'none'}; "
            "import the file that defines it first, or load it with "
            "rabbet.load_plugins"
        )
    return namespace, name


class _Tactic(IAlgorithmSelector):
    """Selects the combinations of one tactic."""

    def __init__(self, plugin_id: str, tactic: int | None) -> None:
        super().__init__()
        self.plugin_id, self.tactic = plugin_id, tactic
        self.refused: str | None = None

    def select_algorithms(self, context: Any, choices: Any) -> list[int]:
        """The combinations of the tactic; without any, an error that lists the tactics."""
        names = [choice.algorithm_variant.name for choice in choices]
        if self.tactic is None or not any("plugin" in name for name in names):
            return list(range(len(choices)))
        found = [
            i
            for i, choice in enumerate(choices)
            if choice.algorithm_variant.tactic == self.tactic
        ]
        if not found:
            there = sorted({choice.algorithm_variant.tactic for choice in choices})
            self.refused = (
                f"plugin '{self.plugin_id}': tactic {self.tactic} is not offered for "
                f"these types and shapes; there are {', '.join(map(str, there))}"
            )
        return found


class Setup(NamedTuple):
    """An engine of one layer, which a call runs."""

    plugin_id: str
    engine: ICudaEngine
    inputs: list[Input]  # those that are not constants
    given: list[Any]  # each input of the layer, in order


def _tensors(network: Any, operands: Sequence[Operand | None], shapes: Sequence[bool]) -> Any:
    """Network inputs; constants for shape inputs, whose values are then known."""
    import numpy as np

    tensors: list[Any] = []
    for i, (operand, is_shape) in enumerate(zip(operands, shapes, strict=True)):
        if operand is None:
            tensors.append(None)
        elif is_shape:
            values = np.array(from_bytes(operand.dtype, operand.data, operand.shape))
            tensors.append(network.add_constant(operand.shape, values).get_output(0))
        else:
            tensors.append(network.add_input(f"x{i}", operand.dtype, operand.shape))
    return tensors


def _named_inputs(
    definition: PluginDef | None, inputs: Sequence[Any], attrs: dict[str, Any]
) -> list[tuple[str, Any]]:
    """Name and value of each input; those by keyword are taken out of `attrs`."""
    if definition is None:
        return [(f"input {i}", value) for i, value in enumerate(inputs)]
    named = arranged(definition, inputs, attrs)
    check_inputs(definition, named, "an array", lambda value: value is not None)
    return named


def build_one(
    plugin: Any, inputs: Sequence[Any], device: str, tactic: int | None, attrs: Any
) -> Setup:
    """An engine of one layer for inputs like these."""
    plugin_id, definition = _definition(plugin)
    if definition is None:
        namespace, name = _check_known(plugin_id)
    attrs = dict(attrs)
    named = _named_inputs(definition, inputs, attrs)
    known = {} if definition is None else definition.registration.inputs
    shapes = [known.get(name, False) for name, _ in named]
    operands = [
        None if value is None
        else _operand(value, f"plugin '{plugin_id}', input {i} ('{name}')")
        for i, (name, value) in enumerate(named)
    ]  # fmt: skip
    logger = Logger(e.Severity.ERROR)
    builder = Builder(logger)
    strongly_typed = 1 << int(e.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(strongly_typed)
    tensors = _tensors(network, operands, shapes)
    if definition is not None:
        layer = network.add_plugin(definition(*tensors, **attrs))
    else:
        layer = network._add_plugin(name, VERSION, namespace, None, tensors, attrs)
    for i in range(layer.num_outputs):
        layer.get_output(i).name = f"y{i}"
        network.mark_output(layer.get_output(i))
    config = builder.create_builder_config()
    config.device = device
    config.builder_optimization_level = 0
    selector = _Tactic(plugin_id, tactic)
    config.algorithm_selector = selector
    try:
        plan = builder.build_serialized_network(network, config)
    except Error:
        if selector.refused is not None:
            raise DefinitionError(selector.refused) from None
        raise
    runtime = Runtime(logger)
    runtime.device = device
    inputs_of_engine = [
        Input(i, named[i][0], f"x{i}", *operand)
        for i, operand in enumerate(operands)
        if operand is not None and not shapes[i]
    ]
    engine = runtime.deserialize_cuda_engine(plan)
    return Setup(plugin_id, engine, inputs_of_engine, [value for _, value in named])


def _outputs(engine: ICudaEngine) -> list[Output]:
    """Outputs in the plugin's order."""
    found = [info for _, info in engine._ios().values() if not info.is_input]
    found.sort(key=lambda info: int(info.name[1:]))
    return [
        Output(info.name, info.dtype, tuple(info.shape), info.aliased_input >= 0)
        for info in found
    ]


# ---- The call --------------------------------------------------------------


def _as_kind_of(given: Sequence[Any], output: Output, data: bytes) -> Any:
    like: Any = next((v for v in given if not isinstance(v, (int, float, type(None)))), None)
    if is_torch(like):
        import torch

        flat = torch.frombuffer(bytearray(data), dtype=torch_dtype(output.dtype))
        return flat.reshape(output.shape).to(like.device)
    array = from_bytes(output.dtype, bytearray(data), output.shape)
    export = None if like is None or type(like).__module__ == "numpy" else exporter(like)
    return array if export is None else export(array)


def call(
    plugin: Any,
    *inputs: Any,
    device: str = "cpu",
    tactic: int | None = None,
    check: bool = True,
    attributes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Runs an operator on arrays alone and returns its outputs: for tests.

    call("example::CircularPad", x, pads=[0, 1, 0, 1])

    plugin: "namespace::name", or rabbet.plugin.op.NAMESPACE.NAME; of any kind.
    inputs: an array for each input, by NumPy, torch or JAX, in the types that the
        operator shall get; None for one that is absent, a list for one that stands for
        any number. The results are arrays of the first one's library.
    device: where it runs: "cpu", "cuda", "cuda:1".
    tactic: the one to run; default: the first that autotune offers.
    check: inputs and outputs lie between guard bands, outputs hold NaN before (integers
        0xA5...), and it runs twice. What it writes beside its outputs or into its
        inputs, and what it does not write, raises CheckError, with names and indices.
        Outputs whose sizes only the run tells are not looked at.
    attributes, and all other keyword arguments: the operator's attributes, and inputs
        by name.
    """
    if not isinstance(attributes or {}, Mapping):
        raise TypeError(
            f"rabbet.plugin.call: attributes is {attributes!r}; expected "
            "{name: value}"
        )
    check = flag(check, "check")
    attrs = {**(attributes or {}), **more}
    setup = build_one(plugin, inputs, device, tactic, attrs)
    outputs = _outputs(setup.engine)
    if any(-1 in output.shape for output in outputs):
        return Model(setup.engine)(*(setup.given[info.position] for info in setup.inputs))
    runs = [Run(setup.engine, setup.inputs, outputs, i) for i in range(1 + check)]
    found = findings(runs) if check else []
    if found:
        way = "" if tactic is None else f", tactic {tactic}"
        listed = "\n  ".join(found)
        raise CheckError(f"plugin '{setup.plugin_id}' on {device}{way}:\n  {listed}")
    results = tuple(
        _as_kind_of(setup.given, output, memory.data)
        for output, memory in zip(outputs, runs[0].outputs, strict=True)
    )
    return results[0] if len(results) == 1 else results

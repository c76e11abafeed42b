"""INetworkDefinition: a network under construction."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any, Self

from . import _enums as e
from ._callbacks import IErrorRecorder, ILogger
from ._checked import Constants, DType, Shape, Tensors, checks_arguments
from ._classes._bases import IPluginV3
from ._classes._layers import add_plugin_v2, add_plugin_v3
from ._errors import NotFoundError
from ._layers import _composites as composites
from ._layers import _reshapes as reshapes
from ._layers._attention import IAttention
from ._layers._branches import IIfConditional
from ._layers._einsum import IEinsumLayer, einsum
from ._layers._layer import ILayer, ITensor, as_found
from ._layers._loops import ILoop
from ._layers._operator_layers import OperatorLayers
from ._layers._plugin_layers import IPluginV2Layer, IPluginV3Layer
from ._layers._rotary import IRotaryEmbeddingLayer, rotary_embedding
from ._managed import Fixed, Managed
from ._numbers import PREFER_AOT, PREFER_RUNS
from ._plugin_base import LayerCall


def _position(index: int, count: int, what: str) -> int:
    """A valid index of a network's objects, negative ones counted from the end."""
    position = index + count if index < 0 else index
    if not 0 <= position < count:
        raise IndexError(f"{what} {index}: the network has {count}")
    return position


@checks_arguments
class INetworkDefinition(OperatorLayers, Managed):
    """A network under construction: made by Builder.create_network."""

    error_recorder: IErrorRecorder | None = None
    has_implicit_batch_dimension = Fixed(False, "The batch is a dimension like others.")
    _creation_flags = 0
    _builder: Any = None
    _lent_weights: Any = None  # memory that the importer uses in place
    _shared_weights: tuple[Any, ...] = ()  # of it, what the engine may use in place, too
    _logger: ILogger | None = None
    _conditionals: int

    def __new__(cls, flags: int = 0, logger: ILogger | None = None) -> Self:
        strong = flags >> e.NetworkDefinitionCreationFlag.STRONGLY_TYPED & 1
        self = super().__new__(cls, strong, logger)
        self._creation_flags = flags
        self._logger = logger
        self._given_weights = {}
        self._composites = {}
        self._conditionals = 0
        flag = e.NetworkDefinitionCreationFlag
        prefer_jit = flags >> flag.PREFER_JIT_PYTHON_PLUGINS & 1
        prefer_aot = flags >> flag.PREFER_AOT_PYTHON_PLUGINS & 1
        if prefer_jit and prefer_aot:
            raise ValueError(
                "a network can prefer one: PREFER_JIT_PYTHON_PLUGINS or "
                "PREFER_AOT_PYTHON_PLUGINS"
            )
        self._set_plugin_kinds(PREFER_RUNS * prefer_jit + PREFER_AOT * prefer_aot)
        return self

    # ---- Looking ----

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return self._input_count()

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self._output_count()

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return self._layer_count()

    @property
    def flags(self) -> int:
        """Bits 1 << NetworkDefinitionCreationFlag."""
        return self._creation_flags

    def get_flag(self, flag: e.NetworkDefinitionCreationFlag) -> bool:
        """Whether the flag was set on creation."""
        return bool(self._creation_flags >> int(flag) & 1)

    @property
    def builder(self) -> Any:
        """The Builder that made it."""
        return self._builder

    def get_input(self, index: int) -> ITensor:
        """An input."""
        return self._input(_position(index, self.num_inputs, "input"))

    def get_output(self, index: int) -> ITensor:
        """An output."""
        return self._output(_position(index, self.num_outputs, "output"))

    def get_layer(self, index: int) -> ILayer:
        """A layer, by order of addition."""
        return self._as_found(self._layer(_position(index, self.num_layers, "layer")))

    _as_found = staticmethod(as_found)

    def __len__(self) -> int:
        return self.num_layers

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> ILayer:
        return self.get_layer(index)

    def __iter__(self) -> Iterator[ILayer]:
        return (self.get_layer(i) for i in range(self.num_layers))

    def validate(self) -> None:
        """Checks the network and infers types and shapes; errors name the layer."""
        self._validate()

    # ---- Inputs and outputs ----

    def add_input(self, name: str, dtype: DType, shape: Shape) -> ITensor:
        """A tensor that the caller supplies; -1 marks a dynamic dimension."""
        return self._add_input(name, int(dtype), tuple(shape))

    def mark_output(self, tensor: ITensor) -> None:
        """Makes a tensor an output."""
        self._mark_output(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        """Undoes mark_output."""
        self._unmark_output(tensor)

    def remove_tensor(self, tensor: ITensor) -> None:
        """Removes a tensor without readers, and the layer that computes it."""
        self._remove_tensor(tensor)

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Alias of mark_output, for tensors whose values are shapes."""
        self._mark_output(tensor)
        return True

    def unmark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Undoes mark_output_for_shapes."""
        self._unmark_output(tensor)
        return True

    # ---- Refitting ----

    def _named(self, name: str) -> ITensor:
        tensor = self._find_weights(name)
        if tensor is None:
            raise NotFoundError(f"the network has no weights named '{name}'")
        return tensor  # type: ignore[no-any-return]

    def set_weights_name(self, weights: Constants, name: str) -> bool:
        """Names weights that an add_... method received, identified by the same Weights
        or array."""
        address = weights._address
        old = self._given_weights.get(address)
        if old is None:
            raise NotFoundError(
                f"set_weights_name('{name}'): no layer was given these weights"
            )
        self._named(old).name = name
        self._given_weights[address] = name
        return True

    def mark_weights_refittable(self, name: str) -> bool:
        """Allows a Refitter to replace weights (BuilderFlag.REFIT_INDIVIDUAL)."""
        self._named(name)._set_refittable(True)
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        """Undoes mark_weights_refittable."""
        self._named(name)._set_refittable(False)
        return True

    def are_weights_marked_refittable(self, name: str) -> bool:
        """Whether weights are marked."""
        return self._named(name)._is_refittable()  # type: ignore[no-any-return]

    # ---- Debug tensors ----

    def mark_debug(self, tensor: ITensor) -> bool:
        """Makes a tensor visible to IDebugListeners."""
        tensor._set_debug(True)
        return True

    def unmark_debug(self, tensor: ITensor) -> bool:
        """Undoes mark_debug."""
        tensor._set_debug(False)
        return True

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        """Whether the tensor is marked."""
        return tensor._is_debug()

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Makes all tensors between kernels visible to IDebugListeners."""
        self._set_unfused_debug(True)
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Undoes mark_unfused_tensors_as_debug_tensors."""
        self._set_unfused_debug(False)
        return True

    # ---- Layers of plugins ----

    def add_plugin_v2(self, inputs: Sequence[ITensor], plugin: Any) -> IPluginV2Layer:
        """Adds a layer of an IPluginV2DynamicExt plugin."""
        layer: IPluginV2Layer = add_plugin_v2(self, inputs, plugin)
        return layer

    def add_plugin_v3(
        self, inputs: Sequence[ITensor], shape_inputs: Sequence[ITensor], plugin: Any
    ) -> IPluginV3Layer:
        """Adds a layer of an IPluginV3 plugin. shape_inputs are integer tensors whose
        values determine its output shapes."""
        layer: IPluginV3Layer = add_plugin_v3(self, inputs, shape_inputs, plugin)
        return layer

    # ---- Layers that are several (_composite.py) ----

    def add_scale(
        self,
        input: ITensor,
        mode: e.ScaleMode,
        shift: Constants = None,
        scale: Constants = None,
        power: Constants = None,
    ) -> composites.IScaleLayer:
        """(input * scale + shift) ** power; channels are on axis 1."""
        return self.add_scale_nd(input, mode, shift, scale, power, 1)

    def add_scale_nd(
        self,
        input: ITensor,
        mode: e.ScaleMode,
        shift: Constants = None,
        scale: Constants = None,
        power: Constants = None,
        channel_axis: int = 1,
    ) -> composites.IScaleLayer:
        """(input * scale + shift) ** power; omitted weights have no effect."""
        given = {"scale": (scale, 1.0), "shift": (shift, 0.0), "power": (power, 1.0)}
        return composites.scale(self, input, mode, given, channel_axis)

    def add_padding_nd(
        self, input: ITensor, pre_padding: Shape, post_padding: Shape
    ) -> reshapes.IPaddingLayer:
        """Adds zeros around the last axes; negative padding removes elements."""
        return reshapes.padding(self, input, pre_padding, post_padding)

    def add_squeeze(self, input: ITensor, axes: ITensor) -> reshapes.ISqueezeLayer:
        """Removes axes of extent 1; `axes` is a constant."""
        return reshapes.reshaping(self, reshapes.ISqueezeLayer, input, axes)

    def add_unsqueeze(self, input: ITensor, axes: ITensor) -> reshapes.IUnsqueezeLayer:
        """Inserts axes of extent 1; `axes` is a constant."""
        return reshapes.reshaping(self, reshapes.IUnsqueezeLayer, input, axes)

    def add_parametric_relu(
        self, input: ITensor, slopes: ITensor
    ) -> composites.IParametricReLULayer:
        """x where it is positive, slopes * x elsewhere."""
        return composites.parametric_relu(self, input, slopes)

    def add_one_hot(
        self, indices: ITensor, values: ITensor, depth: ITensor, axis: int
    ) -> composites.IOneHotLayer:
        """values[1] at each index along the new axis, values[0] elsewhere."""
        return composites.one_hot(self, indices, values, depth, axis)

    def add_lrn(
        self, input: ITensor, window: int, alpha: float, beta: float, k: float
    ) -> composites.ILRNLayer:
        """x / (k + alpha * mean of squares in a window of channels) ** beta."""
        return composites.lrn(self, input, window, alpha, beta, k)

    def add_ragged_softmax(
        self, input: ITensor, bounds: ITensor
    ) -> composites.IRaggedSoftMaxLayer:
        """Softmax of the first bounds[i] elements of each row; the rest is 0."""
        return composites.ragged_softmax(self, input, bounds)

    def add_einsum(self, inputs: Tensors, equation: str) -> IEinsumLayer:
        """Sums of products as an equation such as "ij,jk->ik" defines them."""
        return einsum(self, inputs, equation)

    def add_rotary_embedding(
        self,
        input: ITensor,
        cos_cache: ITensor,
        sin_cache: ITensor,
        interleaved: bool,
        rotary_embedding_dim: int,
    ) -> IRotaryEmbeddingLayer:
        """Rotates pairs of elements by angles with the given cosines and sines."""
        caches = (cos_cache, sin_cache)
        return rotary_embedding(self, input, caches, interleaved, rotary_embedding_dim)

    def add_if_conditional(self) -> IIfConditional:
        """Adds a conditional: two branches, of which a run computes only the chosen
        one."""
        self._conditionals += 1
        name = f"(Unnamed Conditional* {self._conditionals - 1})"
        return IIfConditional(self, self._add_conditional(name))

    def add_loop(self) -> ILoop:
        """Adds a loop; its recurrences, iterators, limits and outputs define it."""
        return ILoop(self, self._add_loop())

    def add_attention(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: e.AttentionNormalizationOp,
        causal: bool,
    ) -> IAttention:
        """softmax(query key^T) value; property `mask` of the result masks the scores."""
        kinds = e.CausalMaskKind
        kind = kinds.UPPER_LEFT if causal else kinds.NONE
        return IAttention(self, (query, key, value), norm_op, kind)

    def add_attention_v2(
        self,
        query: ITensor,
        key: ITensor,
        value: ITensor,
        norm_op: e.AttentionNormalizationOp,
        causal_kind: e.CausalMaskKind,
    ) -> IAttention:
        """add_attention with a choice of causal masks (from TensorRT 11)."""
        return IAttention(self, (query, key, value), norm_op, causal_kind)

    def add_plugin(
        self, func: Any = None, aot: bool | None = None, *, tuple: Any = None
    ) -> IPluginV3Layer:
        """A layer of a plugin: what rabbet.plugin.op.NAMESPACE.NAME(...) gives, or
        (inputs, shape inputs, plugin) for add_plugin_v3; `tuple` is the old name of
        `func`."""
        func = tuple if func is None else func
        is_triple = isinstance(func, builtins.tuple) and len(func) == 3
        if is_triple and isinstance(func[2], IPluginV3):
            return self.add_plugin_v3(*func)
        call = func[2] if is_triple else func
        if not isinstance(call, LayerCall):
            raise TypeError(
                "add_plugin takes the result of rabbet.plugin.op.NAMESPACE.NAME(tensors, "
                f"attributes), got {func!r}"
            )
        request = (
            None
            if aot is None
            else (
                e.QuickPluginCreationRequest.STRICT_AOT
                if aot
                else e.QuickPluginCreationRequest.STRICT_JIT
            )
        )
        return call.add_to(self, request)

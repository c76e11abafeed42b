"""Plugins of TensorRT's library, which are several layers here: the creators that
init_libnvinfer_plugins registers, and what add_plugin_v2 and add_plugin_v3 make of their
plugins. The layers are those that the ONNX importer makes of a node of the same name, with
the plugin's fields as attributes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._enums import LayerType, PluginFieldType, Severity
from .._layers._composite import Composite, Places, compose
from .._layers._layer import ITensor
from .._plugin_base import Key
from ._bases import IPluginCreator, IPluginV2DynamicExt
from ._fields import PluginField, PluginFieldCollection

_T = PluginFieldType
_TYPES = {"f": _T.FLOAT32, "i": _T.INT32, "I": _T.INT32, "s": _T.CHAR, "W": _T.FLOAT32}


class _Kind(NamedTuple):
    """A plugin. Fields by name: a number (f, i), integers (I), a text (s), weights (W)."""

    versions: str
    outputs: int
    fields: dict[str, str]


def _kind(versions: str, outputs: int, fields: str) -> _Kind:
    pairs = (word.split(":") for word in fields.split())
    return _Kind(versions, outputs, dict(pairs))


_BATCHED = _kind(
    "1",
    4,
    "shareLocation:i backgroundLabelId:i numClasses:i topK:i keepTopK:i scoreThreshold:f "
    "iouThreshold:f isNormalized:i clipBoxes:i scoreBits:i caffeSemantics:i",
)

COMPOSITIONS = {
    "BatchedNMSDynamic_TRT": _BATCHED,
    "BatchedNMS_TRT": _BATCHED,
    "CustomEmbLayerNormPluginDynamic": _kind(
        "1",
        2,
        "bert_embeddings_layernorm_beta:W bert_embeddings_layernorm_gamma:W "
        "bert_embeddings_word_embeddings:W bert_embeddings_token_type_embeddings:W "
        "bert_embeddings_position_embeddings:W output_fp16:i full_mask:i mha_type_id:i",
    ),
    "CustomFCPluginDynamic": _kind("1", 1, "out_dims:i type_id:i W:W"),
    "CustomGeluPluginDynamic": _kind("1", 1, "type_id:i bias:W"),
    "CustomQKVToContextPluginDynamic": _kind(
        "1",
        1,
        "type_id:i hidden_size:i num_heads:i has_mask:i dq_probs:f",
    ),
    "CustomSkipLayerNormPluginDynamic": _kind(
        "12", 1, "ld:i type_id:i beta:W gamma:W bias:W"
    ),
    "EfficientNMS_ONNX_TRT": _kind(
        "1",
        1,
        "score_threshold:f iou_threshold:f max_output_boxes_per_class:i center_point_box:i",
    ),
    "EfficientNMS_TRT": _kind(
        "1",
        4,
        "score_threshold:f iou_threshold:f max_output_boxes:i max_output_boxes_per_class:i "
        "background_class:i score_activation:i class_agnostic:i box_coding:i",
    ),
    "GroupNormalizationPlugin": _kind("1", 1, "eps:f num_groups:i"),
    "InstanceNormalization_TRT": _kind(
        "123", 1, "epsilon:f scales:W bias:W relu:i alpha:f"
    ),
    "ModulatedDeformConv2d": _kind(
        "12", 1, "stride:I padding:I dilation:I group:i deformable_group:i"
    ),
    "PyramidROIAlign_TRT": _kind(
        "1",
        1,
        "fpn_scale:i pooled_size:i image_size:I roi_coords_absolute:i roi_coords_swap:i "
        "roi_coords_plusone:i roi_coords_transform:i sampling_ratio:i legacy:i",
    ),
    "ROIAlign_TRT": _kind(
        "12",
        1,
        "coordinate_transformation_mode:i mode:i output_height:i output_width:i "
        "sampling_ratio:i spatial_scale:f",
    ),
    "ScatterElements": _kind("12", 1, "axis:i reduction:s"),
}
# Fields that are inputs of the ONNX operator.
_INPUTS = {"InstanceNormalization_TRT": ("scales", "bias")}


# ---- Plugins ---------------------------------------------------------------


class StandardPlugin(IPluginV2DynamicExt):
    """A plugin of TensorRT's library: for add_plugin_v2 and add_plugin_v3."""

    __slots__ = ("attributes", "unknown", "weights")

    def __init__(self, key: Key, fields: Iterable[PluginField]) -> None:
        super().__init__()
        kind = COMPOSITIONS[key[0]]
        self.plugin_type, self.plugin_version, self.plugin_namespace = key
        self.num_outputs = kind.outputs
        self.attributes: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        self.unknown: list[str] = []
        for field in fields:
            if field.name in kind.fields:
                self._take(field, kind.fields[field.name])
            else:
                self.unknown.append(field.name)

    def _take(self, field: PluginField, wanted: str) -> None:
        import numpy as np

        if wanted == "s":
            try:
                text = field.tobytes().decode("utf-8")
            except UnicodeDecodeError:
                raise self.wrong(field.name, "bytes that are no text in UTF-8") from None
            self.attributes[field.name] = text.rstrip("\0")
            return
        values = np.asarray([] if field.data is None else field.data).reshape(-1)
        if wanted == "W":
            self.weights[field.name] = values.astype(np.float32)
            return
        for value in values if wanted in "Ii" else ():
            if not float(value).is_integer():
                raise self.wrong(field.name, f"{value}; expected an integer")
        if wanted == "I":
            self.attributes[field.name] = [int(value) for value in values]
            return
        if values.size != 1:
            raise self.wrong(field.name, f"{values.size} values; expected one")
        self.attributes[field.name] = (float if wanted == "f" else int)(values[0])

    def wrong(self, field: str, what: str) -> ValueError:
        """The error for a field."""
        return ValueError(f"PluginField '{field}' of '{self.plugin_type}' holds {what}")

    def __repr__(self) -> str:
        return f"<plugin '{self.plugin_type}'>"


class StandardCreator(IPluginCreator):
    """The creator of a plugin of TensorRT's library."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = key
        self.field_names = PluginFieldCollection(
            PluginField(name, None, _TYPES[kind])
            for name, kind in COMPOSITIONS[key[0]].fields.items()
        )

    def create_plugin(
        self, name: str, field_collection: Any, phase: Any = None
    ) -> StandardPlugin:
        """Makes a plugin from its fields."""
        key = (self.name, self.plugin_version, self.plugin_namespace)
        return StandardPlugin(key, field_collection)


def standard_creators(namespace: str) -> dict[Key, StandardCreator]:
    """The creators of all of them."""
    keys = [
        (name, version, namespace)
        for name, kind in COMPOSITIONS.items()
        for version in kind.versions
    ]
    return {key: StandardCreator(key) for key in keys}


# ---- A model of one node (onnx.proto) --------------------------------------


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _attribute(name: str, value: Any) -> bytes:
    data = _field(1, name)
    if isinstance(value, float):
        return data + b"\x15" + struct.pack("<f", value) + _field(20, 1)
    if isinstance(value, int):
        return data + _field(3, value) + _field(20, 2)
    if isinstance(value, str):
        return data + _field(4, value) + _field(20, 3)
    if isinstance(value, list):
        return data + b"".join(_field(8, one) for one in value) + _field(20, 7)
    dims = b"".join(_field(1, extent) for extent in value.shape)
    tensor = dims + _field(2, 1) + _field(9, value.astype("<f4").tobytes())
    return data + _field(5, tensor) + _field(20, 4)


def _model(plugin: StandardPlugin, name: str, inputs: int, attributes: dict[str, Any]) -> bytes:
    """`name`, of the node, is part of its outputs' names, which the network has then."""
    sources = [str(i) for i in range(inputs)]
    results = [f"{name}_output_{i}" for i in range(plugin.num_outputs)]
    node = b"".join(_field(1, one) for one in sources)
    node += b"".join(_field(2, one) for one in results)
    node += _field(3, name) + _field(4, plugin.plugin_type) + _field(7, "TRT")
    attributes = {**attributes, "plugin_version": plugin.plugin_version}
    node += b"".join(_field(5, _attribute(*pair)) for pair in attributes.items())
    graph = _field(1, node) + _field(2, name)
    graph += b"".join(_field(11, _field(1, one)) for one in sources)
    graph += b"".join(_field(12, _field(1, one)) for one in results)
    opsets = [_field(8, _field(1, "") + _field(2, 18)), _field(8, _field(1, "TRT") + _field(2, 1))]
    return _field(1, 8) + _field(7, graph) + b"".join(opsets)


# ---- Layers ----------------------------------------------------------------


class StandardPluginLayer(Composite):
    """The layers of a plugin of TensorRT's library."""

    __slots__ = ()
    _type = LayerType.PLUGIN_V2

    @property
    def plugin(self) -> StandardPlugin:
        """The plugin."""
        return self._parts["plugin"]  # type: ignore[no-any-return]

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._parts["outputs"])

    def get_output(self, index: int) -> ITensor | None:  # type: ignore[override]
        """An output; None beyond the last."""
        outputs = self._parts["outputs"]
        return outputs[index] if 0 <= index < len(outputs) else None


def _attributes_of(plugin: StandardPlugin) -> dict[str, Any]:
    """Tables of embeddings have as many columns as the normalization behind them."""
    taken = _INPUTS.get(plugin.plugin_type, ())
    weights = {name: array for name, array in plugin.weights.items() if name not in taken}
    hidden = weights.get("bert_embeddings_layernorm_beta")
    for name, array in weights.items():
        if name.endswith("_embeddings") and hidden is not None:
            if hidden.size == 0 or array.size % hidden.size:
                raise plugin.wrong(
                    name, f"{array.size} values; expected rows of {hidden.size}, as "
                    "'bert_embeddings_layernorm_beta' has"
                )
            weights[name] = array.reshape(-1, hidden.size)
    return {**plugin.attributes, **weights}


def _readers(network: Any, tensor: ITensor, first: int) -> Places:
    """Inputs of layers, from layer `first` on, that are the tensor."""
    return [
        (layer, place)
        for layer in map(network.get_layer, range(first, network.num_layers))
        for place in range(layer.num_inputs)
        if layer.get_input(place) == tensor
    ]


def add_composition(network: Any, inputs: Sequence[ITensor], plugin: StandardPlugin) -> Any:
    """Adds the layers of the plugin."""
    for field in plugin.unknown:
        if network._logger is not None:
            network._logger.log(
                Severity.WARNING,
                f"plugin '{plugin.plugin_type}' has no field '{field}', which is ignored",
            )
    first = network.num_layers
    tensors = list(inputs)
    for name in _INPUTS.get(plugin.plugin_type, ()):
        if name in plugin.weights:
            array = plugin.weights[name]
            tensors.append(network.add_constant(array.shape, array).get_output(0))
    name = f"{plugin.plugin_type}_{len(network._composites)}"
    model = _model(plugin, name, len(tensors), _attributes_of(plugin))
    outputs = network._import_part(model, tensors, plugin.num_outputs)
    places = [_readers(network, tensor, first) for tensor in inputs]
    last = outputs[-1].producer
    return compose(
        network, StandardPluginLayer, last, places, plugin=plugin, outputs=outputs
    )

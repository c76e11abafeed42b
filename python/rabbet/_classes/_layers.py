"""network.add_plugin_v2 and add_plugin_v3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._enums import TensorRTPhase
from .._layers._layer import ITensor
from .._plugin_base import find_class
from ._bases import IPluginV2DynamicExt, IPluginV3
from ._calls import Caller
from ._compositions import StandardPlugin, add_composition
from ._instance import ClassInstance, origin
from ._known import FoundPlugin
from ._quick import QuickInstance, is_quick
from ._v2 import V2Instance
from ._v2 import clone as clone_v2
from ._v3 import V3Instance
from ._v3 import clone as clone_v3


def _tensors(method: str, what: str, given: Any) -> list[ITensor]:
    tensors = list(given) if isinstance(given, Iterable) else [given]
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, ITensor) or tensors == [given]:
            raise TypeError(
                f"{method}: {what} is a list of ITensors, but item {i} is {tensor!r}"
                if isinstance(given, Iterable)
                else f"{method}: {what} is a list of ITensors, got {given!r}"
            )
    return tensors


def _add(network: Any, plugin: Any, instance: ClassInstance, inputs: Any) -> Any:
    name, version, namespace = instance.key
    place = origin(plugin)
    definition = find_class(name, version, namespace)
    if definition is not None:
        namespace, place = definition.key[2], definition.origin
    layer = network._add_instance(
        instance, (name, version, namespace, place), None, inputs
    )
    instance.calls.layer = layer.name
    return layer


def add_plugin_v2(network: Any, inputs: Any, plugin: Any) -> Any:
    """A layer of a plugin of class IPluginV2DynamicExt."""
    method = "add_plugin_v2"
    if not isinstance(plugin, IPluginV2DynamicExt):
        raise TypeError(
            f"{method}: expected a plugin of a class that derives from "
            f"IPluginV2DynamicExt, got {plugin!r}"
        )
    tensors = _tensors(method, "inputs", inputs)
    if isinstance(plugin, StandardPlugin):
        return add_composition(network, tensors, plugin)
    calls = Caller(None)
    copy = clone_v2(calls, plugin)
    return _add(network, plugin, V2Instance(copy, None, TensorRTPhase.BUILD), tensors)


def add_plugin_v3(network: Any, inputs: Any, shape_inputs: Any, plugin: Any) -> Any:
    """A layer of a plugin of class IPluginV3."""
    method = "add_plugin_v3"
    if not isinstance(plugin, (IPluginV3, StandardPlugin)):
        raise TypeError(
            f"{method}: expected a plugin of a class that derives from IPluginV3, got "
            f"{plugin!r}"
        )
    tensors = _tensors(method, "inputs", inputs)
    shapes = _tensors(method, "shape_inputs", shape_inputs)
    if isinstance(plugin, StandardPlugin):
        return add_composition(network, [*tensors, *shapes], plugin)
    if isinstance(plugin, FoundPlugin):
        return network._add_plugin(
            *plugin.creator_key, None, [*tensors, *shapes], plugin.attrs
        )
    if len(tensors) + len(shapes) > 64 and shapes:
        raise ValueError(f"{method}: with shape inputs there are at most 64 inputs")
    mask = ((1 << len(shapes)) - 1) << len(tensors)
    calls = Caller(None)
    copy = clone_v3(calls, plugin)
    kind = QuickInstance if is_quick(calls, copy) else V3Instance
    instance = kind(copy, None, TensorRTPhase.BUILD, mask)
    return _add(network, plugin, instance, [*tensors, *shapes])

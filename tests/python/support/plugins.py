"""Plugins that the tests share. Each id is registered once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import rabbet as trt

_serial = itertools.count()


def new_id(name: str = "op") -> str:
    """A plugin id that no other test uses."""
    return f"test::{name}_{next(_serial)}"


def call(plugin_id: str) -> Any:
    """rabbet.plugin.op.NAMESPACE.NAME of an id."""
    import rabbet.plugin as trtp

    namespace, name = plugin_id.split("::")
    return getattr(getattr(trtp.op, namespace), name)


def build(
    make: Callable[[trt.INetworkDefinition], Any], *, flags: int = 0, **options: Any
) -> trt.Model:
    """A model of the network whose outputs `make` returns."""
    network = trt.Builder().create_network(flags)
    outputs = make(network)
    for i, tensor in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        tensor.name = f"y{i}"
        network.mark_output(tensor)
    options.setdefault("device", "cpu")
    return trt.compile(network, **options)


def constant(network: trt.INetworkDefinition, values: Any, dtype: Any = None) -> Any:
    """A tensor of these values."""
    array = np.asarray(values, dtype)
    return network.add_constant(array.shape, array).get_output(0)


def one_layer(
    plugin_id: str, *shapes: tuple[int, ...], try_plugins: bool = True, **attrs: Any
) -> trt.Model:
    """A model of one plugin layer with float inputs of these shapes."""

    def make(network: trt.INetworkDefinition) -> Any:
        inputs = [
            network.add_input(f"x{i}", trt.float32, shape)
            for i, shape in enumerate(shapes)
        ]
        layer = network.add_plugin(call(plugin_id)(*inputs, **attrs))
        return tuple(layer.get_output(i) for i in range(layer.num_outputs))

    return build(make, try_plugins=try_plugins)


def random(*shape: int, seed: int = 0) -> Any:
    """Seeded float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

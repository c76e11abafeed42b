"""A small writer of ONNX graphs whose weights are seeded.

Every weight is drawn from a generator seeded by (model seed, weight name), so
that two forms of a model (say, with zero and with circular padding) hold the
same numbers in the weights that they share.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

Dim = int | str
"""A dimension: a length, or the name of a symbolic one."""

IR_VERSION = 9
PLUGIN_NAMESPACE = "example"
PLUGIN_OP = "circ_pad_plugin"
RANGE_KEY = "range."
"""Prefix of the metadata that give the half-open range of an input's values."""


def rng_for(seed: int, name: str) -> np.random.Generator:
    """A generator for the tensor `name`, the same in every process."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


class Graph:
    """Collects nodes, weights, inputs and outputs; `model()` checks them."""

    def __init__(self, name: str, *, opset: int = 17, seed: int = 0) -> None:
        self.name = name
        self.opset = opset
        self.seed = seed
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._metadata: dict[str, str] = {}
        self._domains: set[str] = set()

    def input(
        self,
        name: str,
        shape: Sequence[Dim],
        *,
        dtype: int = onnx.TensorProto.FLOAT,
        value_range: tuple[int, int] | None = None,
    ) -> str:
        """Adds a network input; integers need the range of their values."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        if value_range is not None:
            self._metadata[RANGE_KEY + name] = "{},{}".format(*value_range)
        return name

    def output(
        self,
        tensor: str,
        shape: Sequence[Dim],
        *,
        dtype: int = onnx.TensorProto.FLOAT,
    ) -> None:
        """Marks `tensor` as a network output."""
        self._outputs.append(helper.make_tensor_value_info(tensor, dtype, list(shape)))

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        name: str,
        *,
        outputs: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Adds a node; the output takes the node's name (or name_0, name_1...).

        Returns the output's name, or a list of names where there are several.
        """
        names = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self._nodes.append(
            helper.make_node(
                op, list(inputs), names, name=name, domain=domain, **attributes
            )
        )
        if domain:
            self._domains.add(domain)
        return names[0] if outputs == 1 else names

    def constant(self, name: str, value: ArrayLike) -> str:
        """An initializer holding `value`; asking again for a name reuses it."""
        if name not in self._initializers:
            array = np.asarray(value, order="C")
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def ints(self, *values: int) -> str:
        """A 1-D int64 constant, shared by all that ask for these values."""
        name = "ints_" + "_".join(str(v).replace("-", "m") for v in values)
        return self.constant(name, np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """A 0-D float constant, shared by all that ask for this value."""
        return self.constant(f"scalar_{value:g}", np.array(value, np.float32))

    def weight(
        self, name: str, shape: Sequence[int], std: float, mean: float = 0.0
    ) -> str:
        """A float weight drawn from a normal distribution."""
        values = rng_for(self.seed, name).standard_normal(tuple(shape), np.float32)
        values *= np.float32(std)
        values += np.float32(mean)
        return self.constant(name, values)

    def uniform(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        """A float weight drawn evenly from [low, high)."""
        values = rng_for(self.seed, name).uniform(low, high, tuple(shape))
        return self.constant(name, values.astype(np.float32))

    def conv(
        self,
        x: str,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        pad: int = 0,
        gain: float = 2.0,
        bias: bool = False,
    ) -> str:
        """A square convolution NCHW, [out, in, k, k] weights of variance
        gain / fan-in (2: He's rule for ReLU networks)."""
        cin, cout = channels
        std = (gain / (cin * kernel * kernel)) ** 0.5
        inputs = [x, self.weight(f"{name}.weight", (cout, cin, kernel, kernel), std)]
        if bias:
            inputs.append(self.weight(f"{name}.bias", (cout,), 0.1))
        return self.node(
            "Conv",
            inputs,
            name,
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[pad] * 4,
            strides=[stride, stride],
        )

    def batch_norm(self, x: str, name: str, channels: int, *, scale: float) -> str:
        """An inference-mode batch normalisation with statistics that fit
        inputs of about unit variance."""
        shape = (channels,)
        parameters = [
            self.uniform(f"{name}.weight", shape, 0.7 * scale, 1.3 * scale),
            self.weight(f"{name}.bias", shape, 0.1),
            self.weight(f"{name}.running_mean", shape, 0.1),
            self.uniform(f"{name}.running_var", shape, 0.6, 1.6),
        ]
        return self.node("BatchNormalization", [x, *parameters], name, epsilon=1e-5)

    def circular_pad(self, x: str, name: str, pad: int, *, domain: str = "") -> str:
        """The padding plugin on the last two axes of an NCHW tensor.

        Its attribute `pads` holds (before, after) for each axis in order.
        """
        return self.node(
            PLUGIN_OP,
            [x],
            name,
            domain=domain,
            pads=[0, 0, 0, 0, pad, pad, pad, pad],
            plugin_namespace=PLUGIN_NAMESPACE,
            plugin_version="1",
        )

    def model(self) -> onnx.ModelProto:
        """The finished model, checked unless a plugin stands in ONNX's own
        domain, as files written for TensorRT have it."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            self._inputs,
            self._outputs,
            list(self._initializers.values()),
        )
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in sorted(self._domains)]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="rabbet-tests"
        )
        model.ir_version = IR_VERSION
        helper.set_model_props(model, self._metadata)
        if all(n.op_type != PLUGIN_OP or n.domain for n in self._nodes):
            onnx.checker.check_model(model)
        return model

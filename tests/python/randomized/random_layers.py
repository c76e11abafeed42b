"""Layers of random networks: each function adds one to a Net, or raises Unfit."""

from __future__ import annotations

import numpy as np
import rabbet as trt

from tests.python.randomized.random_control import (
    conditional,
    loop,
    nested_loop,
    shape,
    small_shape,
)
from tests.python.randomized.random_elements import (
    activation,
    cast,
    clip,
    comparison,
    elementwise,
    identity,
    logical,
    select,
    unary,
)
from tests.python.randomized.random_moves import (
    concatenation,
    gather,
    gather_by_values,
    reshape,
    reshape_by_tensor,
    slice_outside,
    slices,
    transpose,
)
from tests.python.randomized.random_networks import (
    Net,
    Unfit,
)
from tests.python.randomized.random_patterns import (
    attention,
    channels_and_space,
    convolution_and_more,
    gelu,
    layer_norm,
    product_and_more,
    quantized_product,
    rotation,
)
from tests.python.randomized.random_plugin_layers import (
    plugin_affine,
    plugin_channels,
    plugin_class,
    plugin_class_sizes,
    plugin_keep,
    plugin_pair,
    plugin_spread,
    plugin_two,
    twice,
)
from tests.python.randomized.random_sums import (
    convolution,
    matrix_multiply,
    normalization,
    pooling,
    quantize,
    reduce,
    softmax,
)

LAYERS = [
    (elementwise, 6), (comparison, 1), (logical, 1), (unary, 2), (activation, 3), (clip, 3),
    (cast, 1.5), (identity, 1), (select, 1.5), (transpose, 3), (reshape, 2),
    (reshape_by_tensor, 1.5), (slices, 3), (slice_outside, 1), (concatenation, 3),
    (gather, 1), (gather_by_values, 1), (reduce, 2), (matrix_multiply, 2), (softmax, 1),
    (normalization, 1), (convolution, 2), (pooling, 1), (quantize, 1.5), (conditional, 1),
    (loop, 1.5), (nested_loop, 0.5), (shape, 0.5), (small_shape, 0.5),
    (plugin_affine, 8), (plugin_pair, 3), (plugin_two, 5),
    (plugin_channels, 3), (plugin_keep, 1), (plugin_spread, 1.5), (plugin_class, 5),
    (plugin_class_sizes, 0.7), (twice, 1.5), (gelu, 0.7), (layer_norm, 0.7), (attention, 1),
    (product_and_more, 1.2), (channels_and_space, 0.8), (convolution_and_more, 3),
    (quantized_product, 1.2), (rotation, 0.8),
]  # fmt: skip


WISHED = (
    trt.LayerType.ELEMENTWISE, trt.LayerType.ACTIVATION, trt.LayerType.MATRIX_MULTIPLY,
    trt.LayerType.SOFTMAX, trt.LayerType.REDUCE, trt.LayerType.POOLING,
)  # fmt: skip


def grow(net: Net, layers: int) -> None:
    """Adds layers."""
    weights = np.array([w for _, w in LAYERS], float)
    tries = 0
    while sum(not n.what.startswith(("constant", "input")) for n in net.nodes) < layers:
        tries += 1
        if tries > 400:
            raise Unfit
        add = LAYERS[int(net.random.choice(len(LAYERS), p=weights / weights.sum()))][0]
        before = net.network.num_layers
        try:
            add(net)
        except Unfit:
            continue
        if net.least is not trt.float32 and net.chance(0.15):
            for i in range(before, net.network.num_layers):
                if net.network[i].type in WISHED:
                    net.network[i].precision = net.pick([trt.float32, net.least])

"""U-Net, a plain multi-layer perceptron, stacked LSTMs, a long element-wise
chain, and the demo's image filter."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import Dim, Graph
from .plugins import known_operators

UPSAMPLINGS = ("transpose", "shuffle", "nearest")


def _double_conv(graph: Graph, x: str, name: str, cin: int, cout: int) -> str:
    for index, channels in enumerate(((cin, cout), (cout, cout))):
        part = f"{name}.conv{index}"
        x = graph.conv(x, part, channels, 3, pad=1)
        x = graph.batch_norm(x, f"{part}.bn", cout, scale=1.0)
        x = graph.node("Relu", [x], f"{part}.relu")
    return x


def _pixel_shuffle(graph: Graph, x: str, name: str, side: int, cout: int) -> str:
    """[B, 4 C, s, s] -> [B, C, 2 s, 2 s] by reshapes, a factor 2 each way."""
    split = graph.ints(-1, cout, 2, 2, side, side)
    x = graph.node("Reshape", [x, split], f"{name}.split")
    x = graph.node("Transpose", [x], f"{name}.turn", perm=[0, 1, 4, 2, 5, 3])
    joined = graph.ints(-1, cout, 2 * side, 2 * side)
    return graph.node("Reshape", [x, joined], name)


def _upsample(graph: Graph, x: str, name: str, side: int, cin: int, method: str) -> str:
    """[B, cin, side, side] -> [B, cin / 2, 2 side, 2 side]."""
    cout = cin // 2
    if method == "shuffle":
        x = graph.conv(x, f"{name}.conv", (cin, 4 * cout), 1, gain=1.0, bias=True)
        return _pixel_shuffle(graph, x, name, side, cout)
    if method == "nearest":
        scales = graph.constant("scales", np.array([1, 1, 2, 2], np.float32))
        x = graph.node(
            "Resize",
            [x, "", scales],
            f"{name}.resize",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return graph.conv(x, name, (cin, cout), 1, gain=1.0, bias=True)
    weight = graph.weight(f"{name}.weight", (cin, cout, 2, 2), cin**-0.5)
    bias = graph.weight(f"{name}.bias", (cout,), 0.1)
    return graph.node(
        "ConvTranspose", [x, weight, bias], name, kernel_shape=[2, 2], strides=[2, 2]
    )


def unet256(
    *,
    batch: Dim = 1,
    size: int = 256,
    width: int = 32,
    levels: int = 5,
    classes: int = 2,
    upsample: str = "transpose",
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """image [batch, 3, size, size] -> mask [batch, classes, size, size].

    upsample: "transpose" (ConvTranspose), "shuffle" (a 1x1 convolution, Reshape
    and Transpose, the same map) or "nearest" (Resize).
    """
    if upsample not in UPSAMPLINGS:
        raise ValueError(
            f"upsample is one of {', '.join(UPSAMPLINGS)}, not '{upsample}'"
        )
    if size % (1 << (levels - 1)):
        raise ValueError(f"size {size} can't be halved {levels - 1} times")
    graph = Graph("unet", opset=opset, seed=seed)
    x = graph.input("image", (batch, 3, size, size))
    channels, skips = 3, []
    for level in range(levels):
        if level:
            x = graph.node(
                "MaxPool", [x], f"down{level}.pool", kernel_shape=[2, 2], strides=[2, 2]
            )
        x = _double_conv(graph, x, f"down{level}", channels, width << level)
        channels = width << level
        skips.append(x)
    for level in reversed(range(levels - 1)):
        side = size >> (level + 1)
        x = _upsample(graph, x, f"up{level}.sample", side, channels, upsample)
        x = graph.node("Concat", [skips[level], x], f"up{level}.concat", axis=1)
        x = _double_conv(graph, x, f"up{level}", channels, channels // 2)
        channels //= 2
    x = graph.conv(x, "mask", (channels, classes), 1, gain=1.0, bias=True)
    graph.output(x, (batch, classes, size, size))
    return graph.model()


def mlp(
    *,
    batch: Dim = 1,
    features: int = 1024,
    layers: int = 3,
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """x [batch, features] -> y [batch, features]: Gemm, with Relu between."""
    graph = Graph("mlp", opset=opset, seed=seed)
    x = graph.input("x", (batch, features))
    for index in range(layers):
        name = f"fc{index}"
        weight = graph.weight(
            f"{name}.weight", (features, features), (2 / features) ** 0.5
        )
        bias = graph.weight(f"{name}.bias", (features,), 0.1)
        last = index == layers - 1
        x = graph.node("Gemm", [x, weight, bias], "y" if last else name, transB=1)
        if not last:
            x = graph.node("Relu", [x], f"{name}.relu")
    graph.output(x, (batch, features))
    return graph.model()


def lstm(
    *,
    batch: Dim = 1,
    steps: Dim = 100,
    features: int = 256,
    hidden: int = 256,
    layers: int = 2,
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """x [steps, batch, features] -> y [steps, batch, hidden]: stacked LSTMs."""
    graph = Graph("lstm", opset=opset, seed=seed)
    x = graph.input("x", (steps, batch, features))
    for index in range(layers):
        name, rows = f"lstm{index}", 4 * hidden
        width = hidden if index else features
        weights = [
            graph.weight(f"{name}.w", (1, rows, width), 2 * width**-0.5),
            graph.weight(f"{name}.r", (1, rows, hidden), hidden**-0.5),
            graph.weight(f"{name}.b", (1, 2 * rows), 0.1),
        ]
        steps_of = graph.node("LSTM", [x, *weights], name, hidden_size=hidden)
        last = "y" if index == layers - 1 else f"{name}.squeeze"
        x = graph.node("Squeeze", [steps_of, graph.ints(1)], last)
    graph.output(x, (steps, batch, hidden))
    return graph.model()


# One cycle of the chain: operator and its second operand ("c": a weight for each
# channel, "s": a scalar, "x": the network's input, "": none).
_CYCLE = (
    ("Mul", "c"),
    ("Add", "c"),
    ("Relu", ""),
    ("Sub", "s"),
    ("Add", "x"),
    ("Abs", ""),
    ("Mul", "s"),
    ("Max", "c"),
    ("Neg", ""),
    ("Min", "s"),
)


def elementwise200(
    *,
    batch: Dim = 1,
    channels: int = 64,
    size: int = 56,
    count: int = 200,
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """x [batch, channels, size, size] -> y of the same shape, by `count`
    element-wise operators in a chain that looks back at x now and then."""
    graph = Graph("elementwise", opset=opset, seed=seed)
    first = x = graph.input("x", (batch, channels, size, size))
    for index in range(count):
        op, operand = _CYCLE[index % len(_CYCLE)]
        name = "y" if index == count - 1 else f"op{index}"
        inputs = [x]
        if operand == "c":
            shape = (channels, 1, 1)
            inputs.append(graph.uniform(f"{name}.weight", shape, -0.9, 0.9))
        elif operand == "s":
            inputs.append(graph.scalar(0.5))
        elif operand == "x":
            inputs.append(first)
        x = graph.node(op, inputs, name)
    graph.output(x, (batch, channels, size, size))
    return graph.model()


def _gaussian(size: int, sigma: float) -> np.ndarray:
    """A [size, size] blur kernel that sums to 1; sigma in pixels."""
    axis = np.arange(size) - (size - 1) / 2
    line = np.exp(-(axis**2) / (2 * sigma**2))
    kernel = np.outer(line, line)
    return (kernel / kernel.sum()).astype(np.float32)


def demo(
    *,
    height: int = 96,
    width: int = 128,
    pad: int = 24,
    batch: Dim = 1,
    padding: str = "plugin",
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """image [batch, 3, height, width], 0 to 1 -> padded [batch, 3, height +
    2 pad, width + 2 pad], and edges [batch, 1, height, width], 0 to 1.

    The image is padded circularly by `pad` for the eye; a Gaussian blur and a
    gradient, both on circular paddings of their own, give the edges, so that an
    edge at the border shows only where the two sides of the image differ.
    padding: "plugin", "slices", or "wrap" (opset 19).
    """
    if padding == "wrap":
        opset = max(opset, 19)
    graph = Graph("demo", opset=opset, seed=seed)
    image = graph.input("image", (batch, 3, height, width))
    padded = graph.circular_pad(image, "padded", pad, domain="example")
    graph.output(padded, (batch, 3, height + 2 * pad, width + 2 * pad))
    grey = np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
    blur = graph.constant("blur.weight", grey * _gaussian(5, 1.0))
    sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], np.float32)
    slope = graph.constant("slope.weight", np.stack([sobel, sobel.T])[:, None])
    x = graph.circular_pad(image, "blur.pad", 2, domain="example")
    x = graph.node("Conv", [x, blur], "blur", kernel_shape=[5, 5])
    x = graph.circular_pad(x, "slope.pad", 1, domain="example")
    x = graph.node("Conv", [x, slope], "slope", kernel_shape=[3, 3])
    x = graph.node("Mul", [x, x], "slope.squared")
    total = graph.constant("total.weight", np.ones((1, 2, 1, 1), np.float32))
    x = graph.node("Conv", [x, total], "slope.sum", kernel_shape=[1, 1])
    x = graph.node("Tanh", [graph.node("Sqrt", [x], "slope.length")], "edges")
    graph.output(x, (batch, 1, height, width))
    model = graph.model()
    return model if padding == "plugin" else known_operators(model, padding)

"""ResNet-50, with zero or circular paddings."""

from __future__ import annotations

import onnx

from .graph import Dim, Graph
from .plugins import known_operators

PADDINGS = ("zero", "plugin", "slices", "wrap")


class _Writer:
    """Writes the parts of a ResNet into a graph."""

    def __init__(self, graph: Graph, *, batch_norm: bool, circular: bool) -> None:
        self.graph = graph
        self.batch_norm = batch_norm
        self.circular = circular

    def conv(
        self,
        x: str,
        name: str,
        channels: tuple[int, int],
        kernel: int,
        *,
        stride: int = 1,
        scale: float = 1.0,
    ) -> str:
        """Padding, convolution and batch normalisation, or a convolution with
        bias whose weights hold the normalisation's scale."""
        graph, pad = self.graph, kernel // 2
        if pad and self.circular:
            x, pad = graph.circular_pad(x, f"{name}.pad", pad), 0
        if self.batch_norm:
            y = graph.conv(x, name, channels, kernel, stride=stride, pad=pad)
            return graph.batch_norm(y, f"{name}.bn", channels[1], scale=scale)
        gain = 2 * scale * scale
        return graph.conv(
            x, name, channels, kernel, stride=stride, pad=pad, gain=gain, bias=True
        )

    def relu(self, x: str, name: str) -> str:
        return self.graph.node("Relu", [x], name)

    def bottleneck(
        self, x: str, name: str, channels: tuple[int, int], width: int, stride: int
    ) -> str:
        """1x1, 3x3 (which carries the stride), 1x1, and the shortcut.

        The branches are scaled so that the sums of sixteen blocks neither
        vanish nor grow past what float16 holds.
        """
        cin, cout = channels
        y = self.relu(self.conv(x, f"{name}.conv1", (cin, width), 1), f"{name}.relu1")
        y = self.conv(y, f"{name}.conv2", (width, width), 3, stride=stride)
        y = self.relu(y, f"{name}.relu2")
        y = self.conv(y, f"{name}.conv3", (width, cout), 1, scale=0.4)
        if stride != 1 or cin != cout:
            x = self.conv(
                x, f"{name}.downsample", (cin, cout), 1, stride=stride, scale=0.8
            )
        return self.relu(self.graph.node("Add", [y, x], f"{name}.add"), f"{name}.relu3")


def resnet50(
    *,
    batch: Dim = 1,
    size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    classes: int = 1000,
    padding: str = "zero",
    batch_norm: bool = True,
    opset: int = 17,
    seed: int = 0,
) -> onnx.ModelProto:
    """image [batch, 3, size, size] -> logits [batch, classes].

    padding: "zero" (ordinary convolutions), or circular done by "plugin" nodes,
    by "slices" (Slice and Concat) or by "wrap" (Pad, opset 19). The pooling
    after the first convolution keeps its own padding.
    batch_norm: nodes of their own, as exporters give; else convolutions with
    bias.
    """
    if padding not in PADDINGS:
        raise ValueError(f"padding is one of {', '.join(PADDINGS)}, not '{padding}'")
    if padding == "wrap":
        opset = max(opset, 19)
    graph = Graph("resnet50", opset=opset, seed=seed)
    writer = _Writer(graph, batch_norm=batch_norm, circular=padding != "zero")
    x = graph.input("image", (batch, 3, size, size))
    x = writer.relu(writer.conv(x, "conv1", (3, width), 7, stride=2), "relu1")
    x = graph.node(
        "MaxPool", [x], "maxpool", kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]
    )
    channels = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            name = f"layer{stage + 1}.{index}"
            x = writer.bottleneck(x, name, (channels, 4 * inner), inner, stride)
            channels = 4 * inner
    x = graph.node("GlobalAveragePool", [x], "avgpool")
    x = graph.node("Flatten", [x], "flatten", axis=1)
    weight = graph.weight("fc.weight", (classes, channels), channels**-0.5)
    bias = graph.weight("fc.bias", (classes,), 0.1)
    x = graph.node("Gemm", [x, weight, bias], "logits", transB=1)
    graph.output(x, (batch, classes))
    model = graph.model()
    return known_operators(model, padding) if padding in ("slices", "wrap") else model

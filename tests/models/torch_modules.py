"""ResNet-50 with circular padding and a BERT-like encoder as torch modules.

Weights are drawn from torch's seeded generator and scaled as those of the models
written with onnx.helper. Shapes: B batch, S sequence, H hidden.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .graph import PLUGIN_NAMESPACE, PLUGIN_OP


@torch.library.custom_op(f"{PLUGIN_NAMESPACE}::{PLUGIN_OP}", mutates_args=())
def circ_pad_plugin(x: Tensor, pads: list[int]) -> Tensor:
    """Circular padding of a 4-D tensor; pads: (before, after) for each axis in
    order, zeros for the first two."""
    last_first = [pads[6], pads[7], pads[4], pads[5]]
    return functional.pad(x, last_first, mode="circular")


@circ_pad_plugin.register_fake
def _(x: Tensor, pads: list[int]) -> Tensor:
    pairs = zip(pads[::2], pads[1::2], strict=True)
    shape = [n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True)]
    return x.new_empty(shape)


class CircularPad(nn.Module):
    """Pads the last two axes of an NCHW tensor by the custom operator."""

    def __init__(self, pad: int) -> None:
        super().__init__()
        self.pads = [0, 0, 0, 0, pad, pad, pad, pad]

    def forward(self, x: Tensor) -> Tensor:
        return circ_pad_plugin(x, self.pads)


def _conv_norm(cin: int, cout: int, kernel: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, kernel, stride, bias=False)
    norm = nn.BatchNorm2d(cout)
    if kernel == 1:
        return nn.Sequential(conv, norm)
    return nn.Sequential(CircularPad(kernel // 2), conv, norm)


class Bottleneck(nn.Module):
    """1x1, 3x3 (which carries the stride), 1x1, and the shortcut."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = 4 * width
        self.conv1 = _conv_norm(cin, width, 1, 1)
        self.conv2 = _conv_norm(width, width, 3, stride)
        self.conv3 = _conv_norm(width, cout, 1, 1)
        same = stride == 1 and cin == cout
        self.shortcut = nn.Identity() if same else _conv_norm(cin, cout, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.conv1(x))
        y = functional.relu(self.conv2(y))
        return functional.relu(self.conv3(y) + self.shortcut(x))


class CircularResNet(nn.Module):
    """image [B, 3, h, w] -> logits [B, classes]; blocks (3, 4, 6, 3) and width
    64 make ResNet-50."""

    def __init__(
        self,
        blocks: tuple[int, ...] = (3, 4, 6, 3),
        width: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = _conv_norm(3, width, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        layers: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            inner = width << stage
            for index in range(count):
                stride = 2 if stage and not index else 1
                layers.append(Bottleneck(channels, inner, stride))
                channels = 4 * inner
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.stem(image)))
        return self.head(self.layers(x).mean((2, 3)))


class EncoderLayer(nn.Module):
    """Post-norm attention and feed-forward; the product's scores are written
    out, as the exporters' decompositions differ between releases."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(hidden, hidden) for _ in range(4)
        )
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.expand = nn.Linear(hidden, ffn)
        self.shrink = nn.Linear(ffn, hidden)

    def split(self, x: Tensor) -> Tensor:
        batch, sequence, hidden = x.shape
        x = x.view(batch, sequence, self.heads, hidden // self.heads)
        return x.transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        y = (scores + mask).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.output(y))
        y = self.shrink(functional.gelu(self.expand(x)))
        return self.norm2(x + y)


class Encoder(nn.Module):
    """input_ids, attention_mask int64 [B, S] -> last_hidden_state [B, S, H]."""

    def __init__(
        self,
        layers: int = 12,
        hidden: int = 768,
        heads: int = 12,
        ffn: int = 3072,
        vocabulary: int = 30522,
        positions: int = 512,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.register_buffer("position_ids", torch.arange(positions)[None])
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(
            EncoderLayer(hidden, heads, ffn) for _ in range(layers)
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        length = input_ids.shape[1]
        x = self.words(input_ids) + self.positions(self.position_ids[:, :length])
        x = self.norm(x)
        mask = 1.0 - attention_mask[:, None, None, :].to(x.dtype)
        mask = mask * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x


def _refill(module: nn.Module, generator: torch.Generator) -> None:
    """Draws one module's own parameters and statistics anew."""
    if isinstance(module, nn.Conv2d):
        fan_in = module.weight[0].numel()
        module.weight.normal_(0, (2 / fan_in) ** 0.5, generator=generator)
    elif isinstance(module, nn.Linear):
        std = 1.2 * module.in_features**-0.5
        module.weight.normal_(0, std, generator=generator)
        module.bias.normal_(0, 0.05, generator=generator)
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(0, 1, generator=generator)
    elif isinstance(module, nn.BatchNorm2d):
        module.weight.uniform_(0.5, 0.9, generator=generator)
        module.bias.normal_(0, 0.1, generator=generator)
        module.running_mean.normal_(0, 0.1, generator=generator)
        module.running_var.uniform_(0.6, 1.6, generator=generator)
    elif isinstance(module, nn.LayerNorm):
        module.weight.normal_(1, 0.1, generator=generator)
        module.bias.normal_(0, 0.1, generator=generator)


def seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in inference mode, its weights drawn from `seed`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            _refill(module, generator)
    return model.eval()

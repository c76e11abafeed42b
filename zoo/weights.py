"""Random weights under which a deep network still tells its inputs apart.

Libraries initialize a network for training: gains near zero, normalizations that change
nothing, variances that vanish or grow with depth. A result of such a network says little
about the engine that computed it. Here constants become random numbers, and one run over
sample inputs scales each product and convolution to outputs of variance one, and gives
batch normalizations variances like those of what they see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

_PRODUCTS = (
    nn.Linear,
    nn.modules.conv._ConvNd,
)


def _disturb(value: torch.Tensor) -> None:
    """Replaces parameters that the initialization set to one number by random
    numbers."""
    if not value.is_floating_point() or value.numel() == 0:
        return
    first = value.flatten()[0].item()
    if not bool((value == first).all()) or not math.isfinite(first):
        return
    noise = torch.randn(value.shape)
    if abs(first) >= 0.05:  # gains, temperatures
        value.copy_(first * (1 + 0.1 * noise))
    elif value.dim() < 2 or first != 0:  # biases, and gains of new residual branches
        value.copy_(0.1 * noise if first == 0 else 0.3 * (1 + 0.3 * noise))
    else:  # weights and tables
        value.copy_(noise / math.sqrt(max(1, value[0].numel())))


def _gain(layer: nn.Module) -> torch.Tensor:
    """The tensor in which a layer's product is linear: its weight, or the source of that."""
    made = getattr(layer, "parametrizations", None)
    return layer.weight.data if made is None else made.weight.original0.data


def _is_transposed(layer: nn.Module) -> bool:
    """GPT-2's layer, a product with a weight that is not transposed."""
    return type(layer).__name__ == "Conv1D"


class _Scaling:
    """Hooks that are in place while the samples are run."""

    def __init__(self, module: nn.Module) -> None:
        self._done: set[int] = set()
        self._hooks = []
        for child in module.modules():
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                self._hooks.append(child.register_forward_pre_hook(self._statistics))
            elif isinstance(child, _PRODUCTS) or _is_transposed(child):
                self._hooks.append(child.register_forward_hook(self._scale))

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _scale(self, layer: nn.Module, inputs: Any, output: torch.Tensor) -> Any:
        """Scales the weight, and not the bias: a weight that is tiny beside its bias would
        stay so."""
        if id(layer) in self._done or not isinstance(output, torch.Tensor):
            return None
        self._done.add(id(layer))
        linear = isinstance(layer, nn.Linear) or _is_transposed(layer)
        axes = 1 if linear else output.dim() - 1  # from the channels on
        bias = 0 if layer.bias is None else layer.bias.view(-1, *[1] * (axes - 1))
        product = output - bias
        spread = float(product.float().std()) if product.numel() > 1 else 0.0
        if not math.isfinite(spread) or spread == 0.0:
            return None
        _gain(layer).div_(spread)
        return product / spread + bias

    def _statistics(self, norm: nn.Module, inputs: Any) -> None:
        value = inputs[0].detach().float()
        if norm.running_mean is None or id(norm) in self._done:
            return
        self._done.add(id(norm))
        if norm.weight is not None and float(norm.weight.data.abs().mean()) < 0.1:
            nn.init.normal_(norm.weight, 1.0, 0.1)
        # Means stay where they are, but for noise: a random network whose batches are
        # centered enlarges a difference by a third in each layer, and rounding is one.
        axes = [0, *range(2, value.dim())]
        power = value.square().mean(axes)
        noise = torch.rand(2, norm.num_features) - 0.5
        norm.running_mean.copy_(0.2 * noise[0] * power.mean().sqrt())
        norm.running_var.copy_((power + power.mean()) * (0.5 + 0.2 * noise[1]))


@torch.no_grad()
def settle(module: nn.Module, run: Callable[[], Any], seed: int = 0) -> None:
    """Gives `module` its weights. run: runs it over the sample inputs."""
    torch.manual_seed(seed)
    for value in module.parameters():
        _disturb(value.data)
    for value in module.buffers():
        if value.dim() > 1:  # codebooks; vectors are statistics
            _disturb(value.data)
    scaling = _Scaling(module)
    try:
        run()
    finally:
        scaling.remove()


def difference(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> list[float]:
    """The distance of each pair of floating-point outputs, relative to their size."""
    found = []
    for x, y in zip(a, b, strict=True):
        if not x.is_floating_point() or x.shape != y.shape or x.numel() == 0:
            continue
        x, y = x.double(), y.double()
        norm = float(y.norm())
        gap = float((x - y).norm())
        found.append(gap / norm if norm else math.inf if gap else 0.0)
    return found

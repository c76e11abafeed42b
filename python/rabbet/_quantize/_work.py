"""The steps of a quantization: ranges, weights, errors, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._errors import InvalidArgumentError
from .._histograms import Histogram
from . import _probe as probe
from ._layers import Layer
from ._model import Model
from ._numbers import Quantized, by_block, by_channel
from ._observe import HessianSum, Observed, observe, scale_of
from ._report import Quantization
from ._rewrite import Rewrite
from ._run import Arrays, Settings
from ._samples import Sample, spread

# Samples on which errors are measured.
_MEASURED = 4
# Bytes of quantized weights that are kept in memory; more go to a temporary file.
_KEPT = 1 << 30
_LARGE_SUM, _LARGE_BLOCK, _SMALL_BLOCK = 2048, 128, 32


class Options(NamedTuple):
    """What the caller asked for."""

    to: str
    method: str
    bound: float
    block_size: int | None


class Work:
    """One quantization."""

    def __init__(
        self,
        model: Model,
        layers: list[Layer],
        samples: list[Sample] | None,
        options: Options,
        settings: Settings,
    ) -> None:
        self.model, self.layers, self.samples = model, layers, samples
        self.options, self.settings = options, settings
        self.weights: dict[tuple[Any, ...], Quantized] = {}
        self.scales: dict[tuple[int, str], float] = {}
        self.kept = 0
        self.warnings: list[str] = []

    # ---- Layers

    def chosen(self) -> list[Layer]:
        """The layers to quantize. A sum is, if the convolution that adds is."""
        return [
            layer
            for layer in self.layers
            if not layer.reason and (layer.product is None or not layer.product.reason)
        ]

    def _leave_sums(self) -> None:
        for layer in self.layers:
            if layer.product is not None and layer.product.reason and not layer.reason:
                layer.reason = "the convolution that adds it is left"

    def _block(self, layer: Layer) -> int:
        if self.options.to != "int4":
            return 0
        extent = layer.shape[1 - layer.axis]
        if self.options.block_size is not None:  # of one block: as many as there are
            return min(self.options.block_size, max(16, 1 << (extent - 1).bit_length()))
        return _LARGE_BLOCK if extent >= _LARGE_SUM else _SMALL_BLOCK

    def inputs(self, rewrite: Rewrite, layer: Layer) -> list[str]:
        """What a quantized layer's node reads."""
        reads = list(layer.node.inputs)
        if self.options.to != "int4":
            scale = self.scales[layer.place]
            dtype = layer.product.dtype if layer.product else layer.dtype
            reads[layer.index] = rewrite.activation(layer, scale, dtype)
        if layer.weights:
            made = self.weights[layer.key]
            reads[1] = rewrite.weights(layer, made, self._block(layer))
        return reads

    # ---- Ranges and weights

    def _find_scales(self) -> None:
        assert self.samples is not None
        layers = self.chosen()
        found: Observed = {}
        for part in observe(self.model, layers, self.samples, self.settings, Histogram):
            found.update(part)
        for layer in layers:
            histogram = found[layer.place]
            if not histogram.is_seen:
                layer.reason = "never ran on the calibration data"
                continue
            try:
                scale = scale_of(histogram, self.options.to, self.options.method)
            except InvalidArgumentError as error:
                layer.reason = f"its input {error}"
                continue
            if scale == 0:
                layer.reason = "its input is zero on the calibration data"
            self.scales[layer.place] = scale

    def _spilled(self, made: Quantized) -> Quantized:
        """The numbers in a temporary file, if there are many of them."""
        import tempfile

        import numpy as np

        self.kept += made.numbers.nbytes
        if self.kept <= _KEPT:
            return made
        with tempfile.TemporaryFile() as file:
            mapped: Any = np.memmap(file, made.numbers.dtype, "w+", 0, made.numbers.shape)
        mapped[...] = made.numbers
        return made._replace(numbers=mapped)

    def _quantize_weights(self) -> None:
        layers = [layer for layer in self.chosen() if layer.weights]
        parts: Iterable[Observed] = [{}]
        if self.options.to == "int4" and self.samples is not None:
            parts = observe(
                self.model, layers, self.samples, self.settings, HessianSum
            )
        for seen in parts:
            for layer in layers:
                if layer.key in self.weights or (seen and layer.place not in seen):
                    continue
                found = seen.get(layer.place)
                made = self._quantized(layer, None if found is None else found.total)
                if made is not None:
                    self.weights[layer.key] = self._spilled(made)
        for layer in layers:
            if layer.key in self.weights:
                layer.error = self.weights[layer.key].error
            else:
                layer.reason = "its weights hold NaN or infinity"
        self._leave_sums()

    def _quantized(self, layer: Layer, hessian: Any) -> Quantized | None:
        """The weights in few bits; None if they are not finite."""
        import numpy as np

        values, to = layer.values(), self.options.to
        if not np.isfinite(values.sum(dtype=np.float64)):
            return None
        if to != "int4":
            return by_channel(values, layer.axis, to, layer.dtype)
        return by_block(values, layer.axis, self._block(layer), hessian, layer.dtype)

    # ---- Errors

    def _edit(self) -> None:
        """Quantizes the layers in the model."""
        rewrite = Rewrite(self.model, self.options.to)
        for layer in self.chosen():
            layer.node.inputs = self.inputs(rewrite, layer)
        rewrite.finish()

    def _error(self, samples: Sequence[Sample], wanted: Sequence[Arrays]) -> float | None:
        with self.model.scratch():
            self._edit()
            found = probe.outputs_of(self.model, samples, self.settings)
        comparison = probe.Comparison()
        for actual, expected in zip(found, wanted, strict=True):
            comparison.add(actual, expected)
        return comparison.error

    def _measure(self) -> float | None:
        """The errors of the layers and of the model, which holds the bound then."""
        assert self.samples is not None
        samples = spread(self.samples, _MEASURED)
        to, layers = self.options.to, self.chosen()
        probe.layer_errors(
            self.model, layers, samples, self.settings, self.inputs, to
        )
        wanted = probe.outputs_of(self.model, samples, self.settings)
        error = self._error(samples, wanted)
        if error is None:
            self._leave_by_own_error(layers)
            return None
        if error <= self.options.bound:
            return error
        probe.errors_alone(
            self.model, layers, samples, wanted, self.settings, self.inputs, to
        )
        return self._leave_most(layers, samples, wanted)

    def _leave_by_own_error(self, layers: Sequence[Layer]) -> None:
        self.warnings.append(
            "the model's outputs cannot be compared: none is of floating type, or their "
            "extents depend on data; the bound was held for each layer's own output"
        )
        for layer in layers:
            if layer.error is not None and layer.error > self.options.bound:
                layer.reason = "its own error is above the bound"
        self._leave_sums()

    def _leave_most(
        self,
        layers: Sequence[Layer],
        samples: Sequence[Sample],
        wanted: Sequence[Arrays],
    ) -> float | None:
        """Leaves as few layers as hold the bound, those with the largest errors first."""
        order = sorted(layers, key=lambda layer: -(layer.alone or 0))

        def leave(count: int) -> float | None:
            for i, layer in enumerate(order):
                layer.reason = "error" if i < count else ""
            return self._error(samples, wanted)

        low, high = 0, len(order)  # the bound does not hold with `low`, and does with `high`
        error: float | None = 0.0
        while high - low > 1:
            middle = (low + high) // 2
            found = leave(middle)
            if found is not None and found <= self.options.bound:
                high, error = middle, found
            else:
                low = middle
        leave_count = high
        for i, layer in enumerate(order):
            layer.reason = (
                f"the outputs' error would be above {100 * self.options.bound:g} %"
                if i < leave_count
                else ""
            )
        self._leave_sums()
        return error

    def run(self) -> Quantization:
        """All steps."""
        to = self.options.to
        if to != "int4":
            self._find_scales()
        self._leave_sums()
        self._quantize_weights()
        error = None
        what = "of the weights alone"
        if self.samples is not None:
            error = self._measure()
            what = "of a layer's output, for its inputs in floating point"
            if any(layer.alone is not None for layer in self.layers):
                what += "; alone: of the model's outputs, where it alone is quantized"
        if not self.chosen():
            self.warnings.append("no layer is quantized")
        self._edit()
        return Quantization(self.model, to, self.layers, error, what, self.warnings)

"""Models with weights, and maybe activations, of 4 and 8 bits, made from others by ONNX
Runtime's quantizers."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import onnx
from onnx import version_converter

from . import light, reference, resnet, transformer
from .graph import Dim

_SAMPLES = 2
_OPSET = 13  # the first whose Q/DQ nodes take a scale for each channel


class _Samples:
    """Inputs to calibrate with."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.left = [reference.sample_inputs(model, seed=s) for s in range(_SAMPLES)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def _quantize(model: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """INT8 activations for each tensor and weights for each channel, with Q/DQ nodes
    ("qdq") or operators of integers ("operators")."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    forms = {"qdq": quantization.QuantFormat.QDQ,
             "operators": quantization.QuantFormat.QOperator}  # fmt: skip
    if form not in forms:
        raise ValueError(f"form is one of {', '.join(forms)}, not '{form}'")
    if model.opset_import[0].version < _OPSET:
        model = version_converter.convert_version(model, _OPSET)
    with tempfile.TemporaryDirectory() as folder:
        source, folded = Path(folder) / "source.onnx", Path(folder) / "folded.onnx"
        result = Path(folder) / "result.onnx"
        onnx.save(model, source)
        quant_pre_process(source, folded, skip_symbolic_shape=True)
        quantization.quantize_static(
            folded, result, _Samples(model), quant_format=forms[form], per_channel=True,
            extra_options={"ActivationSymmetric": True},
        )  # fmt: skip
        return onnx.load(result)


def resnet50_int8(
    *,
    batch: int = 1,
    size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    classes: int = 1000,
    form: str = "qdq",
    seed: int = 0,
) -> onnx.ModelProto:
    """ResNet-50, quantized with two calibration samples."""
    source = resnet.resnet50(
        batch=batch, size=size, width=width, blocks=blocks, classes=classes, seed=seed
    )
    return _quantize(source, form)


def light_int8(
    *, model: str = "light_squeezenet", form: str = "qdq", seed: int = 0
) -> onnx.ModelProto:
    """A light model, quantized with two calibration samples."""
    return _quantize(light.light(model=model, seed=seed), form)


def decoder_int4(
    *,
    batch: Dim = 1,
    sequence: Dim = 1,
    layers: int = 2,
    hidden: int = 2048,
    heads: int = 16,
    ffn: int = 8192,
    vocabulary: int = 8192,
    positions: int = 128,
    bits: int = 4,
    block: int = 32,
    accuracy_level: int = 0,
    seed: int = 0,
) -> onnx.ModelProto:
    """A GPT-2-like decoder whose products are MatMulNBits. By default one token: each
    product has one row, and its time is that of reading the weights.

    bits: of a weight, 0: unquantized. accuracy_level: of ONNX Runtime; 4 lets it round
    activations to INT8.
    """
    model = transformer.gpt2_small(
        batch=batch, sequence=sequence, layers=layers, hidden=hidden, heads=heads,
        ffn=ffn, vocabulary=vocabulary, positions=positions, seed=seed,
    )  # fmt: skip
    if bits == 0:
        return model
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizer

    logging.getLogger(quantizer.__name__).setLevel(logging.WARNING)
    made = quantizer.MatMulNBitsQuantizer(
        model, bits=bits, block_size=block, is_symmetric=True,
        accuracy_level=accuracy_level,
    )  # fmt: skip
    made.process()
    return made.model.model

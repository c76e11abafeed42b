"""Post-training quantization of ONNX models (docs/quantize.md)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .. import _enums as e
from .._build import check_writable
from .._callbacks import ILogger, Logger
from .._checked import File, checks_arguments
from .._errors import InvalidArgumentError
from .._plugins import load_plugins
from ._fold import fold_normalizations
from ._layers import Patterns, find
from ._model import Model
from ._observe import METHODS
from ._opset import needed, raise_opset
from ._report import Quantization, QuantizedLayer
from ._run import Settings
from ._samples import read_samples
from ._work import Options, Work

# Relative errors of the outputs that are held unless the caller gives another bound.
BOUNDS = {"int8": 0.1, "fp8": 0.1, "int4": 0.3}


def _kind(int8: bool, int4: bool, fp8: bool) -> str:
    chosen = [
        name
        for name, given in (("int8", int8), ("int4", int4), ("fp8", fp8))
        if given
    ]
    if len(chosen) > 1:
        raise InvalidArgumentError(
            f"quantize: {' and '.join(chosen)} are given; expected one of int8, int4, fp8"
        )
    return chosen[0] if chosen else "int8"


def _check(
    to: str, method: str, calibration: Any, block_size: Any, bound: Any, samples: Any
) -> None:
    if method not in METHODS:
        raise InvalidArgumentError(
            f"quantize: method is {method!r}; expected one of {', '.join(METHODS)}"
        )
    if to != "int4" and calibration is None:
        raise InvalidArgumentError(
            f"quantize: {to} needs calibration data, from which the ranges of "
            "activations are found; int4 alone needs none"
        )
    if block_size is not None and (
        to != "int4" or block_size < 16 or block_size & (block_size - 1)
    ):
        raise InvalidArgumentError(
            f"quantize: block_size is {block_size}; expected a power of two from 16 on, "
            "with int4"
        )
    if samples is not None and samples < 1:
        raise InvalidArgumentError(
            f"quantize: samples is {samples}; expected a number from 1 on"
        )
    if bound is not None and not bound >= 0:
        raise InvalidArgumentError(
            f"quantize: max_error is {bound}; expected a share of the outputs from 0 on, "
            "such as 0.05"
        )
    if bound is not None and calibration is None:
        raise InvalidArgumentError(
            "quantize: max_error is measured on calibration data, and none are given"
        )


def _model_of(source: Any) -> Model:
    kinds = (str, os.PathLike, bytes, bytearray, memoryview)
    is_model = callable(getattr(source, "SerializeToString", None)) and hasattr(
        source, "graph"
    )
    if not isinstance(source, kinds) and not is_model:
        raise TypeError(
            "quantize takes the path of an ONNX file, its bytes or an onnx.ModelProto, "
            f"got a {type(source).__name__}"
        )
    return Model.load(source)


@checks_arguments
def quantize(
    model: Any,
    calibration: Any = None,
    *,
    int8: bool = False,
    int4: bool = False,
    fp8: bool = False,
    save: File | None = None,
    max_error: float | None = None,
    method: str = "mse",
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    block_size: int | None = None,
    samples: int | None = None,
    external_data: bool = False,
    plugins: Any = None,
    device: str | None = None,
    threads: int | None = None,
    verbose: bool = False,
    logger: ILogger | None = None,
) -> Quantization:
    """Quantizes an ONNX model, and measures what that changes.

    The result has QuantizeLinear and DequantizeLinear nodes of standard ONNX, which
    rabbet.compile() and other engines read; print() of it is a table of the layers.

    model: path of an ONNX file, its bytes, or an onnx.ModelProto.
    calibration: samples of the inputs: a .npz file with an array for each input, whose
        first axis is samples; a folder of such files; {input: array}; or an iterable of
        such. int8 and fp8 need them, int4 becomes more exact.
    int8: weights by output channel, and activations; the default.
    fp8: the same in E4M3.
    int4: weights alone of MatMul and Gemm, in blocks.
    save: where to write the model.
    max_error: the largest relative error of the outputs; layers are left in floating
        point, those with the largest errors first, until it holds. Default: 0.1, for
        int4 0.3.
    method: how the range of an activation is found: "mse" (least squared error), "max",
        "percentile" (99.99 % of the values) or "entropy".
    include, exclude: names of layers or operators, in which * stands for any text: the
        only ones to quantize, and those to leave.
    block_size: of int4; default: 128 where sums have 2048 elements or more, else 32.
    samples: at most so many of the calibration data are used.
    external_data: weights are written to SAVE.data, as those of large models always are.
    plugins: files or modules that register the model's own operators.
    device, threads: where the model runs for calibration; default as for compile().
    verbose, logger: as for compile().
    """
    to = _kind(int8, int4, fp8)
    _check(to, method, calibration, block_size, max_error, samples)
    check_writable("save", save)
    load_plugins(plugins)
    log = logger or Logger(e.Severity.VERBOSE if verbose else e.Severity.ERROR)
    source = _model_of(model)
    fold_normalizations(source)
    layers = find(source, to, Patterns("include", include), Patterns("exclude", exclude))
    dtypes = {layer.dtype for layer in layers if not layer.reason and layer.weights}
    raise_opset(source, needed(to, dtypes))
    options = Options(
        to, method, BOUNDS[to] if max_error is None else max_error, block_size
    )
    data = None
    if calibration is not None:
        data = read_samples(calibration, source.graph.inputs, samples)
    work = Work(source, layers, data, options, Settings(device, threads, log))
    result = work.run()
    if save is not None:
        result.save(save, external_data)
    return result


__all__ = ["Quantization", "QuantizedLayer", "quantize"]

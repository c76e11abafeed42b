"""Values of TensorRT's flags that are accepted without effect, each with the reason,
which docs/reference/names.md repeats. A build warns of flags that ask for a feature that
Rabbet lacks."""

from __future__ import annotations

import enum

from . import _enums as e
from ._managed import no_effect

_NOT_HAD = {
    e.BuilderFlag.SPARSE_WEIGHTS: "there are no kernels for sparse weights",
    e.BuilderFlag.SAFETY_SCOPE: "there are no safety engines",
    e.BuilderFlag.VERSION_COMPATIBLE: "a plan is for the release that wrote it",
    e.BuilderFlag.WEIGHT_STREAMING: "weights stay on the device",
    e.BuilderFlag.INT4: "no kernel computes in INT4",
    e.BuilderFlag.FP4: "no kernel computes in FP4",
}
"""Flags for features that Rabbet lacks: a build with them logs a warning."""

# Pairs, as values of different enumerations may be equal numbers.
_IDLE: list[tuple[enum.Enum, str]] = [
    *_NOT_HAD.items(),
    (e.BuilderFlag.DEBUG, "errors always name the layer"),
    (e.BuilderFlag.GPU_FALLBACK, "there is no DLA to fall back from"),
    (e.BuilderFlag.OBEY_PRECISION_CONSTRAINTS, "precisions that are set are always kept"),
    (e.BuilderFlag.PREFER_PRECISION_CONSTRAINTS, "precisions that are set are always kept"),
    (e.BuilderFlag.DIRECT_IO, "inputs and outputs always have the formats that are set"),
    (e.BuilderFlag.EXCLUDE_LEAN_RUNTIME, "plans hold no runtime"),
    (e.BuilderFlag.FP8, "FP8 is used where the network quantizes to it"),
    (e.BuilderFlag.DISABLE_COMPILATION_CACHE, "no such cache is kept"),
    (e.BuilderFlag.STRICT_NANS, "no kernel depends on it"),
    (e.BuilderFlag.MONITOR_MEMORY, "the verbose log prints memory"),
    (e.BuilderFlag.EDITABLE_TIMING_CACHE, "timing caches can always be edited"),
    (
        e.BuilderFlag.DISTRIBUTIVE_INDEPENDENCE,
        "no result depends on other elements of a batch",
    ),
    (e.OnnxParserFlag.NATIVE_INSTANCENORM, "InstanceNorm is built in"),
    (e.OnnxParserFlag.ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA, "there is no DLA"),
    (e.OnnxParserFlag.REPORT_CAPABILITY_DLA, "there is no DLA"),
    (e.OnnxParserFlag.ADJUST_FOR_DLA, "there is no DLA"),
    (e.PreviewFeature.PROFILE_SHARING_0806, "previews are always on"),
    (e.PreviewFeature.ALIASED_PLUGIN_IO_10_03, "previews are always on"),
    (e.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10, "memory always fits the shapes"),
    (e.PreviewFeature.MULTIDEVICE_RUNTIME_10_16, "a plan runs on one device"),
    (e.SerializationFlag.EXCLUDE_LEAN_RUNTIME, "plans hold no runtime"),
    (e.TacticSource.EDGE_MASK_CONVOLUTIONS, "Rabbet's own kernels are always tried"),
    (e.TacticSource.JIT_CONVOLUTIONS, "Rabbet's own kernels are always tried"),
]

for _value, _why in _IDLE:
    no_effect(_why)(_value)


def warnings_of(flags: int) -> list[str]:
    """The warnings that a build with these flags (bits) logs."""
    return [
        f"BuilderFlag.{flag.name} has no effect: {why}"
        for flag, why in _NOT_HAD.items()
        if flags >> int(flag) & 1
    ]

"""Calibrators of INT8: classes to derive from."""

from __future__ import annotations

from typing import Any

from ._enums import CalibrationAlgoType as _Algorithm


class IInt8Calibrator:
    """Feeds batches of samples to a calibration of INT8: derive from one of the classes
    below, which name the algorithm, and define get_batch."""

    _algorithm: _Algorithm | None = None

    def __init__(self) -> None:
        pass

    def _missing(self, method: str) -> Exception:
        return NotImplementedError(f"{type(self).__name__} must define {method}")

    def get_algorithm(self) -> _Algorithm:
        """How ranges are chosen."""
        if self._algorithm is None:
            raise self._missing("get_algorithm()")
        return self._algorithm

    def get_batch_size(self) -> int:
        """Samples in a batch: the first dimension of inputs where that is dynamic."""
        raise self._missing("get_batch_size()")

    def get_batch(self, names: list[str]) -> list[int] | None:
        """Addresses of the inputs with these names, on the build's device, for the
        next batch; None or []: there are no more."""
        raise self._missing("get_batch(names)")

    def read_calibration_cache(self) -> Any:
        """The bytes that write_calibration_cache was given before; None: nothing."""
        return None

    def write_calibration_cache(self, cache: memoryview) -> None:
        """Gets the ranges found: `cache.tobytes()` is the contents of a cache file."""


class IInt8EntropyCalibrator(IInt8Calibrator):
    """Ranges that lose the least information, for tensors between fused layers."""

    _algorithm = _Algorithm.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """Ranges that lose the least information."""

    _algorithm = _Algorithm.ENTROPY_CALIBRATION_2


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Ranges in which every value lies."""

    _algorithm = _Algorithm.MINMAX_CALIBRATION


class IInt8LegacyCalibrator(IInt8Calibrator):
    """Ranges that hold a share of the values, for tensors between fused layers."""

    _algorithm = _Algorithm.LEGACY_CALIBRATION

    def get_quantile(self) -> float:
        """Share of a tensor's values that its range shall hold, above 0, at most 1."""
        raise self._missing("get_quantile()")

    def get_regression_cutoff(self) -> float:
        """Part of the largest value that a range has at most, above 0, at most 1."""
        raise self._missing("get_regression_cutoff()")

    def read_histogram_cache(self, length: int = 0) -> Any:
        """The bytes that write_histogram_cache got before; None: nothing. With it other
        quantiles need no batches."""
        return None

    def write_histogram_cache(self, ptr: int, length: int) -> None:
        """Told where the histograms lie, during the call."""


def check_calibrator(calibrator: Any) -> None:
    """TypeError for anything else."""
    if calibrator is not None and not isinstance(calibrator, IInt8Calibrator):
        raise TypeError(
            "int8_calibrator: expected a class derived from rabbet.IInt8Calibrator "
            f"(IInt8EntropyCalibrator2, ...), got {calibrator!r}"
        )

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
        """The algorithm that chooses ranges."""
        if self._algorithm is None:
            raise self._missing("get_algorithm()")
        return self._algorithm

    def get_batch_size(self) -> int:
        """Samples in a batch: the extent of the inputs' first dimension where it is
        dynamic."""
        raise self._missing("get_batch_size()")

    def get_batch(self, names: list[str]) -> list[int] | None:
        """Device addresses of the next batch, one for each input name; None or []: the
        end."""
        raise self._missing("get_batch(names)")

    def read_calibration_cache(self) -> Any:
        """Returns the bytes that write_calibration_cache received earlier; None:
        none."""
        return None

    def write_calibration_cache(self, cache: memoryview) -> None:
        """Receives the ranges found: `cache.tobytes()` is the contents of a cache
        file."""


class IInt8EntropyCalibrator(IInt8Calibrator):
    """Ranges of minimal information loss, for the tensors that remain after fusion."""

    _algorithm = _Algorithm.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """Ranges of minimal information loss."""

    _algorithm = _Algorithm.ENTROPY_CALIBRATION_2


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Ranges that contain every value."""

    _algorithm = _Algorithm.MINMAX_CALIBRATION


class IInt8LegacyCalibrator(IInt8Calibrator):
    """Ranges that contain a share of the values, for the tensors that remain after
    fusion."""

    _algorithm = _Algorithm.LEGACY_CALIBRATION

    def get_quantile(self) -> float:
        """Share of a tensor's values that its range contains, in (0, 1]."""
        raise self._missing("get_quantile()")

    def get_regression_cutoff(self) -> float:
        """Upper limit of a range, as a share of the largest absolute value, in (0,
        1]."""
        raise self._missing("get_regression_cutoff()")

    def read_histogram_cache(self, length: int = 0) -> Any:
        """Returns the bytes that write_histogram_cache received earlier; None: none.
        With them, calibrating for other quantiles needs no batches."""
        return None

    def write_histogram_cache(self, ptr: int, length: int) -> None:
        """Receives the histograms' address and length; the memory is valid during the
        call."""

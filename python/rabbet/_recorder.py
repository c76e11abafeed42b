"""Reports exceptions to error recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import _errors
from ._enums import ErrorCodeTRT

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_rabbet_recorded"

# The first matching class determines the code.
_CODES: tuple[tuple[type[BaseException], ErrorCodeTRT], ...] = (
    (_errors.OutOfMemoryError, ErrorCodeTRT.FAILED_ALLOCATION),
    (_errors.UnsupportedError, ErrorCodeTRT.UNSUPPORTED_STATE),
    (_errors.UnavailableError, ErrorCodeTRT.FAILED_INITIALIZATION),
    (_errors.FailedPreconditionError, ErrorCodeTRT.INVALID_STATE),
    (_errors.PluginError, ErrorCodeTRT.FAILED_EXECUTION),
    (_errors.InternalError, ErrorCodeTRT.INTERNAL_ERROR),
    (_errors.Error, ErrorCodeTRT.INVALID_ARGUMENT),
    (TypeError, ErrorCodeTRT.INVALID_ARGUMENT),
)


def error_code(error: BaseException) -> ErrorCodeTRT:
    """Error code of an exception. An exception from a plugin or another callback counts
    as a failed execution."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ErrorCodeTRT.FAILED_EXECUTION


def report(self: Any, error: Exception) -> None:
    """Reports an error to the object's `error_recorder`, if it has one."""
    if self.error_recorder is not None:
        self.error_recorder.report_error(error_code(error), str(error))


def recorded(method: Method) -> Method:
    """Marks a method of a class that checks arguments: its exceptions are reported to the
    object's `error_recorder`, if it has one, and raised again."""
    setattr(method, _MARK, True)
    return method


def is_recorded(method: Any) -> bool:
    """Whether a method is marked."""
    return hasattr(method, _MARK)

"""Exceptions, one for each status code of the C interface."""

from __future__ import annotations


class Error(Exception):
    """Base of every exception that Rabbet raises by itself.

    Each class also derives from the corresponding built-in exception, so that
    `except ValueError` works.
    """


class InvalidArgumentError(Error, ValueError):
    """An argument is invalid, whatever the object's state."""


class NotFoundError(Error, LookupError):
    """A named thing does not exist."""


class AlreadyExistsError(Error, ValueError):
    """The name is already in use."""


class OutOfRangeError(Error, IndexError, ValueError):
    """An index does not exist, or a shape is outside the profile."""


class FailedPreconditionError(Error, RuntimeError):
    """The call is not valid in the object's present state."""


class OutOfMemoryError(Error, MemoryError):
    """Memory is exhausted."""


class UnsupportedError(Error, NotImplementedError):
    """The request is valid, but no device or kernel supports it."""


class UnavailableError(Error, RuntimeError):
    """A library, driver or device is missing."""


class DataLossError(Error, ValueError):
    """A file is damaged or truncated."""


class IncompatibleError(Error, RuntimeError):
    """The data is for another version or device."""


class IoError(Error, OSError):
    """The operating system reported an error."""


class PluginError(Error, RuntimeError):
    """A plugin's function failed, or returned an invalid result."""


class InternalError(Error, RuntimeError):
    """A bug in Rabbet."""


class CancelledError(Error):
    """The caller cancelled the operation."""


# By status code; 0 is success and never raised.
STATUS_ERRORS: tuple[type[BaseException], ...] = (
    InternalError,
    CancelledError,
    InvalidArgumentError,
    NotFoundError,
    AlreadyExistsError,
    OutOfRangeError,
    FailedPreconditionError,
    OutOfMemoryError,
    UnsupportedError,
    UnavailableError,
    DataLossError,
    IncompatibleError,
    IoError,
    PluginError,
    InternalError,
)

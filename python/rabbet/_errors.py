"""Exceptions, one for each status code of the C interface."""

from __future__ import annotations


class Error(Exception):
    """Base of every exception that Rabbet raises by itself.

    Each kind derives from the built-in exception that fits as well, so that
    `except ValueError` works as one would expect.
    """


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong in any state."""


class NotFoundError(Error, LookupError):
    """A named thing does not exist."""


class AlreadyExistsError(Error, ValueError):
    """The name is taken."""


class OutOfRangeError(Error, IndexError, ValueError):
    """An index does not exist, or a shape lies outside the profile."""


class FailedPreconditionError(Error, RuntimeError):
    """The right call at the wrong moment."""


class OutOfMemoryError(Error, MemoryError):
    """Memory is short."""


class UnsupportedError(Error, NotImplementedError):
    """Valid, but no device or kernel does it."""


class UnavailableError(Error, RuntimeError):
    """A library, driver or device is missing."""


class DataLossError(Error, ValueError):
    """A file is damaged or truncated."""


class IncompatibleError(Error, RuntimeError):
    """Made for another version or device."""


class IoError(Error, OSError):
    """The operating system said no."""


class PluginError(Error, RuntimeError):
    """A plugin's function failed, or returned an invalid result."""


class InternalError(Error, RuntimeError):
    """A bug in Rabbet."""


class CancelledError(Error):
    """The caller asked to stop."""


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

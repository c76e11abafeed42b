"""What commands that are written in Python share."""

from __future__ import annotations

from collections.abc import Callable

from ._errors import STATUS_ERRORS, Error, IoError, OutOfMemoryError

# Values by option, as the command line has them; a flag has the value "".
Options = dict[str, list[str]]


def code_of(error: BaseException) -> int:
    """The status code of an error."""
    codes = range(len(STATUS_ERRORS) - 1, 0, -1)
    return next(code for code in codes if isinstance(error, STATUS_ERRORS[code]))


def failure_of(command: Callable[[], None]) -> tuple[int, str] | None:
    """Runs a command; (status code, message) where it failed."""
    try:
        command()
    except Error as error:
        return code_of(error), str(error)
    except MemoryError as error:
        return code_of(OutOfMemoryError()), str(error) or "out of memory"
    except OSError as error:
        return code_of(IoError()), str(error)
    return None

"""rabbet build --for: plans of a folder, by the command's options; --ranks: see
_split_command.py."""

from __future__ import annotations

import os
from pathlib import Path

from . import _split_command
from ._callbacks import Logger
from ._commands import Options, failure_of
from ._enums import Severity
from ._errors import InvalidArgumentError
from ._plan_builds import COMMANDS_OWN, build_all


def _recipe(options: Options) -> list[str]:
    words = []
    for name, values in options.items():
        if name not in COMMANDS_OWN:
            words += [
                word
                for value in values
                for word in ((name, value) if value else (name,))
            ]
    return words


def _build(model: str, options: Options) -> None:
    for name in ("--device", "--json", "--retime"):
        if name in options:
            raise InvalidArgumentError(f"{name} and --for exclude each other")
    folder = options.get("--output", [str(Path(model).with_suffix(".plans"))])[-1]
    cache = options.get("--timing-cache")
    paths = build_all(
        model,
        folder,
        ",".join(options["--for"]),
        {"command": _recipe(options)},
        options.get("--plugins"),
        {"timing_cache": os.path.abspath(cache[-1])} if cache else {},
        Logger(Severity.VERBOSE if "--verbose" in options else Severity.WARNING),
    )
    for path in () if "--quiet" in options else paths:
        print(f"wrote {path}, {os.path.getsize(path) / 1e6:.1f} MB")


def run(model: str, options: Options) -> tuple[int, str] | None:
    """Runs the command; returns (status code, message) where it failed."""

    def command() -> None:
        if any(name in options for name in ("--ranks", "--pipeline", "--cuts")):
            _split_command.build(model, options)
        else:
            _build(model, options)

    return failure_of(command)

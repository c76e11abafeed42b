"""rabbet quantize: the command's options as arguments of rabbet.quantize()."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._commands import Options, failure_of
from ._errors import InvalidArgumentError, NotFoundError
from ._quantize import quantize

_KINDS = ("int8", "fp8", "int4")


def _number(options: Options, name: str, kind: Callable[[str], Any]) -> Any:
    if name not in options:
        return None
    text = options[name][-1]
    try:
        return kind(text)
    except ValueError:
        wanted = "an integer" if kind is int else "a number"
        raise InvalidArgumentError(f"{name} is '{text}'; expected {wanted}") from None


def _default_output(model: str, options: Options) -> str:
    kind = next((kind for kind in _KINDS if f"--{kind}" in options), "int8")
    return str(Path(model).with_suffix(f".{kind}.onnx"))


def _quantize(model: str, options: Options) -> None:
    def last(name: str) -> str | None:
        return options[name][-1] if name in options else None

    output = last("--output") or _default_output(model, options)
    if os.path.exists(output) and os.path.samefile(model, output):
        raise InvalidArgumentError(f"--output: '{output}' is the model itself")
    method = last("--method")
    result = quantize(
        model,
        last("--calibration"),
        **{kind: True for kind in _KINDS if f"--{kind}" in options},  # type: ignore[arg-type]
        **({} if method is None else {"method": method}),  # type: ignore[arg-type]
        save=output,
        max_error=_number(options, "--max-error", float),
        include=options.get("--include"),
        exclude=options.get("--exclude"),
        block_size=_number(options, "--block-size", int),
        samples=_number(options, "--samples", int),
        external_data="--external-data" in options,
        plugins=[f for f in options.get("--plugins", ()) if f.endswith(".so")],
        device=last("--device"),
        threads=_number(options, "--threads", int),
        verbose="--verbose" in options,
    )
    if "--json" in options:
        print(result.json())
    elif "--quiet" not in options:
        print(result)
        print(f"wrote {output}")


def run(model: str, options: Options) -> tuple[int, str] | None:
    """Runs the command; returns (status code, message) where it failed."""

    def command() -> None:
        try:
            _quantize(model, options)
        except NotFoundError as error:  # a layer's name: the command line is wrong
            raise InvalidArgumentError(str(error)) from error

    return failure_of(command)

"""Kernels made ahead of time: their code, and the arguments that compilers add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

from ._ptx import hidden, kernels, parameters
from ._rabbet import NUMBERS

# Kinds of arguments.
INPUT = NUMBERS["PLUGIN_ARG_INPUT"]
OUTPUT = NUMBERS["PLUGIN_ARG_OUTPUT"]
WORKSPACE = NUMBERS["PLUGIN_ARG_WORKSPACE"]
INTEGER = NUMBERS["PLUGIN_ARG_INTEGER"]
BYTES = NUMBERS["PLUGIN_ARG_BYTES"]
MAP = NUMBERS["PLUGIN_ARG_TENSOR_MAP"]
_ELF = b"\x7fELF"

# Compute capability (major -1: PTX; 0: the GPU of the build), and the code.
Image = tuple[int, int, bytes]


class Check(Protocol):
    """Raises errors that name the plugin."""

    def fail(self, message: str) -> NoReturn:
        """Raises an error with the message."""


def images_of(check: Check, name: str, code: Any) -> list[Image]:
    """Code of a kernel, for each kind of GPU that it was compiled for."""
    if isinstance(code, Mapping) and code:
        return [_image(check, name, key, item) for key, item in code.items()]
    return [_image(check, name, None, code)]


def _image(check: Check, name: str, key: Any, code: Any) -> Image:
    data = code.encode() if isinstance(code, str) else code
    if not isinstance(data, (bytes, bytearray)) or not data:
        check.fail(
            f"kernel '{name}': the code is {code!r:.60}; expected PTX, the bytes "
            'of a cubin, or {"sm_90": cubin, "ptx": text}'
        )
    data = bytes(data)
    text = not data.startswith(_ELF) and data.isascii() and b"\0" not in data
    if text and kernels(data) is None:
        check.fail(
            f"kernel '{name}': the code is text that is not PTX, beginning "
            f"{data[:40].decode()!r}; compile it first, by NVRTC for instance"
        )
    if not data.startswith(_ELF):
        return -1, -1, data
    if key is None:
        return 0, 0, data
    digits = str(key).removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
    if not digits.isdigit() or len(digits) < 2:
        check.fail(
            f"kernel '{name}': machine code is for {key!r}; expected an "
            "architecture such as 'sm_90'"
        )
    return int(digits[:-1]), int(digits[-1]), data


def _size_of(arg: tuple[Any, ...]) -> int:
    """Bytes of an encoded argument."""
    if arg[0] in (INTEGER, BYTES):
        return int(arg[3])
    return 128 if arg[0] == MAP else 8


def hidden_arguments(
    check: Check, name: str, images: list[Image], args: list[Any]
) -> list[Any]:
    """Arguments that the compiler added. Checks the declared ones against the PTX, if
    there is any: with too few arguments the driver would read out of bounds."""
    code = next((code for major, _, code in images if major < 0), b"")
    names = kernels(code)
    if names is not None and name not in names:
        check.fail(
            f"the PTX has no kernel '{name}'; it has {', '.join(names) or 'none'}"
        )
    there = parameters(code, name)
    if there is None:
        return []
    count = hidden(code, len(args), there)
    if len(args) + count != len(there):
        check.fail(
            f"kernel '{name}' takes {len(there)} parameters, {len(args)} arguments "
            "are given"
        )
    for i, (arg, parameter) in enumerate(zip(args, there, strict=False)):
        size = _size_of(arg)
        if size != parameter.size:
            check.fail(
                f"kernel '{name}', argument {i} is of {size} bytes, its parameter "
                f"of {parameter.size}"
            )
    return [(BYTES, 0, 0, 8, bytes(8), None)] * count

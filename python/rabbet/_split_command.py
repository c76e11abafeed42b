"""rabbet build --ranks: a plan for each GPU of a model that is split over several."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import _rabbet, parallel
from ._builder import Builder
from ._callbacks import Logger
from ._commands import Options
from ._enums import NetworkDefinitionCreationFlag, Severity
from ._errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    UnsupportedError,
)
from ._onnx import OnnxParser
from ._plugins import load_plugins
from ._profiles import fixed_shapes, usual_shapes

_RANGE = ("--min-shapes", "--opt-shapes", "--max-shapes")


def _last(options: Options, name: str) -> str | None:
    return options[name][-1] if name in options else None


def _integer(options: Options, name: str) -> int | None:
    text = _last(options, name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidArgumentError(f"{name} is '{text}'; expected an integer") from None


# ---- Cuts --------------------------------------------------------------------------


def _pieces(text: str, mark: str) -> Iterator[str]:
    """Parts between marks; within single quotes there are none."""
    start, quoted = 0, False
    for i, letter in enumerate(text):
        quoted ^= letter == "'"
        if letter == mark and not quoted:
            yield text[start:i]
            start = i + 1
    if quoted:
        raise InvalidArgumentError(f"--cuts {text}: a quote is not closed")
    yield text[start:]


def _name(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("''", "'") if is_quoted else text


def _cuts(options: Options) -> list[tuple[str, ...]] | None:
    if "--cuts" not in options:
        return None
    text = ",".join(options["--cuts"])
    made = [tuple(map(_name, _pieces(border, "+"))) for border in _pieces(text, ",")]
    if not all(all(names) for names in made):
        raise InvalidArgumentError(
            f"--cuts is '{text}'; expected names, as a,b or a,b+c"
        )
    return made


# ---- Shapes ------------------------------------------------------------------------


def _shapes_of(option: str, text: str) -> list[tuple[str, bool, tuple[int, ...]]]:
    try:
        return _rabbet.parse_shapes(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{option}: {error}") from None


def _fits(pattern: str, quoted: bool, name: str) -> bool:
    if quoted or "*" not in pattern:
        return pattern == name
    before, _, after = pattern.partition("*")
    long_enough = len(name) >= len(before) + len(after)
    return long_enough and name.startswith(before) and name.endswith(after)


def _ranges(options: Options) -> list[tuple[str, list[tuple[str, bool, Any]]]]:
    """(option, its shapes) for smallest, typical and largest sizes; another one stands in
    for what is missing."""
    common = _last(options, "--opt-shapes") or _last(options, "--shapes")
    found = {name: _last(options, name) or common for name in _RANGE}
    given = [name for name in (_RANGE[2], _RANGE[0]) if found[name]]
    made = []
    for name, text in found.items():
        text = text or (found[given[0]] if given else None)
        if text:
            made.append((name, _shapes_of(name, text)))
    return made


def _given(options: Options, names: list[str]) -> dict[str, dict[str, Any]]:
    """Sizes of inputs, by option."""
    found: dict[str, dict[str, Any]] = {}
    for option, shapes in _ranges(options):
        for pattern, quoted, dims in shapes:
            fitting = [name for name in names if _fits(pattern, quoted, name)]
            if not fitting:
                raise InvalidArgumentError(
                    f"shapes are given for '{pattern}', but the model has no such input; "
                    f"it has {', '.join(names)}"
                )
            for name in fitting:
                found.setdefault(name, {}).setdefault(option, dims)
    return found


def _shapes(options: Options, network: Any) -> dict[str, Any]:
    """(min, opt, max) of inputs of which sizes are given, or are needed."""
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    found = _given(options, [tensor.name for tensor in tensors])
    made = {}
    for tensor in tensors:
        own, dims = found.get(tensor.name, {}), tuple(tensor.shape)
        if -1 in dims and (missing := [name for name in _RANGE if name not in own]):
            which = "" if len(missing) == len(_RANGE) else f" in {missing[0]}"
            raise InvalidArgumentError(
                f"input '{tensor.name}' has dynamic dimensions {dims}: say its sizes"
                f"{which}, with --shapes or with {', '.join(_RANGE)}"
            )
        if own:
            made[tensor.name] = tuple(own.get(name, dims) for name in _RANGE)
    return made


def _divided(
    network: Any, ranges: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(shapes, values): sizes of a shape input are its values, unless they are its shape."""
    shapes, values = dict(ranges), {}
    for tensor in (network.get_input(i) for i in range(network.num_inputs)):
        dims, given = tuple(tensor.shape), ranges.get(tensor.name)
        if given is None or -1 in dims or not tensor.is_shape_tensor:
            continue
        if len(given[1]) == math.prod(dims) or given[1] != dims:
            values[tensor.name] = shapes.pop(tensor.name)
    return shapes, values


# ---- Building ----------------------------------------------------------------------


def _network(
    model: str, options: Options, logger: Logger
) -> tuple[Any, dict[str, Any]]:
    """(network, options of compile() for its shapes)"""
    flag = NetworkDefinitionCreationFlag.STRONGLY_TYPED
    flags = 1 << int(flag) if "--strongly-typed" in options else 0
    network: Any = None
    ranges: dict[str, Any] = {}
    # Sizes that do not vary are told to the importer; names of inputs come from it.
    for is_last in (False, True):
        network = Builder(logger).create_network(flags)
        parser = OnnxParser(network, logger)
        parser.double = "--double" in options
        parser.input_shapes = fixed_shapes([(ranges, {})])
        parser.usual_shapes = usual_shapes([(ranges, {})])
        try:
            parser.parse_from_file(model)
        except (InvalidArgumentError, OutOfRangeError) as error:  # the model's fault
            raise DataLossError(str(error)) from error
        ranges = _shapes(options, network)
        if is_last or not ranges:
            break
    shapes, values = _divided(network, ranges)
    return network, {"shapes": shapes or None, "values": values or None}


def _split(network: Any, options: Options, ranks: int, logger: Logger) -> Any:
    if "--pipeline" in options:
        try:
            return parallel.pipeline(network, ranks, _cuts(options), logger=logger)
        except NotFoundError as error:  # a tensor's name: the command line is wrong
            raise InvalidArgumentError(str(error)) from error
    split = parallel.tensor(network, ranks, logger=logger)
    if not split.report.splits:
        first = (
            split.report.whole[0].reason if split.report.whole else "it has no weights"
        )
        raise UnsupportedError(
            f"no layer of the model can be split over {ranks} ranks with a gain ({first}); "
            "--pipeline gives each rank a stage of layers"
        )
    return split


def build(model: str, options: Options) -> None:
    """Writes the plans."""
    for name in ("--for", "--retime"):
        if name in options:
            raise InvalidArgumentError(f"{name} and --ranks exclude each other")
    if "--cuts" in options and "--pipeline" not in options:
        raise InvalidArgumentError("--cuts are of --pipeline, which is not given")
    ranks = _integer(options, "--ranks")
    if ranks is None:
        raise InvalidArgumentError("--pipeline needs --ranks, the number of GPUs")
    if ranks < 2:
        raise InvalidArgumentError(f"--ranks is {ranks}; expected 2 or more")
    output = _last(options, "--output") or str(Path(model).with_suffix(".plan"))
    logger = Logger(Severity.VERBOSE if "--verbose" in options else Severity.WARNING)
    plugins = options.get("--plugins")
    load_plugins(plugins)
    network, made = _network(model, options, logger)
    split = _split(network, options, ranks, logger)
    memory = _integer(options, "--tactic-memory")
    cache = _last(options, "--timing-cache")
    files = split.save(
        output,
        **made,
        **({} if cache is None else {"timing_cache": cache}),
        plugins=plugins,
        keep_plugins="--keep-plugins" in options,
        try_plugins="--no-plugin-trial" not in options,
        device=_last(options, "--device"),
        threads=_integer(options, "--threads"),
        fp16="--fp16" in options,
        bf16="--bf16" in options,
        optimization_level=_integer(options, "--optimization-level"),
        tactic_memory=None if memory is None else memory << 20,
        logger=logger,
    )
    if "--json" in options:
        print(split.report.json())
    elif "--quiet" not in options:
        print(split)
        for file in files:
            print(f"wrote {file}, {os.path.getsize(file) / 1e6:.1f} MB")

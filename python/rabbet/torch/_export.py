"""Exports modules of torch, also those whose Python code reads tensors."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

import torch
from torch._dynamo.exc import UserError
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    uninteresting_files,
)
from torch.utils import _pytree as pytree

from .._errors import InvalidArgumentError, UnsupportedError
from . import _branches, _forms, _known, _whole_layers
from ._branches import CannotSelectError, Rewritten, Ways
from ._forms import conversions_of_nothing, numbers_of_sizes
from ._guards import lines_that_fix
from ._known import KnownValues
from ._vision import exportable
from ._whole_layers import WholeLayers

# torch names the innermost line of Python that asks for a size: the module's, not ours, through
# which all its calls go.
uninteresting_files().update(
    str(each.__file__) for each in (_branches, _forms, _known, _whole_layers)
)

# Lines at which data decides that are rewritten, each with an export of its own.
_MOST_ROUNDS = 32


def _refuse_repeated(arguments: Any) -> None:
    """torch.export reads one argument where the same tensor is passed for two."""
    found: dict[int, str] = {}
    for path, leaf in pytree.tree_flatten_with_path(arguments)[0]:
        name = pytree.keystr(path[1:])
        first = found.setdefault(id(leaf), name)
        if isinstance(leaf, torch.Tensor) and first != name:
            raise InvalidArgumentError(
                f"compile: the example inputs {first} and {name} are one tensor, which "
                "torch.export takes for one input: pass a copy"
            )


def _refuse_layouts(arguments: Any) -> None:
    """Plans have dense tensors; torch's own errors for others do not name the argument."""
    for path, leaf in pytree.tree_flatten_with_path(arguments)[0]:
        if not isinstance(leaf, torch.Tensor):
            continue
        layout = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
        if layout != "strided":
            remedy = "torch.nested.to_padded_tensor" if leaf.is_nested else "to_dense()"
            raise UnsupportedError(
                f"compile: the example input {pytree.keystr(path[1:])} is a tensor of the "
                f"layout {layout}; plans have dense ones ({remedy})"
            )


def exported(
    module: Any, args: Any, kwargs: Any, dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """The program of a module: torch.export's, but numbers that the module reads from
    constants are constants, and data selects among the ways of a branch."""
    if isinstance(module, torch.export.ExportedProgram):
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise InvalidArgumentError(
                "compile: an ExportedProgram has its example inputs and dynamic shapes "
                "already; args, kwargs and dynamic_shapes are for modules"
            )
        return module
    if not isinstance(args, tuple) and not kwargs:
        raise InvalidArgumentError(
            "compile: args is the tuple of a module's example inputs, such as (x,); got "
            f"{type(args).__name__}"
        )
    _refuse_layouts((args or (), kwargs or {}))
    _refuse_repeated((args or (), kwargs or {}))
    known = KnownValues()
    with (
        exportable(), numbers_of_sizes(), conversions_of_nothing(),
        Rewritten(known.value) as rewritten,
    ):  # fmt: skip
        return _with_sizes((module, args or (), kwargs), dynamic_shapes, known, rewritten)


def _with_sizes(
    given: Any, dynamic_shapes: Any, known: KnownValues, rewritten: Rewritten
) -> torch.export.ExportedProgram:
    """The program, exported anew where int(height / 2) fixed a size that may vary."""
    program: torch.export.ExportedProgram | None = None
    for _round in range(_MOST_ROUNDS):
        try:
            program = _decided(given, dynamic_shapes, known, rewritten)
            lines = lines_that_fix(program)
        except UserError as error:
            if program is not None:
                return program
            lines = _lines_to_blame(given, dynamic_shapes, known, rewritten)
            if not rewritten.numbers(lines):
                raise error
            continue
        except Exception:
            if program is None:
                raise
            return program  # what follows needs a number
        if not rewritten.numbers(lines):
            break
    assert program is not None
    return program


def _lines_to_blame(
    given: Any, dynamic_shapes: Any, known: KnownValues, rewritten: Rewritten
) -> set[tuple[str, int]]:
    """Lines that fix sizes of which the caller's Dims say that they vary, which torch refuses
    without a line."""
    try:
        return lines_that_fix(_decided(given, _free(dynamic_shapes), known, rewritten))
    except Exception:
        return set()


def _free(shapes: Any) -> Any:
    """The same dimensions, free to be fixed."""
    if isinstance(shapes, Mapping):
        return {key: _free(each) for key, each in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)(map(_free, shapes))
    return shapes if shapes is None or isinstance(shapes, int) else torch.export.Dim.AUTO


def _decided(
    given: Any, dynamic_shapes: Any, known: KnownValues, rewritten: Rewritten
) -> torch.export.ExportedProgram:
    """The program, exported anew for each branch that data decides."""
    first: GuardOnDataDependentSymNode | None = None
    for _round in range(_MOST_ROUNDS):
        try:
            with WholeLayers(), known, Ways(given):
                return torch.export.export(*given, dynamic_shapes=dynamic_shapes, strict=False)
        except GuardOnDataDependentSymNode as error:
            first = error
            if not rewritten.at(error):
                break
        except CannotSelectError as error:
            assert first is not None
            first.add_note(f"compile: {error}")
            break
    assert first is not None
    place = _branches.place_of(first)
    where = ""
    if place is not None:
        file, line = place[0].f_code.co_filename, place[1]
        where = f" ({file}:{line}: {linecache.getline(file, line).strip()!r})"
    first.add_note(
        f"compile: the module's Python code{where} asks for a number that only data tells, "
        "which no plan can answer; torch.compile(module, backend='rabbet') compiles what "
        "lies before and behind that line, and leaves it to Python"
    )
    raise first



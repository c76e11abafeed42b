"""Requests of servers: arrays from lists, and several requests in one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._arrays import nptype
from .._errors import InvalidArgumentError, UnsupportedError
from .._model import Model

Arrays = dict[str, Any]


def arrays_of(model: Model, request: Mapping[str, Any]) -> Arrays:
    """A model's inputs by name. Lists, as JSON has them, become arrays of the inputs'
    types; arrays stay as they are."""
    if not isinstance(request, Mapping):
        raise InvalidArgumentError(f"a request is {{input: values}}, got {type(request)!r}")
    names = [info.name for info in model.inputs]
    if wrong := sorted(set(request) ^ set(names)):
        raise InvalidArgumentError(
            f"the model takes {', '.join(names)}; the request has {', '.join(request) or 'none'}"
            f" (missing or unknown: {', '.join(wrong)})"
        )
    return {info.name: _array(info, request[info.name]) for info in model.inputs}


def _array(info: Any, values: Any) -> Any:
    if hasattr(values, "shape"):
        return values
    try:
        dtype = np.dtype(nptype(info.dtype))
    except TypeError:
        raise UnsupportedError(f"input '{info.name}' is {info.dtype.name}: send an array") from None
    try:
        found = np.asarray(values)
        exact = found.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"input '{info.name}': {error}") from None
    # Numbers may be rounded, but no fraction, sign or text gets lost.
    kinds = "biuf" if dtype.kind == "f" else "b" if dtype.kind == "b" else "biu"
    lost = dtype.kind in "iu" and found.size and not (exact == found).all()
    if lost or (found.size and found.dtype.kind not in kinds):
        raise InvalidArgumentError(
            f"input '{info.name}' is {info.dtype.name}; the request has {found.dtype}"
        )
    return exact


def outputs_of(result: Arrays | Exception) -> Arrays:
    """Raises the error of a request that Batches.run has given for its outputs."""
    if isinstance(result, Exception):
        raise result
    return result


def lists_of(outputs: Arrays) -> dict[str, Any]:
    """Outputs as JSON has them."""
    return {name: array.tolist() for name, array in outputs.items()}


# ---- Batches -----------------------------------------------------------------------


def _rows(inputs: Arrays) -> int | None:
    """The extent that all inputs begin with; None: there is none."""
    found = {np.shape(value)[0] if np.ndim(value) else None for value in inputs.values()}
    return found.pop() if len(found) == 1 else None


class Batches:
    """Runs several requests at once, where the model's first dimension is a batch: it is
    dynamic and the same in all inputs and outputs."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.limit = self._limit()  # rows of a run; 0: no batch

    def _limit(self) -> int:
        model, engine = self.model, self.model.engine
        infos = (*model.inputs, *model.outputs)
        if not all(len(info.shape) and info.shape[0] == -1 for info in infos):
            return 0
        best = 0
        context = engine.create_execution_context()
        for profile in range(engine.num_optimization_profiles):
            shapes = {
                info.name: engine.get_tensor_profile_shape(info.name, profile)
                for info in model.inputs
            }
            most = min(shape[2][0] for shape in shapes.values())
            least = max(shape[0][0] for shape in shapes.values())
            # Two batches tell a batch from a number that happens to be the same.
            context.set_optimization_profile_async(profile, 0)
            sizes = {most, max(least, most - 1)}
            if all(self._is_batch(context, shapes, size) for size in sizes) and least == 1:
                best = max(best, most)
        return best

    def _is_batch(self, context: Any, shapes: Any, size: int) -> bool:
        for name, (_, optimum, _) in shapes.items():
            if not context.set_input_shape(name, (size, *optimum[1:])):
                return False
        return all(context.get_tensor_shape(o.name)[:1] == (size,) for o in self.model.outputs)

    def _groups(self, requests: Sequence[Arrays]) -> Iterator[list[int]]:
        """Indices of requests that run together."""
        open_groups: dict[Any, tuple[list[int], int]] = {}
        for i, inputs in enumerate(requests):
            rows = _rows(inputs)
            if not rows or rows > self.limit:
                yield [i]
                continue
            key = tuple((v.dtype, v.shape[1:]) for v in inputs.values())
            members, total = open_groups.pop(key, ([], 0))
            if total + rows > self.limit:
                yield members
                members, total = [], 0
            open_groups[key] = [*members, i], total + rows
        yield from (members for members, _ in open_groups.values())

    def _together(self, requests: Sequence[Arrays]) -> list[Arrays]:
        if len(requests) == 1:
            return [self.model.run(requests[0])]
        joined = {name: np.concatenate([r[name] for r in requests]) for name in requests[0]}
        ends = np.cumsum([_rows(inputs) for inputs in requests])[:-1]
        outputs = self.model.run(joined)
        split = {name: np.split(value, ends) for name, value in outputs.items()}
        return [{name: parts[i] for name, parts in split.items()} for i in range(len(requests))]

    def run(self, requests: Sequence[Mapping[str, Any]]) -> list[Arrays | Exception]:
        """Outputs of each request, or its error: one that fails leaves the others alone."""
        results: list[Any] = [None] * len(requests)
        given: dict[int, Arrays] = {}
        for i, request in enumerate(requests):
            try:
                given[i] = {k: np.asarray(v) for k, v in arrays_of(self.model, request).items()}
            except Exception as error:
                results[i] = error
        indices, inputs = list(given), list(given.values())
        for group in self._groups(inputs):
            members = [inputs[i] for i in group]
            for i, result in zip(group, self._each(members), strict=True):
                results[indices[i]] = result
        return results

    def _each(self, requests: Sequence[Arrays]) -> list[Arrays | Exception]:
        try:
            return list(self._together(requests))
        except Exception as error:
            if len(requests) == 1:
                return [error]
        return [self._each([request])[0] for request in requests]

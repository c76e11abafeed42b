"""Answers to requests: tensors by name, columns of tables, and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._compile import load
from .._errors import InvalidArgumentError
from .._model import Model
from ._requests import Arrays, arrays_of, lists_of


class Predictor:
    """ds.map_batches(Predictor, fn_constructor_args=(path,), concurrency=2, num_gpus=0.5):
    actors that load a plan or a folder of plans once. Columns of `keep` stay."""

    def __init__(self, path: str, keep: Sequence[str] = (), **options: Any) -> None:
        self.model, self.keep = load(path, **options), keep

    def __call__(self, batch: Arrays) -> Arrays:
        names = [info.name for info in self.model.inputs]
        if missing := sorted({*names, *self.keep} - batch.keys()):
            raise InvalidArgumentError(
                f"the batch lacks the columns {', '.join(missing)}; it has {', '.join(batch)}"
            )
        kept = {name: batch[name] for name in self.keep}
        inputs = {name: batch[name] for name in names}
        return {**kept, **self.model.run(arrays_of(self.model, inputs))}


async def answer(model: Model, request: Mapping[str, Any]) -> Arrays:
    """The outputs of a request {input: values}, computed on the model's threads."""
    result = await model.acall(**arrays_of(model, request))
    names = [info.name for info in model.outputs]
    return dict(zip(names, [result] if len(names) == 1 else result, strict=True))


async def answer_rows(model: Model, payload: Any) -> dict[str, Any]:
    """The answer to a request of KServe's V1."""
    return {"predictions": _rows_of(await answer(model, _columns_of(model, payload)))}


def _columns_of(model: Model, payload: Any) -> Arrays:
    """Inputs by name: rows in "instances" are values of the only input, or {input: values}."""
    rows = payload.get("instances") if isinstance(payload, Mapping) else None
    names = [info.name for info in model.inputs]
    if not isinstance(rows, list) or not rows:
        raise InvalidArgumentError('a request of V1 is {"instances": [rows]}')
    if len(names) == 1 and not isinstance(rows[0], Mapping):
        return {names[0]: rows}
    if not all(isinstance(row, Mapping) and row.keys() == rows[0].keys() for row in rows):
        raise InvalidArgumentError(f"instances: expected a {{{', '.join(names)}}} each")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _rows_of(outputs: Arrays) -> list[Any]:
    """Rows of the only output, or {output: values}."""
    lists = lists_of(outputs)
    if len(lists) == 1:
        return next(iter(lists.values()))
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]

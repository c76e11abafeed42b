"""Ray: a deployment of Ray Serve, and a class for Ray Data's map_batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ray import serve
from starlette.responses import JSONResponse

from .._compile import load
from .._errors import InvalidArgumentError
from ._requests import Arrays, Batches, arrays_of


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


@serve.deployment(max_ongoing_requests=128)
class Deployment:
    """POST {"input": lists} answers {"output": lists}; handle.predict takes arrays. Requests
    of a replica run as batches. Deployment.options(...).bind(path, 32, **options of load)."""

    def __init__(self, path: str, batch: int = 32, wait_s: float = 0.005, **options: Any) -> None:
        self.batches = Batches(load(path, **options))
        self._gathered.set_max_batch_size(batch)
        self._gathered.set_batch_wait_timeout_s(wait_s)

    @serve.batch
    async def _gathered(self, requests: list[Any]) -> list[Any]:
        return await asyncio.to_thread(self.batches.run, requests)

    async def predict(self, request: dict[str, Any]) -> Arrays:
        result = await self._gathered(request)
        if isinstance(result, Exception):
            raise result
        return result

    async def __call__(self, http: Any) -> Any:
        try:
            result = await self.predict(await http.json())
        except (TypeError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return {name: array.tolist() for name, array in result.items()}

"""Ray: a deployment of Ray Serve, and a class for Ray Data's map_batches."""

import asyncio
from typing import Any

from ray import serve
from starlette.responses import JSONResponse

from .._compile import load
from ._answers import Predictor
from ._requests import Arrays, Batches, lists_of, outputs_of

__all__ = ["Deployment", "Predictor"]


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
        return outputs_of(await self._gathered(request))

    async def __call__(self, http: Any) -> Any:
        try:
            return lists_of(await self.predict(await http.json()))
        except (TypeError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)

"""KServe: a model for its server, which speaks V1 and V2 over HTTP, and V2 over gRPC."""

from typing import Any

import kserve
from kserve.errors import InvalidInput
from kserve.utils.numpy_codec import from_np_dtype
from kserve.utils.utils import generate_uuid

from .._compile import load
from ._answers import answer, answer_rows


class RabbetModel(kserve.Model):  # type: ignore[misc]
    """kserve.ModelServer().start([RabbetModel("name", path, **options of rabbet.load)])"""

    def __init__(self, name: str, path: str, **options: Any) -> None:
        super().__init__(name)
        self.model = load(path, **options)
        self.ready = True

    async def predict(self, payload: Any, *_: Any) -> Any:
        try:
            if not isinstance(payload, kserve.InferRequest):
                return await answer_rows(self.model, payload)
            given = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
            return self._response(payload, await answer(self.model, given))
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error)) from error

    def _response(self, request: Any, result: dict[str, Any]) -> kserve.InferResponse:
        binary, outputs = request.use_binary_outputs, []
        for name, array in result.items():
            outputs.append(kserve.InferOutput(name, list(array.shape), from_np_dtype(array.dtype)))
            outputs[-1].set_data_from_numpy(array, binary)
        return kserve.InferResponse(
            request.id or generate_uuid(), self.name, outputs, use_binary_outputs=binary,
            requested_outputs=request.request_outputs,
        )  # fmt: skip

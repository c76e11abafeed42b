"""KServe's own servers on ports of the loopback address, which its ModelServer cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def serve(
    models: list[Any], ready: Callable[[int, int], Any], ended: asyncio.Event
) -> None:
    """Serves until `ended` is set. ready: takes the ports of HTTP and gRPC."""
    import grpc
    import kserve
    import uvicorn
    from kserve.model_server import app
    from kserve.protocol.dataplane import DataPlane
    from kserve.protocol.grpc import grpc_predict_v2_pb2_grpc as v2
    from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor
    from kserve.protocol.grpc.servicer import InferenceServicer
    from kserve.protocol.model_repository_extension import ModelRepositoryExtension
    from kserve.protocol.rest.server import RESTServer

    registry = kserve.ModelRepository()
    for model in models:
        registry.update(model)
    parts = DataPlane(registry), ModelRepositoryExtension(registry)
    RESTServer("kserve.model_server:app", *parts, 0).create_application()
    http = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
    )
    server = grpc.aio.server(interceptors=(ExceptionToStatusInterceptor(),))
    v2.add_GRPCInferenceServiceServicer_to_server(InferenceServicer(*parts), server)
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    serving = asyncio.create_task(http.serve())
    while not http.started:
        await asyncio.sleep(0.01)
        if serving.done():  # it failed
            return serving.result()
    ready(http.servers[0].sockets[0].getsockname()[1], grpc_port)
    await ended.wait()
    http.should_exit = True
    await serving
    await server.stop(None)

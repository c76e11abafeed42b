"""Modules of torch: what rabbet.compile(module) returns, and the backend of torch.compile.

    model = rabbet.compile(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    model = torch.compile(module, backend="rabbet")
    print(*rabbet.torch.reports())    # what runs in torch, and why
"""

from __future__ import annotations

from typing import Any

from ._caches import kv_cache_update
from ._module import TorchModel
from ._report import Left, Report, reports

__all__ = ["Left", "Report", "TorchModel", "backend", "kv_cache_update", "reports"]


def backend(*args: Any, **kwargs: Any) -> Any:
    """The backend, for torch.compile(module, backend=rabbet.torch.backend) where the
    package's entry point is not installed."""
    from ._backend import backend as function

    return function(*args, **kwargs)

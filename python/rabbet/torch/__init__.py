"""Modules of torch: what rabbet.compile(module) returns, and the backend of torch.compile.

    model = rabbet.compile(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n")}})
    program = rabbet.torch.export(module, (x,))    # what compile() exports
    model = torch.compile(module, backend="rabbet")
    print(*rabbet.torch.reports())    # what runs in torch, and why
"""

from __future__ import annotations

from typing import Any

from ._caches import kv_cache_update
from ._export import exported
from ._module import TorchModel
from ._report import Left, Report, reports

__all__ = ["Left", "Report", "TorchModel", "backend", "export", "kv_cache_update", "reports"]


def backend(*args: Any, **kwargs: Any) -> Any:
    """The backend, for torch.compile(module, backend=rabbet.torch.backend) where the
    package's entry point is not installed."""
    from ._backend import backend as function

    return function(*args, **kwargs)


def export(
    module: Any, args: tuple[Any, ...] = (), kwargs: Any = None, *, dynamic_shapes: Any = None
) -> Any:
    """The program that rabbet.compile(module, args, kwargs, dynamic_shapes=...) builds, as
    torch.export.export() makes it, of more modules: numbers that Python reads from tensors
    of constants are constants, and where data decides a branch, both ways are computed and
    it selects among the variables that they set."""
    import torch

    with torch.no_grad():
        return exported(module, args, kwargs, dynamic_shapes)

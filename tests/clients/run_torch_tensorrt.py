"""Torch-TensorRT's converter tests (tests/py/dynamo/conversion) on the alias.

    python tests/clients/run_torch_tensorrt.py CHECKOUT [--part=I/N] [PYTEST'S ARGUMENTS ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import report
import shim
import torch


def _name_version(checkout: Path) -> None:
    """The file that its setup.py writes."""
    import rabbet.compat

    version = ModuleType("torch_tensorrt._version")
    version.__version__ = (checkout / "version.txt").read_text().strip()  # type: ignore[attr-defined]
    version.__cuda_version__ = "13.0"  # type: ignore[attr-defined]
    version.__tensorrt_version__ = rabbet.compat.TENSORRT  # type: ignore[attr-defined]
    sys.modules["torch_tensorrt._version"] = version


def _efficient_attention(
    query: Any, key: Any, value: Any, bias: Any, log: bool, dropout: float = 0.0,
    causal: bool = False, *, scale: float | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, bias, dropout, causal, scale=scale
    )
    none = torch.empty(0)
    return result, none, none.long(), none.long()


def main() -> int:
    """pytest's exit status."""
    checkout = Path(sys.argv[1]).resolve()
    tests = checkout / "tests" / "py" / "dynamo"
    sys.path[:0] = [str(checkout / "py"), str(tests)]
    report.install_alias()
    _name_version(checkout)
    # torch has this operator on GPUs alone; tests compare with it.
    operators = torch.library.Library("aten", "IMPL", "CPU")
    operators.impl("_scaled_dot_product_efficient_attention", _efficient_attention)
    with shim.installed():
        from torch_tensorrt.dynamo.runtime import _TRTEngine

        # It runs as a custom operator of torch, in which modes are switched off.
        _TRTEngine.TRTEngine.execute = shim.for_host(_TRTEngine.TRTEngine.execute)
        arguments = sys.argv[2:]
        if all(argument.startswith("--part=") for argument in arguments):
            arguments.append(str(tests / "conversion"))
        return report.run(tests, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

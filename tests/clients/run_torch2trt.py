"""torch2trt's own tests (tests/converter_tests, tests/feature_tests) on the alias.

    python tests/clients/run_torch2trt.py CHECKOUT [--part=I/N] [PYTEST'S ARGUMENTS ...]
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import report
import shim


def main() -> int:
    """pytest's exit status."""
    checkout = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(checkout))
    report.install_alias()
    with shim.installed():
        import tensorrt

        # Of tensors that the shim has put on the host. The package has a function of the
        # module's name.
        module = importlib.import_module("torch2trt.torch2trt")
        module.torch_device_to_trt = lambda device: tensorrt.TensorLocation.DEVICE
        arguments = sys.argv[2:]
        if all(argument.startswith("--part=") for argument in arguments):
            arguments += [
                str(checkout / "tests" / folder)
                for folder in ("converter_tests", "feature_tests")
            ]
        return report.run(checkout, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

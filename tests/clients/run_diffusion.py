"""The engine class of NVIDIA's diffusion demo (demo/Diffusion of TensorRT's repository).

    python tests/clients/run_diffusion.py CHECKOUT

Builds, by the command line that the class makes (`polygraphy` must be on PATH, and `import
tensorrt` must work in other processes: python -m rabbet.compat --install), loads, runs,
refits and unloads a small block of a network, and compares with torch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import report
import shim
import torch

SHAPE = (2, 4, 16, 16)


class Block(torch.nn.Module):
    """Parts of a UNet: convolutions, a norm of groups, attention over places."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Conv2d(4, 32, 3, padding=1)
        self.norm = torch.nn.GroupNorm(8, 32)
        self.queries = torch.nn.Linear(32, 96)
        self.outer = torch.nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, sample: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """The noise."""
        x = torch.nn.functional.silu(self.norm(self.inner(sample)))
        rows = x.flatten(2).transpose(1, 2)
        q, k, v = self.queries(rows).chunk(3, -1)
        rows = rows + torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = rows.transpose(1, 2).reshape(x.shape)
        return self.outer(x) * scale


def make(folder: Path) -> tuple[Any, Path]:
    """The model, and its file."""
    torch.manual_seed(3)
    model = Block().eval()
    path = folder / "block.onnx"
    inputs = (torch.rand(SHAPE), torch.ones(1))
    torch.onnx.export(model, inputs, str(path), opset_version=18, dynamo=False,
                      input_names=["sample", "scale"], output_names=["noise"],
                      dynamic_axes={"sample": {0: "batch"}})  # fmt: skip
    return model, path


class Case:
    """The steps of a pipeline, one after another."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        sys.path.insert(0, str(checkout / "demo" / "Diffusion"))
        from demo_diffusion.engine import Engine

        self.model, self.onnx = make(folder)
        self.engine = Engine(str(folder / "block.plan"))
        self.shapes = {"sample": SHAPE, "scale": (1,), "noise": SHAPE}

    def build(self) -> str:
        """By polygraphy convert, in another process."""
        low, high = (1, *SHAPE[1:]), (4, *SHAPE[1:])
        self.engine.build(str(self.onnx), enable_refit=True, enable_all_tactics=True,
                          input_profile={"sample": [low, SHAPE, high]},
                          timing_cache=str(self.onnx.with_suffix(".cache")))  # fmt: skip
        return f"{Path(self.engine.engine_path).stat().st_size} bytes"

    def load(self) -> str:
        """And make a context with memory of the caller's."""
        self.engine.load()
        size = self.engine.engine.device_memory_size
        self.memory = torch.empty(size + 256, dtype=torch.uint8)
        address = -(-self.memory.data_ptr() // 256) * 256
        self.engine.activate(device_memory=address)
        self.engine.allocate_buffers(shape_dict=self.shapes, device="cuda")
        return f"{size} bytes of memory"

    def infer(self) -> str:
        """Twice, with other numbers."""
        worst = 0.0
        for seed in range(2):
            torch.manual_seed(seed)
            feed = {"sample": torch.randn(SHAPE), "scale": torch.tensor([1.0 + seed])}
            found = self.engine.infer(feed, 0)["noise"]
            with torch.no_grad():
                expected = self.model(**feed)
            worst = max(worst, float((found - expected).abs().max()))
        assert worst < 1e-4, f"{worst:.1e} apart"
        return f"{worst:.1e} apart"

    def refit(self) -> str:
        """Other weights, as for a LoRA."""
        from demo_diffusion.engine import get_refit_weights

        with torch.no_grad():
            self.model.inner.weight += 0.1
            self.model.outer.bias -= 1
        state = {name: self.model.state_dict()[name]
                 for name in ("inner.weight", "outer.bias")}  # fmt: skip
        names = {name: name for name in state}
        shapes = {name: (tuple(weight.shape), False) for name, weight in state.items()}
        weights, updated = get_refit_weights(state, str(self.onnx), names, shapes)
        assert updated == set(state)
        self.engine.refit(weights, updated)
        return f"{len(updated)} weights; {self.infer()}"

    def unload(self) -> str:
        """And load again, from the bytes that it kept."""
        self.engine.deactivate()
        self.engine.unload()
        self.engine.load()
        self.engine.activate()
        return "loaded again"


def main() -> int:
    """0 if all passed."""
    checkout = Path(sys.argv[1]).resolve()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    report.install_alias()
    with tempfile.TemporaryDirectory() as folder, shim.installed():
        case = Case(checkout, Path(folder))
        steps = (case.build, case.load, case.infer, case.refit, case.unload)
        return report.each((step.__name__, step) for step in steps)


if __name__ == "__main__":
    raise SystemExit(main())

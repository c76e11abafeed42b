"""A module of torch as a plan, and by torch.compile.

    python examples/torch_modules/torch_modules.py [FOLDER]

Writes encoder.plan and encoder.plan.torch into FOLDER (the current one).
"""

from __future__ import annotations

import sys
from pathlib import Path

import rabbet
import rabbet.torch
import torch
from torch import nn


class Encoder(nn.Module):
    """Words to vectors: embeddings, and one layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, words: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """The mean of each row's vectors, without those of the padding."""
        vectors = self.layer(self.embed(words), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1)
        return (vectors * kept).sum(1) / kept.sum(1)


def sentences(count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words at random; the last one of every row is padding."""
    words = torch.randint(1, 100, (count, length))
    padding = torch.zeros(count, length, dtype=torch.bool)
    padding[:, -1] = True
    return words, padding


def main(folder: Path) -> None:
    """Compares both ways with the module."""
    torch.manual_seed(0)
    module = Encoder().eval()
    axes = {0: torch.export.Dim("count", max=64), 1: torch.export.Dim("length", max=128)}
    model = rabbet.compile(
        module,
        sentences(4, 16),
        dynamic_shapes={"words": axes, "padding": axes},
        device="cpu",
    )
    model.save(folder / "encoder.plan")
    loaded = rabbet.load(folder / "encoder.plan", device="cpu")
    fast = torch.compile(
        module, backend=rabbet.torch.backend, dynamic=True, options={"device": "cpu"}
    )
    with torch.no_grad():
        for count, length in ((4, 16), (2, 50), (9, 7)):
            inputs = sentences(count, length)
            expected = module(*inputs)
            for way in (model, loaded, fast):
                assert torch.allclose(way(*inputs), expected, atol=1e-4)
    print(*rabbet.torch.reports(), sep="\n")
    print("the plan, the loaded plan and torch.compile agree with the module")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))

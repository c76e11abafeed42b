"""A small decoder with the parts of a model of transformers that the example uses, and the
example itself."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "hugging_face" / "decoder.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("decoder_example", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, number: int) -> None:
        super().__init__()
        self.heads, self.groups, self.number = heads, groups, number
        size = width // heads
        self.q = nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, groups * size) for _ in range(2))
        self.out = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def apart(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, caches: Any) -> torch.Tensor:
        y = self.first(x)
        keys, values = self.apart(self.k(y), self.groups), self.apart(self.v(y), self.groups)
        if caches is not None:
            keys, values = caches.update(keys, values, self.number)
        repeat = self.heads // self.groups
        y = nn.functional.scaled_dot_product_attention(
            self.apart(self.q(y), self.heads),
            keys.repeat_interleave(repeat, 1),
            values.repeat_interleave(repeat, 1),
            attn_mask=mask,
        )
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(torch.relu(self.wide(self.second(x))))


class Base(nn.Module):
    def __init__(self, words: int, width: int, room: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList(Block(width, 4, 2, i) for i in range(2))

    def forward(
        self, input_ids: Any, position_ids: Any, attention_mask: Any, past_key_values: Any,
        use_cache: bool,
    ) -> Any:  # fmt: skip
        x = self.words(input_ids) + self.places(position_ids)
        for block in self.blocks:
            x = block(x, attention_mask, past_key_values)
        return types.SimpleNamespace(last_hidden_state=x)


class Model(nn.Module):
    def __init__(self, words: int = 90, width: int = 32, room: int = 48) -> None:
        super().__init__()
        self.base_model, self.head = Base(words, width, room), nn.Linear(width, words)
        self.config = types.SimpleNamespace(
            num_key_value_heads=2, hidden_size=width, num_attention_heads=4,
            num_hidden_layers=2,
        )  # fmt: skip

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    @property
    def device(self) -> Any:
        return self.head.weight.device

    @property
    def dtype(self) -> Any:
        return self.head.weight.dtype

    def logits(self, ids: list[int]) -> torch.Tensor:
        """Of the token behind `ids`, without a cache."""
        given = torch.tensor([ids], device=self.device)
        at = torch.arange(len(ids), device=self.device)
        mask = (at <= at[:, None])[None, None]
        hidden = self.base_model(given, at[None], mask, None, False).last_hidden_state
        return self.head(hidden[0, -1])  # type: ignore[no-any-return]


@torch.no_grad()
def greedy(model: Model, prompt: list[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(model.logits(ids).argmax()))
    return ids[len(prompt) :]


@torch.no_grad()
def sampled(model: Model, prompt: list[int], noise: list[float], top: int) -> list[int]:
    ids = list(prompt)
    for number in noise:
        scores, tokens = model.logits(ids).topk(top)
        sums = scores.softmax(-1).cumsum(-1)
        ids.append(int(tokens[min(int((sums < number).sum()), top - 1)]))
    return ids[len(prompt) :]


def check_greedy(device: str, **options: Any) -> Any:
    """Prompts of several lengths, in batches. Returns the decoder."""
    torch.manual_seed(0)
    model = Model().eval().to(device)
    decoder = example().Decoder.build(model, 48, 3, 8, threads=1, **options)
    for lengths in ((1,), (9, 4), (20, 1, 13), (5,)):
        prompts = [torch.randint(90, (n,)).tolist() for n in lengths]
        expected = [greedy(model, prompt, 12) for prompt in prompts]
        assert decoder.generate(prompts, 12) == expected
    return decoder


def check_sampling(device: str, **options: Any) -> None:
    """One of the five most likely tokens, by noise."""
    torch.manual_seed(0)
    model = Model().eval().to(device)
    decoder = example().Decoder.build(
        model, 48, 2, 8, top=5, threads=1, optimization_level=0, **options
    )
    prompts = [[3, 1, 4], [1, 5, 9, 2, 6]]
    noise = torch.rand(10, 2, device=device)
    expected = [
        sampled(model, prompt, noise[:, row].tolist(), 5) for row, prompt in enumerate(prompts)
    ]
    assert decoder.generate(prompts, 10, noise) == expected

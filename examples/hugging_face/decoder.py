"""A decoder of transformers as one plan: prompts and single tokens are two profiles.

    python examples/hugging_face/decoder.py [cpu|cuda]

Makes a small Llama with random weights, generates with it, and compares with transformers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import rabbet
import rabbet.torch
import torch
from torch import nn


class Layer:
    """The cache of a layer, as transformers.Cache calls it."""

    def __init__(self, keys: Any, values: Any, starts: Any) -> None:
        self.keys, self.values, self.starts = keys, values, starts

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """All keys and values, with new ones from `starts` on."""
        put = rabbet.torch.kv_cache_update
        self.keys = put(self.keys, keys, self.starts)
        self.values = put(self.values, values, self.starts)
        return self.keys, self.values


class Layers:
    """The caches of all layers."""

    def __init__(self, caches: Sequence[Any], starts: Any) -> None:
        pairs = zip(caches[::2], caches[1::2], strict=True)
        self.layers = [Layer(keys, values, starts) for keys, values in pairs]

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> Any:
        """All keys and values of a layer, with new ones."""
        return self.layers[layer].update(keys, values)

    def tensors(self) -> list[Any]:
        """Keys and values of each layer."""
        return [tensor for layer in self.layers for tensor in (layer.keys, layer.values)]


class Step(nn.Module):
    """One run: tokens in, the next token of each row out.

    Row i of `ids` has the tokens from position starts[i] on; the last of them that counts
    is ids[i, last[i]]. What lies behind it is padding: it comes into the cache, too, and is
    overwritten by the next run before anything looks at it.
    """

    def __init__(self, model: Any, top: int = 1, temperature: float = 1.0) -> None:
        super().__init__()
        self.model, self.top, self.temperature = model, top, temperature

    def forward(self, ids: Any, starts: Any, last: Any, noise: Any, caches: Any) -> Any:
        """(next tokens [batch, 1], their positions [batch], caches)"""
        layers = Layers(caches, starts)
        positions = starts[:, None] + torch.arange(ids.shape[1], device=ids.device)
        room = torch.arange(caches[0].shape[2], device=ids.device)
        hidden = self.model.base_model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=room <= positions[:, None, :, None],
            past_key_values=layers,
            use_cache=True,
        ).last_hidden_state
        at = last[:, None, None].expand(-1, 1, hidden.shape[2])
        logits = self.model.get_output_embeddings()(hidden.gather(1, at)[:, 0])
        return self.sample(logits, noise), starts + last + 1, layers.tensors()

    def sample(self, logits: Any, noise: Any) -> Any:
        """The most likely token, or one of the `top` most likely ones by noise[batch]."""
        if self.top == 1:
            return logits.argmax(-1, keepdim=True)
        scores, tokens = logits.topk(self.top)
        sums = (scores / self.temperature).softmax(-1).cumsum(-1)
        chosen = (sums < noise[:, None]).sum(-1, keepdim=True).clamp(max=self.top - 1)
        return tokens.gather(1, chosen)


class Decoder:
    """Generates with the plan of a Step. Caches and samples stay on the device."""

    def __init__(self, engine: rabbet.ICudaEngine, device: str = "cpu") -> None:
        self.engine, self.device = engine, torch.device(device)
        self.context = engine.create_execution_context()
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        kinds = [engine.get_tensor_mode(name) for name in names]
        count = kinds.count(rabbet.TensorIOMode.INPUT)  # they come first
        self.inputs, self.outputs = names[:count], names[count:]
        self.caches = [name for name in self.inputs if name.startswith("caches")]
        self.room = engine.get_tensor_shape(self.caches[0])[2]

    @classmethod
    def build(
        cls, model: Any, room: int, batch: int, prompt: int, save: str | None = None,
        top: int = 1, **options: Any,
    ) -> Decoder:  # fmt: skip
        """A plan for up to `batch` rows of `room` tokens, with usual prompts of `prompt`."""
        config = model.config
        heads = config.num_key_value_heads
        size = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        caches = [
            torch.zeros(batch, heads, room, size, device=model.device, dtype=model.dtype)
            for _ in range(2 * config.num_hidden_layers)
        ]
        ids = torch.zeros(batch, prompt, dtype=torch.int64, device=model.device)
        zeros = torch.zeros(batch, dtype=torch.int64, device=model.device)
        rows = {0: torch.export.Dim("rows", max=batch)} if batch > 1 else {}
        length = torch.export.Dim("length", max=room)
        compiled = rabbet.compile(
            Step(model, top).eval(),
            (ids, zeros, zeros.clone(), zeros.float(), caches),
            dynamic_shapes=(
                {**rows, 1: length}, rows, rows, rows, [rows] * len(caches),
            ),
            profiles=[
                {"ids": ((1, 1), (batch, prompt), (batch, room))},
                {"ids": ((1, 1), (batch, 1), (batch, 1))},
            ],
            **options,
        )  # fmt: skip
        if save:
            compiled.model.save(save)
        return cls(compiled.model.engine, str(model.device))

    def _run(self, profile: int, given: dict[str, Any], results: list[Any]) -> None:
        """One run. A cache's output is bound to its input: the plan writes into it."""
        stream = 0
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream().cuda_stream
        if self.context.active_optimization_profile != profile:
            self.context.set_optimization_profile_async(profile, stream)
        for name in self.inputs:
            self.context.set_input_shape(name, tuple(given[name].shape))
            self.context.set_tensor_address(name, given[name].data_ptr())
        caches = [given[name] for name in self.caches]
        for name, tensor in zip(self.outputs, [*results, *caches], strict=True):
            self.context.set_tensor_address(name, tensor.data_ptr())
        self.context.execute_async_v3(stream)

    def generate(
        self, prompts: Sequence[Sequence[int]], count: int, noise: Any = None
    ) -> list[list[int]]:
        """`count` tokens behind each prompt. noise[count, rows], for top > 1: numbers from
        0 to 1 at random."""
        rows, longest = len(prompts), max(map(len, prompts))
        if longest + count > self.room:
            raise ValueError(
                f"{longest} tokens and {count} more do not fit into caches of {self.room}"
            )

        def zeros(*shape: int, dtype: Any = torch.int64) -> Any:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        given: dict[str, Any] = {}
        for name in self.caches:
            shape = self.engine.get_tensor_shape(name)
            dtype = torch.float16 if "HALF" in str(self.engine.get_tensor_dtype(name)) else None
            given[name] = zeros(rows, *tuple(shape)[1:], dtype=dtype or torch.float32)
        padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
        given["ids"] = torch.tensor(padded, device=self.device)
        given["starts"] = zeros(rows)
        given["last"] = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        # Two sets of results take turns: those of a run are inputs of the next one.
        results = [[zeros(rows, 1), zeros(rows)] for _ in range(2)]
        found = []
        for i in range(count):
            if "noise" in self.inputs:
                given["noise"] = noise[i]
            tokens, ends = results[i % 2]
            self._run(1 if i else 0, given, [tokens, ends])
            found.append(tokens.clone())
            if i == 0:
                given["last"] = zeros(rows)
            given["ids"], given["starts"] = tokens, ends
        return torch.cat(found, 1).tolist()


def main(device: str) -> None:
    """Compares generated tokens with those of transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=500, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=128,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().to(device)
    options = {"tf32": False} if device == "cuda" else {}
    decoder = Decoder.build(
        model, room=128, batch=4, prompt=32, save="llama.plan", **options
    )
    plan = rabbet.Runtime(rabbet.Logger()).load_cuda_engine("llama.plan")
    for engine in (decoder.engine, plan):
        decoder = Decoder(engine, device)
        for lengths in ((7,), (30, 12), (1, 64, 5, 33)):
            prompts = [torch.randint(500, (n,)).tolist() for n in lengths]
            found = decoder.generate(prompts, 40)
            for prompt, tokens in zip(prompts, found, strict=True):
                ids = torch.tensor([prompt], device=device)
                expected = model.generate(
                    ids, attention_mask=torch.ones_like(ids), max_new_tokens=40,
                    do_sample=False,
                )  # fmt: skip
                assert tokens == expected[0, len(prompt) :].tolist()
    print("equal to transformers, token by token")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")

"""How models of transformers are made small, and entries of the kinds that come often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..entries import BATCH, Dims, Entry, Input

VOCABULARY = 200
_BATCH = (1, 2, 3)
TEXT: Dims = {"batch": _BATCH, "sequence": (1, 12, 40)}
_PAIRS: Dims = {**TEXT, "target": (1, 7, 20)}
_STEP: Dims = {"batch": _BATCH, "past": (1, 15, 31), "new": (1, 2, 4)}

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 192,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""Names that most configurations share; heads are of 64, as in the real models."""
VISION = {k: COMMON[k] for k in list(COMMON)[1:5]} | {
    "image_size": 64,
    "patch_size": 16,
}
GROUPED = {"num_key_value_heads": 1, "head_dim": 64}
SEQ2SEQ: dict[str, Any] = {
    "d_model": 128,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 192,
    "decoder_ffn_dim": 192,
    "decoder_start_token_id": 2,
}
T5: dict[str, Any] = {
    "d_model": 128,
    "d_kv": 64,
    "d_ff": 192,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}

Call = Callable[..., Any]


def _model(kind: str, auto: str, attention: str | None, options: dict[str, Any]) -> Any:
    """attention: what transformers calls it; default: scaled_dot_product_attention for
    models that can use it."""
    import transformers

    config = transformers.AutoConfig.for_model(kind, **options)
    if attention is not None:
        config._attn_implementation = attention
    if hasattr(config, "num_experts_per_tok"):  # the other ways have no form in ONNX
        config._experts_implementation = "batched_mm"
    factory = getattr(transformers, auto)
    return factory.from_config(config) if auto.startswith("Auto") else factory(config)


def by_name(names: Sequence[str], **fixed: Any) -> Call:
    def call(module: Any, *tensors: Any) -> Any:
        return module(**dict(zip(names, tensors, strict=True)), **fixed)

    return call


def entry(
    name: str,
    kind: str,
    auto: str,
    options: dict[str, Any],
    inputs: Sequence[Input],
    dims: Dims,
    call: Call | None = None,
    attention: str | None = None,
) -> Entry:
    """With a form as fallback whose attention is written out as products."""
    make, fallback = (
        partial(_model, kind, auto, form, options) for form in (attention, "eager")
    )
    call = call or by_name([i.name for i in inputs])
    other = None if attention == "eager" else fallback
    return Entry("transformers", name, make, inputs, dims, call, other)


def text(width: str = "sequence") -> list[Input]:
    return [
        Input("input_ids", ("batch", width), "ids", VOCABULARY),
        Input("attention_mask", ("batch", width), "mask"),
    ]


def encoder(
    kind: str,
    auto: str = "AutoModel",
    attention: str | None = None,
    name: str = "",
    more: Sequence[Input] = (),
    **options: Any,
) -> Entry:
    inputs = [*text(), *more]
    given = {**COMMON, **options}
    return entry(name or kind, kind, auto, given, inputs, TEXT, attention=attention)


def causal(
    kind: str, attention: str | None = None, name: str = "", **options: Any
) -> Entry:
    """A decoder that reads a prompt."""
    call = by_name(["input_ids", "attention_mask"], use_cache=False)
    given = {**COMMON, **options}
    auto = "AutoModelForCausalLM"
    return entry(name or kind, kind, auto, given, text(), TEXT, call, attention)


def recurrent(kind: str, **options: Any) -> Entry:
    """A decoder without attention: it takes no mask."""
    inputs = text()[:1]
    call = by_name(["input_ids"], use_cache=False)
    given = {**COMMON, **options}
    return entry(kind, kind, "AutoModelForCausalLM", given, inputs, TEXT, call, "eager")


def _decode(module: Any, ids: Any, mask: Any, *past: Any) -> Any:
    import transformers

    pairs = list(zip(past[::2], past[1::2], strict=True))
    cache = transformers.DynamicCache(pairs)
    result = module(
        input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True
    )
    return result.logits, result.past_key_values


def step(kind: str, heads: int = 1, width: int = 64, **options: Any) -> Entry:
    """A decoder that continues from keys and values that were kept.

    heads, width: of the keys."""
    given = {**COMMON, **options}
    past = [
        Input(f"past_{part}_{i}", ("batch", heads, "past", width))
        for i in range(given["num_hidden_layers"])
        for part in ("key", "value")
    ]
    inputs = [
        Input("input_ids", ("batch", "new"), "ids", VOCABULARY),
        Input("attention_mask", ("batch", "past + new"), "mask"),
        *past,
    ]
    auto = "AutoModelForCausalLM"
    return entry(f"{kind}_step", kind, auto, given, inputs, _STEP, _decode)


def pair(kind: str, name: str = "", **options: Any) -> Entry:
    """An encoder, and a decoder that reads it."""
    inputs = [
        *text(),
        Input("decoder_input_ids", ("batch", "target"), "ids", VOCABULARY),
    ]
    call = by_name([i.name for i in inputs], use_cache=False)
    given = {**COMMON, **options}
    auto = "AutoModelForSeq2SeqLM"
    return entry(name or kind, kind, auto, given, inputs, _PAIRS, call)


def picture(
    kind: str,
    auto: str = "AutoModel",
    size: int = 64,
    name: str = "",
    frames: int = 0,
    attention: str | None = None,
    more: Sequence[Input] = (),
    base: dict[str, Any] = VISION,
    **options: Any,
) -> Entry:
    """A model of images, or of clips of so many frames. base: what is set beside
    `options`."""
    shape = ("batch", frames, 3, size, size) if frames else ("batch", 3, size, size)
    inputs = [Input("pixel_values", shape), *more]
    given = {**base, **({"image_size": size} if base else {}), **options}
    return entry(name or kind, kind, auto, given, inputs, BATCH, attention=attention)


def sound(
    kind: str, auto: str = "AutoModel", attention: str | None = None, **options: Any
) -> Entry:
    """A model of waveforms, with its seven convolutions made narrow."""
    dims = {"batch": _BATCH, "samples": (1000, 2000, 3000)}
    given = {
        **COMMON,
        "conv_dim": [32] * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "apply_spec_augment": False,
        **options,
    }
    inputs = [Input("input_values", ("batch", "samples"))]
    return entry(kind, kind, auto, given, inputs, dims, attention=attention)

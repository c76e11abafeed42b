"""Sizes of near-real architectures: what a library's defaults do not say, or say too large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Options = Mapping[str, Any]

LEFT_OUT = {
    "timm/test_resnet": "made for tests",
    "timm/test_nfnet": "made for tests",
    "timm/test_byobnet": "made for tests",
    "timm/test_vit2": "made for tests",
    "diffusers/unet1d": "no published size",
    "diffusers/unet3d_condition": "larger than this draw",
    "diffusers/vq": "as vae_kl",
    "diffusers/vae_kl": "its two parts are there",
    "diffusers/ltx_video": "larger than this draw",
    "diffusers/latte": "larger than this draw",
    "diffusers/cogvideox": "larger than this draw",
}
"""Architectures without a near-real size, and why."""

VARYING = {
    "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn",
    "torchvision/fasterrcnn_resnet50_fpn",
    "torchvision/maskrcnn_resnet50_fpn",
    "torchvision/keypointrcnn_resnet50_fpn",
    "torchvision/retinanet_resnet50_fpn",
    "torchvision/fcos_resnet50_fpn",
    "torchvision/ssdlite320_mobilenet_v3_large",
    "torchvision/ssd300_vgg16",
    "transformers/superpoint",
    "transformers/switch_transformers",
    "transformers/vilt",
}
"""Architectures whose results have as many rows as they find objects, whose experts get as
many tokens as the data says, or whose positions are resized to what a mask leaves."""

# ---- torchvision: the published model, the width of its images, options ----

_NO_WEIGHTS = {"weights_backbone": None}
_PLAIN: Options = {}
TORCHVISION: dict[str, tuple[str, int, Options]] = {
    "googlenet": ("googlenet", 224, {"init_weights": False, "aux_logits": False}),
    "inception_v3": ("inception_v3", 299, {"init_weights": False, "aux_logits": False}),
    "mnasnet0_5": ("mnasnet1_0", 224, _PLAIN),
    "lraspp_mobilenet_v3_large": ("lraspp_mobilenet_v3_large", 512, _NO_WEIGHTS),
    "deeplabv3_mobilenet_v3_large": ("deeplabv3_mobilenet_v3_large", 512, _NO_WEIGHTS),
    "resnet_basic": ("resnet18", 224, _PLAIN),
    "resnet_bottleneck": ("resnet50", 224, _PLAIN),
    "resnext": ("resnext50_32x4d", 224, _PLAIN),
    "wide_resnet": ("wide_resnet50_2", 224, _PLAIN),
    "vgg": ("vgg11", 224, {"init_weights": False}),
    "vgg_bn": ("vgg16_bn", 224, {"init_weights": False}),
    "densenet": ("densenet121", 224, _PLAIN),
    "vit": ("vit_b_16", 224, _PLAIN),
    "swin": ("swin_t", 224, _PLAIN),
    "swin_v2": ("swin_v2_t", 256, _PLAIN),
    "convnext": ("convnext_tiny", 224, _PLAIN),
    "efficientnet": ("efficientnet_b1", 240, _PLAIN),
    "efficientnet_v2": ("efficientnet_v2_s", 384, _PLAIN),
    "maxvit": ("maxvit_t", 224, _PLAIN),
    "regnet_x": ("regnet_x_1_6gf", 224, _PLAIN),
    "regnet_y": ("regnet_y_1_6gf", 224, _PLAIN),
    "fcn": ("fcn_resnet50", 512, _NO_WEIGHTS),
    "deeplabv3": ("deeplabv3_resnet50", 512, _NO_WEIGHTS),
    "r3d": ("r3d_18", 112, _PLAIN),
    "mc3": ("mc3_18", 112, _PLAIN),
    "r2plus1d": ("r2plus1d_18", 112, _PLAIN),
    "s3d": ("s3d", 224, _PLAIN),
    "mvit_v1": ("mvit_v1_b", 224, _PLAIN),
    "mvit_v2": ("mvit_v2_s", 224, _PLAIN),
    "swin3d": ("swin3d_t", 224, _PLAIN),
    "raft_small": ("raft_small", 384, _PLAIN),
    "ssd300_vgg16": ("ssd300_vgg16", 480, _NO_WEIGHTS),
    "ssdlite320_mobilenet_v3_large": (
        "ssdlite320_mobilenet_v3_large",
        480,
        _NO_WEIGHTS,
    ),
    **{
        name: (name, 640, _NO_WEIGHTS)
        for name in (
            "fasterrcnn_mobilenet_v3_large_320_fpn",
            "fasterrcnn_resnet50_fpn",
            "maskrcnn_resnet50_fpn",
            "keypointrcnn_resnet50_fpn",
            "retinanet_resnet50_fpn",
            "fcos_resnet50_fpn",
        )
    },
    **{
        name: (name, 224, _PLAIN)
        for name in (
            "mobilenet_v2",
            "mobilenet_v3_small",
            "mobilenet_v3_large",
            "shufflenet_v2_x0_5",
            "shufflenet_v2_x1_0",
            "squeezenet1_0",
            "squeezenet1_1",
            "efficientnet_b0",
            "regnet_y_400mf",
            "regnet_x_400mf",
        )
    },
}
CLIPS = {"r3d", "mc3", "r2plus1d", "s3d", "mvit_v1", "mvit_v2", "swin3d"}

# ---- diffusers: options, shapes of inputs, lengths; None: the library's default ----

_UNET: Options = {"block_out_channels": (320, 640), "norm_num_groups": 32}
_CONDITIONED: Options = {**_UNET, "cross_attention_dim": 768, "attention_head_dim": 8}
_CONTEXT = {"encoder_hidden_states": ("batch", "tokens", 768)}
_LATENT = {"height": 16, "width": 16, "tokens": 77}
_VAE: Options = {"block_out_channels": (128, 256), "norm_num_groups": 32}
_DIT: Options = {
    "num_attention_heads": 16,
    "attention_head_dim": 72,
    "num_layers": 3,
    "sample_size": 32,
    "cross_attention_dim": 1152,
    "caption_channels": 768,
}
_SQUARE = {"hidden_states": ("batch", 4, 32, 32), **_CONTEXT}
_WORDS = {"tokens": 77}
Shapes = Mapping[str, tuple[int | str, ...]]
DIFFUSERS: dict[str, tuple[Options, Shapes, Mapping[str, int]]] = {
    "unet2d": ({**_UNET, "block_out_channels": (224, 448)}, {}, _LATENT),
    "unet_condition": (_CONDITIONED, _CONTEXT, _LATENT),
    "unet_condition_linear": (_CONDITIONED, _CONTEXT, _LATENT),
    "controlnet": (
        {**_CONDITIONED, "conditioning_embedding_out_channels": (16, 32, 96, 256)},
        {
            **_CONTEXT,
            "controlnet_cond": ("batch", 3, "32 * height", "32 * width"),
        },
        _LATENT,
    ),
    "vae_kl_encoder": (_VAE, {}, {"height": 64, "width": 64}),
    "vae_kl_decoder": (_VAE, {}, {"height": 16, "width": 16}),
    "vae_tiny_decoder": (
        {
            "encoder_block_out_channels": (64, 64, 64, 64),
            "decoder_block_out_channels": (64, 64, 64, 64),
            "num_encoder_blocks": (1, 3, 3, 3),
            "num_decoder_blocks": (3, 3, 3, 1),
        },
        {},
        {"height": 16, "width": 16},
    ),
    "dc_ae_decoder": (
        {
            "latent_channels": 32,
            "attention_head_dim": 32,
            "encoder_block_out_channels": (128, 256),
            "decoder_block_out_channels": (128, 256),
            "encoder_layers_per_block": (2, 2),
            "decoder_layers_per_block": (2, 2),
        },
        {"z": ("batch", 32, 64, 64)},
        {},
    ),
    "dit": (
        {**_DIT, "cross_attention_dim": None, "caption_channels": None},
        _SQUARE,
        {},
    ),
    "pixart": (_DIT, _SQUARE, _WORDS),
    "sd3": (
        {
            "num_attention_heads": 16,
            "attention_head_dim": 64,
            "num_layers": 3,
            "sample_size": 32,
            "caption_projection_dim": 1024,
            "joint_attention_dim": 768,
            "pooled_projection_dim": 1280,
            "pos_embed_max_size": 64,
        },
        {**_SQUARE, "pooled_projections": ("batch", 1280)},
        _WORDS,
    ),
    "flux": (
        {
            "in_channels": 64,
            "attention_head_dim": 128,
            "num_attention_heads": 8,
            "joint_attention_dim": 768,
            "pooled_projection_dim": 768,
            "axes_dims_rope": (16, 56, 56),
            "num_layers": 1,
            "num_single_layers": 2,
        },
        {
            **_CONTEXT,
            "hidden_states": ("batch", 1024, 64),
            "pooled_projections": ("batch", 768),
            "img_ids": (1024, 3),
        },
        _WORDS,
    ),
    "sana": (
        {
            "num_layers": 3,
            "num_attention_heads": 36,
            "attention_head_dim": 32,
            "num_cross_attention_heads": 16,
            "cross_attention_head_dim": 72,
            "cross_attention_dim": 1152,
            "caption_channels": 768,
            "sample_size": 32,
        },
        _SQUARE,
        _WORDS,
    ),
    "hunyuan_dit_auraflow": (
        {
            "sample_size": 32,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 3,
            "attention_head_dim": 64,
            "num_attention_heads": 16,
            "joint_attention_dim": 768,
            "caption_projection_dim": 1024,
            "pos_embed_max_size": 1024,
        },
        _SQUARE,
        _WORDS,
    ),
    "wan": (
        {
            "num_attention_heads": 8,
            "attention_head_dim": 128,
            "in_channels": 16,
            "out_channels": 16,
            "text_dim": 768,
            "freq_dim": 256,
            "ffn_dim": 4096,
            "num_layers": 4,
            "rope_max_seq_len": 1024,
        },
        {**_CONTEXT, "hidden_states": ("batch", 16, 5, 32, 32)},
        _WORDS,
    ),
}

# ---- transformers ----

LENGTHS = {"sequence": 128, "target": 32, "past": 512, "new": 1, "samples": 48000,
           "frames": 300}  # fmt: skip
OWN_LENGTHS: dict[str, Mapping[str, int]] = {
    "longformer": {"sequence": 1024},
    "led": {"sequence": 1024},
    "big_bird": {"sequence": 512},
    "longt5": {"sequence": 512},
    "canine": {"sequence": 512},
    **{
        name: {"sequence": 64}
        for name in ("clip", "siglip", "chinese_clip", "altclip", "groupvit", "clipseg",
                     "blip", "git")
    },
    "vilt": {"sequence": 40},
    "owlvit": {"sequence": 16},
    "decision_transformer": {"sequence": 20},
}  # fmt: skip

PICTURES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("segformer", "glpn", "upernet", "mask2former", "maskformer"), (512, 512)
    ),
    **dict.fromkeys(
        ("detr", "conditional_detr", "table-transformer", "deformable_detr", "rt_detr",
         "textnet"),
        (640, 640),
    ),
    "mobilevit": (256, 256),
    "mobilevitv2": (256, 256),
    "efficientnet": (600, 600),
    "superpoint": (480, 640),
    "dpt": (384, 384),
    "depth_anything": (518, 518),
    "yolos": (512, 864),
    "sam_vision_model": (1024, 1024),
    "swin2sr": (64, 64),
    "owlvit": (768, 768),
    "clipseg": (352, 352),
    "blip": (384, 384),
    "vilt": (384, 384),
}  # fmt: skip
"""Height and width of images; 224 where nothing is said."""

_MEL: tuple[int | str, ...] = ("batch", 80, 3000)
TENSORS: dict[tuple[str, str], tuple[int | str, ...]] = {
    ("vit_mae", "noise"): ("batch", 196),
    ("vivit", "pixel_values"): ("batch", 32, 3, 224, 224),
    ("videomae", "pixel_values"): ("batch", 16, 3, 224, 224),
    ("timesformer", "pixel_values"): ("batch", 8, 3, 224, 224),
    ("vilt", "pixel_mask"): ("batch", 384, 384),
    ("trocr", "encoder_hidden_states"): ("batch", 577, 768),
    ("whisper", "input_features"): _MEL,
    ("speech_to_text", "input_features"): ("batch", 1000, 80),
    ("audio-spectrogram-transformer", "input_values"): ("batch", 1024, 128),
    ("wav2vec2-bert", "input_features"): ("batch", "frames", 160),
    ("encodec", "input_values"): ("batch", 1, 24000),
    ("univnet", "input_features"): ("batch", "frames", 100),
    ("univnet", "noise_sequence"): ("batch", "frames", 64),
    ("patchtst", "past_values"): ("batch", 512, 7),
    ("patchtsmixer", "past_values"): ("batch", 512, 7),
    ("decision_transformer", "states"): ("batch", "sequence", 17),
    ("decision_transformer", "actions"): ("batch", "sequence", 4),
}

_DECODER: Options = {
    "vocab_size": 32000,
    "hidden_size": 1024,
    "d_model": 1024,
    "n_embd": 1024,
    "intermediate_size": 2816,
    "ffn_dim": 4096,
    "dff": 4096,
    "word_embed_proj_dim": 1024,
    "lru_width": 1024,
    "attention_hidden_size": 1024,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 4),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"), 16
    ),
    "num_key_value_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 64,
    "rotary_dim": 64,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 2048),
    "state_size": 16,
    "expand": 2,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 704,
    "shared_expert_intermediate_size": 704,
    "q_lora_rank": 384,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
}
"""A small language model, such as there are of 300 to 500 million parameters, of fewer
layers and with a smaller vocabulary."""
_KEPT = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "n_group",
         "topk_group", "first_k_dense_replace", "n_shared_experts", "n_groups", "n_langs",
         "num_sparse_encoder_layers", "num_sparse_decoder_layers",
         "global_attn_every_n_layers"}  # fmt: skip
_PAIR: Options = {
    "vocab_size": 32000,
    "d_model": 768,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 3072),
    "max_position_embeddings": 1024,
    "d_kv": 64,
}
_T5: Options = {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6,
                "num_heads": 8, "d_kv": 64, "vocab_size": 32128}  # fmt: skip
_BASE: Options = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_hidden_layers": 6,
    "vocab_size": 32000,
}
_EXPERTS: Options = {"num_hidden_layers": 2, "intermediate_size": 1408}
_DEBERTA: Options = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_SWITCHES: Options = {"emb_dim": 768, "n_heads": 12, "n_layers": 6, "n_langs": 1}
_TEXT: Options = {"model_type": "llama", **{
    key: _DECODER[key]
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                "num_attention_heads", "num_key_value_heads")
}}  # fmt: skip

OPTIONS: dict[str, Options] = {
    "albert": {**_BASE, "num_hidden_layers": 12, "vocab_size": 30000},
    "deberta": {**_DEBERTA, "num_hidden_layers": 8},
    "deberta-v2": {**_BASE, **_DEBERTA, "position_buckets": 256, "share_att_key": True,
                   "norm_rel_ebd": "layer_norm"},
    "rembert": {**_BASE, "input_embedding_size": 256},
    "xlm": _SWITCHES,
    "flaubert": _SWITCHES,
    "xlnet": {"d_model": 768, "n_layer": 6, "n_head": 12, "d_inner": 3072},
    "esm": {"vocab_size": 128, "hidden_size": 480, "num_hidden_layers": 12,
            "num_attention_heads": 20, "intermediate_size": 1920, "pad_token_id": 1,
            "mask_token_id": 32, "position_embedding_type": "rotary",
            "token_dropout": False},
    "luke": {"entity_vocab_size": 1000},
    "modernbert": {"num_hidden_layers": 12},
    "modernbert-decoder": {"num_hidden_layers": 12},
    "eurobert": {"vocab_size": 32000, "pad_token_id": 0},
    "xlm-roberta-xl": _BASE,
    "ctrl": {"vocab_size": 32000, "n_embd": 1280, "n_layer": 3, "n_head": 16,
             "dff": 8192},
    "xmod": {"languages": ["en"], "default_language": "en"},
    "longformer": {"attention_window": 512, "num_hidden_layers": 8,
                   "max_position_embeddings": 2050},
    "big_bird": {"attention_type": "original_full"},
    "gpt2": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "gpt_bigcode": {},
    "openai-gpt": {},
    "bloom": {"vocab_size": 32000, "hidden_size": 1024, "n_layer": 4, "n_head": 16},
    "nemotron": {"head_dim": 64},
    "mamba": {"num_hidden_layers": 12},
    "falcon_mamba": {"num_hidden_layers": 12},
    "mamba2": {"num_hidden_layers": 8, "hidden_size": 1024, "num_heads": 32,
               "head_dim": 64, "n_groups": 1, "state_size": 128, "vocab_size": 32000},
    "mixtral": _EXPERTS,
    "mixtral_step": _EXPERTS,
    "granitemoe": _EXPERTS,
    "gpt_oss": {**_EXPERTS, "sliding_window": 128},
    "deepseek_v2": {"head_dim": 32},
    "deepseek_v3": {"head_dim": 32},
    "mt5": {**_T5, "feed_forward_proj": "gated-gelu"},
    "t5_encoder": {},
    "switch_transformers": {**_T5, "num_sparse_encoder_layers": 3,
                            "num_sparse_decoder_layers": 3, "num_experts": 4},
    "longt5": {"encoder_attention_type": "local"},
    "led": {"attention_window": [512] * 4},
    "prophetnet": {"hidden_size": 768, "num_encoder_layers": 4, "num_decoder_layers": 4,
                   "num_encoder_attention_heads": 12, "num_decoder_attention_heads": 12,
                   "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
    "beit": {"use_relative_position_bias": True},
    "dinov2": {"image_size": 224, "patch_size": 14},
    "dinov2_with_registers": {"image_size": 224, "patch_size": 14},
    "vit_mae": {"mask_ratio": 0.0},
    "swin2sr": {"upscale": 2},
    "upernet": {"backbone_config": {"model_type": "resnet", "out_features": [
        "stage1", "stage2", "stage3", "stage4"]}, "use_auxiliary_head": False},
    "aimv2_vision_model": {"num_hidden_layers": 6},
    "altclip": {"text_config": {"num_hidden_layers": 4, "vocab_size": 32000}},
    "llava": {"text_config": _TEXT, "vision_config": {
        "model_type": "clip_vision_model", "num_hidden_layers": 2}},
    "git": {"vision_config": {"num_hidden_layers": 4}},
    "trocr": {"vocab_size": 32000, "decoder_layers": 4,
              "cross_attention_hidden_size": 768},
    "wav2vec2-conformer": {"num_hidden_layers": 6},
    "wav2vec2-bert": {"num_hidden_layers": 4},
    "patchtst": {"num_input_channels": 7, "context_length": 512, "patch_length": 16,
                 "patch_stride": 8, "do_mask_input": False},
    "patchtsmixer": {"num_input_channels": 7, "context_length": 512, "patch_length": 16,
                     "patch_stride": 8, "d_model": 64, "num_layers": 8},
    "decision_transformer": {"n_layer": 6, "n_head": 8, "hidden_size": 512},
    "univnet": {},
    "encodec": {},
}  # fmt: skip
"""What is set beside the library's defaults; for decoders and pairs, beside their sizes."""


def _scaled(given: Options, sizes: Options) -> dict[str, Any]:
    """The options of a small configuration at these sizes; numbers that have none there
    are left to the library."""
    found = {}
    for name, value in given.items():
        if name in sizes:
            found[name] = sizes[name]
        elif name in _KEPT or isinstance(value, (str, bool)):
            found[name] = value
    return found


def options_of(name: str, auto: str, given: Options) -> dict[str, Any]:
    """The near-real options for a small configuration of transformers."""
    own = OPTIONS.get(name)
    decodes = auto == "AutoModelForCausalLM" and "encoder_hidden_dim" not in given
    if own is not None and not own:
        return {}
    if "d_kv" in given:
        return {**_scaled(given, _T5), **(own or {})}
    if auto == "AutoModelForSeq2SeqLM":
        return {**_scaled(given, _PAIR), **(own or {})}
    if decodes and name not in ("git", "trocr", "ctrl", "mamba", "falcon_mamba", "bloom"):
        return {**_scaled(given, _DECODER), **(own or {})}
    return dict(own or {})

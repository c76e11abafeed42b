"""Networks that the pipelines of diffusers are made of, from small configurations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..entries import Entry, Input

_BATCH = (1, 2, 3)
_LATENT = {"batch": _BATCH, "height": (2, 4, 6), "width": (2, 4, 8)}
_TEXT = {"tokens": (3, 8, 20)}


def _make(factory: str, options: dict[str, Any]) -> Any:
    import diffusers

    return getattr(diffusers, factory)(**options)


def _plain(names: Sequence[str], fixed: dict[str, Any]) -> Any:
    def call(module: Any, *tensors: Any) -> Any:
        return module(
            **dict(zip(names, tensors, strict=True)), **fixed, return_dict=False
        )

    return call


def _entry(
    name: str,
    factory: str,
    inputs: Sequence[Input],
    dims: Any,
    part: str = "",
    fixed: dict[str, Any] | None = None,
    **options: Any,
) -> Entry:
    """part: the method that is exported, where it is not the module's own.
    fixed: arguments that are no tensors."""
    call = _plain([i.name for i in inputs], fixed or {})
    if part:
        call = partial(_call_part, part)
    return Entry(
        "diffusers", name, partial(_make, factory, options), inputs, dims, call
    )


def _call_part(part: str, module: Any, value: Any) -> Any:
    result = getattr(module, part)(value, return_dict=False)[0]
    return result.parameters if hasattr(result, "parameters") else result


def _latent(channels: int = 4, name: str = "sample") -> Input:
    return Input(name, ("batch", channels, "4 * height", "4 * width"))


_STEP = Input("timestep", ("batch",), "step", 1000)
_CONTEXT = Input("encoder_hidden_states", ("batch", "tokens", 64))
_MASK = Input("encoder_attention_mask", ("batch", "tokens"), "mask")
_CONDITIONED = [_latent(), _STEP, _CONTEXT]
_UNET: dict[str, Any] = {
    "block_out_channels": (64, 128),
    "layers_per_block": 1,
    "norm_num_groups": 16,
    "sample_size": 16,
}
_SD: dict[str, Any] = {
    **_UNET,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "cross_attention_dim": 64,
    "attention_head_dim": 2,
}
_UP = {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
_VAE: dict[str, Any] = {
    "block_out_channels": (32, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "latent_channels": 4,
}
_DIT: dict[str, Any] = {
    "num_attention_heads": 2,
    "attention_head_dim": 32,
    "num_layers": 2,
    "sample_size": 16,
    "patch_size": 2,
}
_ALL = {**_LATENT, **_TEXT}
_FIXED = {"batch": _BATCH, **_TEXT}
_SQUARE = ("batch", 4, 16, 16)
_FLUX: dict[str, Any] = {
    "patch_size": 1,
    "in_channels": 16,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 32,
    "num_attention_heads": 2,
    "joint_attention_dim": 64,
    "pooled_projection_dim": 32,
    "axes_dims_rope": (8, 12, 12),
}
_VIDEO = ("batch", 4, 2, 16, 16)

ENTRIES = [
    _entry(
        "unet2d",
        "UNet2DModel",
        [_latent(3), _STEP],
        _LATENT,
        **_UNET,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=64,
    ),
    _entry("unet_condition", "UNet2DConditionModel", _CONDITIONED, _ALL, **_SD, **_UP),
    _entry(
        "unet_condition_linear",
        "UNet2DConditionModel",
        _CONDITIONED,
        _ALL,
        **_SD,
        **_UP,
        use_linear_projection=True,
        resnet_time_scale_shift="scale_shift",
    ),
    _entry(
        "unet1d",
        "UNet1DModel",
        [Input("sample", ("batch", 8, 64)), _STEP],
        {"batch": _BATCH},
        in_channels=8,
        out_channels=8,
        sample_size=64,
        block_out_channels=(32, 64),
        extra_in_channels=0,
        layers_per_block=1,
        time_embedding_type="positional",
        use_timestep_embedding=True,
        flip_sin_to_cos=False,
        freq_shift=1.0,
        act_fn="mish",
        norm_num_groups=8,
        down_block_types=("DownResnetBlock1D",) * 2,
        up_block_types=("UpResnetBlock1D",),
        mid_block_type="MidResTemporalBlock1D",
        out_block_type="OutConv1DBlock",
    ),
    _entry(
        "unet3d_condition",
        "UNet3DConditionModel",
        [Input("sample", _VIDEO), _STEP, _CONTEXT],
        _FIXED,
        block_out_channels=(64, 128),
        layers_per_block=1,
        norm_num_groups=16,
        down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"),
        cross_attention_dim=64,
        attention_head_dim=32,
    ),
    _entry(
        "controlnet",
        "ControlNetModel",
        [
            *_CONDITIONED,
            Input("controlnet_cond", ("batch", 3, "32 * height", "32 * width")),
        ],
        _ALL,
        **{k: v for k, v in _SD.items() if k != "sample_size"},
        conditioning_embedding_out_channels=(8, 16, 16, 32),
    ),
    _entry("vae_kl", "AutoencoderKL", [_latent(3)], _LATENT, **_VAE),
    _entry(
        "vae_kl_encoder", "AutoencoderKL", [_latent(3, "x")], _LATENT, "encode", **_VAE
    ),
    _entry(
        "vae_kl_decoder", "AutoencoderKL", [_latent(4, "z")], _LATENT, "decode", **_VAE
    ),
    _entry(
        "vae_tiny_decoder",
        "AutoencoderTiny",
        [_latent(4, "x")],
        _LATENT,
        "decode",
        encoder_block_out_channels=(16, 16),
        decoder_block_out_channels=(16, 16),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    ),
    _entry(
        "vq",
        "VQModel",
        [_latent(3)],
        _LATENT,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        num_vq_embeddings=32,
        latent_channels=4,
    ),
    _entry(
        "dc_ae_decoder",
        "AutoencoderDC",
        [_latent(8, "z")],
        _LATENT,
        "decode",
        in_channels=3,
        latent_channels=8,
        attention_head_dim=16,
        encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"),
        encoder_block_out_channels=(32, 64),
        decoder_block_out_channels=(32, 64),
        encoder_qkv_multiscales=((), (5,)),
        decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1),
        decoder_layers_per_block=(1, 1),
    ),
    _entry(
        "dit",
        "DiTTransformer2DModel",
        [
            Input("hidden_states", _SQUARE),
            _STEP,
            Input("class_labels", ("batch",), "step", 10),
        ],
        {"batch": _BATCH},
        **_DIT,
        in_channels=4,
        num_embeds_ada_norm=1000,
    ),
    _entry(
        "pixart",
        "PixArtTransformer2DModel",
        [Input("hidden_states", _SQUARE), _CONTEXT, _STEP],
        _FIXED,
        **_DIT,
        in_channels=4,
        cross_attention_dim=64,
        caption_channels=64,
        use_additional_conditions=False,
    ),
    _entry(
        "sd3",
        "SD3Transformer2DModel",
        [
            Input("hidden_states", _SQUARE),
            _CONTEXT,
            Input("pooled_projections", ("batch", 32)),
            _STEP,
        ],
        _FIXED,
        **_DIT,
        in_channels=4,
        caption_projection_dim=64,
        joint_attention_dim=64,
        pooled_projection_dim=32,
        pos_embed_max_size=16,
        out_channels=4,
        qk_norm="rms_norm",
    ),
    _entry(
        "flux",
        "FluxTransformer2DModel",
        [
            Input("hidden_states", ("batch", 16, 16)),
            _CONTEXT,
            Input("pooled_projections", ("batch", 32)),
            Input("timestep", ("batch",), "unit"),
            Input("img_ids", (16, 3), "unit"),
            Input("txt_ids", ("tokens", 3), "unit"),
        ],
        _FIXED,
        **_FLUX,
    ),
    _entry(
        "sana",
        "SanaTransformer2DModel",
        [Input("hidden_states", _SQUARE), _CONTEXT, _STEP],
        _FIXED,
        in_channels=4,
        out_channels=4,
        num_layers=1,
        num_attention_heads=2,
        attention_head_dim=32,
        num_cross_attention_heads=2,
        cross_attention_head_dim=32,
        cross_attention_dim=64,
        caption_channels=64,
        sample_size=16,
        patch_size=1,
    ),
    _entry(
        "hunyuan_dit_auraflow",
        "AuraFlowTransformer2DModel",
        [
            Input("hidden_states", _SQUARE),
            _CONTEXT,
            Input("timestep", ("batch",), "unit"),
        ],
        _FIXED,
        sample_size=16,
        patch_size=2,
        in_channels=4,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=32,
        num_attention_heads=2,
        joint_attention_dim=64,
        caption_projection_dim=64,
        out_channels=4,
        pos_embed_max_size=64,
    ),
    _entry(
        "ltx_video",
        "LTXVideoTransformer3DModel",
        [Input("hidden_states", ("batch", 32, 8)), _CONTEXT, _STEP, _MASK],
        _FIXED,
        fixed={"num_frames": 2, "height": 4, "width": 4},
        in_channels=8,
        out_channels=8,
        num_layers=1,
        num_attention_heads=2,
        attention_head_dim=32,
        cross_attention_dim=64,
        caption_channels=64,
    ),
    _entry(
        "wan",
        "WanTransformer3DModel",
        [Input("hidden_states", _VIDEO), _STEP, _CONTEXT],
        _FIXED,
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        text_dim=64,
        freq_dim=32,
        ffn_dim=96,
        num_layers=1,
        rope_max_seq_len=32,
    ),
    _entry(
        "cogvideox",
        "CogVideoXTransformer3DModel",
        [Input("hidden_states", ("batch", 2, 4, 16, 16)), _CONTEXT, _STEP],
        {"batch": _BATCH, "tokens": (8, 8, 8)},
        num_attention_heads=2,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        text_embed_dim=64,
        num_layers=1,
        sample_width=16,
        sample_height=16,
        sample_frames=5,
        max_text_seq_length=8,
        time_embed_dim=32,
    ),
    _entry(
        "latte",
        "LatteTransformer3DModel",
        [Input("hidden_states", _VIDEO), _STEP, _CONTEXT],
        _FIXED,
        **_DIT,
        in_channels=4,
        caption_channels=64,
        cross_attention_dim=64,
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_single",
        video_length=2,
    ),
]

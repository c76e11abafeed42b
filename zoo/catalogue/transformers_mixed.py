"""Models of transformers of several kinds of input, of sound and of series."""

from __future__ import annotations

from ..entries import BATCH, Input
from .small_configs import (
    COMMON,
    GROUPED,
    SEQ2SEQ,
    TEXT,
    VISION,
    VOCABULARY,
    by_name,
    entry,
    sound,
    text,
)

_GPT2 = {"n_embd": 128, "n_head": 2, "n_layer": 2, "n_positions": 128}
_BOXES = Input("bbox", ("batch", "sequence", 4), "corners", 100)
_CLIP_DIMS = {**TEXT, "sequence": (3, 8, 16)}
_TOWERS = {"text_config": COMMON, "vision_config": VISION, "projection_dim": 64}
_BOTH = [*text(), Input("pixel_values", ("batch", 3, 64, 64))]

_MIXED = [
    entry("clip", "clip", "AutoModel", {**_TOWERS}, _BOTH, _CLIP_DIMS),
    entry("siglip", "siglip", "AutoModel", {**_TOWERS}, _BOTH, _CLIP_DIMS),
    entry("chinese_clip", "chinese_clip", "AutoModel", {**_TOWERS}, _BOTH, _CLIP_DIMS),
    entry(
        "altclip",
        "altclip",
        "AutoModel",
        {**_TOWERS, "text_config": {**COMMON, "project_dim": 64}},
        _BOTH,
        _CLIP_DIMS,
    ),
    entry(
        "groupvit",
        "groupvit",
        "AutoModel",
        {
            **_TOWERS,
            "vision_config": {
                **VISION,
                "depths": [1, 1, 1],
                "num_group_tokens": [8, 4, 0],
                "num_output_groups": [8, 4, 0],
            },
            "projection_intermediate_dim": 96,
        },
        _BOTH,
        _CLIP_DIMS,
    ),
    entry("owlvit", "owlvit", "AutoModel", {**_TOWERS}, _BOTH, _CLIP_DIMS),
    entry(
        "clipseg",
        "clipseg",
        "CLIPSegForImageSegmentation",
        {
            **_TOWERS,
            "extract_layers": [0, 1],
            "reduce_dim": 32,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 48,
        },
        _BOTH,
        _CLIP_DIMS,
    ),
    entry(
        "blip",
        "blip",
        "BlipForImageTextRetrieval",
        {
            "text_config": {**COMMON, "encoder_hidden_size": 128},
            "vision_config": VISION,
            "image_text_hidden_size": 64,
        },
        _BOTH,
        _CLIP_DIMS,
    ),
    entry(
        "vilt",
        "vilt",
        "AutoModel",
        {**COMMON, **VISION, "max_image_length": -1},
        [
            *_BOTH,
            Input("token_type_ids", ("batch", "sequence"), "zero"),
            Input("pixel_mask", ("batch", 64, 64), "mask"),
        ],
        _CLIP_DIMS,
    ),
    entry(
        "git",
        "git",
        "AutoModelForCausalLM",
        {**COMMON, "vision_config": VISION},
        _BOTH,
        _CLIP_DIMS,
        by_name([i.name for i in _BOTH], use_cache=False),
    ),
    entry(
        "layoutlmv3",
        "layoutlmv3",
        "AutoModel",
        {
            **COMMON,
            "input_size": 64,
            "patch_size": 16,
            "coordinate_size": 24,
            "shape_size": 16,
            "max_2d_position_embeddings": 128,
        },
        [*text(), _BOXES, Input("pixel_values", ("batch", 3, 64, 64))],
        _CLIP_DIMS,
    ),
    entry(
        "llava",
        "llava",
        "AutoModelForImageTextToText",
        {
            "text_config": {"model_type": "llama", **COMMON, **GROUPED},
            "vision_config": {"model_type": "clip_vision_model", **VISION},
            "image_token_id": 199,
        },
        text(),
        TEXT,
        by_name(["input_ids", "attention_mask"], use_cache=False),
    ),
    entry(
        "trocr",
        "trocr",
        "AutoModelForCausalLM",
        {
            **COMMON,
            "d_model": 128,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 192,
            "cross_attention_hidden_size": 96,
        },
        [*text(), Input("encoder_hidden_states", ("batch", 9, 96))],
        TEXT,
        by_name(
            ["input_ids", "attention_mask", "encoder_hidden_states"], use_cache=False
        ),
    ),
]

_FEATURES = [
    Input("input_features", ("batch", 80, 60)),
    Input("decoder_input_ids", ("batch", "target"), "ids", VOCABULARY),
]
_HEARD = {"batch": (1, 2, 3), "target": (1, 6, 12)}
_SOUNDS = [
    sound("wav2vec2"),
    sound("hubert"),
    sound("wavlm", num_buckets=32, max_bucket_distance=64),
    sound("unispeech-sat"),
    sound("data2vec-audio", conv_pos_kernel_size=5),
    sound("wav2vec2-conformer", conv_depthwise_kernel_size=7),
    sound("sew", conv_dim=[32] * 13, squeeze_factor=2),
    sound(
        "sew-d",
        conv_dim=[32] * 13,
        squeeze_factor=2,
        position_buckets=16,
        max_position_embeddings=32,
    ),
    entry(
        "whisper",
        "whisper",
        "AutoModelForSpeechSeq2Seq",
        {
            **COMMON,
            **SEQ2SEQ,
            "num_mel_bins": 80,
            "max_source_positions": 30,
            "max_target_positions": 32,
        },
        _FEATURES,
        _HEARD,
        by_name(["input_features", "decoder_input_ids"], use_cache=False),
    ),
    entry(
        "speech_to_text",
        "speech_to_text",
        "AutoModelForSpeechSeq2Seq",
        {
            **COMMON,
            **SEQ2SEQ,
            "input_feat_per_channel": 80,
            "max_source_positions": 64,
            "max_target_positions": 32,
            "conv_channels": 64,
        },
        [Input("input_features", ("batch", 60, 80)), _FEATURES[1]],
        _HEARD,
        by_name(["input_features", "decoder_input_ids"], use_cache=False),
    ),
    entry(
        "moonshine",
        "moonshine",
        "AutoModelForSpeechSeq2Seq",
        {
            **COMMON,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 2,
            "decoder_num_attention_heads": 2,
            "encoder_num_key_value_heads": 2,
            "decoder_num_key_value_heads": 2,
        },
        [Input("input_values", ("batch", "samples")), _FEATURES[1]],
        {**_HEARD, "samples": (1000, 2000, 3000)},
        by_name(["input_values", "decoder_input_ids"], use_cache=False),
    ),
    entry(
        "audio-spectrogram-transformer",
        "audio-spectrogram-transformer",
        "AutoModel",
        {**VISION, "max_length": 64, "num_mel_bins": 32},
        [Input("input_values", ("batch", 64, 32))],
        BATCH,
    ),
    entry(
        "wav2vec2-bert",
        "wav2vec2-bert",
        "AutoModel",
        {
            **COMMON,
            "feature_projection_input_dim": 40,
            "conv_depthwise_kernel_size": 7,
            "left_max_position_embeddings": 8,
            "right_max_position_embeddings": 4,
        },
        [Input("input_features", ("batch", "frames", 40))],
        {"batch": (1, 2, 3), "frames": (4, 20, 40)},
    ),
    entry(
        "encodec",
        "encodec",
        "AutoModel",
        {
            "num_filters": 4,
            "hidden_size": 16,
            "upsampling_ratios": [4, 2],
            "num_lstm_layers": 1,
            "codebook_size": 32,
            "codebook_dim": 16,
        },
        [Input("input_values", ("batch", 1, 960))],
        BATCH,
    ),
    entry(
        "univnet",
        "univnet",
        "AutoModel",
        {
            "model_in_channels": 8,
            "model_hidden_channels": 8,
            "num_mel_bins": 20,
            "kernel_predictor_hidden_channels": 8,
        },
        [
            Input("input_features", ("batch", "frames", 20)),
            Input("noise_sequence", ("batch", "frames", 8)),
        ],
        {"batch": (1, 2, 3), "frames": (4, 10, 20)},
    ),
]

_SERIES = [
    entry(
        "patchtst",
        "patchtst",
        "AutoModel",
        {
            **COMMON,
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 128,
            "ffn_dim": 192,
            "do_mask_input": False,
        },
        [Input("past_values", ("batch", 32, 3))],
        BATCH,
    ),
    entry(
        "patchtsmixer",
        "patchtsmixer",
        "AutoModel",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_layers": 2,
        },
        [Input("past_values", ("batch", 32, 3))],
        BATCH,
    ),
    entry(
        "decision_transformer",
        "decision_transformer",
        "AutoModel",
        {**_GPT2, "state_dim": 11, "act_dim": 3, "hidden_size": 128, "max_ep_len": 50},
        [
            Input("states", ("batch", "sequence", 11)),
            Input("actions", ("batch", "sequence", 3)),
            Input("returns_to_go", ("batch", "sequence", 1)),
            Input("timesteps", ("batch", "sequence"), "step", 50),
            Input("attention_mask", ("batch", "sequence"), "mask"),
        ],
        {**TEXT, "sequence": (1, 6, 12)},
    ),
]

ENTRIES = [*_MIXED, *_SOUNDS, *_SERIES]

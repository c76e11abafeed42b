"""Architectures of timm: of each family one of the smallest, with layers left out where
the constructor allows it."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..entries import BATCH, Entry, image, image_dims


def _make(name: str, options: dict[str, Any]) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=16, **options)


_VIT = {"embed_dim": 128, "depth": 2, "num_heads": 2, "img_size": 64}
_DEPTHS = {"depths": (1, 1, 2, 1)}


# Names, size of the images, options; those of one line differ in their blocks. Images
# of "convolutional" lines vary in height and width.
_CONVOLUTIONAL: list[tuple[str, int, dict[str, Any]]] = [
    ("resnet18 ecaresnet26t resnetblur18", 64, {}),
    ("res2net50_14w_8s resnest14d test_resnet", 64, {}),
    ("convnext_atto convnextv2_atto", 64, _DEPTHS),
    ("efficientnet_lite0 efficientnet_b0_gn mobilenetv2_035", 64, {}),
    ("semnasnet_050 mixnet_s tinynet_e", 64, {}),
    ("mobilenetv4_conv_small_050", 64, {}),
    ("mobilenetv3_small_050 lcnet_035 rexnet_100", 64, {}),
    ("ghostnet_050 repghostnet_050", 64, {}),
    ("test_nfnet nf_regnet_b0 resnetv2_50d_evos test_byobnet", 64, {}),
    ("regnetx_002 regnety_002 regnetz_b16", 64, {}),
    ("repvgg_a0 mobileone_s0 repvit_m0_9 gernet_s", 64, {}),
    ("dla46_c hrnet_w18_small densenet121 ese_vovnet19b_slim_dw", 64, {}),
    ("cs3darknet_focus_s darknetaa53", 64, {}),
    ("hgnetv2_b0 starnet_s050 fasternet_t0 inception_next_atto mambaout_femto", 64, {}),
    ("poolformer_s12 caformer_s18 focalnet_tiny_srf davit_tiny", 64, {}),
    ("edgenext_xx_small mobilevit_xxs mobilevitv2_050 fastvit_t8", 128, {}),
    ("efficientvit_b0 pvt_v2_b0 shvit_s1 swiftformer_xs", 128, {}),
    ("legacy_seresnet18 rdnet_tiny lowformer_b0 cspnext_tiny", 64, {}),
]
_FIXED: list[tuple[str, int, dict[str, Any]]] = [
    ("vit_tiny_patch16_224 deit3_small_patch16_224 test_vit2", 64, _VIT),
    ("vit_small_patch14_reg4_dinov2", 56, {**_VIT, "img_size": 56}),
    ("vit_relpos_small_patch16_224 deit_tiny_distilled_patch16_224", 64, _VIT),
    ("beit_base_patch16_224 eva02_tiny_patch14_224", 112, {**_VIT, "img_size": 112}),
    ("cait_xxs24_224", 64, {**_VIT, "depth_token_only": 1}),
    ("xcit_nano_12_p16_224", 64, {"depth": 2, "img_size": 64}),
    (
        "samvit_base_patch16",
        128,
        {**_VIT, "img_size": 128, "global_attn_indexes": (1,)},
    ),
    (
        "swin_tiny_patch4_window7_224",
        112,
        {"depths": (2, 2), "embed_dim": 64, "num_heads": (2, 4), "img_size": 112},
    ),
    (
        "swinv2_tiny_window8_256",
        128,
        {"depths": (2, 2), "embed_dim": 64, "num_heads": (2, 4), "img_size": 128},
    ),
    ("swinv2_cr_tiny_224", 224, {"depths": (2, 2, 1, 1), "embed_dim": 48}),
    ("coat_lite_tiny convit_tiny crossvit_9_240 pit_ti_224 tnt_s_patch16_224", 224, {}),
    ("levit_128s visformer_tiny twins_svt_small nest_tiny volo_d1_224", 224, {}),
    ("efficientformer_l1 efficientformerv2_s0 efficientvit_m0", 224, {}),
    ("mvitv2_tiny gcvit_xxtiny hiera_tiny_224 coatnet_nano_rw_224", 224, {}),
    ("mixer_s32_224 gmixer_12_224 gmlp_ti16_224 resmlp_12_224", 224, {}),
    ("sequencer2d_s", 224, {"layers": (1, 1, 1, 1)}),
    ("botnet26t_256 halonet26t maxvit_pico_rw_256", 256, {}),
    ("naflexvit_base_patch16_gap", 64, {}),
]


def _lines(lines: Any, varying: bool) -> list[Entry]:
    return [
        Entry(
            "timm",
            name,
            partial(_make, name, options),
            [image(size, varying=varying)],
            image_dims(size) if varying else BATCH,
        )
        for names, size, options in lines
        for name in names.split()
    ]


ENTRIES = _lines(_CONVOLUTIONAL, True) + _lines(_FIXED, False)

"""Architectures of torchvision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..entries import BATCH, Entry, Input, image, image_dims

_CLASSES = {"num_classes": 16}
_NO_WEIGHTS = {"weights_backbone": None}
_DEPTHS = {"depths": [1, 1, 1, 1], **_CLASSES}


def _models() -> Any:
    import torchvision

    return torchvision.models


def _named(name: str, options: dict[str, Any]) -> Any:
    return _models().get_model(name, weights=None, **options)


# ---- Those that come in too large a size alone, with fewer layers or narrower ----


def _resnet(block: str, **options: Any) -> Any:
    resnet = _models().resnet
    return resnet.ResNet(getattr(resnet, block), [1, 1, 1, 1], **_CLASSES, **options)


def _vgg(norm: bool) -> Any:
    vgg = _models().vgg
    layers = vgg.make_layers([16, "M", 32, "M", 48, "M", 64, 64, "M"], batch_norm=norm)
    layers.append(_models().resnet.nn.Conv2d(64, 512, 1))
    model = vgg.VGG(layers, **_CLASSES)
    model.classifier[0] = type(model.classifier[0])(512 * 49, 64)
    model.classifier[3] = type(model.classifier[3])(64, 64)
    model.classifier[6] = type(model.classifier[6])(64, 16)
    return model


def _densenet() -> Any:
    return _models().DenseNet(8, (2, 2, 2, 2), 16, **_CLASSES)


def _vit() -> Any:
    return _models().VisionTransformer(64, 16, 2, 2, 128, 256, **_CLASSES)


def _swin(version: str) -> Any:
    swin = _models().swin_transformer
    shape = ([4, 4], 32, [2, 2], [1, 2], [7, 7])
    if version == "v1":
        return swin.SwinTransformer(*shape, **_CLASSES)
    block, merging = swin.SwinTransformerBlockV2, swin.PatchMergingV2
    shape = (*shape[:4], [8, 8])
    return swin.SwinTransformer(
        *shape, block=block, downsample_layer=merging, **_CLASSES
    )


def _convnext() -> Any:
    convnext = _models().convnext
    blocks = [(32, 64, 1), (64, 96, 1), (96, 128, 2), (128, None, 1)]
    return convnext.ConvNeXt([convnext.CNBlockConfig(*b) for b in blocks], **_CLASSES)


def _efficientnet(version: str) -> Any:
    efficientnet = _models().efficientnet
    one, other = efficientnet.MBConvConfig, efficientnet.FusedMBConvConfig
    if version == "v1":
        lines = [(1, 3, 1, 16, 16, 1), (6, 3, 2, 16, 24, 1), (6, 5, 2, 24, 40, 2)]
        blocks = [one(*line) for line in lines]
    else:
        blocks = [other(1, 3, 1, 24, 24, 1), other(4, 3, 2, 24, 32, 2)]
        blocks += [one(4, 3, 2, 32, 48, 2)]
    return efficientnet.EfficientNet(blocks, 0.2, **_CLASSES)


def _maxvit() -> Any:
    return _models().MaxVit((64, 64), 32, 2, [32, 64], [1, 1], 32, 0.0, **_CLASSES)


def _regnet(name: str, **options: Any) -> Any:
    regnet = _models().regnet
    parameters = regnet.BlockParams.from_init_params(
        depth=6, w_0=32, w_a=20.0, w_m=2.4, group_width=16, **options
    )
    return regnet.RegNet(parameters, **_CLASSES)


def _segmenter(name: str, dilated: bool = True) -> Any:
    """FCN and DeepLab over a narrow backbone, with the auxiliary classifier."""
    segmentation = _models().segmentation
    backbone = _models().resnet.ResNet(
        _models().resnet.Bottleneck,
        [1, 1, 1, 1],
        width_per_group=16,
        replace_stride_with_dilation=[False, True, True],
    )
    build = getattr(getattr(segmentation, name), f"_{name}_resnet")
    return build(backbone, 5, True)


def _video(kind: str) -> Any:
    video = _models().video.resnet
    makers = {
        "r3d": [video.Conv3DSimple] * 4,
        "mc3": [video.Conv3DSimple, *[video.Conv3DNoTemporal] * 3],
        "r2plus1d": [video.Conv2Plus1D] * 4,
    }
    stem = video.R2Plus1dStem if kind == "r2plus1d" else video.BasicStem
    return video.VideoResNet(
        video.BasicBlock, makers[kind], [1, 1, 1, 1], stem, **_CLASSES
    )


def _mvit(version: str) -> Any:
    mvit = _models().video.mvit
    later = version == "v2"
    wide = 64 if later else 32
    blocks = [
        mvit.MSBlockConfig(1, 32, wide, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]),
        mvit.MSBlockConfig(2, wide, 64, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1]),
    ]
    options = (
        {
            "residual_pool": True,
            "residual_with_cls_embed": False,
            "rel_pos_embed": True,
            "proj_after_attn": True,
        }
        if later
        else {
            "residual_pool": False,
            "residual_with_cls_embed": True,
            "rel_pos_embed": False,
            "proj_after_attn": False,
        }
    )
    return mvit.MViT((64, 64), 4, blocks, **options, **_CLASSES)


def _swin3d() -> Any:
    return _models().video.swin_transformer.SwinTransformer3d(
        [2, 4, 4], 24, [2, 2], [1, 2], [8, 7, 7], **_CLASSES
    )


def _raft() -> Any:
    return _models().optical_flow.raft_small(weights=None)


# ---- Lines ----


def _entry(name: str, make: Callable[[], Any], size: int, varying: bool) -> Entry:
    dims = image_dims(size) if varying else BATCH
    return Entry("torchvision", name, make, [image(size, varying=varying)], dims)


def _clip(name: str, make: Callable[[], Any], frames: int, size: int) -> Entry:
    inputs = [Input("x", ("batch", 3, frames, size, size))]
    return Entry("torchvision", name, make, inputs, BATCH)


def _detect(module: Any, picture: Any) -> Any:
    return module([picture])


def _detector(name: str, size: int, **options: Any) -> Entry:
    """Detectors take pictures one by one, and scale them themselves."""
    make = partial(_named, name, {"num_classes": 5, **_NO_WEIGHTS, **options})
    inputs = [Input("x", (3, "32 * height", "32 * width"), "unit")]
    dims = {k: v for k, v in image_dims(size).items() if k != "batch"}
    return Entry("torchvision", name, make, inputs, dims, _detect)


def _flow(module: Any, first: Any, second: Any) -> Any:
    return module(first, second, num_flow_updates=2)


# Names that get_model knows: size of the images, whether these vary, options.
_NAMED: list[tuple[str, int, bool, dict[str, Any]]] = [
    ("googlenet", 64, True, {"init_weights": True, "aux_logits": False, **_CLASSES}),
    (
        "inception_v3",
        96,
        False,
        {"init_weights": False, "aux_logits": False, **_CLASSES},
    ),
    ("mnasnet0_5", 64, True, _CLASSES),
    ("mobilenet_v2", 64, True, {"width_mult": 0.25, **_CLASSES}),
    ("mobilenet_v3_small", 64, True, {"width_mult": 0.5, **_CLASSES}),
    ("mobilenet_v3_large", 64, True, {"width_mult": 0.25, **_CLASSES}),
    ("shufflenet_v2_x0_5", 64, True, _CLASSES),
    ("shufflenet_v2_x1_0", 64, True, _CLASSES),
    ("squeezenet1_0", 64, True, _CLASSES),
    ("squeezenet1_1", 64, True, _CLASSES),
    ("efficientnet_b0", 64, True, _CLASSES),
    ("regnet_y_400mf", 64, True, _CLASSES),
    ("regnet_x_400mf", 64, True, _CLASSES),
    ("lraspp_mobilenet_v3_large", 64, True, _NO_WEIGHTS),
    ("deeplabv3_mobilenet_v3_large", 64, True, {"aux_loss": True, **_NO_WEIGHTS}),
]
# Others: how they are made.
_MADE: list[tuple[str, Callable[[], Any], int, bool]] = [
    ("resnet_basic", partial(_resnet, "BasicBlock"), 64, True),
    ("resnet_bottleneck", partial(_resnet, "Bottleneck", width_per_group=16), 64, True),
    ("resnext", partial(_resnet, "Bottleneck", groups=8, width_per_group=4), 64, True),
    ("wide_resnet", partial(_resnet, "Bottleneck", width_per_group=24), 64, True),
    ("vgg", partial(_vgg, False), 224, False),
    ("vgg_bn", partial(_vgg, True), 224, False),
    ("densenet", _densenet, 64, True),
    ("vit", _vit, 64, False),
    ("swin", partial(_swin, "v1"), 64, True),
    ("swin_v2", partial(_swin, "v2"), 64, True),
    ("convnext", _convnext, 64, True),
    ("efficientnet", partial(_efficientnet, "v1"), 64, True),
    ("efficientnet_v2", partial(_efficientnet, "v2"), 64, True),
    ("maxvit", _maxvit, 64, False),
    ("regnet_x", partial(_regnet, "x"), 64, True),
    ("regnet_y", partial(_regnet, "y", se_ratio=0.25), 64, True),
    ("fcn", partial(_segmenter, "fcn"), 64, True),
    ("deeplabv3", partial(_segmenter, "deeplabv3"), 64, True),
]
_CLIPS: list[tuple[str, Callable[[], Any], int, int]] = [
    ("r3d", partial(_video, "r3d"), 8, 32),
    ("mc3", partial(_video, "mc3"), 8, 32),
    ("r2plus1d", partial(_video, "r2plus1d"), 8, 32),
    ("s3d", partial(_named, "s3d", _CLASSES), 16, 224),
    ("mvit_v1", partial(_mvit, "v1"), 4, 64),
    ("mvit_v2", partial(_mvit, "v2"), 4, 64),
    ("swin3d", _swin3d, 8, 56),
]
_FEW = {
    "box_detections_per_img": 10,
    "box_score_thresh": 0.01,
    "rpn_post_nms_top_n_test": 20,
    "rpn_pre_nms_top_n_test": 40,
}
_SCALES = {"min_size": 96, "max_size": 128}
_TOP = {"detections_per_img": 10, "topk_candidates": 20, "score_thresh": 0.01}

ENTRIES = [
    *(_entry(n, partial(_named, n, o), size, v) for n, size, v, o in _NAMED),
    *(_entry(*line) for line in _MADE),
    *(_clip(*line) for line in _CLIPS),
    _detector("fasterrcnn_mobilenet_v3_large_320_fpn", 96, **_SCALES, **_FEW),
    _detector("fasterrcnn_resnet50_fpn", 96, **_SCALES, **_FEW),
    _detector("maskrcnn_resnet50_fpn", 96, **_SCALES, **_FEW),
    _detector("keypointrcnn_resnet50_fpn", 96, **{**_SCALES, **_FEW}, num_keypoints=5),
    _detector("retinanet_resnet50_fpn", 96, **_SCALES, **_TOP),
    _detector("fcos_resnet50_fpn", 96, **_SCALES, **_TOP),
    _detector("ssdlite320_mobilenet_v3_large", 320, **_TOP),
    _detector("ssd300_vgg16", 288, **_TOP),
    Entry(
        "torchvision",
        "raft_small",
        _raft,
        [image(128, name="first"), image(128, name="second")],
        BATCH,
        _flow,
    ),
]

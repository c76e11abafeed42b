"""Writes docs/reference/onnx_operators.md from the importer's tables.

    python tools/onnx_operators.py            fails where the page is out of date
    python tools/onnx_operators.py --update   writes it

The operators and their versions are those of the tables in src/onnx/*/ops_*.c, the refused
ones those of src/onnx/missing.def. LIMITS adds what the importer refuses or does differently.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "onnx_operators.md"

# Titles of the files that import the operators, where the file's name does not do.
_TITLES = {
    "pointwise": "Element-wise",
    "activation": "Activations",
    "choice": "Selection of extremes",
    "convolution": "Convolution and pooling",
    "einsum": "Sums of products",
    "matrix": "Matrix products and softmax",
    "quantize": "Quantization",
    "integer": "Products of quantized tensors",
    "range": "Generated tensors",
    "random": "Random numbers",
    "reduce": "Reductions",
    "loss": "Losses",
    "shape": "Shapes",
    "resize": "Resizing and sampling",
    "scatter": "Scatter, cumulative sums, reversal",
    "sizes": "Data-dependent sizes",
    "slice": "Data movement",
    "constant": "Constants and control flow",
    "loop": "Loops",
    "state": "Layers with a state",
    "bits": "Bits of numbers",
    "image": "Images and grids",
    "roi_pool": "Regions of images",
    "signal": "Fourier transforms and windows",
    "sequence": "Sequences and optional values",
    "recurrent": "Recurrent layers",
    "ml": "Classic machine learning",
    "ml_svm": "Classic machine learning: support vectors",
    "ml_trees": "Classic machine learning: trees",
    "ml_maps": "Classic machine learning: maps of labels",
    "microsoft_fused": "ONNX Runtime: several operators in one",
    "microsoft_quantized": "ONNX Runtime: quantized operators",
    "microsoft_experts": "ONNX Runtime: mixtures of experts",
    "microsoft_attention": "ONNX Runtime: attention",
    "microsoft_group_query": "ONNX Runtime: attention of decoders",
    "trt_plugins": "Plugins of TensorRT's library: detections",
    "trt_layers": "Plugins of TensorRT's library: operators of ONNX",
    "trt_pyramid": "Plugins of TensorRT's library: regions of several maps",
    "trt_bert": "Plugins of TensorRT's library: BERT",
}

_RANDOM = "FLOAT, FLOAT16 and BFLOAT16; the same numbers in each run"
_SHAPED = "the number of axes must be known at import"

_LISTED = (
    "where a run tells the length, tensors are of one shape or differ along one axis alone"
)

LIMITS = {
    "AveragePool": "1 to 3 spatial axes",
    "BatchNormalization": "`spatial` 0 (opset 6) is refused",
    "CastLike": "the target's type is that of the second input",
    "Conv": "1 to 3 spatial axes",
    "ConvTranspose": "1 to 3 spatial axes; `output_shape` needs an input of known extents",
    "Compress": "the output has a data-dependent size",
    "Dropout": "passes its input through; `training_mode` must be a constant false",
    "GroupNormalization": "the number of channels must be known",
    "If": "the branches may differ in extents; of two ranks the lower is imported, and a run that "
    "takes the other fails; of a condition known at import the branch taken is imported",
    "Loop": "optional values as states need a number of iterations that is known at import",
    "LinearAttention": "unrolled: the number of tokens must be known at import",
    "CausalConvWithState": "the number of channels must be known at import",
    "CumProd": "the axis must be known at import",
    "BitCast": "DOUBLE only where it is kept; no other floating types of 8 bits than FLOAT8E4M3FN "
    "and FLOAT8E8M0",
    "Bernoulli": "the same numbers in each run",
    "Multinomial": "the same numbers in each run",
    "Scan": "before opset 9 the scanned extents must be known at import",
    "MatMulInteger": "sums are FLOAT on the way: exact below 2^24",
    "ConvInteger": "sums are FLOAT on the way: exact below 2^24",
    "ai.onnx.ml.LabelEncoder": "numbers to numbers",
    "ai.onnx.ml.ZipMap": "the output is the tensor of scores, with a warning; refused where a node "
    "reads it, or where labels are integers other than 0, 1, 2, ...",
    "ai.onnx.ml.LinearClassifier": "labels that are strings are refused where something reads them",
    "ai.onnx.ml.OneHotEncoder": "categories that are numbers",
    "ai.onnx.ml.SVMClassifier": "labels "
    "that are strings are refused where something reads them",
    "ai.onnx.ml.SVMRegressor": "no `post_transform`",
    "ai.onnx.ml.TreeEnsembleClassifier": "labels that are strings are refused where something "
    "reads them; of two classes that both have weights, the label is that of the greater score",
    "com.microsoft.Attention": "no `do_rotary`, no shared buffer of past and present; masks of "
    "rank 1 to 3",
    "com.microsoft.GroupQueryAttention": "the past's memory becomes the present's where it has "
    "room; no quantized or window-sized caches, no `q_norm_weight`",
    "com.microsoft.MultiHeadAttention": "no shared buffer of past and present, no "
    "`cache_indirection`, no output `qk`; masks of rank 1 to 3",
    "com.microsoft.MatMulBnb4": "constant weights: NF4, or FP4, which is stored as FP8; blocks "
    "that go on in the next row are dequantized when the plan is built",
    "com.microsoft.DynamicQuantizeLSTM":
        "weights are dequantized; inputs and hidden states are not quantized, as ONNX "
        "Runtime does",
    "com.microsoft.MatMulNBits": "constant weights of 2, 4 or 8 bits; dequantized when the "
    "plan is built if zero points are floating; from `accuracy_level` 4 on a row of `A` may be "
    "rounded to INT8; no `g_idx`, no `weight_prepacked`",
    "com.microsoft.MoE": "no sparse mixer; with `swiglu`, or `silu` and fc3, only chosen experts "
    "are computed, else all",
    "com.microsoft.QMoE": "constant weights of 2, 4 or 8 bits (`quant_type` int), dequantized at "
    "import; else as MoE (ONNX Runtime's CPU kernel does as with `normalize_routing_weights` 1 "
    "without it, too)",
    "rabbet.GroupedMatMul": "of rabbet.torch: rows, the matrix of each row, matrices; a row whose "
    "matrix does not exist becomes 0",
    **{
        f"{domain}EfficientNMS_TRT": "no anchors; the numbers of boxes and classes must be known "
        "at import; a registered plugin of this name comes first"
        for domain in ("", "TRT.")
    },
    **{
        f"{domain}BatchedNMS{kind}_TRT": "the numbers of boxes and classes must be known at "
        "import; a registered plugin of this name comes first"
        for domain in ("", "TRT.")
        for kind in ("", "Dynamic")
    },
    **{
        f"{domain}EfficientNMS_ONNX_TRT": "boxes for all classes; the numbers of boxes and classes "
        "must be known at import; rows by image, then by score"
        for domain in ("", "TRT.")
    },
    **{
        f"{domain}PyramidROIAlign_TRT": "samples all four maps; `roi_coords_transform` -1 needs "
        "`sampling_ratio` 1 or more"
        for domain in ("", "TRT.")
    },
    "TRT.ScatterElements": "`reduction` mean is refused",
    **{
        f"{domain}Custom{name}PluginDynamic": limit
        for domain in ("", "TRT.")
        for name, limit in (
            ("EmbLayerNorm", "version 1, without `full_mask`"),
            ("QKVToContext", "version 1; FLOAT and FLOAT16"),
            ("SkipLayerNorm", "versions 1 and 2; FLOAT and FLOAT16"),
        )
    },
    "MaxPool": "1 to 3 spatial axes",
    "NonMaxSuppression": "the output has a data-dependent size; equal scores: lower index first",
    "NonZero": "the output has a data-dependent size",
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
    "Resize": "`roi` must be constant",
    "ReverseSequence": "lengths beyond the axis mean all of it, those below 0 none",
    "ScatterElements": "indices that are out of bounds are skipped",
    "ScatterND": "indices that are out of bounds are skipped",
    **{
        f"Sequence{name}": _LISTED
        for name in ("At", "Construct", "Empty", "Erase", "Insert", "Length")
    },
    "SequenceMap": "the sequences' length must be known at import",
    "Col2Im": "1 to 3 spatial axes; `block_shape` must be known at import",
    "DeformConv": "2 spatial axes; channels and kernel must be known at import",
    "DFT": "of a length that a run tells: a product with a matrix of the transform",
    "MaxRoiPool": "a pass over its image for each bin of a region",
    "MelWeightMatrix": "all inputs must be known at import",
    "STFT": "length and step of frames must be known at import; the window is as long as a frame",
    "ConcatFromSequence": _LISTED,
    "SplitToSequence": _LISTED,
    "Squeeze": f"{_SHAPED}; without axes, an unknown extent stays and must not be 1 in a run",
    "ReduceSum": _SHAPED,
    "TensorScatter": "a linear mode skips rows beyond the end of the cache; aliases the cache",
    "Unique": "the output has a data-dependent size; slices of at most 128 elements",
    "Unsqueeze": _SHAPED,
}

_INTRO = """# ONNX operators

The operators of the default domain that the importer takes, with the versions of the
operator set that changed them: all are implemented. Behind them come those of `ai.onnx.ml`
and those that ONNX Runtime adds, most of them in the domain `com.microsoft`, as its optimizer,
its quantizer and exporters for it write them. [onnx.md](../onnx.md) says what holds
for all operators: types, values that must be constant, limits of a file.

Every other operator needs a plugin of its name ([plugins.md](../plugins.md)) or a local
function in the model. `python tools/onnx_operators.py --update` makes this page from
`src/onnx/*/ops_*.c`; a test compares the versions with the `onnx` package."""


class Operator(NamedTuple):
    """A row of a table."""

    name: str
    group: str
    since: str


def operators() -> list[Operator]:
    """All rows, in the order of their files; the group is the file's name."""
    row = r"^ +RABBET_ONNX_(?:LIST_)?OP\((\w+),\s*\w+,\s*\"\w*\",([\s\d,]+)\)"
    learning = r"^ +RABBET_ONNX_ML_OP\((\w+),\s*\w+,\s*\"\w*\",([\s\d,]+)\)"
    runtime = r"^ +RABBET_ONNX_(?:RUNTIME|PLUGIN)_OP\(\"([\w.]*)\",\s*(\w+),"
    folder = ROOT / "src/onnx"
    groups = re.findall(r"\bFILE\((\w+)\)", (folder / "operators.c").read_text())
    found = []
    for group in groups:
        (file,) = folder.glob(f"*/ops_{group}.c")
        text = file.read_text()
        for name, since in re.findall(row, text, re.M):
            found.append(Operator(name, group, re.sub(r"\s+", " ", since).strip()))
        for name, since in re.findall(learning, text, re.M):
            versions = re.sub(r"\s+", " ", since).strip()
            found.append(Operator(f"ai.onnx.ml.{name}", group, versions))
        for domain, name in re.findall(runtime, text, re.M):
            found.append(Operator(f"{domain}.{name}".lstrip("."), group, "1"))
    return found


def refused() -> list[tuple[str, str]]:
    """(operator, reason) of missing.def."""
    text = (ROOT / "src/onnx/missing.def").read_text()
    row = r"^RABBET_ONNX_MISSING\(\"(.*?)\",\s*(\w+|\*),((?:\s*\".*?\")+)\)"
    return [
        (f"{domain}.{name}".lstrip("."), "".join(re.findall(r'"(.*?)"', reason)))
        for domain, name, reason in re.findall(row, text, re.M)
    ]


def page() -> str:
    """The page's text."""
    table = operators()
    unknown = set(LIMITS) - {one.name for one in table}
    if unknown:
        raise ValueError(f"LIMITS names operators that are not imported: {sorted(unknown)}")
    parts = [_INTRO]
    for group in dict.fromkeys(one.group for one in table):
        parts.append(f"\n## {_TITLES.get(group, group.capitalize())}\n")
        parts.append("| operator | versions | limits and differences |\n|---|---|---|")
        rows = sorted(one for one in table if one.group == group)
        for one in rows:
            limit = LIMITS.get(one.name, "")
            parts.append(f"| {one.name} | {one.since} | {limit} |".replace("|  |", "| |"))
    parts.append("\n## Refused, with the reason\n")
    parts.append("| operator | reason |\n|---|---|")
    parts += [f"| {name} | {reason} |" for name, reason in refused()]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Checks the page, or writes it with --update."""
    text = page()
    if "--update" in arguments:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        print(f"{PAGE.name} is out of date: python tools/onnx_operators.py --update")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

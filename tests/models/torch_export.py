"""ONNX files as torch's two exporters write them.

The padding is a torch custom operator. The TorchScript exporter writes it as a
node of domain "example" with `plugin_namespace`; the dynamo exporter as a node
of domain "example" alone. Both are habits that files in the wild have.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from onnxscript import values
from torch import Tensor, nn

from .graph import PLUGIN_NAMESPACE, PLUGIN_OP, RANGE_KEY
from .torch_modules import CircularResNet, Encoder, seeded

EXPORTERS = ("torchscript", "dynamo")
_OPSETS = {"torchscript": 17, "dynamo": 18}


def _torchscript_symbol(g: Any, x: Any, pads: Any) -> Any:
    from torch.onnx import symbolic_helper

    return g.op(
        f"{PLUGIN_NAMESPACE}::{PLUGIN_OP}",
        x,
        pads_i=symbolic_helper._get_const(pads, "is", "pads"),
        plugin_namespace_s=PLUGIN_NAMESPACE,
    ).setTypeAs(x)


def _dynamo_translation() -> dict[Any, Any]:
    schema = onnx.defs.OpSchema(
        PLUGIN_OP,
        PLUGIN_NAMESPACE,
        1,
        inputs=[onnx.defs.OpSchema.FormalParameter("x", "T")],
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)", "tensor(float16)"], "")],
        attributes=[
            onnx.defs.OpSchema.Attribute("pads", onnx.defs.OpSchema.AttrType.INTS)
        ],
    )
    namespace = values.Opset(PLUGIN_NAMESPACE, 1)
    node = values.Op(namespace, PLUGIN_OP, schema)

    def pad(x: Any, pads: Any) -> Any:
        return node(x, pads=list(pads))

    operator = getattr(getattr(torch.ops, PLUGIN_NAMESPACE), PLUGIN_OP)
    return {operator.default: pad}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters print progress and warn of their own future."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _export(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    axes: dict[str, dict[int, str]],
    outputs: list[str],
    exporter: str,
) -> onnx.ModelProto:
    """Exports with named inputs and symbolic axes (input -> axis -> name)."""
    options: dict[str, Any] = {
        "input_names": list(axes),
        "output_names": outputs,
        "opset_version": _OPSETS[exporter],
    }
    with _quiet(), torch.no_grad():
        if exporter == "dynamo":
            dims = {
                name: {axis: torch.export.Dim(dim) for axis, dim in named.items()}
                for name, named in axes.items()
            }
            program = torch.onnx.export(
                model,
                inputs,
                dynamo=True,
                dynamic_shapes=dims if any(axes.values()) else None,
                custom_translation_table=_dynamo_translation(),
                verbose=False,
                **options,
            )
            return program.model_proto
        name = f"{PLUGIN_NAMESPACE}::{PLUGIN_OP}"
        torch.onnx.register_custom_op_symbolic(name, _torchscript_symbol, 1)
        file = io.BytesIO()
        torch.onnx.export(
            model,
            inputs,
            file,
            dynamo=False,
            dynamic_axes={k: v for k, v in axes.items() if v},
            custom_opsets={PLUGIN_NAMESPACE: 1},
            **options,
        )
        return onnx.load_from_string(file.getvalue())


def _checked(exporter: str) -> None:
    if exporter not in EXPORTERS:
        known = ", ".join(EXPORTERS)
        raise ValueError(f"exporter is one of {known}, not '{exporter}'")


def export_resnet50_circular(
    *,
    exporter: str,
    dynamic: bool = False,
    size: int = 224,
    seed: int = 0,
    **options: Any,
) -> tuple[onnx.ModelProto, nn.Module]:
    """image [1 or batch, 3, size, size] -> logits; and the torch module.

    options: those of CircularResNet.
    """
    _checked(exporter)
    model = seeded(CircularResNet(**options), seed)
    # A batch of 1 would be taken for a constant by the dynamo exporter.
    image = torch.zeros(2 if dynamic else 1, 3, size, size)
    axes = {"image": {0: "batch"} if dynamic else {}}
    return _export(model, (image,), axes, ["logits"], exporter), model


def export_bert_base(
    *, exporter: str, seed: int = 0, **options: Any
) -> tuple[onnx.ModelProto, nn.Module]:
    """input_ids, attention_mask int64 [batch, sequence] -> last_hidden_state,
    both dimensions symbolic; and the torch module. options: those of Encoder."""
    _checked(exporter)
    model = seeded(Encoder(**options), seed)
    ids = torch.zeros(2, 8, dtype=torch.int64)
    named = {0: "batch", 1: "sequence"}
    axes = {"input_ids": named, "attention_mask": named}
    inputs = (ids, torch.ones_like(ids))
    result = _export(model, inputs, axes, ["last_hidden_state"], exporter)
    ranges = {"input_ids": model.words.num_embeddings, "attention_mask": 2}
    properties = {RANGE_KEY + name: f"0,{end}" for name, end in ranges.items()}
    onnx.helper.set_model_props(result, properties)
    return result, model

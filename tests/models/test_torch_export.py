"""Models exported from torch run in ONNX Runtime and in Rabbet, and agree with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
rabbet = pytest.importorskip("rabbet")

from tests.models import reference, relative_error, sample_inputs  # noqa: E402
from tests.models.graph import PLUGIN_NAMESPACE, PLUGIN_OP  # noqa: E402
from tests.models.torch_export import (  # noqa: E402
    EXPORTERS,
    export_bert_base,
    export_resnet50_circular,
)

PADDING = Path(__file__).parents[2] / "bench" / "plugins" / "circular_padding.py"
TINY_RESNET = {"width": 8, "blocks": (1, 1, 1, 1), "classes": 10, "size": 64}
TINY_BERT = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocabulary": 100}


def compiled(model: Any, **options: Any) -> Any:
    return rabbet.compile(model, optimization_level=1, threads=2, **options)


# The dynamo exporter takes seconds, and a static model is a lesser case of a dynamic one.
@pytest.mark.parametrize(
    ("exporter", "dynamic"),
    [("torchscript", False), ("torchscript", True), ("dynamo", True)],
)
def test_resnet_with_circular_padding(exporter: str, dynamic: bool) -> None:
    model, module = export_resnet50_circular(
        exporter=exporter, dynamic=dynamic, **TINY_RESNET
    )
    padding = [node for node in model.graph.node if node.op_type == PLUGIN_OP]
    assert len(padding) == 5
    named = {a.name: a for a in padding[0].attribute}
    assert list(named["pads"].ints) == [0, 0, 0, 0, 3, 3, 3, 3]
    assert padding[0].domain == PLUGIN_NAMESPACE
    assert ("plugin_namespace" in named) == (exporter == "torchscript")
    shapes = {"image": tuple((n, 3, 64, 64) for n in (1, 2, 4))} if dynamic else None
    ours = compiled(model, plugins=[PADDING], shapes=shapes)
    batches = (1, 3) if dynamic else (1,)
    for batch in batches:
        inputs = sample_inputs(model, dims={"batch": batch})
        with torch.no_grad():
            expected = module(torch.from_numpy(inputs["image"])).numpy()
        assert expected.shape == (batch, 10)
        assert relative_error(reference(model, inputs)["logits"], expected) < 1e-4
        assert relative_error(np.asarray(ours(inputs["image"])), expected) < 1e-4


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_encoder_with_dynamic_shapes(exporter: str) -> None:
    model, module = export_bert_base(exporter=exporter, **TINY_BERT)
    both = ((1, 4), (2, 16), (4, 32))
    ours = compiled(model, shapes={info.name: both for info in model.graph.input})
    for dims in ({"batch": 1, "sequence": 5}, {"batch": 3, "sequence": 17}):
        inputs = sample_inputs(model, dims=dims)
        inputs["attention_mask"][:, 0] = 1
        with torch.no_grad():
            tensors = {name: torch.from_numpy(x) for name, x in inputs.items()}
            expected = module(**tensors).numpy()
        actual = reference(model, inputs)["last_hidden_state"]
        assert relative_error(actual, expected) < 1e-4
        assert relative_error(np.asarray(ours(**inputs)), expected) < 1e-4


def test_unknown_exporter_is_named() -> None:
    with pytest.raises(ValueError, match="not 'onnxruntime'"):
        export_bert_base(exporter="onnxruntime")

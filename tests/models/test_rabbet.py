"""Real models through Rabbet against ONNX Runtime, torch and each other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rabbet = pytest.importorskip("rabbet")

from tests.models import reference, relative_error, sample_inputs  # noqa: E402
from tests.models.cache import make, model_path  # noqa: E402
from tests.models.reference import with_intermediates  # noqa: E402

PADDING = Path(__file__).parents[2] / "bench" / "plugins" / "circular_padding.py"
FEW = {"optimization_level": 1, "threads": 2}


def compare(model: Any, onnx_model: Any, inputs: dict[str, Any], limit: float) -> None:
    """Each output of `model` against ONNX Runtime's for `onnx_model`."""
    expected = reference(onnx_model, inputs)
    for name, actual in outputs_of(model, inputs).items():
        error = relative_error(np.asarray(actual), expected[name])
        assert error < limit, f"{name}: relative error {error:.2e}"


def outputs_of(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    results = model(**inputs)
    results = results if isinstance(results, tuple) else (results,)
    return {io.name: y for io, y in zip(model.outputs, results, strict=True)}


@pytest.mark.parametrize(
    ("name", "refilled"),
    [("squeezenet", False), ("squeezenet", True), ("resnet50", True)],
)
def test_light_models(name: str, refilled: bool) -> None:
    """As they are shipped, their weights are operators that the build folds."""
    path = model_path(f"light_{name}", filled=refilled)
    inputs = sample_inputs(path)
    compare(rabbet.compile(path, **FEW), path, inputs, 1e-5)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_every_tensor_of_light_models(name: str) -> None:
    """With every tensor an output nothing is fused, and each is compared."""
    model = with_intermediates(make(f"light_{name}", filled=True))
    inputs = sample_inputs(model)
    compiled = rabbet.compile(model, optimization_level=0, threads=2)
    assert len(compiled.outputs) > 60
    compare(compiled, model, inputs, 1e-4)


def test_resnet_with_circular_padding() -> None:
    """In its real widths; the blocks that are left out repeat those before them."""
    path = model_path("resnet50_circular", size=96, blocks=(2, 1, 1, 1))
    model = rabbet.compile(path, plugins=[PADDING], **FEW)
    compare(model, path, sample_inputs(path), 1e-5)


def test_resnet_with_circular_padding_and_dynamic_batch(tmp_path: Path) -> None:
    small = {"size": 64, "blocks": (1, 1, 1, 1)}
    path = model_path("resnet50_circular", batch="batch", **small)
    shapes = {"image": tuple((n, 3, 64, 64) for n in (1, 2, 4))}
    plan = tmp_path / "resnet.plan"
    rabbet.compile(path, plugins=[PADDING], shapes=shapes, save=plan, **FEW)
    model = rabbet.load(plan, plugins=[PADDING], threads=2)
    for batch in (1, 3, 4, 1):
        inputs = sample_inputs(path, seed=batch, dims={"batch": batch})
        compare(model, path, inputs, 1e-5)
    with pytest.raises(rabbet.Error, match=r"'image' is 5; .* 1 to 4"):
        model(np.zeros((5, 3, 64, 64), np.float32))


@pytest.mark.parametrize("layer_norm", ["op", "parts"])
def test_encoder_with_dynamic_batch_and_sequence(layer_norm: str) -> None:
    """Two layers in their real widths: the other ten are the same."""
    path = model_path("bert_base", layer_norm=layer_norm, layers=2, vocabulary=1000)
    both = ((1, 8), (1, 128), (4, 256))
    shapes = {"input_ids": both, "attention_mask": both}
    model = rabbet.compile(path, shapes=shapes, optimization_level=0, threads=2)
    for batch, sequence in ((1, 128), (2, 17), (1, 8), (4, 40)):
        dims = {"batch": batch, "sequence": sequence}
        inputs = sample_inputs(path, seed=sequence, dims=dims)
        inputs["attention_mask"][:, 0] = 1
        compare(model, path, inputs, 1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (
            "resnet50_circular",
            {"size": 64, "width": 16, "blocks": (1, 1, 1, 1), "padding": "slices"},
        ),
        ("bert_base", {"layers": 1, "hidden": 64, "heads": 2, "vocabulary": 50}),
    ],
)
def test_contexts_with_more_threads_than_cores(
    name: str, options: dict[str, Any]
) -> None:
    """Callers beside each other get, to the bit, what each gets alone."""
    made = make(name, **options)
    dims = {"batch": 2, "sequence": 64}
    given = [sample_inputs(made, seed=seed, dims=dims) for seed in range(4)]
    shapes = {key: value.shape for key, value in given[0].items()}
    threads = len(os.sched_getaffinity(0)) + 1
    model = rabbet.compile(made, shapes=shapes, threads=threads, optimization_level=1)
    alone = [outputs_of(model, inputs) for inputs in given]
    for inputs in given:
        compare(model, made, inputs, 1e-4)

    def call(index: int) -> int:
        wrong = 0
        for _ in range(50):
            together = outputs_of(model, given[index])
            wrong += any(
                not np.array_equal(together[key], expected)
                for key, expected in alone[index].items()
            )
        return wrong

    with ThreadPoolExecutor(len(given)) as pool:
        assert list(pool.map(call, range(len(given)))) == [0] * len(given)

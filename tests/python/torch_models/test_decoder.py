"""Decoders with caches that a plan updates in place: the example for transformers."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import rabbet

torch = pytest.importorskip("torch")

import rabbet.torch  # noqa: E402

from .decoder_model import check_greedy, check_sampling, example  # noqa: E402


def test_tokens_are_those_without_a_cache(tmp_path: Path) -> None:
    file = tmp_path / "decoder.plan"
    decoder = check_greedy("cpu", save=file)
    prompts = [[7, 8, 9], [1] * 11]
    engine = rabbet.Runtime(rabbet.Logger()).load_cuda_engine(file)
    assert engine.num_optimization_profiles == 2
    again = example().Decoder(engine).generate(prompts, 20)
    assert again == decoder.generate(prompts, 20)
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(rabbet.LayerInformationFormat.JSON)
    for entry in [json.loads(text), *json.loads(text).get("OtherProfiles", [])]:
        updates = [x for x in entry["Layers"] if x["LayerType"] == "KV_CACHE_UPDATE"]
        assert len(updates) == 4  # keys and values of two layers
    with pytest.raises(ValueError, match="40 tokens and 9 more do not fit into caches of 48"):
        decoder.generate([[1] * 40], 9)


def test_sampling() -> None:
    check_sampling("cpu")


@pytest.mark.parametrize("starts", [(0, 0), (3, 5), (6, 4)])
def test_rows_of_a_cache(starts: tuple[int, int]) -> None:
    cache, update = torch.randn(2, 3, 8, 4), torch.randn(2, 3, 3, 4)
    at = torch.tensor(starts)
    expected = cache.clone()
    for row, start in enumerate(starts):
        rows = min(3, 8 - start)
        expected[row, :, start : start + rows] = update[row, :, :rows]
    found = rabbet.torch.kv_cache_update(cache, update, at)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)

    class Module(torch.nn.Module):
        def forward(self, cache: Any, update: Any, at: Any) -> Any:
            return rabbet.torch.kv_cache_update(cache, update, at)

    model = rabbet.compile(Module(), (cache, update, at), device="cpu")
    torch.testing.assert_close(model(cache, update, at), expected, rtol=0, atol=0)


class Twice(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return torch.relu(x @ x.T) + y


N = torch.export.Dim("n", max=64)


@functools.cache
def program() -> Any:
    """Exported once: that takes longer than a build."""
    shapes = {"x": {0: N}, "y": {0: N}}
    return torch.export.export(
        Twice(), (torch.randn(8, 4), torch.randn(8)), dynamic_shapes=shapes
    )


def compiled(profiles: Any) -> Any:
    return rabbet.compile(program(), profiles=profiles, device="cpu", optimization_level=0)


def test_profiles_of_a_module() -> None:
    model = compiled([{"x": ((1, 4), (32, 4), (64, 4))}, {"y": (1,)}])
    engine = model.model.engine
    assert engine.num_optimization_profiles == 2
    shapes = [
        [tuple(s) for s in engine.get_tensor_profile_shape(name, p)]
        for p in range(2)
        for name in ("x", "y")
    ]
    # The other argument follows.
    assert shapes == [
        [(1, 4), (32, 4), (64, 4)], [(1,), (32,), (64,)], [(1, 4)] * 3, [(1,)] * 3,
    ]  # fmt: skip
    for n in (64, 1, 5, 1):
        x, y = torch.randn(n, 4), torch.randn(n)
        torch.testing.assert_close(model(x, y), Twice()(x, y))


@pytest.mark.parametrize(("profiles", "message"), [
    ([{"z": (1, 4)}], "profiles: the module has no argument 'z'; it has x, y"),
    ([{"x": (1,)}], r"profiles: argument 'x' has 2 dimensions, got \(1,\)"),
    ([{"x": (65, 4)}], r"the range \(65, 65, 65\); dynamic_shapes allow .* to 64"),
    ([{"x": (1, 5)}], r"the range \(5, 5, 5\); dynamic_shapes allow 4 from 4 to 4"),
    ([(1, 4)], "profiles: expected a list of {argument: shape"),
])  # fmt: skip
def test_wrong_profiles(profiles: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        compiled(profiles)


def test_one_tensor_for_two_arguments() -> None:
    x = torch.randn(4)

    class Module(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a - b

    with pytest.raises(ValueError, match=r"inputs \[0\] and \[1\] are one tensor"):
        rabbet.compile(Module(), (x, x), device="cpu")


def test_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    example().main("cpu")

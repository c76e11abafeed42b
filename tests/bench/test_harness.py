"""The harness starts, compares, times and reports contestants."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.contexts import Parallel
from bench.options import Options
from bench.report import Section, Usage, write
from bench.rounds import Spread, best, ratios, take_turns
from bench.run import main
from bench.worker import (
    ContestantError,
    Spec,
    Worker,
    disagreement,
    drop_wrong,
    started,
    time_calls,
)

HERE = "tests.bench.contestants"


def spec(name: str, kind: str = "Plain", **arguments: Any) -> Spec:
    return Spec(name, f"{HERE}:{kind}", arguments)


def test_turns_are_counted_by_round(tmp_path: Path) -> None:
    specs = [spec("a"), spec("b"), spec("c")]
    with started(specs, tmp_path) as field:
        assert not field.absent
        medians = take_turns(field.workers, rounds=4, seconds=0.001)
        processes = [worker._process for worker in field.workers.values()]
    assert {name: len(values) for name, values in medians.items()} == {
        "a": 4,
        "b": 4,
        "c": 4,
    }
    assert all(value > 0 for values in medians.values() for value in values)
    assert not any(process.is_alive() for process in processes)


def test_wrong_and_broken_contestants_do_not_take_part(tmp_path: Path) -> None:
    specs = [
        spec("right"),
        spec("wrong", value=1.5),
        spec("broken", "Broken"),
        spec("dying", "Dying"),
        Spec("missing", "no_such_package.module:Class"),
    ]
    with started(specs, tmp_path) as field:
        drop_wrong(field, {"y": np.array([1.0, 2.0])}, 0.1)
        assert list(field.workers) == ["right"]
        absent = dict(field.absent)
    assert "output y differs by 0.25" in absent["wrong"]
    assert absent["broken"] == "broken: ValueError: there is no such model"
    assert "code 7" in absent["dying"]
    assert "all is lost" in absent["dying"]
    assert "No module named 'no_such_package'" in absent["missing"]


def test_missing_output_is_named(tmp_path: Path) -> None:
    with started([spec("a")], tmp_path) as field:
        drop_wrong(field, {"z": np.zeros(2)}, 0.1)
        assert field.absent == {"a": "a lacks the outputs z"}


def test_cores_and_environment_reach_the_contestant(tmp_path: Path) -> None:
    options = Options(scratch=tmp_path)
    made = options.spec("a", f"{HERE}:Environment", 1, {})
    worker = Worker(made, tmp_path)
    try:
        assert worker.outputs()["y"].tolist() == [1, 1]
        assert worker.start.peak_bytes >= worker.start.bare_bytes > 1 << 20
    finally:
        worker.stop()


def test_stopped_worker_gives_an_error(tmp_path: Path) -> None:
    worker = Worker(spec("a"), tmp_path)
    worker._process.kill()
    with pytest.raises((ContestantError, OSError)):
        worker.outputs()
    worker.stop()


def test_calls_are_grouped_and_counted() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    assert len(time_calls(call, 0.0, 3)) == 3
    assert calls > 30
    samples = time_calls(lambda: time.sleep(0.003), 0.0, 2)
    assert all(sample >= 0.003 for sample in samples)


def test_ratios_are_taken_round_by_round() -> None:
    medians = {"mine": [1.0, 4.0, 3.0], "x": [2.0, 4.0, 6.0], "y": [9.0, 9.0, 1.0]}
    assert best(medians, ["x", "y", "absent"]) == "x"
    assert best(medians, []) is None
    assert ratios(medians, "mine", "x") == [0.5, 1.0, 0.5]
    spread = Spread.of([0.5, 1.0, 0.5, 0.7, 0.6])
    assert (spread.low, spread.median, spread.high) == (0.5, 0.6, 0.7)
    assert spread.text() == "0.60 (0.50 to 0.70)"
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)


def test_disagreement_is_relative_and_sees_shapes() -> None:
    expected = np.array([1.0, -4.0], np.float32)
    assert disagreement(expected + 1, expected) == 0.25
    assert disagreement(expected[:1], expected) == float("inf")
    assert disagreement(np.zeros(0), np.zeros(0)) == 0
    assert not disagreement(np.array([np.nan, 1.0]), expected) <= 1e9


def test_contexts_run_at_the_same_time() -> None:
    inner = f"{HERE}:Meeting"
    pair = Parallel(contexts=2, inner=inner, arguments={})
    pair.call()
    pair.call()
    assert pair.outputs()["y"].tolist() == [1.0]


def test_failing_context_is_told_of() -> None:
    inner = f"{HERE}:Failing"
    pair = Parallel(contexts=2, inner=inner, arguments={})
    with pytest.raises(RuntimeError, match="no memory left"):
        pair.call()


def test_models_built_apart_may_differ_by_rounding() -> None:
    inner = f"{HERE}:Rounded"
    Parallel(contexts=4, inner=inner, arguments={"step": 1e-6}).outputs()
    with pytest.raises(AssertionError, match="disagree on output y by"):
        Parallel(contexts=4, inner=inner, arguments={"step": 0.1}).outputs()


def test_contexts_of_one_model_agree_to_the_bit() -> None:
    inner = f"{HERE}:Shared"
    Parallel(contexts=2, inner=inner, arguments={}).outputs()
    with pytest.raises(AssertionError, match="0 is allowed"):
        Parallel(contexts=2, inner=inner, arguments={"error": 1e-6}).outputs()


def test_report_is_written_for_people_and_programs(tmp_path: Path) -> None:
    section = Section("Title", ["a", "b"], [["1", "2"]], data=[{"a": 1}])
    section.note("said once")
    section.note("said once")
    path = write([section], "few rounds", "test", tmp_path)
    text = path.read_text()
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |\n\n- said once\n" in text
    data = json.loads(path.with_suffix(".json").read_text())
    assert data["sections"]["Title"] == {"notes": ["said once"], "data": [{"a": 1}]}
    assert "few rounds" in text


def test_foreign_share_leaves_own_work_out() -> None:
    before = Usage(total=100.0, busy=40.0, own=10.0)
    after = Usage(total=120.0, busy=55.0, own=20.0)
    assert after.foreign_share(before) == 0.25
    now = Usage.now()
    assert now.total >= now.busy >= 0
    assert now.own > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "no subject speed"),
        (["--only", "models", "--models", "vgg"], "no model vgg"),
        (["--only", "startup", "--models", "vgg"], "no model vgg"),
        (["--only", "build", "--models", "vgg"], "no model vgg"),
        (["--only", "contexts", "--models", "vgg"], "no model vgg"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*arguments, "--no-write"])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "factory"),
    [
        ("onnxruntime", "bench.peers.ort:Model"),
        ("openvino", "bench.peers.ov:Model"),
        ("torch", "bench.peers.torch_cpu:Eager"),
    ],
)
@pytest.mark.parametrize("model", ["bert_base", "resnet50_circular", "unet256"])
def test_peers_agree_with_the_reference(
    package: str, factory: str, model: str, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    import onnx

    from tests.models import make, reference, sample_inputs

    small: dict[str, dict[str, Any]] = {
        "bert_base": {"layers": 1, "hidden": 16, "heads": 2, "vocabulary": 50},
        "resnet50_circular": {
            "size": 64, "width": 4, "blocks": (1, 1, 1, 1), "padding": "slices",
        },
        "unet256": {"size": 16, "width": 4, "levels": 3},
    }  # fmt: skip
    made = make(model, **small[model])
    inputs = sample_inputs(made, dims={"batch": 2, "sequence": 5})
    path, file = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    onnx.save_model(made, path)
    np.savez(file, **inputs)
    arguments = {"path": str(path), "inputs": str(file), "threads": 1}
    with started([Spec(package, factory, arguments)], tmp_path) as field:
        assert not field.absent
        drop_wrong(field, reference(made, inputs), 1e-4)
        assert not field.absent

"""Models drawn from the zoo: the draw, the sizes, and the tables of what is measured."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rabbet as trt

from bench import gpu_zoo, peers, sessions, zoo
from bench.gpu_zoo import in_place, wrong
from bench.layer_classes import class_of, groups
from bench.options import Options
from bench.run import main
from bench.worker import Spec, Start, alone, started, starting
from bench.zoo import summary
from tests.models import make, model_path, reference, sample_inputs
from zoo import catalogue, feeds, near_real, near_real_sizes


def test_a_draw_depends_on_its_seed_alone() -> None:
    first = near_real.draw(20, "14")
    assert first == near_real.draw(20, "14")
    assert first[:7] == near_real.draw(7, "14")
    assert first != near_real.draw(20, "15")
    fixed = near_real.draw(400, "14", fixed=True)
    assert fixed == [key for key in near_real.draw(400, "14") if key in fixed]
    assert not near_real_sizes.VARYING & set(fixed)


def test_sizes_are_of_architectures_that_there_are() -> None:
    known = catalogue.entries()
    assert known.keys() >= set(near_real_sizes.LEFT_OUT) | near_real_sizes.VARYING
    names: dict[str, set[str]] = {}
    for entry in known.values():
        names.setdefault(entry.library, set()).add(entry.name)
    assert names["torchvision"] == set(near_real_sizes.TORCHVISION)
    left = {key.partition("/")[2] for key in near_real_sizes.LEFT_OUT}
    assert names["diffusers"] - left == set(near_real_sizes.DIFFUSERS)
    for table in (near_real_sizes.OPTIONS, near_real_sizes.PICTURES,
                  near_real_sizes.OWN_LENGTHS):  # fmt: skip
        assert names["transformers"] >= set(table)
    for name, tensor in near_real_sizes.TENSORS:
        assert tensor in {i.name for i in known[f"transformers/{name}"].inputs}


def test_a_decoder_s_step() -> None:
    step = near_real.entry("transformers/llama_step", batch=8)
    given = feeds.arrays(step.inputs, feeds.usual(step.dims), 1)
    assert given["input_ids"].shape == (8, 1)
    assert given["attention_mask"].shape == (8, 513)
    past = [array.shape for name, array in given.items() if name.startswith("past_")]
    assert past == [(8, 4, 512, 64)] * 8
    options = step.make.args[-1]  # type: ignore[attr-defined]
    assert options["hidden_size"] == 1024
    assert options["num_key_value_heads"] == 4


def test_inputs_keep_their_names() -> None:
    known = catalogue.entries()
    for key in near_real.architectures():
        if key.startswith(("transformers/", "torchvision/", "diffusers/")):
            names = [i.name for i in near_real.entry(key).inputs]
            least = [i.name for i in known[key].inputs]
            assert names[: len(least)] == least, key


def test_all_rows_together() -> None:
    assert list(summary([])) == []
    (line,) = summary([0.5, 1.0, 2.0, 1.0])
    assert line == "4 rows: geometric mean 1.00, at most 1.0 in 75%, the worst 2.00"


def test_who_is_further_off_than_twice_the_other_does_not_count() -> None:
    assert wrong("rabbet", {"rabbet": 0.04}) is None
    assert "0.06 off FP32, 0.05 is" in str(wrong("rabbet", {"rabbet": 0.06}))
    assert wrong("rabbet", {"rabbet": 0.3, "torch": 0.2}) is None
    assert wrong("rabbet", {"rabbet": math.nan, "torch": math.nan}) is None
    assert wrong("rabbet", {"rabbet": math.nan, "torch": 0.1}) is not None
    assert wrong("torch", {"rabbet": 0.1, "torch": "it died"}) == "it died"


def inspected(name: str, **options: object) -> str:
    model = make(name, **options).SerializeToString()
    engine = trt.compile(model, device="cpu", optimization_level=0).engine
    kind = trt.LayerInformationFormat.JSON
    return engine.create_engine_inspector().get_engine_information(kind)


def test_classes_of_a_network() -> None:
    text = inspected("light_shufflenet")
    layers = json.loads(text)["Layers"]
    spans = [1e-6] * len(layers)
    found = {one.name: one for one in groups(text, 1e9, 1e12, spans)}
    assert {"depthwise convolution 3x3", "grouped convolution 1x1"} < found.keys()
    assert sum(one.layers for one in found.values()) == len(layers)
    depthwise = found["depthwise convolution 3x3"]
    assert depthwise.layers == 16
    assert depthwise.seconds == pytest.approx(16e-6)
    own = [layer for layer in layers if class_of(layer) == depthwise.name]
    assert depthwise.limit >= 1e-9 * sum(
        4 * math.prod(t["Dimensions"]) for layer in own for t in layer["Outputs"]
    )
    assert in_place({"layers": text, "kernels": [["k", 1.0]] * len(layers)}) == spans
    assert in_place({"layers": text, "kernels": [["k", 1.0]]}) is None


@pytest.mark.parametrize("subject", ["zoo", "gpu_zoo"])
def test_a_model_that_is_not_there(
    subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--only", subject, "--models", "timm/none", "--no-write"])
    assert "no model timm/none" in capsys.readouterr().err


HERE = "tests.bench.contestants"


def test_a_contestant_that_hangs_is_a_row_that_says_so(tmp_path: Path) -> None:
    specs = [Spec("a", f"{HERE}:Hanging", start_s=1), Spec("b", f"{HERE}:Plain")]
    with started(specs, tmp_path, jobs=2) as field:
        assert field.absent == {"a": "a gave no answer in 1 s"}
        assert list(field.workers) == ["b"]


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_those_that_start_stand_still_while_others_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    specs = [Spec("a", f"{HERE}:Plain"),
             Spec("b", f"{HERE}:Hanging", {"file": str(file)}),
             Spec("c", f"{HERE}:Plain")]  # fmt: skip
    soon = time.monotonic() + 60
    with starting(specs, tmp_path, 2, soon) as field:
        eventually(lambda: "a" in field.workers and "c" in field.workers)
        eventually(file.exists)
        hanging = list(map(int, file.read_text().split()))
        own = field.workers["a"].process
        other = field.workers["c"].process
        assert own is not None
        assert other is not None
        with alone({"a": field.workers["a"]}):
            eventually(lambda: {state(p) for p in [*hanging, other]} == {"T"})
            assert field.workers["a"].time(0.001)
            assert state(own) != "T"
        eventually(lambda: "T" not in {state(p) for p in [*hanging, other]})
        assert field.workers["c"].time(0.001)
    assert "b ended with code -9" in field.absent["b"]
    os.kill(hanging[1], signal.SIGKILL)


def test_who_is_late_is_absent(tmp_path: Path) -> None:
    specs = [Spec("a", f"{HERE}:Hanging"), Spec("b", f"{HERE}:Plain")]
    with starting(specs, tmp_path, 1, time.monotonic() + 1) as field:
        eventually(lambda: len(field.absent) == 2)
    assert "gave no answer in" in field.absent["a"]
    assert field.absent["b"] == "b was not begun: no time was left"


@pytest.mark.parametrize(
    ("torch", "reason"),
    [("Drawn", ""), ("Killed", "ended with code 9"), ("Broken", "unexpected keyword")],
)
def test_rows_on_a_gpu(
    torch: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [peers.Peer("rabbet", "numpy", f"{HERE}:Drawn"),
             peers.Peer("torch.compile", "numpy", f"{HERE}:{torch}")]  # fmt: skip
    monkeypatch.setattr(peers, "GPU_ZOO", found)
    options = Options(tmp_path, rounds=2, seconds=0.001, models=("timm/davit_tiny/8",))
    times, classes = gpu_zoo.run(options)
    (row,) = times.rows
    assert row[:2] == ["timm/davit_tiny", "8"]
    assert (row[4] == "-") == bool(reason)
    assert reason in "\n".join(times.notes)
    assert not classes.rows


def test_rows_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = model_path("mlp")
    inputs = sample_inputs(file)
    shutil.copy(file, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", **inputs)
    np.savez(tmp_path / "results.npz", **reference(file, inputs))
    files = {"timm/davit_tiny": "", "timm/swin_tiny": "no library"}
    monkeypatch.setattr(zoo, "drawn", lambda options: list(files))
    monkeypatch.setattr(zoo, "exported", lambda key: (tmp_path, files[key]))
    options = Options(tmp_path, (1,), 2, 0.001, peers=(), processor=True, least_call=True)
    times, starts, classes = zoo.run(options)
    assert [row[0] for row in times.rows] == list(files)
    assert float(times.rows[0][2]) > 0
    assert "timm/swin_tiny: no library" in times.notes
    (products,) = (row for row in classes.rows if row[1] == "product of few rows")
    assert int(products[3]) == 3
    (row,) = starts.rows
    assert row[:2] == ["timm/davit_tiny", "1"]
    own = len(sessions.OWN)
    assert all(float(cell) > 0 for cell in row[2 : 2 + own])


def _start(seconds: float, mib: int) -> Start:
    return Start(1.0, seconds, 0.5, 0, 0, mib << 20)


def test_sessions_are_compared_with_the_right_peer() -> None:
    table = sessions.Sessions(["onnxruntime", "openvino"])
    table.add("a", 1, {
        sessions.BUILT: [_start(1.5, 90), _start(9.5, 90), _start(0.5, 60)],
        sessions.LOADED: [_start(0.5, 60)],
        "onnxruntime": [_start(3.5, 120)],
        "openvino": [_start(0.1, 40)],
    })  # fmt: skip
    table.add("b", 1, {sessions.LOADED: [_start(0.5, 50)], "openvino": [_start(1.5, 40)]})
    section = table.close()
    assert section.rows == [
        ["a", "1", "2.000", "1.000", "4.000", "0.600", "90", "60", "120", "40"],
        ["b", "1", "-", "1.000", "-", "2.000", "-", "50", "-", "40"],
    ]
    told = "\n".join(section.notes)
    assert "built again, s over those of onnxruntime: 0.50" in told
    assert "100% of 1 rows, the worst 0.25" in told
    assert "built again, MiB over those of the better peer: 2.25" in told
    assert "0% of 2 rows, the worst 1.50" in told


def test_sessions_that_do_not_start_are_told(tmp_path: Path) -> None:
    table = sessions.Sessions(["onnxruntime"])
    options = Options(tmp_path, (1,), 1, 0.001, processor=True)
    spec = options.spec("onnxruntime", f"{HERE}:Broken", 1, {})
    table.measure("a", 1, [spec], tmp_path)
    assert table.section.rows == [["a", "1", *["-"] * 6]]
    assert any("no such model" in note for note in table.section.notes)

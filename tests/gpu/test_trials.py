"""Libraries whose kernels crash, hang or break the context: a build goes on without
them, and says so. The stand-in does the harm; on a GPU the helper is there, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from . import cuda_driver

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)
stand_in = pytest.mark.skipif(
    not cuda_driver.is_stand_in(), reason="only the stand-in does harm on demand"
)

# One convolution of FP16, or one product; what was built must compute. Each in a
# process of its own: the variables are read by libraries.
PROGRAM = """
    import json, os, sys
    import numpy as np
    import rabbet as trt

    what, cache_file, level = sys.argv[1], sys.argv[2], sys.argv[3]
    rng = np.random.default_rng(0)
    warnings = []

    class Log(trt.ILogger):
        def log(self, severity, text):
            if severity == trt.ILogger.WARNING:
                warnings.append(text)

    builder = trt.Builder(Log())
    network = builder.create_network(
        1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    if what == "convolutions":  # six questions; the last one is the first again
        x = want = rng.standard_normal((1, 8, 4, 4)).astype(np.float16)
        tensor = network.add_input("x", trt.float16, x.shape)
        for channels in (16, 24, 8, 32, 8, 16):
            w = rng.standard_normal((channels, want.shape[1], 1, 1)) / want.shape[1]
            layer = network.add_convolution_nd(tensor, channels, (1, 1),
                                               w.astype(np.float16))
            layer.padding_nd = (1, 1)
            tensor = layer.get_output(0)
            want = np.einsum("nchw,oc->nohw",
                             np.pad(want, ((0, 0), (0, 0), (1, 1), (1, 1))),
                             w.astype(np.float16)[:, :, 0, 0].astype(np.float32))
    elif what == "convolution":
        x = rng.standard_normal((1, 8, 6, 6)).astype(np.float16)
        w = (rng.standard_normal((8, 8, 1, 1)) / 4).astype(np.float16)
        layer = network.add_convolution_nd(
            network.add_input("x", trt.float16, x.shape), 8, (1, 1), w)
        layer.padding_nd = (1, 1)  # no product of pixels
        want = np.einsum("nchw,oc->nohw", np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
                         .astype(np.float32), w[:, :, 0, 0].astype(np.float32))
    else:
        x = rng.standard_normal((16, 32)).astype(np.float16)
        w = (rng.standard_normal((32, 32)) / 8).astype(np.float16)
        none = trt.MatrixOperation.NONE
        layer = network.add_matrix_multiply(
            network.add_input("x", trt.float16, x.shape), none,
            network.add_constant(w.shape, w).get_output(0), none)
        want = x.astype(np.float32) @ w.astype(np.float32)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.device = "cuda"
    config.builder_optimization_level = int(level)
    cache = config.create_timing_cache(
        open(cache_file, "rb").read() if os.path.exists(cache_file) else b"")
    config.set_timing_cache(cache, False)
    plan = builder.build_serialized_network(network, config)
    with open(cache_file, "wb") as file:
        file.write(bytes(cache.serialize()))
    report = json.loads(builder.report_json)
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
        children = file.read().split()
    y = np.asarray(trt.Model(trt.Runtime(Log()).deserialize_cuda_engine(plan))(x))
    error = np.abs(y.astype(np.float32) - want).max()
    print(json.dumps({
        "kernel": report["steps"][-1]["kernel"],
        "tactic": report["steps"][-1]["tactic_name"],
        "tactics": [step["tactic_name"] for step in report["steps"]],
        "timed": sorted({
            choice["tactic_name"] for step in report["steps"]
            for choice in [step, *step["alternatives"]]
        }),
        "left_out": report["left_out"],
        "warnings": warnings,
        "children": children,
        "error": float(error),
    }))
"""


def build(
    what: str,
    tmp_path: Path,
    *,
    cache: str = "cache",
    level: int = 3,
    **environment: str,
) -> dict[str, Any]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, what, tmp_path / cache, str(level)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["error"] < 0.05
    assert result["children"] == []
    return result


def culprits(result: dict[str, Any]) -> dict[str, str]:
    return {one["tactic_name"]: one["reason"] for one in result["left_out"]}



def helper(tmp_path: Path) -> tuple[Path, Path]:
    """A program that counts its starts and becomes the helper."""
    import rabbet

    folder = Path(rabbet.__file__).parent
    found = [*folder.glob("lib/rabbet-trial"), *folder.glob("../../lib/rabbet-trial")]
    count, script = tmp_path / "starts", tmp_path / "counting"
    script.write_text(
        f'#!/bin/sh\necho start >>{count}\nexec "{found[0].resolve()}" "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script, count


def starts(count: Path) -> int:
    return len(count.read_text(encoding="utf-8").split()) if count.exists() else 0


def test_harmless_libraries_and_a_cache_that_knows_them(tmp_path: Path) -> None:
    script, count = helper(tmp_path)
    first = build("convolution", tmp_path, RABBET_TRIAL=str(script))
    assert first["left_out"] == []
    assert first["warnings"] == []
    assert starts(count) == 1
    again = build("convolution", tmp_path, RABBET_TRIAL=str(script))
    assert starts(count) == 1
    assert again["tactic"] == first["tactic"]


# The stand-in's engine 0 has two settings of a knob; algorithm 1 of cuBLASLt is one
# of several.
HARM = {
    "convolution": ("RABBET_STAND_IN_CUDNN_FAULT", "0", "engine 0 "),
    "product": ("RABBET_STAND_IN_CUBLASLT_FAULT", "1", "a1 "),
}


@stand_in
@pytest.mark.parametrize("what", HARM)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("crash", "signal"), ("hang", "did not end within 2 s"), ("poison", "ILLEGAL")],
)
def test_kernel_that_does_harm_when_it_runs(
    what: str, kind: str, reason: str, tmp_path: Path
) -> None:
    variable, number, name = HARM[what]
    fault = {variable: f"run {number} {kind}"}
    # Else a step may take long: other tests keep the processors busy.
    if kind == "hang":
        fault["RABBET_TRIAL_SECONDS"] = "2"
    result = build(what, tmp_path, **fault)
    found = culprits(result)
    assert found
    assert all(tactic.startswith(name) for tactic in found)
    assert all(reason in text for text in found.values())
    assert any("left out" in text for text in result["warnings"])
    # The cache keeps the culprits: nothing is tried again, and they stay out.
    script, count = helper(tmp_path)
    again = build(what, tmp_path, **fault, RABBET_TRIAL=str(script))
    assert culprits(again) == found
    assert starts(count) == 0


@stand_in
def test_compiling_engines_of_the_fallback_mode_are_spared(tmp_path: Path) -> None:
    """The stand-in's mode A has engine 0, which compiles if its knob is 2, the fallback
    mode engine 8, which compiles, and 6, which does not."""
    usual = build("convolution", tmp_path, level=4)["timed"]
    assert {"engine 0 k2=1", "engine 0 k2=2", "engine 6"} <= set(usual)
    assert "engine 8" not in usual
    all_timed = build("convolution", tmp_path, level=5)["timed"]
    assert set(usual) | {"engine 8"} <= set(all_timed)


@stand_in
def test_two_compiling_engines_are_tried(tmp_path: Path) -> None:
    """Of the first two, engines 1 and 7, the latter does not work."""
    compiles = {"RABBET_STAND_IN_CUDNN_COMPILES": "1"}
    engines = {
        level: {
            name
            for name in build("convolution", tmp_path, level=level, **compiles)["timed"]
            if name.startswith("engine")
        }
        for level in (3, 4)
    }
    assert engines[3] == {"engine 1"}
    assert engines[4] == {"engine 1", "engine 0 k2=1", "engine 0 k2=2"}


@stand_in
def test_engine_that_crashes_when_it_is_planned(tmp_path: Path) -> None:
    result = build(
        "convolution", tmp_path, RABBET_STAND_IN_CUDNN_FAULT="plan 0 crash"
    )
    assert all("signal" in reason for reason in culprits(result).values())
    assert len(culprits(result)) == 2


@stand_in
@pytest.mark.parametrize(("kind", "reason"), [("crash", "signal"), ("hang", "2 s")])
def test_library_that_does_harm_when_it_is_asked(
    kind: str, reason: str, tmp_path: Path
) -> None:
    """Of products: others than the library's kernels compute them."""
    fault = {"RABBET_STAND_IN_CUBLASLT_FAULT": f"ask 32 {kind}"}
    if kind == "hang":
        fault["RABBET_TRIAL_SECONDS"] = "2"
    result = build("product", tmp_path, **fault)
    assert set(culprits(result)) == {""}
    assert reason in culprits(result)[""]
    assert result["kernel"] != "cuda.matmul"
    assert culprits(build("product", tmp_path, **fault)) == culprits(result)


@pytest.mark.parametrize(
    ("program", "told"),
    [("/nonexistent/rabbet-trial", "cannot be started"), ("/bin/false", "exit code")],
)
def test_no_helper(program: str, told: str, tmp_path: Path) -> None:
    result = build("convolution", tmp_path, RABBET_TRIAL=program)
    assert len(result["warnings"]) == 1
    assert "tried in this process" in result["warnings"][0]
    assert told in result["warnings"][0]
    # Whoever wants that is not warned.
    result = build("convolution", tmp_path, cache="other", RABBET_TRIAL="none")
    assert result["warnings"] == []


@pytest.mark.parametrize("trial", ["", "none"])
def test_level_that_times_nothing(trial: str, tmp_path: Path) -> None:
    """It takes the first kernel: an engine that makes no plan would not do."""
    result = build("convolution", tmp_path, level=0, RABBET_TRIAL=trial)
    assert result["kernel"] == "cuda.convolution"
    assert result["left_out"] == []
    assert result["warnings"] == []


@stand_in
def test_helper_without_a_device(tmp_path: Path) -> None:
    """As in exclusive compute mode: the device is the build's alone."""
    script = tmp_path / "alone"
    trial, _ = helper(tmp_path)
    script.write_text(
        f'#!/bin/sh\nRABBET_STAND_IN_DEVICES=0 exec "{trial}" "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    result = build("convolution", tmp_path, RABBET_TRIAL=str(script))
    assert len(result["warnings"]) == 1
    assert "tried in this process" in result["warnings"][0]


@stand_in
def test_plans_come_from_the_program_cache(tmp_path: Path) -> None:
    """An engine that crashes when its plan is made shows who makes one."""
    folder = tmp_path / "programs"
    kept = {"RABBET_PROGRAM_CACHE": str(folder)}
    first = build("convolution", tmp_path, level=0, **kept)
    assert first["warnings"] == []
    files = {file: file.stat().st_size for file in folder.iterdir()}
    assert files
    crash = {"RABBET_STAND_IN_CUDNN_FAULT": f"plan {first['tactic'].split()[1]} crash"}
    with pytest.raises(AssertionError):
        build("convolution", tmp_path, level=0, **crash)
    # Neither another build nor its helper makes the plan again.
    again = build("convolution", tmp_path, cache="new", level=0, **kept, **crash)
    assert (again["tactic"], again["left_out"]) == (first["tactic"], [])
    for cache in ("cache", "another"):  # read by the build, and by the helper
        for file in files:
            os.truncate(file, 50)
        found = build("convolution", tmp_path, cache=cache, level=0, **kept)
        damaged = found["warnings"]
        assert damaged
        assert all("is damaged; it is made again" in text for text in damaged)
    assert {file: file.stat().st_size for file in folder.iterdir()} == files


@pytest.mark.parametrize("fault", [None, "run 1 crash"])
def test_helpers_answer_at_the_same_time(fault: str | None, tmp_path: Path) -> None:
    """As one helper does, also those that end early."""
    if fault and not cuda_driver.is_stand_in():
        pytest.skip("only the stand-in does harm on demand")
    harm = {"RABBET_STAND_IN_CUDNN_FAULT": fault} if fault else {}
    script, count = helper(tmp_path)
    results = {}
    for helpers in ("1", "3"):
        results[helpers] = build(
            "convolutions",
            tmp_path,
            cache=helpers,
            level=0,
            RABBET_TRIAL=str(script),
            RABBET_TRIAL_HELPERS=helpers,
            **harm,
        )
        if fault is None:
            assert starts(count) == (1 if helpers == "1" else 4)
    one, three = results["1"], results["3"]
    assert three["tactics"] == one["tactics"]
    assert three["left_out"] == one["left_out"]
    assert three["warnings"] == one["warnings"]
    assert bool(one["left_out"]) == bool(fault)

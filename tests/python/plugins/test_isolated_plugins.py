"""Plugins of a C library that ask to be isolated: a build survives what their tactics
do, leaves those out and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet
from onnx import helper

from tests.python.command.test_command_plugins import C_SOURCE, compile_library
from tests.python.support.command import FLOAT, save_model

SHAPE = [2, 3]

# Tactic 1 is right, 2 crashes, 3 never ends; where the helper does not run them first,
# this process does.
HARM = """
#include <stdlib.h>
#include <unistd.h>
static rabbet_status_t tactics(void* self, const rabbet_plugin_query_t* query,
                               rabbet_plugin_tactic_sink_t sink) {
  (void)self, (void)query;
  for (int32_t i = 1; i <= 3; ++i)
    RABBET_RETURN_IF_ERROR(sink.add(sink.context, i));
  return rabbet_ok();
}
static rabbet_status_t timing_key(void* self, rabbet_plugin_attr_sink_t sink) {
  static const int64_t one = 1;
  const rabbet_attr_t attr = {
      .name = "key", .type = RABBET_ATTR_INT, .data = &one, .count = 1};
  (void)self;
  return sink.add(sink.context, &attr);
}
static rabbet_status_t enqueue(void* self, const rabbet_plugin_call_t* call) {
  if (call->tactic == 2) abort();
  while (call->tactic == 3) pause();
"""


def source() -> str:
    text = C_SOURCE.replace(
        "static rabbet_status_t enqueue(void* self, const rabbet_plugin_call_t* call) {",
        HARM,
    )
    text = text.replace(".enqueue = enqueue}", ".enqueue = enqueue, .tactics = tactics,"
        " .timing_key = timing_key}")
    return text.replace(
        ".input_count = 1}", ".input_count = 1, .isolate = 1}"
    ).replace("Triple", "Risky")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("isolated")
    include = Path(__file__).resolve().parents[3] / "include"
    library = compile_library(source(), folder / "risky.so", f"-I{include}")
    node = helper.make_node("Risky", ["x"], ["y"], plugin_namespace="command")
    info = (FLOAT, SHAPE)
    save_model(folder / "m.onnx", [node], {"x": info}, {"y": info})
    return folder / "m.onnx", library


def test_tactics_that_crash_and_hang(
    model: tuple[Path, Path], monkeypatch: Any, tmp_path: Path
) -> None:
    path, library = model
    monkeypatch.setenv("RABBET_TRIAL_SECONDS", "5")
    cache = tmp_path / "times"
    for again in (False, True):
        if again:  # the cache knows all: nothing is started
            monkeypatch.setenv("RABBET_TRIAL", "/nonexistent")
        built = rabbet.compile(
            path, plugins=[library], device="cpu", timing_cache=cache
        )
        x = np.arange(6, dtype=np.float32).reshape(SHAPE)
        np.testing.assert_array_equal(built(x), 3 * x)
        assert built.report is not None
        assert "signal 6" in built.report
        assert "did not end within 5 s" in built.report
        assert str(built.report).count("left out") == 2


def test_the_only_way_to_run_crashes(tmp_path: Path) -> None:
    include = Path(__file__).resolve().parents[3] / "include"
    text = source().replace(".tactics = tactics,", "").replace("Risky", "Only")
    text = text.replace("call->tactic == 2", "call->tactic == 0")
    text = text.replace("static rabbet_status_t tactics", "rabbet_status_t tactics")
    library = compile_library(text, tmp_path / "only.so", f"-I{include}")
    node = helper.make_node("Only", ["x"], ["y"], plugin_namespace="command")
    info = (FLOAT, SHAPE)
    save_model(tmp_path / "m.onnx", [node], {"x": info}, {"y": info})
    failed = r"failed when it was tried in the helper program: .* signal 6"
    with pytest.raises(RuntimeError, match=failed):
        rabbet.compile(tmp_path / "m.onnx", plugins=[library], device="cpu")

"""The environment is the program's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import rabbet
from onnx import helper as oh

from tests.python.support.command import PROGRAM

LIBRARIES = Path(PROGRAM).parent.parent / "lib"


@pytest.mark.parametrize("text", ["many", "0", "-2", "3x", "nan"])
@pytest.mark.parametrize("name", ["RABBET_TRIAL_HELPERS", "RABBET_TRIAL_SECONDS"])
def test_settings_of_helpers_that_are_no_numbers(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []

    class Log(rabbet.ILogger):
        def log(self, severity: object, text: str) -> None:
            if severity == rabbet.ILogger.WARNING:
                messages.append(text)

    monkeypatch.setenv(name, text)
    model = oh.make_graph([oh.make_node("Relu", ["x"], ["y"])], "g",
                          [oh.make_tensor_value_info("x", 1, [2])],
                          [oh.make_tensor_value_info("y", 1, [2])])  # fmt: skip
    data = oh.make_model(model, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    rabbet.compile(data.SerializeToString(), device="cpu", optimization_level=0, logger=Log())
    assert [m for m in messages if m.startswith(f"{name} is '{text}'; expected a number")]
    assert len(messages) == 1


def test_libraries_leave_the_environment_alone() -> None:
    libraries = sorted(LIBRARIES.glob("librabbet*.so*"))
    assert libraries
    for library in libraries:
        undefined = subprocess.run(
            ["nm", "--dynamic", "--undefined-only", library],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = {line.split()[-1].split("@")[0] for line in undefined.splitlines()}
        assert not names & {"setenv", "unsetenv", "putenv", "clearenv"}, library

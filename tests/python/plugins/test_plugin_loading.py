"""Plans find their plugins by name, version and namespace, and say which they lack:
decorated ones and both kinds of classes, in Python and in C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.python.command.test_command_plugins import CLASS_SOURCE, GOOD, PYTHON_SOURCE
from tests.python.plugins.test_carried_source import REGISTER, V3
from tests.python.support.command import FLOAT, command, save_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)
KINDS = ("decorated", "v2", "v3")


def source(kind: str, version: str = "1", namespace: str = "command") -> str:
    """A module with the plugin NAMESPACE::Triple."""
    text = {
        "decorated": PYTHON_SOURCE.format(body=GOOD),
        "v2": CLASS_SOURCE,
        "v3": V3.format(register=REGISTER).replace("source_v3", "command"),
    }[kind]
    text = text.replace('"command"', f'"{namespace}"').replace(
        "command::", f"{namespace}::"
    )
    return text.replace('"Triple", "1"', f'"Triple", "{version}"')


def module(folder: Path, kind: str, name: str = "", **key: str) -> Path:
    path = folder / f"{name or kind}_ops.py"
    path.write_text(source(kind, **key))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loading")
    np.savez(folder / "in.npz", x=X)
    return folder


def build(folder: Path, kind: str, namespace: str = "command") -> Path:
    """A plan with one plugin of the kind."""
    node = helper.make_node("Triple", ["x"], ["y"], plugin_namespace=namespace)
    info = {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])}
    model = save_model(folder / f"{kind}.onnx", [node], *info)
    file = module(folder, kind, namespace=namespace)
    command("build", model, "--device", "cpu", "--plugins", file, "--quiet")
    return folder / f"{kind}.plan"


@pytest.fixture(scope="module")
def plans(folder: Path) -> dict[str, Path]:
    return {kind: build(folder, kind) for kind in KINDS}


LOAD = """
import sys, numpy as np, rabbet as trt
x = np.arange(6, dtype=np.float32).reshape(2, 3)
try:
    model = trt.load(sys.argv[1], plugins=sys.argv[2:])
except trt.NotFoundError as error:
    print(error)
    sys.exit(3)
assert np.array_equal(model(x), 3 * x)
runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
engine = runtime.deserialize_cuda_engine(open(sys.argv[1], "rb").read())
assert np.array_equal(trt.Model(engine)(x), 3 * x)
"""


def in_python(plan: Path, *plugins: Path) -> str:
    """The message about a missing plugin; "" if the plan runs."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, plan, *plugins],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def by_the_command(folder: Path, plan: Path, *plugins: Path, code: int = 0) -> str:
    """The same by the command, which is a C program as long as no plugin is given."""
    options: list[Any] = [word for file in plugins for word in ("--plugins", file)]
    output = folder / "out.npz"
    output.unlink(missing_ok=True)
    arguments = ("run", plan, "--inputs", folder / "in.npz", "-o", output)
    done = command(*arguments, *options, code=code)
    if code == 0:
        assert np.array_equal(np.load(output)["y"], 3 * X)
    return done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_found(folder: Path, plans: dict[str, Path], kind: str) -> None:
    file = module(folder, kind)
    assert in_python(plans[kind], file) == ""
    by_the_command(folder, plans[kind], file)


@pytest.mark.parametrize("kind", KINDS)
def test_missing(folder: Path, plans: dict[str, Path], kind: str) -> None:
    plan = plans[kind]
    for error in (in_python(plan), by_the_command(folder, plan, code=5)):
        assert "needs the plugin 'command::Triple', version '1', which was" in error
        assert f"defined in '{folder / f'{kind}_ops.py'}' when the plan was built" in error
        assert "import or load it before loading the plan" in error
        assert "no plugin is registered at all" in error


@pytest.mark.parametrize("kind", ["v2", "v3"])
@pytest.mark.parametrize(
    ("key", "there"),
    [
        ({"version": "2"}, "version '2' in namespace 'command'"),
        ({"namespace": "other"}, "version '1' in namespace 'other'"),
    ],
)
def test_another_version_or_namespace(
    folder: Path, plans: dict[str, Path], kind: str, key: dict[str, str], there: str
) -> None:
    """They are told apart, and what is there is named."""
    other = module(folder, kind, "other", **key)
    plan = plans[kind]
    for error in (in_python(plan, other), by_the_command(folder, plan, other, code=5)):
        assert "needs the plugin 'command::Triple', version '1'" in error
        assert f"registered under that name: {there}" in error
    # Both at once.
    assert in_python(plan, other, module(folder, kind)) == ""


@pytest.mark.parametrize(
    ("kind", "wrong"), [("v2", "v3"), ("v3", "v2"), ("v2", "decorated"), ("decorated", "v2")]
)
def test_a_creator_of_another_kind(
    folder: Path, plans: dict[str, Path], kind: str, wrong: str
) -> None:
    """One that has the name, but cannot read what the plan holds."""
    file = module(folder, wrong)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, plans[kind], file],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Triple" in done.stderr
    assert "Error: " in done.stderr
    assert "the plan holds a plugin of another kind under" in done.stderr
    assert "register the creator that it was built with" in done.stderr


def test_all_modules_are_named(folder: Path) -> None:
    """A plan of all three kinds, of which one is there."""
    nodes, x, files = [], "x", {}
    for kind in KINDS:
        nodes.append(helper.make_node("Triple", [x], [kind], plugin_namespace=f"of_{kind}"))
        files[kind] = module(folder, kind, f"all_{kind}", namespace=f"of_{kind}")
        x = kind
    info = {"x": (FLOAT, [2, 3])}, {x: (FLOAT, [2, 3])}
    model = save_model(folder / "all.onnx", nodes, *info)
    plugins = [word for file in files.values() for word in ("--plugins", file)]
    command("build", model, "--device", "cpu", "--quiet", *plugins)
    error = in_python(folder / "all.plan", files["decorated"])
    assert "needs the plugin 'of_v2::Triple', version '1'" in error
    for file in files.values():
        assert f"'{file}'" in error.partition("all that it was built with: ")[2]

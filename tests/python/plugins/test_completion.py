"""`rabbet completion`: what the shells offer, asked from the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.python.support.command import command


def asked(shell: str, script: str, cwd: Path | None = None) -> list[str]:
    """Lines that the shell prints."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", script], capture_output=True, text=True, cwd=cwd, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(command("completion", shell).stdout)
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("model.onnx", "two words.npz"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


# The words as bash splits them: `=` is one of its own.
LINES = [
    (["rabbet", "ben"], ["bench"]),
    (["rabbet", "build", "--time"], []),
    (["rabbet", "build", "--tim"], ["--timing-cache"]),
    (["rabbet", "version", "--"], ["--help", "--json"]),
    (["rabbet", "run", "--device", "cu"], ["cuda"]),
    (["rabbet", "run", "--device", "="], ["cpu", "cuda"]),
    (["rabbet", "build", "mod"], ["model.onnx"]),
    (["rabbet", "run", "--inputs", "two"], ["two words.npz"]),
    (["rabbet", "run", "--inputs", "=", "two"], ["two words.npz"]),
    (["rabbet", "build", "-o", "mod"], ["model.onnx"]),
    (["rabbet", "run", "--seed", "mod"], []),
    (["rabbet", "version", "mod"], []),
    (["rabbet", "exec", "--saveE"], ["--saveEngine="]),
    (["rabbet", "ops", "softm"], ["softmax"]),
    (["rabbet", "completion", ""], ["bash", "zsh", "fish"]),
    (["rabbet", "nothing", "--h"], []),
]


@pytest.mark.parametrize(("words", "expected"), LINES, ids=lambda v: " ".join(v))
def test_bash(words: list[str], expected: list[str], scripts: Path, files: Path) -> None:
    quoted = " ".join(f"'{word}'" for word in words)
    offered = asked(
        "bash",
        f"source {scripts}/bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        '_rabbet; [ ${#COMPREPLY[@]} = 0 ] || printf "%s\\n" "${COMPREPLY[@]}"',
        files,
    )
    assert offered == expected


@pytest.mark.parametrize(("line", "expected"), [
    ("rabbet ben", ["bench"]),
    ("rabbet build --tim", ["--timing-cache"]),
    ("rabbet run --device cu", ["cuda"]),
    ("rabbet build mod", ["model.onnx"]),
    ("rabbet ops softm", ["softmax"]),
    ("rabbet version --j", ["--json"]),
])  # fmt: skip
def test_fish(line: str, expected: list[str], scripts: Path, files: Path) -> None:
    offered = asked("fish", f"source {scripts}/fish; complete -C '{line}'", files)
    assert [item.partition("\t")[0] for item in offered] == expected


# zsh completes on a terminal alone: what it is given is looked at here.
ZSH = """
compdef() {{ }}
_describe() {{ print -rl -- $commands }}
_arguments() {{ print -rl -- "$@" }}
source {script}
words=({line} ''); CURRENT=$#words
_rabbet
"""


@pytest.mark.parametrize(("line", "expected"), [
    ("rabbet", r"inspect:show what a plan holds\: inputs, outputs, layers, tactics"),
    ("rabbet build",
     r"--device=[or cuda\:1, ... (default\: a GPU if there is one)]:value:(cpu cuda)"),
    ("rabbet run", r"*--plugins=[operators\: a Python file or a shared library]:file:_files"),
    ("rabbet run", "*:file:_files"),
    ("rabbet version", "--json[print JSON]"),
    ("rabbet exec", "--saveEngine=-[FILE\\: where the plan goes]:file:_files"),
    ("rabbet completion", "1:operand:(bash zsh fish)"),
])  # fmt: skip
def test_zsh(line: str, expected: str, scripts: Path) -> None:
    assert expected in asked("zsh", ZSH.format(script=scripts / "zsh", line=line))


def test_other_shells_are_refused() -> None:
    assert "bash, zsh or fish" in command("completion", "tcsh", code=2).stderr

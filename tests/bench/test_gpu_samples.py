"""What tests/gpu/samples.py makes of samples: here scripts of our own in their place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.gpu import samples

SCRIPT = """
import argparse
import tensorrt as trt
import helper_of_samples  # from packages
parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="fp32")
precision = parser.parse_args().precision
assert "rabbet" in trt.__version__
print("Inference result correct!" if precision == "fp32" else {otherwise!r})
{after}
"""


def sample(folder: Path, release: str, name: str, otherwise: str, after: str = "") -> None:
    path = folder / release / "samples" / "python" / "python_plugin"
    path.mkdir(parents=True, exist_ok=True)
    text = SCRIPT.format(otherwise=otherwise, after=after)
    (path / f"circ_pad_plugin_{name}.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "helper_of_samples.py").write_text("")
    sample(tmp_path, "v10.9", "cupy", "Inference result correct!")
    # The same but for a comment.
    sample(tmp_path, "v10.16", "cupy", "Inference result correct!", "# newer")
    sample(tmp_path, "v9.1", "torch", "Inference result incorrect!")
    sample(tmp_path, "v9.1", "numba", "nothing", "raise ValueError('no | way')")
    return tmp_path


def test_releases_in_the_same_words_are_one(folder: Path) -> None:
    found = {(s.name, tuple(s.releases)) for s in samples.find(folder, "")}
    names = [f"python_plugin/circ_pad_plugin_{n}.py" for n in ("cupy", "torch", "numba")]
    assert found == {
        (names[0], ("v10.9", "v10.16")),
        (names[1], ("v9.1",)),
        (names[2], ("v9.1",)),
    }
    assert [s.releases for s in samples.find(folder, "cupy", ["v10.16"])] == [["v10.16"]]


def test_the_table(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [os.path.abspath(path) for path in sys.path if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    assert samples.main([str(folder), "--jobs", "2", "--out", str(folder / "logs")]) == 1
    text = capsys.readouterr().out
    assert text.startswith("6 runs: ")
    assert "3 passed" in text
    assert "3 failed" in text
    rows = [row for row in text.splitlines() if row.startswith("| python_plugin")]
    cupy, numba, torch = rows[:2], rows[2:4], rows[4:]
    assert all("| v10.9, v10.16 | passed |" in row for row in cupy)
    assert all("ValueError: no / way" in row for row in numba)
    assert "| passed |" in torch[0]
    assert "| failed |" in torch[1]
    assert "incorrect!" in torch[1]
    assert len(list((folder / "logs").glob("*.log"))) == 6


def test_reasons() -> None:
    state, why = samples.reason_of('f.cu(4): error: identifier "half" is undefined\n')
    assert state == "not Rabbet's"
    assert "cuda_fp16.h" in why
    left_out = "ImportError: cannot import name 'circ_pad' from 'oait_kernels' (f.py)"
    assert samples.remark_of(f"[W] left out: {left_out}").startswith("one tactic")
    assert samples.remark_of("[I] all is well") == ""
    assert samples.reason_of("") == ("failed", "no output")
    told = "[E] Builder::build: bad type\n[!] gone\nsome.Exception: gone\n"
    assert samples.reason_of(told) == ("failed", "[E] Builder::build: bad type")


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        samples.main([str(tmp_path)])

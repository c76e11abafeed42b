"""Every CUDA kernel takes its turn (src/device/cuda/programs/order.cuh)."""

import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "src/device/cuda"
EARLY = {"attend", "depthwise", "few", "few_single", "squeeze", "tiles", "tiles_single",
         "weight_only", "weight_only_single"}
"""Kernels that do something before their turn: nothing that others' writing or
reading concerns. Their threads must declare it on every way all the same."""


def kernels(text):
    """Name and body of each kernel, also of those that a macro defines."""
    text = text.replace("\\\n", "\n")
    for at in re.finditer(r'extern "C" __global__ void\b', text):
        head, brace, rest = text[at.end():].partition("{")
        assert brace
        assert ";" not in head
        head = re.sub(r"__launch_bounds__\([^)]*\)", "", head)
        end, open_braces = 0, 1
        while open_braces:
            open_braces += {"{": 1, "}": -1}.get(rest[end], 0)
            end += 1
        yield re.match(r"\s*([\w#]+)\s*\(", head)[1], rest[:end - 1]


@pytest.mark.parametrize(
    "path", sorted(p for p in FOLDER.rglob("*.cu*") if p.suffix in (".cu", ".cuh")),
    ids=lambda path: path.name)
def test_turns(path):
    text = path.read_text()
    found = list(kernels(text))
    assert len(found) == text.count('extern "C" __global__')
    for name, body in found:
        assert len(re.findall(r"\bturn_t \w+;", body)) == 1, name
        if name not in EARLY:
            assert re.match(r"\s*turn_t turn;", body), name


def test_kernels_are_found():
    text = ('#define K(name) \\\n  extern "C" __global__ void __launch_bounds__(8) \\\n'
            "      name(int n) {  \\\n    turn_t turn; \\\n  }\n"
            'extern "C" __global__ void last(float* x) {\n  *x = 1;\n}\n')
    assert [name for name, _ in kernels(text)] == ["name", "last"]
    assert [body.strip()[:6] for _, body in kernels(text)] == ["turn_t", "*x = 1"]

"""Sessions on a GPU, for which the stand-in of tests/cuda_stand_in stands in: ONNX Runtime's
tensors lie in the device's memory, and a part is left to its CPU provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
import rabbet.onnxruntime

_PROGRAM = """
import gc, sys
import numpy as np
import onnxruntime as ort
from tests.python.support import onnx_text, provider

ort.register_execution_provider_library("rabbet.virtual", sys.argv[1])
found = {d.ep_metadata["rabbet_device"]: d for d in ort.get_ep_devices()
         if d.ep_name == provider.NAME}
assert sorted(found) == ["cpu", "cuda:0"], found
model = onnx_text.model_of(
    "float[N,64] x, float[64,3] w, int64[2] sizes", "float[N,3] y, int64[2,K] p, float[A,B] e",
    '''a = MatMul(x, w) b = Relu(a) q = Cast<to=7>(b)
    t = TfIdfVectorizer<max_gram_length = 1, max_skip_count = 0, min_gram_length = 1,
        mode = "TF", ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [0, 1, 2]>(q)
    y = Softmax<axis = 1>(t) p = NonZero(b) s = ReduceMax<keepdims = 0>(b)
    e = Expand(s, sizes)''', 17, 10).SerializeToString()
reference = provider.reference(model)

def session_on(where, **options):
    given = provider.options_of()
    given.add_provider_for_devices([found[where]], {"optimization_level": "0", **options})
    return ort.InferenceSession(model, given)

def check(session, on_device):
    assert provider.others(session)["TfIdfVectorizer"] == 1, provider.others(session)
    rng = np.random.default_rng(0)
    for rows in (3, 5, 3):
        feed = {"x": rng.standard_normal((rows, 64)).astype(np.float32),
                "w": rng.standard_normal((64, 3)).astype(np.float32),
                "sizes": np.array([rows, 2])}
        provider.same(session.run(None, feed), reference.run(None, feed))
    where = {info.name for info in session.get_input_memory_infos()}
    assert ("Rabbet" in where) == on_device, where

check(session_on("cuda:0", tf32="0"), True)
check(session_on("cpu", device="cuda", tf32="0"), False)  # the host's memory, copied
check(session_on("cpu"), False)
try:
    session_on("cuda:0", device="cpu")
except Exception as error:
    assert "option device=cpu" in str(error), error
else:
    raise AssertionError("the session was made")
del reference
gc.collect()
ort.unregister_execution_provider_library("rabbet.virtual")
print("done")
"""


def test_on_the_stand_in() -> None:
    build = Path(rabbet.onnxruntime.get_library_path()).parents[1]
    stand_in = build / "tests" / "cuda_stand_in" / "with_stand_in"
    if not stand_in.exists():
        pytest.skip("the stand-in is not built")
    command = [stand_in, sys.executable, "-c", _PROGRAM, rabbet.onnxruntime.get_library_path()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith("done")
    assert "stand-in:" not in done.stderr, done.stderr  # nothing left, nothing used wrongly

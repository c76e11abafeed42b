"""The demo's model in a session of ONNX Runtime, with an operator in Python.

    python examples/onnxruntime/provider.py [--folder FOLDER]

Rabbet is registered as a provider; ONNX Runtime itself knows nothing of the operator
`CircularPad`. The results are compared with those of ONNX Runtime's CPU provider for the
same model with the padding in known operators. Then the plans are kept in a model
(EPContext), from which another session starts.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime
import rabbet.onnxruntime

DEMO = Path(__file__).parents[1] / "demo"
sys.path.insert(0, str(DEMO))

import model as demo_model  # noqa: E402


def session_of(path: Path, **entries: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    # Level 1 builds in a second; the default takes some more, and finds quicker kernels.
    rabbet.onnxruntime.add_provider(
        options, plugins=[DEMO / "circ_pad.py"], optimization_level=1
    )
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(path, options)
    seconds = time.perf_counter() - begin
    print(f"{path.name}: {session.get_providers()[0]}, ready in {seconds:.2f} s")
    return session


def check(name: str, found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        difference = float(np.abs(one - other).max())
        good = one.shape == other.shape and difference <= 1e-5 * max(float(np.abs(other).max()), 1)
        print(f"{name}: {one.shape} differs by at most {difference:.1e}", "ok" if good else "WRONG")
        if not good:
            sys.exit(1)


def main(folder: Path) -> None:
    path, known, kept = (folder / f"{name}.onnx" for name in ("model", "reference", "kept"))
    demo_model.make(path, known_operators=False)
    demo_model.make(known, known_operators=True)
    image = np.random.default_rng(0).random((1, 3, 192, 256)).astype(np.float32)
    cpu = onnxruntime.InferenceSession(known, providers=["CPUExecutionProvider"])
    expected = cpu.run(None, {"image": image})
    session = session_of(
        path, ep__context_enable="1", ep__context_file_path=str(kept), ep__context_embed_mode="1"
    )
    check("Rabbet in ONNX Runtime", session.run(None, {"image": image}), expected)
    check("from kept plans", session_of(kept).run(None, {"image": image}), expected)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, help="for the models; default: a temporary one")
    given = parser.parse_args().folder
    if given:
        given.mkdir(parents=True, exist_ok=True)
        main(given)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))

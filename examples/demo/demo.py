"""The main job: a model with an operator of one's own is tuned, saved, run, checked, timed.

Run by `make demo`. With --run-plan it is the second process, which has only the
plan and the operator's file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import model as demo_model
import numpy as np
import picture
import rabbet

HERE = Path(__file__).parent
OPERATOR = HERE / "circ_pad.py"
THREADS = len(os.sched_getaffinity(0))


def say(step: str, text: str) -> None:
    print(f"{step:9} {text}", flush=True)


def run_plan(plan: Path, image: Path, result: Path) -> None:
    """The second process: loads the plan and runs it."""
    model = rabbet.load(plan, plugins=[OPERATOR])
    padded, features = model(np.load(image))
    np.savez(result, padded=padded, features=features)


def onnx_runtime(path: Path) -> Callable[[np.ndarray], list[np.ndarray]]:
    """ONNX Runtime's session for the model with the padding in known operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda image: session.run(None, {"image": image})


def compare(name: str, ours: np.ndarray, reference: np.ndarray) -> bool:
    difference = float(np.abs(ours - reference).max())
    largest = float(np.abs(reference).max())
    good = ours.shape == reference.shape and difference <= 1e-5 * max(largest, 1)
    say(
        "check",
        f"{name} {ours.shape}: differs from ONNX Runtime's by at most {difference:.1e}"
        f" of {largest:.3g}  {'ok' if good else 'WRONG'}",
    )
    return good


def median_times(runs: list[Callable[[], object]], rounds: int = 6) -> list[float]:
    """Milliseconds of each. They take turns of several runs, so that all find the
    machine in the same state. The first runs of a turn do not count: the other's
    threads still spin."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, found in zip(runs, times):
            for repetition in range(8):
                begin = time.perf_counter()
                run()
                if repetition >= 3:
                    found.append(1e3 * (time.perf_counter() - begin))
    return [float(np.median(found)) for found in times]


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    onnx_file, reference_file = folder / "model.onnx", folder / "reference.onnx"
    plan, image_file = folder / "model.plan", folder / "image.npy"
    result, png = folder / "result.npz", folder / "padded.png"
    scene = picture.landscape(demo_model.HEIGHT, demo_model.WIDTH)
    image = scene[None]
    np.save(image_file, image)
    shutil.copy(OPERATOR, folder)  # so that the folder is complete
    demo_model.make(onnx_file, known_operators=False)
    demo_model.make(reference_file, known_operators=True)
    say("model", f"{onnx_file}: CircularPad, which is {OPERATOR.name}, then 3 x (Conv, Relu)")

    begin = time.perf_counter()
    model = rabbet.compile(
        onnx_file, plugins=[OPERATOR], device="cpu", save=plan, threads=THREADS
    )
    seconds = time.perf_counter() - begin
    report = folder / "report.txt"
    report.write_text(f"{model.report}\n")
    say("tune", f"{plan}, {plan.stat().st_size / 1e3:.0f} kB, in {seconds:.1f} s ({report})")

    command = [sys.executable, __file__, "--run-plan", plan, image_file, result]
    subprocess.run(command, check=True)
    say("run", f"{result}, by a new process that has the plan and the operator alone")

    reference = onnx_runtime(reference_file)
    ours = np.load(result)
    padded, features = reference(image)
    good = compare("padded", ours["padded"], padded)
    good &= compare("features", ours["features"], features)

    rabbet_ms, onnx_ms = median_times([lambda: model(image), lambda: reference(image)])
    say(
        "time",
        f"Rabbet {rabbet_ms:.2f} ms, ONNX Runtime {onnx_ms:.2f} ms"
        f" (median, threads: {THREADS})",
    )

    framed = picture.frame(ours["padded"][0], demo_model.PAD)
    picture.write_png(png, picture.beside(scene, framed))
    say("picture", f"{png}: whatever leaves on one side comes in on the other")
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/demo"))
    parser.add_argument(
        "--run-plan", nargs=3, type=Path, metavar=("PLAN", "IMAGE", "RESULT")
    )
    args = parser.parse_args()
    if args.run_plan:
        run_plan(*args.run_plan)
    else:
        sys.exit(main(args.folder))

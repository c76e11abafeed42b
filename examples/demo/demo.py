"""The main job: a model with an operator of one's own is tuned, saved, run, checked.

Run by `make demo`. With --run-plan it is the second process, which has only the
plan and the operator's file.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import model as demo_model
import numpy as np
import picture
import rabbet

HERE = Path(__file__).parent
OPERATOR = HERE / "circ_pad.py"


def step(number: int, title: str) -> None:
    print(f"\n\033[1m{number}. {title}\033[0m" if sys.stdout.isatty() else f"\n{number}. {title}")


def indent(text: str) -> str:
    return "\n".join("   " + line for line in text.rstrip().splitlines())


def run_plan(plan: Path, image: Path, result: Path) -> None:
    """The second process: loads the plan and runs it."""
    model = rabbet.load(plan, plugins=[OPERATOR])
    padded, features = model(np.load(image))
    np.savez(result, padded=padded, features=features)


def independent_result(path: Path, image: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime gives for the model with the padding in known operators."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": image})


def compare(name: str, ours: np.ndarray, reference: np.ndarray) -> bool:
    difference = float(np.abs(ours - reference).max())
    largest = float(np.abs(reference).max())
    good = ours.shape == reference.shape and difference <= 1e-5 * max(largest, 1)
    print(
        f"   {name:9} {ours.shape}: largest difference {difference:.1e}"
        f" of {largest:.3g}  {'ok' if good else 'WRONG'}"
    )
    return good


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    onnx_file, reference_file = folder / "model.onnx", folder / "reference.onnx"
    plan, image_file = folder / "model.plan", folder / "image.npy"
    result, png = folder / "result.npz", folder / "padded.png"
    image = picture.landscape(demo_model.HEIGHT, demo_model.WIDTH)
    np.save(image_file, image[None])
    shutil.copy(OPERATOR, folder)  # so that the folder is complete

    step(1, "A model with a node that no engine knows")
    demo_model.make(onnx_file, known_operators=False)
    demo_model.make(reference_file, known_operators=True)
    print(f"   {onnx_file}: image -> CircularPad -> 3 x (Conv, Relu)")

    step(2, f"The operator, in Python ({OPERATOR.name})")
    print(indent(OPERATOR.read_text()))

    step(3, "Tuning the whole for this machine")
    model = rabbet.compile(
        onnx_file, plugins=[OPERATOR], device="cpu", save=plan, progress=True
    )
    print(indent(str(model.report)))
    print(f"   saved: {plan}, {plan.stat().st_size / 1e3:.0f} kB")

    step(4, "A new process loads the plan and runs it")
    command = [sys.executable, __file__, "--run-plan", plan, image_file, result]
    subprocess.run(command, check=True)
    ours = np.load(result)
    print(f"   {result}: {', '.join(ours.files)}")

    step(5, "The same by ONNX Runtime, with the padding in known operators")
    padded, features = independent_result(reference_file, image[None])
    good = compare("padded", ours["padded"], padded)
    good &= compare("features", ours["features"], features)

    step(6, "A picture: what leaves on one side comes in on the other")
    picture.write_png(png, picture.frame(ours["padded"][0], demo_model.PAD))
    print(f"   {png} (the frame is the border of the original)\n")
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

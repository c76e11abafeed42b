"""Serves the demo's model, with its operator in Python, on Triton Inference Server and asks it.

    python examples/triton/serve.py [--folder FOLDER] [--stay]

Needs neither a GPU nor an installed server. --stay leaves the server running until Ctrl-C.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import rabbet
import server

DEMO = Path(__file__).parents[1] / "demo"
sys.path.insert(0, str(DEMO))
import model as demo_model  # noqa: E402
import picture  # noqa: E402

# All that Rabbet needs to be told: inputs, outputs and batches are the plan's.
CONFIG = """\
backend: "rabbet"
parameters: { key: "plugins" value: { string_value: "circ_pad.py" } }
"""


def say(step: str, text: str) -> None:
    print(f"{step:9} {text}", flush=True)


def make_repository(folder: Path) -> Path:
    """models/demo/config.pbtxt, models/demo/1/model.plan and circ_pad.py"""
    repository = folder / "models"
    version = repository / "demo" / "1"
    version.mkdir(parents=True, exist_ok=True)
    onnx_file = folder / "model.onnx"
    demo_model.make(onnx_file, known_operators=False)
    operator = shutil.copy(DEMO / "circ_pad.py", version)
    plan = version / "model.plan"
    rabbet.compile(onnx_file, plugins=[operator], device="cpu", save=plan, optimization_level=1)
    (repository / "demo" / "config.pbtxt").write_text(CONFIG)
    say("model", f"{plan}, with circ_pad.py beside it")
    return repository


def ask_by_grpc(grpc: object, port: int, image: np.ndarray) -> np.ndarray:
    client = grpc.InferenceServerClient(f"127.0.0.1:{port}")
    question = grpc.InferInput("image", image.shape, "FP32")
    question.set_data_from_numpy(image)
    answer = client.infer("demo", [question])
    client.close()
    return answer.as_numpy("relu2")


def main(folder: Path, stay: bool) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    grpc = server.import_grpc_client()
    repository = make_repository(folder)
    image = picture.landscape(demo_model.HEIGHT, demo_model.WIDTH)[None]
    plan = repository / "demo/1/model.plan"
    expected = rabbet.load(plan, plugins=[plan.parent / "circ_pad.py"])(image)[1]
    good = True
    with server.Server(repository) as triton:
        say("server", f"{triton.program}, on port {triton.http_port} (HTTP) and"
            f" {triton.grpc_port} (gRPC)")  # fmt: skip
        answers = {
            "HTTP": triton.infer("demo", {"image": image})["relu2"],
            "gRPC": ask_by_grpc(grpc, triton.grpc_port, image),
        }
        for protocol, features in answers.items():
            same = np.array_equal(features, expected)
            good &= same
            say("check", f"{protocol}: relu2 {features.shape}"
                f" {'as from rabbet.load' if same else 'is WRONG'}")  # fmt: skip
        if stay:
            say("stay", "Ctrl-C ends the server")
            try:
                while True:
                    time.sleep(1)
            except KeyboardInterrupt:
                pass
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/triton"))
    parser.add_argument("--stay", action="store_true")
    args = parser.parse_args()
    try:
        sys.exit(main(args.folder, args.stay))
    except server.NoServerError as error:
        sys.exit(f"serve.py: there is no server here: {error}")
    except server.ServerError as error:
        sys.exit(f"serve.py: {error}")

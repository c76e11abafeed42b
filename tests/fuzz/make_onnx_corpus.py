"""Writes the seeds in tests/fuzz/corpus/onnx: python tests/fuzz/make_onnx_corpus.py

They are the small models of tests/python/importer/test_onnx_import.py.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.python.importer import test_onnx_import as models  # noqa: E402


def main():
    folder = ROOT / "tests/fuzz/corpus/onnx"
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {name: models.model_of(body) for name, body in models.DYNAMIC.items()}
    for name, (opset, body) in models.OLD.items():
        seeds[name] = models.model_of(body, opset=opset, ir=4)
    seeds["functions"] = models.functions_model()
    seeds["branch"] = models.branch_model()
    for name, model in seeds.items():
        (folder / f"{name}.onnx").write_bytes(
            model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()

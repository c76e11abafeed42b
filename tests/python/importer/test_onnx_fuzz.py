"""Damaged models: seeded mutations of the node tests' models and the corpus."""

import functools
import random
import subprocess

import pytest

from tests.python.importer import hostile_onnx
from tests.python.importer import test_onnx_nodes as nodes
from tests.python.support import onnx_cases
from tests.python.support import onnx_evaluate as reference

FUZZ = reference.BUILD / "tests/fuzz/onnx_fuzz"
CORPUS = reference.ROOT / "tests/fuzz/corpus/onnx"
EDGES = bytes([0, 1, 8, 9, 64, 0x7F, 0x80, 0xFF])


@functools.cache
def smallest_models():
    """A node test for each operator of the importer, inputs frozen."""
    best = {}
    for case in onnx_cases.load_all().values():
        model = case.model
        if len(model.graph.node) != 1 or nodes.reason_to_skip(model):
            continue
        if any(not i.type.HasField("tensor_type") for i in model.graph.input):
            continue
        op, size = model.graph.node[0].op_type, model.ByteSize()
        if op not in best or size < best[op][0]:
            best[op] = (size, case)
    frozen = {}
    for op, (_, case) in sorted(best.items()):
        arrays = [nodes.as_array(i) for i in case.data_sets[0][0]]
        frozen[op] = nodes.freeze(case.model, arrays).SerializeToString()
    return frozen


def mutate(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        if not data:
            break
        at = rng.randrange(len(data))
        run = min(rng.randint(1, 16), len(data) - at)
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice(EDGES)
        elif kind == 2:
            del data[at:at + run]
        elif kind == 3:
            data[at:at] = data[at:at + run]
        else:
            data[at:at + run] = rng.randbytes(run)
    return bytes(data)


def replay(folder):
    result = subprocess.run([FUZZ, folder], capture_output=True, text=True,
                            errors="replace", check=False)
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])


@pytest.mark.parametrize("seed", range(3))
def test_mutations(seed, tmp_path):
    """The file's name tells what it came from; the seed makes it again."""
    rng = random.Random(seed)
    models = dict(smallest_models())
    assert len(models) > 0.9 * len(reference.operators())
    models.update((f.stem, f.read_bytes()) for f in sorted(CORPUS.glob("*.onnx")))
    for name, data in models.items():
        for i in range(12):
            (tmp_path / f"{name}.{i}").write_bytes(mutate(data, rng))
        for i in range(4):
            (tmp_path / f"{name}.cut{i}").write_bytes(data[:rng.randrange(len(data))])
    replay(tmp_path)


def test_seeds_import():
    """Every seed imports, so that mutations start from something that works."""
    for path in sorted(CORPUS.glob("*.onnx")):
        reference.describe(path, path.parent)


def test_changed_models_end_in_a_result_or_an_error(tmp_path):
    """More of them: python -m tests.python.importer.hostile_onnx FIRST:END."""
    cases = hostile_onnx.seeds()
    models = ((n, *hostile_onnx.mutant(n, cases)) for n in range(150))
    found = list(hostile_onnx.run(models, tmp_path))
    assert len(found) == 150
    bad = [run for run in found if not hostile_onnx.is_fine(*run[1:4])]
    assert not bad
    # Most changes leave something to build and run, and many do not.
    ends = [end for _, end, *_ in found]
    assert ends.count("exit 0") > 40
    assert len(ends) - ends.count("exit 0") > 40

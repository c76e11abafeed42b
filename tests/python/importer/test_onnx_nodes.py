"""The node tests of the onnx package, for every operator the importer knows.

Each runs twice: on the operators' reference kernels, without builder and
device, and compiled for the CPU.

    python -m tests.python.importer.test_onnx_nodes

lists what is not covered, and why.
"""

import re
import traceback

import numpy as np
import onnx
import pytest
import rabbet
from onnx import numpy_helper

from tests.python.support import onnx_cases
from tests.python.support import onnx_evaluate as reference
from tests.python.support.onnx_lists import flat, without_lists

KNOWN = {("", name) for name in reference.operators()} | {
    ("ai.onnx.ml", name) for name in reference.operators("ML_OP")}
UNUSABLE = {"STRING", "COMPLEX64", "COMPLEX128"}

# Cases of known operators that are not done: pattern of the name -> reason.
# A case listed here that works is an error, so that the list stays short.
NOT_YET = {
    r"test_resize_downsample_scales_(cubic|linear)_align_corners":
        "corners are those of the output as it is, as ONNX Runtime has it",
    r"test_bitcast_(float64_to_int64|int64_to_float64)":
        "DOUBLE is FLOAT in networks, which has other bits",
    r"test_bernoulli.*": "random numbers of our own",
    r"test_training_dropout(_default|_default_mask|_mask)?": "training",
}


def reason_to_skip(model):
    functions = {(f.domain, f.name) for f in model.functions}
    used = set(reference.node_types(model.graph))
    unknown = {f"{d or 'ai.onnx'}.{t}" for d, t in used - functions
               if ("" if d == "ai.onnx" else d, t) not in KNOWN}
    if unknown:
        return f"not in the importer's table: {', '.join(sorted(unknown))}"
    unusable = reference.element_types(model) & UNUSABLE
    if unusable:
        return f"element types that no network has: {', '.join(sorted(unusable))}"
    return None


def not_yet(name):
    for pattern, reason in NOT_YET.items():
        if re.fullmatch(pattern, name):
            return reason
    return None


def inputs_of(model, arrays):
    """Those that the network keeps: initializers are none."""
    initializers = {i.name for i in model.graph.initializer}
    names = [v.name for v in model.graph.input]
    return [a for n, a in zip(names, arrays, strict=False) if n not in initializers]


def freeze(model, arrays):
    """Structural inputs (axes, sizes, ...) become initializers.

    The node tests give them as inputs of the graph; models have them as
    constants. All that hold integers or one number are taken, but for the first;
    that too where an operator has no other inputs than such, or counts iterations;
    and the scales of a resizing.
    """
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    every = any(node.op_type in ("ConstantOfShape", "If", "MelWeightMatrix", "Range")
                for node in model.graph.node)
    resizes = any(node.op_type in ("Resize", "Upsample") for node in model.graph.node)
    loops = any(node.op_type == "Loop" for node in model.graph.node)
    kept = []
    for i, (value, array) in enumerate(zip(model.graph.input, arrays, strict=False)):
        structural = array.dtype.kind in "iub" or array.size <= 1 or resizes
        if every or ((i > 0 or loops) and structural):
            frozen.graph.initializer.append(
                numpy_helper.from_array(array, value.name))
        else:
            kept.append(value)
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    return frozen


def as_array(value):
    if value is None or isinstance(value, list):
        return value and [as_array(one) for one in value]
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


def compare(found, expected, case):
    expected = as_array(expected)
    expected = reference.held(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
        return
    loose = {"float16": 5e-3, "bfloat16": 2e-2}.get(found.dtype.name, 0)
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64),
        rtol=max(case.rtol, loose), atol=max(case.atol, 1e-6, loose / 5))


RUNNERS = {"reference": reference.run, "cpu": onnx_cases.compiled}


def run_frozen(run, model, inputs, folder):
    """As the case stands, or with structural inputs frozen where it must be: sequences
    are compared by their tensors, which are outputs where their number is known."""
    lists = [o for o in model.graph.output if not o.type.HasField("tensor_type")]
    try:
        if not lists:
            return run(model, inputs, folder)
    except (reference.ImportFailed, reference.EvaluationFailed, rabbet.Error) as error:
        # Loops that are not written out have no reference.
        if not re.search("constant|shape input|numbers of dimensions|'recurrence'", str(error)):
            raise
    frozen = freeze(model, inputs)
    names = {v.name for v in frozen.graph.input}
    kept = [a for v, a in zip(model.graph.input, inputs, strict=False)
            if v.name in names]
    return run(frozen, kept, folder)


def run_case(run, case, folder):
    for inputs, outputs in case.data_sets:
        arrays = [as_array(i) for i in inputs]
        model, given = without_lists(case.model, inputs_of(case.model, arrays))
        found = run_frozen(run, model, given, folder)
        expected_of = flat([as_array(one) for one in outputs])
        assert len(found) == len(expected_of)
        for one, expected in zip(found, expected_of, strict=True):
            compare(np.asarray(one), expected, case)


def check(case, run, folder):
    """Runs the case, or fails to, as is said of it. Cases without a reason are known to work."""
    if reason_to_skip(case.model):
        return
    if not_yet(case.name) is None:
        run_case(run, case, folder)
        return
    with pytest.raises(
            (reference.ImportFailed, rabbet.Error, AssertionError)):
        run_case(run, case, folder)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("module", onnx_cases.MODULES)
def test_nodes(module, runner, tmp_path):
    """All cases of a module are one test: pytest takes longer for a test than they do."""
    wrong = []
    for case in onnx_cases.load(module).values():
        try:
            check(case, RUNNERS[runner], tmp_path)
        except (Exception, pytest.fail.Exception):
            wrong.append(f"{case.name}: {traceback.format_exc()}")
    assert not wrong, "\n".join(wrong)


def left_out():
    """(name, reason) of the cases that are not covered."""
    for name, case in sorted(onnx_cases.load_all().items()):
        reason = reason_to_skip(case.model) or not_yet(name)
        if reason:
            yield name, reason


def test_most_cases_are_covered():
    count = len(onnx_cases.load_all())
    assert count > 1500
    assert len(list(left_out())) < 0.05 * count


if __name__ == "__main__":
    for line in left_out():
        print(*line, sep=": ")

"""The node tests of the onnx package, which makes them when they are imported; their
models, compiled."""

import warnings
from unittest import mock

import numpy as np
import rabbet

from tests.python.support.onnx_evaluate import held

# Pools of volumes: their reference takes a Python loop for each element.
_SMALLER = {(1, 3, 32, 32, 32): (1, 3, 4, 8, 32)}


def load():
    """The cases by name, without the snippets of source that are for documentation."""
    randn = np.random.randn

    def smaller(*shape):
        return randn(*_SMALLER.get(shape, shape))

    with warnings.catch_warnings(), \
            mock.patch("numpy.random.randn", smaller), \
            mock.patch("onnx.backend.test.case.base.process_snippet",
                       return_value=("", "")):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def compiled(model, inputs, folder=None):
    """The outputs of a plan. Timing alternatives is not what is tested."""
    inputs = [held(a) for a in inputs]
    run = rabbet.compile(model.SerializeToString(), device="cpu", threads=1,
                         optimization_level=0)
    outputs = run(*inputs)
    return outputs if isinstance(outputs, tuple) else [outputs]

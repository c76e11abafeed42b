"""The node tests of the onnx package, which makes them when they are imported; their
models, compiled."""

import functools
import importlib
import pkgutil
import warnings
from unittest import mock

import numpy as np
import rabbet
from onnx.backend.test.case import node as package

from tests.python.support.onnx_evaluate import held

# Pools of volumes: their reference takes a Python loop for each element.
_SMALLER = {(1, 3, 32, 32, 32): (1, 3, 4, 8, 32)}

# Modules that make the cases, as a rule one for an operator.
MODULES = [found.name.removeprefix(f"{package.__name__}.") for found in
           pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
           if not found.ispkg and "._" not in found.name]


@functools.cache
def load(module):
    """The cases of a module by name, without the snippets of source that are for
    documentation."""
    randn = np.random.randn

    def smaller(*shape):
        return randn(*_SMALLER.get(shape, shape))

    before = len(package._NodeTestCases)
    with warnings.catch_warnings(), \
            mock.patch("numpy.random.randn", smaller), \
            mock.patch("onnx.backend.test.case.base.process_snippet",
                       return_value=("", "")):
        warnings.simplefilter("ignore")
        importlib.import_module(f"{package.__name__}.{module}")
    return {case.name: case for case in package._NodeTestCases[before:]}


def load_all():
    """The cases of all modules."""
    return {name: case for module in MODULES for name, case in load(module).items()}


def compiled(model, inputs, folder=None):
    """The outputs of a plan. Timing alternatives is not what is tested."""
    inputs = [held(a) for a in inputs]
    run = rabbet.compile(model.SerializeToString(), device="cpu", threads=1,
                         optimization_level=0)
    outputs = run(*inputs)
    return outputs if isinstance(outputs, tuple) else [outputs]

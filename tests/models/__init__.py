"""Models for tests and benchmarks, made from seeds.

    from tests.models import model_path, reference, sample_inputs

    path = model_path("resnet50_circular", batch="batch")
    inputs = sample_inputs(path, dims={"batch": 2})
    outputs = reference(path, inputs)

`python -m tests.models` lists the models and writes them to files.
"""

from .cache import RECIPES, make, model_path, save
from .plugins import known_operators
from .reference import reference, relative_error, sample_inputs

__all__ = [
    "RECIPES",
    "known_operators",
    "make",
    "model_path",
    "reference",
    "relative_error",
    "sample_inputs",
    "save",
]

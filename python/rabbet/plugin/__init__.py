"""Operators of your own, as decorated Python functions.

import rabbet.plugin as trtp

@trtp.register("example::double")
def double(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("example::double")
def double_impl(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    numpy.multiply(x, 2, out=numpy.asarray(outputs[0]))
"""

from .._rabbet import Shape, Tensor
from . import _lib as _lib
from . import _tensor as _tensor
from ._aot import Kernel, Kernels, TensorMap, Workspace
from ._autotune import AutoTuneCombination
from ._call import call
from ._decorators import aot_impl, autotune, impl, register
from ._definition import DefinitionError
from ._desc import ShapeInput, SizeTensorDesc, TensorDesc, from_shape_expr, size_tensor
from ._expr import (
    KernelLaunchParams,
    ShapeExpr,
    ShapeExprs,
    SizeTensorShapeExpr,
    SymExprs,
    SymInt8,
    SymInt16,
    SymInt32,
    SymIntExprs,
    cdiv,
    max,
    min,
)
from ._guards import CheckError
from ._op import op
from ._torch import torch_translations

__all__ = [
    "AutoTuneCombination",
    "CheckError",
    "DefinitionError",
    "Kernel",
    "KernelLaunchParams",
    "Kernels",
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "ShapeInput",
    "SizeTensorDesc",
    "SizeTensorShapeExpr",
    "SymExprs",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymIntExprs",
    "Tensor",
    "TensorDesc",
    "TensorMap",
    "Workspace",
    "aot_impl",
    "autotune",
    "call",
    "cdiv",
    "from_shape_expr",
    "impl",
    "max",
    "min",
    "op",
    "register",
    "size_tensor",
    "torch_translations",
]

"""Tensors and expressions, under a module name that some scripts import."""

from .._rabbet import Shape, Tensor
from ._desc import ShapeInput, SizeTensorDesc, TensorDesc
from ._expr import (
    ShapeExpr,
    ShapeExprs,
    SizeTensorShapeExpr,
    SymExpr,
    SymExprs,
    SymInt8,
    SymInt16,
    SymInt32,
    SymIntExpr,
    SymIntExprs,
)

__all__ = [
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "ShapeInput",
    "SizeTensorDesc",
    "SizeTensorShapeExpr",
    "SymExpr",
    "SymExprs",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymIntExpr",
    "SymIntExprs",
    "Tensor",
    "TensorDesc",
]

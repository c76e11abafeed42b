"""Enumerations, with the names and numbers of TensorRT 10, and short names of types."""

from ._enumerations import *  # noqa: F403
from ._enumerations import DataType

float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
uint8 = DataType.UINT8
fp8 = DataType.FP8
int4 = DataType.INT4
fp4 = DataType.FP4
e8m0 = DataType.E8M0
float64 = DataType.DOUBLE
nf4 = DataType.NF4

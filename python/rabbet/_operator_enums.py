"""Enumerations of operators' attributes.

Written by tools/operators.py from src/ops; not edited by hand."""

from __future__ import annotations

from ._enum import _Enum


class ActivationType(_Enum):
    """Functions of each element x, with parameters alpha and beta.

    RELU: max(x, 0).
    SIGMOID: 1 / (1 + exp(-x)).
    TANH: tanh(x).
    LEAKY_RELU: x where x >= 0, else alpha * x.
    ELU: x where x >= 0, else alpha * (exp(x) - 1).
    SELU: beta * x where x > 0, else beta * (alpha * exp(x) - alpha).
    SOFTSIGN: x / (1 + |x|).
    SOFTPLUS: alpha * log(exp(beta * x) + 1).
    CLIP: x, at least alpha and at most beta.
    HARD_SIGMOID: alpha * x + beta, at least 0 and at most 1.
    SCALED_TANH: alpha * tanh(beta * x).
    THRESHOLDED_RELU: x where x > alpha, else 0.
    GELU_ERF: x * (1 + erf(x / sqrt(2))) / 2.
    GELU_TANH: GELU approximated by tanh.
    """

    RELU = 0
    SIGMOID = 1
    TANH = 2
    LEAKY_RELU = 3
    ELU = 4
    SELU = 5
    SOFTSIGN = 6
    SOFTPLUS = 7
    CLIP = 8
    HARD_SIGMOID = 9
    SCALED_TANH = 10
    THRESHOLDED_RELU = 11
    GELU_ERF = 12
    GELU_TANH = 13


class BoundingBoxFormat(_Enum):
    """How boxes are given to non-maximum suppression.

    CORNER_PAIRS: (x1, y1, x2, y2), two opposite corners.
    CENTER_SIZES: (x centre, y centre, width, height).
    """

    CORNER_PAIRS = 0
    CENTER_SIZES = 1


class CumulativeOperation(_Enum):
    """Operations of a cumulative layer along an axis.

    SUM: Sums.
    """

    SUM = 0


class ElementWiseOperation(_Enum):
    """Operations on two elements a and b; shapes are broadcast.

    SUM: a + b.
    PROD: a * b.
    MAX: The larger.
    MIN: The smaller.
    SUB: a - b.
    DIV: a / b.
    POW: a to the power of b.
    FLOOR_DIV: a / b, rounded down.
    AND: Both are true.
    OR: One is true.
    XOR: Exactly one is true.
    EQUAL: a == b.
    GREATER: a > b.
    LESS: a < b.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    DIV = 5
    POW = 6
    FLOOR_DIV = 7
    AND = 8
    OR = 9
    XOR = 10
    EQUAL = 11
    GREATER = 12
    LESS = 13


class FillOperation(_Enum):
    """Contents that a fill layer makes.

    LINSPACE: Numbers in equal steps: a start and a step for each axis.
    RANDOM_UNIFORM: Random numbers, equally likely between two limits.
    RANDOM_NORMAL: Random numbers with a mean and a deviation.
    """

    LINSPACE = 0
    RANDOM_UNIFORM = 1
    RANDOM_NORMAL = 2


class GatherMode(_Enum):
    """How indices choose.

    DEFAULT: Whole slices along one axis.
    ELEMENT: An element for each index, along one axis.
    ND: A slice for each tuple of indices.
    """

    DEFAULT = 0
    ELEMENT = 1
    ND = 2


class InterpolationMode(_Enum):
    """How values between elements are found.

    NEAREST: That of the nearest element.
    LINEAR: Linearly, of the elements around.
    CUBIC: By a cubic polynomial of the elements around.
    """

    NEAREST = 0
    LINEAR = 1
    CUBIC = 2


class KVCacheMode(_Enum):
    """How a cache of keys and values is laid out.

    LINEAR: As one tensor, position after position.
    """

    LINEAR = 0


class LoopOutput(_Enum):
    """Outputs of a loop for a tensor of its body.

    LAST_VALUE: That of the last iteration.
    CONCATENATE: Those of all iterations, in order.
    REVERSE: Those of all iterations, the last one first.
    """

    LAST_VALUE = 0
    CONCATENATE = 1
    REVERSE = 2


class MatrixOperation(_Enum):
    """How a factor of a product is read.

    NONE: As it is.
    TRANSPOSE: With its last two axes exchanged.
    VECTOR: As vectors along its last axis.
    """

    NONE = 0
    TRANSPOSE = 1
    VECTOR = 2


class MoEActType(_Enum):
    """The activation between the products of experts.

    NONE: None.
    SILU: x / (1 + exp(-x)).
    """

    NONE = 0
    SILU = 1


class PaddingMode(_Enum):
    """Where windows lie at the borders.

    EXPLICIT_ROUND_DOWN: By the padding that is given; windows that do not fit are left
        out.
    EXPLICIT_ROUND_UP: The same, but a last window may reach beyond.
    SAME_UPPER: Padding so that the size is the input's by stride, the odd one at the
        end.
    SAME_LOWER: The same, the odd one at the beginning.
    """

    EXPLICIT_ROUND_DOWN = 0
    EXPLICIT_ROUND_UP = 1
    SAME_UPPER = 2
    SAME_LOWER = 3


class PoolingType(_Enum):
    """Results of pooling for a window.

    MAX: The largest element.
    AVERAGE: The mean.
    MAX_AVERAGE_BLEND: Of both, by blend_factor.
    """

    MAX = 0
    AVERAGE = 1
    MAX_AVERAGE_BLEND = 2


class ReduceOperation(_Enum):
    """Operations along the axes that are reduced.

    SUM: The sum.
    PROD: The product.
    MAX: The largest element.
    MIN: The smallest element.
    AVG: The mean.
    NONE: Nothing: for collective layers.
    """

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    NONE = 5


class ResizeCoordinateTransformation(_Enum):
    """Which place of the input an index of the output stands for.

    ALIGN_CORNERS: The first and the last elements lie on one another.
    ASYMMETRIC: index / scale.
    HALF_PIXEL: (index + 0.5) / scale - 0.5.
    """

    ALIGN_CORNERS = 0
    ASYMMETRIC = 1
    HALF_PIXEL = 2


class ResizeRoundMode(_Enum):
    """How NEAREST rounds.

    HALF_UP: To the nearest; halves up.
    HALF_DOWN: To the nearest; halves down.
    FLOOR: Down.
    CEIL: Up.
    """

    HALF_UP = 0
    HALF_DOWN = 1
    FLOOR = 2
    CEIL = 3


class ResizeSelector(_Enum):
    """The source of an output of a single element.

    FORMULA: What the transformation says.
    UPPER: The first element.
    """

    FORMULA = 0
    UPPER = 1


class SampleMode(_Enum):
    """Elements beyond the input.

    STRICT_BOUNDS: Nothing: indices must lie within.
    WRAP: The input again.
    CLAMP: The border's elements.
    FILL: A value that is given, or 0.
    REFLECT: The input, mirrored.
    """

    STRICT_BOUNDS = 0
    WRAP = 1
    CLAMP = 2
    FILL = 3
    REFLECT = 4


class ScatterMode(_Enum):
    """Where updates go.

    ELEMENT: An element for each index, along one axis.
    ND: A slice for each tuple of indices.
    """

    ELEMENT = 0
    ND = 1


class TopKOperation(_Enum):
    """Which elements are looked for.

    MAX: The largest.
    MIN: The smallest.
    """

    MAX = 0
    MIN = 1


class TripLimit(_Enum):
    """Limits that end a loop.

    COUNT: A number of iterations.
    WHILE: A condition that does not hold any more.
    """

    COUNT = 0
    WHILE = 1


class UnaryOperation(_Enum):
    """Functions of each element.

    EXP: e to its power.
    LOG: The natural logarithm.
    SQRT: The square root.
    RECIP: 1 / x.
    ABS: The absolute value.
    NEG: -x.
    SIN: The sine.
    COS: The cosine.
    TAN: The tangent.
    SINH: The hyperbolic sine.
    COSH: The hyperbolic cosine.
    ASIN: The arc sine.
    ACOS: The arc cosine.
    ATAN: The arc tangent.
    ASINH: The inverse hyperbolic sine.
    ACOSH: The inverse hyperbolic cosine.
    ATANH: The inverse hyperbolic tangent.
    CEIL: Rounded up.
    FLOOR: Rounded down.
    ERF: The error function.
    NOT: Whether it is false.
    SIGN: -1, 0 or 1.
    ROUND: Rounded to the nearest integer, halves to even.
    ISINF: Whether it is infinite.
    ISNAN: Whether it is NaN.
    """

    EXP = 0
    LOG = 1
    SQRT = 2
    RECIP = 3
    ABS = 4
    NEG = 5
    SIN = 6
    COS = 7
    TAN = 8
    SINH = 9
    COSH = 10
    ASIN = 11
    ACOS = 12
    ATAN = 13
    ASINH = 14
    ACOSH = 15
    ATANH = 16
    CEIL = 17
    FLOOR = 18
    ERF = 19
    NOT = 20
    SIGN = 21
    ROUND = 22
    ISINF = 23
    ISNAN = 24


__all__ = [
    "ActivationType",
    "BoundingBoxFormat",
    "CumulativeOperation",
    "ElementWiseOperation",
    "FillOperation",
    "GatherMode",
    "InterpolationMode",
    "KVCacheMode",
    "LoopOutput",
    "MatrixOperation",
    "MoEActType",
    "PaddingMode",
    "PoolingType",
    "ReduceOperation",
    "ResizeCoordinateTransformation",
    "ResizeRoundMode",
    "ResizeSelector",
    "SampleMode",
    "ScatterMode",
    "TopKOperation",
    "TripLimit",
    "UnaryOperation",
]

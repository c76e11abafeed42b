"""INetworkDefinition.add_attention: two products and a softmax, which devices fuse."""

from __future__ import annotations

from typing import Any, cast

from .. import _enums as e
from .._checked import DType, checks_arguments
from .._errors import UnsupportedError
from .._managed import Fixed
from ._composite import Composite, compose, out
from ._layer import ILayer, ITensor
from ._operator_layers import OperatorLayers


def _int64(values: Any) -> Any:
    import numpy as np

    return np.asarray(values, np.int64)


class IAttentionBoundaryLayer(Composite):
    """Base of the layers at an attention's boundary."""

    __slots__ = ()

    @property
    def attention(self) -> IAttention:
        """The attention that it belongs to."""
        return cast(IAttention, self._parts["attention"])


class IAttentionInputLayer(IAttentionBoundaryLayer):
    """A copy of query, key or value, at the input of an attention."""

    __slots__ = ()
    _type = e.LayerType.ATTENTION_INPUT


class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """The product with the values: an attention's last layer."""

    __slots__ = ()
    _type = e.LayerType.ATTENTION_OUTPUT


@checks_arguments
class IAttention:
    """softmax(query key^T + mask) value, with operands of shape [batch, heads, length,
    width]. The caller scales the query. Made by INetworkDefinition.add_attention."""

    decomposable = Fixed(True, "It is made of products and a softmax, fused or not.")
    num_ranks = Fixed(1, "Split the heads, and add a collective layer.")

    def __init__(
        self,
        network: OperatorLayers,
        inputs: tuple[ITensor, ITensor, ITensor],
        norm_op: e.AttentionNormalizationOp,
        causal_kind: e.CausalMaskKind,
    ) -> None:
        none, transpose = e.MatrixOperation.NONE, e.MatrixOperation.TRANSPOSE
        self._network = network
        self._mask: ITensor | None = None
        self._causal_kind = e.CausalMaskKind.NONE
        self._scale: ITensor | None = None
        self._to_type = e.DataType.FP8
        self._inputs = [self._input(tensor) for tensor in inputs]
        query, key, value = (cast(ITensor, i.get_output(0)) for i in self._inputs)
        self._norm_op = norm_op
        self._scores = network.add_matrix_multiply(query, none, key, transpose)
        scores = self._scores.get_output(0)
        assert scores is not None
        # The mask is applied before this layer, which is a copy if there is no
        # normalization.
        self._norm: ILayer
        if self._norm_op is e.AttentionNormalizationOp.SOFTMAX:
            softmax = network.add_softmax(scores)
            softmax.axes = 1 << len(scores.shape) - 1
            self._norm = softmax
        else:
            self._norm = network.add_identity(scores)
        weights = self._norm.get_output(0)
        assert weights is not None
        self._product = network.add_matrix_multiply(weights, none, value, none)
        self._show(IAttentionOutputLayer, self._product)
        self.causal_kind = causal_kind

    def _input(self, tensor: ITensor) -> ILayer:
        copy = self._network.add_identity(tensor)
        self._show(IAttentionInputLayer, copy)
        return copy

    def _show(self, kind: type[IAttentionBoundaryLayer], layer: ILayer) -> None:
        """Registers the class under which get_layer finds the layer."""
        places = [[(layer, i)] for i in range(layer.num_inputs)]
        compose(self._network, kind, layer, places, attention=self, found_as=kind)

    # ---- The computation

    @property
    def norm_op(self) -> e.AttentionNormalizationOp:
        """Normalization of the scores."""
        return self._norm_op

    @norm_op.setter
    def norm_op(self, op: e.AttentionNormalizationOp) -> None:
        if op is not self._norm_op:
            raise UnsupportedError(
                f"attention '{self.name}' was added with {self._norm_op}: give another to "
                "add_attention"
            )

    @property
    def mask(self) -> ITensor | None:
        """BOOL: true for scores that are kept; floating type: added to the scores."""
        return self._mask

    @mask.setter
    def mask(self, mask: ITensor | None) -> None:
        self._mask = mask
        self._connect()

    @property
    def causal_kind(self) -> e.CausalMaskKind:
        """Causal mask: none, or each query sees keys up to its own position, with the
        positions aligned at the first ones (UPPER_LEFT) or at the last ones
        (LOWER_RIGHT)."""
        return self._causal_kind

    @causal_kind.setter
    def causal_kind(self, kind: e.CausalMaskKind) -> None:
        self._causal_kind = kind
        self._connect()

    @property
    def causal(self) -> bool:
        """Whether a query sees only keys up to its own position."""
        return self._causal_kind is not e.CausalMaskKind.NONE

    @causal.setter
    def causal(self, causal: bool) -> None:
        kinds = e.CausalMaskKind
        self.causal_kind = kinds.UPPER_LEFT if causal else kinds.NONE

    @property
    def normalization_quantize_scale(self) -> ITensor | None:
        """Quantization scale of the normalized scores; None: they are not quantized.
        Quantize other tensors by add_quantize."""
        return self._scale

    @normalization_quantize_scale.setter
    def normalization_quantize_scale(self, scale: ITensor | None) -> None:
        self._scale = scale
        self._quantize()

    @property
    def normalization_quantize_to_type(self) -> e.DataType:
        """Quantized type of the normalized scores, if they have a scale: FP8 (default)
        or INT8."""
        return self._to_type

    @normalization_quantize_to_type.setter
    def normalization_quantize_to_type(self, dtype: DType) -> None:
        if dtype not in (e.DataType.FP8, e.DataType.INT8):
            raise ValueError(
                f"attention '{self.name}': normalized scores are quantized to FP8 or "
                f"INT8, not {dtype}"
            )
        self._to_type = dtype
        self._quantize()

    def _quantize(self) -> None:
        """Inserts quantize and dequantize layers between the normalization and the
        values."""
        weights = self._norm.get_output(0)
        assert weights is not None
        if self._scale is not None:
            network = self._network
            small = network.add_quantize(weights, self._scale, self._to_type)
            back = network.add_dequantize(
                small.get_output(0), self._scale, weights.dtype
            )
            weights = back.get_output(0)
        self._product.set_input(0, weights)

    def _connect(self) -> None:
        """Inserts the masks between the scores and their normalization."""
        scores = self._scores.get_output(0)
        assert scores is not None
        if self._mask is not None:
            scores = self._masked(scores, self._mask)
        if self.causal:
            scores = self._masked(scores, self._triangle(scores))
        self._norm.set_input(0, scores)

    def _masked(self, scores: ITensor, mask: ITensor) -> ITensor:
        network = self._network
        layer: ILayer
        if mask.dtype is e.DataType.BOOL:
            layer = network.add_select(mask, scores, self._constant(scores, -1e9))
        else:
            layer = network.add_elementwise(scores, mask, e.ElementWiseOperation.SUM)
        result = layer.get_output(0)
        assert result is not None
        return result

    def _constant(self, scores: ITensor, values: Any) -> ITensor:
        """A constant of the scores' type and rank."""
        import numpy as np

        array = np.asarray(values, np.float32)
        array = array.reshape((1,) * (len(scores.shape) - array.ndim) + array.shape)
        tensor = self._network.add_constant(array.shape, array).get_output(0)
        assert tensor is not None
        if scores.dtype is not e.DataType.FLOAT:
            tensor = self._network.add_cast(tensor, scores.dtype).get_output(0)
            assert tensor is not None
        return tensor

    def _triangle(self, scores: ITensor) -> ITensor:
        """The causal mask: a constant if the lengths are known."""
        import numpy as np

        rows, columns = list(scores.shape)[-2:]
        lower_right = self._causal_kind is e.CausalMaskKind.LOWER_RIGHT
        if rows < 0 or columns < 0:
            return self._running_triangle(scores, lower_right)
        kept = np.tri(rows, columns, columns - rows if lower_right else 0, dtype=bool)
        return self._constant(scores, np.where(kept, np.float32(0), np.float32(-1e9)))

    def _running_triangle(self, scores: ITensor, lower_right: bool) -> ITensor:
        """The causal mask (BOOL) for lengths that are known in a run: column - row <=
        0, or, aligned at the last positions, <= columns - rows."""
        network, op = self._network, e.ElementWiseOperation
        rank = len(scores.shape)
        dims = out(network.add_shape(scores))
        ones = out(network.add_constant((rank,), _int64([1] * rank)))

        def extent(axis: int) -> ITensor:
            return out(network.add_slice(dims, (axis,), (1,), (1,)))

        def positions(axis: int) -> ITensor:
            parts = [extent(axis) if i == axis else
                     out(network.add_slice(ones, (0,), (1,), (1,)))
                     for i in range(rank)]  # fmt: skip
            joined = network.add_concatenation(parts)
            joined.axis = 0
            fill = network.add_fill((), e.FillOperation.LINSPACE, e.DataType.INT64)
            fill.set_input(0, out(joined))
            fill.set_input(1, out(network.add_constant((), _int64(0))))
            steps = _int64([int(i == axis) for i in range(rank)])
            fill.set_input(2, out(network.add_constant((rank,), steps)))
            return out(fill)

        def difference(a: ITensor, b: ITensor) -> ITensor:
            return out(network.add_elementwise(a, b, op.SUB))

        shift = out(network.add_constant((1,) * rank, _int64([0]).reshape((1,) * rank)))
        if lower_right:
            shape = network.add_shuffle(difference(extent(rank - 1), extent(rank - 2)))
            shape.reshape_dims = (1,) * rank
            shift = out(shape)
        distance = difference(positions(rank - 1), positions(rank - 2))
        beyond = network.add_elementwise(distance, shift, op.GREATER)
        return out(network.add_unary(out(beyond), e.UnaryOperation.NOT))

    # ---- As a layer

    @property
    def name(self) -> str:
        """Name of the attention's last layer."""
        return self._product.name

    @name.setter
    def name(self, name: str) -> None:
        self._product.name = name

    @property
    def metadata(self) -> str:
        """Text shown by the inspector."""
        return self._product.metadata

    @metadata.setter
    def metadata(self, text: str) -> None:
        self._product.metadata = text

    def _places(self) -> list[tuple[ILayer, int]]:
        return [(layer, 0) for layer in self._inputs]

    @property
    def num_inputs(self) -> int:
        """3 (query, key, value), and 1 each for a mask and a quantization scale."""
        return 5 if self._scale is not None else 3 + (self._mask is not None)

    @property
    def num_outputs(self) -> int:
        """1."""
        return 1

    def get_input(self, index: int) -> ITensor | None:
        """Input 0 to 4: query, key, value, mask, quantization scale."""
        if index in (3, 4):
            return self._mask if index == 3 else self._scale
        if not 0 <= index < 3:
            return None
        layer, place = self._places()[index]
        return layer.get_input(place)

    def set_input(self, index: int, tensor: ITensor) -> bool:
        """Replaces an input."""
        if index == 3:
            self.mask = tensor
            return True
        if index == 4:
            self.normalization_quantize_scale = tensor
            return True
        if not 0 <= index < 3:
            raise IndexError(f"attention has inputs 0 to 4, not {index}")
        layer, place = self._places()[index]
        layer.set_input(place, tensor)
        return True

    def get_output(self, index: int) -> ITensor | None:
        """The result."""
        return self._product.get_output(0) if index == 0 else None

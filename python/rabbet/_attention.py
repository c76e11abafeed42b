"""INetworkDefinition.add_attention: products and a softmax, which devices fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from . import _enums as e
from ._arrays import dtype_of
from ._composites import Composite, _compose
from ._errors import UnsupportedError
from ._layer import ILayer, ITensor
from ._managed import Fixed

if TYPE_CHECKING:
    from ._network import INetworkDefinition


class IAttentionBoundaryLayer(Composite):
    """Base of the layers at an attention's boundary."""

    __slots__ = ()

    @property
    def attention(self) -> IAttention:
        """What it is a layer of."""
        return cast(IAttention, self._parts["attention"])


class IAttentionInputLayer(IAttentionBoundaryLayer):
    """A copy of query, key or value, of which the rest of the attention is made."""

    __slots__ = ()
    _type = e.LayerType.ATTENTION_INPUT


class IAttentionOutputLayer(IAttentionBoundaryLayer):
    """The product with the values: an attention's last layer."""

    __slots__ = ()
    _type = e.LayerType.ATTENTION_OUTPUT


class IAttention:
    """softmax(query key^T + mask) value, of [batch, heads, length, width] each; the
    query is scaled before. Made by INetworkDefinition.add_attention."""

    decomposable = Fixed(True, "It is made of products and a softmax, fused or not.")
    num_ranks = Fixed(1, "A plan runs on one device.")

    def __init__(
        self,
        network: INetworkDefinition,
        inputs: tuple[ITensor, ITensor, ITensor],
        norm_op: e.AttentionNormalizationOp,
        causal: bool,
    ) -> None:
        none, transpose = e.MatrixOperation.NONE, e.MatrixOperation.TRANSPOSE
        self._network, self._mask, self._causal = network, None, False
        self._scale: ITensor | None = None
        self._to_type = e.DataType.FP8
        self._inputs = [self._input(tensor) for tensor in inputs]
        query, key, value = (cast(ITensor, i.get_output(0)) for i in self._inputs)
        self._norm_op = e.AttentionNormalizationOp(norm_op)
        self._scores = network.add_matrix_multiply(query, none, key, transpose)
        scores = self._scores.get_output(0)
        assert scores is not None
        # What the mask is put before; without normalization a copy stands here.
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
        last = cast(ILayer, self._product.get_output(0).producer)
        self._show(IAttentionOutputLayer, last, self._product)
        self.causal = causal

    def _input(self, tensor: ITensor) -> ILayer:
        copy = self._network.add_identity(tensor)
        inner = cast(ILayer, copy.get_output(0).producer)
        self._show(IAttentionInputLayer, copy, inner)
        return inner

    def _show(
        self, kind: type[IAttentionBoundaryLayer], layer: ILayer, inner: ILayer
    ) -> None:
        """Who looks at the layer finds one of this kind."""
        places = [[(inner, i)] for i in range(inner.num_inputs)]
        _compose(self._network, kind, layer, places, attention=self, shown=kind)

    # ---- What it computes

    @property
    def norm_op(self) -> e.AttentionNormalizationOp:
        """How scores are normalized."""
        return self._norm_op

    @norm_op.setter
    def norm_op(self, op: e.AttentionNormalizationOp) -> None:
        if e.AttentionNormalizationOp(op) is not self._norm_op:
            raise UnsupportedError(
                f"attention '{self.name}' was added with {self._norm_op}: give another to "
                "add_attention"
            )

    @property
    def mask(self) -> ITensor | None:
        """BOOL: which scores count; a floating type: what is added to the scores."""
        return self._mask

    @mask.setter
    def mask(self, mask: ITensor | None) -> None:
        self._mask = mask
        self._connect()

    @property
    def causal(self) -> bool:
        """Whether a position sees only itself and those before it."""
        return self._causal

    @causal.setter
    def causal(self, causal: bool) -> None:
        self._causal = bool(causal)
        self._connect()

    @property
    def normalization_quantize_scale(self) -> ITensor | None:
        """What the normalized scores are divided by and quantized, or None: they are
        not quantized. INT8 and FP8 of each other layer are by add_quantize."""
        return self._scale

    @normalization_quantize_scale.setter
    def normalization_quantize_scale(self, scale: ITensor | None) -> None:
        self._scale = scale
        self._quantize()

    @property
    def normalization_quantize_to_type(self) -> e.DataType:
        """The type to which they are quantized, once there is a scale: FP8 (default)
        or INT8."""
        return self._to_type

    @normalization_quantize_to_type.setter
    def normalization_quantize_to_type(self, dtype: Any) -> None:
        kind = dtype_of(dtype)
        if kind not in (e.DataType.FP8, e.DataType.INT8):
            raise ValueError(
                f"attention '{self.name}': normalized scores are quantized to FP8 or "
                f"INT8, not {kind}"
            )
        self._to_type = kind
        self._quantize()

    def _quantize(self) -> None:
        """Puts a pair that rounds between the normalization and the values."""
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
        """Puts the masks between the scores and their normalization."""
        scores = self._scores.get_output(0)
        assert scores is not None
        if self._mask is not None:
            scores = self._masked(scores, self._mask)
        if self._causal:
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
        """Numbers in the scores' type and rank."""
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
        import numpy as np

        rows, columns = list(scores.shape)[-2:]
        if rows < 0 or columns < 0:
            raise UnsupportedError(
                f"attention '{self.name}': causal needs lengths that are known when the "
                f"network is made, not {scores.shape}; give a mask instead"
            )
        kept = np.tri(rows, columns, dtype=bool)
        return self._constant(scores, np.where(kept, np.float32(0), np.float32(-1e9)))

    # ---- As a layer

    @property
    def name(self) -> str:
        """Name of its last layer."""
        return self._product.name

    @name.setter
    def name(self, name: str) -> None:
        self._product.name = name

    @property
    def metadata(self) -> str:
        """Text that the inspector shows."""
        return self._product.metadata

    @metadata.setter
    def metadata(self, text: str) -> None:
        self._product.metadata = text

    def _places(self) -> list[tuple[ILayer, int]]:
        return [(layer, 0) for layer in self._inputs]

    @property
    def num_inputs(self) -> int:
        """Query, key, value, and as many as there are of the mask and the scale."""
        return 5 if self._scale is not None else 3 + (self._mask is not None)

    @property
    def num_outputs(self) -> int:
        """1."""
        return 1

    def get_input(self, index: int) -> ITensor | None:
        """Query, key, value, mask (3), or scale of the quantization (4)."""
        if index in (3, 4):
            return self._mask if index == 3 else self._scale
        if not 0 <= index < 3:
            return None
        layer, place = self._places()[index]
        return layer.get_input(place)

    def set_input(self, index: int, tensor: ITensor) -> bool:
        """Replaces one of them."""
        if index == 3:
            self.mask = tensor
            return True
        if index == 4:
            self.normalization_quantize_scale = tensor
            return True
        if not 0 <= index < 3:
            raise IndexError(f"attention has inputs 0 to 4, no {index}")
        layer, place = self._places()[index]
        layer.set_input(place, tensor)
        return True

    def get_output(self, index: int) -> ITensor | None:
        """The result."""
        return self._product.get_output(0) if index == 0 else None

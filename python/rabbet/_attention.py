"""INetworkDefinition.add_attention: products and a softmax, which devices fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _enums as e
from ._errors import UnsupportedError
from ._layers import ILayer, ITensor
from ._managed import Fixed, refused_property

if TYPE_CHECKING:
    from ._network import INetworkDefinition

_QUANTIZED = "the normalized scores are quantized by layers around: add_quantize"


class IAttention:
    """softmax(query key^T + mask) value, of [batch, heads, length, width] each; the
    query is scaled before. Made by INetworkDefinition.add_attention."""

    decomposable = Fixed(True, "It is made of products and a softmax, fused or not.")
    num_ranks = Fixed(1, "A plan runs on one device.")
    normalization_quantize_scale = refused_property(
        "normalization_quantize_scale", _QUANTIZED
    )
    normalization_quantize_to_type = refused_property(
        "normalization_quantize_to_type", _QUANTIZED
    )

    def __init__(
        self,
        network: INetworkDefinition,
        inputs: tuple[ITensor, ITensor, ITensor],
        norm_op: e.AttentionNormalizationOp,
        causal: bool,
    ) -> None:
        none, transpose = e.MatrixOperation.NONE, e.MatrixOperation.TRANSPOSE
        query, key, value = inputs
        self._network, self._mask, self._causal = network, None, False
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
        self.causal = causal

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
        return [(self._scores, 0), (self._scores, 1), (self._product, 1)]

    @property
    def num_inputs(self) -> int:
        """Query, key, value, and the mask if there is one."""
        return 3 + (self._mask is not None)

    @property
    def num_outputs(self) -> int:
        """1."""
        return 1

    def get_input(self, index: int) -> ITensor | None:
        """Query, key, value or mask."""
        if index == 3:
            return self._mask
        if not 0 <= index < 3:
            return None
        layer, place = self._places()[index]
        return layer.get_input(place)

    def set_input(self, index: int, tensor: ITensor) -> bool:
        """Replaces one of them."""
        if index == 3:
            self.mask = tensor
            return True
        if not 0 <= index < 3:
            raise IndexError(f"attention has inputs 0 to 3, no {index}")
        layer, place = self._places()[index]
        layer.set_input(place, tensor)
        return True

    def get_output(self, index: int) -> ITensor | None:
        """The result."""
        return self._product.get_output(0) if index == 0 else None

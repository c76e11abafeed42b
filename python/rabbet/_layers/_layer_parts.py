"""Bases of layers with more than plain attributes. _Fill is the base of IFillLayer,
which tools/operators.py generates (_layers.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _enums as e
from .._arrays import from_bytes
from .._checked import Constants, DType, Shape
from .._dims import Dims, volume
from .._managed import Fixed
from .._numbers import Attr
from .._weights import Weights
from ._layer import ILayer, ITensor, _number, _Spatial


class _Padded(ILayer):
    __slots__ = ()
    pre_padding: Any
    post_padding: Any

    @property
    def padding_nd(self) -> Dims:
        """Padding on both sides of each spatial axis."""
        before, after = self.pre_padding, self.post_padding
        if list(before) != list(after):
            raise ValueError(
                f"layer '{self.name}' pads {before} before and {after} after: read "
                "pre_padding and post_padding"
            )
        return before

    @padding_nd.setter
    def padding_nd(self, padding: Shape) -> None:
        self.pre_padding = padding
        self.post_padding = padding


class _Pooling(_Padded):
    __slots__ = ()


class _Convolving(_Padded):
    __slots__ = ()

    def _maps(self) -> int:
        raise NotImplementedError

    @property
    def num_output_maps(self) -> int:
        """Channels of the output."""
        return self._maps()

    @num_output_maps.setter
    def num_output_maps(self, count: int) -> None:
        self._follows("num_output_maps", self.num_output_maps, count)

    @property
    def kernel_size_nd(self) -> Dims:
        """Extent of the kernel on each spatial axis."""
        return Dims(self.get_input(1).shape[2:])  # type: ignore[union-attr]

    @kernel_size_nd.setter
    def kernel_size_nd(self, size: Shape) -> None:
        self._follows("kernel_size_nd", self.kernel_size_nd, Dims(size))

    def _follows(self, name: str, now: Any, wanted: Any) -> None:
        if now != wanted:
            raise ValueError(
                f"{name} of layer '{self.name}' is {now}, as its kernel has it; set "
                f"another kernel to make it {wanted}"
            )

    def _constant(self, index: int) -> Any:
        tensor = self.get_input(index)
        data = tensor._weights() if tensor is not None else None
        if tensor is None or data is None:
            return None
        return from_bytes(data[0], data[1], tuple(tensor.shape))

    @property
    def kernel(self) -> Any:
        """The kernel as an array; None unless it is a constant."""
        return self._constant(1)

    @kernel.setter
    def kernel(self, weights: Constants) -> None:
        self._replace(1, weights)

    @property
    def bias(self) -> Any:
        """The bias as an array; None if it is absent or not a constant."""
        return self._constant(2)

    @bias.setter
    def bias(self, weights: Constants) -> None:
        self._replace(2, weights)

    def _replace(self, index: int, new: Weights) -> None:
        """Replaces weights by ones of the same shape; a bias may also be added or removed."""
        old = self.get_input(index)
        shape = tuple(old.shape) if old is not None else (self.num_output_maps,)
        self.set_input(index, self._network()._weights_tensor(new, shape))


class _Convolution(_Convolving):
    __slots__ = ()

    def _maps(self) -> int:
        return self.get_input(1).shape[0]  # type: ignore[union-attr]


class _Deconvolution(_Convolving):
    __slots__ = ()
    num_groups: Any
    output_padding = _Spatial(
        "output_padding", 0, "Elements added after each spatial axis of the output."
    )

    def _maps(self) -> int:
        return self.get_input(1).shape[1] * self.num_groups  # type: ignore[union-attr,no-any-return]


class _Shuffle(ILayer):
    __slots__ = ()

    @property
    def reshape_dims(self) -> Dims:
        """The new shape; one -1 is inferred."""
        return Dims(self._attr("reshape_dims"))

    @reshape_dims.setter
    def reshape_dims(self, dims: Shape) -> None:
        values = list(dims)
        new = {"reshape_dims": (Attr.INTS, values), "reshape_to_scalar": not values}
        self._set_attrs(new)


class _Fill(ILayer):
    __slots__ = ()
    to_type: Any
    seed = _number("seed", "Of random numbers, which are the same in each run.")

    def is_alpha_beta_int64(self) -> bool:
        """Whether alpha and beta are 64-bit integers."""
        return self.to_type is e.DataType.INT64


class _Constant(ILayer):
    __slots__ = ()

    @property
    def shape(self) -> Dims:
        """Its dimensions."""
        return Dims(self._attr("weights")[1])

    @shape.setter
    def shape(self, dims: Shape) -> None:
        dtype, _, data = self._attr("weights")
        self._put(dtype, data, tuple(dims))

    @property
    def weights(self) -> Any:
        """Its values as an array."""
        dtype, dims, data = self._attr("weights")
        return from_bytes(dtype, data, dims)

    @weights.setter
    def weights(self, weights: Constants) -> None:
        self._put(weights.dtype, weights._row_major(), tuple(self.shape))

    def _put(self, dtype: e.DataType, data: Any, dims: tuple[int, ...]) -> None:
        if int(volume(dims) * dtype.itemsize) != len(data):
            raise ValueError(
                f"constant '{self.name}': {len(data)} bytes do not fill shape {dims} of "
                f"{dtype}"
            )
        self._set_attrs({"weights": (Attr.TENSOR, int(dtype), dims, data)})


class _MoE(ILayer):
    __slots__ = ()

    def _set(self, properties: dict[str, Any]) -> None:
        for name, value in properties.items():
            setattr(self, name, value)

    def _set_inputs(self, first: int, tensors: Iterable[ITensor]) -> None:
        for i, tensor in enumerate(tensors):
            self.set_input(first + i, tensor)

    def set_gated_weights(
        self,
        fc_gate_weights: ITensor,
        fc_up_weights: ITensor,
        fc_down_weights: ITensor,
        activation_type: e.MoEActType,
    ) -> None:
        """Weights [experts, hidden, inner], twice, and [experts, inner, hidden]."""
        self._set({"activation_type": activation_type})
        self._set_inputs(3, (fc_gate_weights, fc_up_weights, fc_down_weights))

    def set_gated_biases(
        self, fc_gate_biases: ITensor, fc_up_biases: ITensor, fc_down_biases: ITensor
    ) -> None:
        """Sets biases of shapes [experts, inner] (twice) and [experts, hidden]."""
        self._set_inputs(6, (fc_gate_biases, fc_up_biases, fc_down_biases))

    def set_swiglu_params(self, limit: float, alpha: float, beta: float) -> None:
        """Sets the three properties."""
        names = ("swiglu_param_limit", "swiglu_param_alpha", "swiglu_param_beta")
        self._set(dict(zip(names, (limit, alpha, beta), strict=True)))

    def set_quantization_static(
        self, fc_down_activation_scale: ITensor, data_type: DType
    ) -> None:
        """Quantizes the input of the last product to INT8 or FP8, with one given scale."""
        self._set({"quantization_to_type": data_type, "quantization_block_shape": ()})
        self.set_input(9, fc_down_activation_scale)

    def set_quantization_dynamic_dbl_q(
        self,
        fc_down_activation_dbl_q_scale: ITensor,
        data_type: DType,
        block_shape: Shape,
        dyn_q_output_scale_type: DType,
    ) -> None:
        """The same with a scale for each block of a row, which is found, divided by a
        number and rounded to its type."""
        self._set(
            {
                "quantization_to_type": data_type,
                "quantization_block_shape": block_shape,
                "dyn_q_output_scale_type": dyn_q_output_scale_type,
            }
        )
        self.set_input(9, fc_down_activation_dbl_q_scale)


class _Normalization(ILayer):
    __slots__ = ()
    compute_precision = Fixed(e.DataType.FLOAT, "Mean and variance are taken in FLOAT.")


class _DistCollective(ILayer):
    __slots__ = ()
    num_ranks = _number(  # type: ignore[assignment]
        "num_ranks",
        "Number of ranks that take part; shapes depend on it. With groups it may stay 1.",
    )

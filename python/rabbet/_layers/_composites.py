"""Scale, parametric ReLU, one-hot, LRN and ragged softmax: several layers each."""

from __future__ import annotations

from typing import Any, cast

from .. import _enums as e
from .._arrays import storage_type
from .._checked import Constants
from .._errors import UnsupportedError
from .._weights import Weights
from ._composite import Composite, Places, compose, constant, out
from ._layer import ILayer, ITensor
from ._layers import IConstantLayer
from ._operator_layers import OperatorLayers
from ._reshapes import IUnsqueezeLayer, axes_of, reshaping

# ---- Scale


class IScaleLayer(Composite):
    """(input * scale + shift) ** power, for all elements, by channel, or by element."""

    __slots__ = ()
    _type = e.LayerType.SCALE

    @property
    def mode(self) -> e.ScaleMode:
        """Granularity of the weights: all elements, by channel, or by element."""
        return cast(e.ScaleMode, self._parts["mode"])

    @mode.setter
    def mode(self, mode: e.ScaleMode) -> None:
        self._keep("mode", self.mode, mode)

    @property
    def channel_axis(self) -> int:
        """Axis of the channels."""
        return cast(int, self._parts["axis"])

    @channel_axis.setter
    def channel_axis(self, axis: int) -> None:
        self._keep("channel_axis", self.channel_axis, axis)

    def _weights(self, name: str) -> Any:
        return self._parts[name].weights.reshape(-1)

    def _put(self, name: str, weights: Weights) -> None:
        layer = self._parts[name]
        layer.weights = weights.numpy().astype(layer.weights.dtype)

    @property
    def shift(self) -> Any:
        """Weights that are added."""
        return self._weights("shift")

    @shift.setter
    def shift(self, weights: Constants) -> None:
        self._put("shift", weights)

    @property
    def scale(self) -> Any:
        """Weights that multiply."""
        return self._weights("scale")

    @scale.setter
    def scale(self, weights: Constants) -> None:
        self._put("scale", weights)

    @property
    def power(self) -> Any:
        """Exponents."""
        return self._weights("power")

    @power.setter
    def power(self, weights: Constants) -> None:
        self._put("power", weights)


def scale(
    network: OperatorLayers,
    x: ITensor,
    mode: e.ScaleMode,
    given: dict[str, tuple[Weights, float]],
    axis: int,
) -> IScaleLayer:
    """`given`: for scale, shift and power the weights and their default values."""
    import numpy as np

    dims = list(x.shape)
    if not 0 <= axis < len(dims):
        raise ValueError(f"channel_axis {axis} of a tensor of {len(dims)} dimensions")
    shape = [1] * len(dims)
    if mode is not e.ScaleMode.UNIFORM:
        shape[axis] = dims[axis]
    if mode is e.ScaleMode.ELEMENTWISE:
        shape[axis:] = dims[axis:]
    if min(shape) < 0:
        raise ValueError(
            f"add_scale: weights for {mode} need sizes that are known, not {dims}"
        )
    kinds = {
        "scale": e.ElementWiseOperation.PROD,
        "shift": e.ElementWiseOperation.SUM,
        "power": e.ElementWiseOperation.POW,
    }
    layers: dict[str, IConstantLayer] = {}
    first: ILayer | None = None
    for name, (values, default) in given.items():
        if values.size not in (0, int(np.prod(shape))):
            raise ValueError(
                f"add_scale: {values.size} weights for {name}; {mode} needs {shape}"
            )
        data = values.numpy().reshape(shape) if values.size else default
        layers[name], tensor = constant(network, data, x.dtype, shape)
        last = network.add_elementwise(x, tensor, kinds[name])
        first, x = first or last, out(last)
    # TensorRT has no WeightsRole for powers.
    for name in ("scale", "shift"):
        if given[name][0].size:
            role = e.WeightsRole[name.upper()]
            out(layers[name])._set_role(last, int(role))
    inputs = [[(cast(ILayer, first), 0)]]
    return compose(network, IScaleLayer, last, inputs, mode=mode, axis=axis, **layers)


class IParametricReLULayer(Composite):
    """x where it is positive, slopes * x elsewhere."""

    __slots__ = ()
    _type = e.LayerType.PARAMETRIC_RELU


def parametric_relu(
    network: OperatorLayers, x: ITensor, slopes: ITensor
) -> IParametricReLULayer:
    """Composed of a product, a comparison and a selection."""
    kind = e.ElementWiseOperation
    _, zero = constant(network, 0, x.dtype, [1] * len(x.shape))
    product = network.add_elementwise(x, slopes, kind.PROD)
    less = network.add_elementwise(x, zero, kind.LESS)
    last = network.add_select(out(less), out(product), x)
    inputs: list[Places] = [[(product, 0), (less, 0), (last, 2)], [(product, 1)]]
    return compose(network, IParametricReLULayer, last, inputs)


class IOneHotLayer(Composite):
    """values[1] at the index along the new axis, values[0] elsewhere."""

    __slots__ = ()
    _type = e.LayerType.ONE_HOT

    @property
    def axis(self) -> int:
        """The new axis."""
        return cast(int, self._parts["axis"])

    @axis.setter
    def axis(self, axis: int) -> None:
        self._keep("axis", self.axis, axis)


def one_hot(
    network: OperatorLayers,
    indices: ITensor,
    values: ITensor,
    depth: ITensor,
    axis: int,
) -> IOneHotLayer:
    """Compares the indices with 0, 1, ..., depth - 1; `depth` must be constant."""
    import numpy as np

    found = depth._weights()
    if found is None:
        raise UnsupportedError("add_one_hot: depth must be a constant")
    count = int(np.frombuffer(found[1], storage_type(found[0])).reshape(-1)[0])
    rank = len(indices.shape) + 1
    (place,) = axes_of([axis], rank)
    shape = [1] * rank
    shape[place] = count
    where, _ = network.add_constant((1,), np.array([place], np.int64)), None
    wide = reshaping(network, IUnsqueezeLayer, indices, out(where))
    _, numbers = constant(
        network, np.arange(count).reshape(shape), indices.dtype, shape
    )
    same = network.add_elementwise(out(wide), numbers, e.ElementWiseOperation.EQUAL)

    def value(index: int) -> tuple[ILayer, ITensor]:
        _, at = constant(network, index, e.DataType.INT64, [1] * rank)
        layer = network.add_gather(values, at, 0)
        return layer, out(layer)

    (off, no), (on, yes) = value(0), value(1)
    last = network.add_select(out(same), yes, no)
    inputs: list[Places] = [[(wide, 0)], [(on, 0), (off, 0)], []]
    return compose(network, IOneHotLayer, last, inputs, axis=axis)


class ILRNLayer(Composite):
    """x / (k + alpha * mean of squares in a window of channels) ** beta."""

    __slots__ = ()
    _type = e.LayerType.LRN

    @property
    def window_size(self) -> int:
        """Number of channels in the window."""
        return cast(int, self._parts["window"])

    @window_size.setter
    def window_size(self, size: int) -> None:
        self._keep("window_size", self.window_size, size)

    def _number(self, name: str) -> float:
        return float(self._parts[name].weights.reshape(-1)[0])

    def _set(self, name: str, value: float) -> None:
        import numpy as np

        old = self._parts[name].weights
        self._parts[name].weights = np.full(old.shape, value, old.dtype)

    @property
    def alpha(self) -> float:
        """Factor of the mean of squares."""
        return self._number("alpha")

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._set("alpha", value)

    @property
    def beta(self) -> float:
        """Exponent."""
        return -self._number("power")

    @beta.setter
    def beta(self, value: float) -> None:
        self._set("power", -value)

    @property
    def k(self) -> float:
        """Constant added to the scaled mean."""
        return self._number("k")

    @k.setter
    def k(self, value: float) -> None:
        self._set("k", value)


def lrn(
    network: OperatorLayers,
    x: ITensor,
    window: int,
    alpha: float,
    beta: float,
    k: float,
) -> ILRNLayer:
    """Computes the mean by average pooling over the channels."""
    kind = e.ElementWiseOperation
    dims = list(x.shape)
    if len(dims) < 3 or dims[1] < 0 or window % 2 == 0:
        raise ValueError(
            f"add_lrn: window {window} on {dims}; expected an odd window, and a number of "
            "channels that is known"
        )
    square = network.add_elementwise(x, x, kind.PROD)
    image = network.add_shuffle(out(square))
    image.reshape_dims = (0, 1, dims[1], -1)
    mean = network.add_pooling_nd(out(image), e.PoolingType.AVERAGE, (window, 1))
    mean.stride_nd = (1, 1)
    mean.padding_nd = (window // 2, 0)
    mean.average_count_excludes_padding = False
    shape = network.add_shape(x)
    back = network.add_shuffle(out(mean))
    back.set_input(1, out(shape))
    back.zero_is_placeholder = False
    y = out(back)
    layers = {}
    ones = [1] * len(dims)
    steps = (
        ("alpha", alpha, kind.PROD),
        ("k", k, kind.SUM),
        ("power", -beta, kind.POW),
    )
    for name, value, op in steps:
        layers[name], tensor = constant(network, value, x.dtype, ones)
        y = out(network.add_elementwise(y, tensor, op))
    last = network.add_elementwise(x, y, kind.PROD)
    inputs: list[Places] = [[(last, 0), (square, 0), (square, 1), (shape, 0)]]
    return compose(network, ILRNLayer, last, inputs, window=window, **layers)


class IRaggedSoftMaxLayer(Composite):
    """Softmax of the first bounds[i] elements of each row; zeros behind."""

    __slots__ = ()
    _type = e.LayerType.RAGGED_SOFTMAX


def ragged_softmax(
    network: OperatorLayers, x: ITensor, bounds: ITensor
) -> IRaggedSoftMaxLayer:
    """A softmax between two selections."""
    import numpy as np

    dims = list(x.shape)
    if not dims or dims[-1] < 0:
        raise ValueError(
            f"add_ragged_softmax: the input's shape is {dims}; expected one axis or more, "
            "the last of a known length"
        )
    shape = [1] * (len(dims) - 1) + [dims[-1]]
    _, numbers = constant(
        network, np.arange(dims[-1]).reshape(shape), bounds.dtype, shape
    )
    inside = network.add_elementwise(numbers, bounds, e.ElementWiseOperation.LESS)
    ones = [1] * len(dims)
    _, low = constant(network, -6e4, x.dtype, ones)
    _, zero = constant(network, 0, x.dtype, ones)
    kept = network.add_select(out(inside), x, low)
    softmax = network.add_softmax(out(kept))
    softmax.axes = 1 << len(dims) - 1
    last = network.add_select(out(inside), out(softmax), zero)
    inputs: list[Places] = [[(kept, 1)], [(inside, 1)]]
    return compose(network, IRaggedSoftMaxLayer, last, inputs)

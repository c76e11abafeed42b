"""Layers of TensorRT that are several here: scale, padding, squeeze, ...

An object of such a class is its last layer; the network keeps what its properties are
about. Devices see the layers that it is made of, and fuse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import _enums as e
from ._arrays import storage_type
from ._dims import Dims
from ._errors import UnsupportedError
from ._layer import ILayer, ITensor
from ._layers import IConstantLayer, IShuffleLayer, ISliceLayer
from ._weights import to_weights

if TYPE_CHECKING:
    from ._network import INetworkDefinition

Places = list[tuple[ILayer, int]]  # inputs of layers
C = TypeVar("C", bound="Composite")


class Composite(ILayer):
    """Base of these layers."""

    __slots__ = ()

    @property
    def _parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self._network()._composites[hash(self)]
        return parts

    @property
    def num_inputs(self) -> int:
        """Number of inputs."""
        return len(self._parts["inputs"])

    def get_input(self, index: int) -> ITensor | None:
        """An input."""
        if not 0 <= index < self.num_inputs:
            return None
        layer, place = self._parts["inputs"][index][0]
        return layer.get_input(place)  # type: ignore[no-any-return]

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Replaces an input."""
        if not 0 <= index < self.num_inputs:
            raise IndexError(
                f"layer '{self.name}' has {self.num_inputs} inputs; there is no input {index}"
            )
        for layer, place in self._parts["inputs"][index]:
            layer.set_input(place, tensor)

    def _keep(self, name: str, now: Any, wanted: Any) -> None:
        if now != wanted:
            raise UnsupportedError(
                f"{type(self).__name__}.{name} of layer '{self.name}' is {now}: add another "
                f"layer to make it {wanted}"
            )


def _compose(
    network: INetworkDefinition,
    kind: type[C],
    last: ILayer,
    inputs: list[Places],
    **parts: Any,
) -> C:
    network._composites[hash(last)] = {"inputs": inputs, **parts}
    return last._as(kind)


def _out(layer: ILayer) -> ITensor:
    return cast(ITensor, layer.get_output(0))


def _constant(
    network: INetworkDefinition, values: Any, dtype: e.DataType, shape: Sequence[int]
) -> tuple[IConstantLayer, ITensor]:
    """Numbers in a type, nobody's weights; the layer has them in one that NumPy knows."""
    import numpy as np

    floats = dtype in (e.DataType.FLOAT, e.DataType.HALF, e.DataType.BF16)
    known = e.DataType.FLOAT if floats else dtype
    array = np.broadcast_to(np.asarray(values, storage_type(known)), tuple(shape))
    layer = network.add_constant(shape, np.ascontiguousarray(array))
    tensor = _out(layer)
    tensor._set_role(None, int(e.WeightsRole.CONSTANT))
    # Not tensor.dtype: the network may be wrong while it is being changed.
    if known is not dtype:
        tensor = _out(network.add_cast(tensor, dtype))
    return layer, tensor


# ---- Scale


class IScaleLayer(Composite):
    """(input * scale + shift) ** power, for all elements, by channel, or by element."""

    __slots__ = ()
    _type = e.LayerType.SCALE

    @property
    def mode(self) -> e.ScaleMode:
        """Whether all elements, each channel or each element has a scale of its own."""
        return cast(e.ScaleMode, self._parts["mode"])

    @mode.setter
    def mode(self, mode: e.ScaleMode) -> None:
        self._keep("mode", self.mode, e.ScaleMode(mode))

    @property
    def channel_axis(self) -> int:
        """The channels' axis."""
        return cast(int, self._parts["axis"])

    @channel_axis.setter
    def channel_axis(self, axis: int) -> None:
        self._keep("channel_axis", self.channel_axis, axis)

    def _weights(self, name: str) -> Any:
        return self._parts[name].weights.reshape(-1)

    def _put(self, name: str, weights: Any) -> None:
        layer = self._parts[name]
        layer.weights = to_weights(weights, name).numpy().astype(layer.weights.dtype)

    @property
    def shift(self) -> Any:
        """The weights that are added."""
        return self._weights("shift")

    @shift.setter
    def shift(self, weights: Any) -> None:
        self._put("shift", weights)

    @property
    def scale(self) -> Any:
        """Factors."""
        return self._weights("scale")

    @scale.setter
    def scale(self, weights: Any) -> None:
        self._put("scale", weights)

    @property
    def power(self) -> Any:
        """Exponents."""
        return self._weights("power")

    @power.setter
    def power(self, weights: Any) -> None:
        self._put("power", weights)


def scale(
    network: INetworkDefinition,
    x: ITensor,
    mode: e.ScaleMode,
    given: dict[str, tuple[Any, float]],
    axis: int,
) -> IScaleLayer:
    """`given`: for scale, shift and power the weights and what they are by default."""
    import numpy as np

    dims = list(x.shape)
    mode = e.ScaleMode(mode)
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
    for name, (weights, default) in given.items():
        values = to_weights(weights, name)
        if values.size not in (0, int(np.prod(shape))):
            raise ValueError(
                f"add_scale: {values.size} weights for {name}; {mode} needs {shape}"
            )
        data = values.numpy().reshape(shape) if values.size else default
        layers[name], tensor = _constant(network, data, x.dtype, shape)
        last = network.add_elementwise(x, tensor, kinds[name])
        first, x = first or last, _out(last)
    # TensorRT has no role for powers.
    for name in ("scale", "shift"):
        if to_weights(given[name][0], name).size:
            role = e.WeightsRole[name.upper()]
            _out(layers[name])._set_role(last, int(role))
    inputs = [[(cast(ILayer, first), 0)]]
    return _compose(network, IScaleLayer, last, inputs, mode=mode, axis=axis, **layers)


# ---- Padding


class IPaddingLayer(Composite):
    """Zeros around the last axes; negative padding takes elements away."""

    __slots__ = ()
    _type = e.LayerType.PADDING

    @property
    def pre_padding_nd(self) -> Dims:
        """Elements before each of the last axes."""
        return Dims(self._parts["before"])

    @pre_padding_nd.setter
    def pre_padding_nd(self, padding: Iterable[int]) -> None:
        _pad(self, self._parts | {"before": list(Dims(padding))})

    @property
    def post_padding_nd(self) -> Dims:
        """Elements after each of the last axes."""
        return Dims(self._parts["after"])

    @post_padding_nd.setter
    def post_padding_nd(self, padding: Iterable[int]) -> None:
        _pad(self, self._parts | {"after": list(Dims(padding))})


def _pad(layer: IPaddingLayer, parts: dict[str, Any]) -> None:
    """Start and extents of the slice that pads."""
    import numpy as np

    before, after = parts["before"], parts["after"]
    dims = list(cast(ITensor, layer.get_input(0)).shape)
    if len(before) != len(after) or len(before) > len(dims):
        raise ValueError(
            f"padding of layer '{layer.name}': {before} before and {after} after, for a "
            f"tensor of {len(dims)} dimensions"
        )
    rest = [0] * (len(dims) - len(before))
    grown = np.array(
        [*rest, *(a + b for a, b in zip(before, after, strict=True))], np.int64
    )
    parts["slice"].start = [*rest, *(-b for b in before)]
    parts["grown"].weights = grown
    layer._network()._composites[hash(layer)] = parts


def padding(
    network: INetworkDefinition, x: ITensor, before: Iterable[int], after: Iterable[int]
) -> IPaddingLayer:
    """The extents are computed when shapes are known."""
    import numpy as np

    rank = len(x.shape)
    shape = network.add_shape(x)
    grown = network.add_constant((rank,), np.zeros(rank, np.int64))
    total = e.ElementWiseOperation.SUM
    extents = network.add_elementwise(_out(shape), _out(grown), total)
    last: ISliceLayer = network.add_slice(x, [0] * rank, [0] * rank, [1] * rank)
    last.mode = e.SampleMode.FILL
    last.set_input(2, _out(extents))
    inputs = [[(last, 0), (shape, 0)]]
    parts = {"slice": last, "grown": grown, "before": [], "after": []}
    layer = _compose(network, IPaddingLayer, last, inputs, **parts)
    lists = {"before": list(Dims(before)), "after": list(Dims(after))}
    _pad(layer, layer._parts | lists)
    return layer


# ---- Squeeze and unsqueeze


class _Reshaping(Composite):
    """A shape made of the input's dimensions and ones."""

    __slots__ = ()

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        """For each axis of the result, one of the input, or `rank` for a 1."""
        raise NotImplementedError

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Replaces an input; axes must be constant."""
        if index == 1 and tensor is not None:
            self._reshape(tensor)
        else:
            super().set_input(index, tensor)

    def get_input(self, index: int) -> ITensor | None:
        """The tensor, or the axes."""
        return self._parts["axes"] if index == 1 else super().get_input(index)

    def _reshape(self, axes: ITensor) -> None:
        import numpy as np

        parts, network = self._parts, self._network()
        found = axes._weights()
        if found is None or found[0] not in (e.DataType.INT32, e.DataType.INT64):
            raise UnsupportedError(
                f"layer '{self.name}': axes must be a constant of INT32 or INT64"
            )
        values = np.frombuffer(found[1], storage_type(found[0])).tolist()
        rank = len(cast(ITensor, super().get_input(0)).shape)
        order = np.array(self._order(rank, values), np.int64)
        indices = network.add_constant((order.size,), order)
        parts["gather"].set_input(1, _out(indices))
        parts["axes"] = axes


def _axes(axes: list[int], rank: int) -> list[int]:
    fixed = [axis + rank if axis < 0 else axis for axis in axes]
    if len(set(fixed)) != len(fixed) or any(not 0 <= axis < rank for axis in fixed):
        raise ValueError(f"axes {axes} of {rank} dimensions")
    return fixed


R = TypeVar("R", bound=_Reshaping)


class ISqueezeLayer(_Reshaping):
    """Takes axes of extent 1 away."""

    __slots__ = ()
    _type = e.LayerType.SQUEEZE

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        away = _axes(axes, rank)
        return [axis for axis in range(rank) if axis not in away]


class IUnsqueezeLayer(_Reshaping):
    """Puts axes of extent 1 in."""

    __slots__ = ()
    _type = e.LayerType.UNSQUEEZE

    def _order(self, rank: int, axes: list[int]) -> list[int]:
        new = _axes(axes, rank + len(axes))
        old = iter(range(rank))
        return [rank if axis in new else next(old) for axis in range(rank + len(axes))]


def reshaping(
    network: INetworkDefinition, kind: type[R], x: ITensor, axes: ITensor
) -> R:
    """The shape is computed when the input's is known."""
    import numpy as np

    shape = network.add_shape(x)
    one = network.add_constant((1,), np.ones(1, np.int64))
    every = network.add_concatenation([_out(shape), _out(one)])
    every.axis = 0
    first = network.add_constant((1,), np.zeros(1, np.int64))
    gather = network.add_gather(_out(every), _out(first), 0)
    last: IShuffleLayer = network.add_shuffle(x)
    last.set_input(1, _out(gather))
    last.zero_is_placeholder = False
    inputs = [[(last, 0), (shape, 0)], []]
    layer = _compose(network, kind, last, inputs, gather=gather, axes=axes)
    layer._reshape(axes)
    return layer


# ---- Others


class IParametricReLULayer(Composite):
    """x where it is positive, slopes * x elsewhere."""

    __slots__ = ()
    _type = e.LayerType.PARAMETRIC_RELU


def parametric_relu(
    network: INetworkDefinition, x: ITensor, slopes: ITensor
) -> IParametricReLULayer:
    """A product, a comparison and a choice."""
    kind = e.ElementWiseOperation
    _, zero = _constant(network, 0, x.dtype, [1] * len(x.shape))
    product = network.add_elementwise(x, slopes, kind.PROD)
    less = network.add_elementwise(x, zero, kind.LESS)
    last = network.add_select(_out(less), _out(product), x)
    inputs: list[Places] = [[(product, 0), (less, 0), (last, 2)], [(product, 1)]]
    return _compose(network, IParametricReLULayer, last, inputs)


class IOneHotLayer(Composite):
    """values[1] where an index says so along a new axis, values[0] elsewhere."""

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
    network: INetworkDefinition,
    indices: ITensor,
    values: ITensor,
    depth: ITensor,
    axis: int,
) -> IOneHotLayer:
    """A comparison with the numbers below `depth`, which must be constant."""
    import numpy as np

    found = depth._weights()
    if found is None:
        raise UnsupportedError("add_one_hot: depth must be a constant")
    count = int(np.frombuffer(found[1], storage_type(found[0])).reshape(-1)[0])
    rank = len(indices.shape) + 1
    (place,) = _axes([axis], rank)
    shape = [1] * rank
    shape[place] = count
    where, _ = network.add_constant((1,), np.array([place], np.int64)), None
    wide = reshaping(network, IUnsqueezeLayer, indices, _out(where))
    _, numbers = _constant(
        network, np.arange(count).reshape(shape), indices.dtype, shape
    )
    same = network.add_elementwise(_out(wide), numbers, e.ElementWiseOperation.EQUAL)

    def value(index: int) -> tuple[ILayer, ITensor]:
        _, at = _constant(network, index, e.DataType.INT64, [1] * rank)
        layer = network.add_gather(values, at, 0)
        return layer, _out(layer)

    (off, no), (on, yes) = value(0), value(1)
    last = network.add_select(_out(same), yes, no)
    inputs: list[Places] = [[(wide, 0)], [(on, 0), (off, 0)], []]
    return _compose(network, IOneHotLayer, last, inputs, axis=axis)


class ILRNLayer(Composite):
    """x / (k + alpha * mean of squares in a window of channels) ** beta."""

    __slots__ = ()
    _type = e.LayerType.LRN

    @property
    def window_size(self) -> int:
        """Channels of the window."""
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
        """The number that is added to it."""
        return self._number("k")

    @k.setter
    def k(self, value: float) -> None:
        self._set("k", value)


def lrn(
    network: INetworkDefinition,
    x: ITensor,
    window: int,
    alpha: float,
    beta: float,
    k: float,
) -> ILRNLayer:
    """The mean is an average pooling of the channels, as rows of an image."""
    kind = e.ElementWiseOperation
    dims = list(x.shape)
    if len(dims) < 3 or dims[1] < 0 or window % 2 == 0:
        raise ValueError(
            f"add_lrn: window {window} on {dims}; expected an odd window, and a number of "
            "channels that is known"
        )
    square = network.add_elementwise(x, x, kind.PROD)
    image = network.add_shuffle(_out(square))
    image.reshape_dims = (0, 1, dims[1], -1)
    mean = network.add_pooling_nd(_out(image), e.PoolingType.AVERAGE, (window, 1))
    mean.stride_nd = (1, 1)
    mean.padding_nd = (window // 2, 0)
    mean.average_count_excludes_padding = False
    shape = network.add_shape(x)
    back = network.add_shuffle(_out(mean))
    back.set_input(1, _out(shape))
    back.zero_is_placeholder = False
    y = _out(back)
    layers = {}
    ones = [1] * len(dims)
    steps = (
        ("alpha", alpha, kind.PROD),
        ("k", k, kind.SUM),
        ("power", -beta, kind.POW),
    )
    for name, value, op in steps:
        layers[name], tensor = _constant(network, value, x.dtype, ones)
        y = _out(network.add_elementwise(y, tensor, op))
    last = network.add_elementwise(x, y, kind.PROD)
    inputs: list[Places] = [[(last, 0), (square, 0), (square, 1), (shape, 0)]]
    return _compose(network, ILRNLayer, last, inputs, window=window, **layers)


class IRaggedSoftMaxLayer(Composite):
    """Softmax of the first bounds[i] elements of each row; zeros behind."""

    __slots__ = ()
    _type = e.LayerType.RAGGED_SOFTMAX


def ragged_softmax(
    network: INetworkDefinition, x: ITensor, bounds: ITensor
) -> IRaggedSoftMaxLayer:
    """A softmax between two choices."""
    import numpy as np

    dims = list(x.shape)
    if dims[-1] < 0:
        raise ValueError(
            f"add_ragged_softmax: the rows' length must be known, not {dims}"
        )
    shape = [1] * (len(dims) - 1) + [dims[-1]]
    _, numbers = _constant(
        network, np.arange(dims[-1]).reshape(shape), bounds.dtype, shape
    )
    inside = network.add_elementwise(numbers, bounds, e.ElementWiseOperation.LESS)
    ones = [1] * len(dims)
    _, low = _constant(network, -6e4, x.dtype, ones)
    _, zero = _constant(network, 0, x.dtype, ones)
    kept = network.add_select(_out(inside), x, low)
    softmax = network.add_softmax(_out(kept))
    softmax.axes = 1 << len(dims) - 1
    last = network.add_select(_out(inside), _out(softmax), zero)
    inputs: list[Places] = [[(kept, 1)], [(inside, 1)]]
    return _compose(network, IRaggedSoftMaxLayer, last, inputs)


class IEinsumLayer(Composite):
    """Sums of products, as an equation says: "ij,jk->ik"."""

    __slots__ = ()
    _type = e.LayerType.EINSUM

    @property
    def equation(self) -> str:
        """Which axes are which."""
        return cast(str, self._parts["equation"])

    @equation.setter
    def equation(self, equation: str) -> None:
        self._keep("equation", self.equation, equation)


def _labels(equation: str, count: int) -> tuple[list[str], str]:
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    names = "".join(inputs)
    if not arrow:
        right = "".join(sorted(n for n in set(names) if names.count(n) == 1))
    wrong = len(inputs) != count or any(len(set(i)) != len(i) for i in [*inputs, right])
    if wrong or not (names + right).isalpha() or not set(right) <= set(names):
        raise ValueError(
            f"equation '{equation}' for {count} tensors: expected a list of letters for "
            "each, none twice in one list, and a result of letters that occur"
        )
    return inputs, right


class _Terms:
    """A tensor whose axes have letters."""

    def __init__(self, network: INetworkDefinition, tensor: ITensor, axes: str) -> None:
        self.network, self.tensor, self.axes = network, tensor, axes
        dims = list(tensor.shape)
        if len(dims) != len(axes) or min(dims, default=0) < 0:
            raise ValueError(
                f"add_einsum: '{axes}' for a tensor of shape {tuple(dims)}; expected a letter "
                "for each axis, and extents that are known"
            )
        self.sizes = dict(zip(axes, dims, strict=True))

    def summed(self, kept: set[str]) -> _Terms:
        """Without axes that nothing else has."""
        mask = sum(1 << i for i, axis in enumerate(self.axes) if axis not in kept)
        if not mask:
            return self
        layer = self.network.add_reduce(self.tensor, e.ReduceOperation.SUM, mask, False)
        axes = "".join(axis for axis in self.axes if axis in kept)
        return _Terms(self.network, _out(layer), axes)

    def shaped(self, *groups: str) -> ITensor:
        """With an axis for each group of letters."""
        import math

        order = [self.axes.index(axis) for group in groups for axis in group]
        layer = self.network.add_shuffle(self.tensor)
        layer.first_transpose = order
        layer.reshape_dims = [math.prod(self.sizes[a] for a in g) for g in groups]
        layer.zero_is_placeholder = False
        return _out(layer)


def _multiply(a: _Terms, b: _Terms, later: set[str]) -> _Terms:
    """One product of matrices, batches first."""
    network, none = a.network, e.MatrixOperation.NONE
    a = a.summed(set(b.axes) | later)
    b = b.summed(set(a.axes) | later)
    both = [axis for axis in a.axes if axis in b.axes]
    batch = "".join(axis for axis in both if axis in later)
    inner = "".join(axis for axis in both if axis not in later)
    rows = "".join(axis for axis in a.axes if axis not in both)
    columns = "".join(axis for axis in b.axes if axis not in both)
    left, right = a.shaped(batch, rows, inner), b.shaped(batch, inner, columns)
    product = network.add_matrix_multiply(left, none, right, none)
    sizes = a.sizes | b.sizes
    axes = batch + rows + columns
    layer = network.add_shuffle(_out(product))
    layer.reshape_dims = [sizes[axis] for axis in axes]
    layer.zero_is_placeholder = False
    return _Terms(network, _out(layer), axes)


def einsum(
    network: INetworkDefinition, tensors: Sequence[ITensor], equation: str
) -> IEinsumLayer:
    """Products of matrices, one after the other."""
    tensors = list(tensors)
    inputs, result = _labels(equation, len(tensors))
    # Copies, so that inputs can be replaced.
    copies = [network.add_identity(tensor) for tensor in tensors]
    terms = [_Terms(network, _out(c), i) for c, i in zip(copies, inputs, strict=True)]
    for axis in set("".join(inputs)):
        sizes = {term.sizes[axis] for term in terms if axis in term.sizes}
        if len(sizes) > 1:
            raise ValueError(f"equation '{equation}': '{axis}' is of {sorted(sizes)}")
    total = terms[0]
    for i, term in enumerate(terms[1:], 1):
        total = _multiply(total, term, set("".join([result, *inputs[i + 1 :]])))
    total = total.summed(set(result))
    last: IShuffleLayer = network.add_shuffle(total.tensor)
    last.first_transpose = [total.axes.index(axis) for axis in result]
    places: list[Places] = [[(copy, 0)] for copy in copies]
    return _compose(network, IEinsumLayer, last, places, equation=equation)

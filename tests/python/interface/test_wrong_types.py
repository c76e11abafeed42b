"""Arguments of wrong types: errors of networks, layers, tensors, loops, conditionals and
configurations name the argument, what is expected, and what was given. Methods and
setters are found by looking at the classes, so that new ones are tested as well."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from rabbet import _checked as checked
from rabbet._managed import is_refused

HUGE = 2**70
DIGITS = 10**5000  # that Python does not print
ARRAY = np.array([1.5, 2.5], np.float32)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


OTHER = Unprintable()
# Of each kind of argument: a value that is right, and others that are wrong.
TENSOR = object()  # stands for the network's input
LAYER, PROFILE = object(), object()  # for the convolution, and a profile
KINDS: dict[Any, tuple[Any, tuple[Any, ...]]] = {
    trt.ITensor: (TENSOR, (None, 5, "x", 1.5, [1], ARRAY, HUGE, True, OTHER)),
    bool: (True, (None, "no", 1.5, [True], ARRAY, 2, HUGE, DIGITS, OTHER)),
    int: (1, (None, "1", 1.5, [1], ARRAY, HUGE, -HUGE, DIGITS, OTHER)),
    float: (1.0, (None, "1.0", b"1", [1.0], ARRAY, DIGITS, OTHER)),
    str: ("text", (None, 5, 1.5, b"x", ["x"], ARRAY, True, OTHER)),
    enum.Enum: (None, (None, "SUM", 1.5, [0], ARRAY, -1, HUGE, DIGITS, True, OTHER)),
    checked.Shape: ((1,), (None, "ab", 1.5, ["1"], [1.5], ARRAY, [HUGE], [DIGITS], [OTHER])),
    checked.DType: (trt.float32, (None, "no", 5, 1.5, [1], ARRAY, OTHER)),
    checked.Constants: (ARRAY, ("no", ["no"], [[1], [1, 2]], [OTHER], trt)),
    trt.ILayer: (LAYER, (None, 5, "x", 1.5, [1], ARRAY, TENSOR, OTHER)),
    trt.IOptimizationProfile: (PROFILE, (None, 5, "x", [1], ARRAY, TENSOR, OTHER)),
    trt.ITimingCache: (None, (5, "x", [1], ARRAY, TENSOR, OTHER)),
    checked.Tensors: ([TENSOR], (None, 5, "x", TENSOR, [None], [TENSOR, 5], ARRAY, [])),
}
# Annotations whose arguments methods check themselves, and those that take any value.
OF_THEIR_OWN = {
    "add_plugin", "add_plugin_v2", "add_plugin_v3", "dynamic_range", "error_recorder",
    "algorithm_selector", "int8_calibrator", "progress_monitor", "create_timing_cache",
    "plugins_to_serialize", "source_modules", "set_shape", "set_shape_input",
}  # fmt: skip


def kind_of(annotation: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The row of KINDS."""
    if isinstance(annotation, types.UnionType):
        (inner,) = (a for a in annotation.__args__ if a is not type(None))
        right, wrong = kind_of(inner) or (None, ())
        return right, tuple(value for value in wrong if value is not None)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        wrong = (*KINDS[enum.Enum][1], other_member(annotation))
        return next(iter(annotation)), wrong
    return KINDS.get(annotation)


def other_member(kind: type[enum.Enum]) -> enum.Enum:
    """A member of another enumeration, whose number is one of this one, too."""
    return trt.ScaleMode.UNIFORM if kind is not trt.ScaleMode else trt.LoopOutput(0)


# ---- The objects -------------------------------------------------------------------


def made(network: trt.INetworkDefinition) -> Iterator[Any]:
    """An object of each class."""
    n, f32 = network, trt.float32
    x = n.add_input("x", f32, (2, 4, 6, 6))
    ints = n.add_input("ints", trt.int64, (2,))
    flags = n.add_input("flags", trt.bool, (2, 4, 6, 6))
    one = n.add_constant((1,), np.ones(1, np.float32)).get_output(0)
    zero = n.add_constant((1,), np.zeros(1, np.int64)).get_output(0)
    depth = n.add_constant((), np.array(4, np.int32)).get_output(0)
    axis = n.add_constant((), np.array(0, np.int64)).get_output(0)
    single = n.add_constant((1, 2, 6, 6), np.ones((1, 2, 6, 6), np.float32)).get_output(0)
    yield from (n, x, trt.Builder().create_builder_config())
    yield trt.Builder().create_optimization_profile()
    yield n.add_constant((1,), ARRAY[:1])
    yield n.add_convolution_nd(x, 3, (3, 3), np.ones((3, 4, 3, 3), np.float32), ARRAY[[0] * 3])
    yield n.add_deconvolution_nd(x, 3, (3, 3), np.ones((4, 3, 3, 3), np.float32))
    yield n.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2))
    yield n.add_activation(x, trt.ActivationType.RELU)
    yield n.add_elementwise(x, x, trt.ElementWiseOperation.SUM)
    yield n.add_unary(x, trt.UnaryOperation.NEG)
    none = trt.MatrixOperation.NONE
    yield n.add_matrix_multiply(x, none, x, none)
    yield n.add_softmax(x)
    yield n.add_reduce(x, trt.ReduceOperation.SUM, 1, True)
    yield n.add_shuffle(x)
    yield n.add_slice(x, [0] * 4, [1] * 4, [1] * 4)
    yield n.add_topk(x, trt.TopKOperation.MAX, 1, 8)
    yield n.add_non_zero(x)
    yield n.add_nms(x, x, depth)
    yield n.add_reverse_sequence(x, ints)
    yield n.add_scatter(x, ints, x, trt.ScatterMode.ELEMENT)
    yield n.add_kv_cache_update(x, x, ints, trt.KVCacheMode.LINEAR)
    yield n.add_moe(x, ints, x)
    yield n.add_cumulative(x, axis, trt.CumulativeOperation.SUM, False, False)
    yield n.add_fill((2,), trt.FillOperation.LINSPACE)
    yield n.add_grid_sample(x, x)
    yield n.add_resize(x)
    yield n.add_concatenation([x, x])
    yield n.add_gather(x, ints, 0)
    yield n.add_select(flags, x, x)
    yield n.add_cast(x, trt.float16)
    yield n.add_quantize(x, one)
    yield n.add_dequantize(x, one)
    yield n.add_dynamic_quantize(x, 3, 2, trt.int8, f32)
    yield n.add_assertion(flags, "no")
    yield n.add_identity(x)
    yield n.add_shape(x)
    yield n.add_normalization_v2(x, single, single, 12)
    yield n.add_scale(x, trt.ScaleMode.UNIFORM)
    yield n.add_padding_nd(x, (1, 1), (1, 1))
    yield n.add_unsqueeze(x, zero)
    yield n.add_squeeze(single, zero)
    yield n.add_parametric_relu(x, x)
    yield n.add_one_hot(ints, one, depth, 0)
    yield n.add_lrn(x, 3, 1.0, 1.0, 1.0)
    yield n.add_ragged_softmax(x, ints)
    yield n.add_einsum([x], "abcd->abcd")
    cache = n.add_constant((2, 6, 3), np.ones((2, 6, 3), np.float32)).get_output(0)
    yield n.add_rotary_embedding(x, cache, cache, False, 0)
    attention = n.add_attention(x, x, x, trt.AttentionNormalizationOp.SOFTMAX, False)
    yield attention
    conditional = n.add_if_conditional()
    yield conditional
    yield conditional.set_condition(n.add_input("condition", trt.bool, ()))
    loop = n.add_loop()
    yield loop
    yield loop.add_trip_limit(depth, trt.TripLimit.COUNT)
    yield loop.add_iterator(x)
    recurrence = loop.add_recurrence(x)
    yield recurrence
    yield loop.add_loop_output(recurrence.get_output(0), trt.LoopOutput.LAST_VALUE)


def objects() -> dict[str, Any]:
    """By class."""
    found = {type(thing).__name__: thing for thing in made(trt.Builder().create_network())}
    found["INetworkDefinition"].get_layer(1)
    return found


OBJECTS = objects()
# Classes of layers that share all methods and setters with those above, or whose objects
# cannot be made.
LIKE_OTHERS = {
    "ILayer", "IAttentionBoundaryLayer", "IAttentionInputLayer", "IAttentionOutputLayer",
    "IDistCollectiveLayer", "IIfConditionalBoundaryLayer",
    "IIfConditionalInputLayer", "IIfConditionalOutputLayer", "ILoopBoundaryLayer",
    "IPluginV2Layer", "IPluginV3Layer",
}  # fmt: skip


def test_each_class_of_layers_is_here() -> None:
    layers = {
        name
        for name, kind in vars(trt).items()
        if inspect.isclass(kind) and issubclass(kind, trt.ILayer)
    }
    assert layers == (layers & set(OBJECTS)) | LIKE_OTHERS


# ---- Arguments ---------------------------------------------------------------------


def members(thing: Any) -> Iterator[tuple[str, Any]]:
    """Public names of its classes, and what defines them."""
    for name in dir(type(thing)):
        if not name.startswith("_") and name not in OF_THEIR_OWN:
            yield name, inspect.getattr_static(type(thing), name)


def hints(function: Any) -> dict[str, Any]:
    found = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    found.pop("return", None)
    return found


def with_objects(value: Any) -> Any:
    """The value with objects in the place of what stands for them."""
    names = {TENSOR: "ITensor", LAYER: "IConvolutionLayer", PROFILE: "IOptimizationProfile"}
    if type(value) is object:
        return OBJECTS[names[value]]
    return [with_objects(v) for v in value] if type(value) is list else value


def check(call: Any, name: str, value: Any) -> None:
    """Calls with a wrong value: the error names argument, expectation and finding."""
    try:
        call()
    except (TypeError, ValueError, trt.Error) as error:
        text = str(error)
    else:
        raise AssertionError(f"{name} took {checked.shown(value)}")
    assert re.search(rf"\b{name}\b", text), text
    assert re.search("expected|must be|there are|cannot be", text), text
    assert re.search("got|cannot be|no DataType for", text), text
    assert len(text.splitlines()) == 1, text
    assert len(text) < 1500, text


def check_method(thing: Any, name: str, function: Any) -> Iterator[Any]:
    """Each argument in turn is wrong, and the others are of the right types."""
    kinds = {argument: kind_of(found) for argument, found in hints(function).items()}
    right = {a: with_objects(k[0]) for a, k in kinds.items() if k}
    required = [
        p.name
        for p in list(inspect.signature(function).parameters.values())[1:]
        if p.default is p.empty
    ]
    assert set(required) <= set(right), f"{name}: annotations of no kind: {required}"
    for argument, kind in kinds.items():
        for wrong in kind[1] if kind else ():
            value = with_objects(wrong)
            given = {a: right[a] for a in required} | {argument: value}

            def call(given: dict[str, Any] = given) -> None:
                getattr(thing, name)(**given)

            yield call, argument, value


def setter_kind(thing: Any, name: str, member: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """By the setter's annotation, or by the type of the property's value."""
    if isinstance(member, property):
        (annotation,) = hints(member.fset).values()
        return kind_of(annotation)
    value = getattr(thing, name)
    if isinstance(value, trt.Dims):
        return kind_of(checked.Shape)
    if isinstance(value, list):
        return None, (None, 1.0, "ab", ["1"], [None], OTHER)
    return kind_of(type(value))


def check_setter(thing: Any, name: str, member: Any) -> Iterator[Any]:
    kind = setter_kind(thing, name, member)
    assert kind, f"{name}: a setter of no kind"
    for wrong in kind[1]:
        value = with_objects(wrong)
        yield lambda value=value: setattr(thing, name, value), name, value


def has_setter(thing: Any, name: str, member: Any) -> bool:
    if isinstance(member, property):
        return member.fset is not None
    if isinstance(member, types.GetSetDescriptorType):
        try:
            setattr(thing, name, getattr(thing, name))
        except AttributeError:
            return False
    return hasattr(type(member), "__set__")


@pytest.mark.parametrize("kind", OBJECTS)
def test_wrong_types(kind: str) -> None:
    thing = OBJECTS[kind]
    faults, calls = [], 0
    for name, member in members(thing):
        if is_refused(member):
            continue
        if isinstance(member, types.FunctionType):
            cases = check_method(thing, name, member)
        elif has_setter(thing, name, member):
            cases = check_setter(thing, name, member)
        else:
            continue
        try:
            for call, argument, value in cases:
                calls += 1
                try:
                    check(call, argument, value)
                except Exception as error:
                    faults.append(f"{name}({argument}={checked.shown(value)}): "
                                  f"{type(error).__name__}: {error}")  # fmt: skip
        except AssertionError as error:
            faults.append(str(error))
    assert not faults, "\n" + "\n".join(faults)
    assert calls > 10

"""Arguments of wrong types: errors name the argument, what is expected, and what was given.
Classes, functions, methods and setters are found by looking at the package, so that new
ones are tested as well."""

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
    checked.Integers: ([1], (None, 5, "ab", 1.5, ["1"], [1.5], ARRAY, [HUGE], [OTHER])),
    checked.File: ("no.file", (None, 5, 1.5, ["x"], ARRAY, True, OTHER)),
    checked.Tensors: ([TENSOR], (None, 5, "x", TENSOR, [None], [TENSOR, 5], ARRAY, [])),
}
# Methods that check their arguments themselves, and those that take any value.
OF_THEIR_OWN = {
    "add_plugin", "add_plugin_v2", "add_plugin_v3", "dynamic_range", "error_recorder",
    "create_timing_cache", "plugins_to_serialize", "source_modules", "set_dynamic_range",
    "run", "load_plugins", "volume",
}  # fmt: skip


def kind_of(annotation: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """The row of KINDS."""
    if isinstance(annotation, types.UnionType):
        inner = [a for a in annotation.__args__ if a is not type(None)]
        right, wrong = (len(inner) == 1 and kind_of(inner[0])) or (None, ())
        return right, tuple(value for value in wrong if value is not None)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        wrong = (*KINDS[enum.Enum][1], other_member(annotation))
        return next(iter(annotation)), wrong
    if getattr(annotation, "__origin__", None) is int:  # bits of flags
        return KINDS[int]
    if annotation not in KINDS and inspect.isclass(annotation) and is_ours(annotation):
        return annotation, (None, 5, "x", 1.5, [1], ARRAY, OTHER)
    return KINDS.get(annotation)


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("rabbet.")


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


def made_of_plan() -> Iterator[Any]:
    """An object of each class that builds, loads, runs and describes."""
    builder, network = trt.Builder(), trt.Builder().create_network()
    x, y = network.add_input("x", trt.float32, (1,)), network.add_constant((1,), ARRAY[:1])
    total = network.add_elementwise(x, y.get_output(0), trt.ElementWiseOperation.SUM)
    network.mark_output(total.get_output(0))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    runtime = trt.Runtime()
    cache = config.create_timing_cache()
    config.set_timing_cache(cache)
    engine = runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))
    yield from (builder, runtime, cache, engine, engine.create_execution_context())
    yield from (trt.TimingCacheKey.parse("0x" + "0" * 31 + "1"), trt.TimingCacheValue(1, 0.5))
    yield from (engine.create_runtime_config(), engine.create_serialization_config())
    yield engine.create_engine_inspector()
    refitter = trt.Refitter(engine)
    yield from (refitter, trt.OnnxParser(network), trt.OnnxParserRefitter(refitter))
    yield from (trt.get_plugin_registry(), trt.Model(engine))
    yield trt.IAlgorithmContext(("a", 1, 1, [[(1,)] * 3] * 2))
    yield trt.IAlgorithm(("kernel", "tactic", 1, 2, 3.0, 4, []))


def objects() -> dict[str, Any]:
    """By class."""
    found = {type(thing).__name__: thing for thing in made(trt.Builder().create_network())}
    found["INetworkDefinition"].get_layer(1)
    return found | {type(thing).__name__: thing for thing in made_of_plan()}


OBJECTS = objects()
FUNCTIONS = {name: f for name, f in vars(trt).items() if inspect.isfunction(f)}
# Classes of layers that share all methods and setters with those above, or whose objects
# cannot be made.
LIKE_OTHERS = {
    "ILayer", "IAttentionBoundaryLayer", "IAttentionInputLayer", "IAttentionOutputLayer",
    "IDistCollectiveLayer", "IIfConditionalBoundaryLayer",
    "IIfConditionalInputLayer", "IIfConditionalOutputLayer", "ILoopBoundaryLayer",
    "IPluginV2Layer", "IPluginV3Layer",
}  # fmt: skip
# Those that users derive from, whose methods the engine calls.
DERIVED = {
    "IAlgorithmSelector", "IDebugListener", "IErrorRecorder", "IGpuAllocator",
    "IGpuAsyncAllocator", "IInt8Calibrator", "IInt8EntropyCalibrator",
    "IInt8EntropyCalibrator2", "IInt8LegacyCalibrator", "IInt8MinMaxCalibrator", "ILogger",
    "IOutputAllocator", "IProfiler", "IProgressMonitor", "IStreamReader", "IStreamReaderV2",
    "IStreamWriter", "IVersionedInterface", "Logger", "Profiler",
}  # fmt: skip
# Those of plugins, which tests of plugins give wrong values.
OF_PLUGINS = {
    "DimsExprs", "DynamicPluginTensorDesc", "IDimensionExpr", "IExprBuilder", "ISymExpr",
    "ISymExprs", "KernelLaunchParams", "PluginField", "PluginFieldCollection",
    "PluginFieldCollection_", "PluginTensorDesc",
}  # fmt: skip
# Those of ONNX Runtime's interface, which have tests of their own.
OF_SESSIONS = {"IOBinding", "InferenceSession", "OrtValue", "SessionOptions"}
# Sequences and descriptions, which check what they are made of, or are made by the engine.
VALUES = {
    "Dims", "Dims2", "Dims3", "Dims4", "DimsHW", "FallbackString", "GraphInfo",
    "IAlgorithmIOInfo", "IAlgorithmVariant", "IHostMemory", "InterfaceInfo", "NodeIndices",
    "ParserError", "Permutation", "Quantization", "QuantizedLayer", "SubGraphCollection",
    "Weights",
}  # fmt: skip


def test_each_class_is_here() -> None:
    kinds = {
        name
        for name in trt.__all__
        if inspect.isclass(kind := getattr(trt, name))
        and not issubclass(kind, (enum.Enum, BaseException))
        and not name.startswith("IPlugin")
    }
    others = LIKE_OTHERS | DERIVED | OF_PLUGINS | OF_SESSIONS | VALUES
    assert kinds | others == (kinds & set(OBJECTS)) | others
    assert not set(OBJECTS) & others


# ---- Arguments ---------------------------------------------------------------------


def members(thing: Any) -> Iterator[tuple[str, Any]]:
    """Public names of its classes, and what defines them."""
    for name in dir(type(thing)):
        if name in CONSTRUCTORS and not is_ours(type(thing)):
            continue
        if name in CONSTRUCTORS or not (name.startswith("_") or name in OF_THEIR_OWN):
            yield name, inspect.getattr_static(type(thing), name)


CONSTRUCTORS = ("__init__", "__new__")


def hints(function: Any) -> dict[str, Any]:
    found = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    found.pop("return", None)
    return found


def with_objects(value: Any) -> Any:
    """The value with objects in the place of what stands for them."""
    names = {TENSOR: "ITensor", LAYER: "IConvolutionLayer", PROFILE: "IOptimizationProfile"}
    if inspect.isclass(value):
        found = [thing for thing in OBJECTS.values() if isinstance(thing, value)]
        return found[0] if found else value.__new__(value)
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
    every = inspect.signature(function).parameters.values()
    required = [
        p
        for p in every
        if p.name not in ("self", "cls")
        and p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    of_no_kind = {p.name for p in required} - set(right)
    known = name in CONSTRUCTORS or all(hints(function)[a] is Any for a in of_no_kind)
    assert known, f"{name}: annotations of no kind: {of_no_kind}"
    right |= dict.fromkeys(of_no_kind)
    for argument, kind in kinds.items():
        for wrong in kind[1] if kind else ():
            value = with_objects(wrong)
            given = {p.name: right[p.name] for p in required} | {argument: value}
            first = [p.name for p in every if p.kind is p.POSITIONAL_ONLY and p.name in given]

            def call(given: dict[str, Any] = given, first: list[str] = first) -> None:
                args = [given.pop(argument) for argument in first]
                called = type(thing) if name in CONSTRUCTORS else getattr(thing, name)
                called(*args, **given)

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
    if isinstance(member, types.MemberDescriptorType):  # a plain attribute
        return False
    if isinstance(member, types.GetSetDescriptorType):
        try:
            setattr(thing, name, getattr(thing, name))
        except AttributeError:
            return False
    return hasattr(type(member), "__set__")


def cases_of(thing: Any, name: str, member: Any) -> Iterator[Any]:
    if isinstance(member, staticmethod):
        member = member.__func__
    if is_refused(member):
        return iter(())
    if isinstance(member, types.FunctionType):
        return check_method(thing, name, member)
    return check_setter(thing, name, member) if has_setter(thing, name, member) else iter(())


def faults_of(cases: Iterator[Any], name: str) -> Iterator[str | None]:
    """For each call the fault of its error, or None."""
    for call, argument, value in cases:
        try:
            check(call, argument, value)
            yield None
        except Exception as error:
            yield f"{name}({argument}={checked.shown(value)}): {type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", OBJECTS)
def test_wrong_types(kind: str) -> None:
    thing = OBJECTS[kind]
    found = [
        fault
        for name, member in members(thing)
        for fault in faults_of(cases_of(thing, name, member), name)
    ]
    faults = [fault for fault in found if fault]
    assert not faults, "\n" + "\n".join(faults)
    assert found


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - OF_THEIR_OWN))
def test_functions(name: str) -> None:
    faults = [f for f in faults_of(check_method(trt, name, FUNCTIONS[name]), name) if f]
    assert not faults, "\n" + "\n".join(faults)

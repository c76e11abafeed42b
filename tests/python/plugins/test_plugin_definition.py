"""Every mistake in a definition has an error that says what, where and how to fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, List, Optional, Tuple, Union  # noqa: UP035

import numpy as np
import numpy.typing as npt
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet.plugin import Tensor, TensorDesc
from rabbet.plugin._plugin import QDP_REGISTRY

from tests.python.support.plugins import call, new_id


def refused(message: str) -> Any:
    """A DefinitionError whose text matches; it is a ValueError as well."""
    return pytest.raises(trtp.DefinitionError, match=message)


# ---- Ids ----


@pytest.mark.parametrize(
    ("plugin_id", "message"),
    [
        ("noname", "expected 'namespace::name'"),
        ("a::b::c", "one '::'"),
        ("::b", "expected 'namespace::name'"),
        ("a::", "expected 'namespace::name'"),
        ("a.b::c", "Python names"),
        ("a::b-c", "Python names"),
        ("trt::c", "reserved"),
        ("tensorrt::c", "reserved"),
        ("std::c", "reserved"),
        (3, "a str"),
    ],
)
def test_ids(plugin_id: Any, message: str) -> None:
    with refused(message):
        trtp.register(plugin_id)


def test_forgotten_parentheses() -> None:
    def f(x: TensorDesc) -> TensorDesc: ...

    with refused("decorate with"):
        trtp.register(f)  # type: ignore[arg-type]


def test_id_is_taken() -> None:
    plugin_id = new_id()

    @trtp.register(plugin_id)
    def first(x: TensorDesc) -> TensorDesc: ...

    def second(x: TensorDesc) -> TensorDesc: ...

    with refused(r"taken by .*first \(.*test_plugin_definition.py:\d+\)"):
        trtp.register(plugin_id)(second)


def test_the_same_function_again_replaces_the_first() -> None:
    plugin_id = new_id()
    for outputs in (1, 2):
        returned = {1: TensorDesc, 2: tuple[TensorDesc, TensorDesc]}[outputs]

        def again(x: TensorDesc) -> returned: ...

        trtp.register(plugin_id)(again)
        assert QDP_REGISTRY[plugin_id].registration.num_outputs == outputs


@pytest.mark.parametrize("decorator", [trtp.impl, trtp.autotune, trtp.aot_impl])
def test_unknown_id(decorator: Callable[..., Any]) -> None:
    plugin_id = new_id("known")

    @trtp.register(plugin_id)
    def f(x: TensorDesc) -> TensorDesc: ...

    with refused(f"did you mean '{plugin_id}'.*register"):
        decorator(plugin_id + "x")


def test_unknown_device() -> None:
    plugin_id = new_id()

    @trtp.register(plugin_id)
    def f(x: TensorDesc) -> TensorDesc: ...

    with refused("'cpu', 'cuda'"):
        trtp.impl(plugin_id, device="gpu")


# ---- register ----

WRONG: list[tuple[Callable[..., Any], str]] = []


def wrong(message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        WRONG.append((function, message))
        return function

    return keep


@wrong(r"parameter \*xs is annotated int; annotate it TensorDesc")
def variadic(x: TensorDesc, *xs: int) -> TensorDesc: ...


@wrong(r"\*\*attrs; name each parameter")
def keywords(x: TensorDesc, **attrs: int) -> TensorDesc: ...


@wrong("positional-only")
def positional(x: TensorDesc, /) -> TensorDesc: ...


@wrong("'k' has no annotation")
def unannotated(x: TensorDesc, k) -> TensorDesc: ...  # type: ignore[no-untyped-def]


@wrong("no return annotation; annotate")
def no_return(x: TensorDesc): ...  # type: ignore[no-untyped-def]


@wrong("return annotation is .*int")
def wrong_return(x: TensorDesc) -> int: ...


@wrong("number of outputs open")
def open_return(x: TensorDesc) -> Tuple[TensorDesc, ...]: ...  # noqa: UP006


@wrong("return annotation is")
def list_return(x: TensorDesc) -> List[TensorDesc]: ...  # noqa: UP006


@wrong("return annotation is")
def mixed_return(x: TensorDesc) -> tuple[TensorDesc, int]: ...


@wrong("'outputs'.*call it otherwise")
def reserved_outputs(x: TensorDesc, outputs: int) -> TensorDesc: ...


@wrong("'stream'.*call it otherwise")
def reserved_stream(x: TensorDesc, stream: int) -> TensorDesc: ...


@wrong("'tactic'.*call it otherwise")
def reserved_tactic(x: TensorDesc, tactic: int) -> TensorDesc: ...


@wrong("Tensor is for impl")
def tensor_input(x: Tensor) -> TensorDesc: ...


@wrong("'x' has a default")
def default_input(x: TensorDesc = None) -> TensorDesc: ...  # type: ignore[assignment]


@wrong("attributes can be int, float")
def object_attribute(x: TensorDesc, k: object) -> TensorDesc: ...


@wrong("attributes can be")
def dict_attribute(x: TensorDesc, k: dict[str, int]) -> TensorDesc: ...


@wrong("attributes can be")
def mixed_attribute(x: TensorDesc, k: tuple[int, float]) -> TensorDesc: ...


@wrong("give a default instead of None")
def optional_attribute(x: TensorDesc, k: Optional[int]) -> TensorDesc: ...  # noqa: UP045


@wrong("attributes have one type")
def union_attribute(x: TensorDesc, k: Union[int, str]) -> TensorDesc: ...  # noqa: UP007


@wrong("say what the array holds")
def bare_array(x: TensorDesc, k: np.ndarray) -> TensorDesc: ...  # type: ignore[type-arg]


@wrong("attributes can be")
def complex_array(x: TensorDesc, k: npt.NDArray[np.complex64]) -> TensorDesc: ...


@wrong("default of 'k' is 'a', which is no int")
def wrong_default(x: TensorDesc, k: int = "a") -> TensorDesc: ...  # type: ignore[assignment]


@wrong("annotation cannot be understood.*Missing")
def unknown_name(x: TensorDesc, k: Missing) -> TensorDesc: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"), WRONG, ids=lambda v: getattr(v, "__name__", "")
)
def test_wrong_register(function: Callable[..., Any], message: str) -> None:
    plugin_id = new_id()
    with refused(message) as caught:
        trtp.register(plugin_id)(function)
    text = str(caught.value)
    assert plugin_id in text
    line = function.__code__.co_firstlineno
    assert re.search(
        rf"{function.__name__} \(.*test_plugin_definition.py:{line}\)", text
    )
    assert plugin_id not in QDP_REGISTRY


def test_annotations_of_a_local_scope() -> None:
    import rabbet.plugin as local_name

    plugin_id = new_id()

    @trtp.register(plugin_id)
    def f(x: local_name.TensorDesc, k: list[int]) -> local_name.TensorDesc: ...

    registration = QDP_REGISTRY[plugin_id].registration
    assert list(registration.inputs) == ["x"]
    assert str(registration.attributes["k"]) == "list[int]"


# ---- impl, autotune, aot_impl ----

BASE = new_id("base")


@trtp.register(BASE)
def base(x: TensorDesc, w: TensorDesc, size: int, scale: float) -> TensorDesc:
    return x.like()


WRONG_FUNCTIONS: list[tuple[str, Callable[..., Any], str]] = []


def wrong_for(
    kind: str, message: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        WRONG_FUNCTIONS.append((kind, function, message))
        return function

    return keep


@wrong_for("impl", "lacks the input 'w'")
def no_w(x: Tensor, outputs: tuple[Tensor], stream: int) -> None: ...


@wrong_for("impl", "lacks the parameter 'outputs'")
def no_outputs(x: Tensor, w: Tensor, stream: int) -> None: ...


@wrong_for("impl", "'sise' is neither.*did you mean 'size'")
def misspelt(x: Tensor, w: Tensor, sise: int, outputs: tuple[Tensor]) -> None: ...


@wrong_for("impl", "impl gets a Tensor")
def desc_input(x: TensorDesc, w: Tensor, outputs: tuple[Tensor]) -> None: ...


@wrong_for("impl", "'size' is annotated .*float.*make them equal")
def other_type(x: Tensor, w: Tensor, size: float, outputs: tuple[Tensor]) -> None: ...


@wrong_for("impl", "'outputs' is annotated.*a sequence")
def single_output(x: Tensor, w: Tensor, outputs: Tensor) -> None: ...


@wrong_for("impl", "'stream' is annotated.*an int")
def text_stream(x: Tensor, w: Tensor, outputs: tuple[Tensor], stream: str) -> None: ...


@wrong_for("impl", "returns nothing")
def returning(x: Tensor, w: Tensor, outputs: tuple[Tensor]) -> Tensor: ...


@wrong_for("impl", r"\*args")
def star(*args: Any) -> None: ...


@wrong_for("autotune", "autotune gets a TensorDesc")
def tensor_tune(x: Tensor, w: TensorDesc, outputs: tuple[TensorDesc]) -> None: ...


@wrong_for("autotune", "'stream' is neither")
def stream_tune(
    x: TensorDesc, w: TensorDesc, outputs: tuple[TensorDesc], stream: int
) -> None: ...


@pytest.mark.parametrize(
    ("kind", "function", "message"),
    WRONG_FUNCTIONS,
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_wrong_functions(kind: str, function: Callable[..., Any], message: str) -> None:
    with refused(message) as caught:
        getattr(trtp, kind)(BASE)(function)
    assert f"@rabbet.plugin.{kind}('{BASE}')" in str(caught.value)
    assert f"test_plugin_definition.py:{function.__code__.co_firstlineno}" in str(
        caught.value
    )


def test_order_defaults_and_keywords_are_free() -> None:
    @trtp.impl(BASE)
    def reordered(
        *, outputs: list[Tensor], scale: float = 1.0, w: Tensor, x: Any
    ) -> None: ...

    signature = QDP_REGISTRY[BASE].functions["impl"][None]
    assert signature.attributes() == ["scale"]
    assert [name for _, name in signature.named] == ["outputs", "scale", "w", "x"]


# ---- Use ----


def network_input() -> Any:
    network = trt.Builder().create_network()
    return network, network.add_input("x", trt.float32, (2, 3))


def test_mistakes_in_use() -> None:
    _, x = network_input()
    op = call(BASE)
    with refused(r"input 'w' is missing.*base \(.*py:\d+\)"):
        op(x, size=1, scale=1.0)
    with refused("3 tensors given, it takes 2"):
        op(x, x, x, size=1, scale=1.0)
    with refused("input 'x' is given twice"):
        op(x, x=x, size=1, scale=1.0)
    with refused("expected a tensor of a network"):
        op(np.zeros(3), x, size=1, scale=1.0)
    with refused("no attribute 'sice'; did you mean 'size'"):
        op(x, x, sice=1, scale=1.0)
    with refused(r"attribute 'scale' \(float\) is missing"):
        op(x, x, size=1)
    with refused("'size' is 1.5, expected int"):
        op(x, x, size=1.5, scale=1.0)
    with refused("'scale' is 'a', expected float"):
        op(x, x, size=1, scale="a")


def test_generous_use() -> None:
    network, x = network_input()
    made = call(BASE)(w=x, x=x, scale=2, size=np.int64(3))
    assert network.add_plugin(made).get_output(0).shape == (2, 3)
    assert network.add_plugin(made()).get_output(0).shape == (2, 3)
    assert network.add_plugin(made, aot=False).get_output(0).shape == (2, 3)


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="did you mean 'test'"):
        _ = trtp.op.tests
    with pytest.raises(AttributeError, match="did you mean"):
        getattr(trtp.op.test, BASE.split("::")[1] + "x")
    with pytest.raises(TypeError, match="add_plugin takes"):
        network_input()[0].add_plugin(len)


def test_lazy_registration() -> None:
    plugin_id = new_id("lazy")

    @trtp.register(plugin_id, lazy_register=True)
    def lazy(x: TensorDesc) -> TensorDesc:
        return x.like()

    def known() -> bool:
        return plugin_id.split("::")[1] in {row[0] for row in trt._rabbet.plugins()}

    assert not known()
    _, x = network_input()
    call(plugin_id)(x)
    assert known()


def test_requests_for_missing_functions() -> None:
    plugin_id = new_id("bare")

    @trtp.register(plugin_id)
    def bare(x: TensorDesc) -> TensorDesc:
        return x.like()

    network, x = network_input()
    with refused("no impl, which aot=False"):
        network.add_plugin(call(plugin_id)(x), aot=False)
    with refused("no aot_impl, which aot=True"):
        network.add_plugin(call(plugin_id)(x), aot=True)

    @trtp.aot_impl(plugin_id)
    def ahead(
        x: TensorDesc, outputs: tuple[TensorDesc], tactic: int
    ) -> tuple[str, str, trtp.KernelLaunchParams, trtp.SymExprs]: ...

    layer = network.add_plugin(call(plugin_id)(x), aot=True)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    with refused("an aot_impl but no impl for device 'cpu'"):
        trt.compile(network, device="cpu")


def test_preferring_two_ways() -> None:
    flag = trt.NetworkDefinitionCreationFlag
    both = 1 << flag.PREFER_JIT_PYTHON_PLUGINS | 1 << flag.PREFER_AOT_PYTHON_PLUGINS
    with pytest.raises(ValueError, match="can prefer one"):
        trt.Builder().create_network(both)


def test_asking_for_a_way_that_the_device_lacks() -> None:
    plugin_id = new_id("here")

    @trtp.register(plugin_id)
    def here(x: TensorDesc) -> TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def here_impl(x, outputs): ...

    @trtp.aot_impl(plugin_id)
    def here_aot(x, outputs, tactic): ...

    network, x = network_input()
    layer = network.add_plugin(call(plugin_id)(x), aot=True)
    network.mark_output(layer.get_output(0))
    with pytest.raises(trt.UnsupportedError, match="in the way that is asked for"):
        trt.compile(network, device="cpu")


# ---- What register functions return ----


def describe(function: Callable[..., Any]) -> Any:
    """Shape of the output of a plugin on an input (2, 3)."""
    plugin_id = new_id("described")
    trtp.register(plugin_id)(function)
    network, x = network_input()
    layer = network.add_plugin(call(plugin_id)(x))
    network.mark_output(layer.get_output(0))
    network.validate()
    return layer


def returns_number(x: TensorDesc) -> TensorDesc:
    return 3  # type: ignore[return-value]


def returns_two(x: TensorDesc) -> TensorDesc:
    return x.like(), x.like()  # type: ignore[return-value]


def returns_strings(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    return x.like(), "x"  # type: ignore[return-value]


def no_dtype(x: TensorDesc) -> TensorDesc:
    return TensorDesc(x.shape_expr)


def no_shape(x: TensorDesc) -> TensorDesc:
    return TensorDesc(dtype=trt.float32)


def unset_dim(x: TensorDesc) -> TensorDesc:
    y = x.like()
    y.shape_expr = trtp.ShapeExprs(2)
    return y


def fake_dim(x: TensorDesc) -> TensorDesc:
    return trtp.from_shape_expr((trtp.ShapeExpr(), 2), trt.float32)


def alias_of_copy(x: TensorDesc) -> TensorDesc:
    return x.like().aliased()


def two_aliases(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    return x.aliased(), x.aliased()


def lost_size_tensor(x: TensorDesc) -> TensorDesc:
    return trtp.from_shape_expr((trtp.size_tensor(1, 2).expr(),), trt.float32)


def calculated_size_tensor(x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    size = trtp.size_tensor(1, 2)
    return trtp.from_shape_expr((size.expr() + 1,), trt.float32), size


def changed_input(x: TensorDesc) -> TensorDesc:
    x.dtype = trt.float16
    return x


def shape_too_early(x: TensorDesc) -> TensorDesc:
    return trtp.from_shape_expr(tuple(x.shape), trt.float32)


def truth_of_symbol(x: TensorDesc) -> TensorDesc:
    return x.like() if x.shape_expr[0] > 7 else x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (returns_number, "returned 3 instead of TensorDesc"),
        (returns_two, "returned 2 outputs, but its return annotation says 1"),
        (returns_strings, "output 1 is 'x'"),
        (no_dtype, "output 0 has no dtype"),
        (no_shape, "output 0 has no shape_expr"),
        (unset_dim, "dimension 0 of output 0 was never set"),
        (fake_dim, "dimension 0 of output 0: a fake"),
        (alias_of_copy, "output 0 is aliased to something that is not an input"),
        (two_aliases, "outputs 0 and 1 are both aliased to input 'x'"),
        (lost_size_tensor, "not among the outputs"),
        (calculated_size_tensor, "cannot be calculated with"),
        (changed_input, "use input.like()"),
        (shape_too_early, "register describes shapes by shape_expr"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_wrong_descriptions(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        describe(function)
    notes = "".join(getattr(caught.value, "__notes__", []))
    assert "plugin" in notes
    assert "described" in notes


def test_constant_truth_is_known() -> None:
    assert describe(truth_of_symbol).get_output(0).shape == (2, 3)


def test_expressions_do_not_outlive_the_call() -> None:
    kept: list[Any] = []

    def keeps(x: TensorDesc) -> TensorDesc:
        kept.append(x.shape_expr[0])
        return x.like()

    describe(keeps)
    with pytest.raises(RuntimeError, match="only during the call"):
        kept[0] + 1


def test_types_with_names_of_their_own() -> None:
    """`type X = ...` of Python 3.12, which NumPy 2.5 uses for NDArray; and remarks."""
    from typing import Annotated, TypeVar

    extensions = pytest.importorskip("typing_extensions")
    scalar = TypeVar("scalar", bound=np.generic)
    named = extensions.TypeAliasType(
        "NDArray", npt.NDArray[scalar], type_params=(scalar,)  # type: ignore[valid-type]
    )
    count = extensions.TypeAliasType("Count", int)
    plugin_id = new_id()

    def describe(x: Any, pads: Any, n: Any, m: Any) -> TensorDesc:
        return x.like()

    describe.__annotations__ |= {
        "x": TensorDesc,
        "pads": named[np.int32],
        "n": count,
        "m": Annotated[int, "a remark"],
    }
    registered = trtp.register(plugin_id)(describe)
    assert registered is not None

    def impl(x: Any, pads: Any, n: Any, m: Any, outputs: Any, stream: int) -> None: ...

    impl.__annotations__ |= {
        "pads": npt.NDArray[np.int32],
        "n": int,
        "m": Annotated[int, "another"],
    }
    trtp.impl(plugin_id)(impl)
    assert named[np.int32] != npt.NDArray[np.int32]
    impl.__annotations__["pads"] = named[np.float32]
    other = new_id()
    trtp.register(other)(describe)
    with refused("its attribute 'pads' is annotated"):
        trtp.impl(other)(impl)

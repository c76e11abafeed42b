"""IPluginRegistry: creators of classes, of decorated plugins and of libraries."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet.plugin import _lib

from tests.python.command.test_command_plugins import C_SOURCE, compile_library
from tests.python.support.class_plugins import (
    BUILD,
    PadV2,
    PadV2Creator,
    PadV3,
    PadV3Creator,
    derived,
    new_name,
    one_layer,
    pads_field,
    register,
)
from tests.python.support.plugins import build, new_id

REGISTRY = trt.get_plugin_registry()


@pytest.fixture
def creator() -> Iterator[Any]:
    made = register(derived())
    yield made
    REGISTRY.deregister_creator(made)


def test_there_is_one() -> None:
    assert trt.get_plugin_registry() is REGISTRY
    assert trt.Builder().get_plugin_registry() is REGISTRY
    assert trt.Runtime(trt.Logger()).get_plugin_registry() is REGISTRY
    standard = trt.EngineCapability.STANDARD
    assert trt.get_builder_plugin_registry(standard) is REGISTRY
    assert isinstance(REGISTRY, trt.IPluginRegistry)


def test_finding(creator: Any) -> None:
    name = creator.name
    assert REGISTRY.get_creator(name, "1", "test") is creator
    assert REGISTRY.get_creator(name, "2", "test") is None
    assert REGISTRY.get_creator(name, "1") is None
    assert REGISTRY.get_plugin_creator(name, "1", "test") is None  # no IPluginCreator
    assert creator in REGISTRY.all_creators
    assert creator in REGISTRY.all_creators_recursive
    assert creator not in REGISTRY.plugin_creator_list


def test_older_creators() -> None:
    made = register(derived(PadV2), PadV2Creator)
    assert REGISTRY.get_plugin_creator(made.name, "1", "") is made
    assert REGISTRY.get_creator(made.name, "1") is made
    assert made in REGISTRY.plugin_creator_list
    assert REGISTRY.deregister_creator(made) is True
    assert REGISTRY.get_creator(made.name, "1") is None


def test_namespaces_and_versions() -> None:
    kind = derived()
    own, other, newer = PadV3Creator(kind), PadV3Creator(kind), PadV3Creator(kind)
    newer.plugin_version = "2"
    assert REGISTRY.register_creator(own)  # under its own namespace
    assert REGISTRY.register_creator(other, "elsewhere")
    assert REGISTRY.register_creator(newer, "test")
    assert REGISTRY.get_creator(kind.name, "1", "test") is own
    assert REGISTRY.get_creator(kind.name, "1", "elsewhere") is other
    assert REGISTRY.get_creator(kind.name, "2", "test") is newer
    with pytest.raises(trt.AlreadyExistsError, match=f"{kind.name}.*namespace 'test'"):
        REGISTRY.register_creator(PadV3Creator(kind))
    for made in (own, other, newer):
        assert REGISTRY.deregister_creator(made)
        assert not REGISTRY.deregister_creator(made)
    assert REGISTRY.register_creator(own)  # the name is free again
    assert REGISTRY.deregister_creator(own)


def test_classes_that_are_defined_anew() -> None:
    """As when a notebook's cell runs twice."""

    def run_cell(factor: int) -> Any:
        class CellCreator(PadV3Creator):
            def __init__(self) -> None:
                super().__init__()
                self.name, self.factor = "OfACell", factor

        made = CellCreator()
        REGISTRY.register_creator(made)
        return made

    first, second = run_cell(1), run_cell(2)
    assert REGISTRY.get_creator("OfACell", "1", "test") is second
    assert not REGISTRY.deregister_creator(first)
    with pytest.raises(trt.AlreadyExistsError):
        REGISTRY.register_creator(type(second)())
    assert REGISTRY.deregister_creator(second)


def test_the_registry_keeps_creators() -> None:
    made = register(derived())
    name, gone = made.name, weakref.ref(made)
    del made
    gc.collect()
    found = REGISTRY.get_creator(name, "1", "test")
    assert found is gone()
    REGISTRY.deregister_creator(found)
    del found
    gc.collect()
    assert gone() is None


def test_what_is_no_creator() -> None:
    class Nameless(trt.IPluginCreatorV3One):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            return None

    class Idle(Nameless):
        create_plugin = trt.IPluginCreatorV3One.create_plugin

        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version = new_name(), "1"

    class Twice(Nameless):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version = new_name(), "1"
            self.field_names = [trt.PluginField("a"), trt.PluginField("a")]

    class Forgetful(trt.IPluginCreator):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version = new_name(), "1"

        def create_plugin(self, name: str, fc: Any) -> Any:
            return None

    register_creator: Any = REGISTRY.register_creator
    with pytest.raises(TypeError, match="derives from IPluginCreator"):
        register_creator(object())
    with pytest.raises(TypeError, match="plugin_namespace: expected a str, got 3"):
        register_creator(Nameless(), 3)
    with pytest.raises(trt.PluginError, match=r"Nameless\.name was never set"):
        register_creator(Nameless())
    with pytest.raises(trt.PluginError, match=r"Idle\.create_plugin\(\).* does not define"):
        register_creator(Idle())
    with pytest.raises(trt.PluginError, match=r"Forgetful\.deserialize_plugin\(\)"):
        register_creator(Forgetful())
    with pytest.raises(trt.PluginError, match=r"Twice\.field_names.*name of its own"):
        register_creator(Twice())
    with pytest.raises(TypeError, match=r"Idle\.name: expected a str, got 4"):
        Idle().name = 4  # type: ignore[assignment]


def test_properties() -> None:
    assert REGISTRY.parent_search_enabled is True
    REGISTRY.parent_search_enabled = False
    assert REGISTRY.parent_search_enabled is False
    REGISTRY.parent_search_enabled = True


def test_error_recorder(creator: Any) -> None:
    recorder = trt.IErrorRecorder()
    REGISTRY.error_recorder = recorder
    try:
        with pytest.raises(trt.AlreadyExistsError):
            REGISTRY.register_creator(creator, "test")
        assert recorder.num_errors() == 1
        assert creator.name in recorder.get_error_desc(0)
    finally:
        REGISTRY.error_recorder = None


def test_builtin_plugins_are_accepted() -> None:
    assert trt.init_libnvinfer_plugins(None, "") is True
    assert trt.init_libnvinfer_plugins(trt.Logger(), "") is True
    with pytest.raises(TypeError, match="logger: expected an ILogger, got 3"):
        trt.init_libnvinfer_plugins(3, "")


# ---- Decorated plugins ----


def test_decorated_plugins_have_creators() -> None:
    plugin_id = new_id("scale")
    namespace, name = plugin_id.split("::")

    @trtp.register(plugin_id, lazy_register=True)
    def scale(x: trtp.TensorDesc, factor: float, label: str) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl(plugin_id)
    def scale_impl(x: Any, factor: float, label: str, outputs: Any) -> None:
        assert label == "l"
        np.multiply(np.asarray(x), np.float32(factor), out=np.asarray(outputs[0]))

    assert REGISTRY.get_creator(name, "1", namespace) is None
    assert isinstance(_lib.QDP_REGISTRY[plugin_id], _lib.PluginDef)
    with pytest.raises(trtp.DefinitionError, match="register alone"):
        _lib.PluginDef()
    assert _lib.QDP_REGISTRY[plugin_id].name == name
    assert plugin_id not in _lib.QDP_CREATORS
    _lib.QDP_REGISTRY[plugin_id].register()
    creator = REGISTRY.get_creator(name, "1", namespace)
    assert isinstance(creator, trt.IPluginCreatorV3Quick)
    assert _lib.QDP_CREATORS[plugin_id] is creator
    assert plugin_id in list(_lib.QDP_CREATORS)
    assert creator in REGISTRY.all_creators
    assert [(f.name, f.type) for f in creator.field_names] == [
        ("factor", trt.PluginFieldType.FLOAT64),
        ("label", trt.PluginFieldType.CHAR),
    ]
    fields = trt.PluginFieldCollection(
        [
            trt.PluginField("factor", np.array([3.0]), trt.PluginFieldType.FLOAT64),
            trt.PluginField("label", b"l", trt.PluginFieldType.CHAR),
        ]
    )
    plugin = creator.create_plugin(name, namespace, fields, trt.TensorRTPhase.BUILD)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2,))
        return network.add_plugin(([x], [], plugin)).get_output(0)

    assert build(make)(np.ones(2, np.float32)).tolist() == [3, 3]
    assert REGISTRY.deregister_creator(creator)
    assert plugin_id not in _lib.QDP_REGISTRY


# ---- Resources ----


class Resource(trt.IPluginResource):
    """Counts its copies and releases."""

    def __init__(self, log: list[str], value: int = 0) -> None:
        super().__init__()
        self.log, self.value = log, value

    def clone(self) -> Any:
        self.log.append("clone")
        return Resource(self.log, self.value)

    def release(self) -> None:
        self.log.append("release")


def test_resources() -> None:
    log: list[str] = []
    key = new_name("key")
    original = Resource(log, 5)
    shared = REGISTRY.acquire_plugin_resource(key, original)
    assert shared is not original
    assert shared.value == 5
    assert REGISTRY.acquire_plugin_resource(key, Resource(log, 6)) is shared
    assert log == ["clone"]
    assert REGISTRY.release_plugin_resource(key) == 0
    assert log == ["clone"]
    assert REGISTRY.release_plugin_resource(key) == 0
    assert log == ["clone", "release"]
    assert REGISTRY.release_plugin_resource(key) != 0
    assert REGISTRY.acquire_plugin_resource(key, Resource(log, 7)).value == 7
    assert REGISTRY.release_plugin_resource(key) == 0


def test_what_is_no_resource() -> None:
    class Same(Resource):
        def clone(self) -> Any:
            return self

    class Endless(trt.IPluginResource):
        def clone(self) -> Any:
            return Endless()

    acquire: Any = REGISTRY.acquire_plugin_resource
    with pytest.raises(TypeError, match="derives from IPluginResource, got 3"):
        acquire("k", 3)
    with pytest.raises(trt.PluginError, match=r"Same\.clone\(\): it returned the object"):
        acquire("k", Same([]))
    with pytest.raises(trt.PluginError, match=r"Endless\.release\(\): .* not define it"):
        acquire("k", Endless())
    with pytest.raises(TypeError, match="key: expected a str, got 3"):
        acquire(3, Resource([]))


def test_base_classes_go_together() -> None:
    plugin = PadV3([pads_field(1, 2, 3, 4)])
    assert plugin.api_language == trt.APILanguage.PYTHON
    assert plugin.interface_info.kind == "PLUGIN_V3"
    assert not {"num_outputs", "plugin_name"} & set(vars(plugin))
    creator = PadV3Creator()
    assert creator.interface_info.kind == "PLUGIN CREATOR_V3ONE"
    assert (creator.interface_info.major, creator.interface_info.minor) == (1, 0)


# ---- Libraries ----


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the operator 'command::Triple', registered under another name."""
    source = C_SOURCE.replace('"Triple"', '"TripleOfRegistry"')
    path = tmp_path_factory.mktemp("library") / "triple.so"
    include = Path(__file__).resolve().parents[3] / "include"
    return compile_library(source, path, f"-I{include}")


def test_libraries(library: Path) -> None:
    key = ("TripleOfRegistry", "1", "command")
    assert REGISTRY.get_creator(*key) is None
    handle = REGISTRY.load_library(str(library))
    assert REGISTRY.load_library(library) is handle  # once
    creator = REGISTRY.get_creator(*key)
    assert creator is REGISTRY.get_creator(*key)
    assert creator in REGISTRY.all_creators
    assert creator not in REGISTRY.plugin_creator_list
    assert (creator.name, creator.plugin_version, creator.plugin_namespace) == key
    assert len(creator.field_names) == 0
    plugin = creator.create_plugin("t", trt.PluginFieldCollection(), BUILD)

    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (2, 3))
        layer = network.add_plugin_v3([x], [], plugin)
        assert layer.plugin is None
        return layer.get_output(0)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(build(make)(x), 3 * x)
    REGISTRY.deregister_library(handle)
    assert REGISTRY.get_creator(*key) is None
    with pytest.raises(trt.NotFoundError, match="is not a library that load_library gave"):
        REGISTRY.deregister_library(handle)
    again = REGISTRY.load_library(library)
    assert REGISTRY.get_creator(*key) is not None
    REGISTRY.deregister_library(again)


def test_what_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(trt.UnavailableError, match=r"gone\.so': it cannot be opened"):
        REGISTRY.load_library(tmp_path / "gone.so")
    with pytest.raises(trt.NotFoundError, match="3 is not a library"):
        REGISTRY.deregister_library(3)


# ---- Memory ----


def test_nothing_is_kept_of_builds_and_runs() -> None:
    kind = derived()
    made = register(kind)
    x = np.ones((2, 3, 4, 5), np.float32)

    def work() -> None:
        plugin = made.create_plugin("p", [pads_field(1, 1, 1, 1)], BUILD)
        one_layer(plugin, x.shape)(x)
        made.log.clear()
        made.made.clear()

    work()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(5):
        work()
    gc.collect()
    assert len(gc.get_objects()) - before < 50
    plugins = [o for o in gc.get_objects() if isinstance(o, kind)]
    assert plugins == []

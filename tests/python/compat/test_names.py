"""docs/reference/names.tsv against the package: every name has the kind and details of its
row, and docs/reference/names.md is up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import rabbet as trt

ROOT = Path(__file__).resolve().parents[3]


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("names", ROOT / "tools" / "names.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


names = _tool()
ROWS, WRONG = names.judged()


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 1720
    assert (
        len({(name.owner, name.member, name.kind, name.detail) for name, _ in ROWS})
        == 1720
    )


def test_names_are_what_the_table_says() -> None:
    assert not WRONG


def test_the_page_says_what_is_so() -> None:
    assert names.PAGE.read_text() == names.page(ROWS), (
        "run python tools/names.py --update"
    )


def test_written_enumerations_and_layers_are_exported() -> None:
    written = {*trt._enumerations.__all__, *trt._layers._layers.__all__}
    assert written <= set(trt.__all__)


def test_a_false_row_is_found() -> None:
    def judge(*row: str) -> Any:
        return names.judge(names.Name(*row))

    for row in (
        ("Builder", "frobnicate", "method", ""),
        ("IPluginV3", "frobnicate", "override", ""),
        ("DataType", "FLOAT", "enum value", "1"),
        ("Builder", "create_network", "method", "flag"),
        ("Builder", "create_network", "property", ""),
        ("ILayer", "num_inputs", "method", ""),
        ("IGatherLayer", "", "class", "ICastLayer"),
        ("Dims2", "__init__", "constructor", "height"),
        ("ICudaEngine", "name", "property", ""),
        ("", "float32", "property", "DataType.HALF"),
        ("Logger", "Severity", "class", "Dims.MAX_DIMS"),
    ):
        with pytest.raises(names.WrongError):
            judge(*row)


def _refused() -> list[Any]:
    found = []
    for name, why in ROWS:
        if name.says == "refused" and name.kind == "method":
            _, method = names.look_up(name)
            if "_rabbet_mark" in vars(method):
                found.append(pytest.param(method, why, id=str(name)))
    return found


@pytest.mark.parametrize(("method", "why"), _refused())
def test_what_is_refused_says_why(method: Any, why: str) -> None:
    with pytest.raises(trt.UnsupportedError) as error:
        method(None)
    assert why in str(error.value)


def _fixed() -> list[Any]:
    return [
        pytest.param(owner, attribute, id=str(name))
        for name, _ in ROWS
        if name.says == "no effect"
        for owner, attribute in [names.look_up(name)]
        if type(attribute).__name__ == "Fixed"
    ]


@pytest.mark.parametrize(("owner", "attribute"), _fixed())
def test_what_has_one_value_refuses_others(owner: Any, attribute: Any) -> None:
    attribute.__set__(None, attribute.value)
    with pytest.raises(ValueError, match=r"is .* here, and cannot be"):
        attribute.__set__(None, object())


def test_with_statements() -> None:
    with (
        trt.Logger() as logger,
        trt.Builder(logger) as builder,
        builder.create_network() as network,
        builder.create_builder_config() as config,
    ):
        config.device = "cpu"
        x = network.add_input("x", trt.float32, (1,))
        network.mark_output(network.add_identity(x).get_output(0))
        with (
            builder.build_engine_with_config(network, config) as engine,
            engine.create_execution_context() as context,
        ):
            assert context.all_shape_inputs_specified
            assert engine.refittable is False
            with engine.serialize() as plan:
                assert len(bytes(plan)) == plan.nbytes
            plan.__exit__(exc_type=None, exc_value=None, traceback=None)


def test_options_that_have_one_value() -> None:
    config = trt.Builder().create_builder_config()
    config.engine_capability = trt.EngineCapability.STANDARD
    with pytest.raises(ValueError, match="DLA_core is -1 here, and cannot be 0"):
        config.DLA_core = 0
    with pytest.raises(ValueError, match="memory pool"):
        config.set_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM, 1)


def test_hints_are_kept() -> None:
    config = trt.Builder().create_builder_config()
    hints = {
        "hardware_compatibility_level": trt.HardwareCompatibilityLevel.AMPERE_PLUS,
        "runtime_platform": trt.RuntimePlatform.WINDOWS_AMD64,
        "tiling_optimization_level": trt.TilingOptimizationLevel.FULL,
        "l2_limit_for_tiling": 1 << 20,
        "max_aux_streams": 3,
    }
    fresh = {name: getattr(config, name) for name in hints}
    dram = trt.MemoryPoolType.TACTIC_DRAM
    no_limit = config.get_memory_pool_limit(dram)
    for name, value in hints.items():
        setattr(config, name, value)
        assert getattr(config, name) == value != fresh[name]
    config.set_memory_pool_limit(dram, 1 << 30)
    assert config.get_memory_pool_limit(dram) == 1 << 30
    for name, wrong in [("max_aux_streams", -1), ("tiling_optimization_level", 17)]:
        with pytest.raises(ValueError, match=r"at least 0|expected one of"):
            setattr(config, name, wrong)
        assert getattr(config, name) == hints[name]
    config.reset()
    assert {name: getattr(config, name) for name in hints} == fresh
    assert config.get_memory_pool_limit(dram) == no_limit > 1 << 40


def test_configuration_reset() -> None:
    config = trt.Builder().create_builder_config()
    fresh = trt.Builder().create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    config.builder_optimization_level = 1
    config.try_plugins = True
    config.set_tactic_sources(1 << int(trt.TacticSource.CUDNN))
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    config.reset()
    assert config.flags == fresh.flags
    assert config.builder_optimization_level == fresh.builder_optimization_level
    assert config.try_plugins == fresh.try_plugins
    assert config.get_tactic_sources() == fresh.get_tactic_sources()
    assert not config.get_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03)
    with pytest.raises(ValueError, match="1 << TacticSource"):
        config.set_tactic_sources(1 << 20)


def test_dims_by_name() -> None:
    assert trt.Dims(shape=[1, 2]) == (1, 2)
    assert trt.Dims2(dim0=3, dim1=4) == (3, 4)
    assert trt.Dims3(1, dim1=2, dim2=3) == (1, 2, 3)
    assert trt.DimsHW(h=5, w=6).w == 6
    assert trt.Dims4(shape=(1, 2, 3, 4)) == (1, 2, 3, 4)
    with pytest.raises(TypeError, match="takes dim0, dim1"):
        trt.Dims2(1, dim0=2)
    with pytest.raises(TypeError, match="both"):
        trt.Dims(1, shape=(2,))


def test_interfaces_tell_of_themselves() -> None:
    allocator = trt.IGpuAllocator()
    assert allocator.api_language is trt.APILanguage.PYTHON
    assert allocator.interface_info.kind == "IGpuAllocator"
    assert trt.IStreamReaderV2().interface_info.major == 1


class Lines(trt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[Any, str]] = []

    def log(self, severity: Any, message: str) -> None:
        self.lines.append((severity, message))


def test_a_build_warns_of_flags_that_ask_for_what_there_is_not() -> None:
    logger = Lines()
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2,))
    relu = network.add_activation(x, trt.ActivationType.RELU)
    network.mark_output(relu.get_output(0))
    config = builder.create_builder_config()
    config.device = "cpu"
    config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    config.set_flag(trt.BuilderFlag.DIRECT_IO)  # as it always is: no warning
    builder.build_serialized_network(network, config)
    found = [text for severity, text in logger.lines if severity == trt.Logger.WARNING]
    assert found == [
        "BuilderFlag.VERSION_COMPATIBLE has no effect: a plan is for the release that "
        "wrote it"
    ]

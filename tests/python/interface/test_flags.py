"""Options that are true or false: all else is a TypeError that names the option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp

from tests.python.support.plugins import build, new_id


def one(network: trt.INetworkDefinition) -> Any:
    x = network.add_input("x", trt.float32, (2, 3))
    return network.add_activation(x, trt.ActivationType.RELU).get_output(0)


def network() -> Any:
    made = trt.Builder().create_network()
    return made, made.add_input("x", trt.float32, (2, 4, 8))


def set_to(thing: Any, name: str) -> Any:
    return lambda value: setattr(thing, name, value)


def layers() -> dict[str, Any]:
    made, x = network()
    reduce = made.add_reduce(x, trt.ReduceOperation.SUM, 1, True)
    axis = made.add_constant((), np.array(1, np.int32)).get_output(0)
    cumulative = made.add_cumulative(x, axis, trt.CumulativeOperation.SUM, False, True)
    loop = made.add_loop()
    soft = trt.AttentionNormalizationOp.SOFTMAX
    four = made.add_input("q", trt.float32, (1, 2, 4, 8))
    return {
        "reduce": lambda v: made.add_reduce(x, trt.ReduceOperation.SUM, 1, v),
        "keep_dims": set_to(reduce, "keep_dims"),
        "cumulative": lambda v: made.add_cumulative(
            x, axis, trt.CumulativeOperation.SUM, v, v
        ),
        "exclusive": set_to(cumulative, "exclusive"),
        "iterator": lambda v: loop.add_iterator(x, 0, v),
        "attention": lambda v: made.add_attention(four, four, four, soft, v),
    }


def options(engine: Any, folder: Path) -> dict[str, Any]:
    builder = trt.Builder()
    config = builder.create_builder_config()
    context = engine.create_execution_context()
    made, x = network()
    made.mark_output(made.add_identity(x).get_output(0))
    path = folder / "model.plan"
    path.write_bytes(bytes(engine.serialize()))
    runtime = trt.Runtime(trt.Logger())

    def setting(name: str) -> Any:
        def load(value: Any) -> None:
            setattr(runtime, name, value)
            try:
                runtime.load_cuda_engine(str(path))
            finally:
                setattr(runtime, name, False)

        return load

    def option(call: Any, name: str, *given: Any, **more: Any) -> Any:
        return lambda value: call(*given, **more, **{name: value})

    compiling = ("fp16", "bf16", "verbose", "graphs", "keep_plugins", "try_plugins")
    loading = ("graphs", "allow_host_code", "untrusted")
    return {
        **{f"compile {n}": option(trt.compile, n, made, device="cpu", optimization_level=0)
           for n in compiling},
        **{f"load {n}": option(trt.load, n, path, device="cpu") for n in loading},
        "model": option(trt.Model, "graphs", engine),
        "source": set_to(config, "keep_plugin_source"),
        "try": set_to(config, "try_plugins"),
        "mismatch": lambda v: config.set_timing_cache(config.create_timing_cache(b""), v),
        "combine": lambda v: config.create_timing_cache(b"").combine(
            config.create_timing_cache(b""), v),
        "preview": lambda v: config.set_preview_feature(next(iter(trt.PreviewFeature)), v),
        "context": set_to(context, "graphs"),
        "finite": set_to(context, "check_finite"),
        "debug": lambda v: context.set_all_tensors_debug_state(v),
        "host code": setting("engine_host_code_allowed"),
        "untrusted": setting("untrusted"),
        "register": lambda v: trtp.register(new_id(), lazy_register=v),
        "torch": lambda v: trtp.register(new_id(), torch=v),
        "parents": set_to(runtime.get_plugin_registry(), "parent_search_enabled"),
        **layers(),
    }  # fmt: skip


def test_strict_types(tmp_path: Path) -> None:
    for name, use in options(build(one).engine, tmp_path).items():
        for wrong in ("yes", "no", "", b"1", None, 2, -1, 1.0, [], np.ones(2, bool)):
            with pytest.raises(TypeError, match="expected True or False, got"):
                use(wrong)
                print(name, "took", wrong)
        # The registry outlives the test, and ends as it began.
        last = name == "parents"
        for right in (True, False, 0, np.False_, np.int64(0), np.bool_(last)):
            use(right)


def test_attributes_of_plugins() -> None:
    plugin_id = new_id("flag")

    @trtp.register(plugin_id)
    def flagged(x: trtp.TensorDesc, up: bool) -> trtp.TensorDesc:
        return x.like()

    space, name = plugin_id.split("::")
    made, x = network()
    for wrong in ("yes", 1.0, None, 2):
        with pytest.raises(trtp.DefinitionError, match=r"up.*expected True or False"):
            made.add_plugin(getattr(getattr(trtp.op, space), name)(x, up=wrong))

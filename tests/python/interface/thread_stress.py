"""Many threads at once on what Python plugins touch.

Each scenario is a function that raises where a result is wrong. test_threads.py
calls them in its own interpreter and, as

    python -m tests.python.interface.thread_stress SCENARIO ...

in a free-threaded one, where nothing but our own locks keeps threads apart.
"""

from __future__ import annotations

import faulthandler
import gc
import queue
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp
from rabbet.plugin._lib import QDP_REGISTRY

from tests.python.support.class_plugins import (
    BUILD,
    PadV2,
    PadV2Creator,
    PadV3,
    array,
    derived,
    new_name,
    pad,
    pads_field,
    register,
)
from tests.python.support.class_plugins import one_layer as class_model
from tests.python.support.plugins import call, new_id, one_layer, random

THREADS = 6
REGISTRY = trt.get_plugin_registry()
SCENARIOS: dict[str, Callable[[], None]] = {}


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def together(*works: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs works (of the number of a thread) at once, begun at the same moment;
    raises what one of them raised."""
    barrier, errors = threading.Barrier(threads), []

    def run(index: int) -> None:
        barrier.wait()
        try:
            works[index % len(works)](index)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def define(body: Callable[[Any, Any], None]) -> str:
    """A decorated plugin of one input and one output like it."""
    plugin_id = new_id("threads")

    def description(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    def implementation(x: trtp.Tensor, outputs: tuple[trtp.Tensor, ...]) -> None:
        body(x, outputs[0])

    trtp.register(plugin_id)(description)
    trtp.impl(plugin_id)(implementation)
    return plugin_id


def twice(x: Any, y: Any) -> None:
    np.multiply(x.numpy(), 2, out=y.numpy())


def dynamic(plugin_id: str) -> trt.Model:
    network = trt.Builder().create_network()
    x = network.add_input("x0", trt.float32, (-1, 3))
    y = network.add_plugin(call(plugin_id)(x)).get_output(0)
    y.name = "y0"
    network.mark_output(y)
    return trt.compile(network, device="cpu", shapes={"x0": ((1, 3), (2, 3), (64, 3))})


# ---- Runs ----


@scenario
def one_model_for_all() -> None:
    """Model.__call__ takes a context of a pool; shapes change all the time."""
    model = dynamic(define(twice))

    def work(seed: int) -> None:
        for i in range(150):
            x = random((i + seed) % 64 + 1, 3, seed=seed)
            np.testing.assert_array_equal(model(x), 2 * x)
            assert model.graph_info is not None

    together(work)


@scenario
def a_context_for_each() -> None:
    """Instances of classes, copied for each context of one engine."""
    kinds = register(derived(PadV3)), register(derived(PadV2), PadV2Creator)
    plugins = (
        kinds[0].create_plugin("a", [pads_field(1, 2, 3, 0)], BUILD),
        kinds[1].create_plugin("a", [pads_field(1, 2, 3, 0)]),
    )
    shapes = {"x0": ((1, 3, 4, 5), (2, 3, 4, 5), (8, 3, 4, 5))}
    models = [class_model(p, (-1, 3, 4, 5), shapes=shapes) for p in plugins]

    def work(index: int) -> None:
        engine, batch = models[index % 2].engine, index + 1
        for _turn in range(4):
            context = engine.create_execution_context()
            x = np.ascontiguousarray(random(batch, 3, 4, 5, seed=index))
            y = np.empty((batch, 3, 7, 8), np.float32)
            context.set_input_shape("x0", x.shape)
            context.set_tensor_address("x0", x.ctypes.data)
            context.set_tensor_address("y0", y.ctypes.data)
            for _call in range(25):
                y[...] = 0
                assert context.execute_async_v3(0)
                np.testing.assert_array_equal(y, pad(x, (1, 2, 3, 0)))

    together(work)


@scenario
def one_context_for_all() -> None:
    """Not allowed: whoever comes while it runs is told so, and nothing breaks."""
    context = one_layer(define(twice), (64,)).engine.create_execution_context()
    x, y = random(64), np.empty(64, np.float32)
    done, refused = [], []

    def work(index: int) -> None:
        for _turn in range(200):
            try:
                context.set_tensor_address("x0", x.ctypes.data)
                context.set_tensor_address("y0", y.ctypes.data)
                context.get_tensor_shape("y0")
                context.execute_async_v3(0)
                done.append(index)
            except trt.FailedPreconditionError as error:
                assert "one thread at a time" in str(error), error
                refused.append(index)

    together(work)
    assert done
    assert len(done) + len(refused) == THREADS * 200
    np.testing.assert_array_equal(y, 2 * x)


@scenario
def kept_tensors() -> None:
    """A function may keep its tensors; other threads use and drop them."""
    kept: queue.Queue[Any] = queue.Queue()
    tuned = threading.Event()

    def body(x: Any, y: Any) -> None:
        twice(x, y)
        if tuned.is_set():
            kept.put((x, y.numpy()))

    model = one_layer(define(body), (1000,))
    tuned.set()
    finished = threading.Event()

    def make(seed: int) -> None:
        for i in range(100):
            x = np.full(1000, 100 * seed + i, np.float32)
            np.testing.assert_array_equal(model(x), 2 * x)
        finished.set()

    def use(_seed: int) -> None:
        while not (finished.is_set() and kept.empty()):
            try:
                x, y = kept.get(timeout=0.01)
            except queue.Empty:
                continue
            np.testing.assert_array_equal(2 * np.asarray(x), y)

    together(make, use)
    while not kept.empty():
        x, y = kept.get()
        np.testing.assert_array_equal(2 * np.asarray(x), y)


@scenario
def exceptions() -> None:
    """Each thread gets the exception of its own call."""

    class Wrong(Exception):
        pass

    def body(x: Any, y: Any) -> None:
        number = float(np.asarray(x)[0])
        if number:
            raise Wrong(number)

    model = one_layer(define(body), (4,), try_plugins=False)

    def work(seed: int) -> None:
        for i in range(100):
            number = float(1 + 100 * seed + i)
            try:
                model(np.full(4, number, np.float32))
            except Wrong as error:
                assert error.args == (number,), error.args
                assert any("raised in" in note for note in error.__notes__)
            else:
                raise AssertionError("nothing was raised")

    together(work)


@scenario
def collections() -> None:
    """The garbage collector runs all the while, and objects come and go."""
    model = dynamic(define(twice))
    plan = model.engine.serialize()
    stop = threading.Event()

    def collect(_index: int) -> None:
        while not stop.is_set():
            gc.collect()

    def work(seed: int) -> None:
        for i in range(15):
            engine = trt.Runtime().deserialize_cuda_engine(plan)
            loaded = trt.Model(engine)
            x = random(seed + 1, 3, seed=i)
            np.testing.assert_array_equal(loaded(x), 2 * x)

    collector = threading.Thread(target=collect, args=(0,))
    # A collection shall take the objects of this test, not those of all modules.
    gc.freeze()
    collector.start()
    try:
        together(work)
    finally:
        stop.set()
        collector.join()
        gc.unfreeze()


@scenario
def callbacks() -> None:
    """One logger, one profiler, one output allocator class, many threads."""
    messages: list[str] = []

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            messages.append(message)

    class Times(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.count = 0

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.count += 1

    plan = one_layer(define(twice), (64,)).engine.serialize()
    logger = Logger()

    def work(seed: int) -> None:
        for _turn in range(5):
            engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
            context = engine.create_execution_context()
            profiler = context.profiler = Times()
            x, y = random(64, seed=seed), np.empty(64, np.float32)
            context.set_tensor_address("x0", x.ctypes.data)
            context.set_tensor_address("y0", y.ctypes.data)
            for _call in range(20):
                context.execute_async_v3(0)
            np.testing.assert_array_equal(y, 2 * x)
            assert profiler.count == 20, profiler.count

    together(work)


# ---- Builds ----


@scenario
def builds() -> None:
    """Networks of their own, one timing cache, decorated plugins and classes."""
    plugin_id = define(twice)
    creator = register(derived(PadV3, timing_cache_id="threads"))
    cache = trt.Builder().create_builder_config().create_timing_cache(b"")

    def work(seed: int) -> None:
        builder = trt.Builder()
        for _turn in range(2):
            network = builder.create_network()
            x = network.add_input("x0", trt.float32, (1, 2, 3, 4 + seed))
            y = network.add_plugin(call(plugin_id)(x)).get_output(0)
            plugin = creator.create_plugin("pad", [pads_field(1, 0, 0, 1)], BUILD)
            y = network.add_plugin_v3([y], [], plugin).get_output(0)
            y.name = "y0"
            network.mark_output(y)
            config = builder.create_builder_config()
            config.device = "cpu"
            config.set_timing_cache(cache, False)
            plan = builder.build_serialized_network(network, config)
            model = trt.Model(trt.Runtime().deserialize_cuda_engine(plan))
            value = random(1, 2, 3, 4 + seed, seed=seed)
            np.testing.assert_array_equal(model(value), pad(2 * value, (1, 0, 0, 1)))

    together(work)
    # Shapes by tactics; times that the threads disturbed for each other are not kept.
    assert len(cache.queryKeys()) <= 2 * THREADS


@scenario
def one_network_for_all() -> None:
    """Layers that threads add to one network are all there, each its own."""
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4,))
    plugin_id = define(twice)

    def work(index: int) -> None:
        for i in range(60):
            layer = network.add_plugin(call(plugin_id)(x))
            layer.name = f"{index}.{i}"
            output = layer.get_output(0)
            output.name = f"t{index}.{i}"
            assert tuple(output.shape) == (4,)
            assert layer.name == f"{index}.{i}"
            network.mark_output(output)

    together(work)
    assert network.num_layers == network.num_outputs == THREADS * 60
    assert len({network[i].name for i in range(network.num_layers)}) == THREADS * 60
    builder = trt.Builder()
    config = builder.create_builder_config()
    config.device = "cpu"
    plans: list[Any] = []

    def build(index: int) -> None:
        network.name = f"n{index}"  # before, between or after the builds
        plans.append(builder.build_serialized_network(network, config))

    together(build, threads=2)
    value = random(4)
    for plan in plans:
        for y in trt.Model(trt.Runtime().deserialize_cuda_engine(plan))(value):
            np.testing.assert_array_equal(y, 2 * value)


@scenario
def changes_from_within() -> None:
    """Callbacks of a build cannot change the network and the configuration."""
    refused: list[str] = []

    class Monitor(trt.IProgressMonitor):
        def step_complete(self, phase_name: str, step: int) -> bool:
            for change in (
                lambda: network.add_input("z", trt.float32, (1,)),
                lambda: setattr(network[0], "name", "other"),
                lambda: setattr(config, "builder_optimization_level", 1),
            ):
                try:
                    change()
                except trt.FailedPreconditionError as error:
                    refused.append(str(error))
            assert network.num_layers == 1
            assert network[0].name == "mine"
            return True

    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4,))
    layer = network.add_plugin(call(define(twice))(x))
    layer.name = "mine"
    network.mark_output(layer.get_output(0))
    builder = trt.Builder()
    config = builder.create_builder_config()
    config.device, config.progress_monitor = "cpu", Monitor()
    assert builder.build_serialized_network(network, config) is not None
    assert len(refused) >= 3
    assert len(refused) % 3 == 0
    assert all("change it when that is done" in message for message in refused)
    network.name = "again"


# ---- The registry ----


@scenario
def registry() -> None:
    """Creators come, are looked for and go; one name is fought for."""
    fought = new_name("Fought")

    def work(index: int) -> None:
        for i in range(40):
            kind = derived(PadV3, name=f"Own{index}_{i}_{fought}")
            creator = register(kind)
            assert REGISTRY.get_creator(kind.name, "1", "test") is creator
            assert creator in REGISTRY.all_creators
            made = creator.create_plugin("p", [pads_field(0, 0, 0, 0)], BUILD)
            model = class_model(made, (1, 1, 2, 2)) if i % 20 == 0 else None
            try:
                other = register(type("Fought", (PadV3,), {"name": fought}))
            except trt.AlreadyExistsError:
                other = None
            if other is not None:
                assert REGISTRY.get_creator(fought, "1", "test") is other
                assert REGISTRY.deregister_creator(other)
            assert REGISTRY.deregister_creator(creator)
            assert REGISTRY.get_creator(kind.name, "1", "test") is None
            if model is not None:  # its plugin stays
                value = random(1, 1, 2, 2, seed=i)
                np.testing.assert_array_equal(model(value), value)

    together(work)
    assert REGISTRY.get_creator(fought, "1", "test") is None


@scenario
def definitions() -> None:
    """Decorated plugins are defined, used and taken away."""

    def work(_index: int) -> None:
        for i in range(30):
            plugin_id = define(twice)
            if i % 10 == 0:
                value = random(8, seed=i)
                np.testing.assert_array_equal(one_layer(plugin_id, (8,))(value), 2 * value)
            assert plugin_id in QDP_REGISTRY
            QDP_REGISTRY[plugin_id].deregister()
            assert plugin_id not in QDP_REGISTRY

    together(work)


@scenario
def one_file_for_all() -> None:
    """A plugin file that threads load at once is run once."""
    name = new_name("file")
    source = f"""
import time
import rabbet.plugin as trtp
time.sleep(0.05)

@trtp.register("threads::{name}")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

LOADED = object()
"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"
        file.write_text(source)
        found: list[Any] = []

        def work(_index: int) -> None:
            trt.load_plugins(file)
            found.append(sys.modules[f"rabbet_plugins.{name}"].LOADED)

        together(work)
    assert len(found) == THREADS
    assert len(set(found)) == 1


@scenario
def resources() -> None:
    """A shared resource is made once and released once, however many ask."""
    log: list[str] = []

    class Resource(trt.IPluginResource):
        def __init__(self) -> None:
            trt.IPluginResource.__init__(self)

        def clone(self) -> Resource:
            log.append("clone")
            return Resource()

        def release(self) -> None:
            log.append("release")

    key, mine = new_name("resource"), Resource()
    held = REGISTRY.acquire_plugin_resource(key, mine)

    def work(_index: int) -> None:
        for _turn in range(300):
            assert REGISTRY.acquire_plugin_resource(key, mine) is held
            assert REGISTRY.release_plugin_resource(key) == 0

    together(work)
    assert log == ["clone"]
    assert REGISTRY.release_plugin_resource(key) == 0
    assert log == ["clone", "release"]
    assert REGISTRY.release_plugin_resource(key) == -1


@scenario
def changed_lists() -> None:
    """Classes that change and keep the lists they are given, in many contexts."""
    kept: list[Any] = []

    def enqueue(self: Any, i: Any, o: Any, x: Any, y: Any, w: int, s: int) -> None:
        shape = tuple(i[0].dims)
        array(y[0], shape)[...] = 2 * array(x[0], shape)
        if len(kept) < 1000:
            kept.append((x, y))
        x.append(None)
        y.clear()
        i[0] = None

    creator = register(derived(PadV3, enqueue=enqueue))
    plugin = creator.create_plugin("p", [pads_field(0, 0, 0, 0)], BUILD)
    model = class_model(plugin, (1, 2, 3, 4))

    def work(seed: int) -> None:
        for i in range(100):
            x = random(1, 2, 3, 4, seed=seed * 100 + i)
            np.testing.assert_array_equal(model(x), 2 * x)
            if i % 10 == 0:
                kept.clear()

    together(work)


def main(names: list[str]) -> int:
    faulthandler.enable()
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        print("the GIL is on", file=sys.stderr)
        return 1
    for name in names or SCENARIOS:
        SCENARIOS[name]()
        print(f"ok {name}", flush=True)
    if sys._is_gil_enabled():  # type: ignore[attr-defined]
        print("something turned the GIL on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

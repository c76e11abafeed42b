"""Builds a random network in a random way, runs it in random shapes, compares."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized import random_layers, random_plugin_layers
from tests.python.randomized.random_networks import Net, Unfit, Value
from tests.python.randomized.random_plugins import (
    Memory,
    from_stored,
    lay,
    padded,
    take,
    to_stored,
)

CHANNELS = (1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 33)
LAYERS = int(os.environ.get("RABBET_TEST_LAYERS", "15"))  # of a network, at most
GUARD = 64  # bytes behind an output
RUNS = 5  # settings of a profile: smallest, usual, largest, and two between


class Extents:
    """An extent of inputs in each setting."""

    def __init__(self, random: Any, profiles: int, channel: bool, factor: int) -> None:
        pick = lambda items: int(items[random.integers(len(items))])  # noqa: E731
        self.values: list[int] = []
        for _ in range(profiles):
            opt = pick(CHANNELS) if channel else int(random.integers(1, 6))
            low = int(random.integers(0 if random.random() < 0.1 else 1, opt + 1))
            high = opt + int(random.integers(0, 9 if channel else 4))
            between = [int(v) for v in random.integers(low, high + 1, 2)]
            self.values += [v * factor for v in (low, opt, high, *between)]

    def broadcast(self, random: Any) -> Extents:
        """One that is this or 1, as the run has it."""
        made = Extents.__new__(Extents)
        made.values = [v if v == 0 or random.random() < 0.5 else 1 for v in self.values]
        for first in range(0, len(self.values), RUNS):
            made.values[first] = min(1, self.values[first])
            made.values[first + 2] = self.values[first + 2]
        return made


class Chooses(trt.IAlgorithmSelector):
    """Takes one way at random, or some, of each group; tells which in `chosen`."""

    def __init__(self, random: Any, refuse: float) -> None:
        super().__init__()
        self.random, self.refuse = random, refuse
        self.chosen: list[str] = []

    def select_algorithms(self, context: Any, choices: Any) -> list[int]:
        if "+" in context.name and self.random.random() < self.refuse:
            return []
        if not choices:
            return []
        count = len(choices)
        if self.random.random() < 0.6:
            return [int(self.random.integers(count))]
        some = np.flatnonzero(self.random.random(count) < 0.5)
        return [int(i) for i in some] or [0]

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        for context, choice in zip(contexts, choices, strict=True):
            count = context.num_inputs + context.num_outputs
            infos = [choice.get_algorithm_io_info(i) for i in range(count)]
            self.chosen.append(f"{context.name}: {choice.algorithm_variant.name} {infos}")


class Sees(trt.IDebugListener):
    """Keeps debug tensors of FLOAT."""

    def __init__(self, on_gpu: bool) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}
        self.on_gpu = on_gpu

    def process_debug_tensor(
        self, addr: int, location: Any, type: Any, shape: Any, name: str, stream: int
    ) -> bool:
        from tests.python.randomized.random_plugins import STORED

        memory = Memory("cuda" if self.on_gpu else "cpu", stream)
        flat = memory.read(addr, trt.volume(shape), STORED[type])
        self.seen[name] = from_stored(flat, type).reshape(tuple(shape))
        return True


class Bytes:
    """Memory of a device for one context, by name, and the stream of its runs."""

    def __init__(self, device: str) -> None:
        self.on_gpu, self.stream = device == "cuda", 0
        self.held: dict[str, Any] = {}
        if self.on_gpu:
            from tests.gpu import cuda_driver

            self.cuda, handle = cuda_driver, ctypes.c_void_p()
            with cuda_driver.current():
                result = cuda_driver.driver().cuStreamCreate(ctypes.byref(handle), 1)
                cuda_driver.check(result, "cuStreamCreate")
            self.stream = handle.value or 0
        self.memory = Memory(device, self.stream)

    def put(self, name: str, data: Any) -> int:
        """The address of these bytes, the same one where they fit."""
        if not self.on_gpu:
            self.held[name] = data
            return int(data.ctypes.data)
        address, size = self.held.get(name, (0, 0))
        with self.cuda.current():
            if size < data.nbytes:
                found = ctypes.c_uint64()
                result = self.cuda.driver().cuMemAlloc_v2(
                    ctypes.byref(found), ctypes.c_size_t(2 * data.nbytes)
                )
                self.cuda.check(result, "cuMemAlloc")
                self._free(address)
                address = found.value
                size = 2 * data.nbytes
            self.memory.write(address, data)
        self.held[name] = address, size
        return int(address)

    def get(self, name: str, size: int) -> Any:
        """The contents after the run."""
        if not self.on_gpu:
            return self.held[name][:size]
        with self.cuda.current():
            return self.memory.read(self.held[name][0], size, np.uint8)

    def _free(self, address: int) -> None:
        if address:
            result = self.cuda.driver().cuMemFree_v2(ctypes.c_uint64(address))
            self.cuda.check(result, "cuMemFree")

    def close(self) -> None:
        """Gives all back."""
        if not self.on_gpu:
            return
        with self.cuda.current():
            for address, _ in self.held.values():
                self._free(address)
            result = self.cuda.driver().cuStreamDestroy_v2(ctypes.c_void_p(self.stream))
            self.cuda.check(result, "cuStreamDestroy")


class Allocates(trt.IOutputAllocator):
    """Memory of an output whose size a run tells."""

    def __init__(self, memory: Bytes) -> None:
        super().__init__()
        self.memory = memory
        self.sizes: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        self.sizes[tensor_name] = size
        return self.memory.put(tensor_name, np.full(size + GUARD, 0x5A, np.uint8))

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shapes[tensor_name] = tuple(shape)


class Case:
    """The network of a seed, how it is built, and how it runs."""

    def __init__(self, seed: int, device: str) -> None:
        self.seed, self.device = seed, device
        for attempt in range(20):
            self.random = np.random.default_rng((seed, attempt))
            with contextlib.suppress(Unfit):
                self._make()
                return
        raise AssertionError(f"seed {seed} makes no network")

    # ---- Making

    def _make(self) -> None:
        random = self.random
        self.profiles = 1 if random.random() < 0.75 else 2
        self.settings = RUNS * self.profiles
        least = trt.float32
        self.flags = 0
        strong = random.random() < 0.2
        if not strong and random.random() < 0.4:
            name = ["FP16", "FP16", "BF16"][int(random.integers(3))]
            least = trt.float16 if name == "FP16" else trt.bfloat16
            self.flags |= 1 << int(getattr(trt.BuilderFlag, name))
        if random.random() < 0.2:
            self.flags |= 1 << int(trt.BuilderFlag.REFIT)
        # Plugins say what they log; the rest is told by errors.
        self.builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
        flag = int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        network = self.builder.create_network(1 << flag if strong else 0)
        self.strong = strong
        self.net = Net(network, random, self.settings, least)
        self.inputs: list[tuple[Value, tuple[Any, ...]]] = []
        self.shape_input: Value | None = None
        self._add_inputs()
        random_layers.grow(self.net, int(random.integers(3, LAYERS + 1)))
        self._mark_outputs()
        self._choose_formats()
        self.debug: list[Value] = []
        if random.random() < 0.25:
            outputs = {v.index for v in self.outputs}
            made = [
                v for n in self.net.nodes if n.inputs for v in n.outputs
                if v.dtype in (trt.float32, trt.int32) and v.index not in outputs
                and v.unknown is None
            ]  # fmt: skip
            for v in made[:: max(1, len(made) // 3)]:
                network.mark_debug(v.tensor)
                self.debug.append(v)

    def _add_inputs(self) -> None:
        random = self.random
        rank = int(random.choice([4, 4, 4, 4, 3, 2, 5]))
        # A symbol for each axis, or a constant.
        axes: list[Any] = []
        large = 7 if random.random() < 0.05 and self.device == "cpu" else 1  # for threads
        for axis in range(rank):
            factor = large if axis >= 2 else 1
            dynamic = random.random() < (0.6, 0.4, 0.3, 0.3, 0.3)[axis]
            if dynamic:
                axes.append(Extents(random, self.profiles, axis == 1 and rank >= 3, factor))
            elif axis == 1 and rank >= 3:
                axes.append(int(random.choice(CHANNELS)))
            else:
                axes.append(int(random.integers(1, 6)) * factor)
        self._input("x", axes, trt.float32)
        for i in range(int(random.integers(0, 3))):
            dtype = random.choice([0, 0, 0, 1, 2])
            # Some axes broadcast.
            some = [1 if random.random() < 0.25 else a for a in axes]
            some = [
                a.broadcast(random) if isinstance(a, Extents) and random.random() < 0.2 else a
                for a in some
            ]
            self._input(f"x{i}", some, [trt.float32, trt.int32, trt.float16][dtype])
        if random.random() < 0.3 and rank <= 4:
            self._shape_input(rank)

    def _input(self, name: str, axes: list[Any], dtype: Any) -> None:
        net = self.net
        shapes = [
            tuple(a if isinstance(a, int) else a.values[i] for a in axes)
            for i in range(self.settings)
        ]
        arrays = [net.numbers(s, 4) for s in shapes]
        if dtype is trt.int32:
            arrays = [a.astype(np.int64) for a in arrays]
        declared = tuple(a if isinstance(a, int) else -1 for a in axes)
        value = net.add(
            f"input {declared}", lambda: [net.network.add_input(name, dtype, declared)],
            [], lambda: (arrays[0],), [dtype],
        )[0]  # fmt: skip
        value.arrays = arrays
        net.nodes.pop()
        self.inputs.append((value, declared))

    def _shape_input(self, count: int) -> None:
        net = self.net
        dtype = net.pick([trt.int32, trt.int64])
        arrays = [self.random.integers(1, 4, count) for _ in range(self.settings)]
        for first in range(0, self.settings, RUNS):
            arrays[first] = np.minimum.reduce(arrays[first : first + RUNS])
            arrays[first + 2] = np.maximum.reduce(arrays[first : first + RUNS])
        value = net.add(
            "input shape", lambda: [net.network.add_input("times", dtype, (count,))], [],
            lambda: (arrays[0],), [dtype],
        )[0]  # fmt: skip
        value.arrays = arrays
        net.nodes.pop()
        value.is_shape = True  # type: ignore[attr-defined]
        self.shape_input = value

    def _mark_outputs(self) -> None:
        net, self.outputs = self.net, []
        for value in net.values:
            inner = value.readers > 0
            if value.dtype is trt.int8:
                continue
            is_made = any(value in n.outputs for n in net.nodes if not n.what.startswith("const"))
            if not is_made:  # an input, a constant
                continue
            if inner and not net.chance(0.15):
                continue
            if value is self.shape_input:
                continue
            net.network.mark_output(value.tensor)
            self.outputs.append(value)
        if not self.outputs:
            raise Unfit
        names = {v.tensor.name for v in self.outputs}
        assert len(names) == len(self.outputs)

    def _choose_formats(self) -> None:
        """Memory of inputs and outputs that does not lie row-major."""
        self.laid_out = self.net.chance(0.2)
        if not self.laid_out:
            return
        for value in [v for v, _ in self.inputs] + self.outputs:
            if value.rank >= 3 and value.unknown is None and self.net.chance(0.5):
                layout = self.net.pick(random_plugin_layers.layouts_for(value))
                value.tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))

    # ---- Building

    def build(self) -> Any:
        random = self.random
        config = self.builder.create_builder_config()
        config.device, config.threads = self.device, int(random.integers(1, 3))
        config.flags = self.flags
        config.avg_timing_iterations = 1
        config.builder_optimization_level = int(random.choice([0, 1, 2, 3, 3, 3, 4, 5]))
        self.level = config.builder_optimization_level
        for first in range(0, self.settings, RUNS):
            profile = self.builder.create_optimization_profile()
            for value, declared in self.inputs:
                if -1 in declared:
                    profile.set_shape(
                        value.tensor.name, *(value.arrays[first + i].shape for i in range(3))
                    )
            if self.shape_input is not None:
                arrays = self.shape_input.arrays
                profile.set_shape_input(
                    "times", *(arrays[first + i].tolist() for i in range(3))
                )
            config.add_optimization_profile(profile)
        self.selector = Chooses(random, float(random.choice([0, 0.3])))
        self.selects = random.random() < 0.85
        if self.selects:
            config.algorithm_selector = self.selector
        cache = random.random() < 0.15
        if cache:
            config.set_timing_cache(config.create_timing_cache())
        plan = self._plan(config)
        if cache:  # what is known of times is used again
            data = bytes(config.get_timing_cache().serialize())
            config.set_timing_cache(config.create_timing_cache(data))
            plan = self._plan(config)
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        engine = runtime.deserialize_cuda_engine(plan)
        if random.random() < 0.2:
            engine = runtime.deserialize_cuda_engine(engine.serialize())
        return engine

    def _plan(self, config: Any) -> Any:
        self.selector.chosen.clear()
        try:
            return self.builder.build_serialized_network(self.net.network, config)
        except trt.FailedPreconditionError as error:
            # Groups may have been refused whose layers nothing computes alone.
            if self.selector.refuse == 0 or "left no other way" not in str(error):
                raise
            self.selector.refuse = 0
            return self._plan(config)

    # ---- Running

    def _check(self, name: str, got: Any, value: Value, setting: int) -> None:
        want = value.arrays[setting]
        got = from_stored(np.asarray(got), value.dtype)
        where = f"'{name}' in setting {setting}"
        assert got.shape == want.shape, f"{where}: shape {got.shape}, not {want.shape}"
        if value.exact:
            if not np.array_equal(got, want):
                at = tuple(int(i[0]) for i in np.nonzero(got != want))
                count = int((got != want).sum())
                raise AssertionError(
                    f"{where}: {count} of {want.size} differ, first at {at}: "
                    f"{got[at]}, not {want[at]}"
                )
            return
        difference = np.abs(got - want)
        if not (difference <= value.error).all():
            worst = np.nanmax(difference) if np.isfinite(got).any() else np.nan
            raise AssertionError(f"{where}: off by {worst}, allowed are {value.error}")

    def _arrays(self, setting: int, unaligned: bool) -> dict[str, Any]:
        values = [v for v, _ in self.inputs]
        if self.shape_input is not None:
            values.append(self.shape_input)
        found = {}
        for v in values:
            data = np.ascontiguousarray(to_stored(v.arrays[setting], v.dtype))
            if unaligned and v is not self.shape_input:
                memory = np.empty(data.size + 1, data.dtype)
                memory[1:] = data.ravel()
                data = memory[1:].reshape(data.shape)
            found[v.tensor.name] = data
        return found

    def run_model(self, model: Any, setting: int, random: Any) -> None:
        """By calling a model."""
        known = {i.name for i in model.inputs}
        arrays = self._arrays(setting, bool(random.random() < 0.3))
        before = {k: a.copy() for k, a in arrays.items() if k in known}
        given = {k: a for k, a in arrays.items() if k in known}
        results = model.run(given)
        if random.random() < 0.2 and not any(v.unknown for v in self.outputs):
            filled = {k: np.full_like(r, 77) for k, r in results.items()}
            model(**given, out=filled)
            results = filled
        for v in self.outputs:
            self._check(v.tensor.name, results[v.tensor.name], v, setting)
        for k, a in before.items():
            assert np.array_equal(arrays[k], a), f"input {k} was written to"

    def run_context(
        self, context: Any, memory: Bytes, setting: int, listener: Any, random: Any
    ) -> None:
        """With addresses."""
        engine = context.engine
        if context.active_optimization_profile != setting // RUNS:
            context.set_optimization_profile_async(setting // RUNS, memory.stream)
        arrays = self._arrays(setting, False)
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        arrays = {k: a for k, a in arrays.items() if k in names}
        for name, array in arrays.items():
            layout = engine.get_tensor_format(name).name
            context.set_input_shape(name, array.shape)
            if layout != "LINEAR":
                array = lay(array, layout)
            arrays[name] = flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            if engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                context.set_tensor_address(name, flat.ctypes.data)
            else:
                context.set_tensor_address(name, memory.put(name, flat))
        allocator = Allocates(memory)
        for v in self.outputs:
            name = v.tensor.name
            size = allocator.sizes[name] = max(1, context.get_max_output_size(name))
            data = np.full(size + GUARD, 0x5A, np.uint8)
            place = engine.get_aliased_input_tensor(name)
            shared = place in arrays and random.random() < 0.5  # where the input lies
            if shared:
                taken = arrays.pop(place)
                data[: taken.size] = taken
            address = memory.put(name, data)
            context.set_tensor_address(name, address)
            if shared:
                context.set_tensor_address(place, address)
            if v.unknown is not None:
                asked = random.random() < 0.5
                context.set_output_allocator(name, allocator if asked else None)
        assert context.execute_async_v3(memory.stream)
        for v in self.outputs:
            name = v.tensor.name
            size = allocator.sizes[name]
            found = memory.get(name, size + GUARD)
            assert (found[size:] == 0x5A).all(), f"'{name}' was written past its end"
            shape = tuple(context.get_tensor_shape(name))
            assert allocator.shapes.get(name, shape) == shape
            layout = engine.get_tensor_format(name).name
            dtype = np.dtype(trt.nptype(v.dtype))
            count = int(np.prod(padded(shape, layout)))
            flat = found[: count * dtype.itemsize].view(dtype)
            self._check(name, take(flat, shape, layout), v, setting)
        if listener is not None:
            for v in self.debug:
                if v.tensor.name in listener.seen:
                    found = listener.seen[v.tensor.name]
                    self._check(f"debug {v.tensor.name}", found, v, setting)

    def run_all(self, engine: Any, rounds: int = 1) -> None:
        """All settings in random order; some in two threads."""
        random = self.random
        memories = [Bytes(self.device) for _ in range(2)]
        if self.debug or self.laid_out or random.random() < 0.4:
            works = [self._context_work(engine, memory) for memory in memories]
        else:
            model = trt.Model(engine, graphs=bool(random.random() < 0.7))
            works = [lambda s, r: self.run_model(model, s, r)] * 2
        orders = [random.permutation(self._runnable(works[0], rounds)) for _ in works]
        seeds = [np.random.default_rng((self.seed, i)) for i in range(2)]
        errors: list[BaseException] = []

        def go(index: int) -> None:
            try:
                for setting in orders[index]:
                    works[index](int(setting), seeds[index])
            except BaseException as error:
                errors.append(error)

        if random.random() < 0.4:
            threads = [threading.Thread(target=go, args=(i,)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            go(0)
        for memory in memories:
            memory.close()
        if errors:
            raise errors[0]

    def _runnable(self, work: Any, rounds: int) -> list[int]:
        return list(range(self.settings)) * rounds

    def _context_work(self, engine: Any, memory: Bytes) -> Any:
        context = engine.create_execution_context()
        context.graphs = self.random.random() < 0.7
        listener = Sees(memory.on_gpu) if self.debug else None
        if listener is not None:
            context.set_debug_listener(listener)
            context.set_all_tensors_debug_state(True)
        return lambda setting, random: self.run_context(
            context, memory, setting, listener, random
        )

    def refit(self, engine: Any) -> bool:
        """Other numbers for constants; whether there was something to do."""
        if not engine.refittable:
            return False
        refitter = trt.Refitter(engine, trt.Logger(trt.Logger.ERROR))
        names = set(refitter.get_all_weights())
        nodes = [n for n in self.net.nodes if n.constant in names]
        nodes = [n for n in nodes if n.outputs[0].is_float]
        if not nodes:
            return False
        changed = {}
        for node in nodes[:3]:
            value = node.outputs[0]
            array = -value.arrays[0]
            data = to_stored(array, value.dtype)
            refitter.set_named_weights(node.constant, trt.Weights(data))
            changed[value.index] = [array] * self.settings
        self.net.evaluate(changed)
        for value in self.net.values:
            if value.exact and value.bound / value.step > self.net.limit(value.dtype):
                return False
            if not value.exact and value.bound > 2000:
                return False
        assert refitter.refit_cuda_engine()
        return True

    def describe(self) -> str:
        lines = [
            f"seed {self.seed} on {self.device}: flags {self.flags:#x}, level "
            f"{getattr(self, 'level', '?')}, {self.profiles} profiles, strong {self.strong}, "
            f"selector {getattr(self, 'selects', '?')}",
            *(f"input %{v.index} '{v.tensor.name}' {v.dtype.name} {d}: {v.shapes}"
              for v, d in self.inputs),
            self.net.describe(),
            "outputs " + " ".join(f"%{v.index}" for v in self.outputs),
            "debug " + " ".join(f"%{v.index}" for v in self.debug),
            "chosen:", *getattr(self, "selector", Chooses(None, 0)).chosen,
        ]  # fmt: skip
        return "\n".join(lines)


def check_seed(seed: int, device: str) -> None:
    """Builds and runs the network of a seed; errors tell all about it."""
    case = Case(seed, device)
    try:
        engine = case.build()
        case.run_all(engine, 2 if device == "cuda" else 1)
        if case.flags >> int(trt.BuilderFlag.REFIT) & 1 and case.refit(engine):
            case.run_all(engine)
    except Exception as error:
        error.add_note(case.describe())
        raise

"""Rabbet."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rabbet

PLUGINS = Path(__file__).parents[1] / "plugins"


def _shapes(inputs: dict[str, Any], dims: dict[str, int]) -> dict[str, Any] | None:
    """Profiles for models with symbolic dimensions: from 1 to the lengths of
    `inputs`, tuned for the latter."""
    if not dims:
        return None
    return {
        name: (tuple(1 for _ in array.shape), array.shape, array.shape)
        for name, array in inputs.items()
    }


def build(
    *,
    path: str,
    inputs: str,
    threads: int,
    plan: str,
    plugins: list[str],
    dims: dict[str, int],
    timing_cache: str | None = None,
) -> Any:
    """Builds a model for the shapes of the inputs in a file, and keeps the plan."""
    with np.load(inputs) as arrays:
        shapes = _shapes(dict(arrays.items()), dims)
    return rabbet.compile(
        path,
        plugins=plugins,
        device="cpu",
        save=plan,
        threads=threads,
        shapes=shapes,
        timing_cache=timing_cache,
    )


class _Bound:
    """A model with its inputs, its outputs reused from call to call.

    names: the outputs' names, in the model's order.
    """

    def __init__(self, model: Any, inputs: dict[str, Any], names: list[str]) -> None:
        self.model = model
        self.inputs = inputs
        self.names = names
        self.out = model(**inputs)

    def call(self) -> None:
        self.model(**self.inputs, out=self.out)

    def another(self) -> _Bound:
        """Another context of the model."""
        return _Bound(self.model, self.inputs, self.names)

    def outputs(self) -> dict[str, Any]:
        self.call()
        if isinstance(self.out, dict):
            arrays = self.out
        elif isinstance(self.out, (tuple, list)):
            arrays = dict(zip(self.names, self.out, strict=True))
        else:
            arrays = {self.names[0]: self.out}
        return {name: np.array(array) for name, array in arrays.items()}


def _read(inputs: str) -> dict[str, Any]:
    with np.load(inputs) as arrays:
        return {name: np.array(array) for name, array in arrays.items()}


class Model(_Bound):
    """An ONNX file, tuned."""

    def __init__(self, *, inputs: str, names: list[str], **arguments: Any) -> None:
        super().__init__(build(inputs=inputs, **arguments), _read(inputs), names)


class Profiled(Model):
    """Tells the time of each layer in its place, and what the cores can do."""

    def facts(self) -> dict[str, Any]:
        """The plan's layers, their seconds, and the limits of the cores."""
        names = [info.name for info in self.model.inputs]
        given = [self.inputs[name] for name in names]
        calls = [self.model.profile(*given) for _index in range(5)]
        inspector = self.model.engine.create_engine_inspector()
        kind = rabbet.LayerInformationFormat.JSON
        return {
            "layers": inspector.get_engine_information(kind),
            "seconds": [
                statistics.median(ms / 1e3 for _, ms in layer)
                for layer in zip(*calls, strict=True)
            ],
            **limits(),
        }


def limits() -> dict[str, float]:
    """Bytes that a copy reads and writes in a second, and operations of a product of
    FP32, on the threads that NumPy's library was given."""
    source, target = np.ones(1 << 24, np.float32), np.ones(1 << 24, np.float32)
    a = np.ones((1024, 1024), np.float32)

    def best(call: Any) -> float:
        spans = []
        for _index in range(7):
            begin = time.perf_counter()
            call()
            spans.append(time.perf_counter() - begin)
        return min(spans)

    return {
        "bandwidth": 2 * source.nbytes / best(lambda: np.copyto(target, source)),
        "peak": 2 * 1024**3 / best(lambda: a @ a),
    }


class Loaded(_Bound):
    """A plan that an earlier process made."""

    def __init__(
        self,
        *,
        plan: str,
        inputs: str,
        names: list[str],
        threads: int,
        plugins: list[str],
        **_: object,
    ) -> None:
        model = rabbet.load(plan, threads=threads, plugins=plugins)
        super().__init__(model, _read(inputs), names)


class OnProcessor(Loaded):
    """A plan whose calls are timed by the processor time of this thread: what other
    programs take meanwhile is not in it. For models that run on one thread."""

    def time_calls(self, seconds: float, least: int) -> list[float]:
        """Seconds of each call, for that long and for so many at least."""
        samples: list[float] = []
        end = time.monotonic() + seconds
        while len(samples) < least or time.monotonic() < end:
            begin = time.thread_time()
            self.call()
            samples.append(time.thread_time() - begin)
        return samples


class Built:
    """A build alone: its constructor's time is what counts."""

    def __init__(self, *, names: list[str], **arguments: Any) -> None:
        self.model = build(**arguments)

    def call(self) -> None:
        """Nothing is run."""

    def outputs(self) -> dict[str, Any]:
        return {}


class Told(Built):
    """A build alone, and what it considered and chose."""

    def facts(self) -> dict[str, str]:
        return {"report": self.model.report_json}


class Chain(_Bound):
    """Python plugins in a row."""

    def __init__(
        self, *, length: int, shape: tuple[int, ...], body: str, **_: object
    ) -> None:
        import onnx

        from ..chain import chain_model

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "chain.onnx"
            onnx.save_model(chain_model(body, length, shape), path)
            model = rabbet.compile(path, plugins=self.plugins(), device="cpu", threads=1)
        super().__init__(model, {"x": np.zeros(shape, np.float32)}, ["y"])


    def plugins(self) -> list[Any]:
        """The module that defines the operators."""
        return [PLUGINS / "chain.py"]


class ClassChain(Chain):
    """Plugins that are classes in a row."""

    kind = "v3"

    def plugins(self) -> list[Any]:
        """None: they are registered here."""
        from ..plugins import chain_classes

        chain_classes.register(self.kind)
        return []


class OlderClassChain(ClassChain):
    """The older kind."""

    kind = "v2"


class Padding(_Bound):
    """The Numba kernel in a plan."""

    def operator(self, graph: Any, x: str, pad: int, folder: Path) -> tuple[str, Path]:
        """The node's output, and the file that defines its operator."""
        return graph.circular_pad(x, "y", pad), PLUGINS / "circular_padding.py"

    def __init__(self, *, inputs: str, pad: int, threads: int, **_: object) -> None:
        import onnx

        from tests.models.graph import Graph

        arrays = _read(inputs)
        *outer, height, width = arrays["x"].shape
        graph = Graph("padding")
        x = graph.input("x", arrays["x"].shape)
        with tempfile.TemporaryDirectory() as folder:
            y, plugin = self.operator(graph, x, pad, Path(folder))
            graph.output(y, (*outer, height + 2 * pad, width + 2 * pad))
            path = Path(folder) / "padding.onnx"
            onnx.save_model(graph.model(), path)
            model = rabbet.compile(
                path,
                plugins=[plugin],
                device="cpu",
                threads=threads,
            )
        super().__init__(model, arrays, ["y"])


class LibraryPadding(Padding):
    """The plugin library in C that is among the examples."""

    def operator(self, graph: Any, x: str, pad: int, folder: Path) -> tuple[str, Path]:
        """As for the Numba kernel."""
        root = PLUGINS.parents[1]
        library = folder / "circ_pad.so"
        subprocess.run(
            [
                "cc", "-O2", "-fPIC", "-shared", f"-I{root / 'include'}",
                root / "examples" / "plugin_library_c" / "circ_pad.c", "-o", library,
            ],
            check=True,
        )  # fmt: skip
        y = graph.node(
            "circ_pad_plugin", [x], "y", pad=pad, plugin_namespace="example",
            plugin_version="1",
        )  # fmt: skip
        return y, library

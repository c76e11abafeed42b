"""Models in pickles: in this process, in spawned ones, and what may be damaged on the way."""

from __future__ import annotations

import copy
import functools
import gc
import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt

from tests.python.support.plugins import build, constant

X = np.arange(-6, 6, dtype=np.float32).reshape(2, 6)
WEIGHTS = np.linspace(-2, 3, 30, dtype=np.float32).reshape(6, 5)
TRIPLE = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("pickled::triple")
def triple(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("pickled::triple")
def run(x: trtp.Tensor, outputs) -> None:
    np.from_dlpack(outputs[0])[...] = np.from_dlpack(x) * 3
"""


class Named(trt.Model):
    """A subclass with attributes of its own, and with another constructor."""

    label: str

    def __new__(cls, path: Path, label: str) -> Named:
        engine = trt.Runtime().load_cuda_engine(path)
        self: Named = trt.Model.__new__(cls, engine)  # type: ignore[assignment]
        self.label = label
        return self


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of plans, of this process and those that it spawns."""
    monkeypatch.delenv("RABBET_PLAN_CACHE", raising=False)
    monkeypatch.delenv("RABBET_PLAN_CACHE_MIB", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg/rabbet/plans"


def product(offset: float = 0, **options: Any) -> trt.Model:
    """x @ WEIGHTS + offset."""

    def make(network: trt.INetworkDefinition) -> Any:
        none = trt.MatrixOperation.NONE
        x = network.add_input("x", trt.float32, (2, 6))
        w = constant(network, WEIGHTS)
        y = network.add_matrix_multiply(x, none, w, none).get_output(0)
        b = constant(network, np.full((2, 5), offset, np.float32))
        return network.add_elementwise(y, b, trt.ElementWiseOperation.SUM).get_output(0)

    return build(make, **options)


def check(model: Any, offset: float = 0) -> None:
    np.testing.assert_allclose(model(X), X @ WEIGHTS + offset, rtol=1e-5, atol=1e-5)


def lone(protocol: int = 5, offset: float = 0) -> bytes:
    """The pickle of a model that is gone."""
    model = product(offset)
    engine, data = weakref.ref(model.engine), pickle.dumps(model, protocol)
    del model
    gc.collect()
    assert engine() is None
    return data


def plans(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


# ---- In a process ------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_protocols(protocol: int, folder: Path) -> None:
    data = lone(protocol)
    model = pickle.loads(data)
    check(model)
    assert "Alternative" in model.report or model.report
    assert [path.suffix for path in plans(folder)] == [".plan"]


def test_one_engine_for_a_plan_as_long_as_it_is_used() -> None:
    data, other = lone(), lone(offset=1)
    first, second, third = pickle.loads(data), pickle.loads(data), pickle.loads(other)
    assert first is not second
    assert first.engine is second.engine is not third.engine
    check(third, 1)
    engine = weakref.ref(first.engine)
    del first, second
    gc.collect()
    assert engine() is None


def test_the_same_engine_where_the_model_still_is() -> None:
    model = product()
    assert pickle.loads(pickle.dumps(model)).engine is model.engine
    assert pickle.loads(pickle.dumps(model.engine)) is model.engine


def test_bytes_out_of_band() -> None:
    model = product()
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(model, 5, buffer_callback=buffers.append)
    plan = bytes(model.engine.serialize())
    assert [bytes(buffer) for buffer in buffers] == [plan]
    assert plan[:64] not in data
    del model, buffers
    gc.collect()
    for kind in (bytes, bytearray, memoryview, np.frombuffer):
        given: Any = kind(plan) if kind is not np.frombuffer else np.frombuffer(plan, "u1")
        check(pickle.loads(data, buffers=[given]))
        gc.collect()


def test_threads_at_once() -> None:
    data = lone()
    found: list[Any] = []
    workers = [
        threading.Thread(target=lambda: found.append(pickle.loads(data))) for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({id(model.engine) for model in found}) == 1
    check(found[0])


def test_how_it_was_loaded_travels(tmp_path: Path) -> None:
    product(save=tmp_path / "m.plan")
    model = trt.load(
        tmp_path / "m.plan", device="cpu", threads=2, contexts=3, graphs=False,
        untrusted=True, iteration_limit=7,
    )  # fmt: skip
    data = pickle.dumps(model)
    del model
    gc.collect()
    again = pickle.loads(data)
    assert again._options == (2, False, 3)
    assert again.engine._origin == ("cpu", False, True, 7)
    assert again.create_execution_context().iteration_limit == 7
    with pytest.raises(trt.UnsupportedError, match="no report"):
        _ = again.report


def test_several_profiles() -> None:
    def make(network: trt.INetworkDefinition) -> Any:
        x = network.add_input("x", trt.float32, (-1, 6))
        return network.add_activation(x, trt.ActivationType.RELU).get_output(0)

    shapes = [{"x": ((1, 6), (2, 6), (4, 6))}, {"x": ((5, 6), (8, 6), (9, 6))}]
    data = pickle.dumps(build(make, profiles=shapes))
    gc.collect()
    model = pickle.loads(data)
    assert model.engine.num_optimization_profiles == 2
    for rows in (1, 4, 9):
        x = np.linspace(-1, 1, rows * 6, dtype=np.float32).reshape(rows, 6)
        np.testing.assert_array_equal(model(x), np.maximum(x, 0))


def test_subclasses_and_copies(tmp_path: Path) -> None:
    product(save=tmp_path / "m.plan")
    model = Named(tmp_path / "m.plan", "a")
    copies = [pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)]
    for each in copies:
        assert type(each) is Named
        assert each.label == "a"
        assert each.engine is model.engine
        check(each)
    assert copy.copy(model.engine) is copy.deepcopy(model.engine) is model.engine


def refittable() -> trt.Model:
    builder = trt.Builder()
    network, config = builder.create_network(), builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    x = network.add_input("x", trt.float32, (2,))
    layer = network.add_constant((2,), np.array([1, 2], np.float32))
    layer.name = "weights"
    y = network.add_elementwise(x, layer.get_output(0), trt.ElementWiseOperation.PROD)
    network.mark_output(y.get_output(0))
    runtime = trt.Runtime()
    runtime.device = "cpu"
    plan = builder.build_serialized_network(network, config)
    return trt.Model(runtime.deserialize_cuda_engine(plan))


def refit(model: trt.Model, values: list[float]) -> None:
    refitter = trt.Refitter(model.engine, trt.Logger())
    refitter.set_named_weights("weights CONSTANT", trt.Weights(np.array(values, np.float32)))
    assert refitter.refit_cuda_engine()


def test_refits_are_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RABBET_DEVICE", "cpu")
    model = refittable()
    x = np.ones(2, np.float32)
    old = pickle.dumps(model)
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(model, 5, buffer_callback=buffers.append)
    refit(model, [5, 6])
    copies = [pickle.loads(old), pickle.loads(head, buffers=buffers)]
    deep, shallow = copy.deepcopy(model), copy.copy(model)
    refit(model, [7, 8])
    assert [each(x).tolist() for each in copies] == [[1, 2]] * 2
    assert deep(x).tolist() == [5, 6]
    assert shallow(x).tolist() == model(x).tolist() == [7, 8]


# ---- By path -----------------------------------------------------------------------


def test_by_path(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    product(save="m.plan")
    model = trt.load("m.plan", device="cpu")
    data = pickle.dumps(model.by_path())
    assert model.by_path().engine is model.engine
    assert len(data) < 600
    del model
    gc.collect()
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    check(again)
    assert pickle.loads(data).engine is again.engine
    assert len(pickle.dumps(again)) == len(data)
    assert plans(folder) == []


def test_a_path_of_other_processes(tmp_path: Path) -> None:
    model = product()
    with pytest.raises(trt.FailedPreconditionError, match=r"by_path.*model\.save"):
        model.by_path()
    data = pickle.dumps(model.by_path(tmp_path / "later.plan"))
    with pytest.raises(FileNotFoundError, match=r"later\.plan") as caught:
        pickle.loads(data)
    assert "by_path" in caught.value.__notes__[0]
    model.save(tmp_path / "later.plan")
    check(pickle.loads(data))


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    data = pickle.dumps(product(save=path).by_path())
    old = pickle.loads(data)
    product(3, save=path)
    check(pickle.loads(data), 3)
    check(old)


# ---- The folder --------------------------------------------------------------------


def test_the_folder_is_its_user_s(folder: Path) -> None:
    data = lone()
    check(pickle.loads(data))
    assert folder.stat().st_mode & 0o777 == 0o700
    (path,) = plans(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_file_is_written_again(folder: Path, damage: str) -> None:
    data = lone()
    pickle.loads(data)
    gc.collect()
    (path,) = plans(folder)
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 1
    path.write_bytes({"flip": broken, "cut": whole[:-9], "empty": b""}[damage])
    check(pickle.loads(data))
    assert path.read_bytes() == whole


def unusable(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    if how == "others":
        folder.chmod(0o777)
    elif how == "file":
        folder.rmdir()
        folder.write_text("")
    elif how == "taken":
        (folder / "x").mkdir()
    elif how == "small":
        monkeypatch.setenv("RABBET_PLAN_CACHE_MIB", "0")
    else:
        monkeypatch.setenv("RABBET_PLAN_CACHE", "none")


@pytest.mark.parametrize("how", ["others", "file", "small", "none"])
def test_a_folder_that_cannot_be_used(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusable(folder, how, monkeypatch)
    data = lone()
    check(pickle.loads(data))
    assert folder.is_file() or plans(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    check(pickle.loads(lone()))
    assert plans(folder) == []


def test_a_place_that_is_taken(folder: Path) -> None:
    data = lone()
    pickle.loads(data)
    gc.collect()
    (path,) = plans(folder)
    path.unlink()
    path.mkdir()
    check(pickle.loads(data))
    assert path.is_dir()


def test_an_own_folder_and_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    monkeypatch.setenv("RABBET_PLAN_CACHE", str(own))
    monkeypatch.setenv("RABBET_PLAN_CACHE_MIB", "1")
    old, stranger = own / "old.plan", own / "notes.txt"
    old.write_bytes(bytes(1 << 20))
    stranger.write_bytes(bytes(1 << 20))
    os.utime(old, (1, 1))
    check(pickle.loads(lone()))
    assert not old.exists()
    assert stranger.exists()
    assert len(plans(own)) == 2


def test_damaged_bytes() -> None:
    model = product()
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(model, 5, buffer_callback=buffers.append)
    plan = bytearray(bytes(buffers[0]))
    plan[len(plan) // 2] ^= 4
    del model, buffers
    gc.collect()
    with pytest.raises(trt.DataLossError, match=r"pickled plan of \d+ bytes is damaged"):
        pickle.loads(head, buffers=[plan])


# ---- Other processes ---------------------------------------------------------------


def called(model: Any, x: Any) -> Any:
    return model(x)


def test_spawned_processes(tmp_path: Path, folder: Path) -> None:
    model = product(save=tmp_path / "m.plan")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for each in (model, model.by_path()):
            for y in pool.map(functools.partial(called, each), [X, X + 1, X + 2, X + 3]):
                assert y.shape == (2, 5)
            y = pool.apply(called, (each, X))
            np.testing.assert_allclose(y, X @ WEIGHTS, rtol=1e-5, atol=1e-5)
    assert len(plans(folder)) <= 1


def process(code: str, data: bytes, **environment: str) -> subprocess.CompletedProcess[str]:
    text = f"import pickle\nimport numpy as np\ndata = {data!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-"], input=text, capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_processes_that_write_at_once(folder: Path) -> None:
    data = lone()
    x = X.tolist()
    code = f"print(pickle.loads(data)(np.array({x}, np.float32)).tolist())"
    results: list[Any] = []
    workers = [
        threading.Thread(target=lambda: results.append(process(code, data)))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [result.stderr for result in results] == [""] * 3
    assert len({result.stdout for result in results}) == 1
    (path,) = plans(folder)
    assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()


def plugin_model(source: Path, **options: Any) -> bytes:
    """The pickle of a model that another process compiled."""
    code = f"""
import sys, rabbet as trt, rabbet.plugin as trtp
trtp  # the operators' names
from rabbet._plugins import load_file
load_file({str(source)!r})
network = trt.Builder().create_network()
x = network.add_input("x", trt.float32, (2,))
y = network.add_plugin(trtp.op.pickled.triple(x)).get_output(0)
network.mark_output(y)
model = trt.compile(network, device="cpu", plugins={options.pop("plugins")!r}, **{options!r})
sys.stdout.write(pickle.dumps(model).hex())
"""
    made = process(code, b"")
    assert made.returncode == 0, made.stderr
    return bytes.fromhex(made.stdout)


RUN = "print(pickle.loads(data)(np.array([1, 2], np.float32)).tolist())"


def test_plugins_that_a_model_names_are_loaded(tmp_path: Path) -> None:
    source = tmp_path / "triple.py"
    source.write_text(TRIPLE)
    data = plugin_model(source, plugins=[str(source)])
    assert process(RUN, data).stdout == "[3.0, 6.0]\n"
    # Where the file is missing, its operators may be registered already.
    source.rename(tmp_path / "other.py")
    registered = process(f"import other\n{RUN}", data, PYTHONPATH=os.pathsep.join(
        [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    ))  # fmt: skip
    assert registered.stdout == "[3.0, 6.0]\n", registered.stderr
    missing = process(RUN, data)
    assert missing.returncode == 1
    assert "needs the plugin 'pickled::triple'" in missing.stderr


def test_plugins_that_a_plan_carries(tmp_path: Path) -> None:
    source = tmp_path / "triple.py"
    source.write_text(TRIPLE)
    data = plugin_model(source, plugins=[str(source)], keep_plugins=True)
    source.unlink()
    assert process(RUN, data).stdout == "[3.0, 6.0]\n"

"""Folders of plans: which one is taken, and those that are built, also by several at once."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rabbet as trt
from onnx import helper
from rabbet._plan_folder import devices, includes, lower_kinds

from tests.python.support.command import FLOAT, command, save_model

WEIGHTS = np.linspace(-2, 3, 30, dtype=np.float32).reshape(6, 5)
X = np.arange(-6, 6, dtype=np.float32).reshape(2, 6)
OPERATOR = """
import numpy as np
import rabbet.plugin as trtp

@trtp.register("folder::triple")
def triple(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("folder::triple")
def run(x, outputs) -> None:
    np.from_dlpack(outputs[0])[...] = np.from_dlpack(x) * 3
"""
HERE = devices("cpu")[0][0].kind
needs_avx512 = pytest.mark.skipif(
    not HERE.startswith("avx512"), reason="this processor has no lower set than its own"
)


class Messages(trt.ILogger):
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: trt.Severity, msg: str) -> None:
        self.lines.append(f"{severity.name}: {msg}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x w, of any number of rows up to 4; options() tell so."""
    path = tmp_path / "given/m.onnx"
    path.parent.mkdir()
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x, y = {"x": (FLOAT, ["n", 6])}, {"y": (FLOAT, ["n", 5])}
    save_model(path, nodes, x, y, {"w": WEIGHTS})
    return path


def make(model: Any, folder: Path, kinds: Any = "cpu", **more: Any) -> list[str]:
    options = {
        "shapes": {"x": ((1, 6), (2, 6), (4, 6))},
        "optimization_level": 0,
        **more,
    }
    return trt.build_plans(model, folder, kinds, **options)


def check(model: Any, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(model(x), x @ WEIGHTS, rtol=1e-5, atol=1e-5)


def other_process(code: str, *args: Any, **environment: str) -> str:
    """What it prints; the process has the instructions of ONEDNN_MAX_CPU_ISA."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def foreign(path: Path, device: str, signature: str) -> None:
    """The beginning of a plan for another machine, by docs/reference/plan_format.md."""
    text = f"{device}\n{signature}".encode()
    rows = struct.pack("<IIQQQ", 1, 0, 128, len(text), 0)
    head = struct.pack("<8sIIQQ32s", b"\x89RABBET\n", 3, 1, 128 + len(text), 0, b"test")
    path.write_bytes((head + rows).ljust(128, b"\0") + text)


# ---- Taking ------------------------------------------------------------------------


def test_the_plan_of_this_machine(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    assert path == str(folder / f"{HERE}.plan")
    foreign(folder / "a.plan", "cuda", "cuda; Some GPU; sm_80; 4 multiprocessors")
    loaded = trt.load(folder, device="cpu")
    check(loaded)
    check(loaded, np.ones((4, 6), np.float32))
    with pytest.raises(trt.OutOfRangeError):
        loaded(np.ones((5, 6), np.float32))
    assert loaded.choice is not None
    assert f"{HERE}.plan': tuned on a machine like this one" in loaded.choice
    assert "not a.plan: for sm_80" in loaded.choice
    assert trt.load(path).choice is None


@needs_avx512
def test_instruction_sets(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    made = make(model, folder, ["sse41", "avx2", "cpu"])
    assert [Path(path).stem for path in made] == ["sse41", "avx2", HERE]
    code = """if True:
        import sys, numpy as np, rabbet
        model = rabbet.load(sys.argv[1])
        print(model.choice.split("\\n")[0])
        print(repr(model(np.ones((1, 6), np.float32)).tolist()))
    """
    for limit, taken, why in (
        ("AVX2", "avx2", "like this one"),
        ("AVX", "sse41", "this CPU has"),
        ("SSE41", "sse41", "like this one"),
    ):
        lines = other_process(code, folder, ONEDNN_MAX_CPU_ISA=limit).splitlines()
        assert f"{taken}.plan" in lines[0]
        assert why in lines[0]
        np.testing.assert_allclose(
            np.array(json.loads(lines[1])), np.ones((1, 6)) @ WEIGHTS, rtol=1e-5
        )
    # By path, each process takes its own.
    data = pickle.dumps(trt.load(folder).by_path())
    assert len(data) < 600
    code = """if True:
        import sys, pickle
        model = pickle.loads(bytes.fromhex(sys.argv[1]))
        print(model.choice.split("\\n")[0])
        assert pickle.dumps(model.by_path()) == bytes.fromhex(sys.argv[1])
    """
    assert "avx2.plan" in other_process(code, data.hex(), ONEDNN_MAX_CPU_ISA="AVX2")
    again = pickle.loads(data)
    check(again)
    assert f"{HERE}.plan" in again.choice


@needs_avx512
def test_plans_of_another_set_run_and_say_so(model: Path, tmp_path: Path) -> None:
    """A plan's kernels are there on every CPU; only the choices were others'."""
    make(model, tmp_path / "plans", "avx2")
    log = Messages()
    loaded = trt.load(tmp_path / "plans", logger=log)
    check(loaded)
    assert "tuned for instructions that this CPU has" in loaded.choice
    assert any("tuned on another machine" in line for line in log.lines)


def test_none_fits(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(trt.NotFoundError, match=r"no plan in .*empty.*this machine: \S+ \(cpu"):
        trt.load(tmp_path / "empty", device="cpu")
    foreign(tmp_path / "gpu.plan", "cuda", "cuda; Some GPU; sm_80; 4 multiprocessors")
    (tmp_path / "old.plan").write_bytes(
        struct.pack("<8sIIQQ32s", b"\x89RABBET\n", 2, 1, 64, 0, b"rabbet 0.0.9")
    )
    (tmp_path / "text.plan").write_text("hello")
    (tmp_path / "none.plan").write_text("")
    with pytest.raises(trt.NotFoundError) as caught:
        trt.load(tmp_path, device="cpu")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("none of the 4 plans")
    told = {line.split(":")[0].strip(): line for line in lines[1:]}
    assert "sm_80" in told["gpu.plan"]
    assert "format version 2, of 'rabbet 0.0.9'" in told["old.plan"]
    assert "not a plan" in told["text.plan"]
    assert "not a plan" in told["none.plan"]
    assert "build=True" in lines[-1]


def test_damaged_files_are_named(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    whole = Path(path).read_bytes()
    damages = {
        "cut": whole[:-64],
        "flipped": whole[:-70] + bytes([whole[-70] ^ 1]) + whole[-69:],
        "head": whole[:30],
    }
    for name, data in damages.items():
        (folder / f"{name}.plan").write_bytes(data)
    log = Messages()
    check(trt.load(folder, device="cpu", logger=log))
    told = "\n".join(line for line in log.lines if line.startswith("WARNING"))
    assert "cut.plan" in told
    assert "head.plan" in told
    os.unlink(path)
    with pytest.raises(trt.NotFoundError) as caught:
        trt.load(folder, device="cpu")
    for name in damages:
        assert any(name in line and "damage" in line for line in str(caught.value).splitlines())


def row_at(path: Path, offset: int, length: int, size: int) -> None:
    """A file with a correct head, whose only row of sections may lie."""
    head = struct.pack("<8sIIQQ32s", b"\x89RABBET\n", 3, 5, size, 0, b"test")
    path.write_bytes(
        (head + struct.pack("<IIQQQ", 1, 0, offset, length, 0)).ljust(size, b"\0")[:size]
    )


def test_what_is_no_plan_is_passed_over(model: Path, tmp_path: Path) -> None:
    """Nothing in a folder stops the load of what fits, or makes it wait."""
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    os.rename(path, folder / "zz \n\udcff.plan")  # any name will do
    row_at(folder / "a.plan", 1 << 63, 40, 200)
    row_at(folder / "b.plan", (1 << 64) - 8, 16, 200)
    row_at(folder / "c.plan", 150, 100, 200)
    row_at(folder / "d.plan", 64, 16, 70)
    os.mkfifo(folder / "e.plan")
    (folder / "f.plan").symlink_to("missing.plan")
    (folder / "g.plan").symlink_to("g.plan")
    (folder / "h.plan").symlink_to("/dev/zero")
    (folder / "i.plan").mkdir()
    log = Messages()
    check(trt.load(folder, device="cpu", logger=log))
    told = [line for line in log.lines if line.startswith("WARNING")]
    for name, why in (
        ("a", "does not say its device"),
        ("b", "does not say its device"),
        ("c", "does not say its device"),
        ("d", "does not say its device"),
        ("e", "not a file"),
        ("f", "a link to nothing: 'missing.plan'"),
        ("g", "symbolic links"),
        ("h", "not a file"),
    ):
        assert sum(f"{name}.plan' is not used" in line and why in line for line in told) == 1, name
    assert len(told) == 8


def test_links_to_plans_elsewhere(model: Path, tmp_path: Path) -> None:
    (path,) = make(model, tmp_path / "made")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/linked.plan").symlink_to(path)
    (tmp_path / "name").symlink_to("folder")
    loaded = trt.load(tmp_path / "name", device="cpu")
    check(loaded)
    assert "linked.plan" in loaded.choice
    for file in (tmp_path / "folder").iterdir():
        file.unlink()
    (tmp_path / "folder").rmdir()
    check(loaded)  # what is loaded needs the folder no longer
    with pytest.raises(FileNotFoundError, match="name"):
        trt.load(tmp_path / "name", device="cpu")


def test_warnings_come_once(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        make(model, tmp_path / name)
        (tmp_path / name / "bad.plan").write_text("hello")
    for _ in range(3):
        trt.load(tmp_path / "one", device="cpu")
        pickle.loads(pickle.dumps(trt.load(tmp_path / "two", device="cpu").by_path()))
    told = capfd.readouterr().err.splitlines()
    assert sum("one/bad.plan' is not used" in line for line in told) == 1
    assert sum("two/bad.plan' is not used" in line for line in told) == 1
    (tmp_path / "one/worse.plan").write_text("hello")
    trt.load(tmp_path / "one", device="cpu")
    assert "one/worse.plan' is not used" in capfd.readouterr().err
    for _ in range(2):  # a logger of the caller's own is told each time
        log = Messages()
        trt.load(tmp_path / "one", device="cpu", logger=log)
        assert sum("bad.plan' is not used" in line for line in log.lines) == 1


@needs_avx512
def test_the_warning_of_another_set_comes_once(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (path,) = make(model, tmp_path / "plans", "avx2")
    for _ in range(3):
        check(trt.load(tmp_path / "plans", device="cpu"))
    assert capfd.readouterr().err.count("tuned on another machine") == 1
    trt.load(path)
    assert capfd.readouterr().err.count("tuned on another machine") == 1


def test_sets_that_include_others() -> None:
    assert lower_kinds("avx2_vnni") == ("sse41", "avx", "avx2")
    assert includes("avx2_vnni", "avx2")
    assert includes("avx512_core_amx", "sse41")
    assert not includes("avx512_core", "avx2_vnni")
    assert not includes("avx2", "avx2_vnni")
    assert includes("neon", "neon")
    assert not includes("neon", "sse41")


# ---- Building ----------------------------------------------------------------------


def test_builds_what_is_missing(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    os.unlink(path)
    model.unlink()  # the folder has a copy
    log = Messages()
    check(trt.load(folder, device="cpu", build=True, logger=log))
    assert sum("building a plan" in line for line in log.lines) == 1
    time = os.stat(path).st_mtime_ns
    check(trt.load(folder, device="cpu", build=True))
    assert os.stat(path).st_mtime_ns == time
    # A damaged one is missing, too.
    data = bytearray(Path(path).read_bytes())
    data[-70] ^= 1
    Path(path).write_bytes(data)
    check(trt.load(folder, device="cpu", build=True))
    check(trt.load(path))


@needs_avx512
def test_builds_for_its_own_kind_beside_others(model: Path, tmp_path: Path) -> None:
    make(model, tmp_path / "plans", "avx2")
    loaded = trt.load(tmp_path / "plans", device="cpu", build=True)
    check(loaded)
    assert f"{HERE}.plan" in loaded.choice


def test_several_processes_build_once(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    os.unlink(path)
    code = """if True:
        import sys, numpy as np, rabbet
        class Log(rabbet.ILogger):
            def log(self, severity, msg):
                print(msg)
        model = rabbet.load(sys.argv[1], device="cpu", build=True, logger=Log())
        print("sum", float(model(np.ones((1, 6), np.float32)).sum()))
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    texts = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum("building a plan" in text for text in texts) == 1
    for text in texts:
        total = float(text.rsplit("sum", 1)[1])
        np.testing.assert_allclose(total, WEIGHTS.sum(), rtol=1e-5)
    assert [p.name for p in folder.iterdir() if p.suffix == ".tmp"] == []


def test_a_builder_that_dies_blocks_nobody(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    os.unlink(path)
    code = """if True:
        import os, sys
        from rabbet import Logger
        from rabbet._plan_builds import locked
        with locked(sys.argv[1], sys.argv[2], Logger()):
            os._exit(0)
    """
    other_process(code, folder, HERE)
    check(trt.load(folder, device="cpu", build=True))


def test_one_model_and_one_set_of_options(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    make(model, folder)
    make(str(model), folder)
    make(model.read_bytes(), folder)
    make(onnx.load(model), folder, shapes={"x": [np.array([1, 6]), [2, 6], [4, 6]]})
    with pytest.raises(trt.AlreadyExistsError, match=r"build\.json"):
        make(model, folder, fp16=True)
    proto = onnx.load(model)
    proto.graph.node[0].name = "other"
    with pytest.raises(trt.AlreadyExistsError, match=r"build\.json"):
        make(proto, folder)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    (folder / f"{HERE}.plan").unlink()
    with pytest.raises(trt.DataLossError, match=r"model\.onnx.*SHA-256"):
        trt.load(folder, device="cpu", build=True)
    (folder / "model.onnx").unlink()
    with pytest.raises(trt.NotFoundError, match=r"model\.onnx.* is missing"):
        trt.load(folder, device="cpu", build=True)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "model": 3}'])
def test_damaged_recipes(tmp_path: Path, text: str) -> None:
    (tmp_path / "build.json").write_text(text)
    with pytest.raises(trt.DataLossError, match=r"build\.json' is damaged"):
        trt.load(tmp_path, device="cpu", build=True)


def test_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(trt.NotFoundError, match=r"has no build\.json.*build_plans"):
        trt.load(tmp_path, device="cpu", build=True)
    (tmp_path / "build.json").write_text('{"version": 99}')
    with pytest.raises(trt.InvalidArgumentError, match="version 99"):
        trt.load(tmp_path, device="cpu", build=True)


@pytest.mark.parametrize(
    "more",
    [
        {"options": {"plugins": ["evil.py"]}},
        {"options": {"save": "elsewhere.plan"}},
        {"options": [1]},
        {"command": ["--plugins", "evil.py"]},
        {"command": ["--plugins=evil.py"]},
        {"command": ["-o", "elsewhere.plan"]},
        {"command": 3},
        {"command": [3]},
        {"files": {}},
        {"files": 3},
    ],
)
def test_recipes_that_ask_for_more(model: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    os.unlink(path)
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    values = json.loads((folder / "build.json").read_text()) | more
    (folder / "build.json").write_text(json.dumps(values))
    with pytest.raises(trt.DataLossError, match=r"build\.json' is damaged"):
        trt.load(folder, device="cpu", build=True)
    assert not (tmp_path / "elsewhere.plan").exists()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[" * 100000], ids=["bytes", "depth"])
def test_recipes_that_are_no_json(model: Path, tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "plans"
    make(model, folder)
    (folder / f"{HERE}.plan").unlink()
    (folder / "build.json").write_bytes(data)
    with pytest.raises(trt.DataLossError, match=r"build\.json' is damaged"):
        trt.load(folder, device="cpu", build=True)
    with pytest.raises(trt.AlreadyExistsError, match=r"build\.json"):
        make(model, folder)


def test_untrusted_folders_build_nothing(model: Path, tmp_path: Path) -> None:
    (path,) = make(model, tmp_path / "plans")
    check(trt.load(tmp_path / "plans", device="cpu", untrusted=True))
    os.unlink(path)
    with pytest.raises(trt.InvalidArgumentError, match=r"build=.*untrusted="):
        trt.load(tmp_path / "plans", device="cpu", untrusted=True, build=True)


def test_locks(model: Path, tmp_path: Path) -> None:
    """A lock follows no link and changes no file; others' locks do."""
    folder = tmp_path / "plans"
    (path,) = make(model, folder)
    lock = folder / f".{HERE}.lock"
    lock.unlink()
    precious = tmp_path / "precious"
    precious.write_text("kept")
    lock.symlink_to(precious)
    os.unlink(path)
    with pytest.raises(OSError, match=r"\.lock"):
        trt.load(folder, device="cpu", build=True)
    assert precious.read_text() == "kept"
    lock.unlink()
    lock.write_text("text of another")
    lock.chmod(0o444)
    check(trt.load(folder, device="cpu", build=True))
    assert lock.read_text() == "text of another"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_folder_of_another_user(model: Path) -> None:
    """It is read; that nothing can be built there is said."""
    code = """if True:
        import hashlib, json, mmap, os, subprocess, sys, numpy as np, rabbet
        os.setuid(65534)
        try:
            model = rabbet.load(sys.argv[1], device="cpu", build=sys.argv[2] == "build")
            print(model.choice)
            print("sum", float(model(np.ones((1, 6), np.float32)).sum()))
        except OSError as error:
            print("error", error, *error.__notes__)
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        os.chmod(parent, 0o755)
        folder = Path(parent, "plans")
        (path,) = make(model, folder)
        (folder / "secret.plan").write_bytes(Path(path).read_bytes())
        (folder / "secret.plan").chmod(0)
        for mode in ("load", "build"):
            text = other_process(code, folder, mode)
            assert f"{HERE}.plan': tuned on a machine like this one" in text
            assert "not secret.plan: Permission denied" in text
            total = float(text.rsplit("sum", 1)[1])
            np.testing.assert_allclose(total, WEIGHTS.sum(), rtol=1e-5)
        os.unlink(path)
        (folder / f".{HERE}.lock").unlink()
        text = other_process(code, folder, "build")
        assert text.startswith("error")
        assert "Permission denied" in text
        assert "needs a lock to build a plan" in text
        # The lock of another user will do, where the folder is open to both.
        lock = folder / f".{HERE}.lock"
        lock.touch(0o644)
        folder.chmod(0o777)
        assert f"{HERE}.plan" in other_process(code, folder, "build")


def test_models_that_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(trt.InvalidArgumentError, match=r"ONNX model alone.*Export modules"):
        trt.build_plans(object(), tmp_path / "plans")
    data = tmp_path / "m.onnx"
    for entry in (b"\x08\x80\x80\x80\x80\x80\x01", b"\x0a\x08location"):
        tensor = b"\x6a" + bytes([len(entry)]) + entry
        graph = b"\x2a" + bytes([len(tensor)]) + tensor
        data.write_bytes(b"\x3a" + bytes([len(graph)]) + graph)
        with pytest.raises(trt.Error):
            trt.build_plans(data, tmp_path / "plans")


def test_weights_beside_the_model(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    big = model.parent / "big.onnx"
    onnx.save(proto, big, save_as_external_data=True, location="big.bin", size_threshold=0)
    (path,) = make(big, tmp_path / "plans")
    assert (tmp_path / "plans/big.bin").exists()
    for file in (big, model.parent / "big.bin", Path(path)):
        file.unlink()
    check(trt.load(tmp_path / "plans", device="cpu", build=True))
    data = bytearray((tmp_path / "plans/big.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "plans/big.bin").write_bytes(data)
    Path(path).unlink()
    with pytest.raises(trt.DataLossError, match=r"big\.bin"):
        trt.load(tmp_path / "plans", device="cpu", build=True)


def test_a_model_beside_the_folder_stays_there(model: Path) -> None:
    make(model, model.parent / "plans")
    assert not (model.parent / "plans/model.onnx").exists()
    assert json.loads((model.parent / "plans/build.json").read_text())["model"] == "../m.onnx"


def test_what_cannot_be_built_here(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    for kind in ("avx1024", "sm_10", "neon"):
        with pytest.raises(trt.UnavailableError, match=rf"'{kind}'.*this machine runs {HERE}"):
            make(model, folder, f"cpu,{kind}")
    assert not folder.exists()  # nothing is built before all are known
    for kinds in ("", "cpu,,avx2", []):
        with pytest.raises(trt.InvalidArgumentError, match="kinds are"):
            make(model, folder, kinds)
    with pytest.raises(trt.InvalidArgumentError, match="no option 'devices'"):
        trt.build_plans(model, folder, devices=3)
    with pytest.raises(trt.InvalidArgumentError, match="ONNX model alone"):
        trt.build_plans(object(), folder)
    with pytest.raises(trt.InvalidArgumentError, match="build= is for a folder"):
        trt.load(model, build=True)
    text = tmp_path / "text.onnx"
    text.write_text("no model")
    with pytest.raises(trt.DataLossError, match=r"text\.onnx' is not an ONNX model"):
        trt.build_plans(text, folder)


def test_a_file_of_another_kind_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    make(model, folder)
    foreign(folder / f"{HERE}.plan", "cpu", "cpu; Some CPU; neon; oneDNN 2; rabbet 0")
    with pytest.raises(trt.AlreadyExistsError, match="is a plan for neon"):
        make(model, folder)


@needs_avx512
def test_operators_in_python(tmp_path: Path) -> None:
    nodes = [helper.make_node("triple", ["x"], ["y"], plugin_namespace="folder")]
    save_model(tmp_path / "m.onnx", nodes, {"x": (FLOAT, [2, 6])}, {"y": (FLOAT, [2, 6])})
    (tmp_path / "triple_op.py").write_text(OPERATOR)
    folder, plugins = tmp_path / "plans", [tmp_path / "triple_op.py"]
    trt.build_plans(tmp_path / "m.onnx", folder, "cpu,avx2", plugins=plugins)
    code = """if True:
        import sys, numpy as np, rabbet
        model = rabbet.load(sys.argv[1], plugins=sys.argv[2])
        print(model(np.ones((2, 6), np.float32)).sum(), model.choice.split()[0])
    """
    text = other_process(code, folder, plugins[0], ONEDNN_MAX_CPU_ISA="AVX2")
    assert text.startswith("36.0 ")
    assert "avx2.plan" in text
    (folder / "avx2.plan").unlink()
    with pytest.raises(trt.Error, match="triple"):
        trt.build_plans(tmp_path / "m.onnx", folder, "avx2")  # the new process lacks it


# ---- The command -------------------------------------------------------------------


@needs_avx512
def test_command(model: Path) -> None:
    folder = model.parent
    options = ["--optimization-level", "0", "--shapes", "x:2x6"]
    done = command("build", "m.onnx", "--for", "cpu,avx2", *options, cwd=folder)
    assert done.stdout.count("wrote ") == 2
    check(trt.load(folder / "m.plans", device="cpu"))
    (folder / f"m.plans/{HERE}.plan").unlink()
    check(trt.load(folder / "m.plans", device="cpu", build=True))
    with pytest.raises(trt.OutOfRangeError):
        trt.load(folder / "m.plans", device="cpu")(np.ones((3, 6), np.float32))
    done = command("build", "m.onnx", "--for", "sm_10", *options, cwd=folder, code=6)
    assert "no plan for 'sm_10' can be built here" in done.stderr
    done = command("build", "m.onnx", "--for", "cpu", "--device", "cpu", cwd=folder, code=2)
    assert "--device and --for exclude each other" in done.stderr
    command("build", "none.onnx", "--for", "cpu", cwd=folder, code=3)

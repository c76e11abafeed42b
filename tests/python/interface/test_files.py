"""Files that are written and read: whole or not at all, shared by processes, and
nothing that is no file is waited for."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import rabbet as trt
from onnx import helper

from tests.python.support.command import FLOAT, PROGRAM, command, save_model
from tests.python.support.timed import build_until_sure, doubtful

X = np.array([[-1, 2], [3, -4]], np.float32)


def network(layers=1):
    net = trt.Builder().create_network()
    tensor = net.add_input("x", trt.float32, (2, 2))
    for _ in range(layers):
        tensor = net.add_softmax(tensor).get_output(0)
    net.mark_output(tensor)
    return net


def relu(folder):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    shape = {"x": (FLOAT, [2, 2])}
    return save_model(folder / "model.onnx", nodes, shape, {"y": (FLOAT, None)})


@pytest.fixture(scope="module")
def model():
    return trt.compile(network(), device="cpu")


def hidden(folder):
    return [name for name in os.listdir(folder) if name.startswith(".rabbet-")]


# ---- Plans


def test_save_replaces_a_file_and_keeps_mode_and_links(model, tmp_path):
    plan = tmp_path / "a.plan"
    link = tmp_path / "link.plan"
    plan.write_bytes(b"old")
    plan.chmod(0o640)
    link.symlink_to("a.plan")
    with plan.open("rb") as reader:
        model.save(link)
        assert reader.read() == b"old"  # the old file is whole while it is read
    assert link.is_symlink()
    assert stat.S_IMODE(plan.stat().st_mode) == 0o640
    np.testing.assert_array_equal(trt.load(plan)(X), model(X))
    trt.compile(network(), device="cpu", save=link)
    assert link.is_symlink()
    assert not hidden(tmp_path)


def test_save_writes_devices_and_pipes(model, tmp_path):
    model.save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a pipe that nobody reads"):
        model.save(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    while not found:
        try:
            model.save(pipe)
            reader.join()
        except OSError:  # the reader has not opened it yet
            pass
    assert found[0] == bytes(memoryview(model.engine.serialize()))


def test_the_command_writes_to_standard_output(tmp_path):
    path = relu(tmp_path)
    done = subprocess.run(
        [PROGRAM, "build", path, "-o", "/dev/stdout", "--quiet"],
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"\x89RABBET\n")


def test_leftovers_of_killed_writers_are_removed(model, tmp_path):
    """One is killed while it writes; the next writer removes what it left."""
    (tmp_path / ".rabbet-mine.tmp").write_bytes(b"of somebody else")
    program = (
        "import os, sys, rabbet\n"
        "data = bytes(64 << 20)\n"
        "while True:\n"
        "    rabbet._rabbet.write_file(sys.argv[1], data)\n"
        "    print(flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "a.plan"], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.read(1)
        while len(hidden(tmp_path)) < 2:
            pass
        writer.kill()
        writer.wait()
    model.save(tmp_path / "b.plan")
    assert hidden(tmp_path) == [".rabbet-mine.tmp"]


def test_a_path_need_not_be_utf8(model, tmp_path):
    plan = tmp_path / os.fsdecode(b"caf\xe9.plan")
    model.save(plan)
    np.testing.assert_array_equal(trt.load(plan)(X), model(X))
    other = relu(tmp_path).rename(tmp_path / os.fsdecode(b"mod\xe8le.onnx"))
    np.testing.assert_array_equal(trt.compile(other, device="cpu")(X), np.maximum(X, 0))
    with pytest.raises(trt.IncompatibleError, match=r"mod\\xe8le.onnx"):
        trt.load(other)


# ---- Timing caches


def doubts(layers, cache):
    model = trt.compile(network(layers), device="cpu", timing_cache=cache)
    return doubtful(model.report_json)


def entries(path):
    return set(map(str, trt.ITimingCache(path.read_bytes()).queryKeys()))


def test_processes_that_share_a_timing_cache_merge(tmp_path):
    """Each builds something else; all times are there in the end."""
    shared = tmp_path / "times"
    alone = set()
    for layers in (1, 2, 3):
        own = tmp_path / f"times{layers}"
        build_until_sure(lambda: doubts(layers, own), int)  # noqa: B023
        alone |= entries(own)
    program = (
        "import sys, threading\n"
        "from tests.python.interface.test_files import doubts\n"
        "def build(layers):\n"
        "    sys.stdout.write(f'{doubts(int(layers), sys.argv[1])}\\n')\n"
        "threads = [threading.Thread(target=build, args=(n,)) for n in sys.argv[2:]]\n"
        "[t.start() for t in threads]\n"
        "[t.join() for t in threads]\n"
    )

    def build_together() -> int:
        shared.unlink(missing_ok=True)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, shared, *layers],
                stdout=subprocess.PIPE,
                text=True,
            )
            for layers in (("1", "2"), ("3", "1"))
        ]
        said = [process.communicate(timeout=100)[0].split() for process in processes]
        assert [len(lines) for lines in said] == [2, 2]
        return sum(int(line) for lines in said for line in lines)

    build_until_sure(build_together, int)
    assert entries(shared) == alone
    assert not hidden(tmp_path)


def test_a_timing_cache_may_be_the_null_device_but_no_pipe(tmp_path):
    trt.compile(network(), device="cpu", timing_cache="/dev/null")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="it is a pipe"):
        trt.compile(network(), device="cpu", timing_cache=pipe)
    path = relu(tmp_path)
    done = command("build", path, "-o", tmp_path / "p", "--timing-cache", pipe, code=3)
    assert "it is a pipe" in done.stderr


# ---- Pipes where files are expected


def test_pipes_are_refused_and_not_waited_for(tmp_path):
    pipes = {}
    for suffix in ("onnx", "plan", "so", "py", "npz", "npy"):
        pipes[suffix] = tmp_path / f"pipe.{suffix}"
        os.mkfifo(pipes[suffix])
    model = relu(tmp_path)
    plan = tmp_path / "model.plan"
    command("build", model, "-o", plan)
    for arguments in (
        ("build", pipes["onnx"], "-o", tmp_path / "x.plan"),
        ("run", pipes["plan"]),
        ("inspect", pipes["plan"]),
        ("run", plan, "--plugins", pipes["so"]),
        ("run", plan, "--plugins", pipes["py"]),
        ("run", plan, "--inputs", pipes["npz"]),
        ("run", plan, "--inputs", f"x={pipes['npy']}"),
        ("exec", f"--onnx={model}", "--int8", f"--calib={pipes['plan']}"),
    ):
        done = command(*arguments, code=3)
        assert "pipe" in done.stderr + done.stdout, arguments
    with pytest.raises(OSError, match="it is a pipe"):
        trt.compile(pipes["onnx"], device="cpu")
    with pytest.raises(OSError, match="it is a pipe"):
        trt.load(pipes["plan"])
    for plugin in (pipes["so"], pipes["py"]):
        with pytest.raises(OSError, match="pipe"):
            trt.load(plan, plugins=plugin)


def test_standard_input_may_be_a_file(tmp_path):
    model = relu(tmp_path)
    plan = tmp_path / "model.plan"
    command("build", model, "-o", plan)
    program = [PROGRAM, "run", "/dev/stdin"]
    with plan.open("rb") as file:
        subprocess.run(program, stdin=file, check=True, capture_output=True)
    done = subprocess.run(
        program, input=Path(plan).read_bytes(), check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 3
    assert b"it is a pipe, not a regular file" in done.stderr

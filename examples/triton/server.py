"""A Triton Inference Server for trying Rabbet's backend: found or fetched, started, stopped.

PyPI's package nvidia-pytriton holds a server that runs without a GPU. Its wheel is unpacked,
not installed, since it asks for older packages than Rabbet.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

PACKAGE = "nvidia-pytriton==0.7.0"
# The clients of Triton's own package, and what their gRPC part needs.
CLIENTS = ["tritonclient==2.73.0", "grpcio", "protobuf", "python-rapidjson"]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rabbet" / "triton"


class NoServerError(Exception):
    """There is no server here, and why."""


class ServerError(RuntimeError):
    """The server did not start, or its answer is an error: what it said."""


def _pip(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check",
         *map(str, arguments)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise NoServerError(f"pip {' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")


def find_server(cache: Path = CACHE) -> Path:
    """The program: $TRITONSERVER, that on PATH, or PyPI's in the cache (55 MB)."""
    given = os.environ.get("TRITONSERVER") or shutil.which("tritonserver")
    if given:
        return _checked(Path(given))
    folder = cache / PACKAGE
    program = folder / "pytriton/tritonserver/bin/tritonserver"
    if not program.exists():
        new = cache / f"{PACKAGE}.{os.getpid()}"
        _pip("download", "--no-deps", "--dest", new, PACKAGE)
        (wheel,) = new.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            wanted = [n for n in file.namelist() if n.split("/")[0].endswith(".libs")]
            wanted.append("pytriton/tritonserver/bin/tritonserver")
            file.extractall(new, wanted)
        wheel.unlink()
        (new / "pytriton/tritonserver/bin/tritonserver").chmod(0o755)
        if folder.exists():  # another process was faster
            shutil.rmtree(new)
        else:
            new.rename(folder)
    return _checked(program)


def _checked(program: Path) -> Path:
    """The program, if it runs here and is a server."""
    try:
        done = subprocess.run([program, "--help"], capture_output=True, text=True)
    except OSError as error:
        raise NoServerError(f"{program} does not run: {error.strerror}") from None
    said = done.stdout + done.stderr
    if done.returncode not in (0, 1) or "--model-repository" not in said:
        raise NoServerError(
            f"{program} is no server: its --help ends with code {done.returncode}"
            f" and has no --model-repository, but {said[-200:]!r}"
        )
    return program


def import_grpc_client(cache: Path = CACHE) -> Any:
    """tritonclient.grpc, installed or from the cache."""
    try:
        import tritonclient.grpc
    except ImportError:
        folder = cache / "clients"
        if not (folder / "tritonclient").exists():
            new = cache / f"clients.{os.getpid()}"
            _pip("install", "--no-deps", "--target", new, *CLIENTS)
            if folder.exists():
                shutil.rmtree(new)
            else:
                new.rename(folder)
        sys.path.append(str(folder))
        import tritonclient.grpc
    return tritonclient.grpc


def backend_directory() -> str:
    """For --backend-directory: the command tells it."""
    done = subprocess.run(
        [sys.executable, "-m", "rabbet", "triton", "--backend-directory"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Server:
    """A server of one folder of models, reached from this machine alone. With `with`."""

    def __init__(self, repository: Path, *options: str, log: Path | None = None) -> None:
        self.program = find_server()
        self.repository = repository
        self.http_port, self.grpc_port, self.metrics_port = _free_ports(3)
        self.log = log or repository.parent / "tritonserver.log"
        # By itself it listens to the whole network.
        self.command = [
            str(self.program),
            f"--model-repository={repository}",
            f"--backend-directory={backend_directory()}",
            "--http-address=127.0.0.1", f"--http-port={self.http_port}",
            "--grpc-address=127.0.0.1", f"--grpc-port={self.grpc_port}",
            "--metrics-address=127.0.0.1", f"--metrics-port={self.metrics_port}",
            "--model-control-mode=explicit", "--load-model=*",
            "--exit-timeout-secs=5", *options,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        # Operators in Python run in this interpreter, with its packages.
        environment = {"RABBET_PYTHON": sys.executable, **os.environ}
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                self.command, stdout=file, stderr=subprocess.STDOUT, env=environment
            )
        try:
            self._wait(self.process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
        """Until it answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                raise ServerError(f"the server ended; {self.log}:\n{self.errors()}")
            try:
                self.request("GET", "/v2/health/live")
            except OSError:  # refused, or too late
                time.sleep(0.05)
            else:
                return
        raise ServerError(
            f"the server has not answered for {seconds} s; {self.log}:\n{self.errors()}"
        )

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def errors(self) -> str:
        """The log's errors; its end is a table of the server's options."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([x for x in lines if _ERROR.match(x)] or lines[-20:])

    # ---- HTTP, by the library that Python comes with

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[bytes, dict[str, str]]:
        question = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}", body or None, headers or {}, method=method
        )
        with urllib.request.urlopen(question, timeout=60) as answer:
            return answer.read(), dict(answer.headers)

    def json(self, method: str, path: str, body: Any = None) -> Any:
        """Errors of the server are raised with its text."""
        text = json.dumps(body).encode() if body is not None else b""
        try:
            answer, _ = self.request(method, path, text)
        except urllib.error.HTTPError as error:
            raise ServerError(json.loads(error.read() or b"{}").get("error", "?")) from None
        return json.loads(answer or b"{}")

    def infer(
        self, model: str, inputs: dict[str, np.ndarray], outputs: list[str] | None = None,
        **parameters: Any,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Runs a model: arrays go as bytes behind a header in JSON."""
        datas = {name: np.ascontiguousarray(x).tobytes() for name, x in inputs.items()}
        header: dict[str, Any] = {
            "inputs": [
                {"name": name, "shape": x.shape, "datatype": _TYPES[x.dtype.name],
                 "parameters": {"binary_data_size": len(datas[name])}}
                for name, x in inputs.items()
            ],
            "parameters": {"binary_data_output": True, **parameters},
        }  # fmt: skip
        if outputs is not None:
            binary = {"binary_data": True}
            header["outputs"] = [{"name": name, "parameters": binary} for name in outputs]
        text = json.dumps(header).encode()
        length = {"Inference-Header-Content-Length": str(len(text))}
        body = text + b"".join(datas.values())
        try:
            answer, headers = self.request("POST", f"/v2/models/{model}/infer", body, length)
        except urllib.error.HTTPError as error:
            raise ServerError(json.loads(error.read()).get("error", "?")) from None
        end = int(headers.get("Inference-Header-Content-Length", len(answer)))
        results, offset = {}, end
        for output in json.loads(answer[:end])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            dtype = next(d for d, t in _TYPES.items() if t == output["datatype"])
            data = np.frombuffer(answer[offset : offset + size], dtype)
            results[output["name"]] = data.reshape(output["shape"])
            offset += size
        return results


_ERROR = re.compile(r"E\d{4} |error: ")
_TYPES = {
    "float32": "FP32", "float16": "FP16", "float64": "FP64", "int8": "INT8",
    "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "bool": "BOOL",
}  # fmt: skip

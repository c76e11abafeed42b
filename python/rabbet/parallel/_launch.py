"""Starts ranks on this machine, as torchrun does where torch is installed."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence

from .._errors import InvalidArgumentError

_GRACE = 10.0  # seconds for the others once a rank has failed


def launch(ranks: int, command: Sequence[str]) -> int:
    """Runs the Python script and its arguments once for each rank, with RANK, WORLD_SIZE
    and LOCAL_RANK set. Once one fails, the others have ten seconds to end. The result is
    the code of the first that failed, or 0."""
    if ranks < 1:
        raise InvalidArgumentError(f"ranks is {ranks}; expected 1 or more")
    shared = {"WORLD_SIZE": str(ranks), "RABBET_LAUNCH": secrets.token_hex(8)}
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(ranks)
    ]
    failed, until = 0, float("inf")
    try:
        while any(process.poll() is None for process in processes):
            for process in processes:
                if not failed and process.poll():
                    failed, until = process.returncode, time.monotonic() + _GRACE
            if time.monotonic() > until:
                break
            time.sleep(0.02)
    finally:
        for process in processes:
            if process.poll() is None:
                _end(process)
    codes = [process.returncode for process in processes]
    return failed or next((code for code in codes if code), 0)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:  # it keeps SIGTERM to itself
        process.kill()
        process.wait()

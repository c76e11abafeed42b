"""Communicators: what ranks, processes with a GPU each, exchange data by."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from .._errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from . import _nccl

_SECONDS = 600.0
# (rank, ranks, rank on this machine) as launchers name them.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, rabbet.parallel.launch
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


class Place(NamedTuple):
    """Which of the ranks this process is."""

    rank: int
    ranks: int
    local_rank: int  # of those on this machine: its GPU


def place() -> Place:
    """From the environment that torchrun, mpirun or srun set; without one, the only
    rank."""
    for names in _LAUNCHERS:
        values = [os.environ.get(name) for name in names]
        if values[0] is None or values[1] is None:
            continue
        try:
            rank, ranks, local = (int(v) if v else None for v in values)
        except ValueError:
            text = ", ".join(f"{n}={v}" for n, v in zip(names, values, strict=True))
            raise InvalidArgumentError(f"{text}: expected numbers") from None
        assert rank is not None
        assert ranks is not None
        if not 0 <= rank < ranks:
            raise InvalidArgumentError(
                f"{names[0]} is {rank} and {names[1]} is {ranks}: expected a rank from "
                "0 to their number - 1"
            )
        return Place(rank, ranks, rank if local is None else local)
    return Place(0, 1, 0)


def unique_id() -> bytes:
    """An identity for communicator(id=): one rank makes it and tells all others."""
    made = _nccl.UniqueId()
    result = _nccl.library().ncclGetUniqueId(ctypes.byref(made))
    _nccl.checked(result, "ncclGetUniqueId")
    return bytes(made)


class Communicator:
    """A communicator of NCCL, for IExecutionContext.set_communicator and
    Model.set_communicator: communicator() makes it."""

    def __init__(self, handle: int, rank: int, ranks: int) -> None:
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        new.restype = ctypes.py_object
        self.rank, self.ranks = rank, ranks
        self._handle: int | None = handle
        self._capsule = new(handle, b"ncclComm_t", None)

    @property
    def capsule(self) -> Any:
        """A PyCapsule "ncclComm_t"."""
        if self._handle is None:
            raise FailedPreconditionError("the communicator is closed")
        return self._capsule

    def close(self) -> None:
        """Gives its memory back. Contexts that have it must be gone."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _nccl.library().ncclCommAbort(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Communicator rank {self.rank} of {self.ranks}>"


def communicator(
    rank: int | None = None,
    ranks: int | None = None,
    id: bytes | None = None,
    *,
    gpu: int | None = None,
    seconds: float = _SECONDS,
) -> Communicator:
    """Joins the other ranks: each calls it, and it returns when all have.

    rank, ranks: this process's number and how many there are; default: from the
        environment that torchrun, mpirun, srun or rabbet.parallel.launch set.
    id: from unique_id(), the same for all. By default torch.distributed passes it on, if
        it is initialized; else a file does, in the folder RABBET_RENDEZVOUS (for ranks on
        several machines, which must all see it) or in one of this machine's.
    gpu: number of this rank's GPU; default: its rank on this machine.
    seconds: how long to wait for the others.
    """
    here = place()
    rank = here.rank if rank is None else rank
    ranks = here.ranks if ranks is None else ranks
    if not 0 <= rank < ranks:
        raise InvalidArgumentError(
            f"rank {rank} of {ranks}: expected a rank from 0 to their number - 1"
        )
    if id is not None and len(id) != _nccl.ID_BYTES:
        raise InvalidArgumentError(
            f"id has {len(id)} bytes; expected the {_nccl.ID_BYTES} of unique_id()"
        )
    if gpu is None:
        gpu = here.local_rank if here.ranks > 1 else rank
    until = time.monotonic() + seconds
    meeting = _meeting(rank, ranks) if id is None else None
    try:
        if meeting is not None:
            id = meeting.exchange(until)
        assert id is not None
        with _nccl.current(gpu):
            return _join(rank, ranks, id, until)
    finally:
        if meeting is not None:
            meeting.end()


def _join(rank: int, ranks: int, id: bytes, until: float) -> Communicator:
    library, handle = _nccl.library(), ctypes.c_void_p()
    state = ctypes.c_int(_nccl.IN_PROGRESS)
    what = f"rank {rank} of {ranks} joins the others"
    result = library.ncclCommInitRankConfig(
        ctypes.byref(handle),
        ranks,
        _nccl.UniqueId.from_buffer_copy(id),
        rank,
        ctypes.byref(_nccl.config()),
    )
    _nccl.checked(result, what)
    while state.value == _nccl.IN_PROGRESS:
        result = library.ncclCommGetAsyncError(handle, ctypes.byref(state))
        late = time.monotonic() > until
        if result or state.value not in (_nccl.SUCCESS, _nccl.IN_PROGRESS) or late:
            library.ncclCommAbort(handle)
            _nccl.checked(result or state.value, what)
            raise UnavailableError(f"{what}: not all have come in time")
        if state.value == _nccl.IN_PROGRESS:
            time.sleep(0.001)
    assert handle.value is not None
    return Communicator(handle.value, rank, ranks)


# ---- Passing the identity on ---------------------------------------------------


class _Alone:
    def exchange(self, until: float) -> bytes:
        return unique_id()

    def end(self) -> None:
        """Nothing is left."""


class _ByTorch(_Alone):
    def __init__(self, distributed: Any, rank: int) -> None:
        self.distributed, self.rank = distributed, rank

    def exchange(self, until: float) -> bytes:
        made = [unique_id() if self.rank == 0 else None]
        self.distributed.broadcast_object_list(made, src=0)
        assert made[0] is not None
        return made[0]


class _ByFile(_Alone):
    """Rank 0 writes the file, and removes it when all have joined."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path, self.rank = path, rank

    def exchange(self, until: float) -> bytes:
        if self.rank == 0:
            made = unique_id()
            part = self.path.with_suffix(".part")
            part.unlink(missing_ok=True)
            with open(
                os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"
            ) as f:
                f.write(made)
            part.replace(self.path)
            return made
        while time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                return self.path.read_bytes()
            time.sleep(0.002)
        raise UnavailableError(
            f"rank {self.rank}: rank 0 did not write {self.path} in time"
        )

    def end(self) -> None:
        if self.rank == 0:
            self.path.unlink(missing_ok=True)


_meetings = 0


def _meeting(rank: int, ranks: int) -> _Alone:
    global _meetings
    _meetings += 1
    if ranks == 1:
        return _Alone()
    import sys

    distributed = sys.modules.get("torch.distributed")
    if (
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() == ranks
    ):
        return _ByTorch(distributed, rank)
    return _ByFile(_folder() / f"{_launch()}-{ranks}-{_meetings}", rank)


def _folder() -> Path:
    """A folder of this user's."""
    if named := os.environ.get("RABBET_RENDEZVOUS"):
        return Path(named)
    folder = Path(tempfile.gettempdir()) / f"rabbet-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or (found.st_mode & 0o022)
    ):
        raise UnavailableError(
            f"{folder} is not a folder of this user's alone; name another in "
            "RABBET_RENDEZVOUS"
        )
    return folder


def _launch() -> str:
    """A name that the ranks of one launch have in common, and others have not."""
    names = ("RABBET_LAUNCH", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
    known = [os.environ.get(name, "") for name in names]
    known += [os.environ.get(n, "") for n in ("MASTER_ADDR", "MASTER_PORT")]
    known.append(os.environ.get("TORCHELASTIC_RESTART_COUNT", ""))
    known.append(os.environ.get("SLURM_STEP_ID", ""))
    if not known[0] and not os.environ.get("RABBET_RENDEZVOUS"):
        # Ranks on one machine have one parent; its start tells it from an older one.
        parent = os.getppid()
        with contextlib.suppress(OSError, IndexError):
            text = Path(f"/proc/{parent}/stat").read_text()
            known.append(text.rpartition(")")[2].split()[19])
        known.append(str(parent))
    import hashlib

    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:24]

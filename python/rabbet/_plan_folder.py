"""Folders of plans: which plan is for this machine."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import _rabbet
from ._callbacks import ILogger, Logger
from ._enums import Severity
from ._errors import (
    DataLossError,
    Error,
    IncompatibleError,
    NotFoundError,
    UnavailableError,
)

# Instruction sets of x86 processors as plans record them, each with those before it.
# Those of other processors are only equal to themselves.
_SETS = (
    "sse41",
    "avx",
    "avx2",
    "avx512_core",
    "avx512_core_vnni",
    "avx512_core_bf16",
    "avx512_core_amx",
)
_BESIDE = {"avx2_vnni": "avx2"}  # not in that order: what they extend

_MAGIC = b"\x89RABBET\n"
_VERSION = 3
_HEADER, _ROW = struct.Struct("<8sIIQQ32s"), struct.Struct("<IIQQQ")
_DEVICE = 1  # number of the section


class Target(NamedTuple):
    """What a plan was tuned for, or what a device of this machine is."""

    device: str  # "cpu" or "cuda"
    signature: str

    @property
    def kind(self) -> str:
        """Instruction set of a CPU, architecture of a GPU: "avx2", "sm_90"."""
        parts = self.signature.split("; ")
        if self.device == "cpu" and len(parts) > 2:
            return parts[2]
        return next((part for part in parts if part.startswith("sm_")), self.device)

    def __str__(self) -> str:
        return f"{self.kind} ({self.signature})"


class Plan(NamedTuple):
    """A file of a folder: with its target, or why it has none."""

    path: str
    target: Target | None
    problem: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def includes(kind: str, other: str) -> bool:
    """Whether a CPU of a kind has the instructions of another."""
    return kind == other or other in lower_kinds(kind)


def lower_kinds(kind: str) -> tuple[str, ...]:
    """The instruction sets that a CPU has beside its own."""
    if kind in _BESIDE:
        return (*lower_kinds(_BESIDE[kind]), _BESIDE[kind])
    return _SETS[: _SETS.index(kind)] if kind in _SETS else ()


# ---- This machine ------------------------------------------------------------------


def devices(device: str | None) -> tuple[list[Target], list[str]]:
    """Devices that a plan may be for, the preferred one first, and why others are missing."""
    wanted = device or os.environ.get("RABBET_DEVICE")
    found, missing = [], []
    for name in [wanted] if wanted else ["cuda", "cpu"]:
        try:
            signature = _rabbet.device_signature(name)
        except UnavailableError as error:
            if wanted:
                raise
            missing.append(str(error))
        else:
            found.append(Target(name.partition(":")[0], signature))
    return found, missing


# ---- The folder --------------------------------------------------------------------


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # pipes do not wait for a writer


def target_of(path: str) -> Target:
    """What the head of a plan says; the rest of the file is not read.

    Raises DataLossError or IncompatibleError, without the path."""
    with open(path, "rb", opener=_open) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise IncompatibleError("it is not a file")
        head = file.read(_HEADER.size)
        if head[:8] != _MAGIC:
            raise IncompatibleError("it is not a plan")
        if len(head) < _HEADER.size:
            raise DataLossError(f"damaged: it has {len(head)} bytes")
        _, version, count, size, _, producer = _HEADER.unpack(head)
        if version != _VERSION:
            name = producer.rstrip(b"\0").decode("ascii", "replace")
            raise IncompatibleError(
                f"it has format version {version}, of '{name}'; this rabbet reads {_VERSION}"
            )
        actual = os.fstat(file.fileno()).st_size
        if actual != size:
            raise DataLossError(f"damaged: it has {actual} bytes, expected {size}")
        rows = file.read(_ROW.size * min(count, 64))
        for at in range(0, len(rows) - _ROW.size + 1, _ROW.size):
            number, _, offset, length, _ = _ROW.unpack_from(rows, at)
            if number == _DEVICE and length < 4096 and offset <= size - length:
                file.seek(offset)
                text = file.read(length).decode("utf-8", "replace")
                device, newline, signature = text.partition("\n")
                if newline:
                    return Target(device, signature.rstrip("\0"))
    raise DataLossError("damaged: it does not say its device")


def plans_in(folder: str) -> list[Plan]:
    """The plans of a folder, by name."""
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.endswith(".plan") or os.path.isdir(path):
            continue
        try:
            found.append(Plan(path, target_of(path)))
        except FileNotFoundError:
            if os.path.islink(path):  # else it was removed meanwhile
                found.append(Plan(path, None, f"a link to nothing: '{os.readlink(path)}'"))
        except Error as error:
            found.append(Plan(path, None, str(error)))
        except OSError as error:
            found.append(Plan(path, None, error.strerror or str(error)))
    return found


class _Fit(NamedTuple):
    """How well a plan fits; a smaller one fits better."""

    device: int  # place among the machine's
    rank: int
    below: int  # for an instruction set below the CPU's: how far
    name: str

    @property
    def exact(self) -> bool:
        return self.device == 0 and self.rank < 2


_RANKS = (
    "tuned on a machine like this one",
    "tuned for this kind of machine",
    "tuned for instructions that this CPU has, {} has more",
    "tuned for another kind of machine than {}, but its kernels run here",
)


def _fit(plan: Plan, machine: list[Target]) -> _Fit | None:
    for place, device in enumerate(machine):
        target = plan.target
        if target is None or target.device != device.device:
            continue
        below = 0
        if target.signature == device.signature:
            rank = 0
        elif target.kind == device.kind:
            rank = 1
        elif device.device == "cpu" and includes(device.kind, target.kind):
            rank, below = 2, -lower_kinds(device.kind).index(target.kind)
        else:
            rank = 3
        return _Fit(place, rank, below, plan.name)
    return None


# ---- Choosing ----------------------------------------------------------------------

_lock = threading.Lock()
_told: set[tuple[str, str]] = set()


class FolderLogger(Logger):
    """Where load() was given no logger: what is wrong with a folder's plans is told once a
    process, however often it is loaded."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder: str | None = folder

    def log(self, severity: Severity, msg: str) -> None:
        if self.folder and severity == Severity.WARNING:
            with _lock:
                if (self.folder, msg) in _told:
                    return
                _told.add((self.folder, msg))
        super().log(severity, msg)

    def is_loaded(self) -> None:
        """From now on all is told: these are messages of calls."""
        self.folder = None


class Folder:
    """The plans of a folder as this machine sees them."""

    def __init__(self, path: str, device: str | None, logger: ILogger) -> None:
        self.path = path
        self._logger = logger
        self.machine, self._missing = devices(device)
        self.asked = device or os.environ.get("RABBET_DEVICE")
        self._problems: dict[str, str] = {}  # by the name of a plan that did not load

    def take(self, load: Callable[[str], Any], exact: bool = False) -> Any:
        """Loads the plan that fits best; None: there is none.

        load: takes a path. exact: only a plan for this kind of machine will do.
        """
        plans = plans_in(self.path)
        fits = {plan: fit for plan in plans if (fit := _fit(plan, self.machine))}
        for plan in sorted(fits, key=lambda plan: fits[plan]):
            fit = fits[plan]
            if exact and not fit.exact:
                break
            try:
                engine = load(plan.path)
            except FileNotFoundError:  # removed meanwhile
                continue
            except (DataLossError, IncompatibleError) as error:
                self._problems[plan.name] = str(error)
                continue
            for line in self._unusable(plans):
                self._log(Severity.WARNING, line)
            if fit.device:
                self._log(
                    Severity.WARNING,
                    f"there is no plan for {self.machine[0]}; '{plan.name}' is for the "
                    f"{self.machine[fit.device].device}",
                )
            engine._choice = "\n  ".join(self._lines(plan, fit, plans))
            self._log(Severity.INFO, engine._choice)
            return engine
        return None

    def none_fits(self) -> NotFoundError:
        """The error that no plan fits, with a line for each."""
        plans = plans_in(self.path)
        here = ", ".join(map(str, self.machine)) or "no device"
        count = f"none of the {len(plans)} plans" if plans else "no plan"
        lines = [f"{count} in '{self.path}' can be used here; this machine: {here}"]
        lines += [f"{plan.name}: {self._why_not(plan)}" for plan in plans]
        lines += [] if self.asked else self._missing
        hint = "rabbet.load(folder, build=True) builds one, if the folder has its build.json"
        return NotFoundError("\n  ".join([*lines, hint]))

    def _unusable(self, plans: list[Plan]) -> Iterator[str]:
        for plan in plans:
            problem = plan.problem or self._problems.get(plan.name)
            if problem:
                yield f"the plan '{plan.path}' is not used: {problem}"

    def _why_not(self, plan: Plan) -> str:
        problem = plan.problem or self._problems.get(plan.name)
        if problem:
            return problem
        assert plan.target is not None
        if plan.target.device not in {device.device for device in self.machine}:
            what = "was not asked for" if self.asked else "this machine lacks"
            return f"for {plan.target}: a device that {what}"
        return f"for {plan.target}"

    def _lines(self, taken: Plan, fit: _Fit, plans: list[Plan]) -> Iterator[str]:
        device = self.machine[fit.device]
        yield f"'{taken.path}': {_RANKS[fit.rank].format(device.kind)}"
        yield f"it is for {taken.target}"
        yield f"this machine is {device}"
        for plan in plans:
            if plan.name == taken.name:
                continue
            other = _fit(plan, self.machine)
            usable = other is not None and plan.name not in self._problems
            why = self._why_not(plan)
            if usable and plan.target:
                why = f"for {plan.target.kind}, which fits less well"
            yield f"not {plan.name}: {why}"

    def _log(self, severity: Severity, text: str) -> None:
        self._logger.log(severity, f"{self.path}: {text}")

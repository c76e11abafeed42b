"""Engines and models in pickles: the plan's bytes, or the path of its file.

A process has one engine for each plan and device that it unpickles, as long as somebody
uses it. The bytes are kept in a folder, once for a machine, and mapped from there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from types import ModuleType
from typing import Any, NamedTuple

from . import _rabbet
from ._callbacks import ILogger, Logger
from ._enums import Severity, TempfileControlFlag
from ._errors import DataLossError, Error, IoError, NotFoundError
from ._plan_folder import Folder, FolderLogger
from ._plugins import items_of, load_plugins

Engine = Any  # an ICudaEngine, whose module imports this one

_LIMIT_MIB = 16384


class Origin(NamedTuple):
    """How an engine was loaded, as far as it travels: a logger and an allocator do not."""

    device: str | None = None  # as it was asked for; None: the plan's kind of device
    host_code: bool = False
    untrusted: bool = False
    iteration_limit: int = 0


# Weak, so that an engine ends with its last user. Engines that can be refitted are not in
# it: a refit of one would change the others.
_engines: weakref.WeakValueDictionary[Any, Engine] = weakref.WeakValueDictionary()
# Held while an engine is loaded, which may import modules that unpickle one.
_lock = threading.RLock()


def _renew_lock() -> None:
    """In a fork's child, whose other threads are gone, maybe with the lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


# ---- The folder of plans -----------------------------------------------------------


def _matches(path: str, digest: bytes) -> bool:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest() == digest
    except OSError:
        return False


def _trim(folder: str, limit: int, keep: str) -> None:
    """Removes the plans that were not used for the longest time, down to three quarters of
    the limit. Processes that have mapped them keep them."""
    with os.scandir(folder) as entries:
        files = [
            (info.st_mtime_ns, info.st_size, entry.path)
            for entry in entries
            if entry.name.endswith(".plan")
            and (info := entry.stat(follow_symlinks=False))
        ]
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        if total > limit // 4 * 3 and path != keep:
            os.unlink(path)
            total -= size


def _kept(data: Any, digest: bytes, logger: ILogger) -> str | None:
    """Path of a file with these bytes, written if it is missing or damaged; None: the
    folder cannot be used."""
    folder, why, limit = _rabbet.cache_folder(
        "RABBET_PLAN_CACHE", "plans", "RABBET_PLAN_CACHE_MIB", _LIMIT_MIB, logger
    )
    size = memoryview(data).nbytes
    if why is None and folder is not None and size > limit:
        why = f"the plan has {size} bytes, the limit is {limit}"
    if folder is None or why is not None:
        if why is not None:
            logger.log(Severity.INFO, f"the plan is not kept in '{folder}': {why}")
        return None
    path = os.path.join(folder, f"{digest.hex()}.plan")
    try:
        if _matches(path, digest):
            os.utime(path)
            return path
        _rabbet.write_file(path, data)
        os.chmod(path, 0o600)
    except (Error, OSError) as error:
        logger.log(Severity.INFO, f"the plan is not kept in '{folder}': {error}")
        return None
    with contextlib.suppress(OSError):  # another process may remove files, too
        _trim(folder, limit, path)
    return path


# ---- Loading -----------------------------------------------------------------------


def plugin_names(plugins: Any) -> tuple[str, ...]:
    """plugins= of compile and load as names that other processes understand."""
    names = []
    for item in items_of(plugins):
        text = item.__name__ if isinstance(item, ModuleType) else os.fspath(item)
        is_file = not isinstance(item, ModuleType) and text.endswith((".py", ".so"))
        names.append(os.path.abspath(text) if is_file else text)
    return tuple(names)


def _import_plugins(names: tuple[str, ...]) -> None:
    """What is missing here may be registered already; if not, loading the plan says so."""
    for name in names:
        try:
            load_plugins(name)
        except NotFoundError:
            pass
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise


def _load(
    kind: type[Any], source: Any, origin: Origin, plugins: tuple[str, ...], logger: ILogger
) -> Engine:
    """Of a path, of bytes, or of another engine's plan."""
    files = sum(1 << int(bit) for bit in TempfileControlFlag)
    how = (
        origin.device,
        logger,
        origin.host_code,
        None,
        None,
        files,
        origin.untrusted,
        origin.iteration_limit,
        (),
    )
    load: Any = _rabbet.deserialize_engine
    if isinstance(source, str):
        load = _rabbet.load_engine
    elif isinstance(source, kind):
        load = _rabbet.reload_engine
    engine = load(kind, source, how)
    engine._logger, engine._origin, engine._plugins = logger, origin, plugins
    return engine


def _share(key: Any, engine: Engine) -> None:
    if not engine.refittable:
        _engines[key] = engine


def _engine_of_bytes(
    kind: type[Any],
    data: Any,
    digest: bytes,
    origin: Origin,
    plugins: tuple[str, ...],
) -> Engine:
    """The engine of a pickle that holds a plan."""
    import hashlib

    key = (kind, digest, origin)
    with _lock:
        engine = _engines.get(key)
        if engine is not None:
            return engine
        if hashlib.sha256(data).digest() != digest:
            raise DataLossError(
                f"a pickled plan of {memoryview(data).nbytes} bytes is damaged: its "
                f"SHA-256 is not {digest.hex()}"
            )
        _import_plugins(plugins)
        logger = Logger()
        path = _kept(data, digest, logger)
        try:
            engine = _load(kind, path or data, origin, plugins, logger)
        except (NotFoundError, IoError):
            if path is None or os.path.exists(path):
                raise
            # Another process has removed it.
            engine = _load(kind, data, origin, plugins, logger)
        engine._digest = digest
        _share(key, engine)
    return engine


class PlanFile(NamedTuple):
    """In pickles of models by path, in the place of the engine."""

    kind: type[Any]
    path: str
    origin: Origin
    plugins: tuple[str, ...]

    def engine(self) -> Engine:
        """The engine of the file as it is now, or of the folder's plan for this machine."""
        if not os.path.isdir(self.path):
            return self._engine_of(self.path, Logger())
        logger = FolderLogger(self.path)
        folder = Folder(self.path, self.origin.device, logger)
        engine = folder.take(lambda path: self._engine_of(path, logger))
        if engine is None:
            raise folder.none_fits()
        logger.is_loaded()
        return engine

    def _engine_of(self, path: str, logger: Logger) -> Engine:
        try:
            info = os.stat(path)
        except OSError as error:
            error.add_note(
                "a model that was pickled by path (Model.by_path) needs its file where it "
                "is unpickled"
            )
            raise
        file = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
        key = (self.kind, file, self.origin)
        with _lock:
            engine = _engines.get(key)
            if engine is None:
                _import_plugins(self.plugins)
                engine = _load(self.kind, path, self.origin, self.plugins, logger)
                engine._path = path
                _share(key, engine)
        return engine


# ---- Pickling ----------------------------------------------------------------------


def reduce_engine(engine: Engine, protocol: int) -> tuple[Any, ...]:
    """For ICudaEngine.__reduce_ex__."""
    import hashlib
    import pickle

    plan: Any = engine.serialize()
    if engine.refittable:  # a refit may change it before it is read
        plan = bytes(plan)
    digest = engine._digest or hashlib.sha256(plan).digest()
    kind, origin, plugins = type(engine), engine._origin, engine._plugins
    if not engine.refittable:
        engine._digest = digest
        if not engine._lent:  # its memory may change
            with _lock:
                _engines.setdefault((kind, digest, origin), engine)
    data = pickle.PickleBuffer(plan) if protocol >= 5 else bytes(plan)
    return _engine_of_bytes, (kind, data, digest, origin, plugins)


def detached_engine(engine: Engine) -> Engine:
    """Another engine of the same plan, which reads no memory that was lent."""
    logger = engine._logger or Logger()
    found = _load(type(engine), engine, engine._origin, engine._plugins, logger)
    found._path, found._digest = engine._path, engine._digest
    return found


def copied_engine(engine: Engine) -> Engine:
    """For copy.deepcopy: only an engine that can be refitted is not the same for ever."""
    if engine._lent:
        return detached_engine(engine)
    if not engine.refittable:
        return engine
    make, values = reduce_engine(engine, 4)
    return make(*values)

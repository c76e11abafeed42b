"""Building the plans of a folder: for this machine, and for lower instruction sets.

The folder keeps its recipe, build.json: the model and the options, which are the same for
each of its plans. A build holds a lock on the folder for its kind, so that processes that
want the same plan wait for one of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import _rabbet
from ._build import build_model
from ._callbacks import ILogger, Logger
from ._checked import File, checks_arguments
from ._enums import Severity
from ._errors import (
    AlreadyExistsError,
    DataLossError,
    Error,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from ._pickling import plugin_names
from ._plan_folder import Folder, Target, devices, lower_kinds, target_of
from ._protobuf import BYTES, fields

RECIPE = "build.json"
_VERSION = 1
# Options of compile() that all plans of a folder share.
_OPTIONS = {
    "shapes", "values", "profiles", "threads", "fp16", "bf16", "double", "tf32", "workspace",
    "tactic_memory", "optimization_level", "keep_plugins", "try_plugins",
}  # fmt: skip
# Options of the command that are not of a recipe: where plans go and for what, what is told
# of the build, and this machine's files.
COMMANDS_OWN = {
    "--for", "--device", "--output", "--plugins", "--timing-cache", "--quiet", "--verbose",
    "--json", "--retime", "-o", "--staticPlugins", "--dynamicPlugins",
}  # fmt: skip
# By field, what a message of ONNX holds: a model's graph and functions, and so on down to
# tensors, whose field 13 names the file of their data.
_ONNX: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "node list"},
    "node list": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse",
                  23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}  # fmt: skip


# ---- The model ---------------------------------------------------------------------


def _data_files(message: memoryview, kind: str) -> Iterator[str]:
    for number, encoding, value, _ in fields(message):
        if encoding != BYTES:
            continue
        if kind == "tensor" and number == 13:
            entry = {key: data for key, _, data, _ in fields(value)}
            if entry.get(1) == b"location":
                if not isinstance(name := entry.get(2), memoryview):
                    raise ValueError("data in a file without a name")
                yield bytes(name).decode()
        elif inner := _ONNX.get(kind, {}).get(number):
            yield from _data_files(value, inner)


def _files_of(model: str) -> list[str]:
    """A model's file, and those of its data."""
    import mmap

    with open(model, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DataLossError(f"'{model}' is empty")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # ends with its last view
    try:
        names = sorted(set(_data_files(memoryview(data), "model")))
    except (ValueError, RecursionError) as error:
        raise DataLossError(f"'{model}' is not an ONNX model: {error}") from None
    folder = os.path.dirname(model)
    return [model, *(os.path.join(folder, name) for name in names)]


def _digest(source: Any) -> str:
    import hashlib

    if isinstance(source, str):
        with open(source, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(source).hexdigest()


class _Source:
    """A model as it was given, and as the folder keeps it."""

    def __init__(self, model: Any, folder: str) -> None:
        self.path = os.path.join(folder, "model.onnx")
        self._is_kept = False
        # By name beside the model's file: another file, or the bytes.
        self._parts: dict[str, Any] = {"model.onnx": model}
        if callable(getattr(model, "SerializeToString", None)) and hasattr(model, "graph"):
            self._parts = {"model.onnx": model.SerializeToString()}
        elif isinstance(model, (str, os.PathLike)):
            self._take_file(os.path.realpath(model), folder)
        elif not isinstance(model, (bytes, bytearray, memoryview)):
            raise InvalidArgumentError(
                "plans of a folder are built from an ONNX model alone: the path of its file, "
                "its bytes or an onnx.ModelProto, which the folder keeps for other machines; "
                f"got {type(model)!r}. Export modules of torch and networks of rabbet.tensorrt "
                "first, or save a plan on each machine with rabbet.compile(save=)"
            )
        self.files = {name: _digest(part) for name, part in self._parts.items()}

    def _take_file(self, path: str, folder: str) -> None:
        beside = os.path.dirname(path)
        self._parts = {os.path.relpath(part, beside): part for part in _files_of(path)}
        self._is_kept = beside in (folder, os.path.dirname(folder))
        if self._is_kept:
            self.path = path
            return
        self._parts["model.onnx"] = self._parts.pop(os.path.basename(path))
        for name in self._parts:
            if os.path.isabs(name) or name.startswith(".."):
                raise UnsupportedError(
                    f"'{path}': its data lies outside of its folder: '{name}'"
                )

    def keep(self) -> None:
        """Copies the files, unless they lie in the folder or beside it."""
        import shutil

        for name, part in ({} if self._is_kept else self._parts).items():
            target = os.path.join(os.path.dirname(self.path), name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not isinstance(part, str):
                _rabbet.write_file(target, part)
                continue
            temporary = f"{target}.{os.getpid()}.tmp"
            try:
                shutil.copyfile(part, temporary)
                os.replace(temporary, target)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)


# ---- The recipe --------------------------------------------------------------------


class Recipe:
    """What build.json says: model, and options of compile() or of `rabbet build`."""

    def __init__(self, folder: str, values: Mapping[str, Any]) -> None:
        self.folder = folder
        self.model: str = os.path.normpath(os.path.join(folder, values["model"]))
        self.files: dict[str, str] = dict(values["files"])
        self.options: dict[str, Any] = values.get("options", {})
        self.command: list[str] | None = values.get("command")
        if os.path.basename(self.model) not in self.files:
            raise KeyError(f"files: {os.path.basename(self.model)}")
        # Other options of compile() and the command write or run other files.
        if unknown := sorted(set(self.options) - _OPTIONS):
            raise KeyError(f"options: {', '.join(unknown)}")
        words = [word.partition("=")[0] for word in self.command or ()]
        if own := sorted(COMMANDS_OWN & set(words)):
            raise KeyError(f"command: {', '.join(own)}")

    @staticmethod
    def read(folder: str) -> Recipe:
        import json

        path = os.path.join(folder, RECIPE)
        try:
            with open(path, "rb") as file:
                values = json.load(file)
        except FileNotFoundError:
            raise NotFoundError(
                f"'{folder}' has no {RECIPE}, so that nothing tells how its plans are built: "
                "make the folder with rabbet.build_plans or `rabbet build --for`"
            ) from None
        except (ValueError, RecursionError) as error:
            raise DataLossError(f"'{path}' is damaged: {error}") from None
        try:
            if values["version"] != _VERSION:
                raise InvalidArgumentError(
                    f"'{path}' has version {values['version']!r}; this rabbet reads {_VERSION}"
                )
            recipe = Recipe(folder, values)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataLossError(f"'{path}' is damaged: {error!r}") from None
        return recipe

    def check_model(self) -> None:
        """That the model is still the one of the other plans."""
        beside = os.path.dirname(self.model)
        for name, digest in self.files.items():
            path = os.path.join(beside, name)
            if not os.path.exists(path):
                raise NotFoundError(
                    f"'{path}' is missing, from which the plans of '{self.folder}' are built"
                )
            if _digest(path) != digest:
                raise DataLossError(
                    f"'{path}' is not the file from which the other plans of '{self.folder}' "
                    "were built (its SHA-256 differs): give a changed model its own folder"
                )

    def plugin_options(self, plugins: Sequence[str]) -> list[str]:
        return [word for name in plugins for word in ("--plugins", name)]


def _plain(value: Any) -> Any:
    """For JSON: arrays and NumPy's numbers."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"a value of {type(value)!r} cannot be kept in {RECIPE}")


def _write_recipe(model: Any, folder: str, kept: Mapping[str, Any]) -> Recipe:
    """Keeps the model, and writes build.json; an equal one may be there."""
    import json

    source = _Source(model, folder)
    values = {
        "version": _VERSION,
        "model": os.path.relpath(source.path, folder),
        "files": source.files,
        **kept,
    }
    path = os.path.join(folder, RECIPE)
    try:
        text = json.dumps(values, indent=2, sort_keys=True, default=_plain) + "\n"
    except TypeError as error:
        raise InvalidArgumentError(f"plans of a folder: {error}") from None
    if os.path.exists(path):
        with open(path, "rb") as file:
            old = file.read()
        if old != text.encode():
            raise AlreadyExistsError(
                f"'{path}' tells of another model or of other options; all plans of a folder "
                "are of one model: take another folder, or remove this one"
            )
    source.keep()
    _rabbet.write_file(path, text.encode())
    return Recipe.read(folder)


# ---- Kinds -------------------------------------------------------------------------


def _gpus() -> Iterator[tuple[str, Target]]:
    with contextlib.suppress(Error):
        for number in range(64):
            name = f"cuda:{number}"
            yield name, Target("cuda", _rabbet.device_signature(name))


def _place(kind: str) -> tuple[str, str, bool]:
    """(device, kind, whether a process with fewer instructions is needed) for a kind that
    was asked for: "cpu", "cuda", "cuda:1", "avx2", "sm_90"."""
    if kind.startswith("cuda") or kind == "cpu":
        return kind, devices(kind)[0][0].kind, False
    cpu = devices("cpu")[0][0]
    if kind == cpu.kind:
        return "cpu", kind, False
    if kind in lower_kinds(cpu.kind):
        return "cpu", kind, True
    gpus = dict(_gpus()) if kind.startswith("sm_") else {}
    for name, target in gpus.items():
        if target.kind == kind:
            return name, kind, False
    can = [cpu.kind, *lower_kinds(cpu.kind), *(target.kind for target in gpus.values())]
    raise UnavailableError(
        f"no plan for '{kind}' can be built here: kernels are chosen by running them, and this "
        f"machine runs {', '.join(can)}. Build it where that is, with `rabbet build --for "
        f"{kind}`, or let rabbet.load(folder, build=True) build it there"
    )


# ---- Building ----------------------------------------------------------------------


@contextlib.contextmanager
def locked(folder: str, kind: str, logger: ILogger) -> Iterator[None]:
    """Holds the folder's lock for a kind, which ends with the process at the latest."""
    path = os.path.join(folder, f".{kind}.lock")
    try:
        file = _open_lock(path)
    except OSError as error:
        error.add_note(f"'{folder}' needs a lock to build a plan for {kind}")
        raise
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.log(
                Severity.INFO, f"{folder}: another process builds for {kind}, waiting for it"
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # a file system that has no locks
            logger.log(
                Severity.WARNING,
                f"{folder}: {error.strerror}: several processes may build for {kind}",
            )
        yield
    finally:
        with contextlib.suppress(OSError):  # at once, though a fork may have the file open
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _open_lock(path: str) -> int:
    """Opens a file to lock; follows no link, and takes those of other users too."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:
        with contextlib.suppress(OSError):
            return os.open(path, flags | os.O_RDONLY)
        raise


def _run(words: list[str], **environment: str) -> None:
    """Runs this Python in another process, with the same modules."""
    import subprocess

    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", *words],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise Error(f"a build failed (exit code {done.returncode}): {done.stderr.strip()}")
    sys.stderr.write(done.stderr)  # warnings


_WORKER = "import rabbet._plan_builds as b; b.build_in_this_process()"


def build_in_this_process() -> None:
    """Builds what the command line says, in a process with fewer instructions."""
    import json

    folder, kind, extra, *plugins = sys.argv[1:]
    try:
        build_kind(Recipe.read(folder), kind, plugins, json.loads(extra), Logger())
    except (Error, OSError) as error:
        sys.exit(str(error))


def build_kind(
    recipe: Recipe, kind: str, plugins: Any, extra: Mapping[str, Any], logger: ILogger
) -> str:
    """Builds one plan; returns its path. The caller has the lock.

    extra: options of compile() for this build alone, such as timing_cache."""
    import json

    device, kind, lower = _place(kind)
    path = os.path.join(recipe.folder, f"{kind}.plan")
    old = None
    with contextlib.suppress(OSError, Error):  # none, or a damaged one
        old = target_of(path)
    if old is not None and old.kind != kind:
        raise AlreadyExistsError(f"'{path}' is a plan for {old}, not for {kind}; rename it")
    recipe.check_model()
    names = plugin_names(plugins)
    limit = {"ONEDNN_MAX_CPU_ISA": kind.upper()} if lower else {}
    if recipe.command is not None:
        cache = ["--timing-cache", os.fspath(extra["timing_cache"])] if extra else []
        _run(
            ["-m", "rabbet._cli", "build", recipe.model, "--output", path, "--device", device,
             "--quiet", *recipe.command, *cache, *recipe.plugin_options(names)],
            **limit,
        )  # fmt: skip
    elif lower:
        given = {key: os.fspath(value) for key, value in extra.items()}
        _run(["-c", _WORKER, recipe.folder, kind, json.dumps(given), *names], **limit)
    else:
        options = {"logger": logger, "plugins": plugins, **recipe.options, **extra}
        build_model(recipe.model, device=device, save=path, **options)
    found = target_of(path)
    if found.kind != kind:
        raise UnsupportedError(f"'{path}' became a plan for {found}, not for {kind}")
    return path


def build_missing(
    folder: Folder, load: Callable[[str], Any], plugins: Any, logger: ILogger
) -> Any:
    """The engine of the plan for this machine: at once, after another process has built
    it, or after this one has."""
    found = folder.take(load, exact=True)
    if found is not None:
        return found
    recipe = Recipe.read(folder.path)
    kind = folder.machine[0].kind
    with locked(folder.path, kind, logger):
        found = folder.take(load, exact=True)
        if found is None:
            logger.log(Severity.INFO, f"{folder.path}: building a plan for {kind}")
            build_kind(recipe, folder.asked or kind, plugins, {}, logger)
            found = folder.take(load, exact=True)
    if found is None:
        raise folder.none_fits()
    return found


def _kinds_of(kinds: str | Sequence[str]) -> list[str]:
    words = kinds.split(",") if isinstance(kinds, str) else list(kinds)
    names = [word.strip() for word in words]
    if not names or not all(names):
        raise InvalidArgumentError(f"kinds are {kinds!r}; expected such as 'cpu,avx2,sm_90'")
    places = [_place(name) for name in names]  # all, before the first build
    return list(dict.fromkeys(
        name if name.startswith("cuda") else kind
        for name, (_, kind, _) in zip(names, places, strict=True)
    ))  # fmt: skip


def build_all(
    model: Any,
    folder: str,
    kinds: str | Sequence[str],
    kept: Mapping[str, Any],
    plugins: Any,
    extra: Mapping[str, Any],
    logger: ILogger,
) -> list[str]:
    """Builds a plan for each kind; returns their paths."""
    names = _kinds_of(kinds)
    folder = os.path.realpath(folder)
    os.makedirs(folder, exist_ok=True)
    with locked(folder, "recipe", logger):
        recipe = _write_recipe(model, folder, kept)
    paths = []
    for name in names:
        with locked(folder, _place(name)[1], logger):
            paths.append(build_kind(recipe, name, plugins, extra, logger))
    return paths


@checks_arguments
def build_plans(
    model: Any,
    folder: File,
    kinds: str | Sequence[str] = "cpu",
    *,
    plugins: Any = None,
    timing_cache: File | None = None,
    logger: ILogger | None = None,
    **options: Any,
) -> list[str]:
    """Builds plans of one model for several kinds of machines into a folder, from which
    rabbet.load takes the one that fits. Returns their paths.

    The folder keeps what other machines need to build theirs: build.json, and a copy of
    the model unless it lies in the folder or beside it. Plans of these kinds that are there
    are built anew.

    model: path of an ONNX file, its bytes, or an onnx.ModelProto.
    kinds: list, or text with commas, of "cpu" and "cuda" (or "cuda:1"), which are this
        machine's; instruction sets that this CPU has, such as "avx2" or "avx512_core";
        architectures of this machine's GPUs, such as "sm_90". Others cannot be built here.
    plugins: as for compile. They are not kept, and must be named to load(), too. For
        another instruction set a new process imports them.
    timing_cache: as for compile.
    logger: as for compile.
    options: those of compile that all plans of the folder share: shapes, values, profiles,
        threads, fp16, bf16, double, tf32, workspace, tactic_memory, optimization_level,
        keep_plugins, try_plugins.
    """
    for name in options:
        if name not in _OPTIONS:
            raise InvalidArgumentError(
                f"build_plans has no option '{name}'; it has {', '.join(sorted(_OPTIONS))}"
            )
    extra = {} if timing_cache is None else {"timing_cache": os.path.abspath(timing_cache)}
    return build_all(
        model, os.fspath(folder), kinds, {"options": options}, plugins, extra,
        logger or Logger(),
    )  # fmt: skip

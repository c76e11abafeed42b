"""One use of a plugin that is a class, V3 or V2: the engine's calls in builds and
loads."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, cast

from .. import _rabbet
from .._enums import DataType, TensorFormat, TensorRTPhase
from .._errors import PluginError
from .._numbers import CAPTURE, RUNS
from ._calls import Caller, class_name
from ._exprs import Range
from ._formats import Choice, choices, search, shown

DescribedInput = tuple[DataType, tuple[int, ...], "tuple[int, ...] | None"]
QueryTensor = tuple[DataType, TensorFormat, Any, Any, Any, Any]
View = tuple[DataType, TensorFormat, tuple[int, ...]]
# Function, leading arguments, descriptors of inputs and of outputs, numbers of the
# inputs, arguments in place of the workspace, function to call at the end, text for
# errors, rabbet_plugin_capture_t, workspace size in bytes (plugin_class.c).
Bound = tuple[
    Callable[..., Any],
    tuple[Any, ...],
    tuple[Any, ...],
    tuple[Any, ...],
    tuple[int, ...],
    "tuple[Any, ...] | None",
    "Callable[[], None] | None",
    str,
    int,
    int,
]

# Rabbet's own attributes in a plan, next to the plugin's.
SHAPE_INPUTS = "rabbet.shape_inputs"
WORKSPACE = "rabbet.workspace"
METADATA = "rabbet.metadata"


class ClassInstance:
    """A plugin of a class in a layer, or in a step of a plan."""

    is_class: ClassVar[bool] = True
    layer_class: ClassVar[Any] = None
    phase: TensorRTPhase

    def __init__(self, plugin: Any, layer: str | None, shape_inputs: int) -> None:
        self.plugin, self.shape_inputs = plugin, shape_inputs
        self.calls = Caller(layer)
        self.output_count = 0
        self._ranges: list[Range] | None = None
        self._metadata: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Name, version and namespace of its creator."""
        raise NotImplementedError

    # ---- Which inputs ----

    def _count_outputs(self, owner: Any) -> int:
        """Attribute num_outputs of its owner."""
        count = self.calls.attribute(owner, "num_outputs")
        if count < 1:
            raise PluginError(
                f"layer '{self.calls.layer}': {type(owner).__name__}.num_outputs is "
                f"{count}; a plugin has at least one output"
            )
        return int(count)

    def _creator_of(self, owner: Any, name: str) -> tuple[str, str, str]:
        """Name, version and namespace; `name` is the attribute that holds the name."""
        names = (name, "plugin_version", "plugin_namespace")
        first, version, namespace = (
            self.calls.attribute(owner, attribute) for attribute in names
        )
        return first, version, namespace

    def _is_shape(self, index: int) -> bool:
        return bool(self.shape_inputs >> index & 1)

    def _numbers(self, count: int) -> tuple[int, ...]:
        """Indices of the inputs that are not shape inputs."""
        return tuple(i for i in range(count) if not self._is_shape(i))

    def _seen(self, tensors: Sequence[Any], num_inputs: int) -> tuple[list[Any], int]:
        """Tensors without shape inputs, and the number of inputs among them."""
        numbers = self._numbers(num_inputs)
        seen = [tensors[i] for i in numbers] + list(tensors[num_inputs:])
        return seen, len(numbers)

    # ---- Types and formats ----

    def _begin(self, device: str) -> None:
        """Begins a build. A class may restrict its device: device = "cpu" or "cuda"."""
        wanted = getattr(self.plugin, "device", None)
        if wanted is not None and wanted != device:
            raise PluginError(
                f"layer '{self.calls.layer}': plugins of class "
                f"{class_name(self.plugin)} run on '{wanted}' (its attribute `device`), "
                f"and this is '{device}'"
            )

    def combinations(
        self, device: str, tensors: Sequence[QueryTensor], num_inputs: int
    ) -> list[list[tuple[int, int]]]:
        """Supported combinations, each a (type, format) for each tensor."""
        seen, inputs = self._seen(tensors, num_inputs)
        if self.phase is TensorRTPhase.RUNTIME:
            return self._combination_of_plan(tensors, seen, inputs)
        self._begin(device)
        self._ranges = [tensor[2:] for tensor in seen]
        options = [choices(t[0], len(t[2])) for t in seen]
        accepts = self._accepts(seen, inputs)
        found, deepest = search(options, accepts, self._limit())
        if not found:
            self.calls.fail(
                self._asked(),
                "supports_format_combination",
                f"it accepts no combination: for pos {deepest} it returned False for "
                f"every type and format ({shown(options[deepest])}); the network's "
                f"types are {', '.join(t[0].name for t in seen)}",
            )
        rows = []
        for chosen in found:
            outputs: Iterator[Any] = iter(chosen)
            rows.append(
                [
                    (int(t[0]), int(TensorFormat.LINEAR))
                    if i < num_inputs and self._is_shape(i)
                    else cast(tuple[int, int], tuple(map(int, next(outputs))))
                    for i, t in enumerate(tensors)
                ]
            )
        return rows

    def _combination_of_plan(
        self, tensors: Sequence[QueryTensor], seen: list[QueryTensor], inputs: int
    ) -> list[list[tuple[int, int]]]:
        """The plan's types and formats, if the class supports them. Objects without a
        build capability cannot be queried."""
        if self._asked() is not None:
            accepts = self._accepts(seen, inputs)
            chosen: list[Choice] = [(t[0], t[1]) for t in seen]
            if not all(accepts(pos, chosen) for pos in range(len(chosen))):
                return []
        return [[(int(t[0]), int(t[1])) for t in tensors]]

    def _accepts(
        self, tensors: list[QueryTensor], inputs: int
    ) -> Callable[[int, list[Choice]], bool]:
        """Calls supports_format_combination; entries after `pos` are not decided yet."""
        plugin = self._asked()
        where = "supports_format_combination"
        supports = self.calls.find(plugin, where)

        def accepts(pos: int, chosen: list[Choice]) -> bool:
            given = [
                self._query_desc(*(chosen[i] if i <= pos else t[:2]), t[2:])
                for i, t in enumerate(tensors)
            ]
            try:
                answer = supports(pos, given, inputs)
            except Exception as error:
                self.calls.note(error, plugin, where)
                error.add_note(f"for pos {pos}, asked for {shown(chosen)}")
                raise
            if answer is None or (not isinstance(answer, (bool, int)) and not hasattr(
                answer, "__bool__"
            )):
                self.calls.fail(
                    plugin,
                    where,
                    f"it returned {answer!r} for pos {pos}; expected True or False",
                )
            return bool(answer)

        return accepts

    def _asked(self) -> Any:
        """The object to query for combinations; None if there is none."""
        return self.plugin

    def _limit(self) -> int:
        return 100

    def _query_desc(
        self, dtype: DataType, format_: TensorFormat, extent: Range
    ) -> Any:
        raise NotImplementedError

    # ---- Running ----

    def _bound(
        self,
        owner: Any,
        ins: tuple[Any, ...],
        outs: tuple[Any, ...],
        numbers: tuple[int, ...],
        *,
        workspace: int,
        extra: tuple[Any, ...] | None,
        release: Callable[[], None],
        declared: Any,
    ) -> Bound:
        function: Any = self.calls.find(owner, "enqueue")
        first: tuple[Any, ...] = ()
        # A plain method is called as a function, which costs less than a bound method.
        if isinstance(function, types.MethodType):
            function, first = function.__func__, (function.__self__,)
        capturable = getattr(declared, "capturable", None)
        if capturable not in (None, True, False):
            raise PluginError(
                f"{class_name(declared)}.capturable is {capturable!r}; it is True, False, "
                "or left out (then recording calls into CUDA graphs is tried)"
            )
        label = f"in {self.calls.where(owner, 'enqueue')}"
        return (
            function,
            first,
            ins,
            outs,
            numbers,
            extra,
            release,
            label,
            CAPTURE[capturable],
            workspace,
        )

    # ---- Kernels made ahead of time ----

    def kinds(self, device: str) -> int:
        """Ways to run: bits RABBET_PLUGIN_..."""
        return RUNS

    def launches(
        self,
        builder: _rabbet.DimBuilder,
        device: str,
        tensors: Sequence[QueryTensor],
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
        tactic: int,
    ) -> Any:
        """Is never called."""
        raise PluginError(f"{class_name(self.plugin)} makes no kernels ahead of time")

    # ---- The inspector ----

    def metadata(self) -> str | None:
        """Text for the inspector."""
        return self._metadata


def destroy(calls: Caller, plugin: Any) -> None:
    """Releases a plugin object."""
    if calls.has(plugin, "destroy"):
        calls.call(plugin, "destroy")


def origin(thing: Any) -> str:
    """The file of a class, or its module where it has none."""
    module = sys.modules.get(type(thing).__module__)
    return getattr(module, "__file__", None) or type(thing).__module__


def source_digest(thing: Any) -> bytes:
    """Stands for the code of a class: its file's, or its name."""
    import hashlib

    digest = hashlib.sha256(f"{type(thing).__module__}.{type(thing).__qualname__}".encode())
    try:
        with open(origin(thing), "rb") as file:
            digest.update(file.read())
    except OSError:
        pass
    return digest.digest()


def combination(tensors: Sequence[Any]) -> tuple[Choice, ...]:
    """Key of the types and formats of tensors."""
    return tuple((tensor[0], tensor[1]) for tensor in tensors)

"""Entries of the catalogue: architectures, their inputs and the sizes these take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Dims = Mapping[str, tuple[int, int, int]]
"""Least, usual and largest value of each dimension that may vary, by name."""


@dataclass(frozen=True)
class Input:
    """An input of a model.

    shape: integers, and expressions of the names in `Entry.dims` ("batch",
        "past + sequence").
    kind: a key of `zoo.feeds.KINDS`; it gives the values and their type.
    high: where the kind draws integers, they are below it.
    """

    name: str
    shape: tuple[int | str, ...]
    kind: str = "normal"
    high: int = 100


@dataclass(frozen=True)
class Entry:
    """An architecture of one library.

    make: creates the module. It imports the library, so that a catalogue can be
        read where that is not installed.
    call: called with the module and the inputs' tensors; default: the module is
        called with the tensors in order.
    """

    library: str
    name: str
    make: Callable[[], Any]
    inputs: Sequence[Input]
    dims: Dims = field(default_factory=dict)
    call: Callable[..., Any] | None = None
    fallback: Callable[[], Any] | None = None

    @property
    def key(self) -> str:
        return f"{self.library}/{self.name}"


FORMS = ("ts-fixed", "ts-dynamic", "dynamo-fixed", "dynamo-dynamic")
"""Exporter (TorchScript's, at opset 17, or torch.export's) and sizes."""


def usual_forms(key: str) -> tuple[str, str]:
    """The two forms that an architecture is exported in unless others are asked for. The
    second depends on the name alone."""
    even = sum(key.encode()) % 2 == 0
    return "ts-dynamic", "dynamo-dynamic" if even else "dynamo-fixed"


def image(
    size: int, channels: int = 3, name: str = "x", varying: bool = False
) -> Input:
    """A batch of images; with `varying`, of heights and widths in 32nds."""
    if varying:
        return Input(name, ("batch", channels, "32 * height", "32 * width"))
    return Input(name, ("batch", channels, size, size))


BATCH: Dims = {"batch": (1, 2, 4)}


def image_dims(size: int) -> Dims:
    """Dimensions of `image(size, varying=True)`."""
    cells = size // 32
    low = max(1, cells - 1)
    return {
        **BATCH,
        "height": (low, cells, cells + 1),
        "width": (low, cells, cells + 2),
    }

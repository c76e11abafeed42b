"""The architectures, a file for each library."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache

from ..entries import Entry

_FILES = {
    "torchvision": ["from_torchvision"],
    "timm": ["from_timm"],
    "transformers": [
        "transformers_text",
        "transformers_vision",
        "transformers_mixed",
    ],
    "diffusers": ["from_diffusers"],
    "ultralytics": ["from_ultralytics"],
    "torch": ["control_flow"],
}
LIBRARIES = tuple(_FILES)


def installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


@cache
def entries() -> dict[str, Entry]:
    """All architectures by key."""
    found: dict[str, Entry] = {}
    for files in _FILES.values():
        for file in files:
            for entry in importlib.import_module(f"{__name__}.{file}").ENTRIES:
                assert entry.key not in found, f"{entry.key} is there twice"
                found[entry.key] = entry
    return found

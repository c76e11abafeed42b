"""Small files of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def stem(key: str, form: str, kind: str) -> str:
    """Name of the files of an export, without the ending."""
    return f"{key.replace('/', '.')}.{form}.{kind}"


def write_json(path: Path, value: Any) -> None:
    """Writes a file atomically: a reader never sees a part of it."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value, indent=1))
    temporary.replace(path)

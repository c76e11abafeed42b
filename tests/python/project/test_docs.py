"""The documents say what is so: blocks marked `<!-- run -->` run, in order and in one
namespace; quoted messages are those that Rabbet gives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.python.plugins.plugin_mistakes import MISTAKES

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("RABBET_BUILD") or ROOT / "build")
MARKED = re.compile(r"^<!-- run -->\n```python\n(.*?)^```$", re.M | re.S)
DOCUMENTS = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    if "<!-- run -->" in path.read_text()
)


def test_there_are_marked_blocks() -> None:
    assert ROOT / "docs" / "plugins.md" in DOCUMENTS


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_marked_blocks(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if path.stem == "torch":
        pytest.importorskip("torch")
        pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    blocks = list(MARKED.finditer(text))
    assert len(blocks) == text.count("<!-- run -->")
    module = types.ModuleType(f"document_{path.stem}")
    for block in blocks:
        # In its place, so that a traceback names the document's line.
        lines = text[: block.start(1)].count("\n")
        code = compile("\n" * lines + block[1], str(path), "exec")
        exec(code, module.__dict__)


def _documented() -> list[str]:
    text = (ROOT / "docs/plugins.md").read_text().split("## Mistakes people make")[1]
    rows = re.findall(r"^\| .*? \| (`+)(.*?)\1 \| .*? \|$", text, re.M)
    return [message.replace("\\|", "|") for _, message in rows]


def _matches(message: str, error: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in message.split("…"))
    return re.fullmatch(pattern.strip(), error.strip(), re.S) is not None


def check_quoted(quoted: list[str], mistakes: list[Any]) -> None:
    """Each mistake has one of the quoted errors, and each of these a mistake."""
    errors: dict[str, str] = {}
    for mistake in mistakes:
        try:
            mistake()
        except Exception as error:
            errors[mistake.__name__] = str(error)
    assert [m.__name__ for m in mistakes if m.__name__ not in errors] == []
    unknown = [m for m in quoted if not any(_matches(m, e) for e in errors.values())]
    assert not unknown, "\n".join([*unknown, "", *errors.values()])
    silent = {n: e for n, e in errors.items() if not any(_matches(m, e) for m in quoted)}
    assert not silent


def test_the_mistakes_have_the_errors_that_are_quoted() -> None:
    documented = _documented()
    check_quoted(documented, MISTAKES)
    assert len(documented) > 50


def _anchors(text: str) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bench/README.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "THIRD_PARTY_NOTICES.md")),
    *(path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md")),
    *(ROOT / "tests").glob("*/README.md"),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", path.read_text()):
        page = path.parent / target if target else path
        assert page.exists(), f"{path}: {target}"
        if anchor:
            assert anchor in _anchors(page.read_text()), f"{path}: {target}#{anchor}"


@pytest.mark.parametrize("tool", ["onnx_operators.py", "operators.py"])
def test_written_files_are_up_to_date(tool: str) -> None:
    found = subprocess.run(
        [sys.executable, ROOT / "tools" / tool], capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_libraries_hold_no_documentation_of_operators() -> None:
    texts = re.findall(r'"([^"]{30,})"', (ROOT / "src/ops/ops.def").read_text())
    libraries = list((BUILD / "lib").glob("librabbet*.so*"))
    assert len(texts) > 100
    assert libraries
    for library in libraries:
        content = library.read_bytes()
        assert [text for text in texts if text.encode() in content] == []

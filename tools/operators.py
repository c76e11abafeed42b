"""Writes what follows from the catalogue of operators.

    python tools/operators.py            fails where a file is out of date
    python tools/operators.py --update   writes them

The catalogue is src/ops/: the built command tells it (`rabbet ops --json`; $RABBET_BUILD is
the build's folder, build/ if it is not set), docs.def the texts. Written are:

    python/rabbet/_operator_enums.py   enumerations of attributes
    python/rabbet/_layers.py           layers, with attributes as properties

Enumerations, their members, layers and properties are those that TensorRT has, too
(docs/reference/names.tsv). What differs from an attribute's plain value is written by hand,
in python/rabbet/_layer_parts.py: a class _Fill there is the base of IFillLayer, and its
properties are left out here.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "rabbet"
WIDTH = 88

_WRITTEN = '"""{}\n\nWritten by tools/operators.py from src/ops; not edited by hand."""'


class Enumeration(NamedTuple):
    """Its text, and texts by value."""

    doc: str
    values: dict[str, str]


# ---- What is known ---------------------------------------------------------


def catalogue() -> list[dict[str, Any]]:
    """The operators, as the command tells them."""
    build = Path(os.environ.get("RABBET_BUILD") or ROOT / "build")
    done = subprocess.run(
        [build / "bin" / "rabbet", "ops", "--json"], capture_output=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for op in found:
        for what in (op, *op["attributes"]):
            if not what["doc"]:
                raise ValueError(f"docs.def lacks '{what['name']}' of '{op['name']}'")
    return found


def enumerations() -> dict[str, Enumeration]:
    """Those of docs.def."""
    found: dict[str, Enumeration] = {}
    text = (ROOT / "src/ops/docs.def").read_text()
    row = r"^RABBET_(ENUM|VALUE)_DOC\((\w+),((?:\s*\"(?:[^\"\\]|\\.)*\")+)\)"
    for kind, name, literals in re.findall(row, text, re.M):
        doc = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')
        if kind == "ENUM":
            found[name] = Enumeration(doc, {})
        else:
            found[list(found)[-1]].values[name] = doc
    return found


def tensorrt() -> dict[str, dict[str, str]]:
    """Members of TensorRT's classes with details: numbers of enumerations."""
    found: dict[str, dict[str, str]] = {}
    for line in (ROOT / "docs/reference/names.tsv").read_text().splitlines()[1:]:
        owner, member, _, more = line.split("\t")
        found.setdefault(owner, {})[member] = more
    return found


# ---- Text ------------------------------------------------------------------


def _wrapped(text: str, first: str, rest: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


def _docstring(text: str) -> str:
    if len(text) + 10 <= WIDTH:
        return f'    """{text}"""'
    return _wrapped(f'"""{text}"""', " " * 4, " " * 4)


def _call(name: str, function: str, arguments: list[str], after: str = "") -> str:
    """An assignment as the formatter writes it."""
    line = f"    {name} = {function}({', '.join(arguments)}){after}"
    if len(line) <= WIDTH:
        return line
    inner = " " * 8 + ", ".join(arguments)
    if len(inner) <= WIDTH:
        return f"    {name} = {function}({after}\n{inner}\n    )"
    lines = "".join(f"        {argument},\n" for argument in arguments)
    return f"    {name} = {function}({after}\n{lines}    )"


def _literal(text: str) -> str:
    """A str in lines that are short enough."""
    lines = textwrap.wrap(text, WIDTH - 15, break_on_hyphens=False)
    quoted = [json.dumps(line + " " * (line is not lines[-1])) for line in lines]
    return "\n        ".join(quoted)


# ---- Enumerations ----------------------------------------------------------


def _enumeration(name: str, known: Enumeration, members: dict[str, str]) -> str:
    lines = [f"class {name}(_Enum):", _wrapped(f'"""{known.doc}', "    ", "    "), ""]
    for member in members:
        if member not in known.values:
            raise ValueError(f"docs.def lacks value '{member}' of '{name}'")
        lines.append(_wrapped(f"{member}: {known.values[member]}", " " * 4, " " * 8))
    lines += ['    """', ""]
    lines += [f"    {member} = {number}" for member, number in members.items()]
    return "\n".join(lines)


def enums_module() -> str:
    """python/rabbet/_operator_enums.py."""
    names, known = tensorrt(), enumerations()
    shown = sorted((name for name in known if name in names), key=str.lower)
    classes = []
    for name in shown:
        members = {key: number for key, number in names[name].items() if key}
        classes.append(_enumeration(name, known[name], members))
    return "\n\n\n".join(
        [
            _WRITTEN.format("Enumerations of operators' attributes.")
            + "\n\nfrom __future__ import annotations\n\nfrom ._enum import _Enum",
            *classes,
            _all(shown),
        ]
    )


def _all(names: list[str]) -> str:
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


# ---- Layers ----------------------------------------------------------------


def _parts() -> dict[str, tuple[list[str], set[str]]]:
    """Classes of _layer_parts.py: (bases, members)."""
    tree = ast.parse((PACKAGE / "_layer_parts.py").read_text())
    found: dict[str, tuple[list[str], set[str]]] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        members = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
        for line in node.body:
            if isinstance(line, ast.Assign):
                members |= {t.id for t in line.targets if isinstance(t, ast.Name)}
        found[node.name] = [b.id for b in node.bases if isinstance(b, ast.Name)], members
    return found


def _by_hand(parts: dict[str, tuple[list[str], set[str]]], name: str) -> set[str]:
    bases, members = parts.get(name, ([], set()))
    return members.union(*(_by_hand(parts, base) for base in bases))


_PLAIN = {
    "int": "_number",
    "float": "_float",
    "bool": "_flag",
    "string": "_text",
    "list of ints": "_dims",
    "list of floats": "_floats",
}


def _property(attr: dict[str, Any]) -> str:
    name, meaning, doc = attr["name"], attr["meaning"], _literal(attr["doc"])
    arguments = [json.dumps(name), doc]
    if meaning == "Spatial":
        function, arguments = "_Spatial", [arguments[0], str(attr["default"]), doc]
    elif meaning == "Permutation":
        function = "_order"
    elif meaning:
        function, arguments = "_choice", [arguments[0], f"e.{meaning}", doc]
    else:
        function = _PLAIN[attr["type"]]
    # ILayer has a property `type`, too.
    after = "  # type: ignore[assignment]" if name == "type" else ""
    return _call(name, function, arguments, after)


def _layer(op: dict[str, Any], name: str, members: dict[str, str]) -> str:
    parts = _parts()
    base = f"_{name[1:-5]}"
    by_hand = _by_hand(parts, base)
    doc = op["doc"]
    inputs = [one["name"] for one in op["inputs"]]
    if len(inputs) > 1:
        doc += f" Inputs: {', '.join(inputs)}."
    lines = [
        f"class {name}({base if base in parts else 'ILayer'}):",
        _docstring(doc),
        "",
        "    __slots__ = ()",
        f"    _type = e.LayerType.{op['name'].upper()}",
    ]
    for attr in op["attributes"]:
        if attr["name"] in members and attr["name"] not in by_hand:
            lines.append(_property(attr))
    return "\n".join(lines)


def _layers() -> Iterator[tuple[dict[str, Any], str, dict[str, str]]]:
    """(operator, class, its members) of layers that are an operator's."""
    names = tensorrt()
    classes = {name.lower(): name for name in names}
    for op in catalogue():
        name = classes.get(f"i{op['name'].replace('_', '')}layer")
        if name and names[name].get("") == "ILayer":
            yield op, name, names[name]


def layers_module() -> str:
    """python/rabbet/_layers.py."""
    found = list(_layers())
    body = "\n\n\n".join(_layer(*one) for one in found)
    helpers = {*re.findall(r" = (_\w+)\(", body), "LAYER_CLASSES", "ILayer"}
    bases = set(re.findall(r"^class \w+\((_\w+)\)", body, re.M))

    def imported(module: str, names: set[str]) -> str:
        lines = "".join(f"    {name},\n" for name in sorted(names, key=_import_order))
        return f"from .{module} import (\n{lines})"

    head = "\n".join(
        [
            _WRITTEN.format("Layers of a network: a class for each operator."),
            "\nfrom __future__ import annotations\n",
            "from . import _enums as e",
            imported("_layer", helpers),
            imported("_layer_parts", bases),
        ]
    )
    table = "".join(f'        "{op["name"]}": {name},\n' for op, name, _ in found)
    return "\n\n\n".join(
        [
            head,
            body,
            "LAYER_CLASSES.update(\n    {\n" + table + "    }\n)\n\n"
            + _all(sorted(name for _, name, _ in found)),
        ]
    )


def _import_order(name: str) -> tuple[int, str]:
    """Constants, classes, functions, as ruff sorts what is imported."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name.lower()


# ---- Files -----------------------------------------------------------------

FILES = {
    PACKAGE / "_operator_enums.py": enums_module,
    PACKAGE / "_layers.py": layers_module,
}


def main(arguments: list[str]) -> int:
    """Checks the files, or writes them with --update."""
    stale = 0
    for path, make in FILES.items():
        text = make()
        if "--update" in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is out of date: python tools/operators.py --update")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

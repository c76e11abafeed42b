"""Writes what follows from the catalogue of operators.

    python tools/operators.py            fails where a file is out of date
    python tools/operators.py --update   writes them

The catalogue is src/ops/: the built command tells it (`rabbet ops --json`; $RABBET_BUILD is
the build's folder, build/ if it is not set), ops.def the texts. Kernels are those of
src/device/kernels.def, ONNX operators those of which src/onnx makes the layer. Written are:

    python/rabbet/_enumerations.py   those of attributes, and others that TensorRT has
    python/rabbet/_layers/_layers.py layers, with attributes as properties
    docs/reference/operators.md      the page of operators
    src/cli/op_facts.def             kernels and ONNX operators, for the command

Enumerations, their members, layers and properties are those that TensorRT has, too
(docs/reference/names.tsv). What differs from an attribute's plain value is written by hand,
in python/rabbet/_layers/_layer_parts.py: a class _Fill there is the base of IFillLayer, and its
properties are left out here.
"""

from __future__ import annotations

import ast
import functools
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


@functools.cache
def catalogue() -> list[dict[str, Any]]:
    """The operators, from `rabbet ops --json`."""
    build = Path(os.environ.get("RABBET_BUILD") or ROOT / "build")
    done = subprocess.run(
        [build / "bin" / "rabbet", "ops", "--json"], capture_output=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for op in found:
        for what in (op, *op["attributes"]):
            if not what["doc"]:
                raise ValueError(f"ops.def lacks '{what['name']}' of '{op['name']}'")
    return found


def enumerations() -> dict[str, Enumeration]:
    """Those of ops.def."""
    found: dict[str, Enumeration] = {}
    text = (ROOT / "src/ops/ops.def").read_text()
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


@functools.cache
def kernels(device: str) -> dict[str, str]:
    """Formats of a device's kernels by operator: LINEAR or ANY."""
    text = (ROOT / "src/device/kernels.def").read_text()
    found: dict[str, str] = {}
    row = rf'^RABBET_{device.upper()}_KERNEL\(\w+, (LINEAR|ANY),\s*"([^"]*)"'
    for formats, ops in re.findall(row, text, re.M):
        for op in ops.split():
            found[op] = "ANY" if "ANY" in (formats, found.get(op)) else "LINEAR"
    return found


@functools.cache
def onnx_operators() -> dict[str, list[str]]:
    """ONNX operators by the operator that their import may make: those named in calls of
    their import functions, and of what these call. What index.c makes for itself, layers
    that compute shapes, is not counted; operators of other domains are not listed."""
    names = set(re.findall(r"RABBET_OP\(\w+, (\w+)", (ROOT / "src/ops/ops.def").read_text()))
    define = r"^(?:static )?[\w*]+[ *]+((?:rabbet_)?onnx_\w+)\([^;{}]*\) \{(.*?)^\}"
    bodies, home, table = {}, {}, []
    for path in sorted((ROOT / "src/onnx").rglob("*.c")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        table += re.findall(r"^ +RABBET_ONNX_(?:LIST_)?OP\((\w+),\s*(\w+)", text, re.M)
        for name, body in re.findall(define, text, re.M | re.S):
            bodies[name], home[name] = body, path.name

    def made(function: str, seen: set[str]) -> set[str]:
        if function in seen or function not in bodies:
            return set()
        seen.add(function)
        body = bodies[function]
        calls = re.findall(r'\b((?:rabbet_)?onnx_\w+)\(\s*&?\w+,\s*"(\w+)"', body)
        found = {op for call, op in calls if not re.search("attr|enumerator", call)}
        if home[function] != "index.c":
            for call in re.findall(r"\b(?:rabbet_)?onnx_\w+\b", body):
                found |= made(call, seen)
        return found & names

    by_op: dict[str, list[str]] = {}
    for onnx, function in table:
        for op in made(f"onnx_import_{function}", set()):
            by_op.setdefault(op, []).append(onnx)
    return {op: sorted(found) for op, found in by_op.items()}


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
    """An assignment in the layout of ruff's formatter."""
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


class Other(NamedTuple):
    """An enumeration of python/enumerations.txt; its members with number and text."""

    is_integer: bool
    doc: str
    members: dict[str, tuple[str, str]]


def others() -> dict[str, Other]:
    """Enumerations that are no operators'."""
    found: dict[str, Other] = {}
    numbers = tensorrt()
    row = r"^(  )?(\w+)( int)?(?: = (\d+))?: (.*)$"
    text = (ROOT / "python/enumerations.txt").read_text()
    for indent, name, is_integer, number, doc in re.findall(row, text, re.M):
        if not indent:
            found[name] = Other(bool(is_integer), doc, {})
            continue
        owner = list(found)[-1]
        known = number or numbers.get(owner, {}).get(name)
        if known is None:
            raise ValueError(f"enumerations.txt lacks the number of {owner}.{name}")
        found[owner].members[name] = (known, doc)
    return found


def _enumeration(name: str, base: str, doc: str, members: dict[str, tuple[str, str]]) -> str:
    lines = [f"class {name}({base}):", _wrapped(f'"""{doc}', "    ", "    "), ""]
    for member, (_, text) in members.items():
        lines.append(_wrapped(f"{member}: {text}", " " * 4, " " * 8))
    lines += ['    """', ""]
    lines += [f"    {member} = {number}" for member, (number, _) in members.items()]
    return "\n".join(lines)


# Enumerations with members that releases of TensorRT after names.tsv's have added.
_NEWER = {"CollectiveOperation"}


def _enumerators(name: str) -> dict[str, str]:
    """Numbers of an enumeration, from the attributes that it describes."""
    attributes = (attr for op in catalogue() for attr in op["attributes"])
    found = next(attr["values"] for attr in attributes if attr["meaning"] == name)
    return {key: str(number) for key, number in found.items()}


def _of_operators() -> dict[str, Other]:
    """Enumerations of ops.def that TensorRT has, with its members."""
    names, found = tensorrt(), {}
    for name, known in enumerations().items():
        if name not in names:
            continue
        numbers = {key: number for key, number in names[name].items() if key}
        if name in _NEWER:
            numbers |= _enumerators(name)
        lacking = numbers.keys() - known.values.keys()
        if lacking:
            raise ValueError(f"ops.def lacks values of '{name}': {sorted(lacking)}")
        members = {key: (number, known.values[key]) for key, number in numbers.items()}
        found[name] = Other(False, known.doc, members)
    return found


def enums_module() -> str:
    """python/rabbet/_enumerations.py."""
    known = {**_of_operators(), **others()}
    own = re.findall(r"^class (_\w+)", (PACKAGE / "_enum.py").read_text(), re.M)
    classes, bases = [], set()
    for name in sorted(known, key=str.lower):
        one = known[name]
        base = f"_{name}" if f"_{name}" in own else "_IntEnum" if one.is_integer else "_Enum"
        bases.add(base)
        classes.append(_enumeration(name, base, one.doc, one.members))
    return "\n\n\n".join(
        [
            '"""Enumerations, with the names and numbers of TensorRT 10.\n\n'
            "Written by tools/operators.py from src/ops and python/enumerations.txt; not\n"
            'edited by hand."""\n\nfrom __future__ import annotations\n\n'
            f"from ._enum import {', '.join(sorted(bases))}",
            *classes,
            _all(sorted(known, key=str.lower)),
        ]
    )


def _all(names: list[str]) -> str:
    names = sorted(names, key=_import_order)
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


# ---- Layers ----------------------------------------------------------------


def _parts() -> dict[str, tuple[list[str], set[str]]]:
    """Classes of _layer_parts.py: (bases, members)."""
    tree = ast.parse((PACKAGE / "_layers" / "_layer_parts.py").read_text())
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
    """python/rabbet/_layers/_layers.py."""
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
            "from .. import _enums as e",
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
    return kind, name.lower() if name[0] == "_" else name


# ---- Facts for the command -------------------------------------------------


def facts() -> str:
    """src/cli/op_facts.def."""
    cpu, cuda, onnx = kernels("cpu"), kernels("cuda"), onnx_operators()
    lines = [
        "// RABBET_OP_FACTS(operator, formats of kernels for the CPU, for CUDA, ONNX",
        "// operators). Written by tools/operators.py; not edited by hand.",
    ]
    for op in sorted({*cpu, *cuda, *onnx}):
        made = " ".join(onnx.get(op, []))
        texts = ", ".join(f'"{text}"' for text in (cpu.get(op, ""), cuda.get(op, "")))
        lines.append(f"RABBET_OP_FACTS({op}, {texts},")
        parts = textwrap.wrap(made, 70) or [""]
        quoted = [f'    "{part}{" " * (part is not parts[-1])}"' for part in parts]
        lines.append("\n".join(quoted) + ")")
    return "\n".join(lines) + "\n"


# ---- The page --------------------------------------------------------------

_INTRO = """# Operators

The operators of networks, as `rabbet ops` lists them, with operands, attributes and what they
stand for. Names and numbers are TensorRT's where it has the layer.
`python tools/operators.py --update` makes this page from `src/ops`.

- **Kernels**: devices with kernels of their own. They compute in the format LINEAR, those
  marked "any format" also in some with channels last or in blocks. On the CPU an operator
  without kernels is computed by its reference kernel. Kernels of several layers at once are
  not listed.
- **ONNX**: operators whose import may make the layer ([their table](onnx_operators.md)).
  Layers that only compute shapes are not counted.
- A **shape** input is one whose values the output's shape depends on. An output that is
  **hidden** is not the layer's: it says how many elements a run finds.
"""


def _table(head: str, rows: list[str]) -> list[str]:
    return ["", head, re.sub(r"[^|]+", "---", head), *rows] if rows else []


def _operands(kind: str, operands: list[dict[str, Any]]) -> list[str]:
    rows = []
    for i, one in enumerate(operands):
        marks = [mark for mark in ("optional", "shape", "hidden") if one[mark]]
        marks += ["one or more"] * one["variadic"]
        more = f" ({', '.join(marks)})" if marks else ""
        types = one["types"].replace(" ", ", ")
        rows.append(f"| {kind} {i} | `{one['name']}`{more} | {types} |")
    return rows


def _default(attr: dict[str, Any]) -> str:
    if attr["required"]:
        return "required"
    default = attr["default"]
    if attr["type"] == "bool":
        return "true" if default else "false"
    if default in ([], ""):
        return ""
    names = {number: name for name, number in attr.get("values", {}).items()}
    return names.get(default) or f"{default:g}" if default != "inf" else "infinity"


def _attribute(attr: dict[str, Any], known: dict[str, Enumeration]) -> str:
    kind, values = attr["meaning"] or attr["type"], attr.get("values", {})
    if kind in known and values.keys() >= known[kind].values.keys():
        values = {}
    if kind in known:
        kind = f"[{kind}](#{kind.lower()})"
    if values:
        kind += f": {', '.join(values)}"
    row = f"| `{attr['name']}` | {kind} | {_default(attr)} | {attr['doc']} |"
    return row.replace("|  |", "| |")


def _section(op: dict[str, Any], layer: str, known: dict[str, Enumeration]) -> list[str]:
    lines = [f"\n## {op['name']}\n", op["doc"] + (f" In Python `{layer}`." if layer else "")]
    operands = [*_operands("input", op["inputs"]), *_operands("output", op["outputs"])]
    lines += _table("| operand | name | types |", operands)
    attributes = [_attribute(attr, known) for attr in op["attributes"]]
    lines += _table("| attribute | type | default | |", attributes)
    words = {"ANY": " (any format)", "LINEAR": ""}
    found = {device: kernels(device).get(op["name"]) for device in ("cpu", "cuda")}
    devices = [d.upper() + words[formats] for d, formats in found.items() if formats]
    facts = {
        "Limits": op["limits"].rstrip("."),
        "Kernels": ", ".join(devices),
        "ONNX": ", ".join(onnx_operators().get(op["name"], [])),
    }
    for name, text in facts.items():
        if text:
            lines += ["", textwrap.fill(f"{name}: {text}.", 96)]
    return lines


def page() -> str:
    """docs/reference/operators.md."""
    known = enumerations()
    layers = {op["name"]: layer for op, layer, _ in _layers()}
    parts = [_INTRO.rstrip()]
    for op in catalogue():
        parts += _section(op, layers.get(op["name"], ""), known)
    numbers = _numbers(known)
    parts.append("\n## Enumerations")
    for name in sorted(known, key=str.lower):
        parts += [f"\n### {name}\n", known[name].doc]
        values = known[name].values.items()
        rows = [f"| {value} | {numbers[name][value]} | {doc} |" for value, doc in values]
        parts += _table("| value | number | |", rows)
    return "\n".join(parts) + "\n"


def _numbers(known: dict[str, Enumeration]) -> dict[str, dict[str, Any]]:
    """Of all values: TensorRT's, and those that attributes have."""
    found: dict[str, dict[str, Any]] = {name: {} for name in known}
    for name, members in tensorrt().items():
        found.get(name, {}).update(members)
    for op in catalogue():
        for attr in op["attributes"]:
            found.get(attr["meaning"], {}).update(attr.get("values", {}))
    return found


# ---- Files -----------------------------------------------------------------

FILES = {
    PACKAGE / "_enumerations.py": enums_module,
    PACKAGE / "_layers" / "_layers.py": layers_module,
    ROOT / "docs" / "reference" / "operators.md": page,
    ROOT / "src" / "cli" / "op_facts.def": facts,
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

"""The names of TensorRT's Python package (10.16) and Rabbet's answer to each.

docs/reference/names.tsv lists them: class, member, kind, and details (argument names,
an enumerator's number, base classes). This script looks each name up in the package and
writes docs/reference/names.md from what it finds.

    python tools/names.py            prints counts, and what is wrong
    python tools/names.py --update   writes docs/reference/names.md
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "reference" / "names.tsv"
PAGE = ROOT / "docs" / "reference" / "names.md"

WORKS, NO_EFFECT, REFUSED = "works", "no effect", "refused"


class Name(NamedTuple):
    """A row of the table."""

    owner: str  # class, "plugin" or "plugin.Class"; "" for the module
    member: str  # "" for the class itself
    kind: str
    detail: str
    says: str = ""

    def __str__(self) -> str:
        return ".".join(part for part in (self.owner, self.member) if part)


class WrongError(Exception):
    """A name exists, but differs from the table."""


def read() -> list[Name]:
    """All rows, without Rabbet's answers."""
    lines = TABLE.read_text().splitlines()[1:]
    return [Name(*line.split("\t")) for line in lines]


def _module(owner: str) -> tuple[Any, list[str]]:
    import rabbet
    import rabbet.plugin

    parts = owner.split(".") if owner else []
    if parts[:1] == ["plugin"]:
        return rabbet.plugin, parts[1:]
    return rabbet, parts


def _static(owner: Any, name: str) -> Any:
    """An attribute as it is written, without calling descriptors."""
    if not isinstance(owner, type):
        return vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    for base in (*owner.__mro__, type(owner)):
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(name)


def look_up(name: Name) -> tuple[Any, Any]:
    """The owner, and its attribute of that name; AttributeError if there is none."""
    owner, parts = _module(name.owner)
    for part in parts:
        owner = getattr(owner, part)
    if not name.member:
        return owner, owner
    if name.kind == "override" or name.member == "__buffer__":
        return owner, None  # what users write; and, before Python 3.12, has no name
    if name.member == "__iter__" and not hasattr(owner, "__iter__"):
        return owner, _static(owner, "__getitem__")  # iterates as sequences do
    return owner, _static(owner, name.member)


# ---- Checks, by kind


def _check_class(name: Name, owner: Any, found: Any) -> None:
    if not isinstance(found, type):
        raise WrongError(f"is {found!r}, no class")
    if name.detail == "enum":
        if not hasattr(found, "__members__"):
            raise WrongError("is no enumeration")
    elif name.detail and not name.detail[0].islower():
        for base in name.detail.split(", "):
            wanted = getattr(_module(name.owner)[0], base, None)
            if isinstance(wanted, type) and not issubclass(found, wanted):
                raise WrongError(f"does not derive from {base}")


def _check_value(name: Name, owner: Any, found: Any) -> None:
    value = getattr(owner, name.member)
    if name.detail.lstrip("-").isdigit():
        if int(value) != int(name.detail):
            raise WrongError(f"is {int(value)}, expected {name.detail}")
    elif str(value).rpartition(".")[2] != name.detail.rpartition(".")[2]:
        raise WrongError(f"is {value}, expected {name.detail}")


def _parameters(detail: str) -> tuple[list[str], dict[str, Any]]:
    """Names as (positional without a name, by keyword)."""
    positional, keywords = [], {}
    for item in detail.split(", ") if detail else []:
        if re.match(r"arg\d+\[", item) or " or " in item:
            positional.append(item)
        elif not item.startswith("*"):
            keywords[item.partition("=")[0]] = None
    return positional, keywords


def _check_call(name: Name, owner: Any, found: Any) -> None:
    called = getattr(owner, name.member, found) if name.member else owner
    if name.member == "__iter__":
        return
    if not callable(called):
        raise WrongError(f"is {called!r}, nothing to call")
    if name.kind == "constructor":
        called = owner
    try:
        signature = inspect.signature(called)
    except (ValueError, TypeError):
        if _parameters(name.detail)[1]:
            raise WrongError("does not tell the names of its arguments") from None
        return
    positional, keywords = _parameters(name.detail)
    if name.member.startswith("__") and name.kind == "method":  # called by syntax
        positional, keywords = [*positional, *keywords], {}
    bound = name.kind != "constructor" and isinstance(owner, type)
    if bound and not isinstance(found, (staticmethod, classmethod)):
        positional.insert(0, "self")
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        raise WrongError(f"{error}; its signature is {signature}") from None


def _check_property(name: Name, owner: Any, found: Any) -> None:
    if not isinstance(owner, type):
        if (
            name.detail
            and str(found).rpartition(".")[2] != name.detail.rpartition(".")[2]
        ):
            raise WrongError(f"is {found}, expected {name.detail}")
        return
    if callable(found) and not isinstance(found, (property, type)):
        raise WrongError("is a method")
    # Objects that plugins are handed are made by the engine alone.
    given = name.owner.startswith("plugin.")
    if (
        name.kind == "property"
        and not given
        and isinstance(found, property)
        and found.fset is None
    ):
        raise WrongError("can't be set")


_CHECKS = {
    "class": _check_class,
    "enum value": _check_value,
    "constructor": _check_call,
    "method": _check_call,
    "function": _check_call,
}


def check(name: Name, owner: Any, found: Any) -> None:
    """Raises WrongError if the attribute differs from the table."""
    if found is None and name.member:
        return
    if name.kind == "class" and "." in name.detail:  # another name of a class
        holder, _, member = name.detail.rpartition(".")
        if getattr(getattr(_module("")[0], holder), member) is not found:
            raise WrongError(f"is {found!r}, expected {name.detail}")
        return
    _CHECKS.get(name.kind, _check_property)(name, owner, found)


# ---- What we say


def mark(found: Any) -> tuple[str, str]:
    """A name's standing by its own marks: (standing, why)."""
    target = getattr(found, "fget", None) or getattr(found, "__func__", None) or found
    marked: tuple[str, str] | None = getattr(target, "_rabbet_mark", None)
    return marked or (WORKS, "")


def _class_mark(owner: Any, found: Any) -> tuple[str, str]:
    """A refused class has refused members."""
    if isinstance(owner, type) and "_rabbet_mark" in vars(owner):
        return mark(owner)
    return mark(found)


def _calls(name: str) -> bool:
    """Whether the package looks for a method that users define."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    folders = [(ROOT / "python/rabbet", "*.py"), (ROOT / "python/src", "*.c")]
    return any(
        word.search(path.read_text()) for top, ext in folders for path in top.rglob(ext)
    )


def judge(name: Name) -> tuple[str, str]:
    """(answer, reason) of the package as it is now; WrongError if the name differs from
    the table."""
    try:
        owner, found = look_up(name)
    except AttributeError:
        raise WrongError("is not there") from None
    check(name, owner, found)
    says, why = _class_mark(owner, found)
    if says == NO_EFFECT and "read-only" in name.kind:
        return WORKS, ""  # one value, and that is the right one
    if name.kind == "override" and says == WORKS and not _calls(name.member):
        raise WrongError("is never called")
    return says, why


# ---- The page

_INTRO = """# Names

Each name of TensorRT's Python package, version 10.16, and what it does here, under
`import rabbet as trt` and under the alias (`python -m rabbet.compat script.py`).
`python tools/names.py --update` makes this page from `docs/reference/names.tsv`. A test looks
every name up, with its kind, its arguments' names and its number.

- **works**: does what it says there;
- **no effect**: accepted, and without effect here, for the reason given. A build warns
  of flags that ask for what plans do not have; other settings that would need an effect
  are refused;
- **refused**: raises `UnsupportedError` (under the alias: logs and fails as TensorRT
  does) with the reason given.
"""


def _row(name: Name, says: str, why: str) -> str:
    label = f"`{name.member or name.owner}`"
    detail = f"`{name.detail}`" if name.detail else ""
    return f"| {label} | {name.kind} | {detail} | {says} | {why} |".replace(
        "|  |", "| |"
    )


def page(rows: list[tuple[Name, str]]) -> str:
    """The text of the page, from rows and reasons."""
    counts = Counter(name.says for name, _ in rows)
    parts = [_INTRO, "| says | names | share |\n|---|---|---|"]
    for says in (WORKS, NO_EFFECT, REFUSED):
        share = 100 * counts[says] / len(rows)
        parts.append(f"| {says} | {counts[says]} | {share:.1f} % |")
    parts.append(f"| all | {len(rows)} | 100 % |\n")
    owner: str | None = None
    whole = Counter((name.owner, name.says, why) for name, why in rows)
    sizes = Counter(name.owner for name, _ in rows)
    for name, why in rows:
        alike = whole[name.owner, name.says, why] == sizes[name.owner]
        if name.owner != owner:
            owner = name.owner
            parts.append(f"\n## {owner or 'Module'}\n")
            if alike and owner:
                members = ", ".join(
                    f"`{n.member}`" for n, _ in rows if n.owner == owner and n.member
                )
                because = f" ({why})" if why else ""
                parts.append(f"**{name.says}**{because}: {members or 'the class'}")
            else:
                parts.append(
                    "| name | kind | more | says | why |\n|---|---|---|---|---|"
                )
        if not alike or not owner:
            parts.append(_row(name, name.says, why))
    return "\n".join(parts) + "\n"


def judged() -> tuple[list[tuple[Name, str]], list[str]]:
    """All rows with the package's present answers and reasons, and the errors found."""
    rows, wrong = [], []
    for name in read():
        try:
            says, why = judge(name)
        except WrongError as error:
            wrong.append(f"{name} ({name.kind}): {error}")
            says, why = "wrong", str(error)
        rows.append((name._replace(says=says), why))
    return rows, wrong


def main(arguments: list[str]) -> int:
    """Prints the counts and the errors; writes the page with --update."""
    rows, wrong = judged()
    for line in wrong:
        print("wrong:", line)
    counts = Counter(name.says for name, _ in rows)
    print(", ".join(f"{says} {count}" for says, count in counts.most_common()))
    if "--update" in arguments:
        PAGE.write_text(page(rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

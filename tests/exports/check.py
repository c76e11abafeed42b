"""Compares what the libraries export with the lists in src/exports.

    python tests/exports/check.py BUILD/lib [--update]

A list holds the stable interface of one library: the functions marked
RABBET_API in include/rabbet. What Rabbet's own libraries share is not part of
it; such names must be marked RABBET_PRIVATE_API in a header of src/ and begin
with rabbet_. Each of both has a version node of its own (cmake/exports.cmake).
Nothing else may be exported, and every function that a public header declares
must be in one of the libraries. --update writes the lists.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LISTS = ROOT / "src" / "exports"
PUBLIC_NODE = r"RABBET_\d+"
PRIVATE_NODE = r"RABBET_PRIVATE_\d+\.\d+\.\d+"
# Between the mark and the name: types, attributes and stars.
DECLARED = r"\b{mark}\b[\w\s*]*?\b(rabbet_\w+)\s*[(;\[=]"


def declared(folder, mark):
    """Names marked so in the headers of a folder: {name: header}."""
    names = {}
    for header in sorted((ROOT / folder).rglob("*.h")):
        text = re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8"))
        text = re.sub(r"^\s*#\s*define\b.*?(?<!\\)$", "", text,
                      flags=re.MULTILINE | re.DOTALL)
        for name in re.findall(DECLARED.format(mark=mark), text):
            names[name] = header.relative_to(ROOT)
    return names


# src/device/cpu/openmp.c: what oneDNN finds before libgomp's functions.
LIBGOMP_NODES = ("OMP_1.0", "GOMP_1.0", "GOMP_4.0")


def exported(library):
    """{name: version node} of what a shared library defines."""
    output = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        check=True, capture_output=True, text=True).stdout
    words = (line.split() for line in output.splitlines())
    # The nodes themselves are absolute symbols.
    names = [name for name, kind, *_ in words if kind != "A"]
    return {name.split("@")[0]: name.split("@")[-1] if "@" in name else ""
            for name in names}


def check_library(library, names, public, private, update):
    """Yields what is wrong with one library."""
    names = {name: node for name, node in names.items() if node not in LIBGOMP_NODES}
    for name in sorted(names.keys() - public.keys() - private.keys()):
        yield f"{library}: {name} is exported but marked in no header"
    path = LISTS / f"{library}.txt"
    found = sorted(names.keys() & public.keys())
    if update and found:
        path.write_text("".join(f"{name}\n" for name in found))
        return
    listed = path.read_text().split() if path.exists() else []
    for name in sorted(set(found) - set(listed)):
        yield f"{library}: {name} is new; if meant, run with --update"
    for name in sorted(set(listed) - set(found)):
        yield (f"{library}: {name} is gone, which breaks programs that use it;"
               " if meant, run with --update")
    for names_of, node in ((public, PUBLIC_NODE), (private, PRIVATE_NODE)):
        for name in sorted(names.keys() & names_of.keys()):
            if not re.fullmatch(node, names[name]):
                yield (f"{library}: {name} has version '{names[name]}', expected "
                       f"{node}; build again after a change of {path.name}")


def check(libraries, update=False):
    """Yields what is wrong with {library: {name: version node}}."""
    public = declared("include", "RABBET_API")
    private = declared("src", "RABBET_PRIVATE_API")
    for library, names in libraries.items():
        yield from check_library(library, names, public, private, update)
    everything = set().union(*libraries.values())
    for name in sorted(public.keys() - everything):
        yield f"{public[name]}: {name} is declared, and no library has it"
    for name in sorted(public.keys() & private.keys()):
        yield f"{private[name]}: {name} is marked public and private"


def main(folder, update):
    files = sorted(pathlib.Path(folder).glob("librabbet*.so"))
    libraries = {file.name.removesuffix(".so"): exported(file)
                 for file in files}
    if not libraries:
        print(f"exports: no libraries in {folder}")
        return 1
    errors = list(check(libraries, update))
    print("\n".join([*errors, f"exports: {len(libraries)} libraries, {len(errors)} errors"]))
    return 1 if errors else 0


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--update"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    sys.exit(main(arguments[0], "--update" in sys.argv))

"""Keeps layout.c, the sizes and offsets of all structures of include/rabbet.

    python tests/abi/layout.py [--update]

layout.c is compiled with the tests, so that a changed layout is an error of the
compiler. This says which structures and fields it lacks; --update appends to it what
is new, with the numbers that the compiler ($CC, or cc) has for it. A number that is
there is never changed by this: who means to break the interface edits it by hand, and
raises RABBET_PLUGIN_ABI and the SOVERSION.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
STRUCT = re.compile(r"typedef struct (\w+) \{\n(.*?)\n\} \1;", re.DOTALL)
ENTRY = re.compile(r"^(SIZE|FIELD)\((\w+), (?:(\w+), )?\d+\);$", re.MULTILINE)


def field_names(body):
    """Names of the fields that a structure's body declares, in order."""
    body = re.sub(r"//[^\n]*", "", body)
    for declaration in re.sub(r"\s+", " ", body).split(";")[:-1]:
        if pointer := re.search(r"\(\*(\w+)\)", declaration):
            yield pointer[1]
            continue
        for part in declaration.split(","):
            yield re.search(r"(\w+)(\[\w+\])?\s*$", part)[1]


def structures(folder=INCLUDE):
    """{structure: [fields]} of all public headers."""
    found = {}
    for header in sorted(folder.rglob("*.h")):
        for name, body in STRUCT.findall(header.read_text(encoding="utf-8")):
            found[name] = list(field_names(body))
    return found


def missing(text, found):
    """(structure, field or None) of which a text of entries lacks the number."""
    listed = {(struct, field or None) for _, struct, field in ENTRY.findall(text)}
    for struct, fields in found.items():
        for field in [None, *fields]:
            if (struct, field) not in listed:
                yield struct, field


def entries(wanted):
    """Lines for layout.c, by the compiler."""
    prints = "".join(
        f'printf("SIZE({s}, %zu);\\n", sizeof({s}));' if f is None else
        f'printf("FIELD({s}, {f}, %zu);\\n", offsetof({s}, {f}));'
        for s, f in wanted)
    headers = "".join(f'#include "rabbet/{path.name}"\n'
                      for path in sorted((INCLUDE / "rabbet").glob("*.h")))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "print.c"
        source.write_text(f"#include <stdio.h>\n{headers}int main(void) {{{prints}}}\n")
        program = source.with_suffix("")
        subprocess.run([os.environ.get("CC", "cc"), f"-I{INCLUDE}", str(source),
                        "-o", str(program)], check=True)
        return subprocess.run([str(program)], check=True, capture_output=True,
                              text=True).stdout


def main(update):
    path = HERE / "layout.c"
    text = path.read_text(encoding="utf-8")
    wanted = list(missing(text, structures()))
    if update and wanted:
        path.write_text(text + entries(wanted), encoding="utf-8")
        return 0
    for struct, field in wanted:
        print(f"tests/abi/layout.c lacks {struct}{f'.{field}' if field else ''}; "
              "if meant, run tests/abi/layout.py --update")
    return 1 if wanted else 0


if __name__ == "__main__":
    if set(sys.argv[1:]) - {"--update"}:
        sys.exit(__doc__)
    sys.exit(main("--update" in sys.argv))

"""python -m rabbet.compat SCRIPT.py ARGUMENTS, or -m MODULE ARGUMENTS, or -c CODE: as
`python` runs them, with `import tensorrt` giving Rabbet. SCRIPT may also be a Python
program on PATH: python -m rabbet.compat polygraphy run model.onnx --trt."""

from __future__ import annotations

import os
import runpy
import shutil
import sys

from . import install

_USAGE = (
    "usage: python -m rabbet.compat [-m MODULE | -c CODE | SCRIPT.py | PROGRAM] "
    "[ARGUMENTS ...]"
)


def main() -> None:
    """Runs what the command line names."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        raise SystemExit(0 if arguments else 2)
    if arguments[0] in ("-m", "-c") and len(arguments) < 2:
        print(_USAGE, file=sys.stderr)
        raise SystemExit(2)
    install()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        script = arguments[0]
        if not os.path.exists(script) and os.sep not in script:
            script = shutil.which(script) or script
        if not os.path.exists(script):
            print(
                f"rabbet.compat: there is no file {script!r}, and no program of that "
                "name on PATH",
                file=sys.stderr,
            )
            raise SystemExit(2)
        sys.argv = [script, *arguments[1:]]
        # As the interpreter does: modules beside the script are found.
        sys.path[0] = os.path.dirname(os.path.realpath(script))
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

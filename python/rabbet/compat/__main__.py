"""python -m rabbet.compat SCRIPT.py ARGUMENTS, or -m MODULE ARGUMENTS, or -c CODE: as
`python` runs them, with `import tensorrt` giving Rabbet. SCRIPT may also be a Python
program on PATH: python -m rabbet.compat polygraphy run model.onnx --trt.

--install puts a small distribution tensorrt into the environment, so that its other
processes import Rabbet under that name, too; --uninstall removes it."""

from __future__ import annotations

import os
import runpy
import shutil
import sys

from rabbet import FailedPreconditionError

from . import install
from ._stub import install_stub, uninstall_stub

_USAGE = (
    "usage: python -m rabbet.compat [-m MODULE | -c CODE | SCRIPT.py | PROGRAM] "
    "[ARGUMENTS ...]\n"
    "       python -m rabbet.compat --install | --uninstall"
)
_STUB = {"--install": install_stub, "--uninstall": uninstall_stub}


def _change_stub(option: str) -> None:
    try:
        print(_STUB[option]())
    except (FailedPreconditionError, OSError) as error:
        print(f"rabbet.compat {option}: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def main() -> None:
    """Runs the program, module or code of the command line."""
    arguments = sys.argv[1:]
    option = arguments[0] if arguments else ""
    if option in ("-h", "--help"):
        print(_USAGE)
        return
    incomplete = not option or (option in ("-m", "-c") and len(arguments) == 1)
    if incomplete or (option in _STUB and len(arguments) > 1):
        print(_USAGE, file=sys.stderr)
        raise SystemExit(2)
    if option in _STUB:
        _change_stub(option)
        return
    install()
    if option == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        script = option
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

"""The command `rabbet` with Python plugins: python -m rabbet._cli ARGUMENTS.

The C program starts this when it is given --plugins; the same C code then runs
here, after the plugin files were imported.
"""

from __future__ import annotations

import sys
import traceback

from . import _rabbet
from ._errors import IoError, NotFoundError
from ._plugins import load_plugins

# As the C program's (src/cli/cli.h).
EXIT_BAD_FILE = 3
EXIT_PLUGIN = 5


def plugin_files(arguments: list[str]) -> list[str]:
    """Python files after --plugins, as the command reads it (also --plugins=FILE)."""
    files = []
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--plugins" and i + 1 < len(arguments):
            files.append(arguments[i + 1])
        elif equals and name in ("--plugins", "--staticPlugins", "--dynamicPlugins"):
            files.append(value)
    # Shared libraries are loaded by the command itself.
    return [file for file in files if not file.endswith(".so")]


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    command = f"rabbet {given[0]}" if given else "rabbet"
    try:
        load_plugins(plugin_files(given))
    except (IoError, NotFoundError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return EXIT_BAD_FILE
    except Exception:
        print(f"{command}: a plugin file cannot be imported", file=sys.stderr)
        traceback.print_exc()
        return EXIT_PLUGIN
    return _rabbet.cli_main(["rabbet", *given])


if __name__ == "__main__":
    sys.exit(main())

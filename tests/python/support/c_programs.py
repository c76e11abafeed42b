"""C programs that the tests compile as a user would."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")


def compile_program(
    source: Path, out: Path, *, include: Path, libraries: Path, names: tuple[str, ...]
) -> Path:
    """Compiles one file against headers and libraries of an installation."""
    subprocess.run(
        [
            "cc", *WARNINGS, "-O1", f"-I{include}", source, f"-L{libraries}",
            f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in names), "-o", out,
        ],
        check=True,
    )  # fmt: skip
    return out


def installation() -> Path:
    """The value of -Drabbet_ROOT: the build folder or the package under test."""
    import rabbet

    for path in map(Path, rabbet.__path__):
        if (path / "lib" / "cmake").is_dir():
            return path
        if (path.parents[1] / "CMakeCache.txt").is_file():
            return path.parents[1]
    raise FileNotFoundError("neither a build folder nor an installed package")


def build_example(name: str, out: Path, *options: str) -> Path:
    """Configures and builds a folder of examples/ as its README says."""
    output(
        "cmake", "-S", EXAMPLES / name, "-B", out, f"-Drabbet_ROOT={installation()}", *options
    )
    output("cmake", "--build", out)
    return out


def output(
    *command: object,
    code: int = 0,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """The output of a program; its exit code must be `code`."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=env, cwd=cwd
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def needed(library: Path) -> list[str]:
    """Libraries that a program or library names."""
    lines = output("readelf", "--dynamic", library).splitlines()
    return [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]

"""Writes a model to a file: python -m tests.models NAME --out FILE."""

from __future__ import annotations

import argparse
import inspect
import sys
import typing
from pathlib import Path
from typing import Any

from .cache import RECIPES, Recipe, make, model_path, save
from .graph import Dim


def _dim(text: str) -> Dim:
    return int(text) if text.lstrip("-").isdigit() else text


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


_CONVERTERS: dict[Any, Any] = {
    Dim: _dim,
    tuple[int, ...]: _ints,
    int: int,
    str: str,
}


def _add_options(parser: argparse.ArgumentParser, recipe: Recipe) -> None:
    """An option for each keyword of the recipe's function."""
    hints = typing.get_type_hints(recipe.make)
    for name, default in recipe.options({}).items():
        flag = "--" + name.replace("_", "-")
        if hints[name] is bool:
            action: Any = argparse.BooleanOptionalAction
            parser.add_argument(flag, default=default, action=action)
        else:
            convert = _CONVERTERS[hints[name]]
            parser.add_argument(
                flag, default=default, type=convert, help=f"default: {default}"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__)
    models = parser.add_subparsers(dest="model", metavar="NAME", required=True)
    for name, recipe in RECIPES.items():
        text = inspect.getdoc(recipe.make) or ""
        sub = models.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--out", type=Path, help="default: a file in build/models/")
        sub.add_argument(
            "--external-data",
            action="store_true",
            help="large weights in a file beside the model",
        )
        _add_options(sub, recipe)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    name, out = options.pop("model"), options.pop("out")
    external = options.pop("external_data")
    try:
        if out is None:
            out = model_path(name, external=external, **options)
        else:
            save(make(name, **options), out, external=external)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The check of Python imports finds what it is for."""

import pathlib

import pytest

from tests import imports

ROOT = pathlib.Path(__file__).parent.parent
LATE = "def f():\n    from . import _b\n"


def check(tmp_path, late=(), **files):
    """The sentences about a package of these files; "__" in a name is a folder."""
    folder = tmp_path / "python"
    for name, text in {"__init__": "", **files}.items():
        path = folder / "rabbet" / f"{name.replace('sub__', 'sub/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(imports.check(folder, dict.fromkeys(late, "a reason")))


def test_this_repository():
    assert imports.main(ROOT) == 0


@pytest.mark.parametrize("files", [
    {"__init__": "from . import _a", "_a": "from . import _b", "_b": "import os"},
    {"_a": "def f():\n    import numpy\n    from torch import nn"},
    {"_a": "from .sub import x", "sub____init__": "from . import _c", "sub___c": ""},
    {"sub____init__": "from ._c import x", "sub___c": "from rabbet._b import y", "_b": ""},
])
def test_allowed(tmp_path, files):
    assert check(tmp_path, **files) == []


@pytest.mark.parametrize(("files", "group"), [
    ({"_a": "from ._b import x", "_b": "import rabbet._a"}, "_a, rabbet._b"),
    ({"_a": "from ._b import x", "_b": "from ._c import x", "_c": "from . import _a"},
     "_a, rabbet._b, rabbet._c"),
    ({"_a": "from . import _b",
      "_b": "if TYPE_CHECKING:\n    from ._a import X"}, "_a, rabbet._b"),
    # The imports of rabbet.sub come with its parts.
    ({"_a": "from .sub._c import x", "sub____init__": "from .. import _a", "sub___c": ""},
     "_a, rabbet.sub"),
])
def test_circles(tmp_path, files, group):
    assert check(tmp_path, **files) == [f"circle: rabbet.{group}"]


def test_imports_of_functions(tmp_path):
    files = {"_a": LATE, "_b": ""}
    (found,) = check(tmp_path, **files)
    assert found == "python/rabbet/_a.py:2: rabbet._b is imported inside of a function"
    known = [("rabbet._a", "rabbet._b")]
    assert check(tmp_path, known, **files) == []
    (found,) = check(tmp_path, known, _a="")
    assert found == "LATE: rabbet._a imports rabbet._b: there is no such import"


def test_circles_that_functions_hide(tmp_path):
    late, circle = check(tmp_path, _a=LATE, _b="from . import _a")
    assert "inside of a function" in late
    assert circle == "circle: rabbet._a, rabbet._b"

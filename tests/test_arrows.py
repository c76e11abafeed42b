"""The check of includes finds what it is for."""

import pathlib

import pytest

from tests import arrows

ROOT = pathlib.Path(__file__).parent.parent


def check(tmp_path, file, line):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f"// A file.\n{line}\n")
    return list(arrows.check_file(path, tmp_path))


def test_this_repository():
    assert arrows.main(ROOT) == 0


@pytest.mark.parametrize(("file", "line"), [
    ("src/core/a.c", '#include "base/arena.h"'),
    ("src/core/a.c", '#include "core/expr.h"'),
    ("src/core/a.c", '#include "rabbet/types.h"'),
    ("src/core/a.c", "#include <string.h>"),
    ("src/core/a_test.c", '#include "faults/fault_allocator.h"'),
    ("src/plan/a.c", '#include "plan.pb-c.h"'),
    ("src/device/cpu/a.c", '#include "device/kernel.h"'),
    ("src/device/cpu/a.c", '#include "device/cpu/thread_pool.h"'),
    ("src/device/cpu/a.c", "#include <oneapi/dnnl/dnnl.h>"),
    ("src/cli/a.c", '#include "builder/builder.h"'),
    ("include/rabbet/a.h", '#include "rabbet/types.h"'),
])
def test_allowed(tmp_path, file, line):
    assert check(tmp_path, file, line) == []


@pytest.mark.parametrize(("file", "line"), [
    ("src/base/a.c", '#include "core/expr.h"'),
    ("src/plugin/a.c", '#include "ops/op.h"'),
    ("src/runtime/a.c", '#include "network/network.h"'),
    ("src/runtime/a.c", '#include "onnx/import.h"'),
    ("src/runtime/a.c", '  #  include "builder/builder.h"'),
    ("src/builder/a.c", '#include "runtime/context.h"'),
    ("src/device/cpu/a.c", '#include "device/cuda/driver/driver.h"'),
    ("src/device/cuda/a.c", '#include "device/cpu/isa.h"'),
    ("src/device/cpu/a.c", '#include "runtime/context.h"'),
    ("src/device/device.c", '#include "device/cpu/isa.h"'),
    ("src/runtime/a.c", "#include <dnnl.h>"),
    ("src/core/a.c", "#include <Python.h>"),
    ("src/core/a.c", '#include "faults/fault_allocator.h"'),
    ("src/core/a.c", '#include "unknown/a.h"'),
    ("src/core/a.c", '#include "../base/arena.h"'),
    ("src/unknown/a.c", "#include <string.h>"),
    ("include/rabbet/a.h", '#include "base/arena.h"'),
])
def test_refused(tmp_path, file, line):
    (found,) = check(tmp_path, file, line)
    assert found[2]


def test_neighbour_without_its_path(tmp_path):
    (tmp_path / "src/core").mkdir(parents=True)
    (tmp_path / "src/core/b.h").write_text("")
    path = tmp_path / "src/core/a.c"
    path.write_text('#include "b.h"\n')
    assert list(arrows.check_file(path, tmp_path)) == [
        (1, "b.h", "give the path from src/")]

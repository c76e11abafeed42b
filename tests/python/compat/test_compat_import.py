"""The alias as the import system and the environment's tools see it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PATHS = [os.path.abspath(path) for path in sys.path if path]

MODULE = """
import importlib, importlib.metadata, importlib.util, os, pickle
import rabbet.compat

trt = rabbet.compat.install()
spec = importlib.util.find_spec("tensorrt")
assert spec is trt.__spec__ and spec.name == "tensorrt"
assert spec.origin and os.path.isfile(spec.origin)
assert os.path.isfile(trt.__file__) and trt.__loader__ is spec.loader
assert trt.__package__ == "tensorrt"
assert trt.tensorrt.Builder is trt.Builder
import tensorrt.tensorrt as native
assert native.Builder is trt.Builder

import tensorrt.plugin._lib as lib
import rabbet.plugin._lib
assert lib is rabbet.plugin._lib and lib.__spec__.name == "rabbet.plugin._lib"
assert importlib.util.find_spec("tensorrt.plugin") is not None
assert importlib.util.find_spec("tensorrt.plugin.nothing") is None
assert importlib.util.find_spec("tensorrt.nothing") is None

assert importlib.metadata.version("tensorrt") == trt.__version__
assert importlib.metadata.distribution("tensorrt").metadata["Name"] == "tensorrt"
assert "tensorrt" in importlib.metadata.packages_distributions()["tensorrt"]
assert pickle.loads(pickle.dumps(trt.DataType.HALF)) is trt.DataType.HALF

# Programs that take it out of the table find it again.
import sys
del sys.modules["tensorrt"]
import tensorrt
assert tensorrt is trt and trt.__spec__ is spec
assert importlib.reload(tensorrt) is trt
print("done")
"""

PLUGIN = """
import rabbet.compat
rabbet.compat.install()
import tensorrt.plugin as trtp
from tensorrt.plugin._lib import QDP_REGISTRY

@trtp.register("clients::Twice")
def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

definition = QDP_REGISTRY["clients::Twice"]
assert definition.plugin_id == "clients::Twice"
assert definition.register_func is describe and definition.num_outputs == 1
assert definition.impl_func is None and definition.aot_impl_func is None

@trtp.aot_impl("clients::Twice")
def ahead(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int):
    pass

@trtp.impl("clients::Twice")
def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
    pass

assert definition.aot_impl_func is ahead and definition.impl_func is run
assert definition.autotune_func is None
print("done")
"""


CONFIG = """
import rabbet.compat
trt = rabbet.compat.install()
config = trt.Builder(trt.Logger()).create_builder_config()
sources = [1 << int(source) for source in trt.TacticSource]
assert config.get_tactic_sources() == 24
for mask in (0, 3, sum(sources), 24):
    assert config.set_tactic_sources(mask)
    assert config.get_tactic_sources() == mask
# Sources under the names of TensorRT's libraries are on by default: 24 is not "none".
assert rabbet.IBuilderConfig.get_tactic_sources(config) == sum(sources)
assert config.get_preview_feature(trt.PreviewFeature.PROFILE_SHARING_0806)
assert config.get_memory_pool_limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY) == 1 << 30
print("done")
"""


def python(
    program: str | Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)} | variables,
    )


@pytest.mark.parametrize("code", [MODULE, PLUGIN, CONFIG])
def test_module(code: str) -> None:
    done = python(sys.executable, "-c", code)
    assert done.stdout == "done\n", done.stderr


# ---- The stub


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has nothing."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def packages(environment: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(python(environment, "-c", code).stdout.strip())


def stub(environment: Path, option: str) -> subprocess.CompletedProcess[str]:
    return python(environment, "-m", "rabbet.compat", option)


CHILD = """
import importlib.metadata, multiprocessing, subprocess, sys
import tensorrt as trt
import tensorrt.plugin as trtp

def name(x):
    import tensorrt
    return tensorrt.__version__

if __name__ == "__main__":
    import rabbet.compat
    assert trt is rabbet.compat.module()
    assert importlib.metadata.version("tensorrt") == trt.__version__
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(name, [0]) == [trt.__version__]
    print("done")
"""


def test_stub(environment: Path, tmp_path: Path) -> None:
    there = packages(environment)
    before = sorted(path.name for path in there.iterdir())
    for _ in range(2):  # again is fine
        done = stub(environment, "--install")
        assert done.returncode == 0, done.stderr
        assert str(there) in done.stdout
    (tmp_path / "child.py").write_text(CHILD)
    done = python(environment, str(tmp_path / "child.py"))
    assert done.stdout == "done\n", done.stderr
    # Each file that the record names is there, so that pip can remove them.
    code = (
        "import importlib.metadata as m; files = m.files('tensorrt');"
        "print(len(files), all(f.locate().is_file() for f in files),"
        "all(f.hash is None or f.size == f.locate().stat().st_size for f in files))"
    )
    assert python(environment, "-c", code).stdout == "6 True True\n"
    done = python(environment, "-c", "import tensorrt", PYTHONPATH="")
    assert "the package tensorrt of this environment stands for rabbet" in done.stderr
    assert stub(environment, "--uninstall").returncode == 0
    assert sorted(path.name for path in there.iterdir()) == before
    done = stub(environment, "--uninstall")
    assert done.returncode == 1
    assert "no stub of Rabbet" in done.stderr


def test_stub_where_another_package_has_the_name(environment: Path) -> None:
    there = packages(environment)
    (there / "tensorrt").mkdir()
    module = there / "tensorrt" / "__init__.py"
    module.write_text("__version__ = '10.0'\n")
    done = stub(environment, "--install")
    assert done.returncode == 1
    assert str(module) in done.stderr
    assert "would hide" in done.stderr
    assert module.read_text() == "__version__ = '10.0'\n"
    assert stub(environment, "--uninstall").returncode == 1
    assert module.exists()
    shutil.rmtree(module.parent)
    info = there / "tensorrt-10.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorrt\nVersion: 10.0\n")
    (info / "INSTALLER").write_text("pip\n")
    done = stub(environment, "--install")
    assert done.returncode == 1
    assert "tensorrt 10.0" in done.stderr
    shutil.rmtree(info)


def test_stub_where_something_is_in_its_place(environment: Path) -> None:
    """Nothing is left half done, and what is there stays as it is."""
    there = packages(environment)
    before = sorted(path.name for path in there.iterdir())
    # A folder that pip left behind: it holds compiled modules, and no package.
    (there / "tensorrt" / "__pycache__").mkdir(parents=True)
    (there / "tensorrt" / "__pycache__" / "x.pyc").write_bytes(b"")
    done = stub(environment, "--install")
    assert done.returncode == 1
    assert f"{there / 'tensorrt'} is in the way" in done.stderr
    assert stub(environment, "--uninstall").returncode == 1
    assert (there / "tensorrt" / "__pycache__" / "x.pyc").exists()
    shutil.rmtree(there / "tensorrt")
    info = there / "tensorrt-9.0.dist-info"  # of a broken uninstallation
    info.mkdir()
    done = stub(environment, "--install")
    assert done.returncode == 1
    assert "tensorrt without METADATA: remove it" in done.stderr
    info.rmdir()
    (there / "tensorrt").write_text("a file")
    done = stub(environment, "--install")
    assert done.returncode == 1
    assert "is in the way" in done.stderr
    (there / "tensorrt").unlink()
    assert sorted(path.name for path in there.iterdir()) == before

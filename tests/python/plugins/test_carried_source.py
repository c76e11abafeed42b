"""Source of Python plugins that plans carry: built in one process, loaded in another."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
from onnx import helper
from rabbet import _source

from tests.python.support.command import FLOAT, command, save_model

X = np.arange(6, dtype=np.float32).reshape(2, 3)

# A plugin in a package, with a module beside it and one in a folder of helpers.
FILES = {
    "gains/__init__.py": "UNUSED = 1\n",
    "gains/ops.py": """
        import os  # of the standard library
        import numpy as np
        import rabbet.plugin as trtp
        from . import tables
        from .tables import FACTOR
        import helpers.numbers
        try:
            import no_such_module_anywhere
        except ImportError:
            no_such_module_anywhere = None

        @trtp.register("source::gain")
        def gain(x: trtp.TensorDesc) -> trtp.TensorDesc:
            return x.like()

        @trtp.impl("source::gain")
        def gain_impl(x, outputs):
            from gains.late import CHECK
            assert CHECK and tables.FACTOR == FACTOR and __name__.endswith("gains.ops")
            if "GAIN_FAILS" in os.environ:
                raise ArithmeticError("on purpose")
            np.multiply(np.asarray(x), FACTOR + helpers.numbers.ZERO, out=np.asarray(outputs[0]))
    """,
    "gains/tables.py": "FACTOR = 3\n",
    "gains/late.py": "CHECK = True\n",
    "helpers/numbers.py": "ZERO = 0\n",
}

# The same in one module.
ALONE = textwrap.dedent(FILES["gains/ops.py"])
for gone in (
    "from . import tables",
    "from .tables import FACTOR",
    "import helpers.numbers",
    "from gains.late import CHECK",
    "assert CHECK and tables.FACTOR == FACTOR and __name__.endswith(\"gains.ops\")",
):
    ALONE = ALONE.replace(gone, "pass")
ALONE = ALONE.replace("FACTOR + helpers.numbers.ZERO", "3")

BUILD = """
import sys, rabbet as trt
import gains.ops
import rabbet.plugin as trtp
plan, *modules = sys.argv[1:]
builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
network = builder.create_network()
x = network.add_input("x", trt.float32, (2, 3))
layer = network.add_plugin(trtp.op.source.gain(x))
network.mark_output(layer.get_output(0))
config = builder.create_builder_config()
config.device = "cpu"
assert not config.keep_plugin_source and config.source_modules == []
config.keep_plugin_source = True
config.source_modules = modules
assert config.keep_plugin_source and config.source_modules == modules
open(plan, "wb").write(builder.build_serialized_network(network, config))
config.reset()
assert not config.keep_plugin_source and config.source_modules == []
"""

LOAD = """
import sys, numpy as np, rabbet as trt
x = np.arange(6, dtype=np.float32).reshape(2, 3)
models = [trt.load(sys.argv[1], allow_host_code=len(sys.argv) == 2) for _ in range(2)]
for model in models:
    assert np.array_equal(model(x), 3 * x)
assert "gains" not in sys.modules
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def run(
    code: str,
    *arguments: Any,
    path: Path | None = None,
    ok: bool = True,
    env: dict[str, str] | None = None,
) -> str:
    """In a process of its own, whose modules are the package's and those of a folder."""
    paths = [*([str(path)] if path else []), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(env or {})},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == ok, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    write(folder, FILES)
    return folder


@pytest.fixture(scope="module")
def plan(folder: Path) -> Path:
    path = folder / "gain.plan"
    run(BUILD, path, "gains", "helpers", path=folder)
    return path


# ---- From process to process -----------------------------------------------


def test_without_its_modules(plan: Path) -> None:
    run(LOAD, plan)


def test_not_unless_it_is_allowed(plan: Path) -> None:
    error = run(LOAD, plan, "no", ok=False)
    assert "FailedPreconditionError" in error
    assert "needs the plugin 'source::gain', version '1'" in error
    assert "carries its source (module 'gains')" in error
    assert "engine_host_code_allowed (Python) or --allow-host-code" in error
    assert "ops.py" in error


def test_registered_plugins_are_used_as_they_are(plan: Path, folder: Path) -> None:
    """No source is run then, and no permission is needed."""
    code = (
        "import sys, gains.ops, rabbet as trt\n"
        "trt.load(sys.argv[1])\n"
        "assert not any(name.startswith('rabbet_plans') for name in sys.modules)\n"
    )
    run(code, plan, path=folder)


def test_command(plan: Path, folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X)
    output = tmp_path / "out.npz"
    arguments = ("run", plan, "--inputs", tmp_path / "in.npz", "-o", output)
    command(*arguments, "--allow-host-code")
    (found,) = np.load(output).values()
    assert np.array_equal(found, 3 * X)
    assert "--allow-host-code" in command(*arguments, code=5).stderr
    shown = command("inspect", plan).stdout
    for name in ("gains", "gains.ops", "gains.tables", "gains.late", "helpers.numbers"):
        assert f"carries source {name}: " in shown
    carried = trt.Runtime(trt.Logger())
    carried.engine_host_code_allowed = True
    listed = trt.EngineInspector(carried.load_cuda_engine(str(plan))).as_dict()["Carried"]
    version = f"numpy {np.__version__}"
    assert {"gains.ops": [version]} == {
        entry["Name"]: entry["Requirements"] for entry in listed if entry["Requirements"]
    }


def test_the_command_keeps_files(tmp_path: Path) -> None:
    (tmp_path / "triple.py").write_text(
        "import numpy as np\n"
        "import rabbet.plugin as trtp\n"
        '@trtp.register("source::Triple")\n'
        "def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:\n"
        "    return x.like()\n"
        '@trtp.impl("source::Triple")\n'
        "def run(x, outputs):\n"
        "    np.asarray(outputs[0])[...] = np.asarray(x) * 3\n"
    )
    node = helper.make_node("Triple", ["x"], ["y"], plugin_namespace="source")
    info = (FLOAT, [2, 3])
    model = save_model(tmp_path / "m.onnx", [node], {"x": info}, {"y": info})
    python = tmp_path / "triple.py"
    command(
        "build", model, "--device", "cpu", "--plugins", python, "--keep-plugins", "--quiet"
    )
    python.unlink()
    run(LOAD, tmp_path / "m.plan")
    np.savez(tmp_path / "in.npz", x=X)
    output = tmp_path / "out.npz"
    arguments = ("run", tmp_path / "m.plan", "--inputs", tmp_path / "in.npz", "-o", output)
    command(*arguments, "--allow-host-code")
    assert np.array_equal(np.load(output)["y"], 3 * X)


def test_compile_keeps_them(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, rabbet as trt\n"
        "import rabbet.plugin as trtp\n"
        "trt.load_plugins('small_ops')\n"
        "network = trt.Builder().create_network()\n"
        "x = network.add_input('x', trt.float32, (2, 3))\n"
        "layer = network.add_plugin(trtp.op.source.small(x))\n"
        "network.mark_output(layer.get_output(0))\n"
        "trt.compile(network, device='cpu', keep_plugins=True, save=sys.argv[1])\n"
    )
    write(tmp_path, {"small_ops.py": ALONE.replace("source::gain", "source::small")})
    run(code, tmp_path / "small.plan", path=tmp_path)
    run(LOAD, tmp_path / "small.plan")


# ---- Classes ---------------------------------------------------------------

V3 = """
import numpy as np
import rabbet as trt

class Triple(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    def __init__(self):
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version = "Triple", "1"
        self.plugin_namespace, self.num_outputs = "source_v3", 1
    def get_capability_interface(self, kind):
        return self
    def get_output_data_types(self, types):
        return [types[0]]
    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [inputs[0]]
    def supports_format_combination(self, pos, in_out, count):
        return in_out[pos].desc.type == trt.float32
    def configure_plugin(self, inp, out):
        pass
    def on_shape_change(self, inp, out):
        pass
    def attach_to_context(self, context):
        return self.clone()
    def get_fields_to_serialize(self):
        return trt.PluginFieldCollection([])
    def clone(self):
        return Triple()
    def set_tactic(self, tactic):
        pass
    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        import ctypes
        count = int(np.prod(input_desc[0].dims))
        x, y = ((ctypes.c_float * count).from_address(a) for a in (inputs[0], outputs[0]))
        np.frombuffer(y, np.float32)[:] = 3 * np.frombuffer(x, np.float32)

class Creator(trt.IPluginCreatorV3One):
    def __init__(self):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "Triple", "1", "source_v3"
        self.field_names = trt.PluginFieldCollection([])
    def create_plugin(self, name, fields, phase):
        return Triple()

{register}
"""
REGISTER = 'trt.get_plugin_registry().register_creator(Creator(), "")'

BUILD_V3 = """
import sys, rabbet as trt
import triple_v3
if trt.get_plugin_registry().get_creator("Triple", "1", "source_v3") is None:
    trt.get_plugin_registry().register_creator(triple_v3.Creator(), "")
network = trt.Builder().create_network()
x = network.add_input("x", trt.float32, (2, 3))
network.mark_output(network.add_plugin_v3([x], [], triple_v3.Triple()).get_output(0))
trt.compile(network, device="cpu", keep_plugins=True, save=sys.argv[1])
"""


def test_classes(tmp_path: Path) -> None:
    write(tmp_path, {"triple_v3.py": V3.format(register=REGISTER)})
    run(BUILD_V3, tmp_path / "v3.plan", path=tmp_path)
    run(LOAD, tmp_path / "v3.plan")


def test_a_module_that_registers_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"triple_v3.py": V3.format(register="")})
    run(BUILD_V3, tmp_path / "v3.plan", path=tmp_path)
    error = run(LOAD, tmp_path / "v3.plan", ok=False)
    assert "needs the plugin 'source_v3::Triple', version '1'" in error
    assert "the source that the plan carries was run and did not register it" in error


# ---- What is said ----------------------------------------------------------


def test_a_plan_that_loads_itself(tmp_path: Path) -> None:
    again = (
        "import os, rabbet\n"
        "if 'ITSELF' in os.environ:\n"
        "    rabbet.load(os.environ['ITSELF'], allow_host_code=True)\n"
    )
    write(tmp_path, {**FILES, "gains/tables.py": again + FILES["gains/tables.py"]})
    plan = tmp_path / "self.plan"
    run(BUILD, plan, "gains", "helpers", path=tmp_path)
    error = run(LOAD, plan, ok=False, env={"ITSELF": str(plan)})
    assert "FailedPreconditionError: the source that a plan carries" in error
    assert "'gains.tables'" in error
    assert "loads that plan itself" in error
    run(LOAD, plan)


def test_exceptions_show_the_source(plan: Path) -> None:
    # The traceback that the interpreter itself prints shows lines of files alone.
    code = f"try:\n{textwrap.indent(LOAD, '  ')}\nexcept Exception:\n  " + (
        "import traceback; traceback.print_exc(); raise SystemExit(1)"
    )
    error = run(code, plan, ok=False, env={"GAIN_FAILS": "1"})
    assert "/gains/ops.py\", line" in error
    assert 'raise ArithmeticError("on purpose")' in error
    assert "source::gain" in error


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ([], "'helpers' (imported by 'gains.ops')"),
        (["helpers"], "'gains.tables' (imported by 'gains.ops')"),
        (["gains"], "name them in IBuilderConfig.source_modules"),
        (["gains", "helpers", "gone"], "source_modules: there is no module 'gone'"),
        (["gains", "helpers", "zlib"], "source_modules: 'zlib' is defined in 'zlib'"),
    ],
)
def test_what_is_not_carried(
    folder: Path, tmp_path: Path, named: list[str], message: str
) -> None:
    error = run(BUILD, tmp_path / "p", *named, path=folder, ok=False)
    assert message in error


def test_requirements_that_are_not_there(tmp_path: Path) -> None:
    """Imports beyond the plan are named with their versions at the build."""
    source = ALONE.replace("source::gain", "source::needy")
    metadata = "Metadata-Version: 2.1\nName: needed-lib\nVersion: 2.5\n"
    write(
        tmp_path,
        {
            "needy.py": source.replace("import os", "import needed_lib, os"),
            "needed_lib.py": "",
            "needed_lib-2.5.dist-info/METADATA": metadata,
            "needed_lib-2.5.dist-info/top_level.txt": "needed_lib\n",
            "needed_lib-2.5.dist-info/RECORD": "needed_lib.py,,\n",
        },
    )
    build = BUILD.replace("import gains.ops", "import needy")
    build = build.replace("source.gain", "source.needy")
    run(build, tmp_path / "needy.plan", path=tmp_path)
    error = run(LOAD, tmp_path / "needy.plan", ok=False)
    assert "No module named 'needed_lib'" in error
    assert "while running the module 'needy' that the plan carries" in error
    assert "needed-lib 2.5" in error


def test_scripts_and_prompts() -> None:
    with pytest.raises(trt.UnsupportedError, match="the script that is run"):
        _source._read("__main__", "plugin 'a::b' is")
    with pytest.raises(trt.UnsupportedError, match="no source is known"):
        _source._read("no_such_module", "plugin 'a::b' is")
    with pytest.raises(trt.UnsupportedError, match="cannot be carried"):
        _source._read("math", "plugin 'a::b' is")


# ---- Running modules -------------------------------------------------------


def test_names_do_not_clash() -> None:
    """Modules of plans are no one else's, and of two plans not each other's."""
    for number in (1, 2):
        text = f"NUMBER = {number}\n".encode()
        _source.run(
            [
                ("clash", text, False, []),
                ("user", b"import clash, json\nfrom clash import NUMBER\n", False, []),
                ("deep.er.a", b"import clash as c\nfrom deep.er import b\n", False, []),
                ("deep.er.b", b"import deep.er.c\nX = deep.er.c.X\n", False, []),
                ("deep.er.c", b"from . import __name__ as X\n", False, []),
            ]
        )
    found = [m for name, m in sys.modules.items() if name.endswith(".user")]
    assert sorted(m.NUMBER for m in found) == [1, 2]  # type: ignore[attr-defined]
    assert "clash" not in sys.modules
    assert "deep" not in sys.modules


def test_a_module_that_fails_leaves_nothing() -> None:
    before = set(sys.modules), list(sys.meta_path)
    with pytest.raises(ZeroDivisionError) as caught:
        _source.run([("fine", b"", False, []), ("bad", b"1 / 0\n", False, ["lib 3"])])
    assert "module 'bad' that the plan carries; it was built with lib 3" in (
        caught.value.__notes__[0]
    )
    with pytest.raises(NameError) as missing:
        _source.run([("files", b"open(__file__)\n", False, [])])
    assert "files beside its own are not carried" in missing.value.__notes__[0]
    with pytest.raises(SyntaxError):
        _source.run([("broken", b"def\n", False, [])])
    names = {name for name in sys.modules if name.count(".") > 1}
    assert {n for n in names - before[0] if n.startswith("rabbet_plans")} == set()
    assert sys.meta_path == before[1]


def test_source_can_be_looked_at() -> None:
    import inspect

    _source.run([("seen", b"def f():\n    return 17\n", False, [])])
    (module,) = [m for n, m in sys.modules.items() if n.endswith(".seen")]
    assert inspect.getsource(module.f) == "def f():\n    return 17\n"  # type: ignore[attr-defined]

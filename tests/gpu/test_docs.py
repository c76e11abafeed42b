"""docs/cuda.md and docs/cuda_plugins.md: marked blocks run, in order and in one namespace;
mistakes raise the messages that the pages quote."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet as trt
import rabbet.plugin as trtp
from rabbet import _rabbet

from tests.python.project.test_docs import check_quoted
from tests.python.support.plugins import call, new_id, random

from . import cuda_driver
from .test_arrays import OnlyDLPack, make_model

pytestmark = pytest.mark.skipif(
    not cuda_driver.available(), reason="no GPU and no stand-in for one"
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "cuda.md", DOCS / "cuda_plugins.md"]
TEXTS = {page: page.read_text() for page in PAGES if page.exists()}
BLOCK = re.compile(
    r"^<!-- run on a GPU(?:: (?P<modules>[\w, ]+))? -->\n```python\n(?P<code>.*?)^```$",
    re.M | re.S,
)


def run_blocks(with_modules: bool) -> None:
    module = types.ModuleType("document_cuda")
    for page, text in TEXTS.items():
        for block in BLOCK.finditer(text):
            if bool(block["modules"]) is not with_modules:
                continue
            lines = text[: block.start("code")].count("\n")
            code = compile("\n" * lines + block["code"], str(page), "exec")
            exec(code, module.__dict__)
    # The operators stay registered and hold the namespace; not so its models.
    module.__dict__.pop("model", None)


def test_every_block_is_run() -> None:
    blocks = [block for text in TEXTS.values() for block in BLOCK.finditer(text)]
    marks = sum(text.count("<!-- run on a GPU") for text in TEXTS.values())
    assert len(blocks) == marks == 3


def test_blocks() -> None:
    run_blocks(with_modules=False)


def test_blocks_with_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    run_blocks(with_modules=True)


# ---- Mistakes ----


def one_layer(register_body: Any = None, **functions: Any) -> trt.Model:
    """A model on CUDA of one plugin layer with the given impl or aot_impl."""
    plugin_id = new_id("mistake")

    @trtp.register(plugin_id)
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    options = functions.pop("options", {})
    for name, function in functions.items():
        getattr(trtp, name)(plugin_id, **options)(function)
    network = trt.Builder().create_network()
    x = network.add_input("x", trt.float32, (4, 8))
    network.mark_output(network.add_plugin(call(plugin_id)(x)).get_output(0))
    return trt.compile(network, device="cuda")


def numpy_in_impl() -> None:
    def f(x, outputs):
        np.asarray(x)

    one_layer(impl=f)(random(4, 8))


def for_the_cpu_alone() -> None:
    one_layer(impl=lambda x, outputs: None, options={"device": "cpu"})


def our_array(model: trt.Model) -> Any:
    return _rabbet.device_array(model.engine, int(trt.float32), (3, 8))


def another_gpu() -> None:
    model = make_model()
    model(OnlyDLPack(our_array(model), device=1))


def gpu_array_for_the_cpu() -> None:
    make_model("cpu")(our_array(make_model()))


def out_of_jax() -> None:
    model = make_model()
    x = OnlyDLPack(our_array(model))
    with pytest.MonkeyPatch.context() as patch:
        jax = types.ModuleType("jax")
        jax.Array = OnlyDLPack  # type: ignore[attr-defined]
        patch.setitem(__import__("sys").modules, "jax", jax)
        model(x, out=(x, x))


def capturable_as_text() -> None:
    trtp.impl("example::any", capturable="yes")  # type: ignore[arg-type]


PTX = ".visible .entry scale(\n.param .u64 a,\n.param .u32 b,\n.param .u64 c\n) { ret; }"


def kernel(*args: Any, code: Any = PTX, block: int = 32) -> trt.Model:
    def f(x, outputs):
        launch = trtp.KernelLaunchParams(grid_x=1, block_x=block)
        return trtp.Kernel("scale", code, launch, [x, *args, outputs[0]])

    return one_layer(aot_impl=f)


def an_argument_too_few() -> None:
    kernel()


def another_size() -> None:
    kernel(trtp.SymInt16(3))


def a_large_block() -> None:
    source = 'extern "C" __global__ void scale(const float* x, int n, float* y) {}'
    kernel(1, code=cuda_driver.compile_code(source), block=2048)(random(4, 8))


def another_name() -> None:
    kernel(1, code=PTX.replace("scale", "_Z5scalePKfiPf"))


def source_for_ptx() -> None:
    kernel(1, code='extern "C" __global__ void scale() {}')


def a_name_that_only_the_driver_looks_for() -> None:
    source = 'extern "C" __global__ void other(const float* x, int n, float* y) {}'
    kernel(1, code=cuda_driver.compile_code(source, "CUBIN"))


def no_blocks() -> None:
    def f(x, outputs):
        launch = trtp.KernelLaunchParams(grid_x=x.shape_expr[0] // 100, block_x=32)
        return trtp.Kernel("scale", code, launch, [x, 1, outputs[0]])

    source = 'extern "C" __global__ void scale(const float* x, int n, float* y) {}'
    code = cuda_driver.compile_code(source)
    one_layer(aot_impl=f)


def another_architecture() -> None:
    kernel(1, code={"sm_999": b"\x7fELF none"})


MISTAKES = [
    numpy_in_impl,
    for_the_cpu_alone,
    another_gpu,
    gpu_array_for_the_cpu,
    out_of_jax,
    capturable_as_text,
    an_argument_too_few,
    another_size,
    a_large_block,
    another_name,
    source_for_ptx,
    a_name_that_only_the_driver_looks_for,
    no_blocks,
    another_architecture,
]


def test_the_mistakes_have_the_errors_that_are_quoted() -> None:
    tables = "".join(text.split("## Mistakes people make")[1] for text in TEXTS.values())
    rows = re.findall(r"^\| .*? \| `(.*?)` \| .*? \|$", tables, re.M)
    check_quoted(rows, MISTAKES)
    assert len(rows) == len(MISTAKES)

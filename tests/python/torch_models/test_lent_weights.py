"""Plans of modules read torch's memory where it has what they need; a module that changes
or goes changes nothing."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import rabbet  # noqa: E402
import rabbet.torch  # noqa: E402

WIDTH, DEPTH = 1024, 5  # 20 MiB, so that the plan is a file
QUICK: dict[str, Any] = {"device": "cpu", "optimization_level": 0}

PROGRAM = """
import ctypes, sys
import torch
import rabbet, rabbet.torch

def resident():
    getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)(0)
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return int(found["VmRSS"].split()[0]) * 1024

def compiled(module, x):
    options = dict(device="cpu", optimization_level=0)
    if sys.argv[1] == "compile":
        return rabbet.compile(module, (x,), **options)
    if sys.argv[1] == "saved":
        return rabbet.compile(module, (x,), save=sys.argv[2] + "/m.plan", **options)
    torch._dynamo.reset()
    return torch.compile(module, backend="rabbet", options=options)

def module(rows):
    return torch.nn.Sequential(torch.nn.Embedding(rows, 256), torch.nn.Linear(256, 8)).eval()

x = torch.arange(0, 40, 3)
with torch.no_grad():
    compiled(module(64), x)(x)  # the libraries' own memory
    big = module({rows})
    expected = big(x)
    before = resident()
    model = compiled(big, x)
    assert torch.allclose(model(x), expected, atol=1e-5)
    print("resident", resident() - before)
"""


def module() -> Any:
    torch.manual_seed(3)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
    return torch.nn.Sequential(*layers).eval()


@pytest.mark.parametrize("form", ["compile", "saved", "torch.compile"])
def test_a_table_is_held_once(tmp_path: Path, form: str) -> None:
    rows = 65536
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(rows=rows), form, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    (found,) = re.findall(r"resident (-?\d+)", done.stdout)
    assert int(found) < 0.5 * rows * 256 * 4


def _in_place(net: Any) -> Any:
    net[0].weight.mul_(2)
    net[3].weight.zero_()
    return net


def _loaded(net: Any) -> Any:
    net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})
    return net


def _assigned(net: Any) -> Any:
    state = {k: v + 1 for k, v in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    return net


def _moved(net: Any) -> Any:
    return net.half()


def _given_data(net: Any) -> Any:
    for each in net.parameters():
        each.data = each.data + 1
    return net


def _shared(net: Any) -> Any:
    """The storages stay, and their memory becomes another one."""
    return net.share_memory()


def _stepped(net: Any, **options: Any) -> Any:
    with torch.enable_grad():
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **options)
        net(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net


def _fused(net: Any) -> Any:
    return _stepped(net, fused=True)


def _gone(net: Any) -> Any:
    for layer in net:
        layer.weight = None
    return None


CHANGES = [_in_place, _loaded, _assigned, _moved, _given_data, _shared, _stepped, _fused]


# A model that was not called before has no context yet.
UNCALLED = [
    pytest.param(change, False, marks=() if change in (_in_place, _gone) else pytest.mark.full)
    for change in (*CHANGES, _gone)
]


@pytest.mark.parametrize(
    ("change", "is_called"), [*((change, True) for change in (*CHANGES, _gone)), *UNCALLED]
)
def test_a_model_keeps_what_it_was_compiled_with(
    change: Callable[[Any], Any], is_called: bool
) -> None:
    net, x = module(), torch.randn(2, WIDTH)
    with torch.no_grad():
        expected = net(x)
        model = rabbet.compile(net, (x,), **QUICK)
        assert model.model.engine._lent
        if is_called:
            assert torch.allclose(model(x), expected, atol=1e-5)
        net = change(net)
        gc.collect()
        assert torch.allclose(model(x), expected, atol=1e-5)


def test_copies_and_pickles_read_the_plan(tmp_path: Path) -> None:
    net, x = module(), torch.randn(2, WIDTH)
    with torch.no_grad():
        expected = net(x)
        model = rabbet.compile(net, (x,), **QUICK)
        first = model.model
        copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
        assert all(each.engine is not first.engine for each in copies)
        copies += [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        _in_place(net)
        model.save(tmp_path / "m.plan")
        copies.append(rabbet.load(tmp_path / "m.plan", device="cpu"))
        for each in copies:
            assert torch.allclose(each(x), expected, atol=1e-5)


@pytest.mark.parametrize("change", [c for c in CHANGES if c is not _moved])
def test_changed_parameters_get_an_engine_of_torch_compile(
    change: Callable[[Any], Any],
) -> None:
    torch._dynamo.reset()
    net, x = module(), torch.randn(2, WIDTH)
    with torch.no_grad():
        fast = torch.compile(net, backend="rabbet", options=QUICK)
        assert torch.allclose(fast(x), net(x), atol=1e-4)
        change(net)
        assert torch.allclose(fast(x), net(x), rtol=1e-4, atol=1e-4)


def test_data_at_an_address_of_before_is_another() -> None:
    """The second storage may get the memory of the first."""
    torch._dynamo.reset()
    net, x = torch.nn.Linear(256, 256).eval(), torch.randn(2, 256)
    with torch.no_grad():
        fast = torch.compile(net, backend="rabbet", options=QUICK)
        for _ in range(3):
            assert torch.allclose(fast(x), net(x), atol=1e-4)
            for _ in range(2):
                net.weight.data = net.weight.data * 0.5


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_steps_of_fused_optimizers_count(backend: str) -> None:
    torch._dynamo.reset()
    net, x = torch.nn.Linear(16, 16), torch.randn(2, 16)
    fast = torch.compile(net, backend="rabbet", options=QUICK)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, fused=True)
    step = torch.compile(lambda: optimizer.step(), backend=backend)
    for _ in range(2):
        net(x).square().sum().backward()
        step()
        with torch.no_grad():
            assert torch.allclose(fast(x), net(x), atol=1e-4)


def test_transposed_weights_lie_in_the_plan_as_in_torch() -> None:
    """Products of any rank, by linear, mm and addmm."""

    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(48, 32))
            self.b = torch.nn.Parameter(torch.randn(48))

        def forward(self, x: Any, y: Any, z: Any) -> Any:
            return (
                torch.nn.functional.linear(x, self.w, self.b),
                y @ self.w.t(),
                torch.addmm(self.b, y, self.w.transpose(0, 1), beta=2, alpha=0.5),
                z @ self.w.mT,
            )

    net = Products().eval()
    args = (torch.randn(2, 3, 5, 32), torch.randn(7, 32), torch.randn(32))
    with torch.no_grad():
        model = rabbet.compile(net, args, **QUICK)
        plan = bytes(memoryview(model.model.engine.serialize()))
        for found, expected in zip(model(*args), net(*args), strict=True):
            assert torch.allclose(found, expected, atol=1e-4)
    assert net.w.detach().numpy().tobytes() in plan

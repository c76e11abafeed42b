"""Sizes that an export of torch holds for: what torch's own program takes is computed as the
module does, and what it refuses is refused, with the condition, its sizes and its line."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

import sympy  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from rabbet.torch._checks import computed, listed  # noqa: E402
from rabbet.torch._guard_text import read  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._sympy import functions as integers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

AUTO = torch.export.Dim.AUTO


def compiled(module: Any, **options: Any) -> Any:
    return trt.compile(module, device="cpu", optimization_level=0, **options)


SIDES: dict[str, Callable[..., Any]] = {
    "remainder": lambda h, w, o: h % 2 == 0,
    "product": lambda h, w, o: h * w > 20,
    "not": lambda h, w, o: h * w != 40,
    "other": lambda h, w, o: o > 2 * h,
    "either": lambda h, w, o: torch.sym_not((h <= o) & (w // 2 != 1)),
    "both": lambda h, w, o: (h > 3) & (w < 7),
    "any": lambda h, w, o: (h > 6) | (w > 4),
    "bits": lambda h, w, o: h ^ w == 2,
    "quotient": lambda h, w, o: h / w > 1.2,
    "floor": lambda h, w, o: h // w == 1,
    "power": lambda h, w, o: h**2 > w**3,
    "exponent": lambda h, w, o: 2**w > 4 * h,
    "largest": lambda h, w, o: max(h, w) > 6,
    "smallest": lambda h, w, o: torch.sym_min(h, w) * 2 > 7,
    "apart": lambda h, w, o: abs(h - w) > 1,
    "scaled": lambda h, w, o: int(h * 0.3) == 1,
    "exact scale": lambda h, w, o: int(h * 1.5) == 9,
    "ceiling": lambda h, w, o: math.ceil(h / 4) + math.floor(w / 3) > 2,
    "nearest": lambda h, w, o: round(h / 4) == 2,
    "root": lambda h, w, o: int(h**0.5) == 2,
    "root of both": lambda h, w, o: math.sqrt(h * w) > 5.1,
    "logarithm": lambda h, w, o: torch.sym_float(h) ** 0.5 * w > 9.7,
}


class Sides(torch.nn.Module):
    """Each kind of sizes has a side of its own; `other` is read by the condition alone."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any, other: Any) -> Any:
        return x * 2 if SIDES[self.kind](*x.shape, other.shape[0]) else x * 3


@functools.cache
def exported_sides(kind: str) -> Any:
    """The program, and as a module that checks sizes."""
    args = torch.randn(6, 4), torch.randn(13)
    shapes = ({0: AUTO, 1: AUTO}, {0: AUTO})
    program = torch.export.export(Sides(kind), args, dynamic_shapes=shapes, strict=False)
    return program, program.module()


@pytest.mark.parametrize("given", ["exported", "loaded"])
@pytest.mark.parametrize("kind", SIDES)
def test_conditions_of_each_form(kind: str, given: str, tmp_path: Any) -> None:
    """The export has one side of the module's ifs; torch's own program refuses the others."""
    module = Sides(kind)
    program, checked = exported_sides(kind)
    if given == "loaded":  # which has its guards as text alone
        torch.export.save(program, tmp_path / "program.pt2")
        program = torch.export.load(tmp_path / "program.pt2")
    model = compiled(program)
    known = random.Random(kind)
    drawn = [[known.randint(2, most) for most in (10, 8, 24)] for _ in range(20)]
    refused = 0
    for rows, columns, others in [*drawn, (6, 4, 13), (10, 4, 5)]:
        sizes = torch.randn(rows, columns), torch.randn(others)
        try:
            expected = checked(*sizes)
        except AssertionError:
            refused += 1
            with pytest.raises(trt.Error, match=r"exported the module for sizes with.* is \d"):
                model(*sizes)
        else:
            assert torch.equal(model(*sizes), expected)
            assert torch.equal(expected, module(*sizes))
    assert 0 < refused < 22


def test_refusals_name_condition_sizes_and_line(tmp_path: Any) -> None:
    args = torch.randn(6, 4), torch.randn(3)
    for kind in ("remainder", "scaled"):  # by the plan, and by Python alone
        file = tmp_path / f"{kind}.plan"
        shapes = ({0: AUTO}, None)
        model = compiled(Sides(kind), args=args, dynamic_shapes=shapes, save=file)
        for each in (model, trt.load(file, device="cpu")):
            assert torch.equal(each(*args), Sides(kind)(*args))
            with pytest.raises(
                trt.FailedPreconditionError,
                match=r"x\.shape\[0\].* alone \(.*test_guards\.py.*x\.shape\[0\] is 9",
            ):
                each(torch.randn(9, 4), args[1])


def test_plans_check_what_they_can_compute() -> None:
    """Programs in C run the plan alone."""
    args = torch.randn(6, 4), torch.randn(13)
    shapes = ({0: AUTO, 1: AUTO}, {0: AUTO})
    for kind in ("remainder", "exact scale", "ceiling", "both", "product"):
        model = compiled(Sides(kind), args=args, dynamic_shapes=shapes)
        with pytest.raises(trt.Error, match=r"exported the module for|profile 0 allows"):
            model.model(torch.randn(3, 2))


# ---- Arguments


class Named(NamedTuple):
    values: Any


pytree._register_namedtuple(Named, serialized_type_name=f"{__name__}.Named")


class Nested(torch.nn.Module):
    """`x_0` is an argument, and how torch's program names the first element of x."""

    def forward(self, x: Any, x_0: Any, named: Any, *rest: Any, key: Any) -> Any:
        read = {
            "argument": x_0.shape[0] % 2 == 0,
            "element": x[0].shape[0] > 2,
            "key": named["a.b"].values.shape[0] != 5,
            "rest": rest[0].shape[0] < 6,
            "keyword": key.shape[0] > 3,
        }
        return x_0 * 2 if all(read.values()) else x_0 * 3


@pytest.mark.parametrize("given", ["exported", "loaded"])
def test_conditions_name_their_arguments(given: str, tmp_path: Any) -> None:
    def sized(*sizes: int) -> Any:
        x, x_0, named, rest, key = (torch.randn(size) for size in sizes)
        return ((x,), x_0, {"a.b": Named(named)}, rest), {"key": key}

    args, keywords = sized(3, 4, 3, 3, 4)
    shapes = {
        "x": ({0: AUTO},), "x_0": {0: AUTO}, "named": {"a.b": Named({0: AUTO})},
        "rest": ({0: AUTO},), "key": {0: AUTO},
    }  # fmt: skip
    module = Nested()
    program = torch.export.export(module, args, keywords, dynamic_shapes=shapes, strict=False)
    if given == "loaded":
        torch.export.save(program, tmp_path / "program.pt2")
        with torch.serialization.safe_globals([Named]):
            program = torch.export.load(tmp_path / "program.pt2")
    model = compiled(program)
    args, keywords = sized(4, 6, 4, 5, 5)
    assert torch.equal(model(*args, **keywords), module(*args, **keywords))
    for i, size in enumerate([2, 5, 5, 6, 3]):
        sizes = [4, 6, 4, 5, 5]
        sizes[i] = size
        args, keywords = sized(*sizes)
        with pytest.raises(trt.Error, match=f"exported the module for sizes with.* is {size}"):
            model(*args, **keywords)


@pytest.mark.parametrize("kind", ["remainder", "scaled"])  # by the plan, and by Python alone
def test_arguments_without_the_sizes_of_conditions(kind: str) -> None:
    args = torch.randn(6, 4), torch.randn(3)
    model = compiled(Sides(kind), args=args, dynamic_shapes=({0: AUTO}, None))
    assert torch.equal(model(args[0].tolist(), args[1]), Sides(kind)(*args))
    for x in (torch.tensor(1.0), 1.0):
        with pytest.raises(trt.Error, match=r"'x' has shape \(-1, 4\).*cannot be \(\)"):
            model(x, args[1])


# ---- Decompositions

RESIZED: dict[str, Callable[[Any], Any]] = {
    "pooled and back": lambda x: x
    + F.interpolate(F.avg_pool2d(x, 2), size=x.shape[2:], mode="bilinear"),
    "channels last": lambda x: F.conv2d(
        x.to(memory_format=torch.channels_last), torch.ones(4, 3, 3, 3)
    ),
    "scaled": lambda x: F.interpolate(x, scale_factor=0.3, mode="bilinear"),
    "doubled": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "three halves": lambda x: F.interpolate(x, size=(int(x.shape[2] * 1.5), 5)),
    "nearest of halves": lambda x: x.new_zeros(round(x.shape[2] / 2)) + x.sum(),
    "unshuffled": lambda x: F.pixel_unshuffle(x, 2),
    "windows": lambda x: F.pad(x, (0, -x.shape[3] % 7, 0, -x.shape[2] % 7))
    .unflatten(3, (-1, 7))
    .unflatten(2, (-1, 7)),
    "pooled": lambda x: F.adaptive_avg_pool2d(x, 5),
    "pooled rows": lambda x: F.adaptive_avg_pool2d(x, (3, None)),
    "halves": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "patches": lambda x: F.layer_norm(x.unfold(2, 4, 4).mean(-1).transpose(1, 3), (3,)),
    "counted to halves": lambda x: torch.arange(0, x.shape[2] / 2) + x.sum(),
    "counted to integers": lambda x: torch.arange(0, x.shape[2] / 2, dtype=torch.int64) + x.sum(),
    "clamped": lambda x: x.clamp(max=x.shape[2] / 64) + x.clamp(-x.shape[3], x.shape[3] - 5),
    "root of sizes": lambda x: x * x.shape[2] ** -0.5 * (x.shape[3] / (x.shape[2] + 1)),
}


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("kind", RESIZED)
def test_decomposing_adds_no_conditions(kind: str) -> None:
    """What torch's program takes is computed, whatever decomposing it has found out."""
    module = Called(RESIZED[kind])
    shapes = ({0: AUTO, 2: AUTO, 3: AUTO},)
    example = (torch.randn(2, 3, 14, 22),)
    program = torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
    model, checked = compiled(program), program.module()
    known, taken = random.Random(kind), 0
    for _ in range(12):
        x = torch.randn(known.randint(1, 3), 3, known.randint(1, 30), known.randint(1, 30))
        try:
            checked(x)
            expected = module(x)
        except (AssertionError, RuntimeError):
            with pytest.raises(trt.Error):
                model(x)
        else:
            taken += 1
            torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-4)
    assert taken


def test_attributes_that_depend_on_sizes() -> None:
    x, shapes = torch.randn(8, 6), ({0: AUTO},)
    power = compiled(
        Called(lambda x: x.abs() ** (x.shape[0] / 4)), args=(x,), dynamic_shapes=shapes
    )
    torch.testing.assert_close(power(x[:5]), x[:5].abs() ** 1.25)
    sloped = Called(lambda x: F.leaky_relu(x, x.shape[0] / 16))
    with pytest.raises(trt.UnsupportedError, match=r"leaky_relu.*depends on sizes"):
        compiled(sloped, args=(x,), dynamic_shapes=shapes)


@pytest.mark.parametrize("dim", [(), (0,), ((0, 2),)])
def test_extents_of_one_are_not_squeezed_in_silence(dim: Any) -> None:
    module = Called(lambda x: x.squeeze(*dim) * 2)
    model = compiled(
        module, args=(torch.randn(2, 3, 1),), dynamic_shapes=({0: AUTO},)
    )
    x = torch.randn(5, 3, 1)
    assert torch.equal(model(x), module(x))
    with pytest.raises(trt.Error, match=r"Ne\(x\.shape\[0\], 1\).*squeeze.*is 1"):
        model(torch.randn(1, 3, 1))


# ---- Texts

H, W = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "hw")
TEXTS = [
    "L['x'].size()[0] % L['x'].size()[1] == 1",
    "(L['x'].size()[0] > 3) & (L['x'].size()[1] < 6) | (L['x'].size()[0] == 2)",
    "3 < L['x'].size()[0] <= L['x'].size()[1] + 2",
    "not (L['x'].size()[0] // L['x'].size()[1] == 1)",
    "L['x'].size()[0] / L['x'].size()[1] >= 0.75",
    "L['x'].size()[0] ** 2 != 2 ** L['x'].size()[1]",
    "torch.sym_float(L['x'].size()[0]) ** 0.5 > 2.1",
    "math.trunc(0.3*torch.sym_float(L['x'].size()[0])) == 2",
    "math.floor(L['x'].size()[0] / 3) + math.ceil(L['x'].size()[1] / 3) > 4",
    "max(2, L['x'].size()[0], L['x'].size()[1]) - min(5, L['x'].size()[0]) < 3",
    "abs((-9) + L['x'].size()[0]*L['x'].size()[1]) > 1",
    "round(L['x'].size()[0] / 2) == 2 or round(L['x'].size()[1] / 3, 1) == 1.7",
    "math.sqrt(L['x'].size()[0]) > math.log2(L['x'].size()[1] + 1) and True",
    "(L['x'].size()[0] if L['x'].size()[1] > 4 else 7) > 5",
    "L['x'].size()[0] ^ 3 > L['x'].size()[1] & 5",
    "L['x'].size()[0] << 1 == L['x'].size()[1]",
    "-L['x'].size()[0] // 2 == -2",
    "L['x'].size()[0] < math.inf",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_mean_what_python_computes(text: str) -> None:
    class Sized:
        def __init__(self, *sizes: int) -> None:
            self.size = lambda: sizes

    tree = listed(read(text, lambda path, axis: (H, W)[axis]))  # type: ignore[index]
    for h, w in itertools.product(range(1, 9), repeat=2):
        names = {"L": {"x": Sized(h, w)}, "math": math, "torch": torch}
        assert bool(computed(tree, {"h": h, "w": w})) == eval(text, names), (h, w)


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getcwd() == 0", "L['x'].size()[0].real > 1", "L['x'].stride()[0] == 1",
     "(lambda: 1)() > 0", "L['x'].size()[0] @ 2", "'a' == 'b'", "exec('1')", "max(*[1])",
     "math.prod([1]) == 1", "[1][0] == 1", "L['x'].size()[", "x > 1"],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError, LookupError)):
        read(text, lambda path, axis: H)


def test_sizes_that_a_condition_divides_by() -> None:
    tree = listed(integers.FloorDiv(H, W) > 1)
    with pytest.raises(ZeroDivisionError):
        computed(tree, {"h": 4, "w": 0})


class Unread(torch.nn.Module):
    """Nothing reads `other`, whose rows are those of x."""

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 2 else x * 3


def test_arguments_that_nothing_reads_are_no_inputs() -> None:
    rows = torch.export.Dim("rows", min=3, max=9)
    args = (torch.ones(4, 2), torch.ones(4))
    found = compiled(Unread(), args=args, dynamic_shapes=({0: rows}, {0: rows}))
    engine = found.model.engine
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    assert names == ["x", "output"]
    torch.testing.assert_close(found(torch.ones(5, 2), torch.ones(5)), torch.full((5, 2), 2.0))


def test_a_question_that_only_data_answers() -> None:
    """torch names the module's line, and Rabbet what can be done."""

    class Asks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            found = torch.nonzero(x)
            return found if found.numel() == 0 else x + 1

    with pytest.raises(Exception, match="data-dependent") as caught:
        trt.compile(Asks(), (torch.ones(3),), device="cpu")
    assert "test_guards.py" in str(caught.value).partition("Caused by")[2].splitlines()[0]
    assert any("only data tells" in note for note in caught.value.__notes__)

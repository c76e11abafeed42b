"""Modules whose Python code reads tensors: numbers that follow from constants are constants,
data selects among the ways of a branch, and what no plan can answer is refused by its line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import rabbet as trt

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from rabbet.torch._branches import Rewritten  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.arange(12.0).reshape(3, 4) - 5


def compiled(function: Callable[..., Any], x: Any = X, **options: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(x)

    return trt.compile(Module(), (x.clone(),), device="cpu", optimization_level=0, **options)


# ---- Numbers that follow from constants ----


def positions(x: Any) -> Any:
    """Relative positions, as Funnel's model makes them."""
    pos = torch.arange(0, x.shape[1], dtype=torch.int64).to(x.dtype)
    pooled = torch.cat([pos.new_tensor([-1.0]), pos[1:-1][::2]])
    most = pooled[0] - pos[0] + 2 * pooled.shape[0]
    return x.sum() * torch.arange(most, pooled[0] - pos[-1] - 1, -1, dtype=torch.long)


def cut(x: Any) -> Any:
    sizes = torch.tensor([1, 3])
    parts = [x[:, : sizes[0]], x[:, sizes[0] : sizes.sum()]]
    return parts[1].reshape(sizes[1] * 3) + parts[0].sum()


def counted(x: Any) -> Any:
    levels = torch.zeros(4, dtype=torch.int64)
    levels[1:] = 2
    levels += 1
    for _index in range(int(levels.max())):
        x = x * 2 + levels.tolist()[1]
    return x if bool((levels > 0).all()) else -x


def overwritten(x: Any) -> Any:
    """A constant that data changes through another name for it is none any more."""
    kept = torch.ones(3)
    kept[0:1].add_(x[0, :1])
    return x + 1 if kept[0] > 0 else x - 1


@pytest.mark.parametrize("function", [positions, cut, counted], ids=lambda f: f.__name__)
def test_numbers_of_constants(function: Callable[..., Any]) -> None:
    for x in (X, 3 - X):
        torch.testing.assert_close(compiled(function)(x), function(x))


# ---- Branches ----


def clamped(x: Any) -> Any:
    """The guard of transformers' layers in FP16."""
    if x.dtype == torch.float32 and not torch.isfinite(x).all():
        bound = 100.0
        x = torch.clamp(x, min=-bound, max=bound)
    return x + 1


def both_ways(x: Any) -> Any:
    if ((x > 0).any() and x.shape[0] == 3) or x[0, 0] < -50:
        y, z = x * 2, x.sum()
    elif x.sum().item() < -100:
        y, z = x - 1, x.min()
    else:
        y, z = -x, x.max()
    return y, z


def in_place(x: Any) -> Any:
    y = x * 1
    also = y
    if y.min() < -5:
        y += 1
        y[0] = 7
    return also * 2


def made_within(x: Any) -> Any:
    """A way may change what it makes."""

    def made(x: Any) -> Any:
        y = x * 1
        y[0] += 1
        return y

    return made(x) * 2 if x.sum() > 0 else made(-x)


def within(x: Any) -> Any:
    total = x.new_zeros(())
    for row in x:
        if row.sum() > 0:
            if row.max() > 3:
                total = total + row.sum()
        else:
            total = total - 1
    return total


def returned(x: Any) -> Any:
    if x.isnan().any():
        return x.nan_to_num(0.0)
    if x.shape[1] == 4:
        x = x + 1
    if x.sum() > 0:
        y = x * 2
        return y
    return x if x.min() > -20 else -x


class Kept:
    """A cache, as decoders have them."""

    def __init__(self, x: Any) -> None:
        self.last, self.all, self.named = x, [x, x], {"sum": x.sum()}

    def update(self, x: Any) -> Any:
        self.last = self.all[1] = x
        self.named["sum"] = self.named["sum"] + x.sum()
        return x + 1


def objects(x: Any) -> Any:
    """Both ways, and functions that they call, change what objects hold."""
    kept = Kept(x)
    parts = [x, x]
    if x.sum() > 0:
        x = kept.update(x * 2)
        kept.update(x)
    else:
        kept.last = parts[0] = x - 1
        parts[1] = x.abs()
    x = kept.update(x) if x.max() > 3 else x
    return x + kept.last + kept.all[1] + kept.named["sum"] + parts[0] * parts[1]


def rows_of_each(x: Any) -> Any:
    """A mixture of experts that leaves out those without rows."""
    result = torch.zeros_like(x)
    for expert in range(3):
        (rows,) = torch.where((x[:, 0] + 5) // 4 == expert)
        if rows.shape[0] == 0:
            continue
        result[rows] += (expert + 1) * x[rows]
    return result


def experts_that_are_hit(x: Any) -> Any:
    """The loop of transformers' mixtures of experts."""
    result = torch.zeros_like(x)
    mask = F.one_hot(((x[:, 0].nan_to_num(0, 0, 0) + 5) // 4).clamp(0, 3).long(), 4).t()
    hit = torch.greater(mask.sum(-1), 0).nonzero()
    names = {f"expert_{i}": i + 1 for i in range(4)}
    for expert in hit:
        expert = expert[0]
        if expert == 3:
            continue
        (rows,) = torch.where(mask[expert])
        found = x[rows] * names[f"expert_{expert}"]
        if x.shape[1] > 2:
            found *= 2
        result.index_add_(0, rows, found)
    if x.sum() > 0:
        result.clamp_(max=50)
    return result


def rows_or_none(x: Any) -> Any:
    found = (x[:, 0] > 0).nonzero().squeeze(1)
    if not len(found) or x.sum() > 1000:
        return x.sum(0)
    other = x[found].mean(0) if found.numel() > 1 else x.new_ones(4)
    return x[found].sum(0) + other


def numbers_that_data_tells(x: Any) -> Any:
    """Masks that are as wide as the longest row asks."""
    lengths = x.nan_to_num(1, 1, 1).abs().sum(1).long() % 4 + 1
    widest = int(lengths.max())
    mask = torch.arange(widest)[None] < lengths[:, None]
    return mask * float(x.nan_to_num().max()) + len(mask.nonzero())


def checked_by_torch(x: Any) -> Any:
    """Distributions look at their parameters."""
    scale = x.nan_to_num(1, 1, 1).abs() + 1
    return torch.distributions.Normal(x.nan_to_num(1, 1, 1), scale).entropy()


@pytest.mark.parametrize(
    "function",
    [clamped, both_ways, in_place, made_within, within, overwritten, returned, objects,
     rows_of_each, experts_that_are_hit, rows_or_none, numbers_that_data_tells, checked_by_torch],
    ids=lambda f: f.__name__,
)
def test_data_selects(function: Callable[..., Any]) -> None:
    model = compiled(function)
    for x in (X, X - 20, X + 20, X / 0, X * 0):
        torch.testing.assert_close(model(x), function(x), equal_nan=True)


def refused(x: Any) -> Any:
    assert x.max().item() < 50, "too large"
    if (x < -50).any():
        raise ValueError("too small")
    return x + 1


def test_ways_that_raise_are_checks() -> None:
    model = compiled(refused)
    torch.testing.assert_close(model(X), X + 1)
    for x, line in ((X + 50, "x.max().item() < 50"), (X - 50, 'ValueError("too small")')):
        with pytest.raises(trt.Error) as caught:
            model(x)
        assert line in str(caught.value)


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.__scale = 3.0

    def scaled(self, x: Any) -> Any:
        if x.isnan().any():
            x = x.nan_to_num(1.0)
        return x * self.__scale


class Derived(Base):
    def scaled(self, x: Any) -> Any:
        if x.min() < 0:
            x = -x
        return super().scaled(x)

    def forward(self, x: Any, *, less: float = 1.0) -> Any:
        return self.scaled(x) - less


def test_methods_with_super_and_private_names() -> None:
    codes = [each.scaled.__code__ for each in (Base, Derived)]
    model = trt.compile(Derived(), (X,), device="cpu", optimization_level=0)
    for x in (X, X + 9, X * torch.nan):
        torch.testing.assert_close(model(x), Derived()(x))
    assert codes == [each.scaled.__code__ for each in (Base, Derived)]


def shapes_differ(x: Any) -> Any:
    if x.sum() > 0:
        x = x[:1]
    return x


def counts(x: Any) -> Any:
    for _index in range(int(x.sum())):
        x = x + 1
    return x


def renamed(x: Any) -> Any:
    """Only one way changes what `also` names."""
    y = x * 1
    also = y
    if x.sum() > 0:
        y = y * 2
    else:
        y += 1
    return also


def two_names(x: Any) -> Any:
    y = x * 1
    also, z = y[1:], x
    if x.sum() > 0:
        y += 1
        z = also * 2
    return z


def longer(x: Any) -> Any:
    parts = [x, x]
    if x.sum() > 0:
        parts.append(x * 2)
    return sum(parts)


def set_by_one(x: Any) -> Any:
    kept = Kept(x)
    if x.sum() > 0:
        kept.new = x
    return getattr(kept, "new", x)


def changed_by_a_call(x: Any) -> Any:
    """Neither way sets `y`, but one changes it."""

    def change(tensor: Any) -> Any:
        tensor += 1
        return tensor

    y = x * 1
    z = y if x.shape[0] == 1 else x
    if x.sum() > 0:
        z = change(y)
    return y - z


def changed_as_output(x: Any) -> Any:
    y = x * 1
    z = x
    if x.sum() > 0:
        z = torch.add(x, 1, out=y)
    return y - z


def changed_by_an_option(x: Any) -> Any:
    y = x * 1
    z = torch.nn.functional.relu(y, inplace=True) if x.sum() > 0 else x
    return y - z


def small(x: Any) -> Any:
    if x.max() > 1000:
        raise ValueError("too large")
    return x + 1


def checked_by_a_call(x: Any) -> Any:
    """Runs of the other way have no check."""
    if x.sum() > 0:
        x = small(x)
    return x


_GLOBAL = 0


def of_the_module(x: Any) -> Any:
    global _GLOBAL
    if x.sum() > 0:
        _GLOBAL = 1
    return x + _GLOBAL


_SUM = "if x.sum() > 0:"


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (shapes_differ, _SUM),
        (renamed, _SUM),
        (two_names, _SUM),
        (longer, _SUM),
        (set_by_one, _SUM),
        (changed_by_a_call, _SUM),
        (changed_as_output, _SUM),
        (changed_by_an_option, "if x.sum() > 0 else x"),
        (checked_by_a_call, "if x.max() > 1000:"),
        (of_the_module, _SUM),
        (counts, "for _index in range(int(x.sum())):"),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_what_no_plan_can_answer(function: Callable[..., Any], line: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        compiled(function)
    notes = "\n".join(caught.value.__notes__)
    assert line in notes
    assert __file__ in notes
    assert _GLOBAL == 0


def test_a_function_defined_by_the_export_is_rewritten_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = []
    export = torch.export.export
    monkeypatch.setattr(
        torch.export, "export", lambda *a, **kw: rounds.append(1) or export(*a, **kw)
    )

    def outer(x: Any) -> Any:
        def inner(x: Any) -> Any:
            if x.sum() > 0:
                x = x + 1
            return x

        return inner(x)

    with pytest.raises(RuntimeError):
        compiled(outer)
    assert len(rounds) == 2


def test_more_objects_than_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change behind the last one that is looked at would leak into the other way."""
    from rabbet.torch import _objects

    def function(x: Any) -> Any:
        if x.sum() > 0:
            x = x + 1
        return x

    compiled(function)
    monkeypatch.setattr(_objects, "_MOST", 3)
    with pytest.raises(RuntimeError, match="more than 3 can be reached"):
        compiled(function)


def test_other_threads_decide_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may run a function while it is rewritten, with tensors that have values."""
    found = []
    rewrite = Rewritten.at

    def at(self: Any, error: BaseException) -> bool:
        rewritten = rewrite(self, error)
        thread = threading.Thread(target=lambda: found.append(shapes_differ(X + 9).shape))
        thread.start()
        thread.join()
        return rewritten

    monkeypatch.setattr(Rewritten, "at", at)
    with pytest.raises(RuntimeError):
        compiled(shapes_differ)
    assert set(found) == {(1, 4)}

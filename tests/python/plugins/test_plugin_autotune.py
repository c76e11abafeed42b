"""The grammar of AutoTuneCombination."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import rabbet as trt
import rabbet.plugin as trtp

F, H = trt.DataType.FLOAT, trt.DataType.HALF
LINEAR, HWC = trt.TensorFormat.LINEAR, trt.TensorFormat.HWC


def types(combination: trtp.AutoTuneCombination, count: int) -> list[tuple[Any, ...]]:
    return [tuple(t for t, _ in row) for row in combination.expand(count)]


def test_dependent() -> None:
    combination = trtp.AutoTuneCombination("FP32|FP16, FP32|FP16")
    assert types(combination, 2) == [(F, F), (H, H)]


def test_independent_after_dependent() -> None:
    combination = trtp.AutoTuneCombination("FP32*FP16,FP32|FP16,FP32|FP16")
    assert types(combination, 3) == [(F, F, F), (F, H, H), (H, F, F), (H, H, H)]


def test_one_layout_is_repeated() -> None:
    rows = list(trtp.AutoTuneCombination("FP32, FP32", "LINEAR*HWC").expand(2))
    layouts = {tuple(layout for _, layout in row) for row in rows}
    assert layouts == set(itertools.product((LINEAR, HWC), repeat=2))


def test_types_outside_layouts_inside() -> None:
    rows = list(trtp.AutoTuneCombination("FP32|FP16,FP32|FP16", "LINEAR|HWC").expand(2))
    assert [row[0] for row in rows] == [(F, LINEAR), (F, HWC), (H, LINEAR), (H, HWC)]


def test_positions_and_tactics() -> None:
    combination = trtp.AutoTuneCombination()
    combination.pos([0, 1], "FP32|FP16")
    combination.pos(2, "INT32", "LINEAR")
    combination.tactics([1, 2])
    assert combination.expand(3) == {
        ((F, LINEAR), (F, LINEAR), (trt.int32, LINEAR)): [1, 2],
        ((H, LINEAR), (H, LINEAR), (trt.int32, LINEAR)): [1, 2],
    }


def test_lower_case_and_names_of_types() -> None:
    assert types(trtp.AutoTuneCombination("half, Int64"), 2) == [(H, trt.int64)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("FP32|FP16*INT8, FP32",), "mixes"),
        (("FP32|FP16, FP32|FP16|INT8",), "as many"),
        (("FP33, FP32",), "did you mean FP32"),
        (("FP32, FP32", "LINAER"), "did you mean LINEAR"),
        (("FP32",), "1 positions, but the plugin has 2"),
        (("FP32, FP32", "LINEAR, LINEAR, LINEAR"), "3 positions"),
    ],
)
def test_mistakes_in_expansion(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trtp.AutoTuneCombination(*arguments).expand(2)


def test_mistakes_in_definition() -> None:
    with pytest.raises(ValueError, match="positive"):
        trtp.AutoTuneCombination("FP32", tactics=[0])
    with pytest.raises(ValueError, match="different"):
        trtp.AutoTuneCombination("FP32", tactics=[1, 1])
    combination = trtp.AutoTuneCombination()
    combination.pos(1, "FP32")
    with pytest.raises(ValueError, match="set already"):
        combination.pos([1], "FP32")
    with pytest.raises(ValueError, match="position 0 was never set"):
        combination.expand(2)
    with pytest.raises(ValueError, match="one or the other"):
        trtp.AutoTuneCombination("FP32").pos(0, "FP32")

"""Python, NumPy and Numba without an engine."""

from __future__ import annotations

from typing import Any

import numpy as np


def noop(x: Any, outputs: Any, stream: int) -> None:
    """The body that Rabbet's plugin has, too."""


def add_one(x: Any, outputs: Any, stream: int) -> None:
    np.add(x, 1, out=outputs[0])


class Chain:
    """The same function called in a loop: what an engine can't go below."""

    def __init__(
        self, *, length: int, shape: tuple[int, ...], body: str, **_: object
    ) -> None:
        self.function = {"noop": noop, "add_one": add_one}[body]
        tensors = [np.zeros(shape, np.float32) for _ in range(length + 1)]
        self.calls = [(tensors[i], [tensors[i + 1]]) for i in range(length)]

    def call(self) -> None:
        function = self.function
        for x, outputs in self.calls:
            function(x, outputs, 0)

    def outputs(self) -> dict[str, Any]:
        self.call()
        return {"y": self.calls[-1][1][0]}


class _Padding:
    """x [N, C, H, W] padded circularly by `pad` on the last two axes."""

    def __init__(self, *, inputs: str, pad: int, **_: object) -> None:
        with np.load(inputs) as arrays:
            self.x = np.array(arrays["x"])
        self.pad = pad
        *outer, height, width = self.x.shape
        shape = (*outer, height + 2 * pad, width + 2 * pad)
        self.y = np.empty(shape, np.float32)

    def outputs(self) -> dict[str, Any]:
        self.call()
        return {"y": self.y}

    def call(self) -> None:
        raise NotImplementedError


class SlicesPadding(_Padding):
    """NumPy in five assignments to slices."""

    def call(self) -> None:
        x, y, p = self.x, self.y, self.pad
        y[..., p:-p, p:-p] = x
        y[..., :p, p:-p] = x[..., -p:, :]
        y[..., -p:, p:-p] = x[..., :p, :]
        y[..., :p] = y[..., -2 * p : -p]
        y[..., -p:] = y[..., p : 2 * p]


class NumpyPadding(_Padding):
    """numpy.pad."""

    def call(self) -> None:
        p = self.pad
        self.y = np.pad(self.x, ((0, 0), (0, 0), (p, p), (p, p)), mode="wrap")


class NumbaPadding(_Padding):
    """The kernel that Rabbet's plugin calls, called by itself."""

    def __init__(self, **arguments: Any) -> None:
        from ..plugins.pad_kernel import pad_circular

        super().__init__(**arguments)
        self.kernel = pad_circular

    def call(self) -> None:
        self.kernel(self.x, self.y, self.pad, 1)

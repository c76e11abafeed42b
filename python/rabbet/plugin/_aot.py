"""Kernels compiled ahead of time: converts the results of an aot_impl for the engine."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _rabbet
from .._aot_kernels import (
    BYTES,
    INPUT,
    INTEGER,
    MAP,
    OUTPUT,
    WORKSPACE,
    hidden_arguments,
    images_of,
)
from .._flags import flag
from ._definition import Checker
from ._desc import TensorDesc
from ._expr import KernelLaunchParams, SymExprs, SymInt8, SymInt16, SymInt32, SymIntExpr

_SIZES: tuple[tuple[type[SymIntExpr], int], ...] = (
    (SymInt8, 1),
    (SymInt16, 2),
    (SymInt32, 4),
)

Code = str | bytes | Mapping[str, str | bytes]


class Workspace:
    """An argument: the address `offset` bytes into the workspace."""

    def __init__(self, offset: Any = 0) -> None:
        self.offset = offset


class TensorMap:
    """An argument: a tensor map (TMA descriptor) of an input or output.

    dims, strides: of the view that it describes, innermost dimension first;
    strides in bytes, from the second dimension on. Default: the tensor as it is,
    row-major. box: elements that one copy moves, innermost first. The other
    arguments are numbers of the CUDA driver's enumerations.
    """

    def __init__(
        self,
        tensor: TensorDesc,
        box: Sequence[int],
        *,
        dims: Sequence[Any] | None = None,
        strides: Sequence[Any] | None = None,
        element_strides: Sequence[int] | None = None,
        interleave: int = 0,
        swizzle: int = 0,
        l2_promotion: int = 0,
        oob_fill: int = 0,
    ) -> None:
        self.tensor, self.box = tensor, tuple(box)
        self.dims, self.strides = dims, strides
        self.element_strides = tuple(element_strides or (1,) * len(self.box))
        self.options = (interleave, swizzle, l2_promotion, oob_fill)


class Kernel:
    """One kernel and its launch.

    code: PTX (str or bytes), machine code for this machine's GPU (bytes of a
    cubin), or several: {"sm_90": cubin, "sm_100": cubin, "ptx": text}.
    args: tensors (TensorDesc of inputs and outputs: their addresses), symbolic
    integers (SymInt8, SymInt16, SymInt32, dimensions), int (32 bits), float
    (FP32), NumPy numbers and bytes (as they are), Workspace, TensorMap. Default:
    all inputs, then all outputs.
    cluster: blocks of a cluster by axis; cooperative: all blocks run at once.
    """

    def __init__(
        self,
        name: str | bytes,
        code: Code,
        launch: KernelLaunchParams,
        args: Sequence[Any] | None = None,
        *,
        cluster: Sequence[int] = (0, 0, 0),
        cooperative: bool = False,
    ) -> None:
        self.name, self.code, self.launch, self.args = name, code, launch, args
        self.cluster, self.cooperative = tuple(cluster), cooperative


class Kernels:
    """Several kernels, run in order; workspace: bytes that they share."""

    def __init__(self, kernels: Sequence[Kernel], workspace: Any = 0) -> None:
        self.kernels, self.workspace = list(kernels), workspace


class Encoder:
    """Converts an aot_impl's result for the engine."""

    def __init__(
        self,
        check: Checker,
        builder: _rabbet.DimBuilder,
        inputs: Sequence[TensorDesc],
        outputs: Sequence[TensorDesc],
    ) -> None:
        self.check, self.builder = check, builder
        self.inputs, self.outputs = inputs, outputs

    def answer(self, answer: Any) -> tuple[int, list[Any]]:
        """(workspace, launches)."""
        if isinstance(answer, tuple):
            answer = self._quadruple(answer)
        if isinstance(answer, Kernel):
            answer = Kernels([answer])
        if not isinstance(answer, Kernels) or not answer.kernels:
            self.check.fail(
                f"it returned {answer!r}; it returns (kernel name, code, "
                "KernelLaunchParams, SymExprs), a Kernel or Kernels"
            )
        workspace = self._dim(answer.workspace, "the workspace")
        return workspace, [self._launch(kernel) for kernel in answer.kernels]

    def _quadruple(self, answer: tuple[Any, ...]) -> Kernel:
        """TensorRT's form: inputs, then the integers, then outputs."""
        if len(answer) != 4:
            self.check.fail(
                f"it returned {len(answer)} items; expected four: kernel name, code, "
                "KernelLaunchParams, SymExprs"
            )
        name, code, launch, extra = answer
        if not isinstance(extra, SymExprs):
            self.check.fail(
                f"the fourth item that it returned is {extra!r}; the kernel's integer "
                "arguments are SymIntExprs.from_tuple([SymInt32(...), ...])"
            )
        return Kernel(name, code, launch, [*self.inputs, *extra, *self.outputs])

    # ---- A launch ----

    def _launch(self, kernel: Kernel) -> tuple[Any, ...]:
        name = kernel.name
        if isinstance(name, bytes):
            name = name.decode("utf-8", "replace")
        if not isinstance(name, str) or not name:
            self.check.fail(f"the kernel's name is {name!r}; expected a str")
        if not isinstance(kernel.launch, KernelLaunchParams):
            self.check.fail(
                f"kernel '{name}': the launch is {kernel.launch!r}; expected "
                "KernelLaunchParams"
            )
        given = kernel.args
        args = [*self.inputs, *self.outputs] if given is None else given
        cluster = (*kernel.cluster, 0, 0, 0)[:3]
        images = images_of(self.check, name, kernel.code)
        encoded = [self._arg(name, i, arg) for i, arg in enumerate(args)]
        return (
            name,
            images,
            self._geometry(kernel.launch),
            tuple(int(number) for number in cluster),
            flag(kernel.cooperative, "cooperative"),
            encoded + hidden_arguments(self.check, name, images, encoded),
        )

    def _geometry(self, launch: KernelLaunchParams) -> tuple[int, ...]:
        names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
                 "shared_mem")  # fmt: skip
        return tuple(self._dim(getattr(launch, name), name) for name in names)

    # ---- Arguments ----

    def _dim(self, value: Any, what: str) -> int:
        expression = value if isinstance(value, SymIntExpr) else SymInt32(value)
        try:
            return expression._to_dim(self.builder)
        except ValueError as error:
            self.check.fail(f"{what}: {error}")

    def _arg(self, kernel: str, index: int, arg: Any) -> tuple[Any, ...]:
        what = f"kernel '{kernel}', argument {index}"
        if isinstance(arg, TensorDesc):
            kind, number = self._tensor(what, arg)
            return kind, number, 0, 0, None, None
        if isinstance(arg, Workspace):
            return WORKSPACE, 0, self._dim(arg.offset, what), 0, None, None
        if isinstance(arg, TensorMap):
            return MAP, 0, 0, 0, None, self._map(what, arg)
        if isinstance(arg, SymIntExpr):
            return self._integer(what, arg)
        if isinstance(arg, (bool, int)):
            return INTEGER, 0, self._dim(SymInt32(arg), what), 4, None, None
        if isinstance(arg, float):
            arg = struct.pack("<f", arg)
        elif hasattr(arg, "tobytes") and getattr(arg, "ndim", None) == 0:
            arg = arg.tobytes()  # a NumPy number
        if isinstance(arg, bytes) and arg:
            return BYTES, 0, 0, len(arg), arg, None
        self.check.fail(
            f"{what} is {arg!r}; expected an input or output (TensorDesc), SymInt32, "
            "a number, bytes, Workspace or TensorMap"
        )

    def _tensor(self, what: str, tensor: TensorDesc) -> tuple[int, int]:
        for kind, tensors in ((INPUT, self.inputs), (OUTPUT, self.outputs)):
            for index, known in enumerate(tensors):
                if tensor is known:
                    return kind, index
        self.check.fail(f"{what} is {tensor!r}, which is neither an input nor an output")

    def _integer(self, what: str, arg: SymIntExpr) -> tuple[Any, ...]:
        for kind, size in _SIZES:
            if isinstance(arg, kind):
                return INTEGER, 0, self._dim(arg, what), size, None, None
        self.check.fail(
            f"{what} is {arg!r}, whose size is not said; wrap it: SymInt32(...)"
        )

    def _map(self, what: str, arg: TensorMap) -> tuple[Any, ...]:
        kind, index = self._tensor(what, arg.tensor)
        dims, strides = arg.dims, arg.strides
        if dims is None:
            dims = list(reversed(list(arg.tensor.shape_expr)))
        if strides is None:
            step: Any = SymInt32(arg.tensor.dtype.itemsize)
            strides = []
            for dim in dims[:-1]:
                step = step * dim
                strides.append(step)
        if not 1 <= len(dims) <= 5 or len(strides) != len(dims) - 1:
            self.check.fail(
                f"{what}: a tensor map has 1 to 5 dimensions and a stride for each but "
                f"the first, got {len(dims)} and {len(strides)}; give dims and strides"
            )
        if len(arg.box) != len(dims) or len(arg.element_strides) != len(dims):
            self.check.fail(
                f"{what}: the box has {len(arg.box)} numbers for {len(dims)} dimensions"
            )
        return (
            kind == OUTPUT,
            index,
            tuple(self._dim(dim, what) for dim in dims),
            tuple(self._dim(stride, what) for stride in strides),
            tuple(int(n) for n in arg.box),
            tuple(int(n) for n in arg.element_strides),
            *arg.options,
        )

"""Kernels made ahead of time: what an aot_impl gives, and what the engine gets."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _rabbet
from .._flags import flag
from ._definition import Checker
from ._desc import TensorDesc
from ._expr import KernelLaunchParams, SymExprs, SymInt8, SymInt16, SymInt32, SymIntExpr
from ._ptx import hidden, kernels, parameters

# Kinds of arguments; rabbet/plugin.h has them.
_INPUT, _OUTPUT, _WORKSPACE, _INTEGER, _BYTES, _MAP = range(6)
_SIZES: tuple[tuple[type[SymIntExpr], int], ...] = (
    (SymInt8, 1),
    (SymInt16, 2),
    (SymInt32, 4),
)
_ELF = b"\x7fELF"

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


def _size_of(arg: tuple[Any, ...]) -> int:
    """Bytes of an encoded argument."""
    if arg[0] in (_INTEGER, _BYTES):
        return int(arg[3])
    return 128 if arg[0] == _MAP else 8


class Encoder:
    """Turns an aot_impl's answer into what the engine takes."""

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
        images = self._images(name, kernel.code)
        encoded = [self._arg(name, i, arg) for i, arg in enumerate(args)]
        return (
            name,
            images,
            self._geometry(kernel.launch),
            tuple(int(number) for number in cluster),
            flag(kernel.cooperative, "cooperative"),
            encoded + self._hidden(name, images, encoded),
        )

    def _hidden(
        self, name: str, images: list[tuple[int, int, bytes]], args: list[Any]
    ) -> list[Any]:
        """Arguments that the compiler added; checks the others, as far as there is PTX:
        the driver would read beyond them."""
        code = next((code for major, _, code in images if major < 0), b"")
        names = kernels(code)
        if names is not None and name not in names:
            self.check.fail(
                f"the PTX has no kernel '{name}'; it has {', '.join(names) or 'none'}"
            )
        there = parameters(code, name)
        if there is None:
            return []
        count = hidden(code, len(args), there)
        if len(args) + count != len(there):
            self.check.fail(
                f"kernel '{name}' takes {len(there)} parameters, {len(args)} arguments "
                "are given"
            )
        for i, (arg, parameter) in enumerate(zip(args, there, strict=False)):
            size = _size_of(arg)
            if size != parameter.size:
                self.check.fail(
                    f"kernel '{name}', argument {i} is of {size} bytes, its parameter "
                    f"of {parameter.size}"
                )
        return [(_BYTES, 0, 0, 8, bytes(8), None)] * count

    def _geometry(self, launch: KernelLaunchParams) -> tuple[int, ...]:
        names = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
                 "shared_mem")  # fmt: skip
        return tuple(self._dim(getattr(launch, name), name) for name in names)

    def _images(self, name: str, code: Any) -> list[tuple[int, int, bytes]]:
        if isinstance(code, Mapping) and code:
            return [self._image(name, key, item) for key, item in code.items()]
        return [self._image(name, None, code)]

    def _image(self, name: str, key: Any, code: Any) -> tuple[int, int, bytes]:
        """major and minor: -1 for PTX, 0 for the GPU that is built for."""
        data = code.encode() if isinstance(code, str) else code
        if not isinstance(data, (bytes, bytearray)) or not data:
            self.check.fail(
                f"kernel '{name}': the code is {code!r:.60}; expected PTX, the bytes "
                'of a cubin, or {"sm_90": cubin, "ptx": text}'
            )
        data = bytes(data)
        text = not data.startswith(_ELF) and data.isascii() and b"\0" not in data
        if text and kernels(data) is None:
            self.check.fail(
                f"kernel '{name}': the code is text that is not PTX, beginning "
                f"{data[:40].decode()!r}; compile it first, by NVRTC for instance"
            )
        if not data.startswith(_ELF):
            return -1, -1, data
        if key is None:
            return 0, 0, data
        digits = str(key).removeprefix("sm_").rstrip("abcdefghijklmnopqrstuvwxyz")
        if not digits.isdigit() or len(digits) < 2:
            self.check.fail(
                f"kernel '{name}': machine code is for {key!r}; expected an "
                "architecture such as 'sm_90'"
            )
        return int(digits[:-1]), int(digits[-1]), data

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
            return _WORKSPACE, 0, self._dim(arg.offset, what), 0, None, None
        if isinstance(arg, TensorMap):
            return _MAP, 0, 0, 0, None, self._map(what, arg)
        if isinstance(arg, SymIntExpr):
            return self._integer(what, arg)
        if isinstance(arg, (bool, int)):
            return _INTEGER, 0, self._dim(SymInt32(arg), what), 4, None, None
        if isinstance(arg, float):
            arg = struct.pack("<f", arg)
        elif hasattr(arg, "tobytes") and getattr(arg, "ndim", None) == 0:
            arg = arg.tobytes()  # a NumPy number
        if isinstance(arg, bytes) and arg:
            return _BYTES, 0, 0, len(arg), arg, None
        self.check.fail(
            f"{what} is {arg!r}; expected an input or output (TensorDesc), SymInt32, "
            "a number, bytes, Workspace or TensorMap"
        )

    def _tensor(self, what: str, tensor: TensorDesc) -> tuple[int, int]:
        for kind, tensors in ((_INPUT, self.inputs), (_OUTPUT, self.outputs)):
            for index, known in enumerate(tensors):
                if tensor is known:
                    return kind, index
        self.check.fail(f"{what} is {tensor!r}, which is neither an input nor an output")

    def _integer(self, what: str, arg: SymIntExpr) -> tuple[Any, ...]:
        for kind, size in _SIZES:
            if isinstance(arg, kind):
                return _INTEGER, 0, self._dim(arg, what), size, None, None
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
            kind == _OUTPUT,
            index,
            tuple(self._dim(dim, what) for dim in dims),
            tuple(self._dim(stride, what) for stride in strides),
            tuple(int(n) for n in arg.box),
            tuple(int(n) for n in arg.element_strides),
            *arg.options,
        )

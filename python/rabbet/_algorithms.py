"""Algorithm selectors: callbacks that choose among the implementations of a layer."""

from __future__ import annotations

from typing import Any

from . import _enums as e
from ._checked import checks_arguments
from ._dims import Dims


class IAlgorithmIOInfo:
    """Memory layout of a tensor that an algorithm reads or writes."""

    def __init__(self, info: tuple[Any, ...]) -> None:
        self._info = info

    @property
    def dtype(self) -> e.DataType:
        """Data type of the elements."""
        return self._info[0]  # type: ignore[no-any-return]

    @property
    def tensor_format(self) -> e.TensorFormat:
        """Description of the format."""
        return self._info[1]  # type: ignore[no-any-return]

    @property
    def strides(self) -> Dims:
        """Stride of each axis at the optimal shape, in elements, or in vectors for a
        vectorized format."""
        return Dims(self._info[2])

    @property
    def vectorized_dim(self) -> int:
        """The vectorized axis; -1 in formats without vectors."""
        return self._info[3]  # type: ignore[no-any-return]

    @property
    def components_per_element(self) -> int:
        """Elements in a vector; 1 in formats without vectors."""
        return self._info[4]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<{self.dtype.name} {self.tensor_format.name}>"


class IAlgorithmVariant:
    """A kernel and its tactic, as numbers that are the same in all builds."""

    def __init__(self, kernel: str, name: str, implementation: int, tactic: int) -> None:
        self._kernel, self._name = kernel, name
        self._implementation, self._tactic = implementation, tactic

    @property
    def implementation(self) -> int:
        """Number of the kernel."""
        return self._implementation

    @property
    def tactic(self) -> int:
        """Number of the kernel's tactic."""
        return self._tactic

    @property
    def name(self) -> str:
        """Names of the kernel and the tactic: "dnnl.convolution jit:avx512_core".
        "view" stands for a step without a kernel."""
        return f"{self._kernel} {self._name}" if self._kernel != "view" else "view"

    def __repr__(self) -> str:
        return f"<{self.name}>"


@checks_arguments
class IAlgorithmContext:
    """The layer, or the fused layers, that an algorithm computes."""

    def __init__(self, info: tuple[Any, ...]) -> None:
        self._info = info

    @property
    def name(self) -> str:
        """Names of the layers: "conv + relu"."""
        return self._info[0]  # type: ignore[no-any-return]

    @property
    def num_inputs(self) -> int:
        """Number of inputs without constants."""
        return self._info[1]  # type: ignore[no-any-return]

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return self._info[2]  # type: ignore[no-any-return]

    def get_shape(self, index: int) -> list[Dims]:
        """[min, opt, max] of a tensor; the indices of outputs follow those of inputs."""
        _check_index(index, len(self._info[3]), f"'{self.name}'")
        return [Dims(dims) for dims in self._info[3][index]]

    def __repr__(self) -> str:
        return f"<'{self.name}'>"


def _check_index(index: int, count: int, what: str) -> None:
    if not 0 <= index < count:
        raise IndexError(f"{what}: tensor {index}, there are {count}")


@checks_arguments
class IAlgorithm:
    """An implementation of a layer."""

    def __init__(self, info: tuple[Any, ...]) -> None:
        self._variant = IAlgorithmVariant(*info[:4])
        self._us, self._workspace, self._tensors = info[4:]

    @property
    def algorithm_variant(self) -> IAlgorithmVariant:
        """The kernel and its tactic."""
        return self._variant

    @property
    def timing_msec(self) -> float:
        """Measured milliseconds of one run; 0 for a step without a kernel, and at
        builder_optimization_level 0, which measures nothing."""
        return max(0.0, self._us / 1000)  # type: ignore[no-any-return]

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory."""
        return self._workspace  # type: ignore[no-any-return]

    def get_algorithm_io_info(self, index: int) -> IAlgorithmIOInfo:
        """Layout of a tensor; the indices of outputs follow those of inputs."""
        _check_index(index, len(self._tensors), repr(self))
        return IAlgorithmIOInfo(self._tensors[index])

    def __repr__(self) -> str:
        return f"<{self._variant.name}, {self.timing_msec:.4f} ms>"


class IAlgorithmSelector:
    """Chooses among the implementations of layers: derive, and define
    select_algorithms, report_algorithms or both."""

    def __init__(self) -> None:
        pass

    def select_algorithms(
        self, context: IAlgorithmContext, choices: list[IAlgorithm]
    ) -> list[int]:
        """Returns the indices of the algorithms that the build may use for the layers
        of the context. An empty list forbids this fusion."""
        return list(range(len(choices)))

    def report_algorithms(
        self, contexts: list[IAlgorithmContext], choices: list[IAlgorithm]
    ) -> None:
        """Receives the result at the end of a build: choices[i] computes contexts[i]."""

    def _select(self, contexts: list[Any], choices: list[Any]) -> list[int]:
        context = IAlgorithmContext(contexts[0])
        chosen = self.select_algorithms(context, [IAlgorithm(info) for info in choices])
        who = f"{type(self).__name__}.select_algorithms, for {context!r}"
        try:
            found = [index.__index__() for index in chosen]
        except (TypeError, AttributeError):
            raise TypeError(
                f"{who}: expected a list of indices, got {chosen!r}"
            ) from None
        for index in found:
            if not 0 <= index < len(choices):
                raise IndexError(
                    f"{who}: there is no algorithm {index} among {len(choices)}"
                )
        return sorted(set(found))

    def _report(self, contexts: list[Any], choices: list[Any]) -> None:
        self.report_algorithms(
            [IAlgorithmContext(info) for info in contexts],
            [IAlgorithm(info) for info in choices],
        )

"""Settings of execution contexts and of engine serialization."""

from __future__ import annotations

from typing import Annotated

from . import _enums as e
from ._checked import bits_of, checks_arguments

_SerializationFlags = Annotated[int, bits_of(e.SerializationFlag)]


@checks_arguments
class IRuntimeConfig:
    """Settings of a context: made by ICudaEngine.create_runtime_config."""

    __slots__ = ("_strategy",)

    def __init__(
        self,
        strategy: e.ExecutionContextAllocationStrategy = (
            e.ExecutionContextAllocationStrategy.STATIC
        ),
    ) -> None:
        self._strategy = strategy

    def set_execution_context_allocation_strategy(
        self,
        strategy: e.ExecutionContextAllocationStrategy = (
            e.ExecutionContextAllocationStrategy.STATIC
        ),
    ) -> None:
        """Chooses how the context gets its memory."""
        self._strategy = strategy

    def get_execution_context_allocation_strategy(
        self,
    ) -> e.ExecutionContextAllocationStrategy:
        """How the context gets its memory."""
        return self._strategy


@checks_arguments
class ISerializationConfig:
    """Contents of a serialized engine: made by ICudaEngine.create_serialization_config."""

    __slots__ = ("_flags",)

    def __init__(self) -> None:
        self._flags = 0

    @property
    def flags(self) -> int:
        """Bits 1 << SerializationFlag."""
        return self._flags

    @flags.setter
    def flags(self, bits: _SerializationFlags) -> None:
        self._flags = bits

    def set_flag(self, flag: e.SerializationFlag) -> bool:
        """Sets a flag."""
        self._flags |= 1 << int(flag)
        return True

    def clear_flag(self, flag: e.SerializationFlag) -> bool:
        """Clears a flag."""
        self._flags &= ~(1 << int(flag))
        return True

    def get_flag(self, flag: e.SerializationFlag) -> bool:
        """Whether a flag is set."""
        return bool(self._flags >> int(flag) & 1)

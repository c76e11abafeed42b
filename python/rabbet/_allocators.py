"""Device memory that users supply: derive, define the methods, and set the object as
`gpu_allocator` of a Runtime or `temporary_allocator` of a context."""

from __future__ import annotations

import operator
import warnings
from typing import Any, ClassVar

from ._versioned import InterfaceInfo, IVersionedInterface


def address_of(giver: Any, answer: Any, wanted: str, none: str) -> int:
    """The address that an allocator gave; `none` stands for no memory."""
    try:
        address = operator.index(answer or 0)
    except TypeError:
        address = -1
    if not 0 <= address < 1 << 64:
        raise TypeError(
            f"{type(giver).__name__} gave {answer!r} for {wanted}; expected an "
            f"address, or {none} if there is no memory"
        )
    return address


class IGpuAllocator(IVersionedInterface):
    """Supplies device memory: define allocate(size, alignment, flags) -> address or
    None, and deallocate(memory) -> bool. Their variants with _async also receive the
    stream and are preferred."""

    _rabbet_info: ClassVar[InterfaceInfo] = InterfaceInfo("IGpuAllocator", 1, 0)

    def __init__(self) -> None:
        pass

    def _rabbet_undefined(self, name: str) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define {name}")

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        """Returns the address of `size` bytes, or None."""
        return self._rabbet_undefined("allocate(size, alignment, flags)")  # type: ignore[no-any-return]

    def reallocate(self, address: int, alignment: int, new_size: int) -> int | None:
        """Is never called: the engine does not resize memory."""
        return None

    def deallocate(self, memory: int) -> bool:
        """Frees the memory."""
        return self._rabbet_undefined("deallocate(memory)")  # type: ignore[no-any-return]

    def allocate_async(
        self, size: int, alignment: int, flags: int, stream: int
    ) -> int | None:
        """As allocate, for work on a stream."""
        return self.allocate(size, alignment, flags)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Frees the memory once the stream's work is done."""
        return self.deallocate(memory)

    # The extension calls these.
    def _rabbet_allocate(self, size: int, alignment: int, stream: int) -> int:
        answer = self.allocate_async(size, alignment, 0, stream)
        return address_of(self, answer, f"{size} bytes", "None")

    def _rabbet_deallocate(self, memory: int, stream: int) -> None:
        if self.deallocate_async(memory, stream) is False:
            warnings.warn(
                f"{type(self).__name__} could not take back the memory at {memory:#x}",
                ResourceWarning,
                stacklevel=2,
            )


class IGpuAsyncAllocator(IGpuAllocator):
    """IGpuAllocator for stream-ordered allocators: define allocate_async and
    deallocate_async."""

    _rabbet_info: ClassVar[InterfaceInfo] = InterfaceInfo("IGpuAllocator", 1, 0)

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        """Calls allocate_async with the default stream."""
        return self.allocate_async(size, alignment, flags, 0)

    def deallocate(self, memory: int) -> bool:
        """Calls deallocate_async with the default stream."""
        return self.deallocate_async(memory, 0)

    def allocate_async(
        self, size: int, alignment: int, flags: int, stream: int
    ) -> int | None:
        """Returns the address of `size` bytes, or None."""
        return self._rabbet_undefined("allocate_async(size, alignment, flags, stream)")  # type: ignore[no-any-return]

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Frees the memory once the stream's work is done."""
        return self._rabbet_undefined("deallocate_async(memory, stream)")  # type: ignore[no-any-return]

"""Names and versions of interfaces."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ._enums import APILanguage


class InterfaceInfo(NamedTuple):
    """Kind and version of an interface."""

    kind: str
    major: int
    minor: int


class IVersionedInterface:
    """Base of the classes that users derive from."""

    _rabbet_info: ClassVar[InterfaceInfo] = InterfaceInfo("", 1, 0)

    @property
    def api_language(self) -> APILanguage:
        """Language in which it is written."""
        return APILanguage.PYTHON

    @property
    def interface_info(self) -> InterfaceInfo:
        """Kind and version of the interface."""
        return self._rabbet_info


class FallbackString(str):
    """A str. TensorRT has a separate type for text that may not be UTF-8."""

    __slots__ = ()

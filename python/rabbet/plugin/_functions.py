"""The functions of a plugin, by what they are for and by device."""

from __future__ import annotations

import inspect

from ._definition import (
    AOT_IMPL,
    AUTOTUNE,
    IMPL,
    DefinitionError,
    Function,
    Registration,
    Signature,
    where,
)


class Functions:
    """The register function of a plugin, and those that were added to it."""

    def __init__(
        self,
        plugin_id: str,
        function: Function,
        registration: Registration,
        timing_key: str | None,
    ) -> None:
        self.id = plugin_id
        self.namespace, self.name = plugin_id.split("::")
        self.register_function = function
        self.registration = registration
        self.functions: dict[str, dict[str | None, Signature]] = {
            role.decorator: {} for role in (IMPL, AUTOTUNE, AOT_IMPL)
        }
        self._timing_key = timing_key

    def all_functions(self) -> list[Function]:
        """Those of every device."""
        added = [s.function for by in self.functions.values() for s in by.values()]
        return [self.register_function, *added]

    def check_input_count(self, count: int, absent: int) -> None:
        """Raises if a layer has another number of inputs."""
        wanted, more = self.registration.input_count(absent)
        if count < wanted or (count > wanted and not more):
            raise DefinitionError(
                f"plugin '{self.id}' takes {wanted}{' or more' if more else ''} inputs "
                f"({self.registration.listed_inputs()}), got {count}"
            )

    def choose(self, what: str, device: str) -> Signature | None:
        """The function for a device: its own, else the one for any."""
        functions = self.functions[what]
        return functions.get(device.partition(":")[0], functions.get(None))

    def missing_impl(self, device: str) -> str:
        """Reason why nothing can run on a device."""
        there = [d for d in self.functions["impl"] if d is not None]
        if self.functions["aot_impl"]:
            return (
                f"plugin '{self.id}' has an aot_impl but no impl for device "
                f"'{device}'; kernels are made ahead of time for 'cuda' alone: define "
                f"@rabbet.plugin.impl('{self.id}') as well"
            )
        known = f" (it has one for {', '.join(there)})" if there else ""
        return (
            f"plugin '{self.id}' (registered by {where(self.register_function)}) has "
            f"no impl for device '{device}'{known}; define a function decorated "
            f"@rabbet.plugin.impl('{self.id}')"
        )

    def timing_key(self) -> bytes | None:
        """Identifies a version of the plugin's code; None: unknown."""
        import hashlib

        if self._timing_key is not None:
            return self._timing_key.encode()
        digest = hashlib.sha256()
        for file in sorted(set(map(source_file, self.all_functions()))):
            try:
                with open(file, "rb") as source:
                    digest.update(source.read())
            except OSError:
                return None
        return digest.digest()


def source_file(function: Function) -> str:
    """The file of a function, or "" where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else ""

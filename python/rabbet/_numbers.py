"""Numbers of C enumerations, from the extension."""

from __future__ import annotations

from ._rabbet import NUMBERS


class Attr:
    """Types of attributes."""

    INT = NUMBERS["ATTR_INT"]
    FLOAT = NUMBERS["ATTR_FLOAT"]
    BOOL = NUMBERS["ATTR_BOOL"]
    STRING = NUMBERS["ATTR_STRING"]
    BYTES = NUMBERS["ATTR_BYTES"]
    INTS = NUMBERS["ATTR_INTS"]
    FLOATS = NUMBERS["ATTR_FLOATS"]
    BOOLS = NUMBERS["ATTR_BOOLS"]
    STRINGS = NUMBERS["ATTR_STRINGS"]
    TENSOR = NUMBERS["ATTR_TENSOR"]


# Ways in which plugins run.
RUNS = NUMBERS["PLUGIN_RUNS"]
AOT = NUMBERS["PLUGIN_READY"]
PREFER_RUNS = NUMBERS["PLUGIN_PREFER_RUNS"]
PREFER_AOT = NUMBERS["PLUGIN_PREFER_READY"]

# Whether a plugin may be recorded into graphs: its declaration `capturable`.
CAPTURE = {
    None: NUMBERS["PLUGIN_CAPTURE_TRIAL"],
    True: NUMBERS["PLUGIN_CAPTURE_SAFE"],
    False: NUMBERS["PLUGIN_CAPTURE_NEVER"],
}

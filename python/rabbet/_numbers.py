"""Numbers of C enumerations, as the extension tells them."""

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


# How plugins run.
RUNS = NUMBERS["PLUGIN_RUNS"]
AOT = NUMBERS["PLUGIN_READY"]
PREFER_RUNS = NUMBERS["PLUGIN_PREFER_RUNS"]
PREFER_AOT = NUMBERS["PLUGIN_PREFER_READY"]

# Whether a plugin's work may be recorded, by what it says of itself: `capturable`.
CAPTURE = {
    None: NUMBERS["PLUGIN_CAPTURE_TRIAL"],
    True: NUMBERS["PLUGIN_CAPTURE_SAFE"],
    False: NUMBERS["PLUGIN_CAPTURE_NEVER"],
}

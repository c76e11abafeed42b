"""Name and version under which the alias is known."""

from __future__ import annotations

import rabbet

NAME = "tensorrt"
# The release whose interface this is.
TENSORRT = "10.16.0"
VERSION = f"{TENSORRT}+rabbet.{rabbet.__version__}"
METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Gives Rabbet to programs that import tensorrt
"""

"""Circular padding of the last two axes in C, called through ctypes.

The library is compiled from circ_pad.c beside this file when it is first needed.
"""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import rabbet.plugin as trtp


def compile_library() -> ctypes.CDLL:
    source = Path(__file__).with_name("circ_pad.c")
    library = Path(tempfile.mkdtemp()) / "circ_pad.so"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


circ_pad = compile_library().circ_pad
circ_pad.restype = None
circ_pad.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 4


@trtp.register("example::circ_pad_plugin")
def circ_pad_desc(x: trtp.TensorDesc, pad: int) -> trtp.TensorDesc:
    y = x.like()
    y.shape_expr[-2] += 2 * pad
    y.shape_expr[-1] += 2 * pad
    return y


@trtp.impl("example::circ_pad_plugin", device="cpu")
def circ_pad_impl(x, pad: int, outputs, stream):
    n, c, h, w = x.shape
    circ_pad(x.data_ptr, outputs[0].data_ptr, n * c, h, w, pad)

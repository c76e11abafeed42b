"""One function for each mistake that docs/plugins.md tells of; each raises."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import rabbet as trt
import rabbet.plugin as trtp

A, D = trtp.AutoTuneCombination, trtp.TensorDesc
X = np.ones((2, 3), np.float32)
MISTAKES: list[Callable[[], Any]] = []
serial = itertools.count()


def mistake(function: Callable[[], Any]) -> Callable[[], Any]:
    MISTAKES.append(function)
    return function


def net(pid, shape=(2, 3), dt=trt.float32, **attrs):
    """A model of one layer of a plugin."""
    n = trt.Builder().create_network()
    x = n.add_input("x", dt, shape)
    ns, nm = pid.split("::")
    layer = n.add_plugin(getattr(getattr(trtp.op, ns), nm)(x, **attrs))
    for i in range(layer.num_outputs):
        n.mark_output(layer.get_output(i))
    return trt.compile(n, device="cpu")


def plugin(reg, imp=None, tune=None, **a):
    """Defines, builds and runs a plugin of these functions."""
    pid = f"doc::m{next(serial)}"
    trtp.register(pid)(reg)
    if tune:
        trtp.autotune(pid)(tune)
    if imp:
        trtp.impl(pid)(imp)
    return net(pid, **a)(X)


def like(x: D) -> D:
    return x.like()


def likea(x: D, size: int) -> D:
    return x.like()


def copy(x, outputs, stream):
    np.asarray(outputs[0])[...] = np.asarray(x)


@mistake
def id_without_colons():
    trtp.register("scale")(like)


@mistake
def reserved_ns():
    trtp.register("trt::scale")(like)


@mistake
def parens_forgot():
    trtp.register(like)


@mistake
def unannotated():

    def f(x) -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def no_return():

    def f(x: D):
        ...
    trtp.register("doc::a")(f)


@mistake
def ellipsis():

    def f(x: D) -> tuple[D, ...]:
        ...
    trtp.register("doc::a")(f)


@mistake
def opt():

    def f(x: D, a: Optional[int]) -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def ndarray():

    def f(x: D, a: np.ndarray) -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def stargs():

    def f(*x: int) -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def reserved():

    def f(x: D, tactic: int) -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def badtext():

    def f(x: "TensorDsc") -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def default_bad():

    def f(x: D, n: int="a") -> D:
        ...
    trtp.register("doc::a")(f)


@mistake
def impl_first():
    trtp.impl("doc::nothing_here")(copy)


@mistake
def impl_unknown_param():
    trtp.register("doc::ip")(likea)

    def f(x, sise, outputs):
        ...
    trtp.impl("doc::ip")(f)


@mistake
def impl_missing_input():
    trtp.register("doc::ip2")(likea)

    def f(size, outputs):
        ...
    trtp.impl("doc::ip2")(f)


@mistake
def impl_no_outputs():
    trtp.register("doc::ip3")(likea)

    def f(x, size):
        ...
    trtp.impl("doc::ip3")(f)


@mistake
def impl_attr_type():
    trtp.register("doc::ip4")(likea)

    def f(x, size: float, outputs):
        ...
    trtp.impl("doc::ip4")(f)


@mistake
def impl_desc():
    trtp.register("doc::ip5")(like)

    def f(x: trtp.TensorDesc, outputs):
        ...
    trtp.impl("doc::ip5")(f)


@mistake
def impl_dev():
    trtp.impl("doc::ip5", device="gpu")(copy)


@mistake
def capturable_as_text():
    trtp.impl("doc::captured", capturable="yes")


@mistake
def taken():
    trtp.register("doc::tk")(like)

    def other(x: D) -> D:
        ...
    trtp.register("doc::tk")(other)


@mistake
def no_impl():
    plugin(like)


@mistake
def wrong_count():

    def f(x: D) -> tuple[D, D]:
        return x.like()
    plugin(f, copy)


@mistake
def returns_none():

    def f(x: D) -> D:
        x.like()
    plugin(f, copy)


@mistake
def calculates_with_a_tensor():

    def f(x: D) -> D:
        return x.like()

    def g(x, outputs):
        outputs[0].numpy()[...] = x * 2
    plugin(f, g)


@mistake
def replaces_outputs():

    def f(x: D) -> D:
        return x.like()

    def g(x, outputs):
        outputs[0] = np.from_dlpack(x) * 2
    plugin(f, g)


@mistake
def sets_input():

    def f(x: D) -> D:
        x.dtype = trt.float16
        return x
    plugin(f, copy)


@mistake
def if_on_dim():

    def f(x: D) -> D:
        y = x.like()
        if x.shape_expr[0] > 4:
            y.shape_expr[0] = 4
        return y
    trtp.register("doc::dyn")(f)
    trtp.impl("doc::dyn")(copy)
    net("doc::dyn", shape=(-1, 3))


@mistake
def truediv():

    def f(x: D) -> D:
        y = x.like()
        y.shape_expr[0] = x.shape_expr[0] / 2
        return y
    plugin(f, copy)


@mistake
def use_shape():

    def f(x: D) -> D:
        y = x.like()
        y.shape_expr[0] = x.shape[0]
        return y
    plugin(f, copy)


@mistake
def floatdim():

    def f(x: D) -> D:
        y = x.like()
        y.shape_expr[0] = 2.0
        return y
    plugin(f, copy)


@mistake
def negdim():

    def f(x: D) -> D:
        y = x.like()
        y.shape_expr[0] = x.shape_expr[0] - 5
        return y
    plugin(f, copy)


@mistake
def range_dim():

    def f(x: D) -> D:
        for i in range(x.shape_expr[0]):
            pass
        return x.like()
    plugin(f, copy, shape=(-1, 3))


@mistake
def int_dim():

    def f(x: D) -> D:
        int(x.shape_expr[0])
        return x.like()
    plugin(f, copy, shape=(-1, 3))


@mistake
def size_arith():

    def f(x: D) -> tuple[D, D]:
        n = trtp.size_tensor(1, x.shape_expr[0])
        return (trtp.from_shape_expr((n.expr() + 1,), trt.float32), n)
    plugin(f, copy)


@mistake
def size_not_returned():

    def f(x: D) -> D:
        n = trtp.size_tensor(1, x.shape_expr[0])
        return trtp.from_shape_expr((n.expr(),), trt.float32)
    plugin(f, copy)


@mistake
def alias_copy():

    def f(x: D) -> D:
        return x.like().aliased()
    plugin(f, copy)


@mistake
def alias_twice():

    def f(x: D) -> tuple[D, D]:
        return (x.aliased(), x.aliased())
    plugin(f, copy)


@mistake
def no_dtype():

    def f(x: D) -> D:
        return trtp.TensorDesc(x.shape_expr)
    plugin(f, copy)


@mistake
def builtin_max():

    def f(x: D) -> D:
        y = x.like()
        y.shape_expr[0] = max(x.shape_expr[0], 4)
        return y
    trtp.register("doc::bm")(f)
    trtp.impl("doc::bm")(copy)
    net("doc::bm", shape=(-1, 3))


@mistake
def attr_missing():
    trtp.register("doc::am")(likea)
    trtp.impl("doc::am")(copy)
    net("doc::am")


@mistake
def attr_type():
    net("doc::am", size="3")


@mistake
def attr_unknown():
    net("doc::am", sise=3)


@mistake
def attr_positional():
    n = trt.Builder().create_network()
    x = n.add_input("x", trt.float32, (1,))
    trtp.op.doc.am(x, 3)


@mistake
def numpy_in():
    trtp.op.doc.am(X, size=3)


@mistake
def op_missing():
    trtp.op.doc.nothing


@mistake
def ns_missing():
    trtp.op.dok


@mistake
def add_plugin_uncalled():
    n = trt.Builder().create_network()
    n.add_plugin(trtp.op.doc.am)


@mistake
def tune_str():

    def t(x, outputs):
        return ["FP32"]
    plugin(like, copy, t)


@mistake
def tune_type():

    def t(x, outputs):
        return [A("FP23,FP32")]
    plugin(like, copy, t)


@mistake
def tune_count():

    def t(x, outputs):
        return [A("FP32")]
    plugin(like, copy, t)


@mistake
def tune_mix():

    def t(x, outputs):
        return [A("FP32|FP16*INT8,FP32")]
    plugin(like, copy, t)


@mistake
def tune_dep():

    def t(x, outputs):
        return [A("FP32|FP16,FP32|FP16|BF16")]
    plugin(like, copy, t)


@mistake
def tune_zero():

    def t(x, outputs):
        return [A("FP32,FP32", tactics=[0])]
    plugin(like, copy, t)


@mistake
def tune_nothing():

    def t(x, outputs):
        return [A("INT8,INT8")]
    plugin(like, copy, t)


@mistake
def tune_chw():

    def t(x, outputs):
        return [A("FP32,FP32", "CHW32")]
    plugin(like, copy, t)


@mistake
def returns_array():

    def f(x, outputs, stream):
        return np.asarray(x) * 2
    plugin(like, f)


@mistake
def writes_input():

    def f(x, outputs, stream):
        np.from_dlpack(x)[...] = 1
    plugin(like, f)


@mistake
def writes_input2():

    def f(x, outputs, stream):
        np.asarray(x)[...] = 1
    plugin(like, f)


@mistake
def dep_write():

    def f(x: D) -> tuple[D, D]:
        n = trtp.size_tensor(1, x.shape_expr[0])
        return (trtp.from_shape_expr((n.expr(),), trt.float32), n)

    def i(x, outputs, stream):
        np.from_dlpack(outputs[0])
    plugin(f, i)


@mistake
def size_too_large():

    def f(x: D) -> tuple[D, D]:
        n = trtp.size_tensor(1, x.shape_expr[0])
        return (trtp.from_shape_expr((n.expr(),), trt.float32), n)

    def i(x, outputs, stream):
        np.from_dlpack(outputs[1])[...] = 77
    return plugin(f, i)


@mistake
def keep_tensor():
    kept = []

    def f(x, outputs, stream):
        kept.append(x)
        copy(x, outputs, stream)

    def t(x, outputs):
        return [A("FP32,FP32", "LINEAR", [1, 2])]

    def g(x, outputs, stream, tactic):
        kept.append(x)
    return plugin(like, g, t)


@mistake
def values_unknown():

    def f(x: D, n: trtp.ShapeInput) -> D:
        return trtp.from_shape_expr((n[0],), trt.float32)

    def i(x, n, outputs, stream):
        ...
    trtp.register("doc::vu")(f)
    trtp.impl("doc::vu")(i)
    n = trt.Builder().create_network()
    x = n.add_input("x", trt.float32, (2,))
    s = n.add_input("s", trt.float32, (1,))
    n.mark_output(n.add_plugin(trtp.op.doc.vu(x, s)).get_output(0))
    trt.compile(n, device="cpu")


@mistake
def cuda_iface():

    def f(x, outputs, stream):
        x.__cuda_array_interface__
    plugin(like, f)


@mistake
def aot():
    n = trt.Builder().create_network()
    x = n.add_input("x", trt.float32, (1,))
    trtp.register("doc::ao")(like)
    trtp.impl("doc::ao")(copy)
    n.add_plugin(trtp.op.doc.ao(x), aot=True)


@mistake
def outputs_shape_mismatch():

    def f(x, outputs, stream):
        np.from_dlpack(outputs[0])[...] = np.ones((5, 5))
    plugin(like, f)


@mistake
def load_without():

    def elsewhere(x: D) -> D:
        return x.like()
    trtp.register("elsewhere::scale")(elsewhere)
    trtp.impl("elsewhere::scale")(copy)
    plan = net("elsewhere::scale").engine.serialize()
    trtp._plugin.QDP_REGISTRY["elsewhere::scale"].deregister()
    trt.Runtime().deserialize_cuda_engine(plan)


@mistake
def view_too_large():

    def f(x: D) -> tuple[D, D]:
        n = trtp.size_tensor(1, x.shape_expr[0])
        return (trtp.from_shape_expr((n.expr(),), trt.float32), n)

    def i(x, outputs, stream):
        outputs[0].aliased((77,))
    plugin(f, i)

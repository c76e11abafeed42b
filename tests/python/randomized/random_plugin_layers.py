"""Plugins as layers of random networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import rabbet as trt

from tests.python.randomized import random_classes as classes
from tests.python.randomized import random_plugins as p
from tests.python.randomized.random_elements import numeric
from tests.python.randomized.random_networks import (
    FLOATS,
    Net,
    Unfit,
    Value,
)
from tests.python.support.plugins import call


def layouts_for(v: Value) -> list[str]:
    """Formats that fit a value's rank."""
    return [f for f, (_, _, least) in p.FORMATS.items() if v.rank >= least]


def layout(net: Net, v: Value) -> str:
    return str(net.pick(["LINEAR", *layouts_for(v)]))


TYPE_NAMES = {t: name for name, t in p.NAMES.items()}


def plan_of(net: Net, values: list[Value], outputs: list[Any], together: bool) -> dict[str, Any]:
    """Types, formats and tactics that a decorated plugin offers. together: all are of one
    type and format."""
    count = len(values) + len(outputs)
    own = [TYPE_NAMES[v.dtype] for v in values] + [TYPE_NAMES[t] for t in outputs]
    if all(name == "FP32" for name in own) and net.chance(0.5):
        types = ", ".join(["FP32|FP16"] * count)
    else:
        types = ", ".join(own)
    rows = [layout(net, values[0]) for _ in range(net.integer(1, 3))]
    rows = list(dict.fromkeys(rows))
    formats = "|".join(rows)
    if together or net.chance(0.4):
        formats = ", ".join([formats] * count)
    else:
        options = [
            list(dict.fromkeys(layout(net, values[0]) for _ in range(2))) for _ in range(count)
        ]
        formats = ", ".join("*".join(o) for o in options)
    tactics = [int(t) for t in net.random.permutation(9)[: net.integer(0, 2)] + 1]
    return {"types": types, "formats": formats, "tactics": tactics or [4]}


def pluggable(v: Value) -> bool:
    return v.dtype in FLOATS


def single(v: Value) -> bool:
    return v.dtype is trt.float32


def plugin_error(net: Net, x: Value, factor: float, add: float) -> float:
    if x.exact:
        return 0.0
    return factor * x.error + net.rounding(x.dtype) * max(1.0, factor * x.bound + add)


def add_plugin(net: Net, name: str, x: Value, **attrs: Any) -> Any:
    """The output of a decorated plugin of one input."""
    func = call(f"{p.SPACE}::{name}")
    return net.network.add_plugin(func(x.tensor, **attrs)).get_output(0)


def plugin_affine(net: Net) -> None:
    x = net.value(lambda v: v.rank >= (0 if v.is_float else 1) and numeric(v))
    name = net.pick(["affine", "affine_in_place", "by_channel", "recorded", "ahead"])
    kernels = name in ("recorded", "ahead")
    if (name == "by_channel" and x.rank < 3) or (kernels and not single(x)):
        raise Unfit
    a, b = float(net.pick([1, -1, 2])), float(net.integer(-2, 2))
    attrs: dict[str, Any] = {"b": b}
    if name != "by_channel":
        attrs["a"] = a
    if kernels:
        if not x.exact and net.least is not trt.float32:
            raise Unfit
        one = layout(net, x)
        attrs["formats"] = f"{one}, {one}"
    else:
        attrs |= plan_of(net, [x], [x.dtype], name == "affine_in_place")

    def function(v: Any) -> Any:
        made = p.by_channel(v, b) if name == "by_channel" else p.affine(v, a, b)
        return (made[0].astype(v.dtype),)

    net.add(
        f"plugin {name} {attrs}",
        lambda: [add_plugin(net, name, x, **attrs)],
        [x], function, [x.dtype], [x.step and min(x.step, 1.0)],
        [plugin_error(net, x, 3, abs(b))],
    )  # fmt: skip


def plugin_pair(net: Net) -> None:
    x = net.value(lambda v: pluggable(v) and v.exact and v.step >= 1)
    b = float(net.integer(-2, 2))
    attrs = plan_of(net, [x], [x.dtype, trt.int32], False)

    def make() -> Any:
        layer = net.network.add_plugin(call(f"{p.SPACE}::pair")(x.tensor, b=b, **attrs))
        return [layer.get_output(0), layer.get_output(1)]

    net.add(
        f"plugin pair {attrs}", make, [x],
        lambda v: (p.pair(v, b)[0], p.pair(v, b)[1].astype(np.int64)),
        [x.dtype, trt.int32], [x.step, 1.0],
    )  # fmt: skip


def same(x: Value) -> Any:
    return lambda v: v.dtype is x.dtype and v.dims == x.dims and v.unknown is x.unknown


def plugin_two(net: Net) -> None:
    """Two tensors of one shape, which may be one tensor."""
    x = net.value(pluggable)
    y = net.value(same(x))
    name = net.pick(["mix", "accumulate", "swap"])
    attrs = plan_of(net, [x, y], [x.dtype] * (2 if name == "swap" else 1), name != "mix")
    function = {"mix": p.mix, "accumulate": p.accumulate, "swap": p.swap}[name]

    def make() -> Any:
        layer = net.network.add_plugin(
            call(f"{p.SPACE}::{name}")(x.tensor, y.tensor, **attrs)
        )
        return [layer.get_output(i) for i in range(layer.num_outputs)]

    count = 2 if name == "swap" else 1
    step = min(x.step, y.step)
    error = 0.0 if step else 2 * (x.error + y.error) + 2 * net.rounding(x.dtype) * max(
        1.0, x.bound + 2 * y.bound
    )
    net.add(
        f"plugin {name} {attrs}", make, [x, y], function, [x.dtype] * count, [step] * count,
        [error] * count,
    )  # fmt: skip


def plugin_channels(net: Net) -> None:
    """More or fewer channels than the input has."""
    x = net.value(
        lambda v: pluggable(v) and v.rank >= 3 and min(v.dim(1)) > 0 and max(v.dim(1)) < 80
        and v.unknown is None
    )  # fmt: skip
    attrs = plan_of(net, [x], [x.dtype], False)
    name, more = net.pick(["widen", "fold"]), net.pick([1, 3, 4, 8, 16])
    if name == "widen":
        attrs["more"] = more
    function = (lambda v: p.widen(v, more)) if name == "widen" else p.fold
    error = x.error + (0 if x.exact else net.rounding(x.dtype) * max(1.0, x.bound))
    net.add(
        f"plugin {name} {attrs}",
        lambda: [add_plugin(net, name, x, **attrs)],
        [x], function, [x.dtype], [x.step], [error],
    )  # fmt: skip


def plugin_keep(net: Net) -> None:
    """An extent that only the run tells, and the number."""
    x = net.value(
        lambda v: v.dtype is trt.float32 and v.exact and 1 <= v.rank <= 4 and v.unknown is None
    )

    def make() -> Any:
        layer = net.network.add_plugin(call(f"{p.SPACE}::keep")(x.tensor))
        return [layer.get_output(0), layer.get_output(1)]

    made = net.add(
        "plugin keep", make, [x], p.keep, [x.dtype, trt.int32], [x.step, 1.0],
        unknown=object(),
    )  # fmt: skip
    made[1].unknown = None


def plugin_spread(net: Net) -> None:
    """A shape input: constants, a network's input, or what a shape layer tells."""
    x = net.value(lambda v: v.dtype is trt.float32 and 1 <= v.rank <= 4)
    t = net.value(
        lambda v: getattr(v, "is_shape", False) and v.rank == 1 and v.shapes[0] == (x.rank,)
    ) if net.chance(0.6) else net.constant(
        net.random.integers(1, 3, x.rank), net.pick([trt.int32, trt.int64])
    )  # fmt: skip
    net.add(
        "plugin spread",
        lambda: [
            net.network.add_plugin(call(f"{p.SPACE}::spread")(x.tensor, t.tensor)).get_output(0)
        ],
        [x, t], p.spread, [x.dtype], [x.step], [x.error],
    )  # fmt: skip


def plugin_class_sizes(net: Net) -> None:
    """A class with an extent that only the run tells, in a shape that a shape input
    tells."""
    x = net.value(lambda v: v.dtype is trt.float32 and v.exact and v.rank == 2
                  and v.unknown is None)  # fmt: skip
    t = net.value(
        lambda v: getattr(v, "is_shape", False) and v.shapes[0][0] >= 1
    ) if net.chance(0.6) else net.constant(
        net.random.integers(1, 3, 2), net.pick([trt.int32, trt.int64])
    )  # fmt: skip

    def make() -> Any:
        layer = net.network.add_plugin_v3(
            [x.tensor], [t.tensor], classes.SizesV3(net.pick([[], [1, 2]]))
        )
        return [layer.get_output(0), layer.get_output(1)]

    made = net.add(
        "plugin class 3 sizes", make, [x, t], classes.sizes, [x.dtype, trt.int32],
        [x.step, 1.0], unknown=object(),
    )  # fmt: skip
    made[1].unknown = None


def plugin_class(net: Net) -> None:
    """IPluginV3 or IPluginV2DynamicExt, asked about each position."""
    x = net.value(pluggable)
    old = net.chance(0.4)
    kind = net.pick(["sum", "channel"] if old else ["sum", "channel", "in_place"])
    if kind == "channel" and (x.rank < 3 or not x.exact or x.step < 1):
        raise Unfit
    inputs = [x] if kind == "channel" else [x, net.value(same(x))]
    delta = float(net.integer(-2, 2))
    count = classes.num_outputs(kind)
    rows = []
    for _ in range(net.integer(1, 3)):
        dtype = net.pick([x.dtype, x.dtype, trt.float16])
        row = [(dtype, layout(net, x)) for _ in range(len(inputs) + 1)]
        if kind == "in_place":
            row = [row[0], row[1], row[0]]
        if count == 2:
            row.append((trt.int32, "LINEAR"))  # classes are asked about no other
        rows.append(row)
    if all(row[0][0] is not x.dtype for row in rows):
        rows.append([(trt.int32 if t is trt.int32 else x.dtype, "LINEAR") for t, _ in row])
    tensors = [v.tensor for v in inputs]
    tactics = [int(t) for t in net.random.permutation(9)[: net.integer(0, 2)] + 1]

    def make() -> Any:
        if old:
            layer = net.network.add_plugin_v2(tensors, classes.RandomV2(kind, delta, rows))
        else:
            plugin = classes.RandomV3(kind, delta, rows, tactics)
            layer = net.network.add_plugin_v3(tensors, [], plugin)
        return [layer.get_output(i) for i in range(count)]

    def function(*arrays: Any) -> Any:
        results = classes.compute(kind, delta, *arrays)
        return (results[0], results[1].astype(np.int64)) if count == 2 else results

    step = min(v.step for v in inputs)
    error = 0.0 if step else sum(v.error for v in inputs) + 2 * net.rounding(x.dtype) * max(
        1.0, sum(v.bound for v in inputs) + 2
    )
    net.add(
        f"plugin class {2 if old else 3} {kind} {classes.to_text(rows)}", make, inputs,
        function, [x.dtype, trt.int32][:count], [step and min(step, 1.0), 1.0][:count],
        [error, 0.0][:count],
    )  # fmt: skip


def twice(net: Net) -> None:
    """The same in-place plugin after itself."""
    x = net.value(pluggable)
    attrs = plan_of(net, [x], [x.dtype], True)
    for _ in range(2):
        y = x
        net.add(
            f"plugin affine_in_place (twice) {attrs}",
            lambda y=y: [add_plugin(net, "affine_in_place", y, a=-1.0, b=1.0, **attrs)],
            [y], lambda v: p.affine(v, -1.0, 1.0), [y.dtype], [y.step and min(y.step, 1.0)],
            [plugin_error(net, y, 1, 1)],
        )  # fmt: skip
        x = net.values[-1]

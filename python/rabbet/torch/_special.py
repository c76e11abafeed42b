"""Special functions, as arithmetic that is right to the last digits of FLOAT.

The coefficients interpolate the functions in Chebyshev nodes, computed with 40 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._graph import Graph, Value
from ._table import TABLE, aten, refuse


class _Terms:
    """Writes arithmetic on tensors and numbers of a type."""

    def __init__(self, g: Graph, dtype: Any) -> None:
        self.g, self.dtype = g, dtype

    def _of(self, x: str | float) -> str:
        return x if isinstance(x, str) else self.g.scalar(float(x), self.dtype)

    def __call__(self, kind: str, *operands: str | float) -> str:
        return self.g.op(kind, *map(self._of, operands))

    def where(self, condition: str, a: str | float, b: str | float) -> str:
        """a where a condition holds, else b."""
        return self.g.op("Where", condition, self._of(a), self._of(b))

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """By Horner's rule; coefficients of rising powers."""
        found: str | float = coefficients[-1]
        for each in reversed(coefficients[:-1]):
            found = self("Add", self("Mul", found, x), each)
        return self._of(found)


def _register(write: Callable[[_Terms, str], str], *names: str) -> None:
    """A function of one operand, computed in FLOAT where the type is shorter."""

    def handler(g: Graph, out: Any, x: Value) -> str:
        short = out.dtype in (torch.float16, torch.bfloat16)
        dtype = torch.float32 if short else out.dtype
        made = write(_Terms(g, dtype), g.to(x, dtype))
        return g.to(Value.make(made, dtype, out.shape), out.dtype)

    TABLE.update({f"aten.{name}.default": handler for name in names})


# ---- The error function's relatives ----

# (1 + 2 x) erfcx(x) of t = (x - 2) / (x + 2).
_SCALED_ERFC = (
    1.276978391, -0.09276381574, -0.1660310904, 0.1640504971, -0.05421199524, -0.008024739103,
    0.008689252695, 0.001230503217, -0.001395805088, -0.0003709284114, 0.0001608403463,
    6.807514759e-05,
)  # fmt: skip


def _positive_erfcx(t: _Terms, size: str) -> str:
    """exp(x^2) erfc(x) of numbers that are not negative."""
    # 1 - 4 / (x + 2) is 1 for infinity.
    place = t("Sub", 1, t("Div", 4, t("Add", size, 2)))
    rows = t.polynomial(place, _SCALED_ERFC)
    return t("Div", rows, t("Add", t("Mul", 2, size), 1))


def _erfcx(t: _Terms, x: str) -> str:
    above = _positive_erfcx(t, t("Abs", x))
    below = t("Sub", t("Mul", 2, t("Exp", t("Mul", x, x))), above)
    return t.where(t("Less", x, 0), below, above)


def _erfc(t: _Terms, x: str) -> str:
    """1 - erf(x) has no digits left for large numbers."""
    above = t("Mul", t("Exp", t("Neg", t("Mul", x, x))), _positive_erfcx(t, t("Abs", x)))
    far = t.where(t("Less", x, 0), t("Sub", 2, above), above)
    is_near = t("Less", t("Abs", x), 0.5)
    return t.where(is_near, t("Sub", 1, t("Erf", x)), far)


_register(_erfc, "erfc", "special_erfc")
_register(_erfcx, "special_erfcx")

# Giles' approximations for single precision (2012), of w - 2.5 and sqrt(w) - 3.
_INVERSE_NEAR = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_INVERSE_FAR = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip


def _inverse(t: _Terms, x: str, rest: str) -> str:
    """erfinv(x); rest: (1 - x) (1 + x), which x may have lost the digits of."""
    w = t("Neg", t("Log", rest))
    near = t.polynomial(t("Sub", w, 2.5), _INVERSE_NEAR)
    far = t.polynomial(t("Sub", t("Sqrt", w), 3), _INVERSE_FAR)
    found = t("Mul", t.where(t("Less", w, 5), near, far), x)
    return t.where(t("Equal", rest, 0), t("Mul", x, math.inf), found)


def _erfinv(t: _Terms, x: str) -> str:
    return _inverse(t, x, t("Mul", t("Sub", 1, x), t("Add", 1, x)))


def _ndtri(t: _Terms, p: str) -> str:
    rest = t("Mul", 4, t("Mul", p, t("Sub", 1, p)))
    centred = t("Sub", t("Mul", 2, p), 1)
    return t("Mul", _inverse(t, centred, rest), math.sqrt(2))


_register(_erfinv, "erfinv", "special_erfinv")
_register(_ndtri, "special_ndtri")

# ---- The gamma function's relatives ----

# gamma(x) exp(w) / w^(x - 0.5) of w = x + 3.9, times x (x + 1) (x + 2) (x + 3).
_GAMMA_SHIFT = 3.9
_GAMMA = (585.3721164, 599.0383644, 229.8659296, 39.19948798, 2.506628275)
_GAMMA_DIVISOR = (0.0, 6.0, 11.0, 6.0, 1.0)


def _of_pi(t: _Terms, kind: str, x: str) -> tuple[str, str]:
    """sin or tan of pi x, and where x is whole."""
    rest = t("Sub", x, t("Round", x))
    return t(kind, t("Mul", rest, math.pi)), t("Equal", rest, 0)


def _lgamma(t: _Terms, x: str) -> str:
    is_low = t("Less", x, 0.5)
    y = t.where(is_low, t("Sub", 1, x), x)
    w = t("Add", y, _GAMMA_SHIFT)
    # Quotients of powers have no place for large numbers, where 1 / y does.
    inverse = t("Reciprocal", y)
    above = t.polynomial(inverse, _GAMMA[::-1])
    ratio = t("Div", above, t.polynomial(inverse, _GAMMA_DIVISOR[::-1]))
    powers = t("Mul", t("Sub", y, 0.5), t("Sub", t("Log", w), 1))
    found = t("Add", powers, t("Sub", t("Log", ratio), _GAMMA_SHIFT + 0.5))
    sine, _ = _of_pi(t, "Sin", x)
    mirrored = t("Sub", t("Log", t("Div", math.pi, t("Abs", sine))), found)
    result = t.where(is_low, mirrored, found)
    return t.where(t("Equal", t("Abs", x), math.inf), math.inf, result)


# Digamma beyond 6, of 1 / x^2.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240)


def _digamma(t: _Terms, x: str) -> str:
    is_low = t("Less", x, 0.5)
    y = t.where(is_low, t("Sub", 1, x), x)
    steps = t("Reciprocal", y)
    for k in range(1, 6):
        steps = t("Add", steps, t("Reciprocal", t("Add", y, k)))
    far = t("Add", y, 6)
    inverse = t("Reciprocal", far)
    square = t("Mul", inverse, inverse)
    series = t("Mul", square, t.polynomial(square, _DIGAMMA))
    found = t("Sub", t("Log", far), t("Add", t("Mul", inverse, 0.5), series))
    found = t("Sub", found, steps)
    tangent, is_whole = _of_pi(t, "Tan", x)
    mirrored = t("Sub", found, t("Div", math.pi, tangent))
    result = t.where(is_low, t.where(is_whole, math.nan, mirrored), found)
    # Zeros are poles with a sign.
    return t.where(t("Equal", x, 0), t("Neg", t("Reciprocal", x)), result)


def _trigamma(t: _Terms, x: str) -> str:
    is_low = t("Less", x, 0.5)
    y = t.where(is_low, t("Sub", 1, x), x)
    steps: str = t("Reciprocal", t("Mul", y, y))
    for k in range(1, 6):
        step = t("Add", y, k)
        steps = t("Add", steps, t("Reciprocal", t("Mul", step, step)))
    inverse = t("Reciprocal", t("Add", y, 6))
    square = t("Mul", inverse, inverse)
    series = t.polynomial(square, (1 / 6, -1 / 30, 1 / 42, -1 / 30))
    tail = t("Add", inverse, t("Mul", square, 0.5))
    found = t("Add", steps, t("Add", tail, t("Mul", inverse, t("Mul", square, series))))
    sine, _ = _of_pi(t, "Sin", x)
    share = t("Div", math.pi, sine)
    return t.where(is_low, t("Sub", t("Mul", share, share), found), found)


_register(_lgamma, "lgamma", "special_gammaln")
_register(_digamma, "digamma", "special_digamma", "special_psi")
_register(_trigamma, "trigamma")


@aten("polygamma.default")
def _polygamma(g: Graph, out: Any, n: int, x: Value) -> str:
    if n not in (0, 1):
        refuse(f"polygamma of order {n}; there are 0 and 1")
    return TABLE[f"aten.{('digamma', 'trigamma')[n]}.default"](g, out, x)  # type: ignore[no-any-return]


# ---- Bessel functions ----

# exp(-x) I0(x) and exp(-x) I1(x) / x of x / 4 - 1; sqrt(x) exp(-x) of both of 16 / x - 1.
_I0_NEAR = (
    0.2070019237, -0.1130043278, 0.09451522841, -0.08904328936, 0.08735404008, -0.08496741818,
    0.07916705743, -0.06950006318, 0.05732588823, -0.0431948777, 0.02862528436, -0.01909066415,
    0.01450777764, -0.007766332662, 0.001240379473, -0.0008991624062, 0.00197830876,
    -0.0008179725461,
)  # fmt: skip
_I0_FAR = (
    0.4021765094, 0.003360555852, 0.0001362168431, 1.111152546e-05, 1.47679211e-06,
    3.631710305e-07, 1.082989826e-07,
)  # fmt: skip
_I1_NEAR = (
    0.04468771022, -0.06112433815, 0.06805754492, -0.06848258648, 0.06376886448, -0.05528056338,
    0.04465968645, -0.03366601115, 0.02376165918, -0.0155984901, 0.009369502835,
    -0.005457398639, 0.003358929887, -0.001666236555, 0.0004129778383, -0.000221153768,
    0.0003070296457, -0.0001193158151,
)  # fmt: skip
_I1_FAR = (
    0.389398459, -0.009749581527, -0.0002192366694, -1.500332307e-05, -1.826714505e-06,
    -4.215554373e-07, -1.221249847e-07,
)  # fmt: skip


def _bessel(order: int, is_scaled: bool) -> Callable[[_Terms, str], str]:
    """The modified function of the first kind; scaled: by exp(-|x|)."""
    nears, fars = ((_I0_NEAR, _I0_FAR), (_I1_NEAR, _I1_FAR))[order]

    def write(t: _Terms, x: str) -> str:
        size = t("Abs", x)
        near = t.polynomial(t("Sub", t("Div", size, 4), 1), nears)
        if order:
            near = t("Mul", near, size)
        far = t.polynomial(t("Sub", t("Div", 16, size), 1), fars)
        far = t("Div", far, t("Sqrt", size))
        found = t.where(t("Less", size, 8), near, far)
        if not is_scaled:  # the exponential in two halves, which do not overflow early
            half = t("Exp", t("Mul", size, 0.5))
            found = t("Mul", t("Mul", found, half), half)
        if order:
            found = t.where(t("Less", x, 0), t("Neg", found), found)
        return found

    return write


_register(_bessel(0, False), "i0", "special_i0", "special_modified_bessel_i0")
_register(_bessel(1, False), "special_i1", "special_modified_bessel_i1")
_register(_bessel(0, True), "special_i0e")
_register(_bessel(1, True), "special_i1e")

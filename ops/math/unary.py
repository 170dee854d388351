"""Functions of one array, element by element."""

from __future__ import annotations

from typing import Final

from tensorlang.ops.fronts import REALS, unary

_HERE: Final = "tensorlang.ops.math.unary_scalars"

negative = unary("math.negative", f"{_HERE}:negative", "-x; integers wrap.", REALS)
abs = unary("math.abs", f"{_HERE}:absolute", "The size of each element.", REALS)
sign = unary(
    "math.sign", f"{_HERE}:sign", "1 above 0, -1 below, 0 at 0 and at NaN.", REALS
)
square = unary("math.square", f"{_HERE}:square", "x times x; integers wrap.", REALS)
exp = unary("math.exp", f"{_HERE}:exp", "e to the power of each element.")
expm1 = unary("math.expm1", f"{_HERE}:expm1", "exp(x) - 1, exact near 0.")
log = unary("math.log", f"{_HERE}:log", "The natural logarithm; -inf at 0, NaN below.")
log1p = unary("math.log1p", f"{_HERE}:log1p", "log(1 + x), exact near 0.")
sqrt = unary("math.sqrt", f"{_HERE}:sqrt", "The square root; NaN below 0.")
rsqrt = unary("math.rsqrt", f"{_HERE}:rsqrt", "1 over the square root; inf at 0.")
reciprocal = unary("math.reciprocal", f"{_HERE}:reciprocal", "1 over each element.")
erf = unary("math.erf", f"{_HERE}:erf", "The error function.")
sin = unary("math.sin", f"{_HERE}:sin", "The sine of radians, of any size.")
cos = unary("math.cos", f"{_HERE}:cos", "The cosine of radians, of any size.")
tanh = unary("math.tanh", f"{_HERE}:tanh", "The hyperbolic tangent.")
floor = unary("math.floor", f"{_HERE}:floor", "The largest whole number not above.")
ceil = unary("math.ceil", f"{_HERE}:ceil", "The smallest whole number not below.")

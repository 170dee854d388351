"""Comparisons and logic: arrays of bool come out."""

from __future__ import annotations

from typing import Final

from tensorlang.ops.fronts import ANY, binary, unary

_HERE: Final = "tensorlang.ops.math.comparison_scalars"

equal = binary("math.equal", f"{_HERE}:equal", "Whether a is b.", ANY)
not_equal = binary("math.not_equal", f"{_HERE}:not_equal", "Whether a is not b.", ANY)
less = binary("math.less", f"{_HERE}:less", "Whether a is below b.", ANY)
less_equal = binary(
    "math.less_equal", f"{_HERE}:less_equal", "Whether a is below b or equal.", ANY
)
greater = binary("math.greater", f"{_HERE}:greater", "Whether a is above b.", ANY)
greater_equal = binary(
    "math.greater_equal",
    f"{_HERE}:greater_equal",
    "Whether a is above b or equal.",
    ANY,
)
logical_and = binary(
    "math.logical_and",
    f"{_HERE}:logical_and",
    "Whether both hold; a number holds where it is not 0.",
    ANY,
)
logical_or = binary(
    "math.logical_or",
    f"{_HERE}:logical_or",
    "Whether one holds; a number holds where it is not 0.",
    ANY,
)
logical_not = unary(
    "math.logical_not",
    f"{_HERE}:logical_not",
    "Whether it does not hold; a number holds where it is not 0.",
    ANY,
)
isnan = unary("math.isnan", f"{_HERE}:isnan", "Whether an element is NaN.")
isinf = unary(
    "math.isinf", f"{_HERE}:isinf", "Whether an element is one of the infinities."
)

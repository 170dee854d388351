"""Arithmetic on two arrays that broadcast, or on an array and a number."""

from __future__ import annotations

from typing import Final

from tensorlang.ops.fronts import ANY, INTEGERS, REALS, binary, binary_grad

_HERE: Final = "tensorlang.ops.math.binary_scalars"
_WHOLE: Final = "tensorlang.ops.math.integer_scalars"
_GRADIENTS: Final = "tensorlang.ops.math.binary_gradient_scalars"

add = binary(
    "math.add", f"{_HERE}:add", "a + b; integers wrap, of truths one has to hold.", ANY
)
subtract = binary("math.subtract", f"{_HERE}:subtract", "a - b; integers wrap.", REALS)
multiply = binary(
    "math.multiply",
    f"{_HERE}:multiply",
    "a times b; integers wrap, of truths both have to hold.",
    ANY,
)
divide = binary("math.divide", f"{_HERE}:divide", "a / b, of floats.")
maximum = binary(
    "math.maximum", f"{_HERE}:maximum", "The larger one; NaN where one is NaN.", ANY
)
minimum = binary(
    "math.minimum", f"{_HERE}:minimum", "The smaller one; NaN where one is NaN.", ANY
)
power = binary(
    "math.power",
    f"{_HERE}:power",
    "a to the power b; integers wrap, and to a negative power give 0, but 1 and -1 "
    "their inverse, as in PyTorch.",
    REALS,
)
floor_divide = binary(
    "math.floor_divide",
    f"{_WHOLE}:floor_divide",
    "a / b of integers, rounded towards minus infinity; 0 where b is 0, as in NumPy.",
    INTEGERS,
)
remainder = binary(
    "math.remainder",
    f"{_WHOLE}:remainder",
    "What a division of integers leaves, with the sign of b; 0 where b is 0, as in "
    "NumPy.",
    INTEGERS,
)

add_grad = binary_grad("math.add", f"{_GRADIENTS}:add", "dy and dy")
subtract_grad = binary_grad("math.subtract", f"{_GRADIENTS}:subtract", "dy and -dy")
multiply_grad = binary_grad("math.multiply", f"{_GRADIENTS}:multiply", "dy b and dy a")
divide_grad = binary_grad(
    "math.divide", f"{_GRADIENTS}:divide", "dy / b and -dy a / b^2"
)
maximum_grad = binary_grad(
    "math.maximum",
    f"{_GRADIENTS}:maximum",
    "dy goes to the larger one, half of it to each where they are equal",
)
minimum_grad = binary_grad(
    "math.minimum",
    f"{_GRADIENTS}:minimum",
    "dy goes to the smaller one, half of it to each where they are equal",
)
power_grad = binary_grad(
    "math.power",
    f"{_GRADIENTS}:power",
    "dy b a^(b-1) and dy a^b log(a); 0 where b is 0, and where a is 0 and b is not "
    "below",
)

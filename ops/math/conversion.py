"""Conversion of element types."""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Anything, ElementType


@operator(
    "math.cast",
    shapes=((1 << 24,),),
    usual={"dtype": "f32"},  # that of the gradient of the result
    whole=True,
    gradient={"linear": False},  # in the type of x
)
def cast(x: Anything, dtype: ElementType) -> ir.Tensor:
    """Convert to another element type.

    Floats become integers by truncation, saturated at the limits of the type, with 0
    for NaN; integers wrap; bool is whether a number is not 0.

    Args:
        x: Numbers or truth values of any shape.
        dtype: The element type of the result.
    """
    flat = ir.reshaped(x, (ir.elements(x.shape),))
    made = ir.compute(flat.shape, lambda i: flat[i].cast(dtype), "y")
    return ir.reshaped(made, x.shape)

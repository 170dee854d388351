"""What is fused into dense layers and convolutions: activations by name, addends."""

from __future__ import annotations

from typing import Any, Final

from tensorlang import ir
from tensorlang.errors import DTypeError
from tensorlang.ops.math import clip
from tensorlang.ops.nn.activation import gelu, hard_swish, relu, sigmoid, silu, tanh

_ELEMENTS: Final = {
    op.__name__: op.element for op in (relu, sigmoid, silu, hard_swish, tanh)
}


def activated(value: ir.Expr, name: str | None) -> ir.Expr:
    """Apply the activation of this name (None, `none`, `relu`, `gelu_tanh`, ...)."""
    if name in (None, "none"):
        return value
    said = f"activation {name!r} is a function of floats, not of {value.dtype}"
    ir.require(value.dtype.is_float or name == "relu", said, DTypeError)
    if name in ("gelu", "gelu_tanh"):
        approximate = "tanh" if name == "gelu_tanh" else "none"
        return gelu.element(value, approximate=approximate)  # type: ignore[no-any-return]
    if name == "relu6":
        return clip.element(value, 0.0, 6.0)  # type: ignore[no-any-return]
    return _ELEMENTS[name](value)  # type: ignore[no-any-return]


def check_addend(addend: ir.Tensor | None, shape: tuple[Any, ...]) -> None:
    """Check the shape of what is added to a result; ShapeError if it is another one."""
    ir.require(
        addend is None or addend.shape == shape,
        f"addend has shape {addend and addend.shape}, the result {shape}",
    )

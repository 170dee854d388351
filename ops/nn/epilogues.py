"""What fuses into dense layers and convolutions: activations by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ops.nn import activation_scalars

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def activated(value: Expr, name: str) -> Expr:
    """The activation of that name (`none`, `relu`, `gelu`, `gelu_tanh`, ...)."""
    if name == "none":
        return value
    if name.startswith("gelu"):
        approximate = "tanh" if name == "gelu_tanh" else "none"
        return activation_scalars.gelu(value, approximate=approximate)
    made: Expr = getattr(activation_scalars, name)(value)
    return made

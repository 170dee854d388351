"""Rotary position embedding: pairs of numbers rotated by angles of their position.

Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import ir
from tensorlang.ops.definition import operator
from tensorlang.ops.signature import Floats

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor


@operator(
    "nn.rotary",
    aliases=("rotary",),
    shapes=((1, 12, 512, 64), (512, 32), (512, 32)),
    gradient={"linear": False},
)
def rotary(x: Floats, cos: Floats, sin: Floats, interleaved: bool = False) -> Tensor:
    """Rotate pairs of numbers: `a * cos - b * sin` and `b * cos + a * sin`.

    Args:
        x: Floats `[..., length, depth]`, of an even depth.
        cos: Cosines of the angles, `[length, depth / 2]`.
        sin: Sines of the angles, `[length, depth / 2]`.
        interleaved: Whether a pair is two neighbours; by default, it is an element of
            the first half of the last dimension and its like of the second half.
        out: Output array.
    """
    ir.require(
        x.ndim > 1 and x.shape[-1] % 2 == 0,
        "x is [..., length, depth], of an even depth, not {x}",
        x=x.shape,
    )
    *_, length, depth = x.shape
    ir.require(
        cos.shape == (length, depth // 2) and sin.shape == cos.shape,
        "cos of {cos} and sin of {sin} are [{length}, {half}], half as wide as x",
        cos=cos.shape,
        sin=sin.shape,
        length=length,
        half=depth // 2,
    )
    rows = 1
    for extent in x.shape[:-2]:
        rows = rows * extent
    half = depth // 2
    pairs = (half, 2) if interleaved else (2, half)
    view = ir.reshaped(x, (rows, length, *pairs))

    def element(b: Expr, i: Expr, first: Expr, second: Expr) -> Expr:
        side, pair = (second, first) if interleaved else (first, second)
        other = (first, 1 - second) if interleaved else (1 - first, second)
        rotated = ir.wide(view[(b, i, *other)])
        rotated = ir.select(side.equal(0), -rotated, rotated) * ir.wide(sin[i, pair])
        value = ir.wide(view[b, i, first, second]) * ir.wide(cos[i, pair]) + rotated
        return ir.stored(value, x.dtype)

    return ir.reshaped(ir.compute((rows, length, *pairs), element, "y"), x.shape)

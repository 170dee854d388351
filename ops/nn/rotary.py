"""Rotary position embedding: pairs of numbers rotated by angles of their position.

Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021.
"""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats


@operator(
    "nn.rotary",
    shapes=((1, 12, 512, 64), (512, 32), (512, 32)),
    gradient={"linear": False},
)
def rotary(x: Floats, cos: Floats, sin: Floats, interleaved: bool = False) -> ir.Tensor:
    """Rotate pairs of numbers: `a * cos - b * sin` and `b * cos + a * sin`.

    Args:
        x: Floats `[..., length, depth]`, of an even depth.
        cos: Cosines of the angles, `[length, depth / 2]`, or
            `[batch, length, depth / 2]` with those of each `x[n]`.
        sin: Sines of the angles, of the same shape.
        interleaved: Whether a pair is two neighbours; by default, it is an element of
            the first half of the last dimension and its like of the second half.
        out: Output array.
    """
    ir.require(
        x.ndim > 1 and x.shape[-1] % 2 == 0,
        f"x is [..., length, depth], of an even depth, not {x.shape}",
    )
    *outer, length, depth = x.shape
    half, batch = depth // 2, outer[: cos.ndim - 2]
    ir.require(
        cos.ndim < 4 and cos.shape == (*batch, length, half) and sin.shape == cos.shape,
        f"cos of {cos.shape} and sin of {sin.shape} are [{length}, {half}], half as "
        "wide as x, or one such for each x[n]",
    )
    rows = 1
    for extent in outer[len(batch) :]:
        rows = rows * extent
    pairs = (half, 2) if interleaved else (2, half)
    shape = (*batch, rows, length, *pairs)
    view = ir.reshaped(x, shape)

    def element(*i: ir.Expr) -> ir.Expr:
        *before, position, first, second = i
        side, pair = (second, first) if interleaved else (first, second)
        other = (first, 1 - second) if interleaved else (1 - first, second)
        angle = (*before[:-1], position, pair)
        rotated = ir.wide(view[(*before, position, *other)])
        rotated = ir.select(side.equal(0), -rotated, rotated) * ir.wide(sin[angle])
        return ir.stored(ir.wide(view[i]) * ir.wide(cos[angle]) + rotated, x.dtype)

    return ir.reshaped(ir.compute(shape, element, "y"), x.shape)

"""The weight transform of Winograd's convolution.

weight_lines[o, q]      a vector of outputs by a vector of inputs with their windows
weight_turned[q, o]     the same, transposed in registers: outputs in lanes
weight[p, c, o]         G w G^T at every point p
"""

from __future__ import annotations

from typing import Any, Final

from tensorlang import ir
from tensorlang.ops.nn.images import numbers, staged
from tensorlang.ops.nn.multi_store import extents, multi_store
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, packed_shape
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW, Transforms
from tensorlang.ops.nn.winograd_products import transformed

Indices = tuple[Any, ...]
_TAPS: Final = WINDOW**2


def of_side(w: ir.Tensor, *, m: int) -> ir.Tensor:
    """The weights of F(m, 3), with the unread padding zeroed."""
    made = weights(w, TRANSFORMS[m])
    strips, points, depth, strip = made.shape
    last = depth - 1
    filled = multi_store(
        made.buffer,
        ("zs", "zp", "zo"),
        (strips, points, strip),
        lambda at: [((*at[:2], last, at[2]), ir.as_expr(0.0, ir.f32))],
        name="zeros",
    )
    assert made.stage is not None
    assert filled.stage is not None
    nests = ir.seq(made.stage.nest, filled.stage.nest)
    return ir.Tensor(made.buffer, ir.Stage(nests, (made.buffer,), made.stage.inputs))


def weights(w: ir.Tensor, transforms: Transforms) -> ir.Tensor:
    """G w G^T: `[strip of outputs, point, input, output within the strip]`.

    Inputs and outputs are zero-padded to whole vectors. One vector of outputs by one of
    inputs is transposed at a time.
    """
    outputs, inputs = numbers(w.shape[:2])
    strips, groups, halves = -(-outputs // STRIP), -(-inputs // LANES), STRIP // LANES
    row = LANES * _TAPS

    def element(at: Indices) -> ir.Expr:
        strip, group, half, o, q = at
        output, place = strip * STRIP + half * LANES + o, group * row + q
        inside = ir.as_expr(True)
        if outputs % STRIP:
            inside = output < outputs
            output = ir.binary("min", output, ir.as_expr(outputs - 1))
        if inputs % LANES:
            inside = inside & (place < inputs * _TAPS)
            place = ir.binary("min", place, ir.as_expr(inputs * _TAPS - 1))
        tap = place % _TAPS
        value = w[output, place // _TAPS, tap // WINDOW, tap % WINDOW]
        return ir.select(inside, value, ir.as_expr(0.0, ir.f32))

    lines = staged(
        (strips, groups, halves, LANES, row),
        ("s", "cg", "h", "o", "q"),
        element,
        "weight_lines",
    )
    transposed = staged(
        (strips, groups, halves, row, LANES),
        ("s", "cg", "h", "q", "o"),
        lambda at: lines[(*at[:3], at[4], at[3])],
        "weight_turned",
    )
    made = ir.Buffer(
        "weight", ir.f32, extents(*packed_shape(outputs, inputs, transforms))
    )

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        s, group, half, c, o = at
        place = (group * LANES + c, half * LANES + o)

        def tap(y: int, x: int) -> ir.Expr:
            return transposed[s, group, half, c * _TAPS + (y * WINDOW + x), o]

        return transformed(transforms.weight, tap, lambda p: (s, p, *place))

    sizes = extents(strips, groups, halves, LANES, LANES)
    return multi_store(made, ("s", "cg", "h", "c", "o"), sizes, body, transposed)

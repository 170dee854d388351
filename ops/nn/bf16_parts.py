"""f32 products as sums of bf16 products, for matrix units that have no f32.

A number is split by rounding, `x = h + m + l`: h is x rounded to bf16, m the rest
rounded, l what is left. Each difference is exact. Of the nine products of the parts of
two numbers, the largest are added; the exact accumulation of bf16 products in f32 adds
the errors of any f32 sum.

Bounds, relative to `sum |a| |b|`: let 2**e <= |x| < 2**(e + 1). Then h is a multiple of
2**(e - 7), so that |x - h| <= 2**(e - 8); m has eight digits of that, so that
|x - h - m| <= 2**(e - 17), and l is exact. With |m| <= 2**-8 |x| and
|x - h - m| < 2**-17 |x| (only x >= (1 + 2**-9) 2**e have such an m), what is missing is

| products | missing | bound |
| --- | --- | --- |
| 3: hh, hm, mh | mm, and `x - h - m` of either | 2**-16 + 2 * 2**-17 = 2**-15 |
| 4: and mm | `x - h - m` of either | 2 * 2**-17 = 2**-16 |
| 6: and hl, lh | ml, lm, ll | 2 * 2**-25 + 2**-34 < 2**-23 |

The products of high parts are added up on their own. Where their sum is infinite or
NaN, it is the result, and so it is for infinities and NaN in the operands, and for
overflow: the other products would add infinities of any sign.

Matrix units take subnormals for 0, and their sums flush: each factor has an error of up
to 2**-125 in addition, and each product one of 2**-126, so that parts of numbers and of
products below 2**-108 may be lost. So that an infinity times any number but 0 is
infinite, h of a subnormal number is the smallest normal one. Numbers that bf16 would
round to infinity are cut off to its largest number. Results that come within 1 % of the
largest f32 may be infinite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Factor: TypeAlias = Callable[[Any, Any], ir.Expr]

LARGEST: Final = 2.0**128 - 2.0**120  # of bf16
_FINITE: Final = 2.0**128 - 2.0**104  # the largest of f32
_NORMAL: Final = 2.0**-126
HIGH, MIDDLE, LOW = range(3)


@frozen
class Split:
    """A way to multiply."""

    # parts of both factors in each product; the first one is of the high parts
    products: tuple[tuple[int, int], ...]
    error: float  # bound of the error, relative to the sum of absolute products


_THREE: Final = ((HIGH, HIGH), (HIGH, MIDDLE), (MIDDLE, HIGH))
_FOUR: Final = (*_THREE, (MIDDLE, MIDDLE))
_SIX: Final = (*_FOUR, (HIGH, LOW), (LOW, HIGH))
# the fewest products first
SPLITS: Final = (Split(_THREE, 2.0**-15), Split(_FOUR, 2.0**-16), Split(_SIX, 2.0**-23))


def part(x: ir.Expr, which: int) -> ir.Expr:
    """A part of an f32 in bf16."""
    size = ir.unary("abs", x)
    cut = ir.minimum(ir.maximum(x, -LARGEST), LARGEST)
    smallest = ir.select(x < 0.0, -_NORMAL, ir.as_expr(_NORMAL, ir.f32))
    tiny = (size < _NORMAL) & (size > 0.0)
    finite = size <= ir.as_expr(_FINITE, ir.f32)
    made = ir.select(tiny, smallest, ir.select(finite, cut, x)).cast(ir.bf16)
    rest = x
    for _ in range(which):
        rest = rest - made.cast(ir.f32)
        made = rest.cast(ir.bf16)
    return made


def _parts(
    element: Factor, rows: Any, depth: int, taken: Sequence[int], name: str
) -> ir.Tensor:
    """Parts of a matrix side by side, in bf16."""

    def of(i: ir.Expr, q: ir.Expr) -> ir.Expr:
        x, number = element(i, q % depth), q // depth
        made = part(x, taken[-1])
        for at in reversed(range(len(taken) - 1)):
            made = ir.select(number < at + 1, part(x, taken[at]), made)
        return made

    return ir.compute((rows, len(taken) * depth), of, name)


def products(
    x: Factor, w: Factor, sizes: tuple[Any, int, int], name: str, split: Split
) -> ir.Tensor:
    """The sums `x[i, 0] * w[j, 0] + ...` for all rows i and columns j, by parts.

    Args:
        x: A first factor by row and step.
        w: A second factor by column and step.
        sizes: Numbers of rows, columns and steps.
        name: The name of the result.
        split: The products.
    """
    rows, columns, depth = sizes

    def summed(pairs: Sequence[tuple[int, int]], name: str) -> ir.Tensor:
        first = _parts(x, rows, depth, [a for a, _ in pairs], f"{name}_x")
        second = _parts(w, columns, depth, [b for _, b in pairs], f"{name}_w")
        q = ir.reduce_axis(len(pairs) * depth, "k")
        return ir.compute(
            (rows, columns),
            lambda i, j: ir.sum(ir.wide(first[i, q]) * ir.wide(second[j, q]), q),
            name,
        )

    high, rest = summed(split.products[:1], "high"), summed(split.products[1:], "rest")

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        finite = ir.unary("abs", high[i, j]) <= ir.as_expr(_FINITE, ir.f32)
        return ir.select(finite, high[i, j] + rest[i, j], high[i, j])

    return ir.compute((rows, columns), element, name)

"""Gradients of depthwise convolutions, channels first.

The data gradient is a depthwise convolution of `dy` with flipped windows. A weight's
gradient is a sum of products over all pixels: per lane of each image first, then across
lanes, and last over images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ir.elementwise import wide
from tensorlang.ops.nn import convolution_definitions as plain
from tensorlang.ops.nn.images import Layout, padded, staged

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register


def conv_grad(dy: Tensor, x: Tensor, w: Tensor, p: Problem) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_grad`."""
    return conv_grad_data(dy, w, p), conv_grad_weight(dy, x, p)


def conv_grad_data(dy: Tensor, w: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_data`, for stride 1."""
    frame, reach = Layout(p.layout), [n - 1 for n in p.windows.reach]
    low = [far - before for far, before in zip(reach, p.padding[::2], strict=True)]
    extents = [n + far for n, far in zip(p.image, reach, strict=True)]
    image, steps = padded(dy, frame, low, extents), plain.Steps.of(p)
    sums = plain.products(image, w, frame, steps, name="sums", back=True)
    return plain.finished(sums, None, frame, None, dy.dtype, name="dx")


def conv_grad_weight(dy: Tensor, x: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_weight`, for depthwise convolutions."""
    assert p.depthwise
    image = plain.framed(x, p, name="image")
    lanes = _LINE // (8 if x.dtype.name == "f64" else 4)
    columns = p.result[-1]
    whole, left = divmod(columns, lanes)
    found = []
    if whole:
        parts = _lanes(dy, image, p, 0, (whole, lanes), "part")
        found.append(_added(parts, "each"))
    if left:
        parts = _lanes(dy, image, p, columns - left, (1, left), "rest")
        found.append(_added(parts, "ends"))
    names = ("b", "g", *plain.window_names(len(p.window)))
    both = found[0]
    if len(found) > 1:
        both = staged(both.shape, names, lambda at: found[0][at] + found[1][at], "both")
    batch = reduce_axis(dy.shape[0], "b")
    sums = staged(
        both.shape[1:], names[1:], lambda at: total(both[(batch.var, *at)], batch), "dw"
    )
    return plain.narrowed(sums, dy.dtype, names[1:])


def _lanes(  # noqa: PLR0917 - operands of a stage
    dy: Tensor,
    image: Tensor,
    p: Problem,
    first: int,
    size: tuple[int, int],
    name: str,
) -> Tensor:
    """Sums per lane over `size` (vectors, lanes) of each line, from column `first`."""
    rank, steps = len(p.window), plain.Steps.of(p)
    vectors, lanes = size
    lines = [
        reduce_axis(n, of)
        for n, of in zip(dy.shape[2:-1], ("z", "i")[3 - rank :], strict=True)
    ]
    vector = reduce_axis(vectors, "s")

    def element(at: Indices) -> Any:
        own, tap, lane = at[:2], at[2:-1], at[-1]
        column = vector.var * lanes + lane + first
        place = [*(line.var for line in lines), column]
        seen = image[(*own, *steps.at(place, tap))]
        return total(wide(dy[(*own, *place)]) * wide(seen), (*lines, vector))

    shape = (*dy.shape[:2], *p.window, lanes)
    names = ("b", "g", *plain.window_names(rank), "l")
    made: Tensor = staged(shape, names, element, name)
    return made


def _added(parts: Tensor, name: str) -> Tensor:
    """The sum across lanes."""
    lane = reduce_axis(parts.shape[-1], "l")
    names = ("b", "g", *plain.window_names(len(parts.shape) - 3))
    made: Tensor = staged(
        parts.shape[:-1], names, lambda at: total(parts[(*at, lane.var)], lane), name
    )
    return made

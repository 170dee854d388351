"""Windows on the images of a pooling operator: checked, and applied to arrays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.ops.nn.images import Layout
from tensorlang.ops.nn.windows import LAYOUTS, Windows, channels_first, several, windows

with lazy.modules(__name__):
    from tensorlang.ops.nn import pooling_stages, pooling_windows

if TYPE_CHECKING:
    from tensorlang.ops.nn.pooling_stages import Windowed
    from tensorlang.ops.nn.pooling_windows import Slide
    from tensorlang.ops.operator import Body

Shape: TypeAlias = tuple[int, ...]
RANKS: Final = (1, 2, 3)


@frozen
class Pooling:
    """Windows on images."""

    first: bool  # whether channels come first
    slid: tuple[Slide, ...]  # windows along each dimension
    # spatial extents of the result, if of higher rank than the windows
    shown: Shape = ()

    @property
    def windowed(self) -> Windowed:
        """The windows for definitions; leading channels are part of the batch."""
        layout = LAYOUTS[len(self.slid)][0 if self.first else 1]
        return pooling_stages.Windowed(Layout(layout), self.slid)

    @property
    def results(self) -> Shape:
        """The number of windows along each dimension."""
        return tuple(s.count for s in self.slid)

    @property
    def before(self) -> slice:
        """The dimensions before the spatial ones."""
        return slice(-len(self.shown or self.slid) - (not self.first))

    def shape(self, x: ir.Tensor) -> tuple[Any, ...]:
        """The shape of the result for images."""
        channels = () if self.first else x.shape[-1:]
        return (*x.shape[self.before], *(self.shown or self.results), *channels)

    def seen(self, array: ir.Tensor, spatial: Shape) -> ir.Tensor:
        """Images reshaped to the canonical form, with these spatial extents."""
        channels = () if self.first else (int(array.shape[-1]),)
        count = ir.elements(array.shape[self.before])
        return ir.reshaped(array, (count, *spatial, *channels))

    def images(self, x: ir.Tensor) -> ir.Tensor:
        """Images in the canonical form."""
        return self.seen(x, tuple(s.extent for s in self.slid))

    def forward(self, define: Body, x: ir.Tensor, **options: object) -> ir.Tensor:
        """Apply a definition of pooling."""
        made = define(self.images(x), self.windowed, **options)
        return ir.reshaped(made, self.shape(x))

    def backward(
        self, define: Body, dy: ir.Tensor, x: ir.Tensor, **options: object
    ) -> ir.Tensor:
        """Apply a definition of the gradient.

        Raises:
            ShapeError: `dy` has another shape than the result.
        """
        shape = self.shape(x)
        ir.require(
            dy.ndim == len(shape) and dy.shape == shape,
            f"dy has shape {dy.shape}; the result had {shape}",
        )
        given, images = self.seen(dy, self.results), self.images(x)
        made = define(given, images, self.windowed, **options)
        return ir.reshaped(made, x.shape)


def image_of(
    id: str, x: ir.Tensor, rank: int, layout: str | None
) -> tuple[bool, Shape]:
    """Whether channels come first, and the spatial extents.

    Raises:
        ShapeError, ArgumentError: not images of this rank and layout.
    """
    first = channels_first(id, layout or LAYOUTS[rank][0], rank)
    ir.require(
        x.ndim in (rank + 1, rank + 2),
        f"{id} takes images of {rank + 2} dimensions, or {rank + 1} without a batch, "
        f"not {x.shape}",
    )
    spatial = x.shape[-rank:] if first else x.shape[-rank - 1 : -1]
    ir.require(
        all(extent >= 1 for extent in x.shape[-rank - 1 :]),
        f"images of {x.shape}; only the batch may be empty",
    )
    return first, tuple(map(int, spatial))


def sliding(  # noqa: PLR0917 - the operator's parameters
    id: str,
    image: tuple[bool, Shape],
    kernel: object,
    stride: object,
    padding: object,
    dilation: object = 1,
    ceil_mode: bool = False,
) -> Pooling:
    """Windows of one size at a fixed stride.

    Raises:
        ShapeError, ArgumentError: an argument does not fit.
    """
    first, size = image
    kernel = several(id, "kernel", kernel, len(size))
    stride = kernel if stride in (None, ()) else stride
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    slid = windows(id, kernel, given)
    most = (n for reach in slid.reach for n in (reach, reach))
    if any(p >= reach for p, reach in zip(slid.padding, most, strict=True)):
        raise ArgumentError(
            f"{id}: padding {slid.padding} holds whole windows of {kernel}"
        )
    found = _ending_outside if ceil_mode else Windows.outputs
    made = pooling_windows.steps(slid, size, found(slid, id, size))
    if not all(each.fill for each in made):
        raise ArgumentError(
            f"{id}: a window of {kernel}, dilation {slid.dilation}, has no pixel of an "
            f"image of {size}, padding {slid.padding}"
        )
    return Pooling(first, made)


def _ending_outside(slid: Windows, id: str, size: Shape) -> Shape:
    """Windows along each dimension, including those that end outside (ceil mode)."""
    found = []
    for at, n in enumerate(size):
        low, high = slid.padding[2 * at : 2 * at + 2]
        step = slid.stride[at]
        count = -(-(n + low + high - slid.reach[at]) // step) + 1
        if (count - 1) * step >= n + low:
            count -= 1
        found.append(count)
    if min(found) < 1:
        slid.outputs(id, size)
    return tuple(found)


def shares(id: str, image: tuple[bool, Shape], wanted: object) -> Pooling:
    """Equal windows where the output size divides the image, else uneven ones."""
    first, size = image
    rank = len(size)
    given = wanted if isinstance(wanted, tuple) else (wanted,)
    given = given * rank if len(given) == 1 else given
    if len(given) == rank:
        given = tuple(n if w is None else w for w, n in zip(given, size, strict=True))
    results = several(id, "results", given, rank)
    if any(n % count for n, count in zip(size, results, strict=True)):
        return Pooling(first, tuple(map(pooling_windows.Shares, size, results)))
    kernel = tuple(n // count for n, count in zip(size, results, strict=True))
    slid = Windows(kernel, kernel, (1,) * rank, (0,) * (2 * rank))
    return Pooling(first, pooling_windows.steps(slid, size, results))


def whole(id: str, x: ir.Tensor, layout: str | None) -> Pooling:
    """One window over all pixels, flattened, of images of any rank."""
    rank = x.ndim - 2
    ir.require(
        rank in RANKS,
        f"{id} takes images of 3 to 5 dimensions, (batch, channels, *spatial), not "
        f"{x.shape}",
    )
    first, size = image_of(id, x, rank, layout)
    pixels = math.prod(size)
    return replace(shares(id, (first, (pixels,)), 1), shown=(1,) * rank)

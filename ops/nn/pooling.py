"""Max and average pooling, adaptive and global variants, and their gradients.

Gradients of means at a fixed stride are derived. Those of maxima, which go to the first
of equal elements, and of means of uneven windows are written by hand: they gather the
contributions of the windows that cover a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.definition import algorithm, operator
from tensorlang.ops.nn.windows import (
    LAYOUTS,
    Windows,
    channels_first,
    several,
    windows,
)
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.signature import Floats, Ints, Padding

if TYPE_CHECKING:
    from tensorlang.ir import Tensor
    from tensorlang.ops.nn import gathered_pooling
    from tensorlang.ops.nn import pooling_definitions as loops
    from tensorlang.workload import Workload
else:
    gathered_pooling = lazy.module("tensorlang.ops.nn.gathered_pooling")
    loops = lazy.module("tensorlang.ops.nn.pooling_definitions")

Shape: TypeAlias = tuple[int, ...]
_RANKS: Final = (1, 2, 3)
_IMAGES: Final[dict[int, Shape]] = {1: (4096,), 2: (112, 112), 3: (32, 32, 32)}
_WHOLE: Final = (7, 7)
_MOST_INTERLEAVED: Final = 8  # largest stride whose phases share a store
_MOST_TAPS: Final = 64  # window elements that are unrolled
_MEANINGS: Final = {
    "x": "Images `(batch, channels, *spatial)`, or channels last; see `layout`.",
    "kernel": "Window size: a number, or one per spatial dimension.",
    "stride": "Stride of the window, likewise; `kernel` by default.",
    "padding": "A number, one per spatial dimension, or pairs (before, after), at most "
    "half the window; zeros in a mean, never the maximum.",
    "dilation": "Spacing of window elements: a number, or one per spatial dimension.",
    "ceil_mode": "Whether to keep windows that start inside and end outside.",
    "count_include_pad": "Whether padding counts in the divisor of the mean.",
    "divisor": "Divisor of the sum, instead of the number of elements.",
    "results": "Output size: a number, or one per dimension; None keeps the size.",
    "layout": "`NCW`, `NCHW` or `NCDHW` (default), or `NWC`, `NHWC` or `NDHWC`.",
}


# ---------------------------------------------------------------------- the windows


@dataclass(frozen=True, slots=True)
class _Slid:
    """The placement of windows on images.

    Attributes:
        first: Whether channels come first.
        size: Spatial extents of the image.
        results: Number of windows along each dimension.
        how: Kernel, stride, padding and dilation; empty for windows of unequal size.
        shown: Spatial extents of the result, if of higher rank than `results`.
    """

    first: bool
    size: Shape
    results: Shape
    how: Mapping[str, Shape]
    shown: Shape = ()

    @property
    def layout(self) -> str:
        """The layout; leading channels are part of the batch."""
        return LAYOUTS[len(self.size)][0 if self.first else 1]

    def shape(self, x: Tensor) -> tuple[Any, ...]:
        """The shape of the result for images."""
        spatial = self.shown or self.results
        if self.first:
            return (*x.shape[:2], *spatial)
        return (x.shape[0], *spatial, x.shape[-1])

    def seen(self, array: Tensor, spatial: Shape) -> Tensor:
        """Images reshaped to the canonical form, with these spatial extents."""
        if self.first:
            shape = (ir.elements(array.shape[:2]), *spatial)
        else:
            shape = (ir.elements(array.shape[:1]), *spatial, int(array.shape[-1]))
        return ir.reshaped(array, shape)

    def pooled(self, define: Body, x: Tensor, **how: object) -> Tensor:
        """Apply a pooling definition to images."""
        images = self.seen(x, self.size)
        made = define(
            images, layout=self.layout, results=self.results, **self.how, **how
        )
        return ir.reshaped(made, self.shape(x))

    def check(self, dy: Tensor, x: Tensor) -> None:
        """Check that `dy` has the shape of the result."""
        made = self.shape(x)
        ir.require(
            dy.ndim == len(made) and dy.shape == made,
            "dy has shape {dy}; the result had {made}",
            dy=dy.shape,
            made=made,
        )

    def of_max(self, define: Body, dy: Tensor, x: Tensor) -> Tensor:
        """Apply a definition of the gradient of max pooling."""
        self.check(dy, x)
        given, images = self.seen(dy, self.results), self.seen(x, self.size)
        made = define(
            given, images, layout=self.layout, results=self.results, **self.how
        )
        return ir.reshaped(made, x.shape)

    def of_mean(self, define: Body, dy: Tensor, x: Tensor, **how: object) -> Tensor:
        """Apply a definition of the gradient of average pooling; `x` is not read."""
        self.check(dy, x)
        given, _ = self.seen(dy, self.results), self.seen(x, self.size)
        made = define(given, layout=self.layout, size=self.size, **self.how, **how)
        return ir.reshaped(made, x.shape)


def _image(id: str, x: Tensor, rank: int, layout: str | None) -> tuple[bool, Shape]:
    """Whether channels come first, and the spatial extents.

    Raises:
        ShapeError, ArgumentError: not images of this rank and layout.
    """
    first = channels_first(id, layout or LAYOUTS[rank][0], rank)
    ir.require(
        x.ndim == rank + 2,
        "{id} takes images of {dims} dimensions, not {shape}",
        id=id,
        dims=rank + 2,
        shape=x.shape,
    )
    spatial = x.shape[2:] if first else x.shape[1:-1]
    ir.require(
        all(extent >= 1 for extent in x.shape[1:]),
        "images of {shape}; only the batch may be empty",
        shape=x.shape,
    )
    return first, tuple(map(int, spatial))


def _slid(  # noqa: PLR0917 - the operator's parameters
    id: str,
    image: tuple[bool, Shape],
    kernel: object,
    stride: object,
    padding: object,
    dilation: object = 1,
    ceil_mode: bool = False,
) -> _Slid:
    """Windows of one size at a fixed stride.

    Raises:
        ShapeError, ArgumentError: an argument does not fit.
    """
    first, size = image
    kernel = several(id, "kernel", kernel, len(size))
    stride = kernel if stride is None else stride
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    slid = windows(id, kernel, given)
    most = (n for reach in slid.reach for n in (reach, reach))
    if any(2 * p > reach for p, reach in zip(slid.padding, most, strict=True)):
        raise ArgumentError(
            f"{id}: padding {slid.padding} is more than half of a window of {kernel}"
        )
    found = _ending_outside if ceil_mode else Windows.outputs
    return _Slid(first, size, found(slid, id, size), _how(slid))


def _how(slid: Windows) -> dict[str, Shape]:
    return {
        "kernel": slid.size,
        "stride": slid.stride,
        "padding": slid.padding,
        "dilation": slid.dilation,
    }


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


def _shares(id: str, image: tuple[bool, Shape], wanted: object) -> _Slid:
    """Equal windows where the output size divides the image, else uneven ones."""
    first, size = image
    rank = len(size)
    given = wanted if isinstance(wanted, tuple) else (wanted,) * rank
    if len(given) == rank:
        given = tuple(n if w is None else w for w, n in zip(given, size, strict=True))
    results = several(id, "results", given, rank)
    slid = Windows((), (), (), ())
    if not any(n % count for n, count in zip(size, results, strict=True)):
        kernel = tuple(n // count for n, count in zip(size, results, strict=True))
        slid = Windows(kernel, kernel, (1,) * rank, (0,) * (2 * rank))
    return _Slid(first, size, results, _how(slid))


def _whole(id: str, x: Tensor, layout: str | None) -> _Slid:
    """One window over all pixels, flattened, of images of any rank."""
    rank = x.ndim - 2
    ir.require(
        rank in _RANKS,
        "{id} takes images of 3 to 5 dimensions, (batch, channels, *spatial), not "
        "{shape}",
        id=id,
        shape=x.shape,
    )
    first, size = _image(id, x, rank, layout)
    pixels = math.prod(size)
    how = _how(Windows((pixels,), (pixels,), (1,), (0, 0)))
    return _Slid(first, (pixels,), (1,), how, (1,) * rank)


# -------------------------------------------------- predicates of the algorithms


def _of(workload: Workload) -> _Slid:
    """The windows of a workload of max or average pooling."""
    given: dict[str, Any] = dict(workload.named)
    id, shape = workload.operator, workload.shapes[-1]
    rank = len(shape) - 2
    first = channels_first(id, given["layout"] or LAYOUTS[rank][0], rank)
    image = first, shape[2:] if first else shape[1:-1]
    names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
    return _slid(id, image, **{name: given[name] for name in names if name in given})


def _interleaved(workload: Workload) -> bool:
    """Whether channels come first and pixels a stride apart form vectors."""
    slid = _of(workload)
    kernel, stride, dilation = (slid.how[n] for n in ("kernel", "stride", "dilation"))
    reach = ((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    around = math.prod(-(-far // s) for far, s in zip(reach, stride, strict=True))
    few = around <= _MOST_TAPS and math.prod(kernel) <= _MOST_TAPS
    several = slid.results[-1] > 1 and slid.size[-1] > stride[-1]
    return slid.first and stride[-1] <= _MOST_INTERLEAVED and few and several


def _gathered(workload: Workload) -> bool:
    """Whether few windows cover a pixel."""
    how = _of(workload).how
    few = math.prod(how["kernel"]) <= _MOST_TAPS
    return max(how["stride"]) <= _MOST_INTERLEAVED and few


def _gathers_several(workload: Workload) -> bool:
    """Whether a pixel gathers from several windows, but few."""
    how = _of(workload).how
    reach = (
        (k - 1) * d + 1 for k, d in zip(how["kernel"], how["dilation"], strict=True)
    )
    apart = all(far <= step for far, step in zip(reach, how["stride"], strict=True))
    return _gathered(workload) and not apart


def _prefers(workload: Workload) -> str:
    return "interleaved" if _interleaved(workload) else "direct"


# -------------------------------------------------------------------- the operators


def _operator(id: str, rank: int = 0, **options: Any) -> Callable[[Body], Operator]:
    """An operator on images of this rank (0: any), or the gradient of one."""
    of = id.removesuffix("_grad")
    image = _IMAGES.get(rank, _WHOLE)
    halved = [n // 2 for n in image] if rank else [1] * len(image)
    shapes = (8, 64 if rank else 512, *halved), (8, 64 if rank else 512, *image)
    return operator(
        id,
        shapes=shapes if of != id else shapes[1:],
        scheduled_as="pool",
        whole=True,
        meanings=_MEANINGS if of == id else None,
        **options,
    )


def _max(rank: int) -> tuple[Operator, Operator]:
    id, usual = f"nn.max_pool{rank}d", {"kernel": (2,) * rank}

    @_operator(id, rank, usual=usual)
    def max_pool(  # noqa: PLR0917 - in PyTorch's order
        x: Floats,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        layout: str | None = None,
    ) -> Tensor:
        """Max pooling: the maximum of each window; NaN if it contains one.

        Returns:
            Images with spatial extents `(n + before + after - dilation * (kernel - 1) -
            1) / stride + 1`, rounded down, or up with `ceil_mode`.
        """
        image = _image(id, x, rank, layout)
        slid = _slid(id, image, kernel, stride, padding, dilation, ceil_mode)
        return slid.pooled(loops.max_pool, x)

    def gradient(define: Callable[[], Body]) -> Body:
        def max_pool_grad(  # noqa: PLR0917 - as above
            dy: Floats,
            x: Floats,
            kernel: Ints,
            stride: Ints | None = None,
            padding: Padding = 0,
            dilation: Ints = 1,
            ceil_mode: bool = False,
            layout: str | None = None,
        ) -> Tensor:
            """The gradient of max pooling: dy goes to each window's first maximum."""
            image = _image(id, x, rank, layout)
            slid = _slid(id, image, kernel, stride, padding, dilation, ceil_mode)
            return slid.of_max(define(), dy, x)

        return max_pool_grad

    grad = _operator(f"{id}_grad", rank, usual=usual, prefers=_prefers)(
        gradient(lambda: loops.max_pool_grad)
    )
    algorithm(grad, "interleaved", serves=_interleaved)(
        gradient(lambda: loops.max_pool_grad_interleaved)
    )
    algorithm(grad, "gathered", serves=_gathered)(
        gradient(lambda: gathered_pooling.max_pool_grad)
    )
    return max_pool, grad


def _avg(rank: int) -> Operator:
    id, usual = f"nn.avg_pool{rank}d", {"kernel": (2,) * rank}

    @_operator(id, rank, usual=usual, gradient={"linear": False})
    def avg_pool(  # noqa: PLR0917 - in PyTorch's order
        x: Floats,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
        layout: str | None = None,
    ) -> Tensor:
        """Average pooling: the mean of each window.

        Returns:
            Images with spatial extents `(n + before + after - kernel) / stride + 1`,
            rounded down, or up with `ceil_mode`.
        """
        image = _image(id, x, rank, layout)
        slid = _slid(id, image, kernel, stride, padding, ceil_mode=ceil_mode)
        return slid.pooled(
            loops.avg_pool,
            x,
            count_include_pad=count_include_pad,
            divisor=_divisor(id, divisor),
        )

    grad = avg_pool.grad
    assert isinstance(grad, Operator)

    @algorithm(grad, "gathered", serves=_gathers_several)
    def avg_pool_grad(  # noqa: PLR0917 - as above
        dy: Floats,
        x: Floats,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
        layout: str | None = None,
    ) -> Tensor:
        image = _image(id, x, rank, layout)
        slid = _slid(id, image, kernel, stride, padding, ceil_mode=ceil_mode)
        return slid.of_mean(
            gathered_pooling.avg_pool_grad,
            dy,
            x,
            count_include_pad=count_include_pad,
            divisor=_divisor(id, divisor),
        )

    return avg_pool


def _divisor(id: str, given: int | None) -> int | None:
    return given if given is None else several(id, "divisor", given, 1)[0]


_ALL: Final = {"count_include_pad": True, "divisor": None}


def _adaptive(kind: str, rank: int) -> tuple[Operator, Operator]:
    id = f"nn.adaptive_{kind}_pool{rank}d"
    usual = {"results": tuple(n // 2 for n in _IMAGES[rank])}

    @_operator(id, rank, usual=usual)
    def adaptive_pool(
        x: Floats, results: Ints | None, layout: str | None = None
    ) -> Tensor:
        """Adaptive pooling: mean or maximum of `results` nearly equal windows.

        Along a dimension of n pixels, window i covers the pixels from `i * n //
        results` up to, but not including, `ceil((i + 1) * n / results)`.
        """
        slid = _shares(id, _image(id, x, rank, layout), results)
        return _pooled(kind, slid, x)

    @_operator(f"{id}_grad", rank, usual=usual)
    def adaptive_pool_grad(
        dy: Floats, x: Floats, results: Ints | None, layout: str | None = None
    ) -> Tensor:
        """The gradient of adaptive pooling."""
        slid = _shares(id, _image(id, x, rank, layout), results)
        return _spread(kind, slid, dy, x)

    return _called(kind, adaptive_pool), adaptive_pool_grad


def _global(kind: str, **options: Any) -> Operator:
    id = f"nn.global_{kind}_pool"

    @_operator(id, **options)
    def global_pool(x: Floats, layout: str | None = None) -> Tensor:
        """Global pooling: the mean or maximum over all pixels of each channel."""
        return _pooled(kind, _whole(id, x, layout), x)

    return _called(kind, global_pool)


@_operator("nn.global_max_pool_grad")
def global_max_pool_grad(dy: Floats, x: Floats, layout: str | None = None) -> Tensor:
    """The gradient of global max pooling."""
    return _spread("max", _whole("nn.global_max_pool", x, layout), dy, x)


def _called(kind: str, pool: Operator) -> Operator:
    """Replace "mean or maximum" in the operator's docstring by the one it computes."""
    taken = {"avg": "mean", "max": "maximum"}[kind]
    said = pool.body.__doc__ or ""
    pool.body.__doc__ = said.replace("mean or maximum", taken)
    return pool


def _pooled(kind: str, slid: _Slid, x: Tensor) -> Tensor:
    if kind == "avg":
        return slid.pooled(loops.avg_pool, x, **_ALL)
    return slid.pooled(loops.max_pool, x)


def _spread(kind: str, slid: _Slid, dy: Tensor, x: Tensor) -> Tensor:
    if kind == "avg":
        return slid.of_mean(loops.avg_pool_grad, dy, x, **_ALL)
    return slid.of_max(loops.max_pool_grad, dy, x)


max_pool1d, max_pool1d_grad = _max(1)
max_pool2d, max_pool2d_grad = _max(2)
max_pool3d, max_pool3d_grad = _max(3)
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg, _RANKS)
adaptive_avg_pool1d, adaptive_avg_pool1d_grad = _adaptive("avg", 1)
adaptive_avg_pool2d, adaptive_avg_pool2d_grad = _adaptive("avg", 2)
adaptive_avg_pool3d, adaptive_avg_pool3d_grad = _adaptive("avg", 3)
adaptive_max_pool1d, adaptive_max_pool1d_grad = _adaptive("max", 1)
adaptive_max_pool2d, adaptive_max_pool2d_grad = _adaptive("max", 2)
adaptive_max_pool3d, adaptive_max_pool3d_grad = _adaptive("max", 3)
global_avg_pool = _global("avg", gradient={"linear": False})
global_max_pool = _global("max")

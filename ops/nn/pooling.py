"""Max and average pooling, adaptive and global variants, and their gradients.

Gradients of means at a fixed stride are derived. Those of maxima, which go to the first
of equal elements, and of means of uneven windows are written by hand: they gather the
contributions of the windows that cover a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    from tensorlang.ops.nn import gathered_pooling, pooling_windows
    from tensorlang.ops.nn import pooling_definitions as loops
    from tensorlang.ops.nn.pooling_windows import Slide, Steps
    from tensorlang.workload import Workload
else:
    gathered_pooling = lazy.module("tensorlang.ops.nn.gathered_pooling")
    loops = lazy.module("tensorlang.ops.nn.pooling_definitions")
    pooling_windows = lazy.module("tensorlang.ops.nn.pooling_windows")

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
class _Pooling:
    """Windows on images.

    Attributes:
        first: Whether channels come first.
        slid: The windows along each dimension.
        shown: Spatial extents of the result, if of higher rank than the windows.
    """

    first: bool
    slid: tuple[Slide, ...]
    shown: Shape = ()

    @property
    def layout(self) -> str:
        """The layout; leading channels are part of the batch."""
        return LAYOUTS[len(self.slid)][0 if self.first else 1]

    @property
    def results(self) -> Shape:
        """The number of windows along each dimension."""
        return tuple(s.count for s in self.slid)

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

    def images(self, x: Tensor) -> Tensor:
        """Images in the canonical form."""
        return self.seen(x, tuple(s.extent for s in self.slid))

    def forward(self, define: Body, x: Tensor, **options: object) -> Tensor:
        """Apply a definition of pooling."""
        made = define(self.images(x), self.layout, self.slid, **options)
        return ir.reshaped(made, self.shape(x))

    def backward(
        self, define: Body, dy: Tensor, x: Tensor, **options: object
    ) -> Tensor:
        """Apply a definition of the gradient.

        Raises:
            ShapeError: `dy` has another shape than the result.
        """
        shape = self.shape(x)
        ir.require(
            dy.ndim == len(shape) and dy.shape == shape,
            "dy has shape {dy}; the result had {made}",
            dy=dy.shape,
            made=shape,
        )
        given, images = self.seen(dy, self.results), self.images(x)
        made = define(given, images, self.layout, self.slid, **options)
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


def _sliding(  # noqa: PLR0917 - the operator's parameters
    id: str,
    image: tuple[bool, Shape],
    kernel: object,
    stride: object,
    padding: object,
    dilation: object = 1,
    ceil_mode: bool = False,
) -> _Pooling:
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
    return _Pooling(first, pooling_windows.steps(slid, size, found(slid, id, size)))


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


def _shares(id: str, image: tuple[bool, Shape], wanted: object) -> _Pooling:
    """Equal windows where the output size divides the image, else uneven ones."""
    first, size = image
    rank = len(size)
    given = wanted if isinstance(wanted, tuple) else (wanted,) * rank
    if len(given) == rank:
        given = tuple(n if w is None else w for w, n in zip(given, size, strict=True))
    results = several(id, "results", given, rank)
    if any(n % count for n, count in zip(size, results, strict=True)):
        return _Pooling(first, tuple(map(pooling_windows.Shares, size, results)))
    kernel = tuple(n // count for n, count in zip(size, results, strict=True))
    slid = Windows(kernel, kernel, (1,) * rank, (0,) * (2 * rank))
    return _Pooling(first, pooling_windows.steps(slid, size, results))


def _whole(id: str, x: Tensor, layout: str | None) -> _Pooling:
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
    return replace(_shares(id, (first, (pixels,)), 1), shown=(1,) * rank)


# -------------------------------------------------- predicates of the algorithms


def _of(workload: Workload) -> tuple[bool, list[Steps]]:
    """Whether channels come first in a workload, and the windows."""
    given: dict[str, Any] = dict(workload.named)
    id, shape = workload.operator, workload.shapes[-1]
    rank = len(shape) - 2
    first = channels_first(id, given["layout"] or LAYOUTS[rank][0], rank)
    image = first, shape[2:] if first else shape[1:-1]
    names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
    made = _sliding(id, image, **{name: given[name] for name in names if name in given})
    return first, pooling_windows.at_fixed_stride(made.slid)


def _interleaved(workload: Workload) -> bool:
    """Whether channels come first and pixels a stride apart form vectors."""
    first, slid = _of(workload)
    last = slid[-1]
    few = math.prod(s.around for s in slid) <= _MOST_TAPS
    several = last.count > 1 and last.extent > last.stride
    return first and last.stride <= _MOST_INTERLEAVED and few and _few(slid) and several


def _few(slid: Sequence[Steps]) -> bool:
    """Whether windows have so few elements that loops over them are unrolled."""
    return math.prod(s.kernel for s in slid) <= _MOST_TAPS


def _gathered(workload: Workload) -> bool:
    """Whether few windows cover a pixel."""
    _, slid = _of(workload)
    return max(s.stride for s in slid) <= _MOST_INTERLEAVED and _few(slid)


def _gathers_several(workload: Workload) -> bool:
    """Whether a pixel gathers from several windows, but few."""
    return _gathered(workload) and any(s.around > 1 for s in _of(workload)[1])


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
        slid = _sliding(id, image, kernel, stride, padding, dilation, ceil_mode)
        return slid.forward(loops.max_pool, x)

    def gradient(define: Callable[[], Body]) -> Body:
        def max_pool_grad(dy: Floats, x: Floats, **given: Any) -> Tensor:
            """The gradient of max pooling: dy goes to each window's first maximum."""
            image = _image(id, x, rank, given.pop("layout"))
            return _sliding(id, image, **given).backward(define(), dy, x)

        return max_pool_grad

    options: dict[str, Any] = {"usual": usual, "prefers": _prefers}
    grad = _operator(f"{id}_grad", rank, parameters_of=max_pool, **options)(
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
        slid = _sliding(id, image, kernel, stride, padding, ceil_mode=ceil_mode)
        divided = _divided(id, count_include_pad, divisor)
        return slid.forward(loops.avg_pool, x, **divided)

    grad = avg_pool.grad
    assert grad is not None

    @algorithm(grad, "gathered", serves=_gathers_several)
    def avg_pool_grad(
        dy: Floats,
        x: Floats,
        layout: str | None,
        count_include_pad: bool,
        divisor: int | None,
        **given: Any,
    ) -> Tensor:
        slid = _sliding(id, _image(id, x, rank, layout), **given)
        divided = _divided(id, count_include_pad, divisor)
        return slid.backward(gathered_pooling.avg_pool_grad, dy, x, **divided)

    return avg_pool


def _divided(id: str, padding: bool, divisor: int | None) -> dict[str, Any]:
    """What the sums of windows are divided by."""
    if divisor is not None:
        (divisor,) = several(id, "divisor", divisor, 1)
    return {"count_include_pad": padding, "divisor": divisor}


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


def _pooled(kind: str, slid: _Pooling, x: Tensor) -> Tensor:
    if kind == "avg":
        return slid.forward(loops.avg_pool, x)
    return slid.forward(loops.max_pool, x)


def _spread(kind: str, slid: _Pooling, dy: Tensor, x: Tensor) -> Tensor:
    if kind == "avg":
        return slid.backward(loops.avg_pool_grad, dy, x)
    return slid.backward(loops.max_pool_grad, dy, x)


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

"""Max and average pooling, adaptive and global variants, and their gradients.

Gradients of means at a fixed stride are derived. Those of maxima, which go to the first
of equal elements, and of means of uneven windows are written by hand: they gather the
contributions of the windows that cover a pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.nn.pooling_images import (
    RANKS,
    Pooling,
    Shape,
    image_of,
    shares,
    sliding,
    whole,
)
from tensorlang.ops.nn.windows import LAYOUTS, channels_first
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import algorithm, operator
from tensorlang.ops.spec.signature import Floats, Ints, Numbers, Padding

with lazy.modules(__name__):
    from tensorlang.ops.nn import gathered_pooling, pooling_windows
    from tensorlang.ops.nn import pooling_definitions as loops

if TYPE_CHECKING:
    from tensorlang.ops.nn.pooling_windows import Steps
    from tensorlang.workload import Workload

_IMAGES: Final[dict[int, Shape]] = {1: (4096,), 2: (112, 112), 3: (32, 32, 32)}
_WHOLE: Final = (7, 7)
_MOST_INTERLEAVED: Final = 8  # largest stride whose phases share a store
_MOST_TAPS: Final = 64  # window elements that are unrolled
_MEANINGS: Final = {
    "x": "Images `(batch, channels, *spatial)`, or channels last; see `layout`. One "
    "image may go without the batch.",
    "kernel": "Window size: a number, or one per spatial dimension.",
    "stride": "Stride of the window, likewise; `kernel` by default.",
    "padding": "A number, one per spatial dimension, or pairs (before, after), less "
    "than the window; zeros in a mean, never the maximum.",
    "dilation": "Spacing of window elements: a number, or one per spatial dimension.",
    "ceil_mode": "Whether to keep windows that start inside and end outside.",
    "count_include_pad": "Whether padding counts in the divisor of the mean.",
    "divisor": "Divisor of the sum, not 0, instead of the number of elements.",
    "results": "Output size: a number, or one per dimension; None keeps the size.",
    "return_indices": "Whether to return the positions of the maxima, too: i64, in the "
    "flattened spatial dimensions.",
    "layout": "`NCW`, `NCHW` or `NCDHW` (default), or `NWC`, `NHWC` or `NDHWC`.",
}


# -------------------------------------------------- predicates of the algorithms


def _of(rank: int, workload: Workload) -> tuple[bool, list[Steps]]:
    """Whether channels come first in a workload, and the windows.

    Of adaptive windows that are not equal there are none.
    """
    given: dict[str, Any] = dict(workload.named)
    id, shape = workload.operator, workload.shapes[-1]
    first = channels_first(id, given["layout"] or LAYOUTS[rank][0], rank)
    image = first, shape[-rank:] if first else shape[-rank - 1 : -1]
    if "results" in given:
        made = shares(id, image, given["results"])
    else:
        names = ("kernel", "stride", "padding", "dilation", "ceil_mode")
        made = sliding(id, image, **{n: given[n] for n in names if n in given})
    return first, pooling_windows.at_fixed_stride(made.slid)


def _interleaved(rank: int, workload: Workload) -> bool:
    """Whether channels come first and pixels a stride apart form vectors."""
    first, slid = _of(rank, workload)
    if not slid:
        return False
    last = slid[-1]
    few = math.prod(s.around for s in slid) <= _MOST_TAPS
    several = last.count > 1 and last.extent > last.stride
    return first and last.stride <= _MOST_INTERLEAVED and few and _few(slid) and several


def _few(slid: Sequence[Steps]) -> bool:
    """Whether windows have so few elements that loops over them are unrolled."""
    return math.prod(s.kernel for s in slid) <= _MOST_TAPS


def _gathered(rank: int, workload: Workload) -> bool:
    """Whether few windows cover a pixel."""
    _, slid = _of(rank, workload)
    near = all(s.stride <= _MOST_INTERLEAVED for s in slid)
    return bool(slid) and near and _few(slid)


def _gathers_several(rank: int, workload: Workload) -> bool:
    """Whether a pixel gathers from several windows, but few."""
    several = any(s.around > 1 for s in _of(rank, workload)[1])
    return several and _gathered(rank, workload)


def _prefers(rank: int, workload: Workload) -> str:
    return "interleaved" if _interleaved(rank, workload) else "direct"


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
        x: Numbers,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        layout: str | None = None,
        *,
        return_indices: bool = False,
    ) -> ir.Tensor | tuple[ir.Tensor, ...]:
        """Max pooling: the maximum of each window; NaN if it contains one.

        Returns:
            Images with spatial extents `(n + before + after - dilation * (kernel - 1) -
            1) / stride + 1`, rounded down, or up with `ceil_mode`.
        """
        image = image_of(id, x, rank, layout)
        slid = sliding(id, image, kernel, stride, padding, dilation, ceil_mode)
        return _maxima(slid, x, return_indices)

    def gradient(define: Callable[[], Body]) -> Body:
        def max_pool_grad(dy: Floats, x: Floats, **given: Any) -> ir.Tensor:
            """The gradient of max pooling: dy goes to each window's first maximum."""
            image = image_of(id, x, rank, given.pop("layout"))
            del given["return_indices"]
            return sliding(id, image, **given).backward(define(), dy, x)

        return max_pool_grad

    options: dict[str, Any] = {"usual": usual, "prefers": partial(_prefers, rank)}
    grad = _operator(f"{id}_grad", rank, parameters_of=max_pool, **options)(
        gradient(lambda: loops.max_pool_grad)
    )
    _of_equal_windows(grad, rank, gradient)
    return max_pool, grad


def _of_equal_windows(
    grad: Operator, rank: int, gradient: Callable[[Callable[[], Body]], Body]
) -> None:
    """Add algorithms for windows of one size to the gradient of max pooling."""
    algorithm(grad, "interleaved", serves=partial(_interleaved, rank))(
        gradient(lambda: loops.max_pool_grad_interleaved)
    )
    algorithm(grad, "gathered", serves=partial(_gathered, rank))(
        gradient(lambda: gathered_pooling.max_pool_grad)
    )


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
    ) -> ir.Tensor:
        """Average pooling: the mean of each window.

        Returns:
            Images with spatial extents `(n + before + after - kernel) / stride + 1`,
            rounded down, or up with `ceil_mode`.
        """
        image = image_of(id, x, rank, layout)
        slid = sliding(id, image, kernel, stride, padding, ceil_mode=ceil_mode)
        divided = _divided(id, count_include_pad, divisor)
        return slid.forward(loops.avg_pool, x, **divided)

    grad = avg_pool.grad
    assert grad is not None

    @algorithm(grad, "gathered", serves=partial(_gathers_several, rank))
    def avg_pool_grad(
        dy: Floats,
        x: Floats,
        layout: str | None,
        count_include_pad: bool,
        divisor: int | None,
        **given: Any,
    ) -> ir.Tensor:
        slid = sliding(id, image_of(id, x, rank, layout), **given)
        divided = _divided(id, count_include_pad, divisor)
        return slid.backward(gathered_pooling.avg_pool_grad, dy, x, **divided)

    return avg_pool


def _divided(id: str, padding: bool, divisor: int | None) -> dict[str, Any]:
    """What the sums of windows are divided by."""
    ir.require(divisor != 0, f"{id}: divisor is not 0", ArgumentError)
    return {"count_include_pad": padding, "divisor": divisor}


def _adaptive(kind: str, rank: int) -> tuple[Operator, Operator]:
    id = f"nn.adaptive_{kind}_pool{rank}d"
    usual = {"results": tuple(n // 2 for n in _IMAGES[rank])}

    def adaptive_avg_pool(
        x: Floats, results: Ints | None, layout: str | None = None
    ) -> ir.Tensor:
        """Adaptive pooling: the mean of each of `results` nearly equal windows.

        Along a dimension of n pixels, window i covers the pixels from `i * n //
        results` up to, but not including, `ceil((i + 1) * n / results)`.
        """
        slid = shares(id, image_of(id, x, rank, layout), results)
        return slid.forward(loops.avg_pool, x)

    def adaptive_max_pool(
        x: Floats,
        results: Ints | None,
        layout: str | None = None,
        *,
        return_indices: bool = False,
    ) -> ir.Tensor | tuple[ir.Tensor, ...]:
        """Adaptive pooling: the maximum of each of `results` nearly equal windows.

        Along a dimension of n pixels, window i covers the pixels from `i * n //
        results` up to, but not including, `ceil((i + 1) * n / results)`.
        """
        slid = shares(id, image_of(id, x, rank, layout), results)
        return _maxima(slid, x, return_indices)

    def gradient(define: Callable[[], Body]) -> Body:
        def adaptive_pool_grad(dy: Floats, x: Floats, **given: Any) -> ir.Tensor:
            """The gradient of adaptive pooling."""
            image = image_of(id, x, rank, given["layout"])
            return shares(id, image, given["results"]).backward(define(), dy, x)

        return adaptive_pool_grad

    largest = kind == "max"
    made = adaptive_max_pool if largest else adaptive_avg_pool
    pool = _operator(id, rank, usual=usual)(made)
    options: dict[str, Any] = {"prefers": partial(_prefers, rank)} if largest else {}
    grad = _operator(f"{id}_grad", rank, usual=usual, parameters_of=pool, **options)(
        gradient(lambda: loops.max_pool_grad if largest else loops.avg_pool_grad)
    )
    if largest:
        _of_equal_windows(grad, rank, gradient)
    return pool, grad


def _maxima(
    slid: Pooling, x: ir.Tensor, return_indices: bool
) -> ir.Tensor | tuple[ir.Tensor, ...]:
    """The maximum of each window, with its position or without."""
    if not return_indices:
        return slid.forward(loops.max_pool, x)
    made = loops.max_pool_with_indices(slid.images(x), slid.windowed)
    return tuple(ir.reshaped(each, slid.shape(x)) for each in made)


def _global(kind: str, **options: Any) -> Operator:
    id = f"nn.global_{kind}_pool"

    @_operator(id, **options)
    def global_pool(x: Floats, layout: str | None = None) -> ir.Tensor:
        """Global pooling: the mean or maximum over all pixels of each channel."""
        define = loops.avg_pool if kind == "avg" else loops.max_pool
        return whole(id, x, layout).forward(define, x)

    taken = {"avg": "mean", "max": "maximum"}[kind]
    said = global_pool.body.__doc__ or ""
    global_pool.body.__doc__ = said.replace("mean or maximum", taken)
    return global_pool


@_operator("nn.global_max_pool_grad")
def global_max_pool_grad(dy: Floats, x: Floats, layout: str | None = None) -> ir.Tensor:
    """The gradient of global max pooling."""
    return whole("nn.global_max_pool", x, layout).backward(loops.max_pool_grad, dy, x)


max_pool1d, max_pool1d_grad = _max(1)
max_pool2d, max_pool2d_grad = _max(2)
max_pool3d, max_pool3d_grad = _max(3)
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg, RANKS)
adaptive_avg_pool1d, adaptive_avg_pool1d_grad = _adaptive("avg", 1)
adaptive_avg_pool2d, adaptive_avg_pool2d_grad = _adaptive("avg", 2)
adaptive_avg_pool3d, adaptive_avg_pool3d_grad = _adaptive("avg", 3)
adaptive_max_pool1d, adaptive_max_pool1d_grad = _adaptive("max", 1)
adaptive_max_pool2d, adaptive_max_pool2d_grad = _adaptive("max", 2)
adaptive_max_pool3d, adaptive_max_pool3d_grad = _adaptive("max", 3)
global_avg_pool = _global("avg", gradient={"linear": False})
global_max_pool = _global("max")

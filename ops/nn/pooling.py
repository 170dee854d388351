"""Poolings: the largest or the mean of each window, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.windows import (
    LAYOUTS,
    Windows,
    channels_first,
    hashable,
    several,
    windows,
)
from tensorlang.ops.tensors import (
    Names,
    Plan,
    Shape,
    TensorOperator,
    call,
    of_one_type,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Ints, Padding
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.pooling_definitions"
_GATHERED: Final = "tensorlang.ops.nn.gathered_pooling"
_IMAGES: Final[dict[int, tuple[int, ...]]] = {
    1: (4096,),
    2: (112, 112),
    3: (32, 32, 32),
}
_MOST_WOVEN: Final = 8  # steps of windows whose pixels become one store
_MOST_TAPS: Final = 64  # elements that are written out
_MEAN: Final = {"count_include_pad": True, "divisor": None}


def _names(workload: Workload) -> Names:
    """Batch, and channels with it where they come first, is symbolic."""
    return tuple(("n", *[None] * (len(s) - 1)) for s in workload.shapes)


def _operator(
    rank: int, name: str, arrays: int = 1, **attributes: Any
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    """The decorator of one operator; its definition has the name without a rank."""
    id = f"nn.{name}_pool{rank}d"
    mean, grad = "avg" in name, arrays == 2
    id = f"{id}_grad" if grad else id
    define = f"{'avg' if mean else 'max'}_pool{'_grad' if grad else ''}"
    image = _IMAGES[rank]
    adaptive = name.startswith("adaptive")
    kernel = {} if adaptive else {"kernel": (2,) * rank}
    shape = (8, 64, *image)
    halved = (8, 64, *[n // 2 for n in image])
    size = {"size": image} if mean and grad else {}
    results = {"results": tuple(n // 2 for n in image)} if adaptive else {}
    shapes = (halved, shape)[:arrays] if not (mean and grad) else (halved,)
    return tensor_operator(
        id,
        f"{_HERE}:{define}",
        plan=partial(_plan, id, rank, mean=mean, grad=grad, adaptive=adaptive),
        names=_names,
        shapes=shapes if grad else (shape,),
        attributes=kernel | size | results | (_MEAN if mean else {}) | attributes,
        aliases=(id.removeprefix("nn."),),
        scheduled_as="pool",
        prefers=_prefers if name == "max" and grad else None,
    )


def _woven(workload: Workload) -> bool:
    """Whether channels come first, and pixels a step apart are vectors."""
    given: dict[str, Any] = dict(workload.named)
    kernel, stride = given["kernel"], given["stride"]
    if given["layout"][1] != "C" or not kernel or stride[-1] > _MOST_WOVEN:
        return False
    reach = ((k - 1) * d + 1 for k, d in zip(kernel, given["dilation"], strict=True))
    around = math.prod(-(-far // s) for far, s in zip(reach, stride, strict=True))
    few = around <= _MOST_TAPS and math.prod(kernel) <= _MOST_TAPS
    several = given["results"][-1] > 1 and workload.shapes[1][-1] > stride[-1]
    return bool(few and several)


def _gathered(workload: Workload) -> bool:
    """Whether windows are a step apart, and few are around a pixel."""
    given: dict[str, Any] = dict(workload.named)
    kernel, stride = given["kernel"], given["stride"]
    return (
        bool(kernel) and max(stride) <= _MOST_WOVEN and math.prod(kernel) <= _MOST_TAPS
    )


def _prefers(workload: Workload) -> str:
    return "woven" if _woven(workload) else "direct"


def _plan(
    id: str,
    rank: int,
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    asked: dict[str, Any],
    *,
    mean: bool,
    grad: bool,
    adaptive: bool,
) -> Plan:
    """The plan of a pooling or of its gradient."""
    of_one_type(id, dtypes)
    layout = asked.get("layout") or LAYOUTS[rank][0]
    first = channels_first(id, layout, rank)
    image = shapes[-1]
    if len(image) != rank + 2:
        raise ShapeError(f"{id} takes images of {rank + 2} dimensions, not {image}")
    size = tuple(asked["size"]) if mean and grad else _spatial(image, first=first)
    if min((*image[1:], *size)) < 1:
        raise ShapeError(f"{id}: images of {size}; only the batch may be empty")
    shown = (*image[:2], *size) if first else (image[0], *size, image[-1])
    how, results = _slid(id, rank, size, asked, adaptive=adaptive)
    given: dict[str, Any] = how | {"layout": _canonical(rank, first=first)}
    if mean:
        given |= _divided(id, asked)
    made = (*image[:2], *results) if first else (image[0], *results, image[-1])
    if grad and shapes[0] != made:
        raise ShapeError(f"{id}: dy has shape {shapes[0]}; the result had {made}")
    given |= {"size": size} if mean and grad else {"results": results}
    canonical = tuple(_merged(s) if first else s for s in shapes)
    return Plan(canonical, dtypes, (shown if grad else made,), given)


def _spatial(shape: Shape, *, first: bool) -> Shape:
    return shape[2:] if first else shape[1:-1]


def _merged(shape: Shape) -> Shape:
    return (shape[0] * shape[1], *shape[2:])


def _canonical(rank: int, *, first: bool) -> str:
    """The layout; where the channels come first they are part of the batch."""
    return LAYOUTS[rank][0 if first else 1]


def _slid(
    id: str, rank: int, size: Shape, asked: dict[str, Any], *, adaptive: bool
) -> tuple[dict[str, Any], Shape]:
    """The attributes of the windows, and how many there are."""
    if adaptive:
        return _shares(id, rank, size, asked)
    kernel = several(id, "kernel", asked.get("kernel"), rank)
    stride = asked.get("stride")
    slid = windows(id, kernel, asked | {"stride": kernel if stride is None else stride})
    if any(
        2 * p > far for p, far in zip(slid.padding, _twice(slid.reach), strict=True)
    ):
        raise ArgumentError(
            f"{id}: padding {slid.padding} is more than half of a window of {kernel}"
        )
    results = _results(id, slid, size, ceil=bool(asked.get("ceil_mode")))
    return _how(slid), results


def _twice(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for value in values for n in (value, value))


def _how(slid: Windows) -> dict[str, Any]:
    return {
        "kernel": slid.size,
        "stride": slid.stride,
        "padding": slid.padding,
        "dilation": slid.dilation,
    }


def _shares(
    id: str, rank: int, size: Shape, asked: dict[str, Any]
) -> tuple[dict[str, Any], Shape]:
    """Windows of equal size where the number divides the image, else shares of it."""
    wanted = asked["results"]
    given = tuple(wanted) if isinstance(wanted, (tuple, list)) else (wanted,) * rank
    if len(given) == rank:
        given = tuple(n if w is None else w for w, n in zip(given, size, strict=True))
    results = several(id, "results", given, rank)
    if any(n % count for n, count in zip(size, results, strict=True)):
        return {"kernel": (), "stride": (), "padding": (), "dilation": ()}, results
    kernel = tuple(n // count for n, count in zip(size, results, strict=True))
    none = Windows(kernel, kernel, (1,) * rank, (0,) * (2 * rank))
    return _how(none), results


def _results(id: str, slid: Windows, size: Shape, *, ceil: bool) -> Shape:
    """Windows along each dimension; with `ceil`, those that begin inside count too."""
    if not ceil:
        return slid.outputs(id, size)
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


def _divided(id: str, asked: dict[str, Any]) -> dict[str, Any]:
    divisor = asked.get("divisor")
    if divisor is not None:
        (divisor,) = several(id, "divisor", divisor, 1)
    return {
        "count_include_pad": bool(asked.get("count_include_pad", True)),
        "divisor": divisor,
    }


def _given(**attributes: Any) -> dict[str, Any]:
    return {name: hashable(value) for name, value in attributes.items()}


def _max(rank: int) -> TensorOperator:
    @_operator(rank, "max")
    def max_pool(  # noqa: PLR0917 - in PyTorch's order
        x: Any,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The largest element of each window; NaN where there is one.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            kernel: Elements of a window: a number, or one a dimension.
            stride: The step from window to window; the kernel where not given.
            padding: Around the image, never the largest: a number, one a dimension, or
                pairs.
            dilation: The step within a window.
            ceil_mode: Whether windows that begin inside and end outside count.
            layout: `NCHW` and the like, or with the channels last.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            kernel=kernel,
            stride=stride,
            padding=padding,
            dilation=dilation,
            ceil_mode=ceil_mode,
            layout=layout,
        )
        return call(made, (x,), given, (), target, out)

    made = max_pool
    return made


def _max_grad(rank: int) -> TensorOperator:
    @_operator(rank, "max", 2)
    def max_pool_grad(  # noqa: PLR0917 - in PyTorch's order
        dy: Any,
        x: Any,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of max pooling: to the first largest element of each window.

        Args:
            dy: The gradient of the result.
            x: Images, as they were given; the rest too.
            kernel: As it was given.
            stride: As it was given.
            padding: As it was given.
            dilation: As it was given.
            ceil_mode: As it was given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            kernel=kernel,
            stride=stride,
            padding=padding,
            dilation=dilation,
            ceil_mode=ceil_mode,
            layout=layout,
        )
        return call(made, (dy, x), given, (), target, out)

    made = max_pool_grad
    tensor_algorithm(made, "woven", f"{_HERE}:max_pool_grad_woven", _woven)
    tensor_algorithm(made, "gathered", f"{_GATHERED}:max_pool_grad", _gathered)
    return made


def _avg(rank: int) -> TensorOperator:
    @_operator(rank, "avg")
    def avg_pool(  # noqa: PLR0917 - in PyTorch's order
        x: Any,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The mean of each window.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            kernel: Elements of a window: a number, or one a dimension.
            stride: The step from window to window; the kernel where not given.
            padding: Zeros around the image: a number, one a dimension, or pairs.
            ceil_mode: Whether windows that begin inside and end outside count.
            count_include_pad: Whether the padding counts as pixels.
            divisor: What sums are divided by in place of the number of pixels.
            layout: `NCHW` and the like, or with the channels last.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            kernel=kernel,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor=divisor,
            layout=layout,
        )
        return call(made, (x,), given, (), target, out)

    made = avg_pool
    return made


def _avg_grad(rank: int) -> TensorOperator:
    @_operator(rank, "avg", 2)
    def avg_pool_grad(  # noqa: PLR0917 - in PyTorch's order
        dy: Any,
        x: Any,
        kernel: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of average pooling.

        Args:
            dy: The gradient of the result.
            x: Images, as they were given: only their shape is looked at.
            kernel: As it was given; so the rest.
            stride: As it was given.
            padding: As it was given.
            ceil_mode: As it was given.
            count_include_pad: As it was given.
            divisor: As it was given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            kernel=kernel,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor=divisor,
            layout=layout,
            size=_size(made.id, x, layout, rank),
        )
        return call(made, (dy,), given, (), target, out)

    made = avg_pool_grad
    tensor_algorithm(made, "gathered", f"{_GATHERED}:avg_pool_grad", _gathered)
    return made


def _size(id: str, x: Any, layout: str | None, rank: int) -> Shape:
    if type(x) is not np.ndarray:
        own(x)  # whose sizes may have names
    first = channels_first(id, layout or LAYOUTS[rank][0], rank)
    return _spatial(tuple(map(int, x.shape)), first=first)


def _adaptive(rank: int, kind: str) -> TensorOperator:
    @_operator(rank, f"adaptive_{kind}")
    def adaptive_pool(
        x: Any,
        results: Ints,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """Pooling by as many windows as there are to be results, of nearly one size.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            results: How many: a number, or one a dimension; None keeps the image's.
            layout: `NCHW` and the like, or with the channels last.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(results=results, layout=layout)
        return call(made, (x,), given, (), target, out)

    made = adaptive_pool
    return made


def _adaptive_grad(rank: int, kind: str) -> TensorOperator:
    @_operator(rank, f"adaptive_{kind}", 2)
    def adaptive_pool_grad(
        dy: Any,
        x: Any,
        results: Ints,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of adaptive pooling.

        Args:
            dy: The gradient of the result.
            x: Images, as they were given.
            results: As it was given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(results=results, layout=layout)
        if kind == "avg":
            given["size"] = _size(made.id, x, layout, rank)
        arrays = (dy,) if kind == "avg" else (dy, x)
        return call(made, arrays, given, (), target, out)

    made = adaptive_pool_grad
    return made


_RANKS: Final = (1, 2, 3)
max_pool1d, max_pool2d, max_pool3d = map(_max, _RANKS)
max_pool1d_grad, max_pool2d_grad, max_pool3d_grad = map(_max_grad, _RANKS)
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg, _RANKS)
avg_pool1d_grad, avg_pool2d_grad, avg_pool3d_grad = map(_avg_grad, _RANKS)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (
    _adaptive(rank, "avg") for rank in _RANKS
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive(rank, "max") for rank in _RANKS
)
adaptive_avg_pool1d_grad, adaptive_avg_pool2d_grad, adaptive_avg_pool3d_grad = (
    _adaptive_grad(rank, "avg") for rank in _RANKS
)
adaptive_max_pool1d_grad, adaptive_max_pool2d_grad, adaptive_max_pool3d_grad = (
    _adaptive_grad(rank, "max") for rank in _RANKS
)

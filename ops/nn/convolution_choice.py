"""Which algorithms serve a convolution or its gradient, and which one is preferred.

All go by the canonical shapes and attributes of a workload; see `convolution_plans`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tensorlang.ops.nn import winograd
from tensorlang.ops.nn.windows import windows

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Shape
    from tensorlang.workload import Workload


def flattened(workload: Workload) -> bool:
    """Whether the channels come first, and outputs read several of them."""
    letters = str(workload.named["layout"])
    own = len(workload.shapes[1]) - len(letters) + 2
    return (
        letters[1] == "C"
        and len(letters) > 2
        and own > 1
        and math.prod(_results(workload)) > 1
    )


def _results(workload: Workload) -> Shape:
    """How many windows there are along each dimension."""
    given = workload.named
    size, window = workload.shapes[0], workload.shapes[1]
    rank = len(str(given["layout"])) - 2
    slid = windows("nn.conv", window[len(window) - rank :], given)
    return slid.outputs("nn.conv", size[len(size) - rank :])


def channels_last(workload: Workload) -> bool:
    """Whether the channels come last, behind a dimension of pixels."""
    letters = str(workload.named["layout"])
    return letters[-1] == "C" and len(letters) > 2


def depthwise(workload: Workload) -> bool:
    """Whether the channels come first, and each output reads one."""
    letters = str(workload.named["layout"])
    own = len(workload.shapes[1]) - len(letters) + 2
    return (
        letters[1] == "C"
        and len(letters) > 2
        and own == 1
        and _results(workload)[-1] > 1
    )


def forward(workload: Workload) -> str:
    """The algorithm of a convolution."""
    if depthwise(workload):
        return "depthwise"
    if winograd.TOLERANCE in workload.named and (name := winograd.preferred(workload)):
        return name
    if channels_last(workload):
        return "last"
    return "flat" if flattened(workload) else "direct"


def unstrided(workload: Workload) -> bool:
    """Whether the gradient of data is a convolution over flattened images."""
    return _returning(workload) and _channels(workload) > 1


def unstrided_depthwise(workload: Workload) -> bool:
    """Whether the gradient of data is one of each channel for itself."""
    size = workload.named.get("size") or workload.shapes[1]
    several = _numbers(size)[-1] > 1 and workload.shapes[0][-1] > 1
    return _returning(workload) and _channels(workload) == 1 and several


def _channels(workload: Workload) -> int:
    """Dimensions of weights before the window."""
    return len(workload.shapes[-1]) - len(str(workload.named["layout"])) + 2


def _returning(workload: Workload) -> bool:
    """Whether windows are a pixel apart, and the padding within their reach."""
    given = workload.named
    letters = str(given["layout"])
    rank = len(letters) - 2
    w = workload.shapes[-1]
    stride, padding = _numbers(given["stride"]), _numbers(given["padding"])
    dilation = _numbers(given["dilation"])
    reach = [(k - 1) * d for k, d in zip(w[len(w) - rank :], dilation, strict=True)]
    low, high = padding[::2], padding[1::2]
    fits = all(max(a, b) <= far for a, b, far in zip(low, high, reach, strict=True))
    first = letters[1] == "C" and rank > 0
    size = given.get("size") or workload.shapes[1][-rank:]
    return first and fits and set(stride) == {1} and math.prod(_numbers(size)) > 1


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value)


def of_pixels(workload: Workload) -> bool:
    """Whether channels come first, and are mixed at single pixels."""
    given = workload.named
    letters, window = str(given["layout"]), _numbers(given["window"])
    plain = set(window) == {1} and not any(_numbers(given["padding"]))
    return letters[1] == "C" and plain and not given["depthwise"]


def mixing(workload: Workload) -> bool:
    """Whether the channels come first, and each output is of several of them."""
    first = str(workload.named["layout"])[1] == "C"
    rank = len(str(workload.named["layout"])) - 2
    several = math.prod(workload.shapes[1][-rank:]) > 1
    return first and rank > 0 and _channels(workload) > 1 and several


def transposed_gradient(workload: Workload) -> str:
    """The algorithm of a transposed convolution's gradients."""
    if channels_last(workload):
        return "last"
    return "flat" if mixing(workload) else "direct"


def outer(workload: Workload) -> bool:
    """Whether channels are mixed, or come last, of more than single pixels."""
    letters = str(workload.named["layout"])
    own = bool(workload.named["depthwise"])
    return (letters[-1] == "C" or not own) and len(letters) > 2


def weight_gradient(workload: Workload) -> str:
    """The algorithm of the gradient of weights."""
    if single(workload):
        return "depthwise"
    if of_pixels(workload):
        return "flat"
    return "outer" if outer(workload) else "direct"


def single(workload: Workload) -> bool:
    """Whether the channels come first, and each has weights for itself."""
    letters = str(workload.named["layout"])
    own = bool(workload.named["depthwise"]) and letters[1] == "C"
    return own and workload.shapes[0][-1] > 1


def apart(workload: Workload) -> bool:
    """Whether the channels come first, and a phase of the image has several pixels."""
    given = workload.named
    letters = str(given["layout"])
    rank = len(letters) - 2
    size = _numbers(given.get("size") or workload.shapes[1])[-rank:]
    steps = zip(size, _numbers(given["stride"]), strict=False)
    several = any(n > step for n, step in steps)
    return letters[1] == "C" and rank > 0 and several


def transposed(workload: Workload) -> str:
    """By phases, which serve all strides and paddings: a transposed convolution."""
    if channels_last(workload):
        return "last"
    return "phased" if apart(workload) else "direct"


def data_gradient(workload: Workload) -> str:
    """The algorithm of the gradient of images, or of all gradients at once."""
    if unstrided_depthwise(workload):
        return "depthwise"
    return "flat" if unstrided(workload) else transposed(workload)

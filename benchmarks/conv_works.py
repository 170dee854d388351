"""Convolutions and their gradients against PyTorch, JAX and machine limits.

PyTorch uses the same memory layout as ours: `channels_last` tensors in NHWC rows.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks import limits
from benchmarks.layer_works import moved, normal, rivals
from benchmarks.work import Call, Peer, Work, Works
from tensorlang.ops import nn
from tensorlang.tuner.peers import layers as layer_peers

Case = tuple[tuple[int, ...], tuple[int, ...], int, int, int]
# image, weight, stride, padding, groups
CONV: Final[tuple[Case, ...]] = (
    ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((1, 128, 28, 28), (128, 128, 3, 3), 1, 1, 1),
    ((1, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    ((1, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1),
    ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    ((1, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1),
    ((1, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128),
)
WINOGRAD: Final = (CONV[0], CONV[1], CONV[4])
# image gradients with windows further apart than their size
STRIDED: Final[tuple[Case, ...]] = (
    ((1, 64, 56, 56), (128, 64, 3, 3), 2, 1, 1),
    ((1, 256, 56, 56), (512, 256, 1, 1), 2, 0, 1),
    ((8, 64, 32, 32), (64, 64, 4, 4), 2, 1, 1),
)
_ALLOWED: Final = 1e-3  # relative error
_GRADIENTS: Final = ("conv2d_grad_data", "conv2d_grad_weight")


def works(threads: int) -> Works:
    """All convolutions measured with this many threads."""
    for case in CONV:
        yield f"conv {_title(case)}", partial(_conv, threads, case)
    for case in CONV:
        yield f"conv NHWC {_title(case)}", partial(_last, threads, case)
    for case in WINOGRAD:
        name = f"conv {_title(case)}, within {_ALLOWED:g} (Winograd)"
        yield name, partial(_winograd, threads, case)
        yield f"{name}, prepacked", partial(_winograd, threads, case, packed=True)
    for case in CONV[:-1]:
        for grad in _GRADIENTS:
            yield f"{grad} {_title(case)}", partial(_gradient, threads, case, grad)
    for case in STRIDED:
        name = f"{_GRADIENTS[0]} {_title(case)}"
        yield name, partial(_gradient, threads, case, _GRADIENTS[0])
    for case in CONV:
        for grad in _GRADIENTS:
            made = partial(_gradient, threads, case, grad, last=True)
            yield f"{grad} NHWC {_title(case)}", made


def _title(case: Case) -> str:
    image, weight, stride, _, _ = case
    kind = "depthwise " if weight[1] == 1 else ""
    step = f" s{stride}" if stride > 1 else ""
    size = "x".join(map(str, image))
    return f"{kind}{weight[2]}x{weight[3]}{step} {size} to {weight[0]}"


def _how(case: Case) -> dict[str, Any]:
    return {"stride": case[2], "padding": case[3], "groups": case[4]}


def _conv(threads: int, case: Case) -> Work:
    x, w, how = normal(*case[0]), normal(*case[1]), _how(case)
    y = np.empty(nn.conv2d(x, w, **how).shape, np.float32)
    floating = 2 * y.size * math.prod(case[1][1:])
    return Work(
        "nn.conv2d",
        lambda: nn.conv2d(x, w, **how),
        lambda: nn.conv2d(x, w, **how, out=y),
        rivals("nn.conv2d", (x, w), how, threads),
        (limits.multiply_adds(floating, threads),),
        0.97,
        floating,
        moved(x, w, y),
    )


def _last(threads: int, case: Case) -> Work:
    """Channels-last input and output."""
    x, w, how = normal(*case[0]), normal(*case[1]), _how(case)
    ours = partial(nn.conv2d, _channels_last(x), w, layout="NHWC", **how)
    y = np.empty(ours().shape, np.float32)
    floating = 2 * y.size * math.prod(case[1][1:])
    torch = partial(
        layer_peers.torch_call, "nn.conv2d", (x, w), how, threads, channels_last=True
    )
    return Work(
        "nn.conv2d",
        ours,
        partial(ours, out=y),
        (Peer("torch channels_last", torch),),
        (limits.multiply_adds(floating, threads),),
        1.0,
        floating,
        moved(x, w, y),
    )


def _channels_last(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _winograd(threads: int, case: Case, *, packed: bool = False) -> Work:
    """Winograd, without a limit: it needs fewer products than direct convolution."""
    x, w, how = normal(*case[0]), normal(*case[1]), _how(case)
    given = nn.prepack(nn.conv2d, w, tolerance=_ALLOWED) if packed else w
    allowed = partial(nn.conv2d, x, given, **how, tolerance=_ALLOWED)
    y = np.empty(allowed().shape, np.float32)
    return Work(
        "nn.conv2d",
        allowed,
        partial(allowed, out=y),
        rivals("nn.conv2d", (x, w), how, threads),
        (),
        1.5,
        moved=moved(x, w, y),
    )


def _gradient(threads: int, case: Case, grad: str, *, last: bool = False) -> Work:
    x, w, how = normal(*case[0]), normal(*case[1]), _how(case)
    dy = normal(*nn.conv2d(x, w, **how).shape)
    size, window = case[0][2:], case[1][2:]
    torch = partial(
        layer_peers.torch_call,
        f"nn.{grad}",
        (dy, x, w),
        how,
        threads,
        channels_last=last,
    )
    given, image = (_channels_last(dy), _channels_last(x)) if last else (dy, x)
    ours = how | {"layout": "NHWC" if last else "NCHW"}
    calls: dict[str, Call] = {
        "conv2d_grad_data": lambda: nn.conv2d_grad_data(given, w, size, **ours),
        "conv2d_grad_weight": lambda: nn.conv2d_grad_weight(
            given, image, window, **ours
        ),
    }
    floating = 2 * dy.size * math.prod(case[1][1:])
    return Work(
        f"nn.{grad}",
        calls[grad],
        None,
        (Peer("torch channels_last" if last else "torch", torch),),
        (limits.multiply_adds(floating, threads),),
        1.0,
        floating,
        moved(x, w, dy),
    )

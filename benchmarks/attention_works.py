"""Attention and its gradient against PyTorch's scaled dot-product attention."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks import limits
from benchmarks.layer_works import moved, normal, rivals
from benchmarks.work import Call, Peer, Work, Works
from tensorlang.ops import nn

# batch, heads, heads of keys, queries, keys, depth
SHAPES: Final = (
    (1, 12, 12, 512, 512, 64),
    (8, 12, 12, 128, 128, 64),
    (1, 32, 8, 1024, 1024, 128),
    (2, 8, 8, 77, 77, 40),
    (1, 16, 16, 1, 2048, 64),
)
FASTEST: Final = 1.2  # minimum ratio of PyTorch's time
_PRODUCTS: Final = 2  # of the result
_BACKWARD: Final = 5  # of the gradient, with the sums of exponentials known

_Shape = tuple[int, int, int, int, int, int]
_Array = np.ndarray[Any, Any]


def works(threads: int) -> Works:
    """All works measured with this many threads."""
    for shape in SHAPES:
        _, _, _, m, n, _ = shape
        for causal in (False, True) if m == n else (False,):
            name = "x".join(map(str, shape)) + " causal" * causal
            yield f"attention {name}", partial(_forward, threads, shape, causal)
            yield f"attention_grad {name}", partial(_backward, threads, shape, causal)


def _arrays(shape: _Shape) -> tuple[_Array, _Array, _Array]:
    batch, heads, groups, m, n, depth = shape
    keys = (batch, groups, n, depth)
    return normal(batch, heads, m, depth), normal(*keys), normal(*keys)[::-1].copy()


def _operations(shape: _Shape, causal: bool, products: int) -> int:
    """Floating-point operations; those on hidden keys do not count."""
    batch, heads, _, m, n, depth = shape
    return 2 * products * batch * heads * m * n * depth // (1 + causal)


def _forward(threads: int, shape: _Shape, causal: bool) -> Work:
    q, k, v = _arrays(shape)
    out, floating = np.empty_like(q), _operations(shape, causal, _PRODUCTS)
    return Work(
        "nn.attention",
        lambda: nn.attention(q, k, v, causal=causal),
        lambda: nn.attention(q, k, v, causal=causal, out=out),
        rivals("nn.attention", (q, k, v), {"causal": causal}, threads),
        (limits.multiply_adds(floating, threads),),
        FASTEST,
        floating,
        moved(q, k, v, out),
    )


def _backward(threads: int, shape: _Shape, causal: bool) -> Work:
    arrays = _arrays(shape)
    dy = normal(*arrays[0].shape) / 2
    floating = _operations(shape, causal, _BACKWARD)
    return Work(
        "nn.attention_grad",
        lambda: nn.attention_grad(dy, *arrays, causal=causal),
        None,
        (Peer("torch", partial(_torch_backward, threads, dy, arrays, causal)),),
        (limits.multiply_adds(floating, threads),),
        FASTEST,
        floating,
        moved(dy, *arrays, *arrays),
    )


def _torch_backward(
    threads: int, dy: _Array, arrays: tuple[_Array, ...], causal: bool
) -> Call:
    """PyTorch's gradient, with its result and sums kept from the forward call."""
    import torch

    torch.set_num_threads(threads)
    q, k, v = (torch.from_numpy(array).requires_grad_() for array in arrays)
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )
    given = torch.from_numpy(dy)
    return lambda: torch.autograd.grad(y, (q, k, v), given, retain_graph=True)

"""Triton peers, if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu.works import Stage

Calls = dict[str, list[Callable[[], object]]]


def present(stage: Stage) -> bool:
    """Whether Triton and a GPU for it are available."""
    return stage.device == "cuda" and find_spec("triton") is not None


def gelu(stage: Stage, x: Any, out: Any) -> Calls:
    """An elementwise grid, four elements per thread."""
    if not present(stage):
        return {}
    from benchmarks.gpu.triton_kernels import gelu_kernel

    count, size = x.numel(), 1024
    grid = (-(-count // size),)
    return {"triton": [lambda: gelu_kernel[grid](x, out, count, SIZE=size)]}


def softmax(stage: Stage, x: Any, out: Any) -> Calls:
    """One row per program."""
    if not present(stage):
        return {}
    from benchmarks.gpu.triton_kernels import softmax_kernel

    rows, columns = x.shape
    size = 1 << (columns - 1).bit_length()
    return {
        "triton": [
            lambda: softmax_kernel[(rows,)](x, out, columns, SIZE=size, num_warps=8)
        ]
    }


def matmul(stage: Stage, a: Any, b: Any, out: Any) -> Calls:
    """`a @ b.T` in tiles of 128 by 256, of bf16 tensors."""
    if not present(stage):
        return {}
    from benchmarks.gpu.triton_kernels import matmul_kernel

    m, k = a.shape
    n = b.shape[0]
    grid = (-(-m // 128) * -(-n // 256),)
    sizes = {"ROWS": 128, "COLUMNS": 256, "DEPTH": 64}
    return {
        "triton": [
            lambda: matmul_kernel[grid](
                a, b, out, m, n, k, **sizes, num_warps=8, num_stages=3
            )
        ]
    }

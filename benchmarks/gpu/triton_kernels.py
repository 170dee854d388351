"""Triton kernels; imported only with Triton and a GPU."""

# ruff: noqa: ANN001, ANN201, D403, N803, PLR0917
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, y, count, SIZE: tl.constexpr):
    """Elementwise y = gelu(x)."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value = tl.load(x + at, mask=inside)
    scaled = 0.5 * value * (1.0 + tl.math.erf(value * 0.7071067811865476))
    tl.store(y + at, scaled, mask=inside)


@triton.jit
def softmax_kernel(x, y, columns, SIZE: tl.constexpr):
    """y = softmax(x) of one row, held in registers."""
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, SIZE)
    inside = at < columns
    value = tl.load(x + row + at, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row + at, power / tl.sum(power, axis=0), mask=inside)


@triton.jit
def matmul_kernel(
    a,
    b,
    y,
    m,
    n,
    k,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """y = a @ b.T of whole tiles, in groups of eight tile rows for L2 reuse."""
    number = tl.program_id(0)
    across = tl.cdiv(n, COLUMNS)
    band = number // (8 * across)
    tall = min(tl.cdiv(m, ROWS) - band * 8, 8)
    row = (band * 8 + number % (8 * across) % tall) * ROWS + tl.arange(0, ROWS)
    column = number % (8 * across) // tall * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    left = a + row[:, None] * k + depth[None, :]
    right = b + column[None, :] * k + depth[:, None]
    for _ in range(0, k, DEPTH):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += DEPTH
        right += DEPTH
    tl.store(y + row[:, None] * n + column[None, :], total.to(y.dtype.element_ty))

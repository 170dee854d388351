"""A custom operator: multi-head attention.

    python examples/attention.py
    tlang tune examples.attention:attention --shape 8x64x32,8x64x32,8x64x32

Source: Vaswani et al., "Attention Is All You Need", 2017. The scores are materialised;
`examples/online_softmax.py` shows a single-pass softmax.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import graph, ir
from tensorlang.ops import math, nn, operator
from tensorlang.ops.spec.signature import Floats


@operator("my.attention")
def attention(q: Floats, k: Floats, v: Floats) -> Any:
    """softmax(q k^T / sqrt(d)) v; q [heads, m, d], k [heads, n, d], v [heads, n, e]."""
    heads, m, depth = q.shape
    n, width = v.shape[1], v.shape[2]
    c, t = ir.reduce_axis(depth, "c"), ir.reduce_axis(n, "t")
    root = ir.sqrt(depth.cast(q.dtype))
    dots = ir.compute(
        (heads, m, n), lambda b, i, j: ir.sum(q[b, i, c] * k[b, j, c], c), "dots"
    )
    top = ir.compute((heads, m), lambda b, i: ir.max(dots[b, i, t], t), "top")
    e = ir.compute(
        (heads, m, n), lambda b, i, j: ir.exp((dots[b, i, j] - top[b, i]) / root), "e"
    )
    total = ir.compute((heads, m), lambda b, i: ir.sum(e[b, i, t], t), "total")
    shape = heads, m, width
    y = ir.compute(shape, lambda b, i, j: ir.sum(e[b, i, t] * v[b, t, j], t), "y")
    return ir.compute(shape, lambda b, i, j: y[b, i, j] / total[b, i], "out")


@graph.gradient_of(attention)
def gradient(dy: Any, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """The gradients of q, k and v."""
    scale = float(int(q.shape[-1])) ** -0.5
    scores = math.matmul(q, k, transpose_b=True) * scale
    dscores = nn.softmax_grad(math.matmul(dy, v, transpose_b=True), scores) * scale
    dv = math.matmul(nn.softmax(scores), dy, transpose_a=True)
    return math.matmul(dscores, k), math.matmul(dscores, q, transpose_a=True), dv


def main() -> None:
    """Eight heads, compared with float64."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 8, 64, 32), dtype=np.float32)
    scores = np.einsum("bic,bjc->bij", q, k, dtype=np.float64) / np.sqrt(32)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True) @ v
    print(f"largest error {np.abs(attention(q, k, v) - expected).max():.1e}")


if __name__ == "__main__":
    main()

"""A custom operator: RMSNorm of rows, gated by SiLU, in one kernel.

    python examples/rms_swiglu.py
    tlang verify examples.rms_swiglu:rms_swiglu --shape 64x512,512,64x512
    tlang tune examples.rms_swiglu:rms_swiglu --shape 64x512,512,64x512

Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; Shazeer, "GLU
Variants Improve Transformer", 2020. The gradients are derived from the definition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import ir
from tensorlang.ops import nn, operator
from tensorlang.ops.spec.signature import Floats

EPS = 1e-6


@operator("my.rms_swiglu")
def rms_swiglu(x: Floats, weight: Floats, gate: Floats) -> Any:
    """`rms_norm(x) * weight * silu(gate)`; x and gate [rows, n], weight [n]."""
    rows, n = x.shape
    k = ir.reduce_axis(n, "k")
    square = ir.compute((rows,), lambda i: ir.sum(x[i, k] * x[i, k], k), "square")
    rms = ir.compute((rows,), lambda i: ir.sqrt(square[i] / n.cast(x.dtype) + EPS))

    def element(i: ir.Expr, j: ir.Expr) -> Any:
        return x[i, j] / rms[i] * weight[j] * nn.silu(gate[i, j])

    return ir.compute((rows, n), element, "out")


def main() -> None:
    """Rows of a transformer's width, compared with float64."""
    rng = np.random.default_rng(0)
    x, gate = rng.standard_normal((2, 64, 512), dtype=np.float32)
    weight = rng.standard_normal(512, dtype=np.float32)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + EPS) * weight
    expected *= gate / (1 + np.exp(-gate.astype(np.float64)))
    error = np.abs(rms_swiglu(x, weight, gate) - expected).max()
    print(f"largest error {error:.1e}")


if __name__ == "__main__":
    main()

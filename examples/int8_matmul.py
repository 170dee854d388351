"""A custom operator: an int8 matrix product, requantised to int8.

    python examples/int8_matmul.py
    tlang tune examples.int8_matmul:int8_matmul --shape 256x512,256x512,256 --dtype i8

Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018; with float scales, as in ONNX's QLinearMatMul.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import ir
from tensorlang.ops import operator
from tensorlang.ops.spec.signature import Floats, Integers


@operator("my.int8_matmul")
def int8_matmul(a: Integers, b: Integers, scale: Floats) -> Any:
    """`round(a @ b.T * scale)` as int8; a [m, k] and b [n, k] int8, scale [n]."""
    shape = a.shape[0], b.shape[0]
    k = ir.reduce_axis(a.shape[1], "k")
    dot = ir.compute(
        shape, lambda i, j: ir.sum(a[i, k].cast("i32") * b[j, k].cast("i32"), k), "dot"
    )

    def quantised(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        y = ir.round(dot[i, j].cast("f32") * scale[j].cast("f32"))
        return ir.maximum(ir.minimum(y, 127.0), -128.0).cast("i8")

    return ir.compute(shape, quantised)


def main() -> None:
    """A product with results inside and outside int8's range, compared with NumPy."""
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (64, 100), dtype=np.int8)
    b = rng.integers(-128, 128, (48, 100), dtype=np.int8)
    scale = rng.uniform(1e-4, 3e-3, 48).astype(np.float32)
    dot = a.astype(np.int32) @ b.T.astype(np.int32)
    expected = np.rint(dot.astype(np.float32) * scale).clip(-128, 127)
    right = (int8_matmul(a, b, scale) == expected).all()
    print(f"64x48 results, scaled, rounded and clipped: {right}")


if __name__ == "__main__":
    main()

"""A custom operator: sums of table rows, bag by bag.

    python examples/embedding_bag.py
    tlang tune examples.embedding_bag:embedding_bag --shape 10000x64,512x20

Like `torch.nn.EmbeddingBag(mode="sum")` with bags of equal size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import graph, ir
from tensorlang.ops import nn, operator
from tensorlang.ops.spec.signature import Floats, Integers


@operator("my.embedding_bag")
def embedding_bag(table: Floats, ids: Integers) -> Any:
    """y[bags, width], the sum of `table[ids[bag, k]]` over k; ids [bags, size]."""
    k = ir.reduce_axis(ids.shape[1], "k")
    return ir.compute(
        (ids.shape[0], table.shape[1]),
        lambda bag, j: ir.sum(table[ids[bag, k].cast("i64"), j], k),
    )


@graph.gradient_of(embedding_bag)
def gradient(dy: Any, table: Any, ids: Any) -> tuple[Any, None]:
    """Each row of the table sums the gradients of the bags that contain it."""
    return nn.embedding_grad(nn.stack([dy] * int(ids.shape[1]), 1), ids, table), None


def main() -> None:
    """Bags of 20 rows, compared with float64."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((1000, 64), dtype=np.float32)
    ids = rng.integers(0, 1000, (128, 20))
    expected = table[ids].sum(1, dtype=np.float64)
    print(f"largest error {np.abs(embedding_bag(table, ids) - expected).max():.1e}")


if __name__ == "__main__":
    main()

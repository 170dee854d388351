"""random.randint is JAX's remainder of two draws, whatever the span."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ops import random

SPANS = (1, 2, 3, 10, 255, 65537, (1 << 31) - 1, 1 << 31, (1 << 31) + 1)


def expected(seed: int, count: int, span: int, dtype: str) -> list[int]:
    """In Python's numbers, cut to the width where JAX's are."""
    high, low = (
        random.bits(key, (count,), dtype=dtype).tolist()
        for key in random.split(random.key(seed))
    )
    top = (1 << 8 * np.dtype(dtype).itemsize) - 1
    half = (1 << 4 * np.dtype(dtype).itemsize) % span
    factor = (half * half & top) % span
    return [
        ((a % span) * factor + b % span & top) % span
        for a, b in zip(high, low, strict=True)
    ]


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_every_span(dtype):
    most = (1 << 8 * np.dtype(dtype).itemsize) - 1
    for seed, span in enumerate((*SPANS, most - 1, most)):
        made = random.randint(random.key(seed), (77,), 0, span, dtype=dtype)
        assert made.dtype == dtype
        assert made.tolist() == expected(seed, 77, span, dtype)


def test_signed_ends():
    made = random.randint(random.key(3), (100,), -(1 << 31), (1 << 31) - 1)
    drawn = expected(3, 100, (1 << 32) - 1, "uint32")
    assert made.tolist() == [n - (1 << 31) for n in drawn]

"""A register tile whose last vectors are not full runs like one of full vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

TILE = """
def tile(x: f32[64, {n}], w: f32[6, 64], y: Out[f32[6, {n}]]):
    for i in parallel(1):
        acc = alloc(f32[6, {n}], scope="register", layout=lambda a, b: a * 64 + b)
        for k in range(64):
            for a in unrolled(6):
                for b in unrolled(4):
                    for v in vectorized(16):
                        with block("dot", va=spatial(6, a),
                                   vb=spatial({n}, b * 16 + v), vk=reduction(64, k),
                                   where=b * 16 + v < {n}):
                            reduce(sum, acc[va, vb], w[va, vk] * x[vk, vb])
        for a2 in unrolled(6):
            for b2 in unrolled(4):
                for v2 in vectorized(16):
                    if b2 * 16 + v2 < {n}:
                        y[a2, b2 * 16 + v2] = acc[a2, b2 * 16 + v2]
"""


@pytest.mark.parametrize("n", [49, 50, 55, 56, 63, 64])
def test_a_ragged_tile_stays_in_registers(build, target, n):
    kernel = build(TILE.format(n=n))
    rng = np.random.default_rng(n)
    x = rng.integers(-4, 5, (64, n)).astype(np.float32)
    w = rng.integers(-4, 5, (6, 64)).astype(np.float32)
    y = np.zeros((6, n), np.float32)
    kernel(x, w, y)
    np.testing.assert_array_equal(y, w @ x)
    if target.vector_registers < 32:
        pytest.skip("the tile needs the 32 vector registers of AVX-512")
    bodies = re.split(r"\n(?=\.LBB)", kernel.assembly)
    body = max(bodies, key=lambda text: text.count("vfmadd"))
    inner = body[: re.search(r"\n\tj[a-z]+\s+\.LBB", body).end()]
    assert inner.count("vfmadd") == 24
    assert "rsp" not in inner
    assert not re.search("vblend|vshuf|vand", inner)

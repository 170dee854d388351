"""Contractions in blocks: every choice of sizes and order is legal, and right."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir.contents import blocks
from tensorlang.ops import find
from tensorlang.runtime import build
from tensorlang.schedules.generic import generic
from tensorlang.scheduling import Knobs, Schedule

DENSE = find("nn.dense")
SIZES = [(33, 77, 205), (12, 64, 128), (7, 40, 1), (50, 48, 65)]
CHOICES = {
    "rows": (1, 3, 6),
    "vectors": (1, 2, 4),
    "blocks": ("nkm", "nmk", "mkn", "mnk", "knm", "kmn"),
    "block_strips": (1, 2, 3, 64),
    "block_tiles": (1, 2, 4),
    "block_depth": (0, 32, 64),
    "packing": ("inside", "before", "none"),
    "rows_packed": (False, True),
    "strips_first": (False, True),
}


def scheduled(layout, m, k, n, knobs, *, target=None):
    """nn.dense [m, k] x [n, k], in blocks."""
    shape = (n, k) if layout == "oi" else (k, n)
    workload = DENSE.workload((m, k), shape, layout=layout)
    s = Schedule(DENSE.function(workload), target or targets.get("llvm"))
    generic(s, knobs)
    return s


@pytest.mark.parametrize("seed", range(24))
def test_blocks_of_any_size_and_order(seed):
    draw = random.Random(seed)
    m, k, n = draw.choice(SIZES)
    layout = draw.choice(("oi", "io"))
    knobs = Knobs(pinned={name: draw.choice(found) for name, found in CHOICES.items()})
    s = scheduled(layout, m, k, n, knobs)
    tried = [str(each) for each in s.declined]
    assert n == 1 or not any("contraction.tiles" in each for each in tried), tried
    x, w = np.random.default_rng(seed).standard_normal((2, 256, 256), np.float32)
    x, w = x[:m, :k].copy(), (w[:n, :k] if layout == "oi" else w[:k, :n]).copy()
    expected = x.astype(np.float64) @ (w.T if layout == "oi" else w)
    np.testing.assert_allclose(build(s.function)(x, w), expected, atol=1e-4)


def test_the_space_is_large_and_legal():
    """Of random points, most give a kernel of their own, and none is refused."""
    draw, found = random.Random(0), set()
    for _ in range(40):
        knobs = Knobs(
            pinned={name: draw.choice(each) for name, each in CHOICES.items()}
        )
        s = scheduled("io", 96, 640, 900, knobs)
        assert not any("contraction.tiles" in str(each) for each in s.declined)
        found.add(str(s.function))
    assert len(found) > 30


def test_ragged_columns_are_packed_in_vectors():
    """Before the loops, too: a copy of single elements took as long as the product."""
    s = scheduled("io", 33, 776, 77, Knobs(pinned={"packing": "before"}))
    assert not any("_by_rows" in str(each) for each in s.declined)


def test_a_depth_without_a_near_divisor_is_one_block():
    """Whose sums are not accumulated in memory."""
    deep, whole = (
        scheduled("io", 33, 127, 64, Knobs(pinned={"block_depth": n})) for n in (64, 0)
    )
    assert str(deep.function) == str(whole.function)


@pytest.mark.parametrize("depth", [64, 72, 77])
def test_strips_are_transposed_in_registers_whatever_the_depth(depth):
    s = scheduled("oi", 100, depth, 1024, Knobs())
    assert any("tensorize" in str(step) for step in s.trace)


@pytest.mark.parametrize("megabytes", [1, 64])
def test_ragged_weights_are_packed_strip_by_strip(megabytes):
    bytes_ = megabytes << 20
    target = replace(targets.get("llvm"), l2_bytes=bytes_, l3_bytes=bytes_)
    s = scheduled("oi", 33, 776, 1025, Knobs(), target=target)
    assert any("compute_at" in str(step) for step in s.trace)


@pytest.mark.parametrize("transpose_b", [False, True])
def test_open_columns_have_no_conditions_in_sums(transpose_b):
    op = find("math.matmul_grad")
    second = (512, 96) if transpose_b else (96, 512)
    how = {"transpose_a": True, "transpose_b": transpose_b}
    workload = op.workload((300, 512), (96, 300), second, **how)
    s = Schedule(op.function(workload), targets.get("llvm"))
    generic(s, Knobs())
    sums = [b for b in blocks(s.function) if "reduction" in {a.kind for a in b.axes}]
    assert len(sums) > 2
    assert all(block.where is None for block in sums)

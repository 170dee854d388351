"""Contractions in blocks: every choice of sizes and order is legal, and right."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir.contents import allocations, blocks
from tensorlang.ops import find
from tensorlang.runtime import build
from tensorlang.schedules.contraction.space import OF_BLOCKS
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


@pytest.mark.parametrize("layout", ["oi", "io"])
def test_each_strip_of_a_block_is_contiguous(layout):
    """Else a tile reads a line of each of as many pages as it has steps."""
    knobs = Knobs(pinned={"vectors": 2, "block_strips": 4, "packing": "inside"})
    s = scheduled(layout, 33, 512, 1024, knobs)
    (copy,) = [each for each in allocations(s.function) if each.name == "w_global"]
    width = 2 * targets.get("llvm").lanes(32)
    assert f"// {width}" in str(copy.layout)


@pytest.mark.parametrize("seed", range(6))
def test_each_product_of_a_gradient_has_blocks_of_its_own(seed):
    draw, op = random.Random(seed), find("nn.dense_grad")
    own = {f"dw_{each}": draw.choice(CHOICES[each]) for each in OF_BLOCKS}
    knobs = Knobs(pinned=own)
    m, n, k = draw.choice([(33, 77, 205), (50, 48, 64), (7, 40, 16)])
    s = Schedule(op.function(op.workload((m, n), (m, k), (n, k))), targets.get("llvm"))
    generic(s, knobs)
    assert not knobs.unasked()
    plain = [knobs.values[each] for each in OF_BLOCKS]
    assert plain == [knobs.defaults[each] for each in OF_BLOCKS]
    numbers = np.random.default_rng(seed)
    dy, x, w = (
        numbers.standard_normal(shape, np.float32) for shape in [(m, n), (m, k), (n, k)]
    )
    dx, dw, _ = build(s.function)(dy, x, w)
    np.testing.assert_allclose(dx, dy.astype(np.float64) @ w, atol=1e-4)
    np.testing.assert_allclose(dw, dy.T.astype(np.float64) @ x, atol=1e-4)


def test_elements_of_distant_lines_are_packed():
    """Rows of the weights' gradient are columns of `dy`, however many it has."""
    op, knobs = find("nn.dense_grad"), Knobs()
    workload = op.workload((512, 1024), (512, 1024), (1024, 1024))
    generic(Schedule(op.function(workload), targets.get("llvm")), knobs)
    assert knobs.values["dw_rows_packed"]
    assert not knobs.values["rows_packed"]


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

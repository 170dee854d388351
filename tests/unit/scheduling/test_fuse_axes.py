"""`fuse_axes` and `fuse_dims`: several axes, or dimensions, as one."""

import numpy as np
import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations, blocks
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling import Schedule

CONV = """
def conv(x: f32[n, 3, 8], w: f32[4, 3, 2], y: Out[f32[n, 4, 7]], *, n: i64):
    t = alloc(f32[n, 4, 7])
    for b in range(n):
        for o in range(4):
            for i in range(7):
                for c in range(3):
                    for u in range(2):
                        with block("t", vb=spatial(n, b), vo=spatial(4, o),
                                   vi=spatial(7, i), vc=reduction(3, c),
                                   vu=reduction(2, u)):
                            reduce(sum, t[vb, vo, vi],
                                   x[vb, vc, vi + vu] * w[vo, vc, vu])
    for b_1 in range(n):
        for o_1 in range(4):
            for i_1 in range(7):
                with block("y", wb=spatial(n, b_1), wo=spatial(4, o_1),
                           wi=spatial(7, i_1)):
                    y[wb, wo, wi] = t[wb, wo, wi] * 2.0
"""


def outcome(func):
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=s).astype("f4") for s in ((5, 3, 8), (4, 3, 2)))
    y = np.zeros((5, 4, 7), "f4")
    run(func, x, w, y, n=5)
    return y


def matrix():
    s = Schedule(parse(CONV))
    s.reorder("o", "b", "i", "c", "u")
    s.fuse("b", "i")
    s.fuse("c", "u")
    s.fuse_axes("t", ["vb", "vi"])
    s.fuse_axes("t", ["vc", "vu"])
    return s


def test_a_convolution_as_a_product_of_matrices():
    s = matrix()
    assert np.array_equal(outcome(s.function), outcome(parse(CONV)))
    (block,) = (b for b in blocks(s.function) if b.name == "t")
    values = {axis.var.name: repr(axis.value) for axis in block.axes}
    assert values == {"vb_i": "b_i", "vo": "o", "vc_u": "c_u"}
    s.reindex("t", "x")
    shapes = [b.shape for b in allocations(s.function) if b.name == "x_t"]
    assert [repr(extent) for extent in shapes[0]] == ["n * 7", "6"]
    assert np.array_equal(outcome(s.function), outcome(parse(CONV)))


def test_dimensions_follow_the_axes():
    s = matrix()
    s.fuse_dims("t", [0, 2])
    (t,) = (b for b in allocations(s.function) if b.name == "t")
    assert [repr(extent) for extent in t.shape] == ["n * 7", "4"]
    (block,) = (b for b in blocks(s.function) if b.name == "t")
    assert "t[vb_i, vo]" in repr(block)
    assert np.array_equal(outcome(s.function), outcome(parse(CONV)))


def test_dimensions_in_another_order():
    s = Schedule(parse(CONV))
    _, copy = s.cache_read("t", "x", "global")
    s.permute_dims(copy, [0, 2, 1])
    (made,) = (b for b in allocations(s.function) if b.name == copy)
    assert [repr(extent) for extent in made.shape] == ["n", "8", "3"]
    assert np.array_equal(outcome(s.function), outcome(parse(CONV)))
    with pytest.raises(ScheduleError, match="not a permutation of the dimensions"):
        s.permute_dims(copy, [0, 2])


def test_what_cannot_be_fused():
    s = Schedule(parse(CONV))
    with pytest.raises(ScheduleError, match="neither all spatial nor all"):
        s.fuse_axes("t", ["vi", "vc"])
    with pytest.raises(ScheduleError, match="has the axes vb, vo, vi"):
        s.fuse_axes("t", ["vi"])
    with pytest.raises(ScheduleError, match="n varies"):
        s.fuse_axes("t", ["vi", "vb"])
    with pytest.raises(ScheduleError, match="has no dimensions"):
        s.fuse_dims("t", [0, 3])
    with pytest.raises(ScheduleError, match="has no dimensions"):
        s.fuse_dims("t", [1, 1])
    with pytest.raises(ScheduleError, match="n varies"):
        s.fuse_dims("t", [1, 0])
    s.split("i", [None, 4])
    with pytest.raises(ScheduleError, match="runs only where"):
        s.fuse_axes("t", ["vb", "vi"])

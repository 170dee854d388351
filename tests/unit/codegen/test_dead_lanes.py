"""Ragged register tiles: whole registers, on the stack, and no mask nobody needs."""

from __future__ import annotations

import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.dead_lanes import drop_dead_lanes
from tensorlang.codegen.lower import lower
from tensorlang.ir.contents import allocations
from tensorlang.ir.nodes import Load, Store
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import walk

TARGET = targets.Target(
    features=("fma",), threads=2, vector_bits=512, vector_registers=32
)

TILE = """
def tile(x: f32[8, 30], w: f32[4, 8], y: Out[f32[4, 30]]):
    for i in parallel(1):
        acc = alloc(f32[4, {room}], scope="register", layout=lambda a, b: a * 32 + b)
        for k in range(8):
            for a in unrolled(4):
                for b in unrolled(2):
                    for v in vectorized(16):
                        with block("dot", va=spatial(4, a),
                                   vb=spatial(30, b * 16 + v), vk=reduction(8, k),
                                   where=b * 16 + v < 30):
                            reduce(sum, acc[va, vb], w[va, vk] * x[vk, vb])
        for a2 in unrolled(4):
            for b2 in unrolled(2):
                for v2 in vectorized(16):
                    if b2 * 16 + v2 < {written}:
                        y[a2, b2 * 16 + v2] = acc[a2, b2 * 16 + v2]
"""


def masked(function, buffer):
    """The masked loads and stores of a buffer."""
    return [
        node
        for node in walk(function.body)
        if isinstance(node, (Load, Store))
        and node.buffer.name == buffer
        and node.mask is not None
    ]


def unmasked_tile(**sizes):
    lowered = lower(parse(TILE.format(**sizes)), TARGET)
    return lowered, drop_dead_lanes(lowered)


def test_a_tile_directly_under_a_parallel_loop_is_a_threads_own():
    lowered, _ = unmasked_tile(room=30, written=30)
    (tile,) = allocations(lowered)
    assert tile.scope == "register"


def test_a_tile_has_room_for_the_last_register():
    lowered, _ = unmasked_tile(room=30, written=30)
    (tile,) = allocations(lowered)
    assert repr(tile.shape[0]) == "128"


def test_lanes_that_nobody_reads_need_no_mask_in_the_reduction():
    lowered, dropped = unmasked_tile(room=30, written=30)
    assert any(isinstance(node, Store) for node in masked(lowered, "acc"))
    assert not any(isinstance(node, Store) for node in masked(dropped, "acc"))
    assert len(masked(dropped, "x")) == len(masked(lowered, "x")) > 0
    assert len(masked(dropped, "y")) == len(masked(lowered, "y")) > 0


def test_lanes_that_are_read_keep_their_mask():
    """Here all 32 of a row are read, so the second vector's last two matter."""
    lowered, dropped = unmasked_tile(room=32, written=32)
    before, after = (
        [node for node in masked(function, "acc") if isinstance(node, Store)]
        for function in (lowered, dropped)
    )
    assert 0 < len(after) == len(before) // 2


@pytest.mark.parametrize("index", ["n % 32", "31"])
def test_one_load_at_an_unknown_or_a_masked_place_keeps_the_masks(index):
    text = TILE.format(room=32, written=30).replace(
        "y: Out[f32[4, 30]]):", "y: Out[f32[4, 30]], *, n: i64):"
    )
    text += f"        y[0, 0] = acc[3, {index}]\n"
    lowered = lower(parse(text), TARGET)
    kept = masked(drop_dead_lanes(lowered), "acc")
    last = [n for n in kept if isinstance(n, Store)]
    assert last

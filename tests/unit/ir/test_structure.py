"""Loops, blocks and allocations below a node: in program order, and in no cycle."""

from __future__ import annotations

import gc

from tensorlang.ir.contents import allocations, blocks, loops, structure
from tensorlang.ir.nodes import Alloc, Block, For
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import walk

TEXT = """
def f(x: f32[4, 3], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi, 0]
    for j in range(4):
        for k in range(3):
            with block("y", vj=spatial(4, j), vk=reduction(3, k)):
                reduce(sum, y[vj], t[vj] * x[vj, vk])
"""


def test_everything_is_there_once_in_program_order():
    func = parse(TEXT)
    for _ in range(2):  # computed, and cached
        assert [loop.var.name for loop in loops(func)] == ["i", "j", "k"]
        assert [block.name for block in blocks(func)] == ["t", "y"]
        assert [buffer.name for buffer in allocations(func)] == ["t"]


def test_a_loop_a_block_and_an_allocation_are_in_their_own():
    nodes = list(walk(parse(TEXT)))
    outer = next(n for n in nodes if isinstance(n, For) and n.var.name == "j")
    assert [loop.var.name for loop in loops(outer)] == ["j", "k"]
    block = next(node for node in nodes if isinstance(node, Block))
    assert list(blocks(block)) == [block]
    assert list(loops(block)) == []
    alloc = next(node for node in nodes if isinstance(node, Alloc))
    assert structure(alloc).allocations[0] is alloc


def test_programs_are_freed_without_the_garbage_collector():
    def alive():
        kinds = (For, Block, Alloc)
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    parse(TEXT)
    gc.collect()
    gc.disable()
    try:
        before = alive()
        func = parse(TEXT)
        assert list(loops(func))
        assert alive() == before + 6
        del func
        assert alive() == before
    finally:
        gc.enable()

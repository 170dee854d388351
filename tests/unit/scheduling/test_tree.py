"""Places by name, replacement, copies with new names."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import names
from tensorlang.ir.nodes import Seq
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.scheduling.analysis.tree import (
    blocks_under,
    enclosing_loops,
    find_alloc,
    find_block,
    find_buffer,
    find_loop,
    loop_of,
    new_names,
    rename,
    replace,
)

STAGES = parse("""
def stages(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        for j in range(1):
            with block("t", vi=spatial(4, i + j)):
                t[vi] = x[vi]
    for i in range(4):
        with block("y", wi=spatial(4, i)):
            y[wi] = t[wi]
""")


def test_a_loop_of_several_nests_is_named_by_a_block():
    with pytest.raises(ScheduleError, match="2 loops 'i'; name one by a block: t/i, y"):
        find_loop(STAGES, "i")
    assert find_loop(STAGES, "y/i") != find_loop(STAGES, "t/i")
    assert loop_of(find_loop(STAGES, "j")) is loop_of(find_loop(STAGES, "t/j"))


@pytest.mark.parametrize(
    ("find", "name", "sentence"),
    [
        (find_loop, "k", "stages has no loop 'k'; its loops: i, j"),
        (find_loop, "y/j", "no loop 'j' is around block 'y'; these are: i"),
        (find_loop, "z/i", "stages has no block 'z'; its blocks: t, y"),
        (find_block, "z", "stages has no block 'z'; its blocks: t, y"),
        (find_buffer, "z", "stages has no buffer 'z'; its buffers: x, y, t"),
        (find_alloc, "x", "stages allocates no 'x'; its temporaries: t"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(find, name, sentence):
    with pytest.raises(ScheduleError, match=sentence):
        find(STAGES, name)


def test_paths_know_what_is_around():
    path = find_block(STAGES, "t")
    assert [loop.var.name for loop in enclosing_loops(path)] == ["i", "j"]
    assert [block.name for block in blocks_under(STAGES.body)] == ["t", "y"]
    assert find_buffer(STAGES, "t") is find_alloc(STAGES, "t")[-1].buffer


def test_replace_splices_and_removes():
    path = find_loop(STAGES, "y/i")
    twice = replace(path, Seq((path[-1], path[-1])))
    assert show(twice).count('block("y"') == 2
    assert 'block("y"' not in show(replace(path, None))
    assert replace(path, path[-1]) == STAGES


def test_copies_stand_beside_the_original():
    taken = names(STAGES)
    path = find_loop(STAGES, "t/i")
    copy = rename(path[-1], taken, suffix="_copy")
    both = replace(path, Seq((path[-1], copy)))
    verify(both)
    assert [b.name for b in blocks_under(both.body)] == ["t", "t_copy", "y"]
    assert loop_of(find_loop(both, "i_copy")).body != loop_of(path).body


def test_new_names_are_numbered():
    assert new_names(STAGES, "i", "i", "q") == ("i_1", "i_2", "q")

"""Random steps of a schedule: one strategy for each primitive, mostly sensible.

A step names what the function holds at that moment; nothing is tried out first. What
a strategy makes may well be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hypothesis import strategies as st
from tensorlang_test_programs import block_moves, loop_moves, shape_moves
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.views import View

from tensorlang.ir.nodes import Function
from tensorlang.scheduling.trace import Step

MOVES: Final[Mapping[str, Callable[[Draw, View], Any]]] = {
    "split": loop_moves.split,
    "fuse": loop_moves.fuse,
    "reorder": loop_moves.reorder,
    "partition": loop_moves.partition,
    "specialize": loop_moves.specialize,
    "merge": loop_moves.merge,
    "number_loops": loop_moves.number_loops,
    "cache_read": block_moves.cache_read,
    "cache_write": block_moves.cache_write,
    "compute_at": block_moves.compute_at,
    "reverse_compute_at": block_moves.reverse_compute_at,
    "inline": block_moves.inline,
    "reindex": block_moves.reindex,
    "transform_layout": block_moves.transform_layout,
    "decompose_reduction": block_moves.decompose_reduction,
    "atomic": block_moves.atomic,
    "rfactor": block_moves.rfactor,
    "pad": block_moves.pad,
    "tensorize": block_moves.tensorize,
    "parallel": loop_moves.parallel,
    "bind": loop_moves.bind,
    "vectorize": loop_moves.vectorize,
    "unroll": loop_moves.unroll,
    "set_scope": block_moves.set_scope,
    "store_at": block_moves.store_at,
    "store_in": block_moves.store_in,
    "pipeline": block_moves.pipeline,
    "double_buffer": block_moves.double_buffer,
    "hint": block_moves.hint,
    "fuse_axes": shape_moves.fuse_axes,
    "fuse_dims": shape_moves.fuse_dims,
    "permute_dims": shape_moves.permute_dims,
    "share": shape_moves.share,
    "by_target": shape_moves.by_target,
}


# where it can be, a step is drawn more often, so that each has its share of a run
_MOVING: Final = ("compute_at", "set_scope", *["reverse_compute_at", "inline"] * 3) * 2
_OFTEN: Final = (
    *["rfactor", "hint"] * 2,
    *["pad"] * 3,
    "decompose_reduction",
    "reindex",
    "transform_layout",
    "fuse_axes",
    "cache_read",
)


@st.composite
def steps(draw: Draw, func: Function) -> Step | None:
    """One step for a function; None where what was drawn has nothing to apply to."""
    view = View(func)
    staging = block_moves.staging(view)
    often = ["tensorize"] * 40 if block_moves.tiles(view) else []
    often += _MOVING if block_moves.producers(view) else ()
    often += ["pipeline", "double_buffer"] * 16 if staging else []
    often += ["merge"] * 4 if loop_moves.neighbours(view) else []
    often += ["atomic"] * 24 if block_moves.decomposed(view) else []
    often += ["store_at"] * 24 if block_moves.parts(view) else []
    often += ["store_in"] * 18 if block_moves.held_in_results(view) else []
    often += ["share"] * 200 if shape_moves.alike(view) else []
    often += ["by_target"] * 60 if shape_moves.in_order(view) else []
    often += ["fuse_dims", "permute_dims"] * 8 if shape_moves.deep(view) else []
    if draw(st.integers(0, 19)) == 19:
        return _anything(draw, view)
    name = draw(st.sampled_from([*MOVES, *_OFTEN, *often]))
    made = MOVES[name](draw, view)
    if made is None or isinstance(made, Step):
        return made
    while made and made[-1] is None:
        made = made[:-1]
    return Step(name, made)


_WILD: Final = (-1, 0, 1, 7, 1 << 20, 1 << 48, 1 << 62, -(1 << 62), 2.5, True)
_WORDS: Final = ("global", "shared", "fma_8xf32", "block.x", "thread.x", "", "n", "0")


def _anything(draw: Draw, view: View) -> Step:
    """Any primitive, of names that the function has and numbers that it may not."""
    names = [p.loop.var.name for p in view.loops] + [b.name for b in view.blocks]
    names += [b.name for b in (*view.temporaries, *view.func.buffers)]
    names += [axis.var.name for block in view.blocks for axis in block.axes]
    argument = (
        st.sampled_from(names or [""])
        | st.sampled_from(_WILD)
        | st.sampled_from(_WORDS)
        | st.none()
        | st.lists(st.sampled_from([*_WILD, None, *names]), max_size=3)
    )
    name = draw(st.sampled_from(list(MOVES)))
    args = draw(st.lists(argument, max_size=3))
    if names and draw(st.integers(0, 3)):
        args = [draw(st.sampled_from(names)), *args[:2]]
    return Step(name, tuple(args))

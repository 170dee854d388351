"""Steps that only matter together: each recipe goes on with what its last step made.

A recipe is a generator of steps. After each it is sent the function as it then is, and
the names that the step made; where a step is refused, the recipe ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from tensorlang_test_programs import block_moves, loop_moves
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.views import Place, View, pick

from tensorlang.ir.contents import allocations, free_vars
from tensorlang.ir.nodes import Block, Const, Load
from tensorlang.ir.visit import walk
from tensorlang.scheduling.analysis.tree import enclosing_loops, find_block
from tensorlang.scheduling.trace import Step

Recipe: TypeAlias = Generator[Step, tuple[View, Any], None]


def _step(name: str, *args: Any) -> Step:
    return Step(name, args)


def _factors(draw: Draw) -> Any:
    forms: list[Any] = [draw(st.integers(2, 5))]
    forms += [[None, forms[0]], [forms[0], None], [2, 8], [3, 16], [None, 2, 3]]
    return pick(draw, forms)


def fused_and_turned(draw: Draw, view: View) -> Recipe:
    """Two loops as one, which is cut elsewhere; and its parts exchanged."""
    pairs = loop_moves.pairs(view)
    mixed = [(a, b) for a, b in pairs if len(a.kinds | b.kinds) > 1]
    if not pairs:
        return
    outer, inner = pick(draw, [*mixed, *mixed, *pairs])
    _, fused = yield _step("fuse", outer.name, inner.name)
    view, parts = yield _step("split", fused, _factors(draw))
    yield _step("reorder", *draw(st.permutations(parts)))


def _annotation(draw: Draw, name: str) -> Step:
    kinds = ["parallel", "vectorize", "unroll", "block.x", "thread.x", "thread.y"]
    kind = pick(draw, kinds)
    return _step("bind", name, kind) if "." in kind else _step(kind, name)


def annotated_first(draw: Draw, view: View) -> Recipe:
    """A loop is annotated, and then changed, or what is around or inside of it."""
    if not view.loops:
        return
    place = pick(draw, view.loops)
    view, _ = yield _annotation(draw, place.name)
    near = [p for p in view.loops if place.loop.var in {x.var for x in p.nest}]
    near += [p for p in view.loops if p.loop.var == place.loop.var] * 2
    for _ in range(draw(st.integers(1, 2))):
        other: Place = pick(draw, near)
        made = [
            _step("split", other.name, _factors(draw)),
            _step("partition", other.name, pick(draw, [1, 2, place.loop.var.name])),
            _step("specialize", other.name, f"{place.loop.var.name} < 2"),
            *(_step("fuse", a.name, b.name) for a, b in loop_moves.pairs(view)),
            *(_step("reorder", b.name, a.name) for a, b in loop_moves.pairs(view)),
            _annotation(draw, other.name),
        ]
        view, _ = yield pick(draw, made)


def _copied(draw: Draw, view: View) -> tuple[Block, str, list[str]] | None:
    """A reader of something, what it reads, and the loops around it."""
    readers = [b for b in view.blocks if block_moves.loaded(b) and view.around(b)]
    if not readers:
        return None
    block = pick(draw, readers)
    return block, pick(draw, block_moves.loaded(block)), view.around(block)


def moved_out(draw: Draw, view: View) -> Recipe:
    """A copy under a loop, a loop around it annotated, the copy moved to another."""
    found = _copied(draw, view)
    if found is None:
        return
    block, buffer, loops = found
    at = pick(draw, loops)
    scope = pick(draw, ["global", "global", "register", "private", "shared"])
    view, (_, tile) = yield _step("cache_read", block.name, buffer, scope, at)
    view, _ = yield _annotation(draw, f"{block.name}/{pick(draw, loops)}")
    yield _step("store_at", tile, f"{block.name}/{pick(draw, loops)}")


def copied_twice(draw: Draw, view: View) -> Recipe:
    """Two copies of one buffer, or one copy, shared."""
    found = _copied(draw, view)
    if found is None:
        return
    block, buffer, loops = found
    at = pick(draw, [None, *loops])
    where = [] if at is None else [at]
    view, (_, one) = yield _step("cache_read", block.name, buffer, "global", *where)
    others = [b for b in view.blocks if buffer in block_moves.loaded(b)]
    if not others or draw(st.integers(0, 3)) == 3:
        yield _step("share", one, one)
        return
    other = pick(draw, others)
    near = where if at is None or at in view.around(other) else []
    _, (_, two) = yield _step("cache_read", other.name, buffer, "global", *near)
    yield _step("share", *pick(draw, [(one, two), (two, one)]))


def staged(draw: Draw, view: View) -> Recipe:
    """What a loop reads copied under it, and fetched ahead."""
    found = _copied(draw, view)
    if found is None:
        return
    block, buffer, loops = found
    at = pick(draw, loops)
    view, (_, _) = yield _step("cache_read", block.name, buffer, "global", at)
    if draw(st.booleans()):
        view, _ = yield _step("decompose_reduction", block.name, pick(draw, loops))
    name = f"{block.name}/{at}"
    ways = [_step("pipeline", name, draw(st.integers(2, 4)))]
    yield pick(draw, [*ways, _step("double_buffer", name)])


def factored(draw: Draw, view: View) -> Recipe:
    """A reduction's loop is cut, and one part told apart, and annotated."""
    found = block_moves.reductions(view)
    if not found:
        return
    block = pick(draw, found)
    folding = _folding(view, block)
    if not folding:
        return
    view, parts = yield _step(
        "split", f"{block.name}/{pick(draw, folding)}", _factors(draw)
    )
    part = pick(draw, parts)
    if draw(st.booleans()):
        yield _step("reorder", *draw(st.permutations(parts)))
    _, (made, _) = yield _step("rfactor", block.name, part, draw(st.integers(0, 1)))
    yield _annotation(draw, f"{made}/{part}")


def _folding(view: View, block: Block) -> list[str]:
    """The loops that drive reduction axes of a block."""
    around = enclosing_loops(find_block(view.func, block.name))
    return [
        loop.var.name
        for loop in around
        if any(
            a.kind == "reduction" and loop.var in free_vars(a.value) for a in block.axes
        )
    ]


def tensorized(draw: Draw, view: View) -> Recipe:
    """A product in tiles of any size, and its inner loops an instruction."""
    found = [b for b in view.blocks if _multiplies(b) and _folding(view, b)]
    if not found:
        return
    block = pick(draw, found)
    around = enclosing_loops(find_block(view.func, block.name))
    lanes = [p.var.name for p in around if _is_wide(p.extent)]
    if not lanes:
        return
    lane = pick(draw, lanes)
    bits = 64 if "f64" in {n.dtype.name for n in _loads(block)} else 32
    size = draw(st.sampled_from([4, 8, 4, 5] if bits == 64 else [8, 16, 8, 12]))
    starts = block in block_moves.reductions(view)
    view, (_, inner) = yield _step("split", f"{block.name}/{lane}", size)
    others = [name for name in view.around(block) if name != inner]
    if others:
        order = draw(st.permutations(others)) if draw(st.booleans()) else others
        view, _ = yield _step("reorder", *order, inner)
    if starts and draw(st.integers(0, 3)):
        first = view.around(block)[0]
        view, _ = yield _step("decompose_reduction", block.name, first)
    if draw(st.integers(0, 3)) == 3:
        outer = view.around(block)[0]
        view, _ = yield _step("partition", outer, draw(st.integers(1, 2)))
    yield _step("tensorize", f"{block.name}/{inner}", f"fma_{size}xf{bits}")


def _loads(block: Block) -> list[Load]:
    return [node for node in walk(block.body) if isinstance(node, Load)]


def _multiplies(block: Block) -> bool:
    return len(_loads(block)) > 1


def _is_wide(extent: Any) -> bool:
    return isinstance(extent, Const) and int(extent.value) >= 4


def tiled(draw: Draw, view: View) -> Recipe:
    """A block in tiles, its result kept near it, its producers and readers too."""
    blocks = [b for b in view.blocks if view.around(b) and block_moves.stored(b)]
    if not blocks:
        return
    block = pick(draw, blocks)
    loop = pick(draw, view.around(block))
    view, (outer, _) = yield _step(
        "split", f"{block.name}/{loop}", draw(st.integers(2, 4))
    )
    around = view.around(block)
    if draw(st.booleans()):
        order = [outer, *(name for name in around if name != outer)]
        view, _ = yield _step("reorder", *order)
    scope = pick(draw, ["global", "register", "shared", "private"])
    at = pick(draw, view.around(block))
    target = pick(draw, block_moves.stored(block))
    made = [Step("cache_write", (block.name, target, scope, at))]
    made += [Step("cache_write", made[0].args, {"accumulate": True})]
    for maker, user, _ in block_moves.producers(view):
        if user.name == block.name:
            made.append(_step("compute_at", maker.name, f"{user.name}/{at}"))
        if maker.name == block.name:
            made.append(_step("reverse_compute_at", user.name, f"{maker.name}/{at}"))
    view, _ = yield pick(draw, made)
    yield _annotation(draw, f"{block.name}/{pick(draw, view.around(block))}")


def on_threads(draw: Draw, view: View) -> Recipe:
    """Loops as blocks and threads, and a temporary in their memory."""
    if not view.loops:
        return
    place = pick(draw, view.loops)
    view, (outer, inner) = yield _step("split", place.name, draw(st.integers(2, 4)))
    view, _ = yield _step("bind", outer, "block.x")
    view, _ = yield _step("bind", inner, pick(draw, ["thread.x", "thread.y"]))
    held = list(allocations(view.func))
    if held:
        yield _step(
            "set_scope", pick(draw, held).name, pick(draw, ["shared", "register"])
        )


RECIPES: Final[tuple[Callable[[Draw, View], Recipe], ...]] = (
    fused_and_turned,
    annotated_first,
    annotated_first,
    moved_out,
    copied_twice,
    staged,
    factored,
    tensorized,
    tiled,
    on_threads,
)

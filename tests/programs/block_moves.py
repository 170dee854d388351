"""Random steps on blocks and buffers: the arguments of the primitive of that name."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any, Final

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.views import Arguments, View, pick, usually

from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.nodes import (
    BUFFER_SCOPES,
    Alloc,
    Axis,
    Block,
    Buffer,
    For,
    Load,
    Reduce,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.visit import holds, walk
from tensorlang.scheduling.analysis.tree import (
    enclosing_loops,
    find_block,
)
from tensorlang.scheduling.intrinsics.tensor import NAMES, tensor_intrinsic
from tensorlang.scheduling.trace import Step


def set_scope(draw: Draw, view: View) -> Arguments | None:
    if not view.temporaries:
        return None
    return pick(draw, view.temporaries).name, pick(draw, BUFFER_SCOPES)


def parts(view: View) -> list[tuple[str, str]]:
    """Temporaries with a loop around all of their uses, of one of their extents."""
    return [
        (buffer.name, place.name)
        for buffer in view.temporaries
        for place in view.loops
        if place.loop.extent in buffer.shape
        and view.uses[buffer] == place.uses[buffer] + 1  # its Alloc
    ]


def store_at(draw: Draw, view: View) -> Arguments | None:
    found = parts(view)
    return pick(draw, found) if found else None


def held_in_results(view: View) -> list[tuple[str, str]]:
    """Temporaries with a result of their shape that is made of them."""
    return [
        (buffer.name, result.name)
        for _, user, buffer in producers(view)
        for result in writes(user)
        if (result.shape, result.dtype) == (buffer.shape, buffer.dtype)
        and any(p.buffer == result and p.role == "out" for p in view.func.params)
    ]


def store_in(draw: Draw, view: View) -> Arguments | None:
    found = held_in_results(view)
    return pick(draw, found) if found else None


def hint(draw: Draw, view: View) -> Arguments | None:
    if not view.blocks:
        return None
    block = pick(draw, view.blocks)
    buffer = pick(draw, sorted(b.name for b in reads(block) | writes(block)))
    return block.name, buffer, pick(draw, ["nontemporal", "prefetch"])


def loaded(block: Block) -> list[str]:
    return sorted({n.buffer.name for n in walk(block) if isinstance(n, Load)})


def cache_read(draw: Draw, view: View) -> Arguments | None:
    readers = [block for block in view.blocks if loaded(block)]
    if not readers:
        return None
    block = pick(draw, readers)
    scope = pick(draw, ["global", "global", "shared", "register"])
    at = usually(draw, view.around(block), [None])
    return block.name, pick(draw, loaded(block)), scope, at


def stored(block: Block) -> list[str]:
    found = set()
    for node in walk(block.body):
        if isinstance(node, Store):
            found.add(node.buffer.name)
        if isinstance(node, Reduce):
            found.update(buffer.name for buffer in node.buffers)
    return sorted(found)


def _folded(axes: tuple[Axis, ...]) -> bool:
    return any(axis.kind == "reduction" for axis in axes)


def cache_write(draw: Draw, view: View) -> Arguments | Step | None:
    writers = [block for block in view.blocks if stored(block)]
    if not writers:
        return None
    block = pick(draw, writers)
    scope = pick(draw, ["global", "global", "shared", "register"])
    loops = view.around(block)
    outer = [
        place.loop.var.name
        for place in view.loops
        if place.loop.var.name in loops and "reduction" not in place.kinds
    ]
    args = (block.name, pick(draw, stored(block)), scope)
    if _folded(block.axes) and draw(st.integers(0, 2)) == 2:
        return Step("cache_write", (*args, pick(draw, loops)), {"accumulate": True})
    return (*args, usually(draw, [None, *outer], [None, *loops]))


def producers(view: View) -> list[tuple[Block, Block, Buffer]]:
    """Blocks that write a temporary, with the blocks that read it."""
    held = set(view.temporaries)
    return [
        (maker, user, buffer)
        for maker in view.blocks
        for user in view.blocks
        for buffer in sorted(writes(maker) & held, key=lambda b: b.name)
        if buffer in reads(user.body) and maker is not user
    ]


def compute_at(draw: Draw, view: View) -> Arguments | None:
    found = [f for f in producers(view) if view.around(f[1])]
    if not found:
        return None
    maker, user, _ = pick(draw, found)
    return maker.name, f"{user.name}/{pick(draw, view.around(user))}"


def reverse_compute_at(draw: Draw, view: View) -> Arguments | None:
    found = [f for f in producers(view) if view.around(f[0])]
    chosen = usually(draw, [f for f in found if _plainly(f[1], f[2])], found)
    if chosen is None:
        return None
    maker, user, _ = chosen
    return user.name, f"{maker.name}/{pick(draw, view.around(maker))}"


def _plainly(user: Block, buffer: Buffer) -> bool:
    """Whether a block reads a buffer at one place, by its spatial axes."""
    axes = {axis.var for axis in user.axes if axis.kind == "spatial"}
    loads = (n for n in walk(user.body) if isinstance(n, Load) and n.buffer == buffer)
    places = {load.indices for load in loads}
    return len(places) == 1 and all(set(indices) <= axes for indices in places)


def inline(draw: Draw, view: View) -> Step | Arguments | None:
    found = producers(view)
    plain = [f for f in found if any(isinstance(n, Store) for n in walk(f[0].body))]
    chosen = usually(draw, plain, found)
    if chosen is None:
        return None
    maker, user, _ = chosen
    if draw(st.integers(0, 2)) == 2:
        return Step("inline", (user.name,), {"reverse": True})
    return (maker.name,)


def reindex(draw: Draw, view: View) -> Arguments | None:
    users = [block for block in view.blocks if loaded(block) or stored(block)]
    if not users:
        return None
    block = pick(draw, users)
    return block.name, pick(draw, [*loaded(block), *stored(block)])


_LAYOUTS: Final = {
    1: ["lambda i: (i // 2, i % 2)", "lambda i: (i + 3,)", "lambda i: (i // 2,)"],
    2: [
        "lambda i, j: (j, i)",
        "lambda i, j: (i // 2, j, i % 2)",
        "lambda i, j: (j // 4, i, j % 4)",
        "lambda i, j: (i * 9 + j,)",
        "lambda i, j: (i + j,)",
    ],
    3: ["lambda i, j, l: (l, i, j)", "lambda i, j, l: (i, j // 2, l, j % 2)"],
    4: ["lambda i, j, l, m: (m, i, j, l)"],
}


def transform_layout(draw: Draw, view: View) -> Arguments | None:
    fitting = [b for b in view.temporaries if b.ndim in _LAYOUTS]
    if not fitting:
        return None
    buffer = pick(draw, fitting)
    return buffer.name, pick(draw, _LAYOUTS[buffer.ndim])


def reductions(view: View) -> list[Block]:
    """Blocks that start and fold a state of their own."""
    return [
        block
        for block in view.blocks
        if _folded(block.axes) and not _is_empty(block.init) and view.around(block)
    ]


def _is_empty(init: Stmt | None) -> bool:
    return init is not None and not list(writes(init))


def decompose_reduction(draw: Draw, view: View) -> Arguments | None:
    block = usually(draw, reductions(view), view.blocks)
    if block is None or not view.around(block):
        return None
    return block.name, pick(draw, view.around(block)[:2])


def decomposed(view: View) -> list[Block]:
    """Blocks that fold into a state which was set elsewhere."""
    return [
        block
        for block in view.blocks
        if block.init == Seq(()) and any(isinstance(n, Reduce) for n in walk(block))
    ]


def atomic(draw: Draw, view: View) -> Arguments | None:
    block = usually(draw, decomposed(view), view.blocks)
    return block and (block.name,)


def rfactor(draw: Draw, view: View) -> Arguments | None:
    found = reductions(view)
    if not found:
        return None
    block = pick(draw, found)
    around = enclosing_loops(find_block(view.func, block.name))
    folding = [
        loop.var.name
        for loop in around
        if any(
            a.kind == "reduction" and loop.var in free_vars(a.value) for a in block.axes
        )
    ]
    loop = usually(draw, folding, [loop.var.name for loop in around])
    return loop and (block.name, loop, draw(st.integers(0, 1)))


def pad(draw: Draw, view: View) -> Arguments | None:
    held = {buffer.name: buffer.ndim for buffer in view.temporaries}
    known = set(view.temporaries)
    names = [*held, *held]
    names += [b.name for b in view.blocks if (reads(b) | writes(b)) <= known]
    if not names:
        return None
    name = pick(draw, names)
    block = next((b for b in view.blocks if b.name == name), None)
    count = held[name] if name in held else len(block.axes) if block else 0
    multiples = st.lists(st.sampled_from([1, 2, 4]), min_size=count, max_size=count)
    return name, draw(multiples)


def tiles(view: View) -> list[tuple[str, str]]:
    """Loops around a block that run like those of an instruction's meaning."""
    loops = defaultdict(list)
    for place in view.loops:
        loops[_form(place.loop)].append(place.name)
    return [(loop, name) for name, form in _wanted() for loop in loops.get(form, ())]


@cache
def _wanted() -> list[tuple[str, Any]]:
    """The instructions, each with the form of its meaning."""
    return [(name, _form(tensor_intrinsic(name).meaning.body)) for name in NAMES]


def _form(stmt: Stmt) -> tuple[Any, ...]:
    """Extents of a nest, the types that it touches, and whether it folds."""
    used = frozenset(buffer.dtype for buffer in reads(stmt) | writes(stmt))
    return _extents(stmt), used, holds(stmt, Reduce)


def _extents(stmt: Stmt) -> tuple[Any, ...] | None:
    """The extents of perfectly nested loops around one block."""
    found: list[Any] = []
    while isinstance(stmt, For):
        found.append(stmt.extent)
        stmt = stmt.body
    return tuple(found) if isinstance(stmt, Block) else None


def tensorize(draw: Draw, view: View) -> Arguments | None:
    found = tiles(view)
    return pick(draw, found) if found else None


def staging(view: View) -> list[str]:
    """Loops that fill a temporary of their own, from outside of them, and use it."""
    return [
        place.name
        for place in view.loops
        if place.loop.kind == "serial" and _stages(place.loop)
    ]


def _stages(loop: For) -> bool:
    stmts = loop.body.stmts if isinstance(loop.body, Seq) else ()
    own = {stmt.buffer for stmt in stmts if isinstance(stmt, Alloc)}
    changed = writes(loop.body)
    fills = [s for s in stmts if writes(s) and writes(s) <= own]
    fetch = [s for s in fills if not reads(s) & changed]
    filled = {buffer for s in fetch for buffer in writes(s)}
    return any(reads(s) & filled for s in stmts if s not in fetch)


def double_buffer(draw: Draw, view: View) -> Arguments | None:
    loop = usually(draw, staging(view), [place.name for place in view.loops])
    return loop and (loop,)


def pipeline(draw: Draw, view: View) -> Arguments | None:
    given = double_buffer(draw, view)
    return given and (*given, draw(st.integers(2, 4)))

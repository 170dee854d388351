"""Annotations: how a loop runs, where a temporary lives, how memory is accessed."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any, Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import (
    BUFFER_SCOPES,
    HINTS,
    Buffer,
    For,
    Function,
    Load,
    Store,
)
from tensorlang.ir.visit import (
    allocations,
    free_vars,
    loops,
    reads,
    rebuild,
    replace_buffers,
    writes,
)
from tensorlang.scheduling.dependence import dependences
from tensorlang.scheduling.legality import legality
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.tree import (
    Path,
    alloc_of,
    block_of,
    constant,
    enclosing_loops,
    find_alloc,
    find_block,
    find_buffer,
    find_loop,
    loop_of,
    replace,
)

UNROLL_LIMIT: Final = 1024
LANE_LIMIT: Final = 1024
SHARING: Final = ("parallel", "bound")
OWN: Final = ("register", "private")
THREADS: Final = tuple(
    f"{scope}.{dim}" for scope in ("block", "thread") for dim in "xyz"
)


@legality("parallel iterations are independent")
def iterations_independent(loop: For, verb: str) -> str | None:
    """No iteration touches what another one writes."""
    for found in dependences([loop], loop.body):
        if found.loops:
            return (
                f"{verb}: iterations of loop {loop.var.name!r} are not independent: "
                f"{found.why}; choose a loop that drives spatial axes only, or rfactor"
            )
    return None


@legality("lanes are independent or fold")
def lanes_independent(loop: For) -> str | None:
    """No lane touches what another one writes, except to fold a commutative state."""
    for found in dependences([loop], loop.body):
        folds = found.reduction and loop.var not in found.place
        if found.loops and not folds:
            return (
                f"vectorize: lanes of loop {loop.var.name!r} are not independent: "
                f"{found.why}; choose a loop that drives spatial axes or a "
                "commutative reduction"
            )
    return None


def _private(buffer: Buffer, loop: For) -> None:
    """Threads do not share a temporary that each of them has for itself."""
    if buffer.scope not in OWN or buffer not in reads(loop) | writes(loop):
        return
    raise ScheduleError(
        f"{buffer.name} of scope {buffer.scope} stands outside of loop "
        f"{loop.var.name!r}, whose iterations run in different threads; "
        "allocate it inside (compute_at, cache_write with at=), or keep it global"
    )


@primitive
def parallel(func: Function, loop: str) -> Function:
    """Let the iterations of a loop run at once, shared out among threads.

    Args:
        func: The function.
        loop: The loop's name.

    Raises:
        ScheduleError: iterations depend on each other, or threads would share a
            register, or the loop is inside or around another parallel one.

    `parallel("i")`:

        for i in range(64):       ->    for i in parallel(64):
            ...                             ...
    """
    return _shared(func, loop, "parallel", "")


@primitive
def bind(func: Function, loop: str, thread: str) -> Function:
    """Let a loop be an index of an execution scope: `block.x`, `thread.y`, ...

    Args:
        func: The function.
        loop: The loop's name.
        thread: One of `THREADS`.

    Raises:
        ScheduleError: as `parallel`; or the index is unknown or bound around it.

    `bind("i", "block.x")`:

        for i in range(64):       ->    for i in bound(64, "block.x"):
            ...                             ...
    """
    if thread not in THREADS:
        raise ScheduleError(f"bind: {thread!r} is none of {', '.join(THREADS)}")
    return _shared(func, loop, "bound", thread)


def _shared(func: Function, name: str, kind: str, thread: str) -> Function:
    path = find_loop(func, name)
    loop = loop_of(path)
    verb = "bind" if thread else kind
    _plain(loop, verb)
    _not_nested(path, kind, thread)
    iterations_independent(loop, verb)
    inside = set(allocations(loop.body))
    for buffer in allocations(func):
        if buffer not in inside:
            _private(buffer, loop)
    return replace(path, with_fields(loop, kind=kind, thread=thread))


def _plain(loop: For, verb: str) -> None:
    if loop.kind != "serial":
        raise ScheduleError(
            f"{verb}: loop {loop.var.name!r} is {loop.kind} already; a loop is "
            "annotated once"
        )


def _not_nested(path: Path, kind: str, thread: str) -> None:
    """One team of threads runs one parallel loop; an index is bound once."""
    loop = loop_of(path)
    for other in (*enclosing_loops(path), *loops(loop.body)):
        if (other.kind, other.thread) == (kind, thread):
            raise ScheduleError(
                f"loop {loop.var.name!r} cannot be {thread or kind}: "
                f"loop {other.var.name!r} in the same nest is; fuse the two"
            )


@primitive
def vectorize(func: Function, loop: str) -> Function:
    """Let the iterations of a loop of constant extent run as lanes of vectors.

    Args:
        func: The function.
        loop: The loop's name. It may drive the axis of a commutative reduction: then
            the lanes are folded at its end.

    Raises:
        ScheduleError: the extent is not a constant up to `LANE_LIMIT`, lanes depend on
            each other, or a loop inside runs differently often from lane to lane.

    `vectorize("i_1")`:

        for i_1 in range(16):     ->    for i_1 in vectorized(16):
            ...                             ...
    """
    path = find_loop(func, loop)
    old = loop_of(path)
    _plain(old, "vectorize")
    _counted(old, "vectorize", LANE_LIMIT)
    _in_step(path)
    lanes_independent(old)
    return replace(path, with_fields(old, kind="vectorized"))


def _in_step(path: Path) -> None:
    """All lanes run the same loops, and a lane is not a vector itself."""
    loop = loop_of(path)
    for inner in loops(loop.body):
        if loop.var in free_vars(inner.extent):
            raise ScheduleError(
                f"vectorize: loop {inner.var.name!r} inside runs {inner.extent!r} "
                f"times, which differs between lanes of {loop.var.name!r}"
            )
    for other in (*enclosing_loops(path), *loops(loop.body)):
        if other.kind == "vectorized":
            raise ScheduleError(
                f"vectorize: loop {other.var.name!r} in the same nest as "
                f"{loop.var.name!r} is vectorized; fuse the two first"
            )


@primitive
def unroll(func: Function, loop: str) -> Function:
    """Write the iterations of a loop out, one after the other.

    Args:
        func: The function.
        loop: The loop's name.

    Raises:
        ScheduleError: the extent is not a constant up to `UNROLL_LIMIT`.

    `unroll("i_1")`:

        for i_1 in range(4):      ->    for i_1 in unrolled(4):
            ...                             ...
    """
    path = find_loop(func, loop)
    old = loop_of(path)
    _plain(old, "unroll")
    _counted(old, "unroll", UNROLL_LIMIT)
    return replace(path, with_fields(old, kind="unrolled"))


def _counted(loop: For, verb: str, limit: int) -> None:
    extent = constant(loop.extent)
    if extent is None or not 1 <= extent <= limit:
        raise ScheduleError(
            f"{verb}: loop {loop.var.name!r} has extent {loop.extent!r}, which is no "
            f"constant from 1 to {limit}; split it by a constant first"
        )


@primitive
def set_scope(func: Function, buffer: str, scope: str) -> Function:
    """Let a temporary live in another memory.

    Args:
        func: The function.
        buffer: The name of a temporary.
        scope: `global`, `shared`, `register` or `private`.

    Raises:
        ScheduleError: it is a parameter, the scope is unknown, or a register would be
            shared between threads.

    `set_scope("t", "register")`:

        t = alloc(f32[16])        ->    t = alloc(f32[16], scope="register")
    """
    if scope not in BUFFER_SCOPES:
        raise ScheduleError(f"set_scope: {scope!r} is none of {BUFFER_SCOPES}")
    path = find_alloc(func, buffer)
    old = alloc_of(path).buffer
    new = with_fields(old, scope=scope)
    for loop in loops(path[-2]):
        if loop.kind in SHARING:
            _private(new, replace_buffers(loop, {old: new}))
    return replace_buffers(func, {old: new})


@primitive
def hint(func: Function, block: str, buffer: str, *hints: str) -> Function:
    """Add hints to a block's loads and stores of a buffer.

    Args:
        func: The function.
        block: The block's name.
        buffer: The buffer's name.
        hints: `nontemporal` (past the caches), `prefetch`, or `aligned`, which is a
            promise and only for temporaries, whose alignment the generator knows.

    Raises:
        ScheduleError: a hint is unknown or cannot be promised, or the block does not
            touch the buffer.

    `hint("y", "y", "nontemporal")`:

        y[vi] = x[vi]             ->    store(y[vi], x[vi], hints=("nontemporal",))
    """
    path = find_block(func, block)
    target = find_buffer(func, buffer)
    if not hints or not set(hints) <= set(HINTS):
        raise ScheduleError(f"hint: hints are {', '.join(HINTS)}, not {hints}")
    if "aligned" in hints and target in func.buffers:
        raise ScheduleError(
            f"hint: {buffer} is the caller's, whose alignment is not known; cache it "
            "in a temporary to have it aligned"
        )

    def visit(node: Any) -> Any:
        changed = rebuild(node, visit)
        if isinstance(node, (Load, Store)) and node.buffer == target:
            return with_fields(changed, hints=_joined(node.hints, hints))
        return changed

    hinted = visit(block_of(path))
    if hinted == block_of(path) and target not in reads(hinted) | writes(hinted):
        raise ScheduleError(f"hint: block {block!r} does not touch {buffer}")
    return replace(path, hinted)


def _joined(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in HINTS if name in old or name in new)

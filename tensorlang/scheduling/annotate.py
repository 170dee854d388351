"""Annotations of loops: `parallel`, `bind`, `vectorize`, `unroll`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations, free_vars, loops
from tensorlang.ir.nodes import (
    For,
    Function,
    Node,
    Stmt,
)
from tensorlang.ir.visit import children
from tensorlang.scheduling.dependence import dependences
from tensorlang.scheduling.legality import legality
from tensorlang.scheduling.memory import THREAD, outside_of_threads, threads_apart
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.tree import (
    Path,
    constant,
    enclosing_loops,
    find_loop,
    loop_of,
    replace,
)

UNROLL_LIMIT: Final = 1024
WRITTEN_OUT_LIMIT: Final = 1 << 16  # by unrolled loops in one another
LANE_LIMIT: Final = 1024
THREADS: Final = tuple(
    f"{scope}.{dim}" for scope in ("block", "thread") for dim in "xyz"
)


@legality("parallel iterations are independent")
def iterations_independent(path: Path, verb: str, thread: str = "") -> str | None:
    """No iteration touches what another one writes, but threads that fold one state."""
    loop, threads = loop_of(path), thread.startswith(THREAD)
    for found in dependences(path, [loop], threads=threads):
        folds = threads and found.reduction and loop.var not in found.place
        if found.loops and not (folds and _counts_threads(loop)):
            return (
                f"{verb}: iterations of loop {loop.var.name!r} are not independent: "
                f"{found.why}; choose a loop that drives spatial axes only, or rfactor"
            )
    return None


def _counts_threads(loop: For) -> bool:
    """Whether as many threads take part in a fold as are known."""
    extent = constant(loop.extent)
    return extent is not None and extent >= 1


@legality("lanes are independent or fold")
def lanes_independent(path: Path) -> str | None:
    """No lane touches what another one writes, except to fold a commutative state."""
    loop = loop_of(path)
    for found in dependences(path, [loop]):
        folds = found.reduction and loop.var not in found.place
        if found.loops and not folds:
            return (
                f"vectorize: lanes of loop {loop.var.name!r} are not independent: "
                f"{found.why}; choose a loop that drives spatial axes or a "
                "commutative reduction"
            )
    return None


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

    The threads of a block may fold one state of a commutative reduction together: each
    folds its own part, and then these are folded in an order that depends on the
    number of threads alone.

    Args:
        func: The function.
        loop: The loop's name. Bound to threads and of constant extent, it may drive the
            axis of a commutative reduction.
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
    iterations_independent(path, verb, thread)
    inside = set(allocations(loop.body))
    made = with_fields(loop, kind=kind, thread=thread)
    for buffer in inside:
        outside_of_threads(buffer, [made])
    for buffer in allocations(func):
        if buffer not in inside:
            threads_apart(buffer, loop)
    return replace(path, made)


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
    lanes_independent(path)
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
        ScheduleError: the extent is not a constant up to `UNROLL_LIMIT`, or this loop
            and unrolled ones around it and inside exceed `WRITTEN_OUT_LIMIT`.

    `unroll("i_1")`:

        for i_1 in range(4):      ->    for i_1 in unrolled(4):
            ...                             ...
    """
    path = find_loop(func, loop)
    old = loop_of(path)
    _plain(old, "unroll")
    _counted(old, "unroll", UNROLL_LIMIT)
    _not_too_long(path)
    return replace(path, with_fields(old, kind="unrolled"))


def _not_too_long(path: Path) -> None:
    """Refuse nested loops that would be written out to more than the limit."""
    loop = loop_of(path)
    total = prod(_written_out(other) for other in (*enclosing_loops(path), loop))
    total *= _longest(loop.body)
    total *= constant(loop.extent) or 1
    if total > WRITTEN_OUT_LIMIT:
        raise ScheduleError(
            f"unroll: loop {loop.var.name!r} and the unrolled loops around it and "
            f"inside have {total} iterations; at most {WRITTEN_OUT_LIMIT} are written "
            "out"
        )


def _written_out(loop: For) -> int:
    return (constant(loop.extent) or 1) if loop.kind == "unrolled" else 1


def _longest(stmt: Node) -> int:
    """The most iterations of nested loops at or below that are unrolled."""
    inner = max(map(_longest, _statements(stmt)), default=1)
    return inner * (_written_out(stmt) if isinstance(stmt, For) else 1)


def _statements(node: Node) -> Iterator[Stmt]:
    return (child for child in children(node) if isinstance(child, Stmt))


def _counted(loop: For, verb: str, limit: int) -> None:
    extent = constant(loop.extent)
    if extent is None or not 1 <= extent <= limit:
        raise ScheduleError(
            f"{verb}: loop {loop.var.name!r} has extent {loop.extent!r}, which is no "
            f"constant from 1 to {limit}; split it by a constant first"
        )

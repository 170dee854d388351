"""Annotations of loops: `parallel`, `bind`, `vectorize`, `unroll`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations, free_vars, loops
from tensorlang.ir.nodes import For, Function, Node, Stmt
from tensorlang.ir.visit import children
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.dependence import dependences
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.memory import (
    THREAD,
    need_thread_private,
    outside_of_threads,
)

UNROLL_LIMIT: Final = 1024
EXPANSION_LIMIT: Final = 1 << 16  # total iterations of nested unrolled loops
LANE_LIMIT: Final = 1024
THREADS: Final = tuple(
    f"{scope}.{dim}" for scope in ("block", "thread") for dim in "xyz"
)


@legality("parallel iterations are independent")
def iterations_independent(path: tree.Path, verb: str, thread: str = "") -> str | None:
    """Iterations share no written element, unless threads reduce one state together."""
    loop, threads = tree.loop_of(path), thread.startswith(THREAD)
    for found in dependences(path, [loop], threads=threads):
        folds = threads and found.reduction and loop.var not in found.place
        if found.loops and not (folds and _counts_threads(loop)):
            return (
                f"{verb}: iterations of loop {loop.var.name!r} are not independent: "
                f"{found.why}; choose a loop that drives spatial axes only, or rfactor"
            )
    return None


def _counts_threads(loop: For) -> bool:
    """Whether the number of threads in a cooperative reduction is known."""
    extent = tree.constant(loop.extent)
    return extent is not None and extent >= 1


@legality("lanes are independent or reduce")
def lanes_independent(path: tree.Path) -> str | None:
    """Lanes share no written element, unless they reduce a commutative state."""
    loop = tree.loop_of(path)
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
    """Run the iterations of a loop in parallel, distributed over threads.

    Args:
        loop: The loop's name.

    Raises:
        ScheduleError: iterations depend on each other, or threads would share a
            register, or the loop is inside or around another parallel one.

    `parallel("i")`:

        for i in range(64):       ->    for i in parallel(64):
            ...                             ...
    """
    return _annotated(func, loop, "parallel", "")


@primitive
def bind(func: Function, loop: str, thread: str) -> Function:
    """Bind a loop to an index of an execution scope: `block.x`, `thread.y`, ...

    The threads of a block may cooperate in a commutative reduction: each accumulates a
    partial result, and these are combined in an order that depends on the number of
    threads alone.

    Args:
        loop: The loop's name. Bound to threads and of constant extent, it may drive a
            commutative reduction axis.
        thread: One of `THREADS`.

    Raises:
        ScheduleError: as `parallel`; or the index is unknown or bound around it.

    `bind("i", "block.x")`:

        for i in range(64):       ->    for i in bound(64, "block.x"):
            ...                             ...
    """
    if thread not in THREADS:
        raise ScheduleError(f"bind: {thread!r} is none of {', '.join(THREADS)}")
    return _annotated(func, loop, "bound", thread)


def _annotated(func: Function, name: str, kind: str, thread: str) -> Function:
    path = tree.find_loop(func, name)
    loop = tree.loop_of(path)
    verb = "bind" if thread else kind
    _need_serial(loop, verb)
    _not_nested(path, kind, thread)
    iterations_independent(path, verb, thread)
    inside = set(allocations(loop.body))
    made = with_fields(loop, kind=kind, thread=thread)
    for buffer in inside:
        outside_of_threads(buffer, [made])
    for buffer in allocations(func):
        if buffer not in inside:
            need_thread_private(buffer, loop)
    return tree.replace(path, made)


def _need_serial(loop: For, verb: str) -> None:
    if loop.kind != "serial":
        raise ScheduleError(
            f"{verb}: loop {loop.var.name!r} is {loop.kind} already; a loop is "
            "annotated once"
        )


def _not_nested(path: tree.Path, kind: str, thread: str) -> None:
    """A nest has one parallel loop at most, and binds each thread index once."""
    loop = tree.loop_of(path)
    for other in (*tree.enclosing_loops(path), *loops(loop.body)):
        if (other.kind, other.thread) == (kind, thread):
            raise ScheduleError(
                f"loop {loop.var.name!r} cannot be {thread or kind}: "
                f"loop {other.var.name!r} in the same nest is; fuse the two"
            )


@primitive
def vectorize(func: Function, loop: str) -> Function:
    """Run the iterations of a loop of constant extent as vector lanes.

    Args:
        loop: The loop's name. It may drive a commutative reduction axis: the lanes are
            then reduced at its end.

    Raises:
        ScheduleError: the extent is not a constant up to `LANE_LIMIT`, lanes depend on
            each other, or the trip count of an inner loop differs between lanes.

    `vectorize("i_1")`:

        for i_1 in range(16):     ->    for i_1 in vectorized(16):
            ...                             ...
    """
    path = tree.find_loop(func, loop)
    old = tree.loop_of(path)
    _need_serial(old, "vectorize")
    _need_constant_extent(old, "vectorize", LANE_LIMIT)
    _need_uniform_trip_counts(path)
    lanes_independent(path)
    return tree.replace(path, with_fields(old, kind="vectorized"))


def _need_uniform_trip_counts(path: tree.Path) -> None:
    """All lanes have the same trip counts, and vectorized loops do not nest."""
    loop = tree.loop_of(path)
    for inner in loops(loop.body):
        if loop.var in free_vars(inner.extent):
            raise ScheduleError(
                f"vectorize: loop {inner.var.name!r} inside runs {inner.extent!r} "
                f"times, which differs between lanes of {loop.var.name!r}"
            )
    for other in (*tree.enclosing_loops(path), *loops(loop.body)):
        if other.kind == "vectorized":
            raise ScheduleError(
                f"vectorize: loop {other.var.name!r} in the same nest as "
                f"{loop.var.name!r} is vectorized; fuse the two first"
            )


@primitive
def unroll(func: Function, loop: str) -> Function:
    """Fully unroll a loop.

    Args:
        loop: The loop's name.

    Raises:
        ScheduleError: the extent is not a constant up to `UNROLL_LIMIT`, or this loop
            and unrolled ones around it and inside exceed `EXPANSION_LIMIT`.

    `unroll("i_1")`:

        for i_1 in range(4):      ->    for i_1 in unrolled(4):
            ...                             ...
    """
    path = tree.find_loop(func, loop)
    old = tree.loop_of(path)
    _need_serial(old, "unroll")
    _need_constant_extent(old, "unroll", UNROLL_LIMIT)
    _need_short_expansion(path)
    return tree.replace(path, with_fields(old, kind="unrolled"))


def _need_short_expansion(path: tree.Path) -> None:
    """Refuse nested unrolling beyond the limit on total iterations."""
    loop = tree.loop_of(path)
    total = prod(
        _unrolled_extent(other) for other in (*tree.enclosing_loops(path), loop)
    )
    total *= _unrolled_iterations(loop.body)
    total *= tree.constant(loop.extent) or 1
    if total > EXPANSION_LIMIT:
        raise ScheduleError(
            f"unroll: loop {loop.var.name!r} and the unrolled loops around it and "
            f"inside have {total} iterations; at most {EXPANSION_LIMIT} are unrolled"
        )


def _unrolled_extent(loop: For) -> int:
    return (tree.constant(loop.extent) or 1) if loop.kind == "unrolled" else 1


def _unrolled_iterations(stmt: Node) -> int:
    """The largest total of nested unrolled iterations at or below a statement."""
    inner = max(map(_unrolled_iterations, _statements(stmt)), default=1)
    return inner * (_unrolled_extent(stmt) if isinstance(stmt, For) else 1)


def _statements(node: Node) -> Iterator[Stmt]:
    return (child for child in children(node) if isinstance(child, Stmt))


def _need_constant_extent(loop: For, verb: str, limit: int) -> None:
    extent = tree.constant(loop.extent)
    if extent is None or not 1 <= extent <= limit:
        raise ScheduleError(
            f"{verb}: loop {loop.var.name!r} has extent {loop.extent!r}, which is no "
            f"constant from 1 to {limit}; split it by a constant first"
        )

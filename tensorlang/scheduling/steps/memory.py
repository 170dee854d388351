"""`set_scope` and `hint`: the memory of a temporary, and hints on accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import Access, change_accesses
from tensorlang.ir.contents import loops, reads, writes
from tensorlang.ir.visit import replace_buffers
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.primitives import primitive

SHARING: Final = ("parallel", "bound")
THREAD: Final = "thread."
OWN: Final = ("register", "private")
_SETTABLE: Final = (
    "nontemporal",
    "prefetch",
)  # alignment hints come from code generation


@legality("threads share no temporary of one thread")
def outside_of_threads(buffer: ir.Buffer, around: Sequence[ir.For]) -> str | None:
    """A temporary allocated per thread is not in shared memory."""
    for loop in around:
        if buffer.scope == "shared" and loop.thread.startswith(THREAD):
            return (
                f"shared {buffer.name} belongs to one {loop.thread}, as it stands "
                f"in loop {loop.var.name!r}; allocate it outside to share it"
            )
    return None


def need_thread_private(buffer: ir.Buffer, loop: ir.For) -> None:
    """Refuse a loop whose threads would share thread-private memory.

    Raises:
        ScheduleError: the buffer is in registers, and used in the loop.
    """
    if buffer.scope not in OWN or buffer not in reads(loop) | writes(loop):
        return
    raise ScheduleError(
        f"{buffer.name} of scope {buffer.scope} is outside of loop "
        f"{loop.var.name!r}, whose iterations run in different threads; "
        "allocate it inside (compute_at, cache_write with at=), or keep it global"
    )


def _need_constant_size(buffer: ir.Buffer) -> None:
    """Refuse registers and shared memory of dynamic size."""
    varies = not all(isinstance(extent, ir.Const) for extent in buffer.shape)
    if varies and buffer.scope in ("register", "shared"):
        raise ScheduleError(
            f"set_scope: the size of {buffer.name} varies, so it cannot be in "
            f"{buffer.scope!r} memory; use a part of constant size (compute_at)"
        )


@primitive
def set_scope(func: ir.Function, buffer: str, scope: str) -> ir.Function:
    """Place a temporary in another memory.

    Args:
        buffer: The name of a temporary.
        scope: `global`, `shared`, `register` or `private`.

    Raises:
        ScheduleError: it is a parameter, the scope is unknown, or a register would be
            shared between threads.

    `set_scope("t", "register")`:

        t = alloc(f32[16])        ->    t = alloc(f32[16], scope="register")
    """
    if scope not in ir.BUFFER_SCOPES:
        raise ScheduleError(f"set_scope: {scope!r} is none of {ir.BUFFER_SCOPES}")
    path = tree.find_alloc(func, buffer)
    old = tree.alloc_of(path).buffer
    new = with_fields(old, scope=scope)
    _need_constant_size(new)
    outside_of_threads(new, tree.enclosing_loops(path))
    for loop in loops(path[-2]):
        if loop.kind in SHARING:
            need_thread_private(new, replace_buffers(loop, {old: new}))
    return replace_buffers(func, {old: new})


@primitive
def hint(func: ir.Function, block: str, buffer: str, *hints: str) -> ir.Function:
    """Add hints to a block's loads and stores of a buffer.

    Args:
        block: The block's name.
        buffer: The buffer's name.
        hints: `nontemporal` (bypassing the caches), `prefetch`.

    Raises:
        ScheduleError: a hint is none of these, or the block does not touch the buffer.

    `hint("y", "y", "nontemporal")`:

        y[vi] = x[vi]             ->    store(y[vi], x[vi], hints=("nontemporal",))
    """
    path = tree.find_block(func, block)
    target = tree.find_buffer(func, buffer)
    if not hints or not set(hints) <= set(_SETTABLE):
        raise ScheduleError(f"hint: hints are {', '.join(_SETTABLE)}, not {hints}")

    def change(access: Access) -> Access:
        if isinstance(access, (ir.Load, ir.Store)) and access.buffer == target:
            return with_fields(access, hints=_joined(access.hints, hints))
        return access

    hinted = change_accesses(tree.block_of(path), change)
    if hinted == tree.block_of(path) and target not in reads(hinted) | writes(hinted):
        raise ScheduleError(f"hint: block {block!r} does not touch {buffer}")
    return tree.replace(path, hinted)


def _joined(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in ir.HINTS if name in old or name in new)

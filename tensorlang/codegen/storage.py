"""Placement of flattened temporaries: on a thread's stack or in the workspace."""

from __future__ import annotations

from typing import Final

from tensorlang.ir.nodes import Buffer, Const, as_expr

STACK_BYTES: Final = 64 << 10


def on_stack(buffer: Buffer) -> bool:
    """Whether a temporary is thread-private, and small and constant in size."""
    extent = buffer.shape[0] if buffer.shape else as_expr(1)
    if buffer.scope not in ("register", "private") or not isinstance(extent, Const):
        return False
    return int(extent.value) * buffer.dtype.bytes <= STACK_BYTES

"""Fuse zero padding and dilation of images into the blocks that gather them.

    padded[b, c, i, j] = select(<inside>, x[b, c, i - 1, j - 1], 0.0)
    x_sums[p, r] = padded[<pixel p, step r>]

    x_sums[p, r] = select(<inside>, x[<pixel p, step r>], 0.0)

Padded images are thus never materialized and need no launch of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang.ir.contents import blocks, reads, writes
from tensorlang.ir.nodes import Buffer, Const, Let, Load, Select, Seq, Store
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.staging import gathered
from tensorlang.schedules.stages import INJECTIVE, Stage, kind_of
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block


def fuse_padding(s: Schedule, copies: Iterable[str]) -> None:
    """Let gathering blocks read the original images instead of padded ones."""
    for copy in copies:
        source = gathered(block_of(find_block(s.function, copy))).buffer
        maker = padding_stage(s, source)
        if maker is not None and _readers(s, source) == {copy}:
            s.attempt(s.inline, maker.name)


def padding_stage(s: Schedule, buffer: Buffer) -> Stage | None:
    """The stage that makes a buffer by zero-padding what it reads."""
    makers = [b.name for b in blocks(s.function) if buffer in writes(b.body)]
    stage = stage_named(s, makers[0]) if len(makers) == 1 else None
    return stage if stage is not None and _pads(stage) else None


def _pads(stage: Stage) -> bool:
    body = stage.block.body
    *before, last = body.stmts if isinstance(body, Seq) else (body,)
    if kind_of(stage) != INJECTIVE or not all(isinstance(x, Let) for x in before):
        return False
    value = last.value if isinstance(last, Store) else None
    return (
        isinstance(value, Select)
        and isinstance(value.a, Load)
        and simplify(value.b) == Const(0, value.dtype)
    )


def _readers(s: Schedule, buffer: Buffer) -> set[str]:
    return {b.name for b in blocks(s.function) if buffer in reads(b)}

"""Zeros around images, and between their pixels: made where these are gathered.

    padded[b, c, i, j] = select(<inside>, x[b, c, i - 1, j - 1], 0.0)
    x_sums[p, r] = padded[<pixel p, step r>]

    x_sums[p, r] = select(<inside>, x[<pixel p, step r>], 0.0)

So padded images are never in memory, and take no launch of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang.ir.contents import blocks, reads, writes
from tensorlang.ir.nodes import Buffer, Const, Let, Load, Select, Seq, Store
from tensorlang.ir.simplify import simplify
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.staging import gathered
from tensorlang.schedules.stages import INJECTIVE, Stage, kind_of
from tensorlang.schedules.tiling import attempt
from tensorlang.scheduling import Schedule


def gathered_with_edges(s: Schedule, copies: Iterable[str]) -> None:
    """Let blocks that gather read images themselves, not those with zeros around."""
    for copy in copies:
        block = next(b for b in blocks(s.function) if b.name == copy)
        source = gathered(block).buffer
        maker = framing(s, source)
        if maker is not None and _readers(s, source) == {copy}:
            attempt(s, s.inline, maker.name)


def framing(s: Schedule, buffer: Buffer) -> Stage | None:
    """The stage that makes a buffer by putting zeros around what it reads."""
    makers = [b.name for b in blocks(s.function) if buffer in writes(b.body)]
    stage = stage_named(s, makers[0]) if len(makers) == 1 else None
    return stage if stage is not None and _frames(stage) else None


def _frames(stage: Stage) -> bool:
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

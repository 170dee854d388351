"""Running sums on many threads: `RowScan` of the rows of an array."""

from __future__ import annotations

from typing import Final

from tensorlang.ir.collectives import WARP
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import Buffer, Store
from tensorlang.ops.block_scans import BlockScan
from tensorlang.ops.math.scan_definitions import result_type, summed_in
from tensorlang.ops.row_scans import RowScan

CHUNK: Final = 16  # elements of a thread
CHUNKS: Final = 256  # of a part, a thread each


def cumsum(x: Tensor, *, long: bool, reverse: bool) -> Tensor:
    """As `scan_definitions.cumsum`, of rows `[m, n]`, by lanes that shuffle."""
    del long
    return _cumsum(x, reverse=reverse, shuffles=True)


def cumsum_through_memory(x: Tensor, *, long: bool, reverse: bool) -> Tensor:
    """The same, to the bit, by lanes that exchange through the block's memory."""
    del long
    return _cumsum(x, reverse=reverse, shuffles=False)


def _cumsum(x: Tensor, *, reverse: bool, shuffles: bool) -> Tensor:
    y = Buffer("y", result_type(x.dtype), x.shape)
    rows = RowScan(
        BlockScan(max(CHUNKS, WARP), shuffles),
        CHUNK,
        x.shape[1],
        lambda r, at: x[r, at],
        lambda r, at, value: Store(y, (r, at), value),
        (x.dtype, summed_in(x.dtype), y.dtype),
        reverse,
    )
    nest, held = rows.everywhere(x.shape[0])
    return Tensor(y, Stage(nest, (*held, y), (x,)))

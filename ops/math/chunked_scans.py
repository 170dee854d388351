"""Cumulative sums on devices: a `RowScan` over the rows of an array."""

from __future__ import annotations

from typing import Final

from tensorlang import ir
from tensorlang.ir.collectives import WARP
from tensorlang.ops.math.block_scans import BlockScan
from tensorlang.ops.math.row_scans import RowScan
from tensorlang.ops.math.scan_definitions import result_type, summed_in

CHUNK: Final = 16  # elements per thread
CHUNKS: Final = 256  # per part, one per thread


def cumsum(
    given: ir.rows.Rows, made: ir.DType | None, shuffles: bool, *, reverse: bool
) -> ir.Tensor:
    """`scan_definitions.cumsum` of rows `[m, n]`, scanned by the threads of a block.

    Lanes exchange values by shuffles or through shared memory, with identical bits.
    """
    x = given.array
    y = ir.Buffer("y", made or result_type(x.dtype), x.buffer.shape)
    rows = RowScan(
        BlockScan(max(CHUNKS, WARP), shuffles),
        CHUNK,
        given.length,
        lambda r, at: x[r, at],
        lambda r, at, value: ir.Store(y, (r, at), value),
        (x.dtype, summed_in(x.dtype), y.dtype),
        reverse,
    )
    nest, held = rows.everywhere(x.buffer.shape[0])
    return ir.Tensor(y, ir.Stage(nest, (*held, y), (x,)))

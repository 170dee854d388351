"""The choices of a contraction: register tile, blocks, lanes along the reduction."""

from __future__ import annotations

from typing import Final

from tensorlang.frozen import frozen

ROWS: Final = tuple(range(1, 15))
VECTORS: Final = (1, 2, 3, 4)
SIDES: Final = (1, 2, 3, 4, 5, 6, 8)  # rows and columns of a tile of dot products
ORDERS: Final = ("nkm", "nmk", "mkn", "mnk", "knm", "kmn")
STRIPS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
TILES: Final = STRIPS
DEPTHS: Final = (32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 0)
PACKING: Final = ("none", "inside", "before")
OF_BLOCKS: Final = (  # names of knobs, in the order of the fields of `Blocks`
    "blocks",
    "block_strips",
    "block_tiles",
    "block_depth",
    "packing",
    "rows_packed",
    "strips_first",
)
USUAL_SIZE: Final = 128  # the size of an open dimension
SMALL: Final = (4, 1)  # rows of the tiles for a remainder of unknown length


@frozen
class Tile:
    """Sizes of a register tile, and whether its nest is parallel."""

    rows: int
    vectors: int
    lanes: int
    parallel: bool


@frozen
class Blocks:
    """Blocks of a contraction."""

    order: str  # order of the loops over blocks of columns, rows and depth
    strips: int = 1  # strips per block, each as wide as a register tile
    tiles: int = 1  # register tiles per block of rows
    depth: int = 0  # reduction steps per block; 0 for all
    # whether the columns' operand is packed: not at all, each block inside of the
    # loops, or all of it before them
    packing: str = "inside"
    rows_packed: bool = False  # whether each block of the rows' operand is packed
    # whether the loop over strips is outside the loop over tiles
    strips_first: bool = True

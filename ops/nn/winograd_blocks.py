"""How Winograd's convolution cuts images: into blocks of rows of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW, Transforms

LANES: Final = 16
STRIP: Final = 2 * LANES  # outputs that are computed together
_TILES_OF_BLOCK: Final = 14  # at least, where there are as many: a register tile's
_BLOCKS: Final = 2  # of an image, at least: one image has work for two threads


@dataclass(frozen=True, slots=True)
class Blocks:
    """How images are cut.

    Attributes:
        transforms: The matrices.
        inputs: Channels.
        outputs: Output channels.
        size: Extents of the image.
        low: Padding before it.
        results: Extents of the result.
        rows: Rows of tiles of a block.
    """

    transforms: Transforms
    inputs: int
    outputs: int
    size: tuple[int, ...]
    low: tuple[int, ...]
    results: tuple[int, ...]
    rows: int

    @property
    def count(self) -> int:
        """Blocks of an image."""
        return -(-self.results[0] // self.lines)

    @property
    def lines(self) -> int:
        """Lines of results of a block."""
        return self.rows * self.transforms.outputs

    @property
    def across(self) -> int:
        """Tiles in a row."""
        return -(-self.results[1] // self.transforms.outputs)

    @property
    def tiles(self) -> int:
        """Tiles of a block."""
        return self.rows * self.across

    @property
    def pitch(self) -> int:
        """Elements from line to line of a block's image: whole half vectors."""
        needed = self.across * self.transforms.outputs + WINDOW - 1
        return -(-needed // 8) * 8

    @property
    def height(self) -> int:
        """Lines of a block's image."""
        return self.lines + WINDOW - 1

    @property
    def line(self) -> int:
        """Results from line to line of a block, those beyond the image included."""
        return self.across * self.transforms.outputs


def blocks(
    m: int,
    inputs: int,
    outputs: int,
    size: tuple[int, ...],
    padding: tuple[int, ...],
) -> Blocks:
    """How a convolution of these sizes by F(m, 3) is cut."""
    low, high = padding[::2], padding[1::2]
    results = tuple(
        n + a + b - WINDOW + 1 for n, a, b in zip(size, low, high, strict=True)
    )
    high_tiles, across = (-(-n // m) for n in results)
    rows = min(-(-_TILES_OF_BLOCK // across), -(-high_tiles // _BLOCKS))
    rows = -(-high_tiles // -(-high_tiles // rows))
    return Blocks(TRANSFORMS[m], inputs, outputs, size, low, results, rows)


def transformed(
    outputs: int, inputs: int, transforms: Transforms
) -> tuple[int, int, int, int]:
    """The shape of transformed weights.

    One input more than there are, which nothing reads: else the vectors that are
    written together, one a point, would take each other's places in the first cache.
    """
    strips, groups = -(-outputs // STRIP), -(-inputs // LANES)
    return strips, transforms.points**2, groups * LANES + 1, STRIP

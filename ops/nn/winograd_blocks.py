"""Blocking of Winograd's convolution: images are cut into blocks of rows of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS, WINDOW, Transforms

if TYPE_CHECKING:
    from tensorlang.ops.nn.convolution_problem import Problem

LANES: Final = 16
STRIP: Final = 2 * LANES  # outputs computed together
_TILES_OF_BLOCK: Final = 14  # minimum, if there are as many: a register tile
_BLOCKS: Final = 2  # per image, minimum: work for two threads


@frozen
class Blocks:
    """The blocking of images."""

    transforms: Transforms  # transform matrices
    inputs: int  # input channels
    outputs: int  # output channels
    size: tuple[int, ...]  # extents of the image
    low: tuple[int, ...]  # padding before it
    results: tuple[int, ...]  # extents of the result
    rows: int  # rows of tiles per block

    @property
    def count(self) -> int:
        """Blocks per image."""
        return -(-self.results[0] // self.lines)

    @property
    def lines(self) -> int:
        """Lines of results per block."""
        return self.rows * self.transforms.outputs

    @property
    def across(self) -> int:
        """Tiles per row."""
        return -(-self.results[1] // self.transforms.outputs)

    @property
    def tiles(self) -> int:
        """Tiles per block."""
        return self.rows * self.across

    @property
    def pitch(self) -> int:
        """Line pitch of a block's image, in elements: a multiple of half a vector."""
        needed = self.across * self.transforms.outputs + WINDOW - 1
        return -(-needed // 8) * 8

    @property
    def height(self) -> int:
        """Lines of a block's image, with the halo."""
        return self.lines + WINDOW - 1

    @property
    def line(self) -> int:
        """Line pitch of a block's results, including those beyond the image."""
        return self.across * self.transforms.outputs


def blocks(m: int, p: Problem) -> Blocks:
    """The blocking of a convolution by F(m, 3)."""
    high_tiles, across = (-(-n // m) for n in p.result)
    rows = min(-(-_TILES_OF_BLOCK // across), -(-high_tiles // _BLOCKS))
    rows = -(-high_tiles // -(-high_tiles // rows))
    low = p.padding[::2]
    return Blocks(TRANSFORMS[m], p.inputs, p.outputs, p.image, low, p.result, rows)


def packed_shape(
    outputs: int, inputs: int, transforms: Transforms
) -> tuple[int, int, int, int]:
    """The shape of transformed weights.

    Inputs are padded by one that is never read: otherwise the vectors written together,
    one per point, would map to the same sets of the L1 cache.
    """
    strips, groups = -(-outputs // STRIP), -(-inputs // LANES)
    return strips, transforms.points**2, groups * LANES + 1, STRIP

"""Direct convolution with a register tile of output channels by image columns.

    python examples/conv2d.py

NCHW in and out. A tile of the output stays in registers for the whole reduction: each
step loads a few vectors of an image row and multiplies each by the weight of every
channel of the tile. The weights are packed once so that the channels of a tile are
contiguous; with a stride, the image columns are split by `column % stride`, so that the
elements of a vector are contiguous too.

Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang import build
from tensorlang.ir import Function, compute, function, placeholder, reduce_axis, sum
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import constant

LANES: Final = 16  # f32 elements per vector register
REGISTERS: Final = 32


def conv2d(
    image: tuple[int, int, int, int], weight: tuple[int, int, int, int], stride: int = 1
) -> Function:
    """y[b, o, i, j] = sum over c, ky, kx of x[b, c, ..., ...] * f[o, c, ky, kx], f32.

    Args:
        image: The shape of x: batch, channels, rows, columns.
        weight: The shape of f: output channels, channels, kernel rows and columns.
        stride: The stride of the windows in both dimensions.
    """
    x, f = placeholder(image, "f32", "x"), placeholder(weight, "f32", "f")
    c, ky, kx = map(reduce_axis, weight[1:], ("c", "ky", "kx"))
    rows, columns = (
        (size - window) // stride + 1
        for size, window in zip(image[2:], weight[2:], strict=True)
    )
    y = compute(
        (image[0], weight[0], rows, columns),
        lambda b, o, i, j: sum(
            x[b, c, i * stride + ky, j * stride + kx] * f[o, c, ky, kx],
            (c, ky, kx),
        ),
        "y",
    )
    return function("conv2d", [x, f], [y])


def tile_shape(channels: int, columns: int) -> tuple[int, int]:
    """Channels and vectors of a tile: the cheapest that fit in the registers.

    The tile's channels divide the number of channels, so there is no partial tile of
    channels; remaining columns get a smaller tile.
    """
    needed = max(-(-columns // LANES), 1)
    fits = [
        (rows, vectors)
        for rows in range(1, REGISTERS)
        for vectors in range(1, needed + 1)
        if channels % rows == 0 and (rows + 1) * vectors + 2 <= REGISTERS
    ]

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        rows, vectors = tile
        whole, rest = divmod(needed, vectors)
        steps = whole * step_cost(rows, vectors) + step_cost(rows, rest)
        return steps / rows, -rows * vectors

    return min(fits, key=cost)


def step_cost(rows: int, vectors: int) -> int:
    """Half cycles of one step of a tile's reduction.

    Two products per cycle with eight in flight; two loads per cycle, and those of the
    image cross cache lines.
    """
    return max(rows * vectors, 8, rows + 2 * vectors) if vectors else 0


def tiled(func: Function, stride: int = 1) -> Schedule:
    """Parallel image rows; in each, register tiles over the whole reduction."""
    s = Schedule(func)
    _, channels, _, columns = (constant(size) or 0 for size in func.buffers[-1].shape)
    rows, vectors = tile_shape(channels, columns)
    pack_weights(s, rows)
    if stride > 1:
        deal_columns(s, stride)
    blocks, row = s.split("o", [None, rows])
    s.reorder("b", blocks, "i", "j", "c", "ky", "kx", row)
    whole = columns // (vectors * LANES) * vectors * LANES
    if 0 < whole < columns:
        s.partition("j", whole)
        register_tile(s, row, "_tail", -(-(columns - whole) // LANES))
    register_tile(s, row, "", vectors)
    s.parallel(s.fuse(s.fuse("b", blocks), "i"))
    return s


def pack_weights(s: Schedule, rows: int) -> None:
    """A copy of the weights with the channels of a tile contiguous."""
    copy, packed = s.cache_read("y", "f", "global")
    s.transform_layout(
        packed, f"lambda o, c, ky, kx: (o // {rows}, c, ky, kx, o % {rows})"
    )
    for loop in s.loops(copy)[:1]:
        s.parallel(loop)


def deal_columns(s: Schedule, stride: int) -> None:
    """A copy of the image with every `stride`-th column contiguous."""
    copy, dealt = s.cache_read("y", "x", "global")
    s.transform_layout(
        dealt, f"lambda b, c, i, j: (b, c, i, j % {stride}, j // {stride})"
    )
    *outer, column = s.loops(copy)
    columns = constant(s.function.buffers[0].shape[3]) or 0
    whole = columns // (LANES * stride) * LANES * stride
    parts = s.partition(column, whole) if 0 < whole < columns else (column,)
    for part in parts:
        chunk, lane, turn = s.split(part, [None, LANES, stride])
        s.reorder(chunk, turn, lane)
        s.vectorize(lane)
        s.unroll(turn)
    for loop in outer[:2][-1:]:
        s.parallel(loop)


def register_tile(s: Schedule, row: str, part: str, vectors: int) -> None:
    """Tiles of `vectors` vectors for the columns of this part (main or `_tail`)."""
    loops = [f"{name}{part}" for name in ("c", "ky", "kx", row)]
    tile, vector, lane = s.split(f"j{part}", [None, vectors, LANES])
    s.reorder(tile, *loops, vector, lane)
    write, registers = s.cache_write(f"y{part}", "y", "register", at=tile)
    # each row of the tile starts a new register, even if the last one is partial
    s.transform_layout(
        registers, f"lambda b, o, i, j: (b, i, o * {vectors * LANES} + j)"
    )
    for loop in (loops[2], loops[3], vector):
        s.unroll(loop)
    s.vectorize(lane)
    around = s.loops(write)
    for loop in around[around.index(tile) + 1 : -1]:
        s.unroll(loop)
    if around[-1] != tile:  # loops over the columns of the tile
        vector, lane = s.split(around[-1], [None, LANES])
        s.unroll(vector)
        s.vectorize(lane)


def main() -> None:
    """A ResNet layer: 64 to 64 channels, 3 by 3, 56 by 56."""
    func = conv2d((1, 64, 58, 58), (64, 64, 3, 3))
    kernel = build(tiled(func).function)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 64, 58, 58), np.float32)
    f = rng.standard_normal((64, 64, 3, 3), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    expected = np.einsum("bcijyx,ocyx->boij", windows, f, dtype=float, optimize=True)
    print(f"largest error {np.abs(kernel(x, f) - expected).max():.1e}")


if __name__ == "__main__":
    main()

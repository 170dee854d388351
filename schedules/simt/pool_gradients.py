"""Pooling gradients: each thread has a tile of pixels, and the windows around it.

    for i_0, j_0 in bound(.., "block.x"), bound(28, "thread.x"):
        padded, largest, ranks, place, given = ...    # of a few windows, in registers
        for i_1, j_1, ky, kx in unrolled(4, 4, 2, 2):
            dx[..] += select(place[..] == tap, given[..], 0)

Windows shared by the pixels of several threads are reduced by each of them: that costs
less than writing their places and reading them back. No atomics are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import allocations, free_vars
from tensorlang.ir.nodes import Binary, Const, Expr
from tensorlang.ir.visit import walk
from tensorlang.schedules.convolution.products import readers
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.window_images import Line, hold, unroll_under
from tensorlang.schedules.simt.window_tiles import bind_tiles
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.scheduling import Knobs, Schedule, schedule

_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_THREADS: Final = (64, 128, 256)
_USUAL: Final = 4  # pixels of a tile along each dimension
_KINDS: Final = ("columns", "rows")
# values computed per window, from the last to the first: each is used by those before
# it
_MADE: Final = ("place", "ranks", "largest", "shares")
_GIVEN: Final = {"dy": "given", "x": "padded"}
_OF_WINDOWS: Final = ("dy", "given")


@frozen
class _Tile:
    """Pixels of one thread."""

    sizes: list[int]  # pixels along each loop
    columns: int  # pixels along the last dimension of the images
    stride: int  # windows' stride there
    dim: int  # index of that dimension
    threads: int  # upper limit of threads per block
    # whether the image is channels-first, with neighbouring pixels contiguous
    lines: bool

    def line(self, of_windows: bool) -> Line:
        """How lines of windows, or of pixels, are partitioned."""
        unit = max(self.columns // self.stride, 1) if of_windows else self.columns
        return Line(self.dim, unit, unit if self.lines else 1, whole=self.lines)


@schedule("pool", algorithm="gathered", model="simt")
def gathered(s: Schedule, knobs: Knobs) -> None:
    """One tile of pixels per thread; stage by stage if that does not fit."""
    if not s.attempt(_tiles, s, knobs):
        generic(s, knobs)


def _tiles(s: Schedule, knobs: Knobs) -> None:
    """Tile the pixels, and compute all they need within the tile."""
    made = {buffer.name for buffer in allocations(s.function)}
    sums = stage_named(s, "dx")
    top = stage_named(s, "narrow") or sums
    if sums is None or top is None:
        raise ScheduleError("the gradient is not a stage of plain loops")
    tile = _tile(knobs, sums)
    at = bind_tiles(s, top, tile.sizes, tile.threads)
    if top is sums:
        written, _ = s.cache_write("dx", "dx", "register", at)
    else:
        written = top.name
        s.compute_at("dx", at)
        s.set_scope("dx", "register")
    unroll_under(s, "dx", at, 1)
    for name in _MADE:
        if name in made:
            s.compute_at(name, at)
            s.set_scope(name, "register")
            unroll_under(s, name, at, 1)
    for name, own in _read(s, made):
        hold(s, own, name, at, tile.line(name in _OF_WINDOWS))
    unroll_under(s, written, at, tile.columns if tile.lines else 1)


def _read(s: Schedule, made: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The images that are loaded or padded per tile, with the blocks that read them."""
    for given, padded in _GIVEN.items():
        name = padded if padded in made else given
        if own := readers(s, name):
            yield name, own


def _tile(knobs: Knobs, sums: Stage) -> _Tile:
    """The knobs of a tile of pixels."""
    axes = {sums.axis(loop): loop for loop in sums.loops}
    folded = {sums.axis(loop) for loop in sums.driven("reduction")}
    around = [[i for i in load.indices if free_vars(i) & folded] for load in sums.loads]
    found = max(around, key=len)
    pixels = [axes[v] for i in found for v in free_vars(i) - folded]
    spatial = sums.names("spatial")
    sizes = dict.fromkeys(spatial, 1)
    strides = [_stride(index) for index in found]
    if len(pixels) != len(found):
        raise ScheduleError(f"{sums.name} reads windows by more than its pixel")
    along = zip(reversed(pixels), reversed(strides), _KINDS, strict=False)
    for loop, stride, kind in along:
        length = extent_of(loop) or stride
        usual = _size(length, stride)
        sizes[loop.var.name] = knobs.choice(f"pixel_{kind}", _SIZES, default=usual)
    threads = knobs.choice("pixel_threads", _THREADS, default=256)
    lines = pixels[-1].var.name == spatial[-1]
    dim = len(spatial) - (1 if lines else 2)
    columns = sizes[pixels[-1].var.name]
    return _Tile(list(sizes.values()), columns, strides[-1], dim, threads, lines)


def _stride(index: Expr) -> int:
    """The stride between windows, by which a pixel is divided."""
    found = [
        int(n.b.value)
        for n in walk(index)
        if isinstance(n, Binary) and n.op == "floordiv" and isinstance(n.b, Const)
    ]
    return found[0] if found else 1


def _size(length: int, stride: int) -> int:
    """Pixels of a tile: a multiple of the stride, dividing the length if possible."""
    fit = [n for n in _SIZES if n % stride == 0 and length % n == 0] or [stride]
    return min(fit, key=lambda n: (abs(n - _USUAL), -n))

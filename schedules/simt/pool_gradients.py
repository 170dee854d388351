"""Gradients of poolings: a thread has some pixels, and the windows around them.

    for i_0, j_0 in bound(.., "block.x"), bound(28, "thread.x"):
        padded, largest, ranks, place, given = ...    # of a few windows, in registers
        for i_1, j_1, ky, kx in unrolled(4, 4, 2, 2):
            dx[..] += select(place[..] == tap, given[..], 0)

Windows that the pixels of several threads share are folded by each of them: that takes
less than to write their places and to read them again. Nothing is added up by atomics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import allocations, blocks, free_vars
from tensorlang.ir.nodes import Binary, Block, Const, Expr, Load
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.window_images import Line, held, written_out
from tensorlang.schedules.simt.window_tiles import shared_out
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.schedules.tiling import attempt
from tensorlang.scheduling import Knobs, Schedule, schedule

_SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_THREADS: Final = (64, 128, 256)
_USUAL: Final = 4  # pixels of a tile along each dimension
_KINDS: Final = ("columns", "rows")
# what is made of windows, from the last to the first: each for those behind it
_MADE: Final = ("place", "ranks", "largest", "shares")
_GIVEN: Final = {"dy": "given", "x": "padded"}
_OF_WINDOWS: Final = ("dy", "given")


@dataclass(frozen=True, slots=True)
class _Tile:
    """Pixels of one thread.

    Attributes:
        sizes: Along each loop.
        columns: Along the last dimension of the images.
        stride: The step from window to window there.
        dim: Which dimension that is.
        threads: Of a block, at most.
        lines: Whether neighbours in memory are neighbouring pixels: channels first.
    """

    sizes: list[int]
    columns: int
    stride: int
    dim: int
    threads: int
    lines: bool

    def line(self, of_windows: bool) -> Line:
        """How lines of windows, or of pixels, are cut."""
        unit = max(self.columns // self.stride, 1) if of_windows else self.columns
        return Line(self.dim, unit, unit if self.lines else 1, whole=self.lines)


@schedule("pool", algorithm="gathered", model="simt")
def gathered(s: Schedule, knobs: Knobs) -> None:
    """A tile of pixels to a thread; what does not fit goes stage by stage."""
    if not attempt(s, _tiles, s, knobs):
        generic(s, knobs)


def _tiles(s: Schedule, knobs: Knobs) -> None:
    """Tiles of pixels with all that they need.

    Raises:
        ScheduleError: that is more than a thread's registers.
    """
    made = {buffer.name for buffer in allocations(s.function)}
    sums = stage_named(s, "dx")
    top = stage_named(s, "narrow") or sums
    if sums is None or top is None:
        raise ScheduleError("the gradient is no stage of plain loops")
    tile = _tile(knobs, sums)
    at = shared_out(s, top, tile.sizes, tile.threads)
    if top is sums:
        written, _ = s.cache_write("dx", "dx", "register", at)
    else:
        written = top.name
        s.compute_at("dx", at)
        s.set_scope("dx", "register")
    written_out(s, "dx", at, 1)
    for name in _MADE:
        if name in made:
            s.compute_at(name, at)
            s.set_scope(name, "register")
            written_out(s, name, at, 1)
    for name, readers in _read(s, made):
        held(s, readers, name, at, tile.line(name in _OF_WINDOWS))
    written_out(s, written, at, tile.columns if tile.lines else 1)


def _read(s: Schedule, made: set[str]) -> Iterator[tuple[str, list[str]]]:
    """What is read of memory, or padded on the way, and by which blocks."""
    for given, padded in _GIVEN.items():
        name = padded if padded in made else given
        own = [b.name for b in blocks(s.function) if _reads(b, name)]
        if own:
            yield name, own


def _reads(block: Block, name: str) -> bool:
    return any(n.buffer.name == name for n in walk(block.body) if isinstance(n, Load))


def _tile(knobs: Knobs, sums: Stage) -> _Tile:
    """The knobs of a tile of pixels.

    Raises:
        ScheduleError: nothing is known of the windows around a pixel.
    """
    axes = {sums.axis(loop): loop for loop in sums.loops}
    folded = {sums.axis(loop) for loop in sums.driven("reduction")}
    around = [[i for i in load.indices if free_vars(i) & folded] for load in sums.loads]
    found = max(around, key=len)
    pixels = [axes[v] for i in found for v in free_vars(i) - folded]
    spatial = [loop.var.name for loop in sums.driven("spatial")]
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
    """The step from window to window, which a pixel is divided by."""
    found = [
        int(n.b.value)
        for n in walk(index)
        if isinstance(n, Binary) and n.op == "floordiv" and isinstance(n.b, Const)
    ]
    return found[0] if found else 1


def _size(length: int, stride: int) -> int:
    """Pixels of a tile: some windows' steps, a whole part of all if there is one."""
    fit = [n for n in _SIZES if n % stride == 0 and length % n == 0] or [stride]
    return min(fit, key=lambda n: (abs(n - _USUAL), -n))

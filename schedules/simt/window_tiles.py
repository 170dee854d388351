"""How many windows a thread has, and how they are distributed over threads."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.schedules.simt.sliding import Windows
from tensorlang.schedules.stages import Stage
from tensorlang.schedules.tiling import extent, fused
from tensorlang.scheduling import Knobs, Schedule

_COLUMNS: Final = (1, 2, 4, 8)
_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_THREADS: Final = (64, 128, 256)
_USUAL: Final = 4  # rows of a tile, and columns in channels-last layout
MOST_TAPS: Final = 64  # unrolled elements of a window
_MOST_STEPS: Final = 512  # products of a tile
_MOST_SAME: Final = 8  # results computed from the same pixels
_MOST_MIXED: Final = 64  # these times mixed channels, above which it is a product
_WORDS: Final = 96  # registers for a tile
_ACCESS_BITS: Final = 128
_WORD_BITS: Final = 32
_INDICES: Final = ("x", "y", "z")


@frozen
class Tile:
    """The work of one thread."""

    sizes: dict[str, int]  # results along each loop
    lanes: int  # contiguous elements stored at once
    loads: int  # contiguous elements loaded at once
    depth: int  # channels whose pixels are held at once
    threads: int  # upper limit of threads per block


def tile_of(knobs: Knobs, slid: Windows, top: Stage) -> Tile:
    """The knobs of a tile; by default as many windows as fit a thread's registers.

    Args:
        top: The stage whose loops are distributed.

    Raises:
        ScheduleError: these are matrix products, or too large for registers.
    """
    mixed = slid.count(slid.same) * slid.count(slid.deep)
    known = all(slid.sizes[name] is not None for name in slid.same)
    small = slid.count(slid.same) <= _MOST_SAME and mixed <= _MOST_MIXED
    if not (known and small and slid.taps <= MOST_TAPS):
        raise ScheduleError(f"{slid.stage.name} has large windows, or mixes channels")
    column, *others = (slide.loop for slide in reversed(slid.slides))
    if slid.lines and slid.sizes[column] == 1:
        raise ScheduleError(f"{slid.stage.name} reduces whole lines, one per result")
    again = f"_{slid.stage.name}" if "window_rows" in knobs.values else ""
    sizes = dict.fromkeys(slid.spatial, 1)
    sizes |= {name: slid.sizes[name] or 1 for name in slid.same}
    usual = _columns(slid, column, top)
    sizes[column] = _within(
        knobs.choice(
            f"window_columns{again}",
            _COLUMNS,
            default=usual,
            why="an access that divides lines, or a few",
        ),
        slid.sizes[column],
    )
    lanes = _lanes(slid, sizes, top)
    if not slid.lines and slid.spatial[-1] not in slid.same:
        sizes[slid.spatial[-1]] = lanes
    depth = _depth(slid, sizes, top)
    if others:
        usual = _rows(slid, sizes, others[0], depth * _words(top))
        rows = knobs.choice(
            f"window_rows{again}",
            _ROWS,
            default=usual,
            why="divides the lines, and its windows fit the registers",
        )
        sizes[others[0]] = _within(rows, slid.sizes[others[0]])
    threads = knobs.choice(f"window_threads{again}", _THREADS, default=256)
    if _registers(slid, sizes, depth * _words(top)) > 2 * _WORDS:
        raise ScheduleError(f"{slid.stage.name}: tiles of {sizes} fit no registers")
    return Tile(sizes, lanes, _loads(slid, sizes, lanes), depth, threads)


def _within(size: int, length: int | None) -> int:
    return size if length is None else min(size, length)


def _bits(slid: Windows, top: Stage) -> int:
    """Bits of the widest element that is loaded or stored."""
    return max(b.dtype.bits for b in (slid.image.buffer, *top.outputs))


def _words(top: Stage) -> int:
    return max(max(b.dtype.bits for b in top.outputs) // _WORD_BITS, 1)


def _columns(slid: Windows, column: str, top: Stage) -> int:
    """Columns of a tile: an access that divides lines, or a few."""
    most = max(_ACCESS_BITS // _bits(slid, top), 1) if slid.lines else _USUAL
    length = slid.sizes[column] or 1
    return max(n for n in _COLUMNS if n <= most and length % n == 0)


def _lanes(slid: Windows, sizes: dict[str, int], top: Stage) -> int:
    """Elements of one access: columns, or a word of channels if these are last."""
    last = slid.spatial[-1]
    if slid.lines or last in slid.same:
        wide = max(_ACCESS_BITS // _bits(slid, top), 1)
        return min(sizes[last], wide)
    word = max(_WORD_BITS // _bits(slid, top), 1)
    return word if (slid.sizes[last] or 1) % word == 0 else 1


def _loads(slid: Windows, sizes: dict[str, int], lanes: int) -> int:
    """Contiguous elements loaded at once: a tile's advance along lines, if any."""
    if not slid.lines:
        return lanes
    column = slid.slides[-1]
    on = sizes[column.loop] * column.step
    wide = max(_ACCESS_BITS // slid.image.buffer.dtype.bits, 1)
    return max(n for n in (1, 2, 4, 8) if n <= wide and on % n == 0)


def _depth(slid: Windows, sizes: dict[str, int], top: Stage) -> int:
    """Channels held at once: the contiguous ones, if they are few."""
    depth = slid.count(slid.deep_in_memory)
    fits = _registers(slid, sizes, depth * _words(top)) <= _WORDS
    return depth if fits else 1


def _rows(slid: Windows, sizes: dict[str, int], row: str, words: int) -> int:
    """Rows of a tile that divide the lines and fit the registers: about four."""
    length = slid.sizes[row] or 1
    fit = [
        rows
        for rows in _ROWS
        if length % rows == 0
        and _registers(slid, sizes | {row: rows}, words) <= _WORDS
        and prod((sizes | {row: rows}).values()) * slid.taps <= _MOST_STEPS
    ] or [1]
    return min(fit, key=lambda rows: (abs(rows - _USUAL), -rows))


def _registers(slid: Windows, sizes: dict[str, int], words: int) -> int:
    """Registers of a thread, in words: its pixels, its sums and a window's weights."""
    pixels = prod(slide.pixels(sizes[slide.loop]) for slide in slid.slides)
    lanes = (
        1 if slid.lines or slid.spatial[-1] in slid.same else sizes[slid.spatial[-1]]
    )
    return pixels * words * lanes + prod(sizes.values()) + slid.taps


# ------------------------------------------------------------------------ threads


def bind_tiles(s: Schedule, top: Stage, sizes: Sequence[int], threads: int) -> str:
    """Distribute a stage's tiles over blocks of threads; the innermost thread loop.

    Neighbouring tiles go to neighbouring threads, with a thread index for each of the
    innermost loops, so that addresses need no division.

    Args:
        sizes: Results of one thread along each loop over results.
        threads: Upper limit of threads per block.
    """
    names = top.names("spatial")
    folded = top.names("reduction")
    outer, inner = [], []
    for name, size in zip(names, sizes, strict=True):
        if size > 1:
            around, part = s.split(name, [None, size])
            inner.append(part)
        outer.append(around if size > 1 else name)
    s.reorder(*outer, *inner, *folded)
    bound = _threads(s, outer, threads)
    s.reorder(*outer, *bound, *inner, *folded)
    s.bind(fused(s, outer), "block.x")
    for name, index in zip(reversed(bound), _INDICES, strict=False):
        s.bind(name, f"thread.{index}")
    return bound[-1]


def _threads(s: Schedule, outer: list[str], most: int) -> list[str]:
    """Split loops over threads off the innermost loops, updating `outer` in place."""
    threads: list[str] = []
    for at in reversed(range(len(outer))):
        count = _share(extent(s, outer[at]), most)
        last = at == 0 and not threads
        if (count > 1 or last) and most and len(threads) < len(_INDICES):
            outer[at], thread = s.split(outer[at], [None, count])
            threads.insert(0, thread)
            most //= count
    return threads


def _share(length: int | None, most: int) -> int:
    """Threads along a loop: all of it, a divisor, or nearly equal parts."""
    if length is None or length <= most:
        return most if length is None else length
    best = max((n for n in range(1, most + 1) if length % n == 0), default=1)
    return best if 2 * best >= most else -(-length // -(-length // max(most, 1)))

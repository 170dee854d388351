"""Gradients of window weights: per-thread partial sums, combined across threads.

    dw[c, ky, kx] += dy[b, c, i, j] * padded[b, c, i + ky, j + kx]

    for c in bound(.., "block.x"):
        for p in bound(.., "thread.x"):          # an image, some lines, a few columns
            sums = alloc(f32[3, 3], scope="register")
            for i_1 in range(7):
                padded = alloc(f32[6, 6], scope="register")
                for i_2, j_1, ky, kx in unrolled(4, 4, 3, 3): sums[ky, kx] += ..
            part[c, ky, kx, p] = sums[ky, kx]
    dw[c, ky, kx] = the sum of part[c, ky, kx, :]

The pixels of a thread, and so the order of the sums, depend on the shape alone.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import writes
from tensorlang.schedules.simt.sliding import WeightSums, weight_sums_of
from tensorlang.schedules.simt.window_images import Line, hold, under, unroll_under
from tensorlang.schedules.stages import Stage
from tensorlang.schedules.tiling import divisors, extent, fused
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block

_COLUMNS: Final = (1, 2, 4, 8)
_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_TURNS: Final = (1, 2, 4, 8, 16, 32)
_THREADS: Final = (64, 128, 256)
_USUAL: Final = 4  # rows of a tile, and columns in channels-last layout
_MOST_SUMS: Final = 48  # per thread
_WORDS: Final = 112  # registers for a tile
_MOST_MIXED: Final = 8  # mixed channels, above which it is a matrix product
_ENOUGH: Final = 1 << 15  # threads that occupy a device, for a usual batch
_IMAGES: Final = 16  # assumed size of a dynamic batch
_ACCESS_BITS: Final = 128


@frozen
class _Cut:
    """Rows and columns done at once, number of iterations, and threads."""

    rows: int
    columns: int
    turns: int
    threads: int


def weight_gradients(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """A stage that reduces images and positions, with few results per channel.

    Raises:
        ScheduleError: it has another form, or more results than registers.
    """
    sums = weight_sums_of(stage)
    mixed = max(sums.count(sums.same), sums.count(sums.deep))
    if mixed > _MOST_MIXED or sums.count(sums.thread_loops) > _MOST_SUMS:
        raise ScheduleError(f"{stage.name} mixes channels, or has many sums")
    cut = _cut(knobs, sums)
    part, unit = _parts(s, sums, cut)
    at = _bound(s, sums, cut, part, unit)
    _tile(s, sums, cut, part, at)


def _cut(knobs: Knobs, sums: WeightSums) -> _Cut:
    """The knobs; by default whole accesses, and threads that occupy a device."""
    again = f"_{sums.stage.name}" if "sum_rows" in knobs.values else ""
    column, *others = (slide.loop for slide in reversed(sums.slides))
    bits = max(load.buffer.dtype.bits for load in (sums.image, sums.given))
    most = max(_ACCESS_BITS // bits, 1) if sums.lines else _USUAL
    width = sums.sizes[column] or 1
    usual = max(n for n in _COLUMNS if n <= most and width % n == 0)
    columns = knobs.choice(f"sum_columns{again}", _COLUMNS, default=usual)
    rows, turns = 1, 1
    if others:
        height = sums.sizes[others[0]] or 1
        fit = [n for n in _ROWS if height % n == 0 and _fits(sums, n, columns)] or [1]
        usual = min(fit, key=lambda n: (abs(n - _USUAL), -n))
        rows = knobs.choice(f"sum_rows{again}", _ROWS, default=usual)
        pieces = -(-height // rows)
        threads = _IMAGES * sums.count(sums.grid_loops) * -(-width // columns)
        parts = min(max(_ENOUGH // threads, 1), pieces)
        fit = [n for n in _TURNS if pieces % n == 0 and n * parts <= pieces] or [1]
        turns = knobs.choice(f"sum_turns{again}", _TURNS, default=fit[-1])
    threads = knobs.choice(f"sum_threads{again}", _THREADS, default=128)
    if width % columns or (others and (sums.sizes[others[0]] or 1) % (rows * turns)):
        raise ScheduleError(f"{rows} x {columns} does not divide the positions")
    return _Cut(rows, columns, turns, threads)


def _fits(sums: WeightSums, rows: int, columns: int) -> bool:
    """Whether a tile of positions fits the registers."""
    column, *others = reversed(sums.slides)
    pixels = column.pixels(columns)
    if others:
        pixels *= others[0].pixels(rows)
    for slide in others[1:]:
        pixels *= slide.pixels(1)
    return pixels + rows * columns + sums.count(sums.thread_loops) <= _WORDS


def _parts(s: Schedule, sums: WeightSums, cut: _Cut) -> tuple[str, int]:
    """Partial sums of each thread in a buffer: the block, and the parts per image."""
    name = sums.stage.name
    *others, column = (slide.loop for slide in sums.slides)
    around, inner = [*sums.outer], []
    if others:
        *far, row = others
        around += far
        some, turn, one = s.split(row, [None, cut.turns, cut.rows])
        around.append(some)
        inner += [turn, one]
    some, one = s.split(column, [None, cut.columns])
    around.append(some)
    inner.append(one)
    s.reorder(*around, *sums.grid_loops, *sums.thread_loops, *inner)
    unit = prod(extent(s, loop) or 1 for loop in around)
    place = fused(s, around)
    rank = len(sums.grid_loops) + len(sums.thread_loops)
    part, _ = s.rfactor(name, place, rank if sums.lines else 0)
    return part, unit


def _bound(s: Schedule, sums: WeightSums, cut: _Cut, part: str, unit: int) -> str:
    """Bind threads along positions, or along contiguous channels and then positions."""
    place, *loops = s.loops(part)
    first, last = len(sums.grid_loops), len(sums.grid_loops) + len(sums.thread_loops)
    shared, own, inner = loops[:first], loops[first:last], loops[last:]
    channels = []
    most = cut.threads
    if not sums.lines and shared:
        length = extent(s, shared[-1]) or 1
        count = max(n for n in divisors(length) if n <= 2 * WARP)
        shared[-1], thread = s.split(shared[-1], [None, count])
        channels, most = [thread], max(most // count, 1)
    around, thread = s.split(place, [None, _threads_per_block(unit, most)])
    s.reorder(around, *shared, thread, *channels, *inner, *own)
    s.bind(fused(s, [around, *shared]), "block.x")
    for loop, index in zip(reversed([thread, *channels]), "xy", strict=False):
        s.bind(loop, f"thread.{index}")
    return [thread, *channels][-1]


def _threads_per_block(unit: int, most: int) -> int:
    """Threads for the positions of whole images, or of a part of one."""
    if unit > most:
        best = max(n for n in divisors(unit) if n <= 2 * most)
        return best if 2 * best >= most else most
    return most // unit * unit


def _tile(s: Schedule, sums: WeightSums, cut: _Cut, part: str, at: str) -> None:
    """Keep sums in registers, with the operands of a few rows per iteration."""
    found = block_of(find_block(s.function, part))
    (made,) = writes(found)
    written, _ = s.cache_write(part, made.name, "register", at)
    inner = under(s, part, at)
    turn = inner[0] if len(sums.slides) > 1 else at
    column = sums.slides[-1]
    lanes = cut.columns if sums.lines else 1
    unit = lanes if sums.lines else cut.columns * column.step
    line = Line(column.dim, unit, lanes, whole=sums.lines)
    hold(s, [part], sums.image.buffer.name, turn, line)
    line = Line(column.dim, cut.columns, lanes, whole=sums.lines)
    hold(s, [part], sums.given.buffer.name, turn, line)
    for name in inner[1:] if turn != at else inner:
        s.unroll(name)
    unroll_under(s, written, at, 1)

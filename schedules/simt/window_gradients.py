"""Gradients of windows' weights: a thread adds up its own pixels, then all threads'.

    dw[c, ky, kx] += dy[b, c, i, j] * padded[b, c, i + ky, j + kx]

    for c in bound(.., "block.x"):
        for p in bound(.., "thread.x"):          # an image, some lines, a few columns
            sums = alloc(f32[3, 3], scope="register")
            for i_1 in range(7):
                padded = alloc(f32[6, 6], scope="register")
                for i_2, j_1, ky, kx in unrolled(4, 4, 3, 3): sums[ky, kx] += ..
            part[c, ky, kx, p] = sums[ky, kx]
    dw[c, ky, kx] = the sum of part[c, ky, kx, :]

Which pixels a thread has depends on the shape alone, and so does the order of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import writes
from tensorlang.schedules.simt.sliding import WeightSums, weight_sums_of
from tensorlang.schedules.simt.window_images import Line, held, under, written_out
from tensorlang.schedules.stages import Stage
from tensorlang.schedules.tiling import divisors, extent, fused
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.tree import block_of, find_block

_COLUMNS: Final = (1, 2, 4, 8)
_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_TURNS: Final = (1, 2, 4, 8, 16, 32)
_THREADS: Final = (64, 128, 256)
_USUAL: Final = 4  # rows of a tile, and columns where channels come last
_MOST_SUMS: Final = 48  # of one thread
_WORDS: Final = 112  # registers for a tile
_MOST_MIXED: Final = 8  # channels that are mixed: else it is a product of matrices
_ENOUGH: Final = 1 << 15  # threads, of as many images as are usual
_IMAGES: Final = 16
_ACCESS_BITS: Final = 128
_WARP: Final = 32


@dataclass(frozen=True, slots=True)
class _Cut:
    """How many rows and columns are done at once, how many times, by how many."""

    rows: int
    columns: int
    turns: int
    threads: int


def weight_gradients(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """A stage that folds images and places, and has few results of each channel.

    Raises:
        ScheduleError: it is none such, or has more results than registers.
    """
    sums = weight_sums_of(stage)
    mixed = max(sums.count(sums.same), sums.count(sums.deep))
    if mixed > _MOST_MIXED or sums.count(sums.own) > _MOST_SUMS:
        raise ScheduleError(f"{stage.name} mixes channels, or has many sums")
    cut = _cut(knobs, sums)
    part, unit = _parts(s, sums, cut)
    at = _bound(s, sums, cut, part, unit)
    _tile(s, sums, cut, part, at)


def _cut(knobs: Knobs, sums: WeightSums) -> _Cut:
    """The knobs; by default whole accesses, and threads that keep a device busy."""
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
        threads = _IMAGES * sums.count(sums.apart) * -(-width // columns)
        parts = min(max(_ENOUGH // threads, 1), pieces)
        fit = [n for n in _TURNS if pieces % n == 0 and n * parts <= pieces] or [1]
        turns = knobs.choice(f"sum_turns{again}", _TURNS, default=fit[-1])
    threads = knobs.choice(f"sum_threads{again}", _THREADS, default=128)
    if width % columns or (others and (sums.sizes[others[0]] or 1) % (rows * turns)):
        raise ScheduleError(f"{rows} x {columns} places are no whole part of all")
    return _Cut(rows, columns, turns, threads)


def _fits(sums: WeightSums, rows: int, columns: int) -> bool:
    """Whether a tile of places stays in registers."""
    column, *others = reversed(sums.slides)
    pixels = column.pixels(columns)
    if others:
        pixels *= others[0].pixels(rows)
    for slide in others[1:]:
        pixels *= slide.pixels(1)
    return pixels + rows * columns + sums.count(sums.own) <= _WORDS


def _parts(s: Schedule, sums: WeightSums, cut: _Cut) -> tuple[str, int]:
    """Sums of each thread in a buffer: the block, and how many parts an image has."""
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
    s.reorder(*around, *sums.apart, *sums.own, *inner)
    unit = prod(extent(s, loop) or 1 for loop in around)
    place = fused(s, around)
    rank = len(sums.apart) + len(sums.own)
    part, _ = s.rfactor(name, place, rank if sums.lines else 0)
    return part, unit


def _bound(s: Schedule, sums: WeightSums, cut: _Cut, part: str, unit: int) -> str:
    """Threads along places, or along channels that are neighbours, and then these."""
    place, *loops = s.loops(part)
    first, last = len(sums.apart), len(sums.apart) + len(sums.own)
    shared, own, inner = loops[:first], loops[first:last], loops[last:]
    channels = []
    most = cut.threads
    if not sums.lines and shared:
        length = extent(s, shared[-1]) or 1
        count = max(n for n in divisors(length) if n <= 2 * _WARP)
        shared[-1], thread = s.split(shared[-1], [None, count])
        channels, most = [thread], max(most // count, 1)
    around, thread = s.split(place, [None, _together(unit, most)])
    s.reorder(around, *shared, thread, *channels, *inner, *own)
    s.bind(fused(s, [around, *shared]), "block.x")
    for loop, index in zip(reversed([thread, *channels]), "xy", strict=False):
        s.bind(loop, f"thread.{index}")
    return [thread, *channels][-1]


def _together(unit: int, most: int) -> int:
    """Threads for the places of an image: of whole images, or of a part of one."""
    if unit > most:
        best = max(n for n in divisors(unit) if n <= 2 * most)
        return best if 2 * best >= most else most
    return most // unit * unit


def _tile(s: Schedule, sums: WeightSums, cut: _Cut, part: str, at: str) -> None:
    """Sums in registers; and what is read of some rows, turn by turn."""
    found = block_of(find_block(s.function, part))
    (made,) = writes(found)
    written, _ = s.cache_write(part, made.name, "register", at)
    inner = under(s, part, at)
    turn = inner[0] if len(sums.slides) > 1 else at
    column = sums.slides[-1]
    lanes = cut.columns if sums.lines else 1
    unit = lanes if sums.lines else cut.columns * column.step
    line = Line(column.dim, unit, lanes, whole=sums.lines)
    held(s, [part], sums.image.buffer.name, turn, line)
    line = Line(column.dim, cut.columns, lanes, whole=sums.lines)
    held(s, [part], sums.given.buffer.name, turn, line)
    for name in inner[1:] if turn != at else inner:
        s.unroll(name)
    written_out(s, written, at, 1)

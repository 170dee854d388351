"""`wgmma` (PTX ISA, 9.7.15): products of four warps, from tiles in shared memory.

    wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16 d, a, b, p, 1, 1, 0, 0

With w = warp of the four, g = lane / 4 and t = lane % 4, register i of d is row
16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 t + i % 2. Where p is false, d is only
written. A descriptor has the address in 16 bytes (bits 0 to 13), the bytes from eight
rows in memory to the next in 16s (bits 32 to 45) and the swizzle (bits 62 and 63; 1 is
128 bytes). A row is 128 bytes long; the exchange is of bits of the address itself. k
goes along it, or with 1 for one of the last two numbers (of a, of b), from row to row;
64 numbers of a row then have their others as many 16s of bytes away as bits 16 to 29.
a may be four registers instead, of two numbers each, low bits first: number e of
register i is at row 16 w + g + 8 (i % 2), k = 8 (i / 2) + 2 t + e.

Results are held back until their group is waited for: registers are NaN before.
"""

from __future__ import annotations

import re

import numpy as np

from .accesses import parts
from .batch import GONE, WARP, Batch, Lanes, Read, Step
from .exact import brain_values
from .faults import Fault
from .objects import swizzled
from .operands import Names, reader, writer
from .program import Instruction, Number, Vector
from .types import named

F32, U32, U64, PRED = map(named, ("f32", "b32", "u64", "pred"))
GROUP = 4 * WARP
_SHAPE = re.compile(
    r"mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(bf16|f16)\.(bf16|f16)"
)


def arrived(s: Batch, ix: Lanes) -> np.ndarray:
    """Which threads find all of their warpgroup beside them."""
    lanes = s.lanes(ix)
    group = s.inside // GROUP + s.owner * (-(-s.block_size // GROUP))
    gone = (s.state == GONE) & np.isin(group, group[lanes])
    if gone.any() or s.block_size % GROUP:
        raise Fault("lanes of the warpgroup are gone", int(lanes[0]))
    return np.bincount(group[lanes], minlength=group.max() + 1)[group[lanes]] == GROUP


def instruction(ins: Instruction, names: Names) -> Step:
    """All that begin with `wgmma`."""
    said = ".".join(ins.modifiers)
    if said == "fence.sync.aligned":
        return _fence
    if said == "commit_group.sync.aligned":
        return lambda s, ix: s.flying.commit(s.lanes(ix))
    if said == "wait_group.sync.aligned" and isinstance(ins.operands[0], Number):
        left = ins.operands[0].bits
        return lambda s, ix: _finish(s, ix, left)
    shape = _SHAPE.fullmatch(said)
    numbers = [n.bits for n in ins.operands[4:] if isinstance(n, Number)]
    count = 3 if isinstance(ins.operands[1], Vector) else 4
    known = numbers[:2] == [1, 1] and len(numbers) == len(ins.operands[4:]) == count
    if not shape or shape[2] != shape[3] or not known or not {*numbers[2:]} <= {0, 1}:
        raise Fault(f"{ins.text} is not known")
    return _product(ins, int(shape[1]), shape[2], names)


def _fence(s: Batch, ix: Lanes) -> None:
    s.fenced[s.lanes(ix)] = True


def _finish(s: Batch, ix: Lanes, left: int) -> None:
    lanes = s.lanes(ix)
    s.flying.wait(lanes, left)
    for key in [k for k in s.products if k[0] in set(lanes[::GROUP].tolist())]:
        writes, values, number = s.products[key]
        if not s.flying.is_over(key[0], number):
            continue
        del s.products[key]
        mine = np.arange(key[0], key[0] + GROUP)
        for write, value in zip(writes, values, strict=True):
            write(s, mine, value)
    s.fenced[lanes] = False


def _product(ins: Instruction, columns: int, kind: str, names: Names) -> Step:
    places = parts(ins.operands[0], columns // 2)
    reads = [reader(p, F32, names) for p in places]
    writes = [writer(p, F32, names) for p in places]
    held = isinstance(ins.operands[1], Vector)
    own = parts(ins.operands[1], 4) if held else ()
    pairs = [reader(o, U32, names) for o in own]
    tiles = [reader(o, U64, names) for o in ins.operands[1 + held : 3]]
    adds = reader(ins.operands[3], PRED, names)
    turned = [n == Number(1) for n in ins.operands[6:]]

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        if not s.fenced[lanes].all():
            raise Fault("no wgmma.fence came before")
        for mine in lanes.reshape(-1, GROUP):
            sides = zip(tiles, (64, columns)[held:], turned, strict=True)
            found = [_tile(s, mine, side, kind) for side in sides]
            a, b = (_fragment(s, mine, pairs, kind), *found) if held else found
            key = (int(mine[0]), places)
            old = (
                s.products[key][1] if key in s.products else [r(s, mine) for r in reads]
            )
            total = a @ b.T
            kept = np.unique(adds(s, mine))
            if len(kept) > 1:
                raise Fault(
                    "the threads of a warpgroup differ in scale-d", int(mine[0])
                )
            old = old if kept[0] else [np.zeros(GROUP, np.float32)] * len(old)
            row, column = _places(columns // 2)
            new = [
                (total[i, j] + c).astype(np.float32)
                for i, j, c in zip(row, column, old, strict=True)
            ]
            number = s.flying.committed[mine[0] // WARP] + 1
            s.products[key] = (writes, new, number)
            for write in writes:
                write(s, mine, np.full(GROUP, np.nan, np.float32))

    return step


def _places(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each register, [count, 128]."""
    i, thread = np.arange(count)[:, None], np.arange(GROUP)
    lane = thread % WARP
    row = 16 * (thread // WARP) + lane // 4 + 8 * (i // 2 % 2)
    return row, 8 * (i // 4) + 2 * (lane % 4) + i % 2


def _tile(
    s: Batch, mine: np.ndarray, side: tuple[Read, int, bool], kind: str
) -> np.ndarray:
    """The rows of 16 numbers that a descriptor tells of: f64."""
    read, rows, turned = side
    told = np.unique(read(s, mine))
    if len(told) > 1:
        raise Fault("the threads of a warpgroup have several descriptors", int(mine[0]))
    bits = int(told[0])
    start, stride = (bits & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
    if bits >> 62 != 1 or bits >> 49 & 7:
        raise Fault("a descriptor of another swizzle than 128 bytes is not known")
    if turned:
        if rows % 64:
            raise Fault("columns of a transposed tile are not in whole rows of memory")
        row, eight = np.arange(16)[:, None], np.arange(rows // 8)
        piece = eight // 8 * ((bits >> 16 & 0x3FFF) << 4) + eight % 8 * 16
    else:
        row, piece = np.arange(rows)[:, None], np.arange(2) * 16
    place = start + row // 8 * stride + row % 8 * 128 + piece
    at = swizzled(place).astype(np.uint64)
    lanes = np.full(at.size, mine[0])
    pieces = s.shared.at(at.ravel(), 16, lanes)
    s.shared.check_proxies(pieces, 16, lanes, writes=False)
    s.flying.read(int(mine[0]), s.shared.units(pieces, 16))
    words = s.shared.load(at.ravel(), 8, 2, lanes, proxy=True)
    values = np.ascontiguousarray(words.T).view(np.uint16).reshape(len(row), -1)
    values = np.ascontiguousarray(values.T if turned else values)
    return _numbers(values, kind)


def _fragment(s: Batch, mine: np.ndarray, pairs: list[Read], kind: str) -> np.ndarray:
    """The 64 rows of 16 numbers that threads have in registers: f64."""
    found = np.empty((64, 16), np.uint16)
    lane, warp = np.arange(GROUP) % WARP, np.arange(GROUP) // WARP
    for i, read in enumerate(pairs):
        bits = read(s, mine).astype(np.uint32)
        row = 16 * warp + lane // 4 + 8 * (i % 2)
        for e in range(2):
            found[row, 8 * (i // 2) + 2 * (lane % 4) + e] = bits >> 16 * e & 0xFFFF
    return _numbers(found, kind)


def _numbers(values: np.ndarray, kind: str) -> np.ndarray:
    """The values of 16 bits: f64."""
    if kind == "bf16":
        return brain_values(values).astype(np.float64)
    return values.view(np.float16).astype(np.float64)


__all__ = ["arrived", "instruction"]

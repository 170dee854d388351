"""`mma.sync` and `ldmatrix`: tiles that the lanes of a warp hold together.

Where each lane's elements lie is written down from the PTX ISA's section "Warp-level
matrix instructions": with g = lane / 4 and t = lane % 4,

    m16n8k16, 16 bits   A: rows g and g + 8, columns 2t, 2t + 1 and 8 more
                        B: rows 2t, 2t + 1 and 8 more, column g
    m16n8k8, tf32       A: rows g and g + 8, columns t and t + 4
                        B: rows t and t + 4, column g
    C and D, f32        rows g and g + 8, columns 2t and 2t + 1
"""

from __future__ import annotations

import numpy as np

from .accesses import parts
from .batch import WARP, Batch, Lanes, Step
from .exact import brain_values
from .faults import Fault
from .operands import Names, address, reader, writer
from .program import Instruction
from .types import named

B32, F32 = named("b32"), named("f32")
_GROUP, _IN_GROUP = np.arange(WARP) // 4, np.arange(WARP) % 4
Places = list[tuple[np.ndarray, np.ndarray]]


def _of_c() -> Places:
    """Row and column, in each lane, of c0 to c3."""
    return [(_GROUP + 8 * (i // 2), 2 * _IN_GROUP + i % 2) for i in range(4)]


def _of_a16() -> Places:
    """Of a0 to a7: rows g for 0, 1, 4, 5; columns 2t + (i & 1), 8 more from 4 on."""
    rows = [_GROUP + (0 if i in (0, 1, 4, 5) else 8) for i in range(8)]
    columns = [2 * _IN_GROUP + (i & 1) + (8 if i >= 4 else 0) for i in range(8)]
    return list(zip(rows, columns, strict=True))


def _of_b16() -> Places:
    """Of b0 to b3: `row = 2t + (i & 1), + 8 from 2 on`, `col = g`."""
    rows = [2 * _IN_GROUP + (i & 1) + (8 if i >= 2 else 0) for i in range(4)]
    return [(row, _GROUP) for row in rows]


_OF_A32 = [(_GROUP + 8 * (i % 2), _IN_GROUP + 4 * (i // 2)) for i in range(4)]
_OF_B32 = [(_IN_GROUP + 4 * i, _GROUP) for i in range(2)]
# the words after `mma` -> k, places in A and in B, type of their elements
_SHAPES = {
    f"sync.aligned.m16n8k16.row.col.f32.{t}.{t}.f32": (16, _of_a16(), _of_b16(), t)
    for t in ("f16", "bf16")
}
_SHAPES["sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"] = (
    8,
    _OF_A32,
    _OF_B32,
    "tf32",
)


def product(ins: Instruction, names: Names) -> Step:
    """`mma.sync d, a, b, c`: sums in f64, rounded once, as the order is left open."""
    if ".".join(ins.modifiers) not in _SHAPES:
        raise Fault(f"{ins.text} is not known")
    k, of_a, of_b, kind = _SHAPES[".".join(ins.modifiers)]
    d, a, b, c = ins.operands
    halves = 1 if kind == "tf32" else 2
    read_a = [reader(p, B32, names) for p in parts(a, len(of_a) // halves)]
    read_b = [reader(p, B32, names) for p in parts(b, len(of_b) // halves)]
    read_c = [reader(p, F32, names) for p in parts(c, 4)]
    writes = [writer(p, F32, names) for p in parts(d, 4)]

    def step(s: Batch, ix: Lanes) -> None:
        left = _tile(_elements(s, ix, read_a, kind), of_a, (16, k))
        right = _tile(_elements(s, ix, read_b, kind), of_b, (k, 8))
        given = [s.of_warps(ix, _each(s, ix, read)) for read in read_c]
        total = left @ right + _tile(given, _of_c(), (16, 8))
        for write, (row, column) in zip(writes, _of_c(), strict=True):
            write(s, ix, s.of_threads(ix, total[:, row, column].astype(np.float32)))

    return step


def _each(s: Batch, ix: Lanes, read) -> np.ndarray:
    return np.broadcast_to(read(s, ix), len(s.lanes(ix)))


def _elements(s: Batch, ix: Lanes, reads: list, kind: str) -> list[np.ndarray]:
    """Each register's elements, the lower half first: f64, [warps, 32]."""
    found = []
    for read in reads:
        words = s.of_warps(ix, _each(s, ix, read))
        if kind == "tf32":
            found.append(_tensor_float(words))
            continue
        for part in (words, words >> np.uint32(16)):
            bits = part.astype(np.uint16)
            value = brain_values(bits) if kind == "bf16" else bits.view(np.float16)
            found.append(value.astype(np.float64))
    return found


def _tensor_float(words: np.ndarray) -> np.ndarray:
    if (words & np.uint32(0x1FFF)).any() and not np.isnan(words.view(np.float32)).any():
        raise Fault("an operand of mma is no tf32: its low 13 bits are set")
    return words.view(np.float32).astype(np.float64)


def _tile(
    elements: list[np.ndarray], places: Places, shape: tuple[int, int]
) -> np.ndarray:
    made = np.full((len(elements[0]), *shape), np.nan)
    for values, (row, column) in zip(elements, places, strict=True):
        made[:, row, column] = values
    return made


def load_matrices(ins: Instruction, names: Names) -> Step:
    """`ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 {r, ...}, [a]`.

    Lanes 8i to 8i + 7 have the addresses of the rows of matrix i; of it, lane l gets
    the elements 2(l % 4) and 2(l % 4) + 1 of row l / 4, or, with `.trans`, of column
    l / 4.
    """
    words = [w.replace("shared@cta", "shared") for w in ins.modifiers]
    known = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "b16"}
    if not set(words) <= known:
        raise Fault(f"{ins.text} is not known")
    count = int(words[3][1:])
    writes = [writer(p, B32, names) for p in parts(ins.operands[0], count)]
    where = address(ins.operands[1], names)
    turned = "trans" in words

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        giving = s.slots[lanes] % WARP < 8 * count
        at = where(s, ix)[giving]
        matrices = _rows(s, at, lanes[giving]).reshape(-1, count, 8, 8)
        for number, write in enumerate(writes):
            matrix = matrices[:, number]
            if turned:
                matrix = matrix.transpose(0, 2, 1)
            pairs = matrix[:, _GROUP[:, None], 2 * _IN_GROUP[:, None] + np.arange(2)]
            packed = np.ascontiguousarray(pairs).view(np.uint32)[..., 0]
            write(s, ix, s.of_threads(None, _spread(s, ix, packed))[lanes])

    return step


def _rows(s: Batch, at: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """The eight elements at each address, which is a multiple of 16."""
    words = s.shared.load(at, 8, 2, lanes)
    return np.ascontiguousarray(words.T).view(np.uint16)


def _spread(s: Batch, ix: Lanes, packed: np.ndarray) -> np.ndarray:
    """[warps that take part, 32] put among all warps."""
    made = np.zeros((s.slot_count // WARP, WARP), np.uint32)
    made[s.present(ix).any(axis=1)] = packed
    return made

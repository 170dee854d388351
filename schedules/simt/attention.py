"""Attention on tensor cores: a block of threads for each tile of queries.

    for z, g in bound(..., "block.*"):
        query = alloc(bf16[64, 64], scope="shared")
        result = alloc(f32[64, 64], ...)              # in registers, as fragments
        for t in range(...):                          # copies run ahead
            keys, values = alloc(bf16[2, 64, 64], scope="shared")
            scores += query . keys                    # fragments, from `ldmatrix`
            top, total, weights, result               # lanes exchange along rows
            result += weights . values                # weights stay in registers

The gradient has three such nests, in one of which keys are rows and queries columns.

Each warp has whole rows of scores and of results, so that maxima and sums are those of
four neighbouring lanes. Its weights are distributed as sums of a product are, which is
how another product takes its first operand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP, WARPGROUP
from tensorlang.ir.contents import allocations, blocks, loops
from tensorlang.ir.nodes import (
    Block,
    Buffer,
    Const,
    For,
    Load,
    Reduce,
    Select,
    Seq,
    Store,
)
from tensorlang.ir.visit import nodes_of, walk_statements
from tensorlang.machine.gpus import GROUP_ROWS, OBJECTS, PANEL
from tensorlang.schedules.simt.fragments import (
    QUAD,
    Lanes,
    bind_threads,
    fragment_layout,
    paneled,
    row_layout,
    staged_rows,
    swizzled,
)
from tensorlang.schedules.simt.tensor_contractions import bind_blocks
from tensorlang.schedules.simt.tensor_cores import FORMS
from tensorlang.schedules.tiling import extent, fused
from tensorlang.scheduling import Knobs, Schedule, schedule

_STAGES: Final = (1, 2, 3)
_RINGS: Final = (2, 3, 4, 5)
_USUAL: Final = 4  # stages of a ring
_WARPS: Final = 4  # of a block, each with whole rows
_STEP: Final = 16  # rows of a warp of a warpgroup
_OPERANDS: Final = 2  # operands of a product
_PAIR: Final = 2  # products during which the rest of a step runs


@schedule("attention", algorithm="tiles", model="simt")
def tiles(s: Schedule, knobs: Knobs) -> None:
    """Products of fragments, and everything else on the fragments."""
    for n, nest in enumerate(_nests(s)):
        _scheduled(s, knobs, _Nest.of(nest, _WARPS), f"_{n}" if n else "")


@schedule("attention", algorithm="group_tiles", model="simt")
def group_tiles(s: Schedule, knobs: Knobs) -> None:
    """Products of warpgroups, and everything else on their sums.

    A producer copies in bulk, if what it copies is not computed by a launch.
    """
    for n, nest in enumerate(_nests(s)):
        _scheduled(s, knobs, _Nest.of(nest), f"_{n}" if n else "")


def _nests(s: Schedule) -> Iterator[For]:
    """The loops of each launch."""
    body = s.function.body
    steps = body.stmts if isinstance(body, Seq) else (body,)
    return (step for step in steps if isinstance(step, For))


@frozen
class _Nest:
    """The loops of a launch, over tiles of rows and of columns.

    Attributes:
        blocks: What is computed, or copied.
        held: The temporaries.
        copies: Those that are copied from arrays, and by which block.
        around: The loops around tiles of columns, these last.
        outer: The number of those that are bound to blocks of threads.
        warps: Warps of a block, each with whole rows.
        groups: Whether warpgroups multiply.
    """

    blocks: tuple[Block, ...]
    held: tuple[Buffer, ...]
    copies: Mapping[Buffer, Block]
    around: tuple[For, ...]
    outer: int
    warps: int
    groups: bool

    @classmethod
    def of(cls, nest: For, warps: int = 0) -> _Nest:
        """The parts of a launch; without a number of warps, of warpgroups."""
        around = tuple(loop for loop in loops(nest) if any(allocations(loop)))
        outer = next(n for n, x in enumerate(around, 1) if isinstance(x.body, Seq))
        every, held = tuple(blocks(nest)), tuple(allocations(nest))
        copies = {_written(b): b for b in every if _is_copy(b, held)}
        rows = max(_shape(_written(b))[0] for b in every if _is_product(b))
        given = warps or rows // _STEP
        return cls(every, held, copies, around, outer, given, not warps)

    @property
    def staged(self) -> tuple[Buffer, ...]:
        """The copies of tiles of columns."""
        return tuple(x for x in allocations(self.around[-1]) if x in self.copies)

    def bytes(self, stages: int) -> int:
        """The bytes of shared memory, with so many copies of tiles of columns."""
        fixed = sum(_bytes(x) for x in self.copies if x not in self.staged)
        return fixed + stages * sum(map(_bytes, self.staged))

    def lanes(self, buffer: Buffer) -> Lanes:
        """The distribution of a tile's elements: whole rows for each warp."""
        rows, columns = _shape(buffer)
        return Lanes((rows, columns), (self.warps, 1))


def _scheduled(s: Schedule, knobs: Knobs, nest: _Nest, again: str) -> None:
    """Schedule a launch."""
    names, steps = [loop.var.name for loop in nest.around], nest.around[-1]
    roles = _in_roles(s, knobs, nest, again)
    stages = _stages(s, knobs, nest, again, roles=roles)
    for buffer in nest.held:
        s.set_scope(buffer.name, "shared")
        if buffer not in nest.copies:
            s.transform_layout(buffer.name, _layout(buffer, nest))
    for buffer, block in nest.copies.items():
        if roles:
            _apart(s, block, buffer, nest)
        else:
            _staged(s, block, buffer, nest)
    for block in nest.blocks:
        inner = [loop for loop in s.loops(block.name) if loop not in names]
        if _is_product(block):
            _multiplied(s, block, inner, nest)
        elif _written(block) not in nest.copies:
            _distributed(s, block, inner, nest)
    bind_blocks(s, names[: nest.outer])
    if stages > 1:
        flight = _in_flight(knobs, nest, again, stages) if roles else 0
        s.pipeline(steps.var.name, stages, roles=roles, in_flight=flight)


def _in_roles(s: Schedule, knobs: Knobs, nest: _Nest, again: str) -> bool:
    """The knob: whether a producer copies in bulk; it does so from parameters."""
    given = {x for buffer in nest.staged for x in _sources(nest.copies[buffer])}
    room = s.target.shared_bytes if s.target else 0
    able = given <= set(s.function.buffers) and nest.bytes(2) + OBJECTS <= room
    return nest.groups and able and knobs.flag(f"roles{again}", default=True)


def _stages(s: Schedule, knobs: Knobs, nest: _Nest, again: str, *, roles: bool) -> int:
    """The knob: copies of tiles of columns."""
    room = s.target.shared_bytes if s.target else 0
    if roles:
        room -= OBJECTS
        fit = [stages for stages in _RINGS if nest.bytes(stages) <= room]
        usual = min(_USUAL, fit[-1])
        why = "as many as fit, up to what copies take"
        return knobs.choice(f"stages{again}", fit, default=usual, why=why)
    default = 2 if nest.bytes(2) <= room else 1
    why = "two if a block has room for them"
    return knobs.choice(f"stages{again}", _STAGES, default=default, why=why)


def _in_flight(knobs: Knobs, nest: _Nest, again: str, stages: int) -> int:
    """The knob: whether both products of a step go on during the rest of it."""
    if sum(map(_is_product, nest.blocks)) != _PAIR:
        return 0
    # the stage of the second one is freed a step later
    default = int(stages > _PAIR)
    return knobs.choice(f"in_flight{again}", (0, 1), default=default)


def _sources(block: Block) -> list[Buffer]:
    """What a copy reads."""
    return [load.buffer for load in nodes_of(_update(block).value, Load)]  # type: ignore[union-attr]


def _update(block: Block) -> Store | Reduce:
    """The last store or reduction of a block."""
    below = walk_statements(block.body)
    return [stmt for stmt in below if isinstance(stmt, Store | Reduce)][-1]


def _written(block: Block) -> Buffer:
    """What a block writes last."""
    update = _update(block)
    return update.buffers[0] if isinstance(update, Reduce) else update.buffer


def _is_copy(block: Block, held: Collection[Buffer]) -> bool:
    """Whether a block copies rows of an array to what a tile of it holds."""
    update, made = _update(block), _written(block)
    value = update.value if isinstance(update, Store) else None
    if isinstance(value, Select):  # zero beyond the last row
        value = value.a
    if not isinstance(value, Load) or value.buffer in held or made not in held:
        return False
    return value.indices[-1] == block.axes[-1].var


def _is_product(block: Block) -> bool:
    """Whether a block adds products of two operands."""
    update = _update(block)
    if not isinstance(update, Reduce) or _shape(_written(block))[-1] == QUAD:
        return False
    return len(set(nodes_of(update.values[0], Load))) == _OPERANDS


def _shape(buffer: Buffer) -> tuple[int, ...]:
    """The sizes of a temporary, which are known."""
    known = [size.value for size in buffer.shape if isinstance(size, Const)]
    assert len(known) == len(buffer.shape)
    return tuple(map(int, known))


def _bytes(buffer: Buffer) -> int:
    """The bytes of a temporary."""
    return prod(_shape(buffer)) * buffer.dtype.bits // 8


def _layout(buffer: Buffer, nest: _Nest) -> str:
    """The layout of fragments, or of what belongs to their rows."""
    lanes = nest.lanes(buffer)
    return row_layout(lanes) if _shape(buffer)[-1] == QUAD else fragment_layout(lanes)


def _ways(block: Block, copies: Collection[Buffer]) -> list[str]:
    """How a product takes operands: those that are no copies are in registers."""
    first, second = nodes_of(_update(block).values[0], Load)  # type: ignore[union-attr]
    turned = second.indices[0] == block.axes[-1].var
    return ["" if first.buffer in copies else "_ar", "_bt" if turned else ""]


def _rows(buffer: Buffer, nest: _Nest) -> str:
    """The layout of rows in shared memory, as products read them."""
    _, columns = _shape(buffer)
    if nest.groups and columns % PANEL == 0:
        return paneled()
    return swizzled(columns, FORMS[buffer.dtype.name].chunk)


def _staged(s: Schedule, block: Block, buffer: Buffer, nest: _Nest) -> None:
    """A copy in shared memory, by all threads that have a part of it."""
    rows, columns = _shape(buffer)
    chunk = FORMS[buffer.dtype.name].chunk
    threads = min(nest.warps * WARP, rows * columns // chunk)
    layout = _rows(buffer, nest)
    staged_rows(s, block.name, buffer.name, layout, threads=threads, chunk=chunk)


def _apart(s: Schedule, block: Block, buffer: Buffer, nest: _Nest) -> None:
    """A copy in shared memory, in bulk, or by each warpgroup of its own rows."""
    s.transform_layout(buffer.name, _rows(buffer, nest))
    if buffer in nest.staged:
        return
    _, columns = _shape(buffer)
    chunk = FORMS[buffer.dtype.name].chunk
    each = GROUP_ROWS * columns // chunk // WARPGROUP
    whole = fused(s, s.loops(block.name)[-2:])
    group, steps, thread, lane = s.split(whole, [None, each, WARPGROUP, chunk])
    s.reorder(group, thread, steps, lane)
    s.bind(fused(s, [group, thread]), "thread.x")
    s.unroll(steps)
    s.vectorize(lane)


def _multiplied(s: Schedule, block: Block, inner: Sequence[str], nest: _Nest) -> None:
    """A product of fragments, or of warpgroups."""
    row, column, step = inner
    if nest.groups:
        group, _ = s.split(row, [None, GROUP_ROWS])
        s.tensorize(group, "warpgroup")
        return
    lanes = nest.lanes(_written(block))
    form = FORMS[s.function.buffers[0].dtype.name]
    if block.init is None:
        lanes.share(s, s.decompose_reduction(block.name, row))
    i, j = s.split(row, lanes.split(0)), s.split(column, lanes.split(1))
    k, *ks = s.split(step, [None, form.step])
    threads, own = lanes.order(i, j)
    s.reorder(*threads, k, *own, *ks)
    bind_threads(s, threads, [k, *own[:2]])
    ways = _ways(block, nest.copies)
    s.tensorize(own[2], form.instruction(ways, swapped=False))


def _distributed(s: Schedule, block: Block, inner: Sequence[str], nest: _Nest) -> None:
    """Distribute a block over the threads that have its elements."""
    row, column, *folded = inner
    rows, columns = extent(s, row) or 0, extent(s, column) or 0
    lanes = Lanes((rows, columns), (nest.warps, 1))
    if columns != QUAD:
        lanes.share(s, block.name)
    elif isinstance(update := _update(block), Reduce) and _is_of_lanes(update):
        _of_rows(s, lanes, inner)
        s.tensorize(folded[0], f"quad_{update.reducer.name}")
    else:
        if folded and block.init is None:
            init = s.decompose_reduction(block.name, row)
            _of_rows(s, lanes, s.loops(init)[-2:])
        _of_rows(s, lanes, inner)
        for loop in folded:
            s.unroll(loop)


def _is_of_lanes(update: Reduce) -> bool:
    """Whether what lanes that share a row have is reduced."""
    value = update.values[0]
    return isinstance(value, Load) and _shape(value.buffer)[-1] == QUAD


def _of_rows(s: Schedule, lanes: Lanes, inner: Sequence[str]) -> None:
    """Distribute what belongs to rows over the lanes that share them."""
    row, lane, *folded = inner
    i = s.split(row, lanes.split(0))
    threads, own = [i[0], i[3], lane], [i[1], i[2]]
    s.reorder(*threads, *own, *folded)
    bind_threads(s, threads, own)

"""Memory traffic of one thread block, counted statically from a launch's IR.

Addresses are evaluated for all threads of the first block in the first iteration of
their loops, as a sample of all others; trip counts are those of all blocks. A warp's
access to device memory costs the sectors its lanes touch; a shared-memory access costs
as many passes as words in its busiest bank. With data-dependent indices, each lane is
assumed to touch a separate sector. Repeated loads between loops, barriers and stores
count once, as compilers eliminate them. Bulk copies and products of warpgroups, which
no thread's own accesses show, are counted by their sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.codegen.hopper.effects import TensorMap, is_mapped
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP, WARPGROUP
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import DType, u64
from tensorlang.ir.gpu_effects import GPU_EFFECTS
from tensorlang.ir.visit import children, walk
from tensorlang.machine.gpus import GROUP_ROWS, GROUP_STEPS, LINE

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.ir.nodes import Stmt

Lanes = np.ndarray
Counts = dict[int, float]
SECTOR: Final = 32  # bytes, the granularity of device memory
_BANKS: Final = 32
_WORD: Final = 4
_TURNS: Final = 16  # assumed trip count of a loop whose end depends on data

_OPERATIONS: Final[dict[str, Callable[..., Lanes]]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "floordiv": lambda a, b: a // np.where(b == 0, 1, b),
    "floormod": lambda a, b: a % np.where(b == 0, 1, b),
    "min": np.minimum, "max": np.maximum,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "neg": np.negative, "not": np.invert, "abs": np.abs,
}  # fmt: skip


class Unknown(Exception):  # noqa: N818 - a value that depends on data
    """An expression depends on the content of memory."""


@dataclass(slots=True)
class Traffic:
    """Memory traffic of one block of a launch."""

    # device memory sectors, by buffer; the mean over all blocks
    sectors: dict[ir.Buffer, float] = field(default_factory=lambda: defaultdict(float))
    passes: float = 0.0  # shared memory passes
    loads: float = 0.0  # device memory loads, per warp and instruction
    moved: float = 0.0  # bytes moved by threads, to and from both memories
    barriers: float = 0.0  # barriers that a block waits at
    copies: float = 0.0  # bulk copies
    # instructions of warps for products of warpgroups, asynchronous
    products: float = 0.0
    # multiply-adds of these by each warpgroup
    multiplied: Counts = field(default_factory=lambda: defaultdict(float))
    # waits for a stage of a ring, by each warp
    steps: Counts = field(default_factory=lambda: defaultdict(float))
    stages: int = 1  # stages of the ring
    in_flight: bool = False  # whether products go on while the next step begins


def traffic(launch: Launch, sizes: Mapping[str, int]) -> Traffic:
    """The traffic of one block of a launch, given values of the host's names."""
    number = np.arange(prod(launch.block), dtype=np.int64)
    values: dict[str, Any] = dict(sizes)
    values |= {loop.var.name: np.int64(0) for loop in launch.blocks}
    x, y, _ = launch.block
    places = {"x": number % x, "y": number // x % y, "z": number // (x * y)}
    for loop in launch.threads:
        assert loop.thread is not None
        values[loop.var.name] = places[loop.thread[-1]]
    grid = {loop.var: loop.extent for loop in launch.blocks}
    counted = _Counted(values, number // WARP, set(launch.shared), grid)
    counted.statement(launch.body, 1.0, np.ones(len(number), np.bool_))
    return counted.traffic


@dataclass(slots=True)
class _Counted:
    """A walk over a thread's code, for all threads of a block at once."""

    values: dict[str, Any]
    warps: Lanes
    shared: set[ir.Buffer]
    grid: Mapping[ir.Var, ir.Expr]
    share: float = 1.0  # of iterations that all blocks have on average
    traffic: Traffic = field(default_factory=Traffic)
    held: set[ir.Load] = field(default_factory=set)  # currently in registers

    def statement(self, stmt: Stmt, times: float, active: Lanes) -> None:
        """Count a statement that the active threads run `times` times."""
        match stmt:
            case ir.Seq(stmts=parts):
                for part in parts:
                    self.statement(part, times, active)
                return
            case ir.For():
                self._expressions((stmt.extent,), times, active)
                most, share = self._turns(stmt.extent)
                turns = times * most
                self.values[stmt.var.name] = np.int64(0)
                before, self.share = self.share, self.share * share
                if turns:
                    self._inside(stmt.body, turns, active)
                self.share = before
                return
            case ir.While():
                self._expressions((stmt.cond,), times * _TURNS, active)
                self._inside(stmt.body, times * _TURNS, active)
                return
            case ir.If():
                self._branch(stmt, times, active)
                return
            case ir.Let():
                try:
                    self.values[stmt.var.name] = self.value(stmt.value)
                except Unknown:
                    self.values.pop(stmt.var.name, None)
            case ir.Store() | ir.AtomicUpdate():
                lanes = stmt.value.dtype.lanes
                self._access(stmt.buffer, stmt.indices[0], lanes, times, active)
            case ir.Evaluate(expr=ir.Call(name=name) as call) if name in GPU_EFFECTS:
                self._effect(call, times, active)
                return
            case ir.Barrier():
                self.traffic.barriers += times
                self.held.clear()
            case _:
                pass
        self._expressions(children(stmt), times, active)
        if isinstance(stmt, (ir.Store, ir.AtomicUpdate)):
            self.held = {load for load in self.held if load.buffer != stmt.buffer}

    def _inside(self, body: Stmt, times: float, active: Lanes) -> None:
        """A loop body, which keeps no registers between iterations."""
        self.held.clear()
        self.statement(body, times, active)
        self.held.clear()

    def _expressions(
        self, nodes: Iterable[ir.Node | None], times: float, active: Lanes
    ) -> None:
        for node in nodes:
            if not isinstance(node, ir.Expr):
                continue
            for load in walk(node):
                if isinstance(load, ir.Load) and load not in self.held:
                    self.held.add(load)
                    self._access(
                        load.buffer, load.indices[0], load.dtype.lanes, times, active
                    )
                    if load.buffer.scope == "global":
                        warps = len(np.unique(self.warps[active]))
                        self.traffic.loads += times * warps

    def _turns(self, extent: ir.Expr) -> tuple[float, float]:
        """A loop's trip count in the busiest block, and the part that all have of it.

        If counts differ by more than one, as those of causal attention do, blocks are
        many, and processors have some of each: then it is the mean.
        """
        own = free_vars(extent) & self.grid.keys()
        try:
            first = float(np.max(self.value(extent)))
            if len(own) != 1:
                return first, 1.0
            (var,) = own
            count = int(np.max(self.value(self.grid[var])))
        except Unknown:
            return _TURNS, 1.0
        before = self.values[var.name]
        self.values[var.name] = np.arange(count)[:, None]
        turns = np.maximum(self.value(extent), 0).max(axis=-1)
        self.values[var.name] = before
        most, mean = float(np.max(turns)), float(np.mean(turns))
        if most - np.min(turns) > 1:
            return mean, 1.0
        return most, mean / max(most, 1)

    def _branch(self, stmt: ir.If, times: float, active: Lanes) -> None:
        self._expressions((stmt.cond,), times, active)
        try:
            taken = active & np.broadcast_to(self.value(stmt.cond), active.shape)
            other = active & ~taken
        except Unknown:
            taken = other = active
        before = set(self.held)
        if taken.any():
            self.statement(stmt.then, times, taken)
        self.held &= before
        if stmt.orelse is not None and other.any():
            self.statement(stmt.orelse, times, other)
        self.held &= before

    def _access(
        self, buffer: ir.Buffer, index: ir.Expr, lanes: int, times: float, active: Lanes
    ) -> None:
        """Count one load or store by the active threads."""
        in_shared = buffer in self.shared
        if not in_shared and buffer.scope in ("register", "private"):
            return
        warps, size = self.warps[active], lanes * buffer.dtype.bytes
        self.traffic.moved += times * size * len(warps)
        try:
            first = np.broadcast_to(self.value(_base(index)), active.shape)[active]
        except Unknown:
            first = None
        if in_shared:
            self.traffic.passes += times * _passes(warps, first, buffer.dtype, size)
            return
        self.traffic.sectors[buffer] += (
            self.share * times * _sectors(warps, first, buffer.dtype, size)
        )

    def _effect(self, call: ir.Call, times: float, active: Lanes) -> None:
        """Count an instruction of Hopper; a copy is issued by one thread of a warp."""
        traffic, args = self.traffic, call.args
        warps = np.unique(self.warps[active]).tolist()
        match call.name:
            case _ if is_mapped(call):
                copy, count = TensorMap.of(call), times * len(warps)
                size = count * prod(copy.box) * copy.buffer.dtype.bytes
                traffic.sectors[copy.buffer] += self.share * size / SECTOR
                traffic.passes += size / LINE
                traffic.copies += count
                if isinstance(ring := args[1], ir.Load) and ring.dtype == u64:
                    traffic.stages = int(np.max(self.value(ring.buffer.shape[0])))
            case "warpgroup_product":
                columns, steps = (int(np.max(self.value(arg))) for arg in args[:2])
                tiles = [tile for tile in args if isinstance(tile, ir.Load)][1:]
                traffic.products += times * steps * len(warps)
                traffic.in_flight = not np.any(self.value(args[-1]))
                sides = zip((GROUP_ROWS, columns), tiles, strict=True)
                read = sum(n * GROUP_STEPS * tile.dtype.bytes for n, tile in sides)
                groups = {warp * WARP // WARPGROUP for warp in warps}
                traffic.passes += times * steps * read / LINE * len(groups)
                for group in groups:
                    traffic.multiplied[group] += (
                        times * steps * GROUP_ROWS * columns * GROUP_STEPS
                    )
            case "wait_phase":
                for warp in warps:
                    traffic.steps[warp] += times
            case "group_barrier":
                traffic.barriers += times

    def value(self, expr: ir.Expr) -> Any:
        """Evaluate an expression for all threads; Unknown if it depends on data."""
        match expr:
            case ir.Const(value=known):
                return np.asarray(known, expr.dtype.numpy)
            case ir.Var(name=name) if name in self.values:
                return self.values[name]
            case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b):
                return _OPERATIONS[op](self.value(a), self.value(b))
            case ir.Unary(op=op, a=a):
                return _OPERATIONS[op](self.value(a))
            case ir.Select(cond=cond, a=a, b=b):
                return np.where(self.value(cond), self.value(a), self.value(b))
            case ir.Cast(a=a):
                return np.asarray(self.value(a)).astype(expr.dtype.numpy)
        raise Unknown


def _base(index: ir.Expr) -> ir.Expr:
    """The first element of a vector access."""
    if isinstance(index, ir.Ramp):
        return index.base
    return index.value if isinstance(index, ir.Splat) else index


def _sectors(warps: Lanes, first: Lanes | None, dtype: DType, size: int) -> int:
    """Sectors touched, summed over warps."""
    each = -(-size // SECTOR)
    if first is None:
        return len(warps) * each
    start = first * dtype.bytes
    touched = [start // SECTOR, (start + size - 1) // SECTOR]
    pairs = np.concatenate([warps * (1 << 40) + part for part in touched])
    return int(len(np.unique(pairs)) * max(each / 2, 1))


def _passes(warps: Lanes, first: Lanes | None, dtype: DType, size: int) -> int:
    """Bank passes, summed over warps."""
    words = max(size // _WORD, 1)
    if first is None:
        return len(np.unique(warps)) * words
    start = first * dtype.bytes // _WORD
    every = (start[:, None] + np.arange(words)).ravel()
    owners = np.repeat(warps, words)
    distinct = np.unique(np.stack([owners, every]), axis=1)
    _, loads = np.unique(
        distinct[0] * _BANKS + distinct[1] % _BANKS, return_counts=True
    )
    busiest = np.zeros(int(warps.max()) + 1, np.int64)
    used = np.unique(distinct[0] * _BANKS + distinct[1] % _BANKS) // _BANKS
    np.maximum.at(busiest, used, loads)
    return int(busiest.sum())

"""Reject candidates that are not worth building or running.

Code unrolled thousands of times takes minutes to compile and exceeds every instruction
cache; a thread's stack is limited; a GPU's block is limited in threads, registers and
shared memory. These limits are checked on the scheduled IR and its launches before
compiling. Register allocation and spills are checked after compiling.
"""

from __future__ import annotations

from functools import singledispatch
from math import prod
from typing import TYPE_CHECKING, Final

from tensorlang import lazy
from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import children, walk
from tensorlang.machine.gpus import MOST_REGISTERS, REGISTER_FILE, gpu_of
from tensorlang.targets import Target

with lazy.modules(__name__):  # for GPUs only
    from tensorlang.codegen.simt import host
    from tensorlang.codegen.simt import lower as lowering

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.runtime import Kernel

MOST_OPERATIONS: Final = 60_000  # unrolled vector operations in one kernel
MOST_STACK: Final = 256 << 10  # bytes of one thread's registers and private arrays
_ON_STACK: Final = ("register", "private")


def refusal(func: ir.Function, target: Target) -> str:
    """Why a scheduled function is not worth building; else empty."""
    stack = sum(_bytes(stmt) for stmt in walk(func.body) if isinstance(stmt, ir.Alloc))
    if stack > MOST_STACK:
        return (
            f"its temporaries take {stack} bytes of a thread's stack, "
            f"more than {MOST_STACK}"
        )
    operations = _written_out(func.body, 1, target.vector_bits)
    if target.model == "simt":  # a GPU's addresses are sums of a few constants
        operations -= _addressing(func.body, 1, target.vector_bits)
    if operations > MOST_OPERATIONS:
        return (
            f"its loops unroll to {operations} vector operations, "
            f"more than {MOST_OPERATIONS}"
        )
    if target.kind != "llvm":
        made = host.launches(lowering.lower(func, target))
        reasons = (_too_large(each, target) for each in made)
        return next(filter(None, reasons), "")
    return ""


def _too_large(launch: Launch, target: Target) -> str:
    """Why a block of a launch exceeds the target's limits; else empty."""
    threads = prod(launch.block)
    if threads > target.block_threads:
        return (
            f"a block of {launch.name} has {threads} threads, and {target.name} takes "
            f"at most {target.block_threads}"
        )
    shared = sum(map(_size, launch.shared))
    if shared > target.shared_bytes:
        return (
            f"a block of {launch.name} shares {shared} bytes, and {target.name} has "
            f"{target.shared_bytes}"
        )
    if target.kind != "cuda":
        return ""
    registers = -(-_held(launch.body) // 4)
    if registers > MOST_REGISTERS or registers * threads > REGISTER_FILE:
        return (
            f"a thread of {launch.name} holds {registers} registers of accumulators "
            f"alone; the limit is {min(MOST_REGISTERS, REGISTER_FILE // threads)}"
        )
    return ""


def _held(stmt: ir.Node) -> int:
    """The maximum bytes of registers that a thread holds at once."""
    below = [_held(child) for child in children(stmt) if isinstance(child, ir.Stmt)]
    own = (c for c in children(stmt) if isinstance(c, ir.Alloc))
    kept = sum(_size(c.buffer) for c in own if c.buffer.scope == "register")
    return kept + max(below, default=0)


def overrun(kernel: Kernel) -> str:
    """Why a compiled kernel is not worth running; else empty."""
    gpu = gpu_of(kernel.target)
    if gpu is None:
        return ""
    told = kernel.resources
    if spilled := told.get("spill_bytes", 0):
        return f"its registers do not suffice: {spilled} bytes are spilled"
    registers = told.get("registers", 0)
    for launch in host.launches(kernel.lowered):
        threads, shared = prod(launch.block), sum(map(_size, launch.shared))
        if not gpu.resident(threads, registers, shared):
            return (
                f"no processor holds a block of {launch.name}: {threads} threads of "
                f"{registers} registers, and {shared} bytes of shared memory"
            )
    return ""


def _bytes(stmt: ir.Alloc) -> int:
    return _size(stmt.buffer) if stmt.buffer.scope in _ON_STACK else 0


def _size(buffer: ir.Buffer) -> int:
    """Bytes of a buffer; unknown sizes count as one."""
    extents = (int(e.value) if isinstance(e, ir.Const) else 1 for e in buffer.shape)
    return buffer.dtype.bytes * prod(extents)


@singledispatch
def _written_out(node: ir.Node, lanes: int, vector_bits: int) -> int:
    return sum(_written_out(child, lanes, vector_bits) for child in children(node))


@_written_out.register
def _(loop: ir.For, lanes: int, vector_bits: int) -> int:
    extent = int(loop.extent.value) if isinstance(loop.extent, ir.Const) else 1
    if loop.kind == "vectorized":
        return _written_out(loop.body, lanes * extent, vector_bits)
    times = extent if loop.kind == "unrolled" else 1
    return times * _written_out(loop.body, lanes, vector_bits)


def _addressing(node: ir.Node, lanes: int, vector_bits: int) -> int:
    """How many of these compute addresses."""
    if isinstance(node, ir.For):
        extent = int(node.extent.value) if isinstance(node.extent, ir.Const) else 1
        if node.kind == "vectorized":
            return _addressing(node.body, lanes * extent, vector_bits)
        times = extent if node.kind == "unrolled" else 1
        return times * _addressing(node.body, lanes, vector_bits)
    if isinstance(node, ir.Axis):
        return _written_out(node, lanes, vector_bits)
    places = node.indices if isinstance(node, (ir.Load, ir.Store)) else ()
    count = sum(_written_out(place, lanes, vector_bits) for place in places)
    others = (c for c in children(node) if not any(c is place for place in places))
    return count + sum(_addressing(c, lanes, vector_bits) for c in others)


@_written_out.register
def _(expr: ir.Expr, lanes: int, vector_bits: int) -> int:
    registers = -(-lanes * expr.dtype.bits // vector_bits)
    below = (c for c in children(expr) if isinstance(c, (ir.Expr, ir.Stmt)))
    return registers + sum(_written_out(child, lanes, vector_bits) for child in below)

"""The host program of a lowered function: its launches, and the control flow around.

It is JSON-serialisable, to be stored with the compiled code:

    {"launches": [{"name": .., "grid": [..], "block": [..], "args": [..]}, ..],
     "program": [["launch", 0], ["for", "k", extent, [..]], ["let", "m", value],
                 ["if", cond, [..], [..]]],
     "scalars": [names in calling order],
     "alignments": [bytes that each parameter's address is a multiple of]}

Numbers are integers, names, or `[op, a, b]` over these. An argument is a parameter by
position, a temporary by name and size in bytes, a scalar by name and type, the place
where checks report, or a tensor map of a parameter, by position, or of a temporary, by
name. A tensor map is 128 bytes, aligned to 64 and passed by value, which
`cuTensorMapEncodeTiled` makes from the array's address, extents, box and swizzle.
`dynamic_shared` is a launch's dynamic shared memory in bytes; above 48 KiB the kernel's
limit must be raised first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Final, TypeAlias

from tensorlang.codegen.folding import mul, product
from tensorlang.codegen.hopper.effects import TensorMap, is_mapped, mapped, tensor_maps
from tensorlang.codegen.simt.alignment import alignments
from tensorlang.codegen.simt.launches import is_launch
from tensorlang.codegen.simt.threads import BLOCKS, THREADS
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, contents, free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import children, nodes_of, rebuild_statements

Data: TypeAlias = Any
STATIC_SHARED: Final = 48 << 10  # bytes of static shared memory per kernel
SHARED_ALIGNMENT: Final = 1024  # of swizzled tiles
PRIVATE_BYTES: Final = 2048  # per thread; larger buffers are in the workspace
REGISTERS: Final = 1 << 16  # per SM
SHARED: Final = 163 << 10  # bytes per SM, at least
_HELD: Final = 64  # values per thread from which occupancy is constrained
_BESIDES: Final = 64  # registers per thread for everything else
_MOST: Final = 256  # registers per thread


@dataclass(frozen=True)
class Launch:
    """One launch of a lowered function."""

    name: str  # name of its kernel in the source
    nest: ir.For  # its loops over blocks and threads, with the body
    function: ir.Function  # lowered function

    @cached_property
    def parts(
        self,
    ) -> tuple[tuple[ir.For, ...], tuple[ir.Stmt, ...], tuple[ir.For, ...], ir.Stmt]:
        """Block loops, per-block allocations, thread loops, body."""
        found: dict[tuple[str, ...], list[ir.For]] = {BLOCKS: [], THREADS: []}
        scratch: tuple[ir.Stmt, ...] = ()
        body: ir.Stmt = self.nest
        for indices in (BLOCKS, THREADS):
            while isinstance(body, ir.For) and body.thread in indices:
                found[indices].append(body)
                body = body.body
            if indices is BLOCKS and isinstance(body, ir.Seq):
                *first, body = body.stmts
                scratch = tuple(first)
        return tuple(found[BLOCKS]), scratch, tuple(found[THREADS]), body

    @property
    def blocks(self) -> tuple[ir.For, ...]:
        """The loops over blocks, outermost first."""
        return self.parts[0]

    @property
    def threads(self) -> tuple[ir.For, ...]:
        """The loops over the threads of a block, outermost first."""
        return self.parts[2]

    @property
    def shared(self) -> tuple[ir.Buffer, ...]:
        """Buffers in shared memory."""
        found = [s.buffer for s in self.parts[1] if isinstance(s, ir.Alloc)]
        return tuple(b for b in found if b.scope == "shared")

    @cached_property
    def shared_offsets(self) -> dict[ir.Buffer, int]:
        """Offsets of shared buffers in dynamic shared memory.

        Empty if they fit in static shared memory.
        """
        found: dict[ir.Buffer, int] = {}
        end = 0
        for buffer in self.shared:
            found[buffer] = -(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
            end = found[buffer] + _bytes(buffer)
        return found if end > STATIC_SHARED else {}

    @property
    def dynamic_shared(self) -> int:
        """Bytes of dynamic shared memory."""
        ends = (at + _bytes(buffer) for buffer, at in self.shared_offsets.items())
        return max(ends, default=0)

    @cached_property
    def resident(self) -> int:
        """Minimum blocks per SM; 0 if unconstrained.

        For threads that hold many values throughout (accumulators of a tile), as many
        as there are registers for, at twice the values plus some, so that some blocks
        compute while others wait. For blocks that reallocate registers, one: ptxas
        honours `setmaxnreg` only if the number of registers is determined.
        """
        if "set_registers" in contents(self.body).calls:
            return 1
        items = self.body.stmts if isinstance(self.body, ir.Seq) else ()
        own = (item.buffer for item in items if isinstance(item, ir.Alloc))
        held = sum(_bytes(buffer) // 4 for buffer in own if is_private(buffer))
        if held < _HELD or not self.shared:
            return 0
        shared = sum(_bytes(buffer) for buffer in self.shared)
        registers = prod(self.block) * min(2 * held + _BESIDES, _MOST)
        blocks = min(REGISTERS // registers, SHARED // shared)
        return blocks if blocks > 1 else 0

    @cached_property
    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """The tensor maps of its bulk copies."""
        return tensor_maps(self.nest)

    @property
    def body(self) -> ir.Stmt:
        """The body of each thread."""
        return self.parts[3]

    @cached_property
    def scratch(self) -> dict[ir.Buffer, str]:
        """Buffers in the workspace, and whether each is per `block` or per `thread`."""
        blocks = [s.buffer for s in self.parts[1] if isinstance(s, ir.Alloc)]
        found = {b: "block" for b in blocks if b.scope != "shared"}
        inner = (b for b in allocations(self.body) if not is_private(b))
        return found | dict.fromkeys(inner, "thread")

    @cached_property
    def buffers(self) -> tuple[ir.Buffer, ...]:
        """Its buffer arguments in order of use, parameters first."""
        own = {*self.shared, *filter(is_private, allocations(self.body))}
        used = dict.fromkeys(b for b in _used(self.nest) if b not in own)
        given = self.function.buffers
        return (*(b for b in given if b in used), *(b for b in used if b not in given))

    @cached_property
    def scalars(self) -> tuple[ir.Var, ...]:
        """Its scalar arguments: the function's, then those the host computes."""
        used = free_vars(self.nest)
        for buffer in self.scratch:
            used |= free_vars(buffer)
        bound = {loop.var for loop in (*self.blocks, *self.threads)}
        own = [var for var in self.function.scalars if var in used]
        rest = used - set(own) - bound
        return (*own, *sorted(rest, key=lambda var: var.name))

    @property
    def checks(self) -> bool:
        """Whether it may report a fault."""
        return any(map(_is_check, nodes_of(self.body, ir.Evaluate)))

    @property
    def grid(self) -> tuple[ir.Expr, ...]:
        """Number of blocks along x, y and z."""
        return tuple(_extent(self.blocks, index) for index in BLOCKS)

    @property
    def block(self) -> tuple[int, ...]:
        """Threads per block along x, y and z."""
        sizes = (_extent(self.threads, index) for index in THREADS)
        return tuple(int(size.value) for size in sizes if isinstance(size, ir.Const))

    def data(self) -> dict[str, Data]:
        """The launch as data for the runtime."""
        args: list[Data] = [self._map(given) for given in self.tensor_maps]
        args += [self._buffer(buffer) for buffer in self.buffers]
        args += [["scalar", var.name, str(var.dtype)] for var in self.scalars]
        if self.checks:
            args.append(["faults"])
        made = {
            "name": self.name,
            "grid": [data_of(extent) for extent in self.grid],
            "block": list(self.block),
            "args": args,
        }
        dynamic = self.dynamic_shared
        return {**made, "dynamic_shared": dynamic} if dynamic else made

    def _map(self, given: TensorMap) -> Data:
        numbers = {
            "dtype": str(given.buffer.dtype),
            "shape": list(map(data_of, given.shape)),
            "box": list(given.box),
            "swizzle": given.swizzle,
        }
        _, place, *_ = self._buffer(given.buffer)
        return ["tensor_map", place, numbers]

    def _buffer(self, buffer: ir.Buffer) -> Data:
        if buffer in self.function.buffers:
            return ["param", self.function.buffers.index(buffer)]
        size = mul(product(buffer.shape), ir.as_expr(buffer.dtype.bytes))
        owner = self.scratch.get(buffer, "")
        if owner:
            size = mul(size, product(self.grid))
        if owner == "thread":
            size = mul(size, product(tuple(ir.as_expr(n) for n in self.block)))
        return ["temporary", buffer.name, data_of(size)]


def _bytes(buffer: ir.Buffer) -> int:
    """Size in bytes of a buffer of constant extent."""
    (extent,) = buffer.shape or (ir.as_expr(1),)
    assert isinstance(extent, ir.Const)
    return int(extent.value) * buffer.dtype.bytes


def _extent(around: tuple[ir.For, ...], index: str) -> ir.Expr:
    found = next(
        (loop.extent for loop in around if loop.thread == index), ir.as_expr(1)
    )
    match found:  # in the 64 bits that the host computes in
        case ir.Cast(a=a):
            return a
        case ir.Const(value=value):
            return ir.as_expr(int(value))
    return found.cast(i64)


def _used(node: ir.Node) -> Iterator[ir.Buffer]:
    """The buffers that a node accesses, in order; bulk copies use tensor maps."""
    below = children(node)
    if isinstance(node, ir.Call) and is_mapped(node):
        below = tuple(part for part in below if part is not mapped(node))
    for child in below:
        if isinstance(child, ir.Buffer):
            if not isinstance(node, ir.Alloc):
                yield child
        else:
            yield from _used(child)


def is_private(buffer: ir.Buffer) -> bool:
    """Whether a thread's temporary is in registers or on its stack."""
    (extent,) = buffer.shape or (ir.as_expr(1),)
    if not isinstance(extent, ir.Const):
        return False
    return int(extent.value) * buffer.dtype.bytes <= PRIVATE_BYTES


def _is_check(stmt: ir.Evaluate) -> bool:
    return getattr(stmt.expr, "name", "") == "check"


def launches(function: ir.Function) -> tuple[Launch, ...]:
    """The launches of a lowered function, in program order."""
    nests = list(_nests(function.body))
    names = [function.name]
    if len(nests) > 1:
        names = [f"{function.name}_{number}" for number in range(1, len(nests) + 1)]
    return tuple(
        Launch(name, nest, function) for name, nest in zip(names, nests, strict=False)
    )


def _nests(stmt: ir.Stmt) -> Iterator[ir.For]:
    if isinstance(stmt, ir.For) and is_launch(stmt):
        yield stmt
        return
    for child in children(stmt):
        if isinstance(child, ir.Stmt):
            yield from _nests(child)


def around_launches(stmt: ir.Stmt) -> ir.Stmt:
    """The statements of a host program without its launches."""
    if is_launch(stmt):
        return ir.Seq(())
    return rebuild_statements(stmt, around_launches)


def host_program(function: ir.Function) -> dict[str, Data]:
    """The host program of a lowered function, as data.

    Raises:
        CodegenError: it computes something not expressible as data.
    """
    made = launches(function)
    numbers = iter(range(len(made)))

    def program(stmt: ir.Stmt | None) -> list[Data]:
        items = stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)
        return [part for item in items for part in statement(item)]

    def statement(stmt: ir.Stmt | None) -> list[Data]:
        match stmt:
            case None | ir.Alloc():
                return []
            case ir.For(kind="bound"):
                return [["launch", next(numbers)]]
            case ir.For():
                inside = program(stmt.body)
                return [["for", stmt.var.name, data_of(stmt.extent), inside]]
            case ir.If():
                then = program(stmt.then)
                return [["if", data_of(stmt.cond), then, program(stmt.orelse)]]
            case ir.Let():
                return [["let", stmt.var.name, data_of(stmt.value)]]
        raise CodegenError(f"a host program cannot contain a {type(stmt).__name__}")

    return {
        "launches": [launch.data() for launch in made],
        "program": program(function.body),
        "scalars": [var.name for var in function.scalars],
        "alignments": list(alignments(function)),
    }


def data_of(expr: ir.Expr) -> Data:
    """A number that the host computes, as data.

    Raises:
        CodegenError: it is not of integers and bools.
    """
    match expr:
        case ir.Const(value=value):
            return int(value)
        case ir.Var(name=name):
            return name
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b):
            return [op, data_of(a), data_of(b)]
        case ir.Select(cond=cond, a=a, b=b):
            return ["select", data_of(cond), data_of(a), data_of(b)]
        case ir.Cast(a=a) if not a.dtype.is_float and not expr.dtype.is_float:
            return data_of(a)
    raise CodegenError(f"the host cannot compute {expr!r}")

"""Memories: checked reads and writes of elements in all lanes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir.interpreter import banks
from tensorlang.ir.interpreter.lanes import spread
from tensorlang.ir.interpreter.state import fault
from tensorlang.ir.interpreter.watch import watch

if TYPE_CHECKING:
    from tensorlang.errors import InterpreterError
    from tensorlang.ir.interpreter.clocks import Clocks, Record
    from tensorlang.ir.interpreter.lanes import Array, Frame, Lanes
    from tensorlang.ir.interpreter.races import Shadow
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import Buffer

_POISON = 0xA5  # initial bytes of a temporary


class Memory:
    """The elements of one buffer, for all of its instances.

    Attributes:
        data: All instances in sequence, each row-major in logical indices.
        shape: The buffer's extents.
        role: `in`, `out`, `inout` or `temporary`.
        written: Which elements are defined; None if all are.
        overwritten: Which elements of an `inout` parameter were written.
        instance: The variable with each lane's instance; "" if there is one.
        frame: The lanes that each have an instance.
        copying: Which elements are the target of a pending copy; None if none ever was.
        clocked: When warps in roles accessed each element, and by whose clocks.
        shadow: Who accessed each element, for races; created on demand.
        owners: By block with disjoint axes: the iteration that accessed each element.
    """

    __slots__ = (
        "buffer",
        "clocked",
        "copying",
        "data",
        "frame",
        "instance",
        "overwritten",
        "owners",
        "role",
        "shadow",
        "shape",
        "size",
        "written",
    )

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...],
        role: str,
        frame: Frame,
        *,
        instances: int = 1,
        data: Array | None = None,
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.role = role
        self.frame = frame
        self.instance = ""
        self.size = int(np.prod(shape, dtype=np.int64))
        total = self.size * instances
        self.data = _poisoned(buffer, total) if data is None else data.reshape(-1)
        fresh = role in ("out", "temporary")
        self.written = np.zeros(total, np.bool_) if fresh else None
        self.overwritten = np.zeros(total, np.bool_) if role == "inout" else None
        self.shadow: Shadow | None = None
        self.owners: dict[str, Array] = {}
        self.clocked: tuple[Clocks, Record] | None = None
        self.copying: Array | None = None


def _poisoned(buffer: Buffer, total: int) -> Array:
    raw = np.full(total * buffer.dtype.bytes, _POISON, np.uint8)
    return (
        raw.astype(np.bool_) if buffer.dtype.is_bool else raw.view(buffer.dtype.numpy)
    )


@dataclass(slots=True)
class Place:
    """Elements of a memory: one flat index per lane (or one for all), by vector lanes.

    `mask` selects the elements accessed; None selects all.
    """

    memory: Memory
    flat: Array
    indices: list[Array]
    mask: Array | None

    def entries(self, lanes: Lanes) -> tuple[Array, Array]:
        """The individual accesses: elements, and the numbers of the accessing lanes."""
        shape = (lanes.count, *self.flat.shape[1:])
        flat = spread(self.flat, shape)
        who = np.arange(lanes.count)
        if len(shape) > 1:
            who = np.repeat(who, shape[1]).reshape(shape)
        if self.mask is not None:
            kept = spread(self.mask, shape)
            return flat[kept], who[kept]
        return flat.reshape(-1), who.reshape(-1)

    def name(self, element: int) -> str:
        """The name of an element by buffer and logical indices: `y[3, 0]`."""
        memory = self.memory
        inside = element % max(memory.size, 1)
        where = np.unravel_index(inside, memory.shape) if memory.shape else ()
        return f"{memory.buffer.name}[{', '.join(str(int(i)) for i in where)}]"


def locate(
    machine: Machine,
    lanes: Lanes,
    memory: Memory,
    indices: list[Array],
    mask: Array | None,
) -> Place:
    """The elements at `indices`, after bounds checks.

    Raises:
        InterpreterError: an index is outside its dimension (`bounds`).
    """
    if mask is not None or max([index.ndim for index in indices], default=1) > 1:
        indices, mask = _aligned(indices, mask)
    flat: Array = np.zeros(1, np.int64)
    for dim, (index, extent) in enumerate(zip(indices, memory.shape, strict=True)):
        outside = (index < 0) | (index >= extent)
        if np.count_nonzero(outside):
            if mask is not None:
                outside = outside & mask
            if "bounds" in machine.checks and outside.any():
                raise _outside(lanes, memory, indices, outside, dim)
            index = np.clip(index, 0, max(extent - 1, 0))  # noqa: PLW2901 - now inside
        flat = flat * extent + index if dim else index.astype(np.int64, copy=False)
    if not indices and mask is not None:
        flat = np.zeros((1,) * mask.ndim, np.int64)
    if memory.instance:
        instance = lanes.lookup(memory.instance)
        flat = flat + (instance[:, None] if flat.ndim > 1 else instance) * memory.size
    if mask is not None:
        flat, mask = np.broadcast_arrays(flat, mask)
    place = Place(memory, flat, indices, mask)
    if memory.buffer.scope == "shared" and "bank" in machine.checks:
        banks.count(machine, lanes, memory, place)
    return place


def _aligned(
    indices: list[Array], mask: Array | None
) -> tuple[list[Array], Array | None]:
    """Give all a second dimension if one of them is a vector."""
    every = [*indices] if mask is None else [*indices, mask]
    if any(array.ndim > 1 for array in every):
        every = [a if a.ndim > 1 else a[:, None] for a in every]
    return (every, None) if mask is None else (every[:-1], every[-1])


def _outside(
    lanes: Lanes, memory: Memory, indices: list[Array], outside: Array, dim: int
) -> InterpreterError:
    shape = np.broadcast_shapes(outside.shape, *(index.shape for index in indices))
    at = tuple(np.argwhere(np.broadcast_to(outside, shape))[0])
    element = _element(indices, at, shape)
    return fault(
        lanes,
        int(at[0]),
        f"{memory.buffer.name}[{element}] is out of bounds: dimension {dim} "
        f"has extent {memory.shape[dim]}",
    )


def _element(indices: list[Array], at: tuple[int, ...], shape: tuple[int, ...]) -> str:
    return ", ".join(str(np.broadcast_to(index, shape)[at]) for index in indices)


def read(machine: Machine, lanes: Lanes, place: Place, *, plain: bool = True) -> Array:
    """The values at a place; 0 where masked.

    A read that is not `plain` belongs to an update, whose write is checked for races.

    Raises:
        InterpreterError: `unwritten`, `inout`, `race` or `disjoint`.
    """
    memory = place.memory
    _refuse_copying(lanes, place, "read")
    if memory.written is not None and "unwritten" in machine.checks:
        bad = ~memory.written[place.flat]
        _refuse(lanes, place, bad, "is read, but nothing wrote it")
    if plain and memory.overwritten is not None and "inout" in machine.checks:
        bad = memory.overwritten[place.flat]
        _refuse(lanes, place, bad, "is an inout element read after it was written")
    if plain:
        watch(machine, lanes, place, "read")
    if not memory.data.size:
        return np.zeros(place.flat.shape, memory.data.dtype)
    values = memory.data[place.flat]
    if place.mask is not None:
        values = np.where(place.mask, values, np.zeros(1, values.dtype))
    return values


def _refuse(lanes: Lanes, place: Place, bad: Array, message: str) -> None:
    if place.mask is not None:
        bad = bad & place.mask
    if np.count_nonzero(bad):
        at = tuple(np.argwhere(bad)[0])
        name = place.name(int(place.flat[at]))
        raise fault(lanes, int(at[0]), f"{name} {message}")


def _refuse_copying(lanes: Lanes, place: Place, verb: str) -> None:
    """Fault on an element with a pending copy into it."""
    if place.memory.copying is not None:
        bad = place.memory.copying[place.flat]
        told = "while a copy into it is pending; call wait_copies first"
        _refuse(lanes, place, bad, f"is {verb} {told}")


def write(machine: Machine, lanes: Lanes, place: Place, values: Array) -> None:
    """Write `values` to a place, in the order of lanes.

    Raises:
        InterpreterError: `in_param`, `race` or `disjoint`.
    """
    memory = place.memory
    if memory.role == "in" and "in_param" in machine.checks:
        raise fault(lanes, 0, f"{memory.buffer.name} is an `in` parameter: no writes")
    _refuse_copying(lanes, place, "written")
    watch(machine, lanes, place, "write")
    shape = (lanes.count, *place.flat.shape[1:])
    if values.ndim < len(shape):
        values = values[:, None]
    at, values = spread(place.flat, shape), spread(values, shape)
    if place.mask is not None:
        kept = spread(place.mask, shape)
        at, values = at[kept], values[kept]
    if memory.data.size:
        machine.undo.put(memory.data, at, values)
        mark(machine, memory, at)


def mark(machine: Machine, memory: Memory, at: Array) -> None:
    """Mark the elements `at` as written."""
    if memory.written is not None:
        machine.undo.put(memory.written, at, True)
    if memory.overwritten is not None:
        machine.undo.put(memory.overwritten, at, True)

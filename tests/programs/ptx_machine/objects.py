"""`mbarrier` and bulk tensor copies (PTX ISA, 9.7.13.15 and 9.7.9.27), of tiles.

A barrier object is in the first of its phases until as many have arrived as it was
made for and all bytes that were announced have come; then it is in the next one. Bulk
copies may use it once its maker has executed `fence.mbarrier_init`, other threads after
a barrier. A bulk copy is held back until somebody waits for its object: its place is
poison before. What it brought is visible to all then (that others wait, too, is not
checked).

The asynchronous proxy (bulk copies, products of warpgroups) and threads see each
other's accesses of shared memory only across a `fence.proxy.async` of the thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .accesses import parts
from .batch import PARAM_WINDOW, Batch, Lanes, Read, Step
from .faults import Fault
from .operands import Names, address, reader, writer
from .program import Instruction, Number, Vector
from .tensor_maps import MOST, TensorMap
from .types import named

Corners = Callable[[Batch, Lanes], np.ndarray]  # by thread and dimension
U32, S32, U64, PRED = named("u32"), named("s32"), named("u64"), named("pred")
_RANKS = {f"{rank}d": rank for rank in range(2, MOST + 1)}


@dataclass
class BarrierObject:
    """`pending` arrivals and `bytes` are missing to the end of phase `phase`."""

    count: int
    pending: int
    phase: int = 0
    bytes: int = 0
    maker: int = -1
    fenced: bool = False
    flights: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    heard: dict[int, int] = field(default_factory=dict)  # in this phase
    told: dict[int, int] = field(default_factory=dict)  # in those before

    def advance(self) -> None:
        """The next phase begins where nothing is missing."""
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.count
            self.told |= self.heard
            self.heard.clear()


def swizzled(at: np.ndarray) -> np.ndarray:
    """Addresses in shared memory with bits 4 to 6 exchanged by bits 7 to 9."""
    return at ^ ((at >> 7 & 7) << 4)


def barrier_object(ins: Instruction, names: Names) -> Step:
    """`mbarrier.init`, `.arrive` and `.arrive.expect_tx`."""
    words = [w for w in ins.modifiers if w not in ("shared", "shared@cta", "b64")]
    if words == ["init"]:
        place, given = ins.operands
        return _each(names, place, given, _made)
    if words == ["arrive"]:
        return _each(names, ins.operands[1], None, _arrived)
    if words == ["arrive", "expect_tx"]:
        return _each(names, ins.operands[1], ins.operands[2], _arrived)
    raise Fault(f"{ins.text} is not known")


def _each(names: Names, place: object, given: object, act) -> Step:
    where = address(place, names)
    read = reader(given, U32, names) if given is not None else _nothing

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        at = s.shared.at(where(s, ix), 8, lanes)
        numbers = np.broadcast_to(read(s, ix), len(lanes))
        for key, number, lane in zip(at, numbers, lanes, strict=True):
            act(s, int(key), int(number), int(lane))

    return step


def _nothing(_s: Batch, _ix: Lanes) -> np.ndarray:
    return np.zeros(1, np.uint32)


def fence(ins: Instruction, _names: Names) -> Step:
    """`fence.mbarrier_init`, `fence.proxy.async`; others change nothing here."""
    words = [w for w in ins.modifiers if w not in ("shared", "shared@cta")]
    if words == ["mbarrier_init", "release", "cluster"]:
        return _fence_objects
    if words[:1] == ["proxy"] and words != ["proxy", "async"]:
        raise Fault(f"{ins.text} is not known")
    return _fence_proxies if words == ["proxy", "async"] else (lambda _s, _ix: None)


def _fence_objects(s: Batch, ix: Lanes) -> None:
    lanes = set(s.lanes(ix).tolist())
    for held in s.objects.values():
        held.fenced |= held.maker in lanes


def _fence_proxies(s: Batch, ix: Lanes) -> None:
    s.shared.fence_proxies(s.lanes(ix))


def _made(s: Batch, key: int, count: int, lane: int) -> None:
    s.objects[key] = BarrierObject(count, count, maker=lane)
    s.shared.wrote_unit(key, lane)


def _found(s: Batch, key: int, lane: int) -> BarrierObject:
    if key not in s.objects:
        raise Fault("no barrier object was made there")
    s.shared.check_unit(key, lane)
    return s.objects[key]


def _arrived(s: Batch, key: int, number: int, lane: int) -> None:
    held = _found(s, key, lane)
    held.bytes += number
    s.flying.tell(lane, held.heard)
    held.pending -= 1
    if held.pending < 0:
        raise Fault("more arrive at a barrier object than it was made for")
    held.advance()


def wait(ins: Instruction, names: Names) -> tuple[Step, Read]:
    """`mbarrier.try_wait.parity p, [a], parity`: threads go on when it is true."""
    words = [w for w in ins.modifiers if w not in ("shared", "shared@cta", "b64")]
    if words != ["try_wait", "parity"]:
        raise Fault(f"{ins.text} is not known")
    write = writer(ins.operands[0], PRED, names)
    where = address(ins.operands[1], names)
    read = reader(ins.operands[2], U32, names)

    def over(s: Batch, ix: Lanes) -> np.ndarray:
        lanes = s.lanes(ix)
        at = s.shared.at(where(s, ix), 8, lanes)
        parity = np.broadcast_to(read(s, ix), len(lanes))
        made = np.zeros(len(lanes), bool)
        for key in np.unique(at):
            held = _found(s, int(key), int(lanes[at == key][-1]))
            _land(s, held)
            over = (at == key) & (parity != held.phase)
            s.flying.hear(lanes[over], held.told)
            made |= over
        return made

    return (lambda s, ix: write(s, ix, np.ones(1, bool))), over


def _land(s: Batch, held: BarrierObject) -> None:
    for places, data in held.flights:
        s.shared.raw[places] = data
        s.shared.state[places // s.shared.unit] = 0
        held.bytes -= len(places)
    held.flights.clear()
    held.advance()


def bulk(ins: Instruction, names: Names) -> Step:
    """All that begin with `cp.async.bulk`."""
    words = ins.modifiers
    if words[2:] == ("commit_group",):
        return lambda _s, _ix: None
    if words[2] == "wait_group" and ins.operands == (Number(0),):
        return _stored
    if words[4:] == ("global", "shared@cta", "bulk_group"):
        return bulk_store(ins, names)
    return bulk_copy(ins, names)


def bulk_store(ins: Instruction, names: Names) -> Step:
    """`cp.async.bulk.tensor.2d.global... [map, {column, row}], [from]`; up to 5d.

    What is there when it begins has to stay until the thread waits for its groups.
    """
    given, start = ins.operands
    maps, corners = _boxes(ins, given, names)
    places = address(start, names)

    def step(s: Batch, ix: Lanes) -> None:
        lanes, where = s.lanes(ix), corners(s, ix)
        for n, lane in enumerate(lanes):
            of = _map_of(s, int(maps(s, ix)[n]))
            to, inside = of.elements(where[n])
            at = _lines(s, lane, int(places(s, ix)[n]), of, to.size * of.size)
            s.shared.check_proxies(at, 16, np.full(len(at), lane), writes=False)
            s.shared.reading(at, 16, np.full(len(at), lane), proxy=True)
            all_bytes = (at[:, None] + np.arange(16)).ravel()
            data = s.shared.raw[all_bytes].copy()
            s.stores.append((int(lane), all_bytes, data))
            words = data.view(f"u{of.size}")[inside]
            if inside.any():
                s.memory.store(to[inside], words[None], np.full(inside.sum(), lane))

    return step


def _boxes(ins: Instruction, given: object, names: Names) -> tuple[Read, Corners]:
    """Where the tensor map is, and where each thread's box starts."""
    rank = _RANKS.get(ins.modifiers[3], 0)
    if not isinstance(given, Vector) or not rank:
        raise Fault("a tensor map and coordinates are wanted")
    coordinates = [reader(p, S32, names) for p in parts(given.parts[1], rank)]

    def corners(s: Batch, ix: Lanes) -> np.ndarray:
        count = len(s.lanes(ix))
        found = [np.broadcast_to(read(s, ix), count) for read in coordinates]
        return np.stack(found, axis=1).astype(np.int64)

    return address(given.parts[0], names), corners


def _stored(s: Batch, ix: Lanes) -> None:
    lanes = set(s.lanes(ix).tolist())
    for lane, at, data in s.stores:
        if lane in lanes and (s.shared.raw[at] != data).any():
            raise Fault("shared memory was written while a bulk store read it", lane)
    s.stores = [store for store in s.stores if store[0] not in lanes]


def bulk_copy(ins: Instruction, names: Names) -> Step:
    """`cp.async.bulk.tensor.2d... [to], [map, {column, row}], [object]`; up to 5d."""
    words = ("shared@cluster", "global", "mbarrier@complete_tx@bytes")
    if ins.modifiers[:3] != ("async", "bulk", "tensor") or ins.modifiers[4:] != words:
        raise Fault(f"{ins.text} is not known")
    to, given, told = ins.operands
    maps, corners = _boxes(ins, given, names)
    places, objects = address(to, names), address(told, names)

    def step(s: Batch, ix: Lanes) -> None:
        lanes, where = s.lanes(ix), corners(s, ix)
        start, keys = places(s, ix), s.shared.at(objects(s, ix), 8, lanes)
        for n, lane in enumerate(lanes):
            of = _map_of(s, int(maps(s, ix)[n]))
            words = _fetched(s, lane, of, where[n])
            held = _found(s, int(keys[n]), int(lane))
            if not held.fenced:
                raise Fault("no fence.mbarrier_init came after its object was made")
            held.flights.append(_flight(s, lane, int(start[n]), of, words))

    return step


def _map_of(s: Batch, at: int) -> TensorMap:
    first = at - PARAM_WINDOW
    if first % 64 or not 0 <= first <= len(s.params) - 128:
        raise Fault(f"no tensor map is at {at:#x}")
    return TensorMap.of(s.params[first : first + 128].copy())


def _fetched(s: Batch, lane: int, of: TensorMap, corner: np.ndarray) -> np.ndarray:
    """The box's bytes, row by row; what lies outside of the array is 0."""
    at, inside = of.elements(corner)
    source = np.where(inside, at, np.uint64(of.start))
    words = s.memory.load(source, of.size, 1, np.full(source.size, lane))[0]
    return np.where(inside, words, 0).astype(words.dtype).view(np.uint8)


def _lines(s: Batch, lane: int, start: int, of: TensorMap, size: int) -> np.ndarray:
    """Where pieces of 16 bytes of a box lie, in the map's exchange."""
    if start % 128 or (of.exchanges and of.box[0] * of.size != 128):
        raise Fault("a bulk copy is at no multiple of 128, or has other rows")
    line = start + np.arange(0, size, 16)
    chunks = (swizzled(line) if of.exchanges else line).astype(np.uint64)
    return s.shared.at(chunks, 16, np.full(len(chunks), lane))


def _flight(
    s: Batch, lane: int, start: int, of: TensorMap, data: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the bytes will lie: pieces of 16 of them, in the map's exchange."""
    where = _lines(s, lane, start, of, len(data))
    lanes = np.full(len(where), lane)
    s.shared.check_proxies(where, 16, lanes, writes=True)
    s.flying.overwrite(lane, s.shared.units(where, 16))
    s.shared.forget_readers(where, 16)  # their threads have arrived
    s.shared.promise(where, 16, lanes)
    return (where[:, None] + np.arange(16)).ravel(), data

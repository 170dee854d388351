"""`cp.async` (PTX ISA, 9.7.9.25): copies that are done when they are waited for.

What a copy reads is taken when it starts. It is held back until `wait_group` or
`wait_all` of its thread; until then its place in shared memory is poison that must not
be read, and after it the thread alone may, until a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .batch import Batch, Lanes, Step
from .faults import Fault
from .operands import Names, address, reader
from .program import Instruction, Number
from .types import named

U32 = named("u32")


@dataclass
class Flight:
    """Copies of one instruction: data u8 [threads, bytes] for places in memory.

    `group` tells each thread's group: 0 is not committed, else the number of the
    `commit_group` of its thread.
    """

    lanes: np.ndarray
    places: np.ndarray
    data: np.ndarray
    group: np.ndarray


def copy(ins: Instruction, names: Names) -> Step:
    """All instructions that begin with `cp`."""
    words = [w.replace("shared@cta", "shared") for w in ins.modifiers]
    if words[:2] == ["async", "commit_group"]:
        return _commit
    if words[:2] == ["async", "wait_all"]:
        return lambda s, ix: _wait(s, ix, 0, everything=True)
    if words[:2] == ["async", "wait_group"]:
        (left,) = ins.operands
        if not isinstance(left, Number):
            raise Fault("wait_group needs a literal")
        return lambda s, ix: _wait(s, ix, left.bits, everything=False)
    words = [w for w in words if not w.startswith("L2@")]
    if words[0] != "async" or words[2:] != ["shared", "global"]:
        raise Fault(f"{ins.text} is not known")
    return _start(ins, words[1], names)


def _start(ins: Instruction, cache: str, names: Names) -> Step:
    """`cp.async.ca|cg.shared.global [to], [from], bytes{, given}`: the rest is 0."""
    size = ins.operands[2]
    if (
        not isinstance(size, Number)
        or size.bits not in {"ca": (4, 8, 16), "cg": (16,)}[cache]
    ):
        raise Fault(f"{ins.text}: so many bytes are not copied at once")
    to, source = (address(o, names) for o in ins.operands[:2])
    whole = size.bits
    given = reader(ins.operands[3], U32, names) if len(ins.operands) > 3 else None

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        places = s.shared.at(to(s, ix), whole, lanes)
        count = given(s, ix) if given else np.array([whole], np.uint32)
        count = np.broadcast_to(count, len(lanes))
        data = _fetched(s, source(s, ix), lanes, count, whole)
        s.shared.promise(places, whole, lanes)
        s.copies.append(Flight(lanes, places, data, np.zeros(len(lanes), np.int64)))

    return step


def _fetched(
    s: Batch, at: np.ndarray, lanes: np.ndarray, count: np.ndarray, whole: int
) -> np.ndarray:
    if (count > whole).any():
        raise Fault("cp.async is given more bytes than it copies", int(lanes[0]))
    data = np.zeros((len(lanes), whole), np.uint8)
    for size in np.unique(count):
        which = count == size
        if size == whole:
            words = s.memory.load(at[which], 4, whole // 4, lanes[which])
            data[which] = np.ascontiguousarray(words.T).view(np.uint8)
        elif (at % np.uint64(whole))[which].any():
            raise Fault("the source of cp.async is not aligned", int(lanes[which][0]))
        else:
            for byte in range(int(size)):
                one = s.memory.load(at[which] + np.uint64(byte), 1, 1, lanes[which])
                data[which, byte] = one[0]
    return data


def _commit(s: Batch, ix: Lanes) -> None:
    """What each thread has started since its last group is one more."""
    lanes = s.lanes(ix)
    s.groups[lanes] += 1
    for flight in s.copies:
        mine = (flight.group == 0) & np.isin(flight.lanes, lanes)
        flight.group[mine] = s.groups[flight.lanes[mine]]


def _wait(s: Batch, ix: Lanes, left: int, *, everything: bool) -> None:
    """All but the last `left` groups of each thread arrive."""
    waiting = np.zeros(s.count, bool)
    waiting[s.lanes(ix)] = True
    for flight in list(s.copies):
        done = waiting[flight.lanes]
        if not everything:
            last = s.groups[flight.lanes] - left
            done = done & (flight.group > 0) & (flight.group <= last)
        if done.any():
            _land(s, flight, done)
    s.copies = [flight for flight in s.copies if len(flight.lanes)]


def _land(s: Batch, flight: Flight, done: np.ndarray) -> None:
    size = flight.data.shape[1]
    places, lanes = flight.places[done], flight.lanes[done]
    s.shared.raw[places[:, None] + np.arange(size)] = flight.data[done]
    s.shared.landed(places, size, lanes)
    rest = ~done
    flight.lanes, flight.places = flight.lanes[rest], flight.places[rest]
    flight.data, flight.group = flight.data[rest], flight.group[rest]

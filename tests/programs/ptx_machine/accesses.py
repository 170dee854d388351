"""`ld`, `st`, `atom`, `red`, `cvta` (PTX ISA, 9.7.9.8 and following, 9.7.13).

A generic address (no state space is named) is one of global memory, or lies in the
windows of shared or local memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .batch import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Batch, Lanes, Read, Step
from .block_memory import OwnedMemory
from .faults import Fault
from .forms import split
from .memory import GlobalMemory
from .operands import Names, address, reader, writer
from .program import Address, Instruction, Register, Vector
from .types import Type

_SPACES = ("global", "shared", "shared@cta", "local", "const", "param")
# how an access is cached or ordered changes nothing where threads go in step
_HINTS = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "weak", "relaxed"}
_HINTS |= {"acquire", "release", "acq_rel", "cta", "gpu", "sys", "nc"}
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
_WINDOWS |= {"global": 0, "const": 0}


def parsed(ins: Instruction) -> tuple[str, Type, int, list[str]]:
    """State space (or ""), type, vector length, and the other words."""
    words, kinds = split(ins.modifiers)
    words = [w.replace("shared@cta", "shared") for w in words]
    words = [w for w in words if not w.startswith(("L1@", "L2@"))]
    spaces = [w for w in words if w in _SPACES]
    lengths = [int(w[1:]) for w in words if w in ("v2", "v4", "v8")]
    rest = [w for w in words if w not in _SPACES and w not in ("v2", "v4", "v8")]
    if len(kinds) != 1 or len(spaces) > 1:
        raise Fault(f"{ins.text} is not known")
    return "".join(spaces), kinds[0], (lengths or [1])[0], rest


def parts(operand: object, count: int) -> tuple[object, ...]:
    """The operands of a vector, or the one that is none."""
    found = operand.parts if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise Fault(f"{count} operands are wanted, not {len(found)}")
    return found


def in_space(
    s: Batch, space: str, at: np.ndarray
) -> tuple[GlobalMemory | OwnedMemory, np.ndarray]:
    """The memory of an access, and the addresses there."""
    if not space:
        windows = at >> np.uint64(56)
        if (windows != windows[0]).any():
            raise Fault("one generic access to several state spaces is not known")
        space = {0: "global", 1: "shared", 2: "local"}.get(int(windows[0]), "global")
        at = at - np.uint64(_WINDOWS[space])
    if space in ("shared", "local"):
        return (s.shared if space == "shared" else s.local), at
    return s.memory, at


def load(ins: Instruction, names: Names) -> Step:
    """`ld.space.vN.type {a, ...}, [address]`."""
    space, kind, count, hints = parsed(ins)
    _allow(hints)
    writes = [writer(p, kind, names) for p in parts(ins.operands[0], count)]
    if space == "param":
        return _load_param(ins, kind, writes, names)
    where = address(ins.operands[1], names)

    def step(s: Batch, ix: Lanes) -> None:
        memory, at = in_space(s, space, where(s, ix))
        how = {"constant": True} if "nc" in hints else {}
        found = memory.load(at, kind.bytes, count, s.lanes(ix), **how)
        for write, values in zip(writes, found, strict=True):
            write(s, ix, values.view(kind.numpy))

    return step


def _allow(hints: list[str]) -> None:
    for hint in hints:
        if hint not in _HINTS:
            raise Fault(f"modifier .{hint} of an access is not known")


def _load_param(ins: Instruction, kind: Type, writes: list, names: Names) -> Step:
    place = ins.operands[1]
    if not isinstance(place, Address):
        raise Fault(f"{ins.text} is not known")
    if isinstance(place.base, Register):
        return _gather_params(address(place, names), kind, writes)
    start = names.offsets[place.base.name] + place.offset

    def step(s: Batch, ix: Lanes) -> None:
        for number, write in enumerate(writes):
            first = start + number * kind.bytes
            raw = s.params[first : first + kind.bytes].copy()
            if len(raw) != kind.bytes:
                raise Fault(f"no parameter is at byte {first}")
            write(s, ix, raw.view(kind.numpy))

    return step


def _gather_params(where: Read, kind: Type, writes: list) -> Step:
    """From the parameter whose place each lane computed from another's."""

    def step(s: Batch, ix: Lanes) -> None:
        for number, write in enumerate(writes):
            first = where(s, ix).astype(np.int64) + number * kind.bytes
            if (first % kind.bytes).any():
                raise Fault(f"a parameter's place is no multiple of {kind.bytes}")
            if (first < 0).any() or (first + kind.bytes > len(s.params)).any():
                raise Fault(f"no parameter is at byte {first.max()}")
            raw = s.params[first[:, None] + np.arange(kind.bytes)]
            write(s, ix, raw.view(kind.numpy)[:, 0])

    return step


def store(ins: Instruction, names: Names) -> Step:
    """`st.space.vN.type [address], {a, ...}`."""
    space, kind, count, hints = parsed(ins)
    _allow(hints)
    where = address(ins.operands[0], names)
    reads = [reader(p, kind, names) for p in parts(ins.operands[1], count)]

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        values = np.empty((count, len(lanes)), kind.word)
        for number, read in enumerate(reads):
            values[number] = read(s, ix).view(kind.word)
        memory, at = in_space(s, space, where(s, ix))
        memory.store(at, values, lanes)

    return step


def convert_address(ins: Instruction, names: Names) -> Step:
    """`cvta.space.u64` makes a generic address, `cvta.to.space` one of the space."""
    words, (kind,) = split(ins.modifiers)
    space = words[-1].replace("shared@cta", "shared")
    step = np.uint64(_WINDOWS[space])
    read = reader(ins.operands[1], kind, names)
    write = writer(ins.operands[0], kind, names)
    if "to" in words:
        return lambda s, ix: write(s, ix, read(s, ix) - step)
    return lambda s, ix: write(s, ix, read(s, ix) + step)


Update = Callable[..., np.ndarray]
_UPDATES: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def atomic(ins: Instruction, names: Names) -> Step:
    """`atom.space.op.type d, [a], b{, c}`, or `red` with no d: one thread at a time."""
    space, kind, _, words = parsed(ins)
    (op,) = [w for w in words if w not in _HINTS]
    if (
        op not in {*_UPDATES, "exch", "cas", "inc", "dec"}
        or kind.name not in _ATOMIC[op]
    ):
        raise Fault(f"{ins.text} is not known")
    operands = ins.operands if ins.name == "red" else ins.operands[1:]
    where = address(operands[0], names)
    reads = [reader(o, kind, names) for o in operands[1:]]
    write = None if ins.name == "red" else writer(ins.operands[0], kind, names)
    new = _NEW.get(op) or _UPDATES[op]

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        given = [np.broadcast_to(read(s, ix), len(lanes)) for read in reads]
        memory, at = in_space(s, space, where(s, ix))
        seen = np.empty(len(lanes), kind.numpy)
        for words, places, which in memory.words(at, kind.bytes, lanes):
            mine = [g[which] for g in given]
            seen[which] = _one_by_one(words.view(kind.numpy), places, new, mine)
        if write:
            write(s, ix, seen)

    return step


def _one_by_one(
    words: np.ndarray, places: np.ndarray, new: Update, given: list[np.ndarray]
) -> np.ndarray:
    seen = np.empty(len(places), words.dtype)
    if len(np.unique(places)) == len(places):
        seen[:] = words[places]
        words[places] = new(seen, *given)
        return seen
    for number, place in enumerate(places):
        seen[number] = words[place]
        words[place] = new(words[place], *(g[number] for g in given))
    return seen


_NEW: dict[str, Update] = {
    "exch": lambda _old, b: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": lambda old, b: np.where(old >= b, 0, old + old.dtype.type(1)),
    "dec": lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}
_BITS = ("b32", "b64")
_ATOMIC = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "exch": _BITS,
    "cas": ("b16", *_BITS),
    "inc": ("u32",),
    "dec": ("u32",),
} | dict.fromkeys(("and", "or", "xor"), _BITS)

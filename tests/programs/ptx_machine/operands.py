"""Operands as functions that read and write the registers of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .batch import SHARED_WINDOW, Batch, Lanes, Read, Write
from .faults import Fault
from .program import Address, Instruction, Kernel, Number, Register, Symbol, Vector
from .types import Type, named, values_of, words_of


@dataclass
class Names:
    """What names of a kernel mean: numbers of registers, addresses of variables.

    `addresses` are of shared, local, global and constant variables in their own spaces,
    `offsets` of parameters.
    """

    kernel: Kernel
    registers: dict[str, int]
    addresses: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    dynamic_shared: int = 0


def reader(operand: object, kind: Type, names: Names) -> Read:
    """What an operand is, as a type."""
    if isinstance(operand, Register):
        return _register(operand, kind, names)
    if isinstance(operand, Number):
        value = _literal(operand, kind)
        return lambda _s, _ix: value
    if isinstance(operand, Symbol) and operand.name in names.addresses:
        place = np.array([names.addresses[operand.name]], np.uint64).astype(kind.word)
        return lambda _s, _ix: place.view(kind.numpy)
    if isinstance(operand, Symbol) and operand.name in names.offsets:
        start = np.array([names.offsets[operand.name]], np.uint64).astype(kind.word)
        return lambda _s, _ix: start.view(kind.numpy)
    if isinstance(operand, Vector):
        return _packed(operand, kind, names)
    raise Fault(f"operand {operand} is not known")


def _register(operand: Register, kind: Type, names: Names) -> Read:
    if operand.name not in names.registers:
        return _special(operand.name, kind)
    number = names.registers[operand.name]

    def read(s: Batch, ix: Lanes) -> np.ndarray:
        raw = s.registers[number]
        return values_of(raw if ix is None else raw[ix], kind)

    if operand.negated:
        return lambda s, ix: ~read(s, ix)
    return read


def _special(name: str, kind: Type) -> Read:
    def read(s: Batch, ix: Lanes) -> np.ndarray:
        if name not in s.special:
            raise Fault(f"register {name} is not known")
        raw = s.special[name]
        return values_of(raw if ix is None or not raw.ndim else raw[ix], kind)

    return read


def _literal(number: Number, kind: Type) -> np.ndarray:
    if number.width not in (None, kind.bits):
        raise Fault(f"a literal of {number.width} bits is no {kind.name}")
    if kind.name == "pred":
        return np.array([bool(number.bits)])
    if number.width is None and kind.name in ("f32", "f64"):
        raise Fault(f"an integer literal is no {kind.name}")
    raw = np.array([number.bits & ((1 << kind.bits) - 1)], kind.word)
    return raw.view(kind.numpy)


def _packed(operand: Vector, kind: Type, names: Names) -> Read:
    """`{a, b}` as one number, the first part lowest."""
    part = named(f"b{kind.bits // len(operand.parts)}")
    reads = [reader(p, part, names) for p in operand.parts]

    def read(s: Batch, ix: Lanes) -> np.ndarray:
        whole = np.zeros(1, kind.word)
        for at, each in enumerate(reads):
            moved = each(s, ix).astype(kind.word) << kind.word(at * part.bits)
            whole = whole | moved
        return whole.view(kind.numpy)

    return read


def writer(operand: object, kind: Type, names: Names) -> Write:
    """Puts values of a type where an operand says."""
    if isinstance(operand, Symbol) and operand.name == "_":
        return lambda _s, _ix, _values: None
    if isinstance(operand, Vector):
        return _unpacked(operand, kind, names)
    if not isinstance(operand, Register) or operand.name not in names.registers:
        raise Fault(f"{operand} is no place for a result")
    number = names.registers[operand.name]

    def write(s: Batch, ix: Lanes, values: np.ndarray) -> None:
        held = s.registers[number]
        held[... if ix is None else ix] = words_of(values, kind, held.dtype)

    return write


def _unpacked(operand: Vector, kind: Type, names: Names) -> Write:
    part = named(f"b{kind.bits // len(operand.parts)}")
    writes = [writer(p, part, names) for p in operand.parts]

    def write(s: Batch, ix: Lanes, values: np.ndarray) -> None:
        whole = values.view(kind.word)
        for at, each in enumerate(writes):
            each(s, ix, (whole >> kind.word(at * part.bits)).astype(part.word))

    return write


def address(operand: object, names: Names) -> Read:
    """The addresses that `[base+offset]` names: u64, one a thread."""
    if not isinstance(operand, Address):
        raise Fault(f"{operand} is no address")
    if operand.base is None:
        return lambda s, ix: np.full(len(s.lanes(ix)), operand.offset, np.uint64)
    wide = (
        isinstance(operand.base, Register)
        and names.kernel.registers.get(operand.base.name, "b64")[-2:] == "64"
    )
    kind = named("u64" if wide or isinstance(operand.base, Symbol) else "u32")
    read = reader(operand.base, kind, names)
    offset = kind.word(operand.offset & ((1 << kind.bits) - 1))

    def place(s: Batch, ix: Lanes) -> np.ndarray:
        base = (read(s, ix) + offset).astype(np.uint64)
        return np.broadcast_to(base, len(s.lanes(ix)))

    return place


def destination(ins: Instruction) -> object:
    """The first operand."""
    if not ins.operands:
        raise Fault("an operand is missing")
    return ins.operands[0]


__all__ = ["SHARED_WINDOW", "Names", "address", "destination", "reader", "writer"]

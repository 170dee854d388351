"""A program as data: kernels of instructions on operands."""

from __future__ import annotations

from dataclasses import dataclass, field

Guard = tuple[str, bool]


@dataclass(frozen=True)
class Register:
    """A register, or the complement of a predicate."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Number:
    """A literal: an integer, or `bits` of a float of `width` bits."""

    bits: int
    width: int | None = None


@dataclass(frozen=True)
class Symbol:
    """A variable's or a label's name, or `_`."""

    name: str


@dataclass(frozen=True)
class Address:
    """`[base+offset]`; a base of None is the number alone."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True)
class Vector:
    """Operands in braces, or the two sides of `d|p`."""

    parts: tuple[object, ...]


@dataclass(frozen=True)
class Instruction:
    """One instruction and its line in the text."""

    line: int
    text: str
    guard: Guard | None
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[object, ...]


@dataclass(frozen=True)
class Variable:
    """Memory with a name: `size` is None where the launch says how much."""

    space: str
    name: str
    kind: str
    align: int
    count: int | None
    initial: str | None


@dataclass
class Kernel:
    """An entry: where a label stands is the number of the next instruction."""

    name: str
    params: list[Variable]
    bounds: str
    registers: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)

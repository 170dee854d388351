"""What the linearised program is made of: one class per LLVM instruction we print.

Each class has a macro of its own name in `templates/llvm.ll.j2`; fields are texts, all
types and operands already spelled the way LLVM reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(eq=False, repr=False)
class Alloca:
    """Stack memory for `count` elements, aligned to `align` bytes."""

    name: str
    count: int
    element: str
    align: int


@dataclass(eq=False, repr=False)
class Binary:
    """`op` (with its flags) of two operands of one type."""

    name: str
    op: str
    type: str
    a: str
    b: str


@dataclass(eq=False, repr=False)
class Negate:
    """A float with its sign flipped."""

    name: str
    type: str
    a: str


@dataclass(eq=False, repr=False)
class Compare:
    """`op` is `icmp` or `fcmp` with its predicate."""

    name: str
    op: str
    type: str
    a: str
    b: str


@dataclass(eq=False, repr=False)
class Select:
    """`a` where `cond` (of `cond_type`) holds, else `b`."""

    name: str
    cond_type: str
    cond: str
    type: str
    a: str
    b: str


@dataclass(eq=False, repr=False)
class Cast:
    """`a` of type `source` converted by `op` to `type`."""

    name: str
    op: str
    source: str
    a: str
    type: str


@dataclass(eq=False, repr=False)
class Call:
    """A call; `args` are `type operand` texts, `name` is empty for `void`."""

    name: str
    type: str
    function: str
    args: Sequence[str]


@dataclass(eq=False, repr=False)
class Splat:
    """A scalar in all of `lanes` lanes."""

    name: str
    lanes: int
    element: str
    value: str


@dataclass(eq=False, repr=False)
class Shuffle:
    """Lanes `taken` from `a` and `b` (both of `type`) written one after the other."""

    name: str
    type: str
    a: str
    b: str
    taken: Sequence[int]


@dataclass(eq=False, repr=False)
class Extract:
    """One lane of a vector."""

    name: str
    type: str
    vector: str
    lane: int


@dataclass(eq=False, repr=False)
class Insert:
    """A vector with one lane replaced."""

    name: str
    type: str
    vector: str
    element: str
    value: str
    lane: int


@dataclass(eq=False, repr=False)
class Address:
    """The address of element `index` (`index_type` may be a vector) behind `base`.

    It lies in the same memory, `inbounds`, unless a mask may cut the access off.
    """

    name: str
    element: str
    base: str
    index_type: str
    index: str
    inbounds: bool = True


@dataclass(eq=False, repr=False)
class Load:
    """A value of `type` from memory."""

    name: str
    type: str
    pointer: str
    align: int


@dataclass(eq=False, repr=False)
class Store:
    """A value of `type` to memory, around the caches where `nontemporal`."""

    type: str
    value: str
    pointer: str
    align: int
    nontemporal: bool = False


@dataclass(eq=False, repr=False)
class Atomic:
    """An indivisible update of one element; nobody needs the old value."""

    name: str
    op: str
    pointer: str
    type: str
    value: str


@dataclass(eq=False, repr=False)
class AtomicLoad:
    """A value that other threads may be writing."""

    name: str
    type: str
    pointer: str
    align: int


@dataclass(eq=False, repr=False)
class Exchange:
    """`new` to memory if it still holds `old`; whether it did."""

    name: str
    type: str
    pointer: str
    old: str
    new: str


@dataclass(eq=False, repr=False)
class Phi:
    """A value that depends on where control came from: `(value, label)` pairs."""

    name: str
    type: str
    incoming: Sequence[tuple[str, str]]


@dataclass(eq=False, repr=False)
class Label:
    """The start of a basic block."""

    name: str


@dataclass(eq=False, repr=False)
class Jump:
    """Control goes on at `target`."""

    target: str


@dataclass(eq=False, repr=False)
class Branch:
    """Control goes on at `then` or `orelse`; a back edge names its loop metadata."""

    cond: str
    then: str
    orelse: str
    loop: str = ""


@dataclass(eq=False, repr=False)
class Return:
    """The function's result."""

    type: str
    value: str


Instruction: TypeAlias = (
    Alloca
    | Binary
    | Negate
    | Compare
    | Select
    | Cast
    | Call
    | Splat
    | Shuffle
    | Extract
    | Insert
    | Address
    | Load
    | Store
    | Atomic
    | AtomicLoad
    | Exchange
    | Phi
    | Label
    | Jump
    | Branch
    | Return
)


@dataclass(eq=False, repr=False)
class Routine:
    """One LLVM function: its signature and its instructions in order."""

    linkage: str
    result: str
    name: str
    params: Sequence[str]
    attributes: str
    body: list[Instruction] = field(default_factory=list)
    comment: str = ""

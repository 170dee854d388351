"""LLVM instructions: one class per instruction that is printed.

Each class has a macro of the same name in `templates/llvm.ll.j2`, which gets its fields
in order; fields are texts, with types and operands in LLVM syntax.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """`op` (with its flags) on two operands of one type."""

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
    """`a` if `cond` (of `cond_type`) is true, else `b`."""

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
    """Lanes `taken` from the concatenation of `a` and `b` (both of `type`)."""

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
    """The address of element `index` (`index_type` may be a vector) from `base`.

    `inbounds` unless the access is masked.
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
    """A value of `type` to memory, optionally nontemporal."""

    type: str
    value: str
    pointer: str
    align: int
    nontemporal: bool = False


@dataclass(eq=False, repr=False)
class Atomic:
    """An atomic update of one element; the old value is unused."""

    name: str
    op: str
    pointer: str
    type: str
    value: str


@dataclass(eq=False, repr=False)
class AtomicLoad:
    """An atomic load."""

    name: str
    type: str
    pointer: str
    align: int


@dataclass(eq=False, repr=False)
class Exchange:
    """Compare and exchange: store `new` if memory holds `old`; returns success."""

    name: str
    type: str
    pointer: str
    old: str
    new: str


@dataclass(eq=False, repr=False)
class Phi:
    """A value that depends on the predecessor: `(value, label)` pairs."""

    name: str
    type: str
    incoming: Sequence[tuple[str, str]]


@dataclass(eq=False, repr=False)
class Label:
    """The start of a basic block."""

    name: str


@dataclass(eq=False, repr=False)
class Jump:
    """An unconditional branch."""

    target: str


@dataclass(eq=False, repr=False)
class Branch:
    """A conditional branch; a back edge names its loop metadata."""

    cond: str
    then: str
    orelse: str
    loop: str = ""


@dataclass(eq=False, repr=False)
class Return:
    """A return."""

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

    @property
    def lines(self) -> Iterator[tuple[str, Sequence[object]]]:
        """The macro name and the field values of each instruction."""
        return ((type(i).__name__, tuple(vars(i).values())) for i in self.body)

"""LLVM instructions: one class per instruction, whose `str` is its line of LLVM IR.

Fields are texts, with types and operands in LLVM syntax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class Instruction:
    """A line of a routine; those that have a value have a `name`."""

    __slots__ = ()


@dataclass(eq=False, repr=False, slots=True)
class Alloca(Instruction):
    """Stack memory for `count` elements, aligned to `align` bytes."""

    name: str
    count: int
    element: str
    align: int

    def __str__(self) -> str:
        return (
            f"{self.name} = alloca [{self.count} x {self.element}], align {self.align}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Binary(Instruction):
    """`op`, with its flags or predicate, on two operands of one type."""

    name: str
    op: str
    type: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.name} = {self.op} {self.type} {self.a}, {self.b}"


@dataclass(eq=False, repr=False, slots=True)
class Negate(Instruction):
    """A float with its sign flipped."""

    name: str
    type: str
    a: str

    def __str__(self) -> str:
        return f"{self.name} = fneg {self.type} {self.a}"


@dataclass(eq=False, repr=False, slots=True)
class Select(Instruction):
    """`a` if `cond` (of `cond_type`) is true, else `b`."""

    name: str
    cond_type: str
    cond: str
    type: str
    a: str
    b: str

    def __str__(self) -> str:
        return (
            f"{self.name} = select {self.cond_type} {self.cond}, "
            f"{self.type} {self.a}, {self.type} {self.b}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Cast(Instruction):
    """`a` of type `source` converted by `op` to `type`."""

    name: str
    op: str
    source: str
    a: str
    type: str

    def __str__(self) -> str:
        return f"{self.name} = {self.op} {self.source} {self.a} to {self.type}"


@dataclass(eq=False, repr=False, slots=True)
class Call(Instruction):
    """A call; `args` are `type operand` texts, `name` is empty for `void`."""

    name: str
    type: str
    function: str
    args: Sequence[str]

    def __str__(self) -> str:
        result = f"{self.name} = " if self.name else ""
        return f"{result}call {self.type} @{self.function}({', '.join(self.args)})"


@dataclass(eq=False, repr=False, slots=True)
class Splat(Instruction):
    """A scalar in all of `lanes` lanes."""

    name: str
    lanes: int
    element: str
    value: str

    def __str__(self) -> str:
        kind = f"<{self.lanes} x {self.element}>"
        return (
            f"{self.name}.one = insertelement {kind} poison, "
            f"{self.element} {self.value}, i64 0\n"
            f"  {self.name} = shufflevector {kind} {self.name}.one, "
            f"{kind} poison, <{self.lanes} x i32> zeroinitializer"
        )


@dataclass(eq=False, repr=False, slots=True)
class Shuffle(Instruction):
    """Lanes `taken` from the concatenation of `a` and `b` (both of `type`)."""

    name: str
    type: str
    a: str
    b: str
    taken: Sequence[int]

    def __str__(self) -> str:
        mask = ", ".join(f"i32 {lane}" for lane in self.taken)
        return (
            f"{self.name} = shufflevector {self.type} {self.a}, "
            f"{self.type} {self.b}, <{len(self.taken)} x i32> <{mask}>"
        )


@dataclass(eq=False, repr=False, slots=True)
class Member(Instruction):
    """Member `number` of an aggregate."""

    name: str
    type: str
    aggregate: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} = extractvalue {self.type} {self.aggregate}, {self.number}"


@dataclass(eq=False, repr=False, slots=True)
class WithMember(Instruction):
    """An aggregate with member `number` replaced."""

    name: str
    type: str
    aggregate: str
    member: str
    value: str
    number: int

    def __str__(self) -> str:
        return (
            f"{self.name} = insertvalue {self.type} {self.aggregate}, "
            f"{self.member} {self.value}, {self.number}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Extract(Instruction):
    """One lane of a vector."""

    name: str
    type: str
    vector: str
    lane: int

    def __str__(self) -> str:
        return (
            f"{self.name} = extractelement {self.type} {self.vector}, i64 {self.lane}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Insert(Instruction):
    """A vector with one lane replaced."""

    name: str
    type: str
    vector: str
    element: str
    value: str
    lane: int

    def __str__(self) -> str:
        return (
            f"{self.name} = insertelement {self.type} {self.vector}, "
            f"{self.element} {self.value}, i64 {self.lane}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Address(Instruction):
    """The address of element `index` (`index_type` may be a vector) from `base`.

    `inbounds` unless the access is masked.
    """

    name: str
    element: str
    base: str
    index_type: str
    index: str
    inbounds: bool = True

    def __str__(self) -> str:
        inbounds = "inbounds " if self.inbounds else ""
        return (
            f"{self.name} = getelementptr {inbounds}{self.element}, "
            f"ptr {self.base}, {self.index_type} {self.index}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Load(Instruction):
    """A value of `type` from memory, optionally atomic."""

    name: str
    type: str
    pointer: str
    align: int
    atomic: bool = False

    def __str__(self) -> str:
        how, order = ("atomic ", " monotonic") if self.atomic else ("", "")
        return (
            f"{self.name} = load {how}{self.type}, ptr {self.pointer}{order}, "
            f"align {self.align}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Store(Instruction):
    """A value of `type` to memory, optionally nontemporal."""

    type: str
    value: str
    pointer: str
    align: int
    nontemporal: bool = False

    def __str__(self) -> str:
        hint = ", !nontemporal !0" if self.nontemporal else ""
        return (
            f"store {self.type} {self.value}, ptr {self.pointer}, "
            f"align {self.align}{hint}"
        )


@dataclass(eq=False, repr=False, slots=True)
class Atomic(Instruction):
    """An atomic update of one element; the old value is unused."""

    name: str
    op: str
    pointer: str
    type: str
    value: str

    def __str__(self) -> str:
        return (
            f"{self.name} = atomicrmw {self.op} ptr {self.pointer}, "
            f"{self.type} {self.value} monotonic"
        )


@dataclass(eq=False, repr=False, slots=True)
class Exchange(Instruction):
    """Compare and exchange: store `new` if memory holds `old`; returns success."""

    name: str
    type: str
    pointer: str
    old: str
    new: str

    def __str__(self) -> str:
        return (
            f"{self.name}.pair = cmpxchg ptr {self.pointer}, {self.type} {self.old}, "
            f"{self.type} {self.new} monotonic monotonic\n"
            f"  {self.name} = extractvalue {{{self.type}, i1 }} {self.name}.pair, 1"
        )


@dataclass(eq=False, repr=False, slots=True)
class Phi(Instruction):
    """A value that depends on the predecessor: `(value, label)` pairs."""

    name: str
    type: str
    incoming: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in self.incoming)
        return f"{self.name} = phi {self.type} {pairs}"


@dataclass(eq=False, repr=False, slots=True)
class Label(Instruction):
    """The start of a basic block."""

    name: str

    def __str__(self) -> str:
        return f"{self.name}:"


@dataclass(eq=False, repr=False, slots=True)
class Jump(Instruction):
    """An unconditional branch."""

    target: str

    def __str__(self) -> str:
        return f"br label %{self.target}"


@dataclass(eq=False, repr=False, slots=True)
class Branch(Instruction):
    """A conditional branch; a back edge names its loop metadata."""

    cond: str
    then: str
    orelse: str
    loop: str = ""

    def __str__(self) -> str:
        loop = f", !llvm.loop {self.loop}" if self.loop else ""
        return f"br i1 {self.cond}, label %{self.then}, label %{self.orelse}{loop}"


@dataclass(eq=False, repr=False, slots=True)
class Return(Instruction):
    """A return."""

    type: str
    value: str

    def __str__(self) -> str:
        return f"ret {self.type} {self.value}"


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
    def text(self) -> str:
        """The lines of its body; those below a label are indented."""
        return "\n".join(
            [f"{i}" if isinstance(i, Label) else f"  {i}" for i in self.body]
        )

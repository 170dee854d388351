"""LLVM instructions: a function per instruction, which gives its line of LLVM IR.

Operands are texts in LLVM syntax, and so are types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False, repr=False, slots=True)
class Instruction:
    """A line of a routine, in which `$` stands for the name of its value."""

    text: str
    name: str = ""  # empty without a value; may still change

    def __str__(self) -> str:
        return self.text.replace("$", self.name)


class Label(Instruction):
    """The start of a basic block."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__("$:", name)


@dataclass(eq=False, repr=False, slots=True)
class Phi(Instruction):
    """A value of type `text` by predecessor: pairs of a value and a label."""

    incoming: Sequence[tuple[str, str]] = ()

    def __str__(self) -> str:
        pairs = ", ".join(f"[ {value}, %{label} ]" for value, label in self.incoming)
        return f"{self.name} = phi {self.text} {pairs}"


def alloca(name: str, count: int, element: str, align: int) -> Instruction:
    """Stack memory for `count` elements, aligned to `align` bytes."""
    return Instruction(f"$ = alloca [{count} x {element}], align {align}", name)


def binary(name: str, op: str, type: str, a: str, b: str) -> Instruction:
    """`op`, with its flags or predicate, on two operands of one type."""
    return Instruction(f"$ = {op} {type} {a}, {b}", name)


def negate(name: str, type: str, a: str) -> Instruction:
    """A float with its sign flipped."""
    return Instruction(f"$ = fneg {type} {a}", name)


def select(  # noqa: PLR0917 - LLVM's order
    name: str, cond_type: str, cond: str, type: str, a: str, b: str
) -> Instruction:
    """`a` if `cond` (of `cond_type`) is true, else `b`."""
    return Instruction(f"$ = select {cond_type} {cond}, {type} {a}, {type} {b}", name)


def cast(name: str, op: str, source: str, a: str, type: str) -> Instruction:
    """`a` of type `source` converted by `op` to `type`."""
    return Instruction(f"$ = {op} {source} {a} to {type}", name)


def call(name: str, type: str, function: str, args: Sequence[str]) -> Instruction:
    """A call; `args` are `type operand` texts, `name` is empty for `void`."""
    result = "$ = " if name else ""
    return Instruction(f"{result}call {type} @{function}({', '.join(args)})", name)


def splat(name: str, lanes: int, element: str, value: str) -> Instruction:
    """A scalar in all of `lanes` lanes."""
    kind = f"<{lanes} x {element}>"
    return Instruction(
        f"$.one = insertelement {kind} poison, {element} {value}, i64 0\n"
        f"  $ = shufflevector {kind} $.one, {kind} poison, <{lanes} x i32> "
        "zeroinitializer",
        name,
    )


def shuffle(name: str, type: str, a: str, b: str, taken: Sequence[int]) -> Instruction:
    """Lanes `taken` from the concatenation of `a` and `b` (both of `type`)."""
    mask = f"<{len(taken)} x i32> <{', '.join(f'i32 {lane}' for lane in taken)}>"
    return Instruction(f"$ = shufflevector {type} {a}, {type} {b}, {mask}", name)


def member(name: str, type: str, aggregate: str, number: int) -> Instruction:
    """Member `number` of an aggregate."""
    return Instruction(f"$ = extractvalue {type} {aggregate}, {number}", name)


def with_member(  # noqa: PLR0917 - LLVM's order
    name: str, type: str, aggregate: str, kind: str, value: str, number: int
) -> Instruction:
    """An aggregate with member `number`, of type `kind`, replaced."""
    text = f"$ = insertvalue {type} {aggregate}, {kind} {value}, {number}"
    return Instruction(text, name)


def extract(name: str, type: str, vector: str, lane: int) -> Instruction:
    """One lane of a vector."""
    return Instruction(f"$ = extractelement {type} {vector}, i64 {lane}", name)


def insert(  # noqa: PLR0917 - LLVM's order
    name: str, type: str, vector: str, element: str, value: str, lane: int
) -> Instruction:
    """A vector with one lane replaced."""
    text = f"$ = insertelement {type} {vector}, {element} {value}, i64 {lane}"
    return Instruction(text, name)


def address(  # noqa: PLR0917 - LLVM's order
    name: str,
    element: str,
    base: str,
    index_type: str,
    index: str,
    inbounds: bool = True,
) -> Instruction:
    """The address of element `index` (`index_type` may be a vector) from `base`.

    `inbounds` unless the access is masked.
    """
    how = "inbounds " if inbounds else ""
    text = f"$ = getelementptr {how}{element}, ptr {base}, {index_type} {index}"
    return Instruction(text, name)


def load(
    name: str, type: str, pointer: str, align: int, *, atomic: bool = False
) -> Instruction:
    """A value of `type` from memory, optionally atomic."""
    how, order = ("atomic ", " monotonic") if atomic else ("", "")
    text = f"$ = load {how}{type}, ptr {pointer}{order}, align {align}"
    return Instruction(text, name)


def store(
    type: str, value: str, pointer: str, align: int, nontemporal: bool = False
) -> Instruction:
    """A value of `type` to memory, optionally nontemporal."""
    hint = ", !nontemporal !0" if nontemporal else ""
    return Instruction(f"store {type} {value}, ptr {pointer}, align {align}{hint}")


def atomic(name: str, op: str, pointer: str, type: str, value: str) -> Instruction:
    """An atomic update of one element; the old value is unused."""
    text = f"$ = atomicrmw {op} ptr {pointer}, {type} {value} monotonic"
    return Instruction(text, name)


def exchange(name: str, type: str, pointer: str, old: str, new: str) -> Instruction:
    """Compare and exchange: store `new` if memory holds `old`; returns success."""
    return Instruction(
        f"$.pair = cmpxchg ptr {pointer}, {type} {old}, {type} {new} monotonic "
        f"monotonic\n  $ = extractvalue {{{type}, i1 }} $.pair, 1",
        name,
    )


def jump(target: str) -> Instruction:
    """An unconditional branch."""
    return Instruction(f"br label %{target}")


def branch(cond: str, then: str, orelse: str, loop: str = "") -> Instruction:
    """A conditional branch; a back edge names its loop metadata."""
    end = f", !llvm.loop {loop}" if loop else ""
    return Instruction(f"br i1 {cond}, label %{then}, label %{orelse}{end}")


def returns(type: str, value: str) -> Instruction:
    """A return."""
    return Instruction(f"ret {type} {value}")


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

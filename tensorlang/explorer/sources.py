"""Generated source, with the statements of the lowered function that each line is from.

The text is what `kernel.source` holds: an observer, or marks that are taken out again,
record where each line comes from while it is printed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tensorlang.codegen.c_family import render as c_family
from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm import render as llvm
from tensorlang.codegen.llvm.builder import Module
from tensorlang.codegen.simt.host import Launch
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import walk_statements
from tensorlang.targets import Target

# private-use characters, which no generated source contains
_OPEN, _NAMED, _CLOSE = "\ue000", "\ue001", "\ue002"
_MARKS: Final = re.compile(f"({_OPEN}[^{_NAMED}]*{_NAMED}|{_CLOSE})")
_NONE: Final[tuple[int, ...]] = ()


@frozen
class Source:
    """A source text."""

    function: ir.Function  # lowered function as it was printed
    text: str  # source
    # for each line the numbers of its statements in `function`, in the order of
    # `walk_statements`: several where one line serves several, or where equal
    # statements cannot be told apart
    statements: Sequence[tuple[int, ...]]


def source_of(
    lowered: ir.Function, target: Target, knobs: Mapping[str, object]
) -> Source:
    """The source of a lowered function."""
    made = _llvm if target.kind == "llvm" else _c
    return made(lowered, target, knobs)


def _numbers(function: ir.Function) -> dict[int, tuple[int, ...]]:
    """The numbers of each statement, by identity: a shared one has several."""
    found: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for number, stmt in enumerate(walk_statements(function.body)):
        if not isinstance(stmt, ir.Seq):
            found[id(stmt)] += (number,)
    return dict(found)


def _llvm(lowered: ir.Function, target: Target, knobs: Mapping[str, object]) -> Source:
    function = llvm.printable(lowered)
    numbers = _numbers(function)
    owners: dict[int, tuple[int, ...]] = {}  # of instructions, which routines keep

    def observe(stmts: Sequence[ir.Stmt], emitted: Sequence[ins.Instruction]) -> None:
        owning = [number for stmt in stmts for number in numbers.get(id(stmt), _NONE)]
        if owning:
            for instruction in emitted:
                owners.setdefault(id(instruction), tuple(owning))

    module = Module(target, observer=observe)
    routines = llvm.routines(function, module)
    text = llvm.printed(function, module, routines, knobs)
    for name, helper in module.helpers.items():  # of all statements that call it
        calling = [each for routine in routines for each in _calls(routine, name)]
        owning = tuple(n for each in calling for n in owners.get(id(each), _NONE))
        owners |= dict.fromkeys(map(id, helper.body), owning)
    lines = text.splitlines()
    found = [_NONE] * len(lines)
    for at, instruction in _placed(routines, lines):
        for line in range(at, at + _height(instruction)):
            found[line] = owners.get(id(instruction), _NONE)
    return Source(function, text, found)


def _calls(routine: ins.Routine, name: str) -> list[ins.Instruction]:
    """The calls of a function in a routine."""
    return [each for each in routine.body if f" @{name}(" in each.text]


def _placed(
    routines: Iterable[ins.Routine], lines: Sequence[str]
) -> Iterator[tuple[int, ins.Instruction]]:
    """The instructions of all routines with the lines at which they start."""
    at = 0
    for routine in routines:
        while not lines[at].startswith("define "):
            at += 1
        at += 1
        for instruction in routine.body:
            yield at, instruction
            at += _height(instruction)


def _height(instruction: ins.Instruction) -> int:
    return str(instruction).count("\n") + 1


class _Marking(c_family.Printer):
    """A printer that puts marks around the text of each statement."""

    def __init__(self, function: ir.Function, target: Target) -> None:
        self.numbers = _numbers(function)
        super().__init__(function, target)

    def emit(self, node: ir.Node) -> str:
        """Print a node, and mark a statement's text."""
        text = super().emit(node)
        return self.marked(node, text) if isinstance(node, ir.Stmt) else text

    def kernel(self, launch: Launch) -> str:
        """Print a kernel, and mark the definitions of its block and thread indices."""
        head, brace, rest = super().kernel(launch).partition("\n{")
        lines = rest.split("\n")
        for loop in (*launch.blocks, *launch.threads):
            for at, line in enumerate(lines):
                if line.startswith("    const ") and f" {loop.var.name} = " in line:
                    lines[at] = self.marked(loop, line)
                    break
        return head + brace + "\n".join(lines)

    def marked(self, stmt: ir.Node, text: str) -> str:
        """A text with the numbers of its statement."""
        names = ",".join(map(str, self.numbers.get(id(stmt), _NONE)))
        return f"{_OPEN}{names}{_NAMED}{text}{_CLOSE}" if names else text


def _c(lowered: ir.Function, target: Target, knobs: Mapping[str, object]) -> Source:
    function = c_family.printable(lowered, target)
    marked = c_family.printed(_Marking(function, target), knobs)
    text: list[str] = []
    found: list[tuple[int, ...]] = []
    inside: list[tuple[int, ...]] = [_NONE]
    for line in marked.splitlines(keepends=True):
        plain, own = _unmarked(line, inside)
        text.append(plain)
        found.append(own)
    return Source(function, "".join(text), found)


def _unmarked(line: str, inside: list[tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    """A line without marks, and the innermost statements of its text.

    `inside` is the stack of the statements that are open before, then after, the line.
    """
    text = ""
    own: dict[int, None] = {}
    for piece in re.split(_MARKS, line):
        if piece == _CLOSE:
            inside.pop()
        elif piece.startswith(_OPEN):
            inside.append(tuple(map(int, piece[1:-1].split(","))))
        else:
            text += piece
            own |= dict.fromkeys(inside[-1] if piece.strip() else _NONE)
    return text, tuple(own)

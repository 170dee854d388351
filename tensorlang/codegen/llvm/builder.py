"""State while emitting a routine: names, basic blocks, available values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.types import memory_type
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.bounds import ranges_in
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.nodes import Buffer, Expr, Function, Stmt, Var
from tensorlang.targets import Target

Observer: TypeAlias = Callable[[Sequence[Stmt], Sequence[ins.Instruction]], None]


@dataclass
class Module:
    """What its routines share: target, declarations, loop metadata, helpers by name.

    `observer`, if any, is told the instructions of each statement, or of several that
    share them; inner statements come first. `function` is what is printed.
    """

    target: Target
    function: Function | None = None
    declarations: set[str] = field(default_factory=set)
    loops: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    observer: Observer | None = None
    helpers: dict[str, ins.Routine] = field(default_factory=dict)

    @cached_property
    def known(self) -> Known:
        """The ranges of the function's integers."""
        if self.function is None:
            return Known()
        return Known(ranges_in(self.function.body, size_ranges(self.function)))

    def loop(self, *properties: str) -> str:
        """A new `!llvm.loop` node with these properties."""
        name = f"!{len(self.loops) + 1}"
        self.loops.append((name, properties))
        return name


class Builder:
    """Collects a routine's instructions and assigns their names.

    `memo` holds the values of pure expressions that are available here, in a stack of
    scopes, so that a value is only reused where it dominates. Values that read memory
    are in `reads` until the next side effect, and tiles of factors in `factors`. The
    buffers of sums of matrix products are `tiles`. `narrow` maps variables to the f16
    or bf16 variables that they were widened from, and `squares` to transposes.
    """

    def __init__(self, module: Module, routine: ins.Routine) -> None:
        self.module = module
        self.body = routine.body
        self.entry: list[ins.Instruction] = []
        self.block = "entry"
        self.variables: dict[str, str] = {}
        self.pointers: dict[Buffer, str] = {}
        self.aligned: set[Buffer] = set()
        self.multiples: dict[Var, int] = {}
        self.narrow: dict[Var, Var] = {}
        self.squares: dict[Expr, Expr] = {}
        self.tiles: frozenset[Buffer] = frozenset()
        self.factors: dict[Expr, str] = {}
        self.faults = ""
        self.streams = False
        self._names: dict[str, int] = {"entry": 1}  # the first block's
        self._memo: list[dict[Expr, str]] = [{}]
        self._reads: dict[Expr, str] = {}
        self._read = False

    def name(self, hint: str = "") -> str:
        """A fresh local name, based on the hint if there is one."""
        number = self._names.get(hint, 0)
        self._names[hint] = number + 1
        if not hint:
            return f"%.{number}"
        return f"%{hint}.{number}" if number else f"%{hint}"

    def emit(self, instruction: ins.Instruction) -> str:
        """Append an instruction; returns the name of its value."""
        self.body.append(instruction)
        return instruction.name

    def observe(self, first: int, *stmts: Stmt) -> None:
        """Tell the observer whose the instructions from `first` on are."""
        if self.module.observer is not None:
            self.module.observer(stmts, self.body[first:])

    def call(
        self,
        function: str,
        result: str,
        *args: tuple[str, str],
        name: str | None = None,
    ) -> str:
        """Call an LLVM intrinsic on `(type, operand)` pairs, and declare it."""
        types = ", ".join(kind for kind, _ in args)
        self.module.declarations.add(f"{result} @{function}({types})")
        given = [f"{kind} {text}" for kind, text in args]
        target = "" if result == "void" else (name or self.name())
        return self.emit(ins.call(target, result, function, given))

    def label(self, hint: str) -> str:
        """A fresh label, without the leading percent sign."""
        return self.name(hint)[1:]

    def start(self, label: str) -> None:
        """Start the basic block `label`."""
        self.body.append(ins.Label(label))
        self.block = label

    def allocate(self, buffer: Buffer, count: int) -> None:
        """Stack memory for `count` elements of a buffer, in the entry block."""
        name = self.name(buffer.name)
        element = memory_type(buffer.dtype)
        self.entry.append(ins.alloca(name, max(count, 1), element, 64))
        self.pointers[buffer] = name
        self.aligned.add(buffer)

    def rename(self, expr: Expr, text: str, hint: str) -> str:
        """Name the value just computed after its `Let`, unless it is shared."""
        last = self.body[-1] if self.body else None
        if last is None or not text.startswith("%.") or last.name != text:
            return text
        last.name = self.name(hint)
        for table in (self._memo[-1], self._reads):
            if table.get(expr) == text:
                table[expr] = last.name
        return last.name

    def once(self, expr: Expr, compute: Callable[[Expr, Builder], str]) -> str:
        """The value of `expr`, computed unless it is available."""
        for table in reversed(self._memo):
            if expr in table:
                return table[expr]
        if expr in self._reads:
            self._read = True
            return self._reads[expr]
        outer, self._read = self._read, False
        text = compute(expr, self)
        (self._reads if self._read else self._memo[-1])[expr] = text
        self._read = self._read or outer
        return text

    def forget(self, var: Var) -> None:
        """Drop what is known of a variable: another one of its name begins."""
        for table in (*self._memo, self._reads):
            for expr in [each for each in table if var in free_vars(each)]:
                del table[expr]
        for facts in (self.narrow, self.squares):
            facts.pop(var, None)

    def reading(self) -> None:
        """Note that the value being computed depends on memory."""
        self._read = True

    def effect(self) -> None:
        """Note a write to memory: values read from it are no longer available."""
        self._reads = {}
        self.factors = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A region whose values are not available after it."""
        self.effect()
        self._memo.append({})
        yield
        self._memo.pop()
        self.effect()

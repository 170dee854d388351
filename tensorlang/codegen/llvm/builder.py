"""The state of linearising one routine: names, basic blocks, known values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.types import memory_type
from tensorlang.ir.nodes import Buffer, Expr, Var
from tensorlang.targets import Target


@dataclass
class Module:
    """What the routines of one source share: target, declarations, loop metadata."""

    target: Target
    declarations: set[str] = field(default_factory=set)
    loops: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def loop(self, *properties: str) -> str:
        """A new `!llvm.loop` node with these properties."""
        name = f"!{len(self.loops) + 1}"
        self.loops.append((name, properties))
        return name


class Builder:
    """Collects one routine's instructions, each under a name of its own.

    `memo` holds the value of every pure expression computed on the way to this point;
    one scope a basic block region, so that a value is only used where it dominates.
    Values that read memory live in `reads` until the next effect. `narrow` has the f16
    or bf16 that a variable was widened from.
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
        self.faults = ""
        self.streams = False
        self._names: dict[str, int] = {"entry": 1}  # the first block's
        self._memo: list[dict[Expr, str]] = [{}]
        self._reads: dict[Expr, str] = {}
        self._read = False

    def name(self, hint: str = "") -> str:
        """A new local name, readable where there is a hint."""
        number = self._names.get(hint, 0)
        self._names[hint] = number + 1
        if not hint:
            return f"%.{number}"
        return f"%{hint}.{number}" if number else f"%{hint}"

    def emit(self, instruction: ins.Instruction) -> str:
        """Append an instruction; its name, which is its value."""
        self.body.append(instruction)
        return getattr(instruction, "name", "")

    def call(
        self,
        function: str,
        result: str,
        *args: tuple[str, str],
        name: str | None = None,
    ) -> str:
        """Call an LLVM intrinsic on `(type, operand)` pairs, declaring it."""
        types = ", ".join(kind for kind, _ in args)
        self.module.declarations.add(f"{result} @{function}({types})")
        given = [f"{kind} {text}" for kind, text in args]
        target = "" if result == "void" else (name or self.name())
        return self.emit(ins.Call(target, result, function, given))

    def label(self, hint: str) -> str:
        """A new label, without the leading percent sign."""
        return self.name(hint)[1:]

    def start(self, label: str) -> None:
        """Open the basic block `label`."""
        self.body.append(ins.Label(label))
        self.block = label

    def allocate(self, buffer: Buffer, count: int) -> None:
        """Stack memory for `count` elements of a buffer, in the entry block."""
        name = self.name(buffer.name)
        element = memory_type(buffer.dtype)
        self.entry.append(ins.Alloca(name, max(count, 1), element, 64))
        self.pointers[buffer] = name
        self.aligned.add(buffer)

    def rename(self, expr: Expr, text: str, hint: str) -> str:
        """Give the value just computed the name of its `Let`, where it is fresh."""
        last = self.body[-1] if self.body else None
        if last is None or not text.startswith("%.") or _name(last) != text:
            return text
        last.name = self.name(hint)  # type: ignore[union-attr]
        for table in (self._memo[-1], self._reads):
            if table.get(expr) == text:
                table[expr] = _name(last)
        return _name(last)

    def once(self, expr: Expr, compute: Callable[[], str]) -> str:
        """The value of `expr`, computed unless it is known here already."""
        for table in reversed(self._memo):
            if expr in table:
                return table[expr]
        if expr in self._reads:
            self._read = True
            return self._reads[expr]
        outer, self._read = self._read, False
        text = compute()
        (self._reads if self._read else self._memo[-1])[expr] = text
        self._read = self._read or outer
        return text

    def reading(self) -> None:
        """The value being computed depends on memory."""
        self._read = True

    def effect(self) -> None:
        """Memory changed: values that were read from it are forgotten."""
        self._reads = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A region whose values are not known after it."""
        self.effect()
        self._memo.append({})
        yield
        self._memo.pop()
        self.effect()


def _name(instruction: ins.Instruction) -> str:
    return getattr(instruction, "name", "")

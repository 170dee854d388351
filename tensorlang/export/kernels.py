"""Kernels of an exported library: object code with hidden symbols of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorlang import ir
from tensorlang.codegen.llvm import render
from tensorlang.codegen.llvm.builder import Module
from tensorlang.codegen.llvm.instructions import Routine
from tensorlang.codegen.lower import lower
from tensorlang.frame_room import frame_room
from tensorlang.frozen import frozen
from tensorlang.ir.contents import reads, writes
from tensorlang.runtime.cpu import wrapper
from tensorlang.runtime.describing import signature_of
from tensorlang.runtime.signature import Signature

if TYPE_CHECKING:
    from tensorlang.export.machines import Machine


@frozen(eq=False)
class Kernel:
    """A compiled kernel."""

    # of `int32_t symbol(args, thread, team, member)`; `symbol_team` and
    # `symbol_workspace` are its queries
    symbol: str
    signature: Signature  # its buffers and scalars
    used: tuple[bool, ...]  # for each buffer, whether it reads or writes it
    # whether it runs in one thread, as its threads would wait for all others
    alone: bool
    code: bytes  # object code
    machine: Machine  # what it is for


class Kernels:
    """The kernels of a library, each compiled once for a machine.

    Args:
        prefix: Begins the name of every symbol.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._made: dict[tuple[ir.Function, str], Kernel] = {}

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._made.values())

    def kernel(self, function: ir.Function, machine: Machine) -> Kernel:
        """The kernel of a function; CodegenError if the machine cannot express it."""
        key = function, machine.name
        if key not in self._made:
            level = machine.name.replace("-", "_").replace(".", "_")
            number = sum(name == machine.name for _, name in self._made)
            symbol = f"{self._prefix}_{level}_{number}"
            self._made[key] = _compiled(function, symbol, self._prefix, machine)
        return self._made[key]


@frame_room
def _compiled(
    function: ir.Function, symbol: str, prefix: str, machine: Machine
) -> Kernel:
    ir.verify(function)
    signature, lowered = signature_of(function), lower(function, machine.target)
    touched = reads(lowered.body) | writes(lowered.body)
    made = render.printable(replace(lowered, name=symbol))
    module = Module(machine.target)
    routines = [_hidden(each) for each in render.routines(made, module)]
    text = render.printed(made, module, routines, {})
    return Kernel(
        symbol,
        signature,
        tuple(param.buffer in touched for param in lowered.params),
        not wrapper.is_barrier_free(text),
        machine.compile(text.replace("@tensorlang_", f"@{prefix}_")),
        machine,
    )


def _hidden(routine: Routine) -> Routine:
    """A routine that other libraries do not see, with a name that C can write."""
    if routine.linkage:
        return routine
    return replace(routine, linkage="hidden ", name=routine.name.replace(".", "_"))

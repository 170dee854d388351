"""Roles: concurrent programs of some warps each, scheduled cooperatively.

Each role is a generator that runs up to a wait which cannot proceed, and is resumed
after the others had their turn. If a whole round makes no progress, it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.lanes import Array, Lanes
from tensorlang.ir.interpreter.objects import ready
from tensorlang.ir.interpreter.state import Machine, fault
from tensorlang.ir.nodes import For, If, Role, Seq, Stmt, Wait, While
from tensorlang.ir.text.print_expressions import text
from tensorlang.ir.visit import walk

REGISTERS: Final = 65536  # of a multiprocessor
Execute: TypeAlias = Callable[[Stmt, Machine, Lanes], None]


def run_roles(
    roles: Sequence[Role], machine: Machine, lanes: Lanes, execute: Execute
) -> None:
    """Run roles concurrently, each by the lanes of its warps.

    Raises:
        InterpreterError: the threads of a warp disagree, a thread has two roles, the
            roles want more registers than there are, or all remaining roles wait (a
            deadlock).
    """
    if machine.clocks is None:
        raise InterpreterError("roles need barrier objects to meet at; there are none")
    running: list[tuple[Role, Iterator[str]]] = []
    taken = np.zeros(lanes.count, np.bool_)
    held = np.full(lanes.count, _registers_at_start(machine.clocks.threads.extent))
    for role in roles:
        cond = np.broadcast_to(evaluate(role.cond, machine, lanes), lanes.count)
        _whole_warps(role, machine, lanes, cond)
        if (cond & taken).any():
            lane = int(np.argmax(cond & taken))
            raise fault(lanes, lane, f"a thread has a second role, {text(role.cond)}")
        taken |= cond
        held[cond] = role.registers or held[cond]
        if cond.any():
            chosen = lanes.take(np.flatnonzero(cond))
            running.append((role, _steps(role.body, machine, chosen, execute)))
    most = int(np.bincount(machine.clocks.block(lanes), held).max())
    if most > REGISTERS:
        raise fault(
            lanes, 0, f"deadlock: the roles want {most} of {REGISTERS} registers"
        )
    _take_turns(running, machine, lanes)


def _registers_at_start(threads: int) -> int:
    """Registers of a thread, of a block that has all of a multiprocessor."""
    return REGISTERS // threads // 8 * 8


def _whole_warps(role: Role, machine: Machine, lanes: Lanes, cond: Array) -> None:
    assert machine.clocks is not None
    warp = machine.clocks.warp(lanes)
    mixed = np.isin(warp, warp[cond]) & ~cond
    if mixed.any():
        raise fault(
            lanes,
            int(np.argmax(mixed)),
            f"the role {text(role.cond)} has some threads of a warp, and not all",
        )


def _take_turns(
    running: list[tuple[Role, Iterator[str]]], machine: Machine, lanes: Lanes
) -> None:
    waits: list[str] = []
    before = -1
    while running:
        if before == machine.passed:
            whole = ", ".join(waits)
            raise fault(lanes.take(np.arange(1)), 0, f"deadlock: {whole}")
        before = machine.passed
        waits = []
        for item in tuple(running):
            role, steps = item
            waiting = next(steps, "")
            if waiting:
                waits.append(f"role {text(role.cond)} waits for {waiting}")
            else:
                running.remove(item)
                machine.passed += 1


def wait(node: Wait, machine: Machine, lanes: Lanes) -> None:
    """A wait outside of roles, where nobody else can arrive.

    Raises:
        InterpreterError: it cannot proceed (a deadlock).
    """
    waiting = ready(node, machine, lanes)
    if waiting:
        raise fault(lanes, 0, f"deadlock: all threads wait for {waiting}")


def _may_wait(node: Stmt) -> bool:
    return any(isinstance(inner, Wait) for inner in walk(node))


def _steps(
    node: Stmt, machine: Machine, lanes: Lanes, execute: Execute
) -> Iterator[str]:
    """Execute `node`; at each wait that cannot proceed, yield what it waits for."""
    if machine.derived(node, _may_wait):
        yield from _walk(node, machine, lanes, execute)
    else:
        execute(node, machine, lanes)


@singledispatch
def _walk(
    node: Stmt, machine: Machine, lanes: Lanes, execute: Execute
) -> Iterator[str]:
    del machine, lanes, execute
    raise InterpreterError(
        f"there is a wait in a {type(node).__name__}: wait around it"
    )


@_walk.register
def _(node: Seq, machine: Machine, lanes: Lanes, execute: Execute) -> Iterator[str]:
    for stmt in node.stmts:
        yield from _steps(stmt, machine, lanes, execute)


@_walk.register
def _(node: Wait, machine: Machine, lanes: Lanes, _execute: Execute) -> Iterator[str]:
    while True:
        machine.step()
        waiting = ready(node, machine, lanes)
        if not waiting:
            machine.passed += 1
            return
        yield waiting


@_walk.register
def _(node: If, machine: Machine, lanes: Lanes, execute: Execute) -> Iterator[str]:
    machine.step()
    cond = evaluate(node.cond, machine, lanes)
    for branch, going in ((node.then, cond), (node.orelse, ~cond)):
        chosen = None if branch is None else lanes.where(going)
        if chosen is not None and branch is not None:
            yield from _steps(branch, machine, chosen, execute)


@_walk.register
def _(node: While, machine: Machine, lanes: Lanes, execute: Execute) -> Iterator[str]:
    going: Lanes | None = lanes
    while going is not None:
        machine.step()
        going = going.where(evaluate(node.cond, machine, going))
        if going is not None:
            yield from _steps(node.body, machine, going, execute)


@_walk.register
def _(node: For, machine: Machine, lanes: Lanes, execute: Execute) -> Iterator[str]:
    machine.step()
    if node.kind not in ("serial", "unrolled"):
        raise InterpreterError(
            f"there is a wait in the {node.kind} loop {node.var.name}"
        )
    extents = evaluate(node.extent, machine, lanes)
    kept = lanes.loops
    for iteration in range(int(extents.max())):
        going = lanes.where(extents > iteration)
        assert going is not None
        going.loops = (*kept, node.var.name)
        going.bind(node.var.name, np.array([iteration], node.var.dtype.numpy))
        yield from _steps(node.body, machine, going, execute)
    lanes.loops = kept


def grouped(node: Seq) -> tuple[Stmt | tuple[Role, ...], ...]:
    """The statements of a sequence, with consecutive roles grouped."""
    found: list[Stmt | tuple[Role, ...]] = []
    for is_role, run in groupby(node.stmts, lambda stmt: isinstance(stmt, Role)):
        together = tuple(run)
        if is_role:
            found.append(tuple(s for s in together if isinstance(s, Role)))
        else:
            found += together
    return tuple(found)

"""Collectives are for targets that have them; the others refuse them in a sentence."""

from __future__ import annotations

from tensorlang.codegen.hopper.lower import refuse_roles
from tensorlang.errors import CodegenError
from tensorlang.ir.collectives import COLLECTIVES, collectives_in
from tensorlang.ir.nodes import Call, Function, Load, Ramp
from tensorlang.ir.visit import walk
from tensorlang.targets import Target


def refuse_missing(function: Function, target: Target) -> None:
    """Check that a target has every collective of a function.

    Raises:
        CodegenError: it lacks one; schedules ask `target.features` before.
    """
    refuse_roles(function, target)
    for entry in collectives_in(function.body):
        if entry.feature not in target.features:
            raise CodegenError(
                f"{entry.name} is for all lanes of a {entry.scope}, which {target} "
                f"cannot do: it has no {entry.feature!r}; schedule it as plain loops"
            )


def check_rows(function: Function) -> None:
    """Check that each matrix row that a warp loads is 16 bytes of shared memory.

    Raises:
        CodegenError: it lies elsewhere, or its numbers are not known to be neighbours.
    """
    for node in walk(function.body):
        if not isinstance(node, Call) or not _loads_rows(node):
            continue
        (row,) = node.args
        assert isinstance(row, Load)
        together = bool(row.indices) and isinstance(row.indices[0], Ramp)
        if row.buffer.scope != "shared" or not together:
            raise CodegenError(
                f"{node.name} loads rows of 8 neighbours from shared memory, and "
                f"{row!r} of scope {row.buffer.scope!r} is none; stage a copy whose "
                "layout keeps them together"
            )


def _loads_rows(call: Call) -> bool:
    return call.name in COLLECTIVES and COLLECTIVES[call.name].feature == "ldmatrix"

"""Checks for extents that a step evaluates at another place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.nodes import For, Stmt
from tensorlang.scheduling.analysis.legality import legality


@legality("an extent is invariant in its loop")
def steady(loops: Sequence[For], inside: Stmt) -> str | None:
    """No loop extent reads what is written inside."""
    for loop in loops:
        for buffer in reads(loop.extent) & writes(inside):
            return (
                f"the extent of loop {loop.var.name!r} is {loop.extent!r}, and "
                f"{buffer.name!r} is written inside, so it cannot be evaluated in "
                "another place; copy it to a temporary first"
            )
    return None


def known_without(loops: Sequence[For], gone: Collection[For]) -> None:
    """Refuse loops whose extents use the variable of a loop no longer around them.

    Raises:
        ScheduleError: naming both loops.
    """
    for loop in loops:
        for other in gone:
            if other.var in free_vars(loop.extent):
                raise ScheduleError(
                    f"the extent of loop {loop.var.name!r} is {loop.extent!r}, so it "
                    f"cannot be outside of loop {other.var.name!r}"
                )

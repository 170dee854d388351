"""Collectives are for targets that have them; the others refuse them in a sentence."""

from __future__ import annotations

from tensorlang.codegen.hopper.lower import refuse_roles
from tensorlang.errors import CodegenError
from tensorlang.ir.collectives import collectives_in
from tensorlang.ir.nodes import Function
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

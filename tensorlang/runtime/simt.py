"""Lowering and rendering that CUDA and OpenCL share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorlang.targets import Target

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function


def lower(function: Function, target: Target) -> Function:
    """Lower a function to launches."""
    from tensorlang.codegen.simt import lower as lowering  # noqa: PLC0415 - not warm

    return lowering.lower(function, target)


def render(function: Function, target: Target, knobs: Mapping[str, object]) -> str:
    """The source of a lowered function in the target's language."""
    from tensorlang.codegen.c_family import render as printing  # noqa: PLC0415 - same

    return printing.render(function, target, knobs)

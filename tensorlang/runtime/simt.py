"""Lowering and rendering that CUDA and OpenCL share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorlang import lazy
from tensorlang.targets import Target

with lazy.modules(__name__):  # a warm process needs neither
    from tensorlang.codegen.c_family import render as printing
    from tensorlang.codegen.simt import lower as lowering

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function


def lower(function: Function, target: Target) -> Function:
    """Lower a function to launches."""
    return lowering.lower(function, target)


def render(function: Function, target: Target, knobs: Mapping[str, object]) -> str:
    """The source of a lowered function in the target's language."""
    return printing.render(function, target, knobs)

"""Registers of roles: warpgroups give some back, so that others can have more."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import CodegenError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Const, For, Role
from tensorlang.ir.print_expr import text
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.visit import walk

_WARPGROUP: Final = 128
_MOST: Final = 65536  # of a processor


def threads_of(loop: For) -> int:
    """How many threads a block has.

    Raises:
        CodegenError: their number varies.
    """
    if not isinstance(loop.extent, Const):
        raise CodegenError(f"loop {loop.var.name}: the number of threads varies")
    return int(loop.extent.value)


def at_start(threads: int) -> int:
    """The registers that each thread of a block has at first, if it has all it can."""
    return _MOST // threads // 8 * 8


def check_registers(loop: For) -> None:
    """Check that the registers which the roles of a block ask for come together.

    Raises:
        CodegenError: there are not so many, and warps would wait for them for ever; or
            a role that asks is not made of whole warpgroups.
    """
    roles = [n for n in walk(loop.body) if isinstance(n, Role) and n.registers]
    if not roles:
        return
    numbers = np.arange(threads_of(loop))
    held = np.full(numbers.size, at_start(numbers.size))
    for role in roles:
        if free_vars(role.cond) - {loop.var}:
            raise CodegenError(f"role {text(role.cond)} asks for registers, and varies")
        chosen = np.broadcast_to(
            evaluate(role.cond, {loop.var: numbers}), numbers.shape
        )
        groups = numbers[chosen] // _WARPGROUP
        if (np.bincount(groups) % _WARPGROUP).any():
            raise CodegenError(
                f"role {text(role.cond)} asks for registers, and is not made of whole "
                f"warpgroups of {_WARPGROUP} threads"
            )
        held[chosen] = role.registers
    if held.sum() > _MOST:
        raise CodegenError(
            f"the roles ask for {held.sum()} registers of {_MOST}, and would wait for "
            "ever; give some of them fewer"
        )

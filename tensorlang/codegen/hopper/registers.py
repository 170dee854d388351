"""Register reallocation between roles: some warpgroups release what others claim."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import CodegenError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Const, For, Role
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.text.print_expressions import text
from tensorlang.ir.visit import walk

_WARPGROUP: Final = 128
_MOST: Final = 65536  # registers per SM


def threads_of(loop: For) -> int:
    """Threads of a block; CodegenError if their number is not constant."""
    if not isinstance(loop.extent, Const):
        raise CodegenError(f"loop {loop.var.name}: the number of threads varies")
    return int(loop.extent.value)


def at_start(threads: int) -> int:
    """Initial registers per thread, if the block uses all of the SM's."""
    return _MOST // threads // 8 * 8


def check_registers(loop: For) -> None:
    """Check that the registers requested by a block's roles are available.

    Raises:
        CodegenError: they exceed the register file, so warps would deadlock; or a role
            with a request does not consist of whole warpgroups.
    """
    roles = [n for n in walk(loop.body) if isinstance(n, Role) and n.registers]
    if not roles:
        return
    numbers = np.arange(threads_of(loop))
    held = np.full(numbers.size, at_start(numbers.size))
    for role in roles:
        if free_vars(role.cond) - {loop.var}:
            raise CodegenError(f"role {text(role.cond)} requests registers, and varies")
        chosen = np.broadcast_to(
            evaluate(role.cond, {loop.var: numbers}), numbers.shape
        )
        groups = numbers[chosen] // _WARPGROUP
        if (np.bincount(groups) % _WARPGROUP).any():
            raise CodegenError(
                f"role {text(role.cond)} requests registers, but does not consist of "
                f"whole warpgroups of {_WARPGROUP} threads"
            )
        held[chosen] = role.registers
    if held.sum() > _MOST:
        raise CodegenError(
            f"the roles request {held.sum()} of {_MOST} registers and would "
            "deadlock; request fewer"
        )

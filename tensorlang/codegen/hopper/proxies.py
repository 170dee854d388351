"""Fences where products of warpgroups read what threads write to shared memory.

    keys[..] = k[..]                       keys[..] = k[..]
    barrier("block")               ->      proxy_fence()
    warpgroup_product(.., keys[0])         barrier("block")
                                           warpgroup_product(.., keys[0])

They read it by another proxy. What bulk copies write needs no fence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.codegen.hopper.effects import effect
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import contents, writes
from tensorlang.ir.visit import nodes_of, transform_statements

_PRODUCT: Final = "warpgroup_product"


def fence_proxies(function: ir.Function) -> ir.Function:
    """The function with a fence before barriers that such products need.

    Raises:
        CodegenError: the sums of a product are not in registers.
    """
    if _PRODUCT not in contents(function.body).calls:
        return function
    return replace(function, body=transform_statements(function.body, _fenced))


def _fenced(stmt: ir.Stmt) -> ir.Stmt:
    """A launch with fences."""
    if not isinstance(stmt, ir.For) or stmt.thread != "thread.x":
        return stmt
    products = [x for x in nodes_of(stmt.body, ir.Call) if x.name == _PRODUCT]
    loads = [x for call in products for x in nodes_of(call, ir.Load)]
    for call in products:
        sums = call.args[2]
        if isinstance(sums, ir.Load) and sums.buffer.scope != "register":
            raise CodegenError(
                f"{sums.buffer.name} is a product of warpgroups, and threads do not "
                "have parts of it in registers"
            )
    read = {load.buffer for load in loads if load.buffer.scope == "shared"}
    if not read & writes(stmt.body):
        return stmt

    def ahead(part: ir.Stmt) -> ir.Stmt:
        return (
            ir.seq(effect("proxy_fence"), part) if part == ir.Barrier("block") else part
        )

    return transform_statements(stmt, ahead)

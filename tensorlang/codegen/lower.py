"""Lowering: the passes, in order, from a scheduled function to plain loops."""

from __future__ import annotations

from typing import Any

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.codegen.expand_math import expand_math
from tensorlang.codegen.flatten import flatten
from tensorlang.codegen.interleave import interleave
from tensorlang.codegen.lanes import reduce_lanes
from tensorlang.codegen.reductions import expand_reductions
from tensorlang.codegen.team import share
from tensorlang.codegen.unroll import unroll
from tensorlang.codegen.vectorize import vectorize
from tensorlang.errors import CodegenError
from tensorlang.ir.nodes import Function
from tensorlang.ir.simplify import simplify_function
from tensorlang.ir.visit import loops


def lower(function: Function, target: Any) -> Function:
    """The function as every thread of a team runs it, in the same grammar.

    No blocks, reductions, layouts or loop kinds but `serial` are left; memory is
    one-dimensional; `tid` and `team` are two more scalars at the end.

    Raises:
        CodegenError: the function uses what a CPU has not.
    """
    _refuse_bound_loops(function)
    function = remove_blocks(function)
    function = reduce_lanes(function, target.vector_bits)
    function = expand_reductions(function)
    function = expand_math(function)
    function = simplify_function(flatten(function))
    function = vectorize(function, target.vector_bits)
    function = unroll(function)
    function = interleave(function)
    return simplify_function(share(function, target.threads))


def _refuse_bound_loops(function: Function) -> None:
    for loop in loops(function.body):
        if loop.kind == "bound":
            raise CodegenError(
                f"loop {loop.var.name} is bound to {loop.thread}: a CPU has no such "
                "index; make it parallel, or build for a GPU"
            )

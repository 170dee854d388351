"""Lowering: the passes, in order, from a scheduled function to plain loops."""

from __future__ import annotations

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.codegen.collectives import refuse_missing
from tensorlang.codegen.copies import plain_copies
from tensorlang.codegen.deinterleave import deinterleave
from tensorlang.codegen.expand_math import expand_math
from tensorlang.codegen.flatten import flatten
from tensorlang.codegen.interleave import interleave
from tensorlang.codegen.lanes import reduce_lanes
from tensorlang.codegen.names import Names, give_way
from tensorlang.codegen.reductions import expand_reductions
from tensorlang.codegen.streams import gather_streams
from tensorlang.codegen.team import RESERVED, share
from tensorlang.codegen.unroll import unroll
from tensorlang.codegen.vectorize import vectorize
from tensorlang.errors import CodegenError
from tensorlang.ir.contents import loops
from tensorlang.ir.nodes import Binary, Compare, Function
from tensorlang.ir.simplify import entry, simplify_function
from tensorlang.ir.visit import walk
from tensorlang.targets import Target


def lower(function: Function, target: Target) -> Function:
    """The function as every thread of a team runs it, in the same grammar.

    No blocks, reductions, layouts or loop kinds but `serial` are left; memory is
    one-dimensional; `tid` and `team` are two more scalars at the end.

    Raises:
        CodegenError: the function uses what a CPU has not.
    """
    _refuse_bound_loops(function)
    refuse_missing(function, target)
    function = plain_copies(function)
    names = Names(function)
    function = give_way(function, names, RESERVED)
    function = remove_blocks(function)
    function = reduce_lanes(function, names, target.vector_bits)
    function = expand_reductions(function, names, contract=target.has("fma"))
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = simplify_function(function, known)
    function = vectorize(function, names, target.vector_bits)
    function = share(function, names, target.threads)
    function = simplify_function(function, known)
    again = _settled_by_unrolling(function)
    function = unroll(function, names)
    function = simplify_function(function, known) if again else function
    function = interleave(deinterleave(function, names))
    return gather_streams(function)


def _settled_by_unrolling(function: Function) -> bool:
    """Whether a copy of an unrolled body may need more than its sums folded."""
    return any(
        isinstance(node, Compare)
        or (isinstance(node, Binary) and node.op in ("floordiv", "floormod"))
        for loop in loops(function.body)
        if loop.kind == "unrolled"
        for node in walk(loop.body)
    )


def _refuse_bound_loops(function: Function) -> None:
    for loop in loops(function.body):
        if loop.kind == "bound":
            raise CodegenError(
                f"loop {loop.var.name} is bound to {loop.thread}: a CPU has no such "
                "index; make it parallel, or build for a GPU"
            )

"""The CPU lowering pipeline: from a scheduled function to plain loops."""

from __future__ import annotations

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.codegen.collectives import refuse_missing
from tensorlang.codegen.copies import plain_copies
from tensorlang.codegen.expand_math import expand_math
from tensorlang.codegen.flatten import flatten
from tensorlang.codegen.names import Names, rename_reserved
from tensorlang.codegen.nontemporal import sink_nontemporal
from tensorlang.codegen.own_names import simplified
from tensorlang.codegen.reductions import expand_reductions
from tensorlang.codegen.repetitions import name_repetitions
from tensorlang.codegen.team import RESERVED, share
from tensorlang.codegen.vectors.deinterleave import deinterleave
from tensorlang.codegen.vectors.interleave import interleave
from tensorlang.codegen.vectors.lane_reductions import reduce_lanes
from tensorlang.codegen.vectors.permutations import permutations
from tensorlang.codegen.vectors.unroll import unroll, without_copies
from tensorlang.codegen.vectors.vectorize import vectorize
from tensorlang.errors import CodegenError
from tensorlang.ir.contents import loops
from tensorlang.ir.nodes import Binary, Compare, Function
from tensorlang.ir.simplification.simplify import entry
from tensorlang.ir.visit import holds, nodes_of
from tensorlang.targets import Target


def lower(function: Function, target: Target) -> Function:
    """The function as each thread of a team runs it, in the same IR.

    No blocks, reductions or layouts are left, and only `serial` loops; buffers are
    one-dimensional; the scalars `tid` and `team` are appended.

    Raises:
        CodegenError: the function uses what a CPU lacks.
    """
    _refuse_bound_loops(function)
    refuse_missing(function, target)
    function = plain_copies(function)
    names = Names(function)
    function = rename_reserved(function, names, RESERVED)
    function = remove_blocks(function)
    function = reduce_lanes(function, names, target.vector_bits)
    function = expand_reductions(function, names, contract=target.has("fma"))
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = simplified(function, known, names)
    function = vectorize(function, names, target.vector_bits)
    function = share(without_copies(function), names, target.threads)
    function = simplified(function, known, names)
    again = _settled_by_unrolling(function)
    function = unroll(function, names)
    function = simplified(function, known, names) if again else function
    function = interleave(permutations(deinterleave(function, names)))
    return name_repetitions(sink_nontemporal(function), names)


def _settled_by_unrolling(function: Function) -> bool:
    """Whether unrolled copies need full simplification: they compare or divide."""
    bodies = [loop.body for loop in loops(function.body) if loop.kind == "unrolled"]
    return any(
        holds(body, Compare)
        or any(node.op in ("floordiv", "floormod") for node in nodes_of(body, Binary))
        for body in bodies
    )


def _refuse_bound_loops(function: Function) -> None:
    for loop in loops(function.body):
        if loop.kind == "bound":
            raise CodegenError(
                f"loop {loop.var.name} is bound to {loop.thread}: a CPU has no such "
                "index; make it parallel, or build for a GPU"
            )

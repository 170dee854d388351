"""The SIMT lowering pipeline: from a scheduled function to launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.codegen.collectives import check_rows, refuse_missing
from tensorlang.codegen.copies import narrow_copies, plain_copies
from tensorlang.codegen.expand_math import expand_math
from tensorlang.codegen.flatten import flatten
from tensorlang.codegen.hopper.lower import lower_roles
from tensorlang.codegen.hopper.proxies import fence_proxies
from tensorlang.codegen.names import Names, rename_reserved
from tensorlang.codegen.narrow import widen_narrow
from tensorlang.codegen.own_names import simplified
from tensorlang.codegen.reductions import expand_reductions
from tensorlang.codegen.repetitions import name_repetitions
from tensorlang.codegen.simt.common_subexpressions import bind_common
from tensorlang.codegen.simt.cross_thread_reductions import (
    lower_cross_thread_reductions,
)
from tensorlang.codegen.simt.depth import bind_deep
from tensorlang.codegen.simt.distribute import distribute
from tensorlang.codegen.simt.fragments import hoist_fragments
from tensorlang.codegen.simt.groups import make_groups
from tensorlang.codegen.simt.indices import narrow_indices
from tensorlang.codegen.simt.launches import make_launches
from tensorlang.codegen.simt.lockstep import in_lockstep
from tensorlang.codegen.simt.quotients import hoist_divisions
from tensorlang.codegen.simt.reciprocals import multiply_by_reciprocals
from tensorlang.codegen.simt.register_indices import substitute_register_indices
from tensorlang.codegen.simt.reserved import RESERVED
from tensorlang.codegen.simt.unswitch import unswitch_loops
from tensorlang.codegen.simt.whole_vectors import combine_vectors
from tensorlang.codegen.vectors.deinterleave import deinterleave
from tensorlang.codegen.vectors.interleave import interleave
from tensorlang.codegen.vectors.lane_reductions import reduce_lanes
from tensorlang.codegen.vectors.sizes import split_vectors
from tensorlang.codegen.vectors.transposes import expand_transposes
from tensorlang.codegen.vectors.unroll import unroll, without_copies
from tensorlang.codegen.vectors.vectorize import vectorize
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import For, Function, Let, Node, Reduce, Stmt
from tensorlang.ir.simplification.simplify import entry
from tensorlang.ir.visit import transform_statements, walk
from tensorlang.targets import Target

# statements up to which unrolled loops are expanded here, not by the device's compiler
_WRITTEN_OUT: Final = 3


def lower(function: Function, target: Target) -> Function:
    """The function as launches of plain loops, in the same IR.

    No blocks, reductions or layouts are left, and only `serial` and `bound` loops;
    buffers are one-dimensional. At the top are allocations, host control flow, and
    launches: nests of all block indices around all thread indices.

    Raises:
        CodegenError: the function uses what launches do not support.
    """
    refuse_missing(function, target)
    if "cp_async" not in target.features:
        function = plain_copies(function)
    function = lower_roles(function, target)
    if target.model == "cpu":
        return _for_groups(function, target)
    names = Names(function)
    function = rename_reserved(function, names, RESERVED)
    function = lower_cross_thread_reductions(
        distribute(function), names, target.features
    )
    function = remove_blocks(_folding_in_order(function))
    function = expand_reductions(function, names)
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = substitute_register_indices(simplified(function, known, names))
    function = simplified(make_launches(function, names), known, names)
    function = fence_proxies(function)
    function = in_lockstep(function, names, target.vector_bits // 8)
    function = unroll(hoist_fragments(function, names), names, _WRITTEN_OUT)
    function = narrow_copies(simplified(function, known, names))
    check_rows(function)
    function = unswitch_loops(combine_vectors(widen_narrow(function)))
    function = hoist_divisions(function, names)
    function = multiply_by_reciprocals(function, names, target)
    return bind_deep(narrow_indices(bind_common(function, names)), names)


def _for_groups(function: Function, target: Target) -> Function:
    """Lower for CPUs: groups of one work-item, with lanes as vectors."""
    names = Names(function)
    function = rename_reserved(function, names, RESERVED)
    function = expand_transposes(remove_blocks(function), names)
    function = reduce_lanes(function, names, target.vector_bits)
    function = expand_reductions(function, names)
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = simplified(function, known, names)
    function = vectorize(function, names, target.vector_bits)
    function = simplified(make_groups(function, names, target), known, names)
    function = simplified(unroll(without_copies(function), names), known, names)
    function = interleave(deinterleave(function, names))
    function = widen_narrow(split_vectors(function, names))
    function = bind_common(name_repetitions(function, names), names)
    return bind_deep(function, names)


def _folding_in_order(function: Function) -> Function:
    """Make vectorized loops serial if their lanes reduce into one state."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind == "vectorized" and _folds(stmt):
            return replace(stmt, kind="serial")
        return stmt

    return transform_statements(function, visit)


def _folds(loop: For) -> bool:
    """Whether a reduction in a loop has an index that is uniform across lanes."""
    varying: set[Node] = {loop.var}
    for node in walk(loop.body):
        value = node.value if isinstance(node, Let) else getattr(node, "value", None)
        var = getattr(node, "var", None)
        if var is not None and isinstance(value, Node) and free_vars(value) & varying:
            varying.add(var)
    return any(
        not frozenset().union(*(free_vars(i) for i in node.indices)) & varying
        for node in walk(loop.body)
        if isinstance(node, Reduce)
    )

"""Lowering for threads: the passes, in order, from a scheduled function to launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.codegen.blocks import remove_blocks
from tensorlang.codegen.collectives import check_rows, refuse_missing
from tensorlang.codegen.copies import narrow_copies, plain_copies
from tensorlang.codegen.deinterleave import deinterleave
from tensorlang.codegen.expand_math import expand_math
from tensorlang.codegen.flatten import flatten
from tensorlang.codegen.hopper.lower import lower_roles
from tensorlang.codegen.interleave import interleave
from tensorlang.codegen.lanes import reduce_lanes
from tensorlang.codegen.names import Names, give_way
from tensorlang.codegen.narrow import widen_narrow
from tensorlang.codegen.reductions import expand_reductions
from tensorlang.codegen.simt.depth import name_deep
from tensorlang.codegen.simt.distribute import distribute
from tensorlang.codegen.simt.fragments import load_once
from tensorlang.codegen.simt.groups import make_groups, without_copies
from tensorlang.codegen.simt.guards import ask_once
from tensorlang.codegen.simt.indices import narrow_indices
from tensorlang.codegen.simt.launches import make_launches
from tensorlang.codegen.simt.lockstep import in_lockstep
from tensorlang.codegen.simt.own_places import own_places
from tensorlang.codegen.simt.quotients import divide_once
from tensorlang.codegen.simt.reserved import RESERVED
from tensorlang.codegen.simt.sharing import name_shared
from tensorlang.codegen.simt.thread_folds import fold_across_threads
from tensorlang.codegen.simt.whole_vectors import take_whole
from tensorlang.codegen.unroll import unroll
from tensorlang.codegen.vector_sizes import cut_vectors
from tensorlang.codegen.vectorize import vectorize
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import For, Function, Let, Node, Reduce, Stmt
from tensorlang.ir.simplify import entry, simplify_function
from tensorlang.ir.visit import rebuild, rewriter, walk
from tensorlang.targets import Target

# statements of an unrolled loop that is written out, where the compiler can do it, too
_WRITTEN_OUT: Final = 3


def lower(function: Function, target: Target) -> Function:
    """The function as launches of plain loops, in the same grammar.

    No blocks, reductions, layouts or loop kinds but `serial` and `bound` are left;
    memory is one-dimensional; outermost stand allocations, the host's control flow, and
    nests of all block indices around all thread indices, each of them one launch.

    Raises:
        CodegenError: the function uses what a launch has not.
    """
    refuse_missing(function, target)
    if "cp_async" not in target.features:
        function = plain_copies(function)
    function = lower_roles(function, target)
    if target.model == "cpu":
        return _for_groups(function, target)
    names = Names(function)
    function = give_way(function, names, RESERVED)
    function = fold_across_threads(distribute(function), names, target.features)
    function = remove_blocks(_folding_in_order(function))
    function = expand_reductions(function, names)
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = own_places(simplify_function(function, known))
    function = simplify_function(make_launches(function, names), known)
    function = in_lockstep(function, names, target.vector_bits // 8)
    function = unroll(load_once(function, names), names, _WRITTEN_OUT)
    function = narrow_copies(simplify_function(function, known))
    check_rows(function)
    function = ask_once(take_whole(widen_narrow(function)))
    function = divide_once(function, names)
    return name_deep(narrow_indices(name_shared(function, names)), names)


def _for_groups(function: Function, target: Target) -> Function:
    """For a CPU: groups of one work-item, whose lanes are vectors."""
    names = Names(function)
    function = give_way(function, names, RESERVED)
    function = reduce_lanes(remove_blocks(function), names, target.vector_bits)
    function = expand_reductions(function, names)
    function = expand_math(function, names)
    function = flatten(function)
    known = entry(function)
    function = simplify_function(function, known)
    function = vectorize(function, names, target.vector_bits)
    function = simplify_function(make_groups(function, names, target), known)
    function = simplify_function(unroll(without_copies(function), names), known)
    function = interleave(deinterleave(function, names))
    function = widen_narrow(cut_vectors(function, names))
    return name_deep(name_shared(function, names), names)


def _folding_in_order(function: Function) -> Function:
    """Vectorized loops whose lanes fold one state run as plain loops."""

    @rewriter
    def visit(node: Node) -> Node:
        if not isinstance(node, Stmt):
            return node
        new = rebuild(node, visit)
        if isinstance(new, For) and new.kind == "vectorized" and _folds(new):
            return replace(new, kind="serial")
        return new

    return replace(function, body=visit(function.body))


def _folds(loop: For) -> bool:
    """Whether some state in a loop is at a place that is the same in all lanes."""
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

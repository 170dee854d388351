"""A lowered function as the program of a whole team of threads.

Lowered code is what one thread of a team runs, with `team` barriers where threads
synchronize. Run in a parallel loop over threads, missing or divergent barriers are
detected like any race.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.errors import IRError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Alloc, Const, For, Function, Let, Node, Seq, Var, seq
from tensorlang.ir.visit import transform, walk

_SHARED: Final = ("global", "shared")  # scopes allocated once per team


def as_team(
    func: Function, threads: int, thread: str = "tid", team: str = "team"
) -> Function:
    """`func` run by `threads` concurrent threads, as a function without those scalars.

        def f(.., *, tid, team):       def f(..):
            t = alloc(..)                  t = alloc(..)
            S                  ->          team = threads
                                           for tid in parallel(threads):
                                               S

    Args:
        func: A function with scalars for the thread's number and the team's size.
        threads: The number of threads.
        thread: The name of the scalar with the thread's number.
        team: The name of the scalar with the team's size.

    Raises:
        IRError: there are no such scalars, or the shape of a temporary shared by the
            team depends on more than scalars.
    """
    by_name = {var.name: var for var in func.scalars}
    if thread not in by_name or team not in by_name:
        raise IRError(f"{func.name} has no scalars {thread} and {team}: is it lowered?")
    tid, size = by_name[thread], by_name[team]
    shared = [n for n in walk(func.body) if isinstance(n, Alloc) and _is_shared(n)]
    for alloc in shared:
        if not free_vars(alloc.buffer) <= set(func.scalars) - {tid}:
            raise IRError(f"the shape of {alloc.buffer.name} is not one of the team's")
    count = Const(threads, tid.dtype)
    body = For(tid, count, "parallel", transform(func.body, _without_shared))
    rest: tuple[Var, ...] = tuple(v for v in func.scalars if v not in (tid, size))
    head = Let(size, Const(threads, size.dtype))
    return replace(func, scalars=rest, body=seq(head, *shared, body))


def _is_shared(node: Node) -> bool:
    return isinstance(node, Alloc) and node.buffer.scope in _SHARED


def _without_shared(node: Node) -> Node:
    if isinstance(node, Seq):
        return seq(*(stmt for stmt in node.stmts if not _is_shared(stmt)))
    return node

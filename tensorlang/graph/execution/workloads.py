"""The operator workloads of a program, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from tensorlang.errors import ShapeError
from tensorlang.graph.applying import without_data
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import names_in
from tensorlang.graph.values import Value
from tensorlang.ops.calls.dispatch import Nowhere
from tensorlang.ops.operator import Operator
from tensorlang.workload import Workload

Called: TypeAlias = "tuple[Operator, Workload]"


class _Noted(Nowhere):
    """A stub kernel that records its call."""

    def __init__(self, op: Operator, workload: Workload) -> None:
        self.called = op, workload


class _Noting(Nowhere):
    """The target of stub kernels that record their calls."""

    each_call = True

    def built(self, op: Operator, workload: Workload) -> Nowhere:
        """The stub kernel."""
        return _Noted(op, workload)


_NOTING: Final = _Noting()


def workloads(
    program: Graph,
    sizes: Mapping[str, int] | None = None,
    constant: AbstractSet[Value] = frozenset(),
) -> Counter[Called]:
    """Count the calls of each operator and workload in a program.

    A loop body counts once, however often it runs. Views, which compute nothing, do not
    count. No kernel is built and no memory allocated.

    Args:
        program: The program.
        sizes: The values of its named sizes.
        constant: Values that are computed once, ahead: their calls do not count.

    Raises:
        ShapeError: a named size has no value.
    """
    given = dict(sizes or {})
    shapes = tuple(value.spec.shape for value in program.inputs)
    if missing := names_in(shapes) - given.keys():
        raise ShapeError(
            f"{program.name}: {', '.join(sorted(missing))} is symbolic; give its size"
        )
    return Counter(_calls(program, given, constant))


def _calls(
    program: Graph, sizes: Mapping[str, int], constant: AbstractSet[Value]
) -> Iterator[Called]:
    for node in program.nodes:
        if node.results and constant >= {*node.results}:
            continue
        for inside in node.graphs:
            yield from _calls(inside, sizes, constant)
        op = node.op
        if isinstance(op, Operator) and op.view is None:
            args, kwargs = without_data(node.args, node.kwargs, sizes)
            launch = op.prepare(*args, **kwargs | {"target": _NOTING})[0]
            noted = getattr(launch, "__self__", None)
            if isinstance(noted, _Noted):
                yield noted.called

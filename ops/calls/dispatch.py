"""Dispatch on argument types: `__tensorlang_op__`, and results of the caller's library.

A graph tensor or a symbolic key overloads operators by a method
`__tensorlang_op__(op, args, kwargs)`, which may return `NotImplemented`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tensorlang import runtime
from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.workload import Workload

PROTOCOL: Final = "__tensorlang_op__"


class Nowhere:
    """The target of calls that are prepared only for their results, and never launched.

    Attributes:
        each_call: Whether it is queried for the kernel of every call, cached or not.
    """

    each_call = False

    def built(self, op: Operator, workload: Workload) -> Nowhere:  # noqa: ARG002
        """The stand-in for the kernel of a workload."""
        return self

    def launch(self, *_: object) -> None:
        """Do nothing, in place of a kernel."""

    def __repr__(self) -> str:
        return "nowhere"


NOWHERE: Final = Nowhere()


@frozen(eq=False)
class Late:
    """A result to be converted to an array of another library once computed."""

    array: Any
    kind: str

    def settle(self) -> Any:
        """The array, as one of its library."""
        return runtime.host_arrays.as_kind(self.array, self.kind)


class Foreign(Exception):  # noqa: N818 - a signal from binding to the operator
    """Raised for an argument that overloads the call."""


def own(*values: object) -> None:
    """Raise `Foreign` if a value, or an element of a list, overloads operators.

    Called only on the slow path: the fast path has tested the exact types of arrays and
    keys, so that plain calls pay nothing for the protocol.
    """
    for value in _values(values):
        if getattr(type(value), PROTOCOL, None) is not None:
            raise Foreign


def takes_over(*values: object) -> bool:
    """Whether a value, or an element of a list, overloads operators."""
    try:
        own(*values)
    except Foreign:
        return True
    return False


def overloaded(
    op: Operator, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """The first overload's result; ArgumentError if all are `NotImplemented`."""
    passed = "value"
    for value in _values((*args, *kwargs.values())):
        handler = getattr(type(value), PROTOCOL, None)
        if handler is None:
            continue
        result = handler(value, op, args, dict(kwargs))
        if result is not NotImplemented:
            return result
        passed = type(value).__name__
    raise ArgumentError(f"{op.id} cannot be applied to a {passed}")


def _values(values: Iterable[object]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _values(value)
        else:
            yield value

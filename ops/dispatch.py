"""Other libraries' values: `__tensorlang_op__`, and results in the caller's kind.

A graph tensor or a symbolic key has a method `__tensorlang_op__(op, args, kwargs)`, so
that one name serves arrays and graphs. It may return `NotImplemented` to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.workload import Workload

PROTOCOL: Final = "__tensorlang_op__"


class Nowhere:
    """The target of calls that are prepared for what they return, and never made."""

    def built(self, op: Operator, workload: Workload) -> Nowhere:  # noqa: ARG002
        """What stands for the kernel that an operator would build for a workload."""
        return self

    def launch(self, *_: Any) -> None:
        """Stand for the kernel that is not built."""

    def __repr__(self) -> str:
        return "nowhere"


NOWHERE: Final = Nowhere()


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """A result to be handed over to another library once it is computed."""

    array: Any
    kind: str

    def settle(self) -> Any:
        """The array in its library's kind."""
        from tensorlang.runtime.arrays import as_kind  # noqa: PLC0415 - rarely used

        return as_kind(self.array, self.kind)


class Foreign(Exception):  # noqa: N818 - a signal between a front and its operator
    """Raised by a front that meets an argument which takes the call over."""


def own(*values: Any) -> None:
    """Raise `Foreign` where a value, or one in a list, takes calls over.

    A front calls it once it has left the short way of plain arrays and keys, whose
    exact types it has tested there: plain calls pay nothing for the protocol.
    """
    for value in _values(values):
        if getattr(type(value), PROTOCOL, None) is not None:
            raise Foreign


def takes_over(*values: Any) -> bool:
    """Whether a value, or one in a list, takes calls over."""
    return any(
        getattr(type(value), PROTOCOL, None) is not None for value in _values(values)
    )


def overloaded(op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the first argument that takes the call over returns.

    Raises:
        ArgumentError: all that could take it over passed.
    """
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


def _values(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _values(value)
        else:
            yield value

"""A row of the table: our call, its peers, the limits it is held against.

A peer that returns fresh arrays is compared with our call returning fresh arrays, one
that writes into existing arrays with ours doing the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's call, and the least ratio of its time over ours that is wanted."""

    name: str
    make: Callable[[], Call]
    fresh: bool = True
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """What nothing can be faster than, as a call that is timed in turn with the rest.

    Attributes:
        name: Of the limit.
        make: Its call.
        share: How much of the limit's call our work amounts to.
        floor: The least share of the limit that is wanted.
    """

    name: str
    make: Callable[[], Call]
    share: float = 1.0
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table.

    Attributes:
        operator: The id of the operator.
        fresh: Our call, returning fresh arrays; None where there is no such call.
        into: Our call, into existing arrays; None where there is no such call.
        peers: What it is compared with.
        limits: What it is held against.
        fastest: The least ratio wanted of the fastest peer's time over ours.
        floating: Floating-point operations of one call, 0 where not counted.
        moved: The least bytes that one call reads and writes, 0 where not counted.
        integer: Integer operations of one call, 0 where not counted.
        memory: What the call holds at most, and peers, in bytes by name.
    """

    operator: str
    fresh: Call | None
    into: Call | None
    peers: tuple[Peer, ...] = ()
    limits: tuple[Limit, ...] = ()
    fastest: float | None = None
    floating: int = 0
    moved: int = 0
    integer: int = 0
    memory: Callable[[], Mapping[str, int]] | None = None


# what is computed, and how; arrays and kernels are made where they are asked for
Works = Iterator[tuple[str, Callable[[], Work]]]

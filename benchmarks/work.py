"""A row of the table: our call, its peers and limits.

Peers that return new arrays are compared with our calls that do so, peers that write
into existing arrays with our calls with `out=`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's call, and the minimum ratio of its time over ours."""

    name: str
    make: Callable[[], Call]
    fresh: bool = True
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A lower bound of the time, as a call that is timed with the others.

    Attributes:
        name: The limit's name.
        make: Makes the call.
        share: Our work as a fraction of the limit's call.
        floor: The minimum fraction of the limit to reach.
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
        fresh: Our call with a new result; None if there is none.
        into: Our call into existing arrays; None if there is none.
        peers: The peers.
        limits: The limits.
        fastest: The minimum ratio of the fastest peer's time over ours.
        floating: Floating-point operations per call, 0 if not counted.
        moved: Minimum bytes read and written per call, 0 if not counted.
        integer: Integer operations per call, 0 if not counted.
        memory: Peak bytes of the call and its peers, by name.
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


# title and factory; arrays and kernels are created on demand
Works = Iterator[tuple[str, Callable[[], Work]]]

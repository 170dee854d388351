"""What is measured: each work with our call, its peers, and the floor it must reach.

A peer that returns fresh arrays is compared with our call returning fresh arrays, one
that writes into existing arrays with ours doing the same. Every call of ours uses a key
of its own, checked, as users' calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tensorlang.ops import nn, random
from tensorlang.tuner import peers

Call = Callable[[], object]
ELEMENTS: Final = 1 << 24
KEYS: Final = 1 << 20
RATE: Final = 0.5
# Threefry2x32-20 on vectors: 20 rounds of add, rotate, xor; two keys added after every
# fourth; the index and its sum with counter and key. The jax stream folds with one xor.
_HASH_OPERATIONS: Final = 20 * 3 + 5 * 2 + 2


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer's call, and the least ratio of its time over ours that is wanted."""

    name: str
    make: Callable[[], Call]
    fresh: bool
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table.

    Attributes:
        name: What is computed, and how.
        threads: Of ours, and of the peers that can be told.
        fresh: Our call, returning fresh arrays.
        into: Our call, into existing arrays; None where there is no such call.
        peers: What it is compared with.
        integer_operations: Vector lane operations of one call, 0 where not counted.
        written: Bytes written by one call.
    """

    name: str
    threads: int
    fresh: Call
    into: Call | None
    peers: tuple[Peer, ...] = ()
    integer_operations: int = 0
    written: int = 0
    notes: tuple[str, ...] = field(default=())


def works(threads: int) -> Iterator[Work]:
    """Everything that is measured with this many threads."""
    yield from (
        _bits(threads),
        _packed_bits(threads),
        _uniform(threads),
        _packed_uniform(threads),
        _normal(threads),
        _dropout(threads),
        _split(threads),
    )


def _drawn(draw: Any, dtype: str, **options: Any) -> tuple[Call, Call]:
    """A draw from a key of its own each time: fresh, and into an existing array."""
    key = random.key(0)
    out = np.empty(ELEMENTS, dtype)

    def fresh() -> object:
        return draw(key.clone(), (ELEMENTS,), **options)

    def into() -> object:
        return draw(key.clone(), (ELEMENTS,), out=out, **options)

    return fresh, into


def _bits(threads: int) -> Work:
    fresh, into = _drawn(random.bits, "uint32")
    return Work(
        "bits32, JAX stream",
        threads,
        fresh,
        into,
        (
            Peer("jax", lambda: peers.jax_random("bits32", ELEMENTS), True, 25),
            Peer(
                "numba",
                lambda: peers.numba_random("bits32", ELEMENTS, threads),
                False,
                1.15,
            ),
            Peer(
                "torch random_",
                lambda: peers.torch_random("bits32", ELEMENTS, threads),
                False,
            ),
            Peer("numpy SFC64", lambda: peers.numpy_random("bits32", ELEMENTS), True),
        ),
        (_HASH_OPERATIONS + 1) * ELEMENTS,
        4 * ELEMENTS,
    )


def _packed_bits(threads: int) -> Work:
    fresh, into = _drawn(random.bits, "uint32", stream="packed")
    return Work(
        "bits32, packed stream",
        threads,
        fresh,
        into,
        (Peer("jax", lambda: peers.jax_random("bits32", ELEMENTS), True, 60),),
        _HASH_OPERATIONS * ELEMENTS // 2,
        4 * ELEMENTS,
    )


def _uniform(threads: int) -> Work:
    fresh, into = _drawn(random.uniform, "float32")
    return Work(
        "uniform f32, JAX stream",
        threads,
        fresh,
        into,
        (
            Peer("jax", lambda: peers.jax_random("uniform", ELEMENTS), True, 25),
            Peer(
                "numba",
                lambda: peers.numba_random("uniform", ELEMENTS, threads),
                False,
            ),
            Peer(
                "torch uniform_",
                lambda: peers.torch_random("uniform", ELEMENTS, threads),
                False,
            ),
            Peer("numpy SFC64", lambda: peers.numpy_random("uniform", ELEMENTS), False),
        ),
        written=4 * ELEMENTS,
    )


def _packed_uniform(threads: int) -> Work:
    fresh, into = _drawn(random.uniform, "float32", stream="packed")
    rivals: tuple[Peer, ...] = ()
    if threads == 1:  # it runs on one core whatever it is told
        make = lambda: peers.tinygrad_uniform(ELEMENTS)  # noqa: E731 - like its neighbours
        rivals = (Peer("tinygrad rand", make, False, 1.2),)
    return Work(
        "uniform f32, packed stream",
        threads,
        fresh,
        into,
        rivals,
        written=4 * ELEMENTS,
    )


def _normal(threads: int) -> Work:
    fresh, into = _drawn(random.normal, "float32")
    return Work(
        "normal f32, JAX stream",
        threads,
        fresh,
        into,
        (
            Peer("jax", lambda: peers.jax_random("normal", ELEMENTS), True, 12),
            Peer(
                "torch normal_",
                lambda: peers.torch_random("normal", ELEMENTS, threads),
                False,
            ),
            Peer("numpy SFC64", lambda: peers.numpy_random("normal", ELEMENTS), False),
        ),
        written=4 * ELEMENTS,
    )


def _dropout(threads: int) -> Work:
    key = random.key(0)
    x = np.random.default_rng(0).standard_normal(ELEMENTS, np.float32)
    y = np.empty_like(x)
    return Work(
        "dropout f32, JAX stream",
        threads,
        lambda: nn.dropout(x, RATE, key=key.clone()),
        lambda: nn.dropout(x, RATE, key=key.clone(), out=y),
        (
            Peer("torch", lambda: peers.torch_dropout(x, RATE, threads), True, 20),
            Peer("jax", lambda: peers.jax_dropout(x, RATE), True),
            Peer("numba", lambda: peers.numba_dropout(x, RATE, threads), False, 1.3),
        ),
        written=4 * ELEMENTS,
    )


def _split(threads: int) -> Work:
    key = random.key(0)
    return Work(
        "split into 2^20 keys",
        threads,
        lambda: random.split(key.clone(), KEYS),
        None,
        (
            Peer("jax", lambda: peers.jax_random("split", KEYS), True, 4),
            Peer("numba", lambda: peers.numba_random("split", KEYS, threads), False),
        ),
        written=8 * KEYS,
    )

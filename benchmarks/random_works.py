"""Random numbers and dropout against peers.

Every call of ours uses a fresh, checked key, as user code does.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks import limits
from benchmarks.work import Call, Peer, Work, Works
from tensorlang.ops import nn, random
from tensorlang.tuner.peers import random as peers

ELEMENTS: Final = 1 << 24
KEYS: Final = 1 << 20
RATE: Final = 0.5
# Vectorised Threefry2x32-20: 20 rounds of add, rotate, xor; two key additions after
# every fourth; the index and its sum with counter and key. The jax stream adds one xor.
_HASH_OPERATIONS: Final = 20 * 3 + 5 * 2 + 2


def works(threads: int) -> Works:
    """All works measured with this many threads."""
    yield "bits32, JAX stream", partial(_bits, threads)
    yield "bits32, packed stream", partial(_packed_bits, threads)
    yield "uniform f32, JAX stream", partial(_uniform, threads)
    yield "uniform f32, packed stream", partial(_packed_uniform, threads)
    yield "normal f32, JAX stream", partial(_normal, threads)
    yield "dropout f32, JAX stream", partial(_dropout, threads)
    yield "split into 2^20 keys", partial(_split, threads)


def _drawn(draw: Any, dtype: str, **options: Any) -> tuple[Call, Call]:
    """Draws with a fresh key per call: to a new result, and into an existing array."""
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
        "random.bits",
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
        (
            limits.integer_mix((_HASH_OPERATIONS + 1) * ELEMENTS, threads, 0.55),
            limits.fill(ELEMENTS),
        ),
        moved=4 * ELEMENTS,
        integer=(_HASH_OPERATIONS + 1) * ELEMENTS,
    )


def _packed_bits(threads: int) -> Work:
    fresh, into = _drawn(random.bits, "uint32", stream="packed")
    return Work(
        "random.bits",
        fresh,
        into,
        (Peer("jax", lambda: peers.jax_random("bits32", ELEMENTS), True, 60),),
        (
            limits.integer_mix(_HASH_OPERATIONS * ELEMENTS // 2, threads, 0.65),
            limits.fill(ELEMENTS, 0.85),
        ),
        moved=4 * ELEMENTS,
        integer=_HASH_OPERATIONS * ELEMENTS // 2,
    )


def _uniform(threads: int) -> Work:
    fresh, into = _drawn(random.uniform, "float32")
    return Work(
        "random.uniform",
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
        (limits.fill(ELEMENTS),),
        moved=4 * ELEMENTS,
        integer=(_HASH_OPERATIONS + 1) * ELEMENTS,
    )


def _packed_uniform(threads: int) -> Work:
    fresh, into = _drawn(random.uniform, "float32", stream="packed")
    rivals: tuple[Peer, ...] = ()
    if threads == 1:  # it always uses one core
        make = lambda: peers.tinygrad_uniform(ELEMENTS)  # noqa: E731 - like the others
        rivals = (Peer("tinygrad rand", make, False, 1.2),)
    return Work(
        "random.uniform",
        fresh,
        into,
        rivals,
        (limits.fill(ELEMENTS),),
        moved=4 * ELEMENTS,
        integer=_HASH_OPERATIONS * ELEMENTS // 2,
    )


def _normal(threads: int) -> Work:
    fresh, into = _drawn(random.normal, "float32")
    return Work(
        "random.normal",
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
        (limits.fill(ELEMENTS),),
        moved=4 * ELEMENTS,
        integer=(_HASH_OPERATIONS + 1) * ELEMENTS,
    )


def _dropout(threads: int) -> Work:
    key = random.key(0)
    x = np.random.default_rng(0).standard_normal(ELEMENTS, np.float32)
    y = np.empty_like(x)
    return Work(
        "nn.dropout",
        lambda: nn.dropout(x, RATE, key=key.clone()),
        lambda: nn.dropout(x, RATE, key=key.clone(), out=y),
        (
            Peer("torch", lambda: peers.torch_dropout(x, RATE, threads), True, 20),
            Peer("jax", lambda: peers.jax_dropout(x, RATE), True),
            Peer("numba", lambda: peers.numba_dropout(x, RATE, threads), False, 1.3),
        ),
        (limits.fill(ELEMENTS),),
        moved=8 * ELEMENTS,
        integer=(_HASH_OPERATIONS + 1) * ELEMENTS,
    )


def _split(threads: int) -> Work:
    key = random.key(0)
    return Work(
        "random.split",
        lambda: random.split(key.clone(), KEYS),
        None,
        (
            Peer("jax", lambda: peers.jax_random("split", KEYS), True, 4),
            Peer("numba", lambda: peers.numba_random("split", KEYS, threads), False),
        ),
        (limits.fill(2 * KEYS),),
        moved=8 * KEYS,
        integer=_HASH_OPERATIONS * KEYS,
    )

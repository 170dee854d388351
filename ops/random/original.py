"""JAX's stream before 2025 (`jax_threefry_partitionable=False`), to reproduce old runs.

It hashes the counts 0 .. m-1 in two halves, so that an element depends on the number of
elements: a stream cannot be drawn in parts. Threefry2x32 only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.calls.binding import shape_of
from tensorlang.ops.random.draw import element_type
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.splitting import hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNSIGNED = ("u8", "u16", "u32", "u64")
_IMPL = "threefry2x32"


def bits(key: Key, shape: object = (), dtype: object = "uint32") -> np.ndarray:
    """Random bits, as `random.bits` but in the original layout.

    Args:
        key: A single Threefry2x32 key; consumed.
        shape: The shape of the result.
        dtype: `uint8`, `uint16`, `uint32` or `uint64`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument is out of its domain.
    """
    name = "random.original.bits"
    extents = shape_of(name, "shape", shape)
    width = int(element_type(name, dtype, _UNSIGNED)[1:])
    count = math.prod(extents)
    words = _words(name, key, -(-count * width // 32), "drawn from")
    if width == 64:
        high, low = (half.astype(np.uint64) for half in np.split(words, 2))
        return ((high << np.uint64(32)) | low).reshape(extents)
    little = words.astype("<u4").view(f"<u{width // 8}")[:count]
    return little.astype(f"u{width // 8}", copy=False).reshape(extents)


def split(key: Key, num: int | tuple[int, ...] = 2) -> Key:
    """Split a key into fresh keys, as `random.split` but in the original layout.

    Args:
        key: A single Threefry2x32 key; consumed.
        num: The number of keys to make, or the shape of their batch.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, ShapeError: an argument is out of its domain.
    """
    name = "random.original.split"
    shape = shape_of(name, "num", num)
    words = _words(name, key, 2 * math.prod(shape), "split")
    return Key(_IMPL, words.reshape(*shape, 2))


def _words(name: str, key: object, count: int, verb: str) -> NDArray[np.uint32]:
    """The hash of 0 .. count-1: the first words of all hashes, then the second."""
    if not isinstance(key, Key) or key.ndim or key.impl != _IMPL:
        raise ArgumentError(f"{name} takes one {_IMPL} key, not {key!r:.80}")
    if count >= 1 << 32:
        raise ShapeError(f"{name} hashes fewer than 2^32 words, not {count}")
    half = -(-count // 2)
    counts = np.arange(2 * half, dtype=np.uint32)
    counts[count:] = 0  # pads an odd count with a zero
    pairs = np.ascontiguousarray(counts.reshape(2, half).T)
    hashed = hash(key.take(verb), pairs, impl=_IMPL)
    return np.ascontiguousarray(hashed.T).reshape(-1)[:count]

"""Random keys: values that can be used only once.

`key(seed)` creates a key, `split` several, `fold_in` derives one from a number; draws
consume them (the rules are in `tensorlang.ops.random.states`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ArgumentError, ElementError
from tensorlang.ops.random import states
from tensorlang.ops.random.impls import Impl, hash_numpy
from tensorlang.ops.random.impls import impl as impl_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class Key:
    """A random key, or a batch of keys: a hash implementation and the key words.

    A batch is indexed, iterated and reshaped like an array. Each element has its own
    state, shared by all views and copies of the batch; pickling preserves it.

    Attributes:
        impl: The canonical name of the hash, such as `threefry2x32`.
        words: A read-only `uint32` or `uint64` array `[*shape, words per key]`.
    """

    __slots__ = ("_ids", "_ledger", "impl", "words")

    def __init__(
        self,
        impl: str,
        words: np.ndarray,
        ledger: states.Ledger | None = None,
        ids: states.Ids = None,
    ) -> None:
        self.impl = impl
        if words.flags.writeable:  # shared with clones and views
            words = words.view()
            words.flags.writeable = False
        self.words = words
        if ledger is None:
            single = words.ndim == 1
            count = 1 if single else math.prod(words.shape[:-1])
            ledger, ids = states.Ledger(bytearray(count)), 0 if single else None
        self._ledger = ledger
        self._ids = ids

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch shape; `()` for a single key."""
        return self.words.shape[:-1]

    @property
    def ndim(self) -> int:
        """The number of batch dimensions."""
        return self.words.ndim - 1

    @property
    def size(self) -> int:
        """The number of keys."""
        return math.prod(self.words.shape[:-1])

    @property
    def states(self) -> NDArray[np.str_]:
        """The state of each key: `fresh`, `folded` or `consumed`."""
        held = self._ledger.states_of(self._ids)
        return np.array(states.STATES)[held].reshape(self.shape)

    def clone(self) -> Key:
        """A fresh key with the same words: the explicit way to repeat a stream."""
        if type(self._ids) is not int:
            return Key(self.impl, self.words)
        made = object.__new__(Key)  # skip the checks of __init__
        made.impl = self.impl
        made.words = self.words
        made._ledger = states.Ledger(bytearray(1))
        made._ids = 0
        return made

    def consume(self, verb: str, depth: int = 1) -> None:
        """Mark every key consumed, or none and raise `KeyReuseError`.

        At least the innermost `depth` frames are tensorlang's own: the search for the
        caller's frame skips them.
        """
        states.consume(self._ledger, self._ids, verb, depth)

    def take(self, verb: str) -> np.ndarray:
        """Consume the keys and return their words, as a launch takes them."""
        states.consume(self._ledger, self._ids, verb)
        return self.words

    def fold(self, data: int | np.ndarray) -> None:
        """Mark every key folded with `data`, or none and raise `KeyReuseError`."""
        states.fold(self._ledger, self._ids, data)

    def reshape(self, *shape: int | tuple[int, ...]) -> Key:
        """The same keys in another batch shape; the states are shared."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        ids = self._indices().reshape(wanted)  # type: ignore[arg-type]
        words = self.words.reshape(*ids.shape, self.words.shape[-1])
        return Key(self.impl, words, self._ledger, ids if ids.ndim else int(ids))

    def ravel(self) -> Key:
        """The same keys in one dimension."""
        return self.reshape((-1,))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a single key has no length")
        return int(self.words.shape[0])

    def __getitem__(self, index: Any) -> Key:
        if not self.ndim:
            raise ElementError("a single key has no elements; split it first")
        try:
            if self._ids is None and self.ndim == 1 and type(index) is int:
                at = range(len(self))[index]
                return Key(self.impl, self.words[at], self._ledger, at)
            ids = self._indices()[index]
            words = self.words.reshape(*self.shape, -1)[index]
        except (IndexError, TypeError, ValueError):
            raise self._absent(index) from None
        if words.shape != (*np.shape(ids), self.words.shape[-1]):
            raise self._absent(index)
        return Key(
            self.impl,
            np.ascontiguousarray(words),
            self._ledger,
            ids if np.ndim(ids) else int(ids),
        )

    def _absent(self, index: object) -> ElementError:
        said = " ".join(f"{index!r}".split())
        return ElementError(f"keys of shape {self.shape} have no elements [{said:.80}]")

    def __iter__(self) -> Iterator[Key]:
        if not self.ndim:
            raise TypeError("a single key cannot be iterated; split it first")
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        held = sorted(set(self.states.reshape(-1).tolist()))
        shape = f", shape={self.shape}" if self.ndim else ""
        return f"<Key {self.impl}{shape}, {' and '.join(held) or 'empty'}>"

    def __copy__(self) -> Key:
        return Key(self.impl, self.words, self._ledger, self._ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> Key:
        return self.__copy__()  # the same key: copying must not allow a second use

    def __reduce__(self) -> tuple[object, ...]:
        held = self._ledger.states_of(self._ids).tobytes()
        numbers = states.folded(self._ledger, self._ids)
        return _restored, (self.impl, np.array(self.words), held, numbers)

    def _indices(self) -> NDArray[np.int64]:
        if self._ids is None:
            self._ids = np.arange(self.size).reshape(self.shape)
        return np.asarray(self._ids)


def _restored(impl: str, words: np.ndarray, held: bytes, numbers: states.Folded) -> Key:
    made = Key(impl_named(impl).name, words)
    states.restore(made._ledger, held, numbers)  # noqa: SLF001 - its own module
    return made


def key(seed: int, *, impl: str = "threefry2x32", bits: int = 64) -> Key:
    """Create a fresh key from an integer seed.

    Args:
        seed: -2^63 <= seed < 2^64; negative seeds are taken modulo 2^64, as in JAX.
        impl: The hash, such as `threefry2x32`, `threefry4x64-13` (13 rounds) or
            `philox4x32`.
        bits: 64, or 32 to use only the low 32 bits of the seed, as JAX without x64.

    Raises:
        ArgumentError: the seed is not an integer or does not fit 64 bits.
    """
    how = impl_named(impl)
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"a seed is an integer, not {seed!r}")
    number = int(seed)
    if not -(2**63) <= number < 2**64:
        raise ArgumentError(
            f"the seed {number} does not fit 64 bits; hash it to 64, or wrap key data "
            "of your own with wrap_key_data"
        )
    if bits not in (32, 64):
        raise ArgumentError(f"a key takes 32 or 64 bits of its seed, not {bits!r}")
    return Key(how.name, _seeded(how, number % 2**bits))


def _seeded(how: Impl, seed: int) -> np.ndarray:
    """The key's words: the seed itself if it fills them, else a hash of it."""
    high, low = (seed >> 32, seed & 0xFFFFFFFF) if how.bits == 32 else (0, seed)
    if how.family == "threefry" and how.words == 2:
        return np.array([high, low], dtype=how.dtype)
    given = [high, low] + [0] * (how.words - 2)
    empty = [0] * how.key_words
    if how.family == "threefry":
        words = hash_numpy(how, [0] * how.words, given)
    else:
        words = hash_numpy(how, given, empty)
    return np.concatenate(words[: how.key_words])


def key_data(keys: Key) -> np.ndarray:
    """A copy of the words of keys, `uint32[*shape, K]` (`uint64` for 64-bit hashes).

    Does not count as a use of the keys.
    """
    if not isinstance(keys, Key):
        raise ArgumentError(f"key_data takes a Key, not {type(keys).__name__}")
    return np.array(keys.words)


def wrap_key_data(data: ArrayLike, *, impl: str = "threefry2x32") -> Key:
    """Fresh keys with the given words: the inverse of `key_data`.

    Args:
        data: `[*shape, K]` of the hash's word type, K words per key.
        impl: The name of the hash.

    Raises:
        ArgumentError: the dtype or the last dimension does not match the hash.
    """
    how = impl_named(impl)
    words = np.asarray(data)
    if words.dtype != how.dtype or words.ndim == 0 or words.shape[-1] != how.key_words:
        raise ArgumentError(
            f"keys of {how.name} are {how.dtype}[..., {how.key_words}], not "
            f"{words.dtype}{list(words.shape)}"
        )
    return Key(how.name, np.array(words, order="C"))


def clone(keys: Key) -> Key:
    """Fresh keys with the words of `keys`, to repeat their streams deliberately."""
    if not isinstance(keys, Key):
        raise ArgumentError(f"clone takes a Key, not {type(keys).__name__}")
    return keys.clone()

"""A stateful key, for programs that do not pass keys explicitly."""

from __future__ import annotations

import threading

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.keys import key as make_key
from tensorlang.ops.random.splitting import child


class StatefulKey:
    """A mutable key that yields a new key at each use; accepted wherever a key is.

    Use number i takes child i of the base key, as in JAX's
    `experimental.random.stateful_rng` (JEP 28845). Thread-safe. A pickled copy or a
    clone continues from the same position, independently of the original.
    """

    def __init__(
        self, seed: int | Key, *, impl: str = "threefry2x32", uses: int = 0
    ) -> None:
        if isinstance(seed, Key):
            if seed.ndim:
                raise ArgumentError("a StatefulKey holds one key, not a batch")
            words = seed.words
            seed.consume("made stateful")
            impl = seed.impl
        else:
            base = make_key(seed, impl=impl)
            words, impl = base.words, base.impl
        self.impl = impl
        self._words = words
        self._uses = uses
        self._lock = threading.Lock()

    shape: tuple[int, ...] = ()
    ndim = 0
    size = 1

    def key(self) -> Key:
        """The next key, which is fresh and never returned again."""
        with self._lock:
            use = self._uses
            self._uses += 1
        return child(self.impl, self._words, use)

    def take(self, verb: str) -> np.ndarray:
        """The words of the next key, for a draw."""
        del verb  # a fresh key can always be used
        return self.key().words

    def later(self) -> LaterKey:
        """A proxy for the next key, which is taken only when consumed."""
        return LaterKey(self)

    def clone(self) -> StatefulKey:
        """A copy that yields the same keys from here on."""
        return StatefulKey(Key(self.impl, self._words), uses=self._uses)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.impl, self._words, self._uses)

    def __repr__(self) -> str:
        return f"<StatefulKey {self.impl}, {self._uses} keys used>"


class LaterKey:
    """The next key of a `StatefulKey`: its words are set when it is consumed."""

    def __init__(self, holder: StatefulKey) -> None:
        self.impl = holder.impl
        self.words = np.empty_like(holder._words)  # noqa: SLF001 - same module
        self._holder = holder

    def later(self) -> LaterKey:
        """Itself."""
        return self

    def consume(self, verb: str, depth: int = 1) -> None:
        """Take the key."""
        del verb, depth  # a fresh key can always be used
        self.words[...] = self._holder.key().words


def _restored(impl: str, words: np.ndarray, uses: int) -> StatefulKey:
    return StatefulKey(Key(impl, words), uses=uses)

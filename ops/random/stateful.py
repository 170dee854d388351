"""A mutable holder of a key, for programs that do not thread keys by hand."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tensorlang.errors import ArgumentError
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.keys import key as make_key

if TYPE_CHECKING:
    from numpy.typing import NDArray


class StatefulKey:
    """A key that splits after each use: pass it wherever a key is taken.

    Use number i gets child i of the base key, the same keys as JAX's
    `experimental.random.stateful_rng` (JEP 28845). Safe with threads. A pickle or a
    clone goes on from the same point, apart from the original.
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
        """The next key: fresh, and never given again."""
        from tensorlang.ops.random.splitting import child  # noqa: PLC0415 - builds

        with self._lock:
            use = self._uses
            self._uses += 1
        return child(self.impl, self._words, use)

    def take(self, verb: str) -> NDArray[Any]:
        """The words of the next key, for a draw."""
        del verb  # a fresh key can always be used
        return self.key().words

    def clone(self) -> StatefulKey:
        """Another holder that will give the same keys from here on."""
        return StatefulKey(Key(self.impl, self._words), uses=self._uses)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.impl, self._words, self._uses)

    def __repr__(self) -> str:
        return f"<StatefulKey {self.impl}, {self._uses} keys used>"


def _restored(impl: str, words: NDArray[Any], uses: int) -> StatefulKey:
    return StatefulKey(Key(impl, words), uses=uses)

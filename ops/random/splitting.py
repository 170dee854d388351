"""Deriving keys from keys: `split`, `fold_in`, and the hash function behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.calls.binding import shape_of
from tensorlang.ops.calls.tensors import Ready, call, check_result
from tensorlang.ops.random.draw import Draw, drawn
from tensorlang.ops.random.impls import impl as named
from tensorlang.ops.random.keys import Key
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Arrays, Child, Elements, Folded, Split

with lazy.modules(__name__):
    from tensorlang.ops.random import definitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ops.kernels.tracing import KeyWords
    from tensorlang.ops.operator import Launch

Words: TypeAlias = Annotated["ir.Tensor", Arrays("words", ("u64", "u32"))]

_WORD: Final = (1 << 32) - 1
_WORDS: Final = ("u32", "u64")


class Derivation(Draw):
    """A draw of keys, from a key or a batch of keys."""

    shared: ClassVar[tuple[str, ...]] = ("target",)
    batch: ClassVar[tuple[int, int]] = (1 << 14, 64)

    def prepared(
        self, arrays: Sequence[np.ndarray], attributes: Mapping[str, Any], target: Any
    ) -> Ready:
        """The kernel of a call, and the canonical shapes of its arrays.

        Raises:
            ShapeError: there are too many keys, or their number is no shape.
        """
        (words,), given, elements = arrays, dict(attributes), self.spec.elements
        *keys, width = words.shape
        shape: tuple[int, ...] = ()
        counts: list[int] = []
        if elements:
            shape = shape_of(self.id, elements, given.pop(elements))
            counts = [math.prod(shape)]
        if sum(counts) >= _WORD:
            raise ShapeError(f"{self.id} makes fewer than 2^32 keys, not {sum(counts)}")
        flat = (math.prod(keys),) if keys else ()
        made, inner = (*keys, *shape, width), (*flat, *(counts or (1,)), width)
        check_result(self.id, made)
        workload = self.workload((*flat, width), *[(n,) for n in counts], **given)
        held = (*flat, width) if len(keys) > 1 else None
        result, how = (made, inner, words.dtype), given["key"]
        return Ready.of(self._kernel(workload, target), (held,), (result,), keys=(how,))


@drawn("random.split", _WORDS, kind=Derivation, shapes=((1 << 20,),))
def split(
    key: Split,
    num: Elements = 2,  # type: ignore[assignment]
) -> KeyWords:
    """Split a key into fresh keys; the key is consumed.

    Args:
        key: A key, or a batch of keys, each of which is split.
        num: The number of keys to make, or the shape of their batch.

    Returns:
        A batch of keys `[*key.shape, *num]`, which unpacks: `left, right = split(key)`.
        Child i of a Threefry2x32 key equals JAX's, and `fold_in(key, i)`.

    Raises:
        KeyReuseError: the key was used before, or folded.
        ShapeError: `num` is not a shape.
    """
    return definitions.children(key, num)


def _each(*, key: Key, data: NDArray[np.uint64], target: object) -> Launch:
    """Fold any keys with any numbers, using the bare hash."""
    if key.ndim and data.ndim and data.shape != key.shape:
        raise ShapeError(
            f"random.fold_in: data of shape {data.shape} for keys of shape "
            f"{key.shape}; give one number, or one a key"
        )
    how = named(key.impl)
    shape = key.shape if key.ndim else data.shape
    counters = np.zeros((*shape, how.words), how.dtype)
    counters[..., -1] = data & np.uint64(_WORD) if how.bits == 32 else data
    if how.bits == 32:
        counters[..., -2] = data >> np.uint64(32)
    made = np.empty((*shape, how.key_words), how.dtype)
    keys = key.words.reshape(-1, how.key_words) if key.ndim else key.words
    given = keys, counters.reshape(-1, how.words)
    launch, arguments, words = hash.prepare(*given, impl=key.impl, target=target)
    key.fold(data)

    def run(*arguments: object) -> None:
        launch(*arguments)
        made[...] = words[:, : how.key_words].reshape(made.shape)

    return run, arguments, Key(key.impl, made)


@drawn(
    "random.fold_in",
    _WORDS,
    kind=Derivation,
    shapes=(),
    instead={"data": (np.ndarray, _each)},
)
def fold_in(key: Folded, data: Child) -> KeyWords:
    """Derive a fresh key from a key and a number; the key is marked folded.

    A folded key may be folded again with another number, but neither drawn from nor
    split. For an array of numbers, or a batch of keys, the result is a batch.

    Args:
        key: A key, or a batch of keys.
        data: An integer in [0, 2^64), or an array of them. For a batch of keys, one
            number for all, or an array of the batch's shape.

    Raises:
        ArgumentError: a number is negative, too large or not an integer.
        ShapeError: the shapes of numbers and keys differ.
        KeyReuseError: the key was consumed, or folded with this number before.
    """
    return definitions.child(key, data)


def child(how: str, words: np.ndarray, number: int) -> Key:
    """Child `number` of the key with these words; changes no key state."""
    launch, arguments, made = call(fold_in, (words,), {"key": how}, (number,), None)
    launch(*arguments)
    found: Key = made
    return found


@operator(
    "random.hash",
    aliases=(),
    family="threefry",
    shapes=((2,), (1 << 20, 2)),
    whole=True,
)
def hash(key: Words, counter: Words, *, impl: str = "threefry2x32") -> ir.Tensor:
    """The bare hash function H(key, counter) on words, as in Random123.

    Args:
        key: Key words `[K]`, or one key per counter, `[n, K]`; uint32 or uint64.
        counter: Counter words `[n, words]` of the same type.
        impl: The hash; see `tensorlang.ops.random.impls`.
        out: The array for the result, `[n, words]`.

    Returns:
        The output words `[n, words]`. No key state is involved.
    """
    how = named(impl)
    for what, given, last in (
        ("key", key, how.key_words),
        ("counter", counter, how.words),
    ):
        ir.require(
            given.dtype.bits == how.bits
            and given.ndim in (1, 2)
            and given.shape[-1] == last,
            f"{what} of {how.name} is u{how.bits}[n, {last}], not {given.dtype.name} "
            f"of shape {given.shape}",
            ArgumentError,
        )
    rows = ir.reshaped(counter, (math.prod(counter.shape[:-1]), how.words))
    ir.require(
        key.ndim == 1 or key.shape[0] == rows.shape[0],
        f"{key.shape[0]} keys for {rows.shape[0]} counters; give one key, or one a "
        "counter",
    )
    return definitions.hashed(how, key, rows)

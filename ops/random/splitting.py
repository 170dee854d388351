"""Deriving keys from keys: `split`, `fold_in`, and the hash function behind them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tensorlang import ir
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops import lazy
from tensorlang.ops.binding import shape_of
from tensorlang.ops.definition import operator
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import check_target, declared
from tensorlang.ops.random.impls import impl as named
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.stateful import StatefulKey
from tensorlang.ops.signature import Arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ir import Tensor
    from tensorlang.ops.operator import Kernel, Launch
    from tensorlang.ops.random import definitions
    from tensorlang.workload import Workload

    Words: TypeAlias = Tensor
else:
    definitions = lazy.module("tensorlang.ops.random.definitions")
    Words = Arrays("words", ("u64", "u32"))

_WORD = (1 << 32) - 1
_WORDS = ("u32", "u64")
_DEFAULT = {
    "shapes": ((1 << 20,),),
    "dtypes": ("u32",),
    "impl": "threefry2x32",
    "batch": False,
}


def _sizes(workload: Workload) -> dict[str, int]:
    shape = workload.shapes[0]
    return (
        {"m": shape[0], "n": math.prod(shape[1:])}
        if workload.named["batch"]
        else {"n": math.prod(shape)}
    )


def _launcher(how: str, target: Any, *, batch: bool) -> Kernel:
    check_target(target)
    memo = (how, batch, target)
    found = split.kernels.get(memo)
    if found is None:
        shapes = ((1 << 14, 64),) if batch else split.default.shapes  # type: ignore[union-attr]
        dtype = "u32" if named(how).bits == 32 else "u64"
        workload = split.workload(*shapes, dtypes=dtype, impl=how, batch=batch)
        found = split.kernels[memo] = split.build(workload, target).launch
    return found


@declared(
    "random.split",
    "tensorlang.ops.random.definitions:split",
    shapes=_DEFAULT,
    dtypes=_WORDS,
    aliases=("split",),
    family="threefry",
    sizes=_sizes,
    result=lambda workload: workload.shapes[0],
)
def split(key: Key, num: int | tuple[int, ...] = 2, *, target: Any = None) -> Launch:
    """Split a key into fresh keys; the key is consumed.

    Args:
        key: A key, or a batch of keys, each of which is split.
        num: The number of keys to make, or the shape of their batch.
        target: Where to compute.

    Returns:
        A batch of keys `[*key.shape, *num]`, which unpacks: `left, right = split(key)`.
        Child i of a Threefry2x32 key equals JAX's, and `fold_in(key, i)`.

    Raises:
        KeyReuseError: the key was used before, or folded.
        ShapeError: `num` is not a shape.
    """
    own(key)
    if not isinstance(key, (Key, StatefulKey)):
        raise ArgumentError(f"random.split takes a Key, not {type(key).__name__}")
    shape = shape_of("random.split", "num", num)
    count = math.prod(shape)
    if count >= _WORD:
        raise ShapeError(f"random.split makes fewer than 2^32 keys, not {count}")
    how = named(key.impl)
    batch = key.ndim > 0
    launch = _launcher(key.impl, target, batch=batch)
    try:
        words = np.empty((*key.shape, *shape, how.key_words), how.dtype)
    except (MemoryError, ValueError) as problem:
        raise ShapeError(
            f"random.split: {shape} keys cannot be allocated; make fewer at once"
        ) from problem
    rows = (key.size, count) if batch else (count,)
    made = Key(key.impl, words)
    given = key.take("split")
    flat = given.reshape(-1, given.shape[-1]) if batch else given
    return launch, (flat, words.reshape(*rows, how.key_words), 0, 0), made


@declared(
    "random.fold_in",
    "tensorlang.ops.random.definitions:split",
    shapes=_DEFAULT | {"shapes": ((1,),)},
    dtypes=_WORDS,
    aliases=("fold_in",),
    family="threefry",
    sizes=_sizes,
    result=lambda workload: workload.shapes[0],
)
def fold_in(key: Key, data: Any, *, target: Any = None) -> Launch:
    """Derive a fresh key from a key and a number; the key is marked folded.

    A folded key may be folded again with another number, but neither drawn from nor
    split. For an array of numbers, or a batch of keys, the result is a batch.

    Args:
        key: A key, or a batch of keys.
        data: An integer in [0, 2^64), or an array of them. For a batch of keys, one
            number for all, or an array of the batch's shape.
        target: Where to compute.

    Raises:
        ArgumentError: a number is negative, too large or not an integer.
        ShapeError: the shapes of numbers and keys differ.
        KeyReuseError: the key was consumed, or folded with this number before.
    """
    own(key, data)
    if not isinstance(key, Key):
        raise ArgumentError(f"random.fold_in takes a Key, not {type(key).__name__}")
    numbers = _whole_numbers(data)
    if key.ndim or numbers.ndim:
        return _fold_many(key, numbers, target)
    launch = _launcher(key.impl, target, batch=False)
    made = np.empty((1, key.words.shape[-1]), key.words.dtype)
    key.fold(numbers)
    counter = _counter(int(numbers), key.words.dtype.itemsize)
    return launch, (key.words, made, *counter), Key(key.impl, made[0])


def child(how: str, words: NDArray[Any], number: int) -> Key:
    """Child `number` of the key with these words; changes no key state."""
    launch = _launcher(how, None, batch=False)
    made = np.empty((1, words.shape[-1]), words.dtype)
    launch(words, made, *_counter(number, words.dtype.itemsize))
    return Key(how, made[0])


def _counter(number: int, word_bytes: int) -> tuple[int, int]:
    return (number >> 32, number & _WORD) if word_bytes == 4 else (0, number)


def _whole_numbers(data: Any) -> NDArray[np.uint64]:
    try:
        given = np.asarray(data)
        whole = given.dtype.kind in "iu" and (not given.size or int(given.min()) >= 0)
    except OverflowError:
        whole = False
    if not whole:
        raise ArgumentError(
            "random.fold_in takes whole numbers, 0 <= data < 2^64, not "
            f"{str(data)[:80]}"
        )
    return given.astype(np.uint64)


def _fold_many(key: Key, numbers: NDArray[np.uint64], target: Any) -> Launch:
    """Fold any keys with any numbers, using the bare hash."""
    if key.ndim and numbers.ndim and numbers.shape != key.shape:
        raise ShapeError(
            f"random.fold_in: data of shape {numbers.shape} for keys of shape "
            f"{key.shape}; give one number, or one a key"
        )
    how = named(key.impl)
    shape = key.shape if key.ndim else numbers.shape
    counters = np.zeros((*shape, how.words), how.dtype)
    counters[..., -1] = numbers & np.uint64(_WORD) if how.bits == 32 else numbers
    if how.bits == 32:
        counters[..., -2] = numbers >> np.uint64(32)
    made = np.empty((*shape, how.key_words), how.dtype)
    keys = key.words.reshape(-1, how.key_words) if key.ndim else key.words
    given = keys, counters.reshape(-1, how.words)
    launch, arguments, words = hash.prepare(*given, impl=key.impl, target=target)
    key.fold(numbers)

    def run(*arguments: Any) -> None:
        launch(*arguments)
        made[...] = words[:, : how.key_words].reshape(made.shape)

    return run, arguments, Key(key.impl, made)


@operator("random.hash", family="threefry", shapes=((2,), (1 << 20, 2)), whole=True)
def hash(key: Words, counter: Words, *, impl: str = "threefry2x32") -> Tensor:
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
            "{what} of {how} is u{bits}[n, {last}], not {dtype} of shape {shape}",
            ArgumentError,
            what=what,
            how=how.name,
            bits=how.bits,
            last=last,
            dtype=given.dtype.name,
            shape=given.shape,
        )
    rows = ir.reshaped(counter, (math.prod(counter.shape[:-1]), how.words))
    ir.require(
        key.ndim == 1 or key.shape[0] == rows.shape[0],
        "{keys} keys for {rows} counters; give one key, or one a counter",
        keys=key.shape[0],
        rows=rows.shape[0],
    )
    return definitions.hashed(how, key, rows)

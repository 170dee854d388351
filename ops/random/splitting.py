"""Keys from keys: `split`, `fold_in`, and the bare hash they stand on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import declared
from tensorlang.ops.random.draw import check_target, checked_shape
from tensorlang.ops.random.impls import impl
from tensorlang.ops.random.keys import Key
from tensorlang.ops.random.stateful import StatefulKey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ops.operator import Kernel, Launch, Operator
    from tensorlang.workload import Workload

_WORD = (1 << 32) - 1
_WORDS = ("u32", "u64")
_DEFAULT = {
    "shapes": ((1 << 20,),),
    "dtypes": ("u32",),
    "impl": "threefry2x32",
    "batch": False,
    "carries": False,
}


def _sizes(workload: Workload) -> dict[str, int]:
    shape = workload.shapes[0]
    return (
        {"m": shape[0], "n": math.prod(shape[1:])}
        if workload.named["batch"]
        else {"n": math.prod(shape)}
    )


def _launcher(
    op: Operator, how: str, target: Any, *, batch: bool, carries: bool = False
) -> Kernel:
    check_target(target)
    memo = (how, batch, carries, target)
    found = op.kernels.get(memo)
    if found is None:
        shapes = ((1 << 14, 64),) if batch else op.default.shapes  # type: ignore[union-attr]
        given: dict[str, Any] = {"impl": how, "batch": batch}
        if op is split:
            given["carries"] = carries
        dtype = "u32" if impl(how).bits == 32 else "u64"
        kernel = op.build(op.workload(*shapes, dtypes=dtype, **given), target)
        found = op.kernels[memo] = kernel.launch
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
    """Fresh keys `[*key.shape, *num]` from a key, which is consumed.

    Args:
        key: A key, or a batch of them that are each split.
        num: How many, or the shape of the batch they form.
        target: Where to compute.

    Returns:
        A `Key` batch; it unpacks: `left, right = split(key)`. Child i of a Threefry2x32
        key is JAX's, and equals `fold_in(key, i)`.

    Raises:
        KeyReuseError: the key was used before, or folded.
        ShapeError: `num` is no shape.
    """
    own(key)
    if not isinstance(key, (Key, StatefulKey)):
        raise ArgumentError(f"random.split takes a Key, not {type(key).__name__}")
    shape = checked_shape("random.split", num)
    count = math.prod(shape)
    if count >= _WORD:
        raise ShapeError(f"random.split makes fewer than 2^32 keys, not {count}")
    how = impl(key.impl)
    batch = key.ndim > 0
    launch = _launcher(split, key.impl, target, batch=batch)
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
    """A fresh key made of a key and a number; the key is marked folded.

    A folded key may be folded again with another number, but neither drawn from nor
    split. With an array of numbers, or a batch of keys, the result is a batch.

    Args:
        key: A key, or a batch of them.
        data: 0 <= data < 2^64, or an array of such numbers; for a batch of keys one
            number for all, or an array of the batch's shape.
        target: Where to compute.

    Raises:
        ArgumentError: the number is negative, too large or no whole number.
        ShapeError: numbers and keys differ in shape.
        KeyReuseError: the key was consumed, or folded with this number before.
    """
    own(key, data)
    if not isinstance(key, Key):
        raise ArgumentError(f"random.fold_in takes a Key, not {type(key).__name__}")
    numbers = _whole_numbers(data)
    if key.ndim or numbers.ndim:
        return _fold_many(key, numbers, target)
    launch = _launcher(split, key.impl, target, batch=False)
    made = np.empty((1, key.words.shape[-1]), key.words.dtype)
    key.fold(numbers)
    counter = _counter(int(numbers), key.words.dtype.itemsize)
    return launch, (key.words, made, *counter), Key(key.impl, made[0])


def child(how: str, words: NDArray[Any], number: int) -> Key:
    """Child `number` of the key with these words; marks nothing."""
    launch = _launcher(split, how, None, batch=False)
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
    """Fold by the bare hash: any keys with any numbers."""
    if key.ndim and numbers.ndim and numbers.shape != key.shape:
        raise ShapeError(
            f"random.fold_in: data of shape {numbers.shape} for keys of shape "
            f"{key.shape}; give one number, or one a key"
        )
    how = impl(key.impl)
    shape = key.shape if key.ndim else numbers.shape
    counters = np.zeros((*shape, how.words), how.dtype)
    counters[..., -1] = numbers & np.uint64(_WORD) if how.bits == 32 else numbers
    if how.bits == 32:
        counters[..., -2] = numbers >> np.uint64(32)
    launch = _launcher(hash, key.impl, target, batch=key.ndim > 0)
    made = np.empty((*shape, how.key_words), how.dtype)
    key.fold(numbers)
    keys = key.words.reshape(-1, how.key_words) if key.ndim else key.words

    def run(*arguments: Any) -> None:
        words = np.empty((made.size // how.key_words, how.words), how.dtype)
        launch(*arguments, words)
        made[...] = words[:, : how.key_words].reshape(made.shape)

    return run, (keys, counters.reshape(-1, how.words)), Key(key.impl, made)


@declared(
    "random.hash",
    "tensorlang.ops.random.definitions:hash",
    shapes={
        "shapes": ((1 << 20,),),
        "dtypes": ("u32",),
        "impl": "threefry2x32",
        "batch": False,
    },
    dtypes=_WORDS,
    family="threefry",
    sizes=_sizes,
    result=lambda workload: workload.shapes[0],
)
def hash(
    key: Any,
    counter: Any,
    *,
    impl: str = "threefry2x32",
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The bare hash function on words, as Random123 has it: H(key, counter).

    Args:
        key: Words `[K]`, or one key a counter `[n, K]`; uint32 or uint64.
        counter: Counter words `[n, words]` of the same type.
        impl: Which hash; see `tensorlang.ops.random.impls`.
        target: Where to compute.
        out: Where the words go, `[n, words]`.

    Returns:
        The output words `[n, words]`. No key state is involved.
    """
    return _hash(key, counter, impl, target, out)


def _hash(key: Any, counter: Any, name: str, target: Any, out: Any) -> Launch:
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime

    how = impl(name)
    given = []
    for what, value, last in (
        ("key", key, how.key_words),
        ("counter", counter, how.words),
    ):
        array = np.asarray(value)
        fits = array.dtype == how.dtype and array.ndim in (1, 2)
        if not fits or array.shape[-1] != last:
            raise ArgumentError(
                f"random.hash: {what} of {how.name} is {how.dtype}[n, {last}], not "
                f"{array.dtype}{list(array.shape)}"
            )
        given.append(array)
    keys, counters = given
    counters = counters.reshape(-1, how.words)
    if keys.ndim == 2 and len(keys) != len(counters):
        raise ShapeError(
            f"random.hash: {len(keys)} keys for {len(counters)} counters; "
            "give one key, or one a counter"
        )
    launch = _launcher(hash, how.name, target, batch=keys.ndim == 2)
    if out is None:
        array, shown = results.empty("random.hash", counters.shape, how.dtype)
    else:
        shown = out
        array = results.given("random.hash", out, counters.shape, how.dtype)
    return launch, (keys, counters, array), shown

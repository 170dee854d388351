"""Verification of the random operators against published results of other systems.

Each group calls operators as users do, on a target, and yields results with the
expected values of `known_answers`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.frozen import frozen
from tensorlang.ops import nn, random
from tensorlang.ops.random import known_answers as known
from tensorlang.ops.random.impls import hash_numpy, impl

Array: TypeAlias = np.ndarray[Any, np.dtype]


@frozen
class Answer:
    """A question, the result and the expected one; floats may differ by `ulps`."""

    asked: str
    got: Array
    right: Array
    ulps: int = 0

    @property
    def correct(self) -> bool:
        """Whether they agree: bitwise, or within `ulps`."""
        if self.got.shape != self.right.shape:
            return False
        if not self.ulps:
            return bool((self.got == self.right).all())
        near = np.abs(_ordered(self.got) - _ordered(self.right))
        return bool((near <= self.ulps).all())

    def __str__(self) -> str:
        got, right = (np.array2string(a, threshold=8) for a in (self.got, self.right))
        return f"{self.asked} is {got} instead of {right}"


Check: TypeAlias = Callable[[Any], Iterator[Answer]]


@frozen
class Group:
    """Answers from one source: its name, the operators concerned, and the check."""

    name: str
    operators: tuple[str, ...]
    check: Check


def _ordered(values: Array) -> Array:
    """f32 values as integers whose differences are in ulps."""
    bits = values.astype(np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def _hex(text: str, dtype: Any) -> Array:
    return np.array([int(word, 16) for word in text.split()], dtype)


def _whole(text: str, dtype: Any) -> Array:
    return np.array([int(word) for word in text.split()], dtype)


def _hashed(name: str, counter: str, key: str, out: str, target: object) -> Answer:
    how = impl(name)
    got = random.hash(
        _hex(key, how.dtype), _hex(counter, how.dtype), impl=name, target=target
    )
    asked = f"{name}(counter {counter}, key {key})"
    return Answer(asked, got.reshape(-1), _hex(out, how.dtype))


def inputs(name: str) -> Iterator[tuple[str, str]]:
    """Counter and key: all zeros, all ones, the digits of pi."""
    how = impl(name)
    digits = (known.PI_32 if how.bits == 32 else known.PI_64).split()
    words, last = how.words, how.words + how.key_words
    for word in ("0", "f" * (how.bits // 4)):
        yield " ".join([word] * words), " ".join([word] * how.key_words)
    yield " ".join(digits[:words]), " ".join(digits[words:last])


def _published(table: dict[str, Any]) -> Check:
    def check(target: object) -> Iterator[Answer]:
        for name, answers in table.items():
            for (counter, key), out in zip(inputs(name), answers, strict=False):
                yield _hashed(name, counter, key, out, target)

    return check


def _repeated(target: object) -> Iterator[Answer]:
    counter = " ".join(known.PI_64.split()[:4])
    for name, out in known.REPEATED.items():
        yield _hashed(name, counter, known.REPEATED_KEY, out, target)


def _drawn(op: Any) -> Any:
    """A function from key, dtype and a table's text to result and expected array."""

    def draw(key: Any, dtype: str, text: str, target: Any) -> tuple[Array, Array]:
        names = {"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
        names |= {"f16": "float16", "bf16": "bfloat16", "f64": "float64"}
        kind = names.get(dtype, "float32")
        got = op(key, (len(text.split()),), dtype=kind, target=target)
        if got.dtype.kind == "u":
            return got, _whole(text, got.dtype)
        if op is random.uniform and dtype == "f32":
            return got.view(np.uint32), _hex(text, np.uint32)
        right = np.array([float(word) for word in text.split()])
        return got.astype(np.float64), right.astype(got.dtype).astype(np.float64)

    return draw


def _split(key: object, _: str, text: str, target: object) -> tuple[Array, Array]:
    right = _whole(text, np.uint32).reshape(-1, 2)
    return random.key_data(random.split(key, len(right), target=target)), right


def _fold_in(
    key: object, number: str, text: str, target: object
) -> tuple[Array, Array]:
    made = random.fold_in(key, int(number), target=target)
    return random.key_data(made), _whole(text, np.uint32)


def _bernoulli(key: object, _: str, text: str, target: object) -> tuple[Array, Array]:
    right = _whole(text, bool)
    return random.bernoulli(key, 0.5, right.shape, target=target), right


def _randint(key: object, most: str, text: str, target: object) -> tuple[Array, Array]:
    right = _whole(text, np.int32)
    return random.randint(key, right.shape, 0, int(most), target=target), right


def _permutation(key: object, _: str, text: str, target: object) -> tuple[Array, Array]:
    right = _whole(text, np.int32)
    return random.permutation(key, len(right), target=target), right


def _key(key: Any, _: str, text: str, target: object) -> tuple[Array, Array]:
    del target
    return random.key_data(key), _whole(text, np.uint32)


# first word of a table's line -> how to compute the result
_QUESTIONS: Final[dict[str, Any]] = {
    "key": _key,
    "split": _split,
    "fold_in": _fold_in,
    "bits": _drawn(random.bits),
    "uniform": _drawn(random.uniform),
    "normal": _drawn(random.normal),
    "bernoulli": _bernoulli,
    "randint": _randint,
    "permutation": _permutation,
}
_NORMAL_ULPS: Final = 3


def _table(
    lines: dict[str, str], target: object, seed: int, name: str = "threefry2x32"
) -> Iterator[Answer]:
    for line, text in lines.items():
        what, _, argument = line.partition(" ")
        key = random.key(seed, impl=name)
        got, right = _QUESTIONS[what](key, argument, text, target)
        asked = f"{line} of key({seed}, {name})"
        yield Answer(asked, got, right, _NORMAL_ULPS if what == "normal" else 0)


def _jax(target: object) -> Iterator[Answer]:
    for seed, lines in known.JAX.items():
        yield from _table(lines, target, seed)


def _jax_impls(target: object) -> Iterator[Answer]:
    for name, lines in known.JAX_IMPLS.items():
        yield from _table(lines, target, 0, name)


def _stream(name: str) -> Check:
    def check(target: object) -> Iterator[Answer]:
        op = getattr(random, name)
        values = op(random.key(known.HASHED_SEED), (known.HASHED_COUNT,), target=target)
        little = values.view(np.uint32).astype("<u4").tobytes()
        got = hashlib.sha256(little).hexdigest()
        asked = f"SHA-256 of {known.HASHED_COUNT} {name}"
        yield Answer(asked, np.array(got), np.array(known.SHA256[name]))

    return check


def _swift(target: object) -> Iterator[Answer]:
    for seed, text in known.SWIFT.items():
        right = _whole(text, np.uint64)
        got = random.bits(random.key(seed), right.shape, "uint64", target=target)
        yield Answer(f"the 64-bit words of seed {seed}", got, right)


def _tflite(target: object) -> Iterator[Answer]:
    """State [key 1, counter 2], 64-bit numbers with the low word first."""
    for name, text in known.TFLITE.items():
        right = _whole(text, np.uint32)
        got = _blocks(name, 6, target)[:6]
        yield Answer(f"TFLite's words of {name}", got, right)
    right = _whole(known.TFLITE_U64, np.uint64)
    words = _blocks("threefry2x32", 12, target).astype(np.uint64)
    got = words[0::2] | words[1::2] << np.uint64(32)
    yield Answer("TFLite's 64-bit words of threefry2x32", got, right)


def _blocks(name: str, count: int, target: object) -> Array:
    how = impl(name)
    key = np.zeros(how.key_words, np.uint32)
    key[0] = 1
    counters = np.zeros((-(-count // how.words), how.words), np.uint32)
    counters[:, 0] = 2 + np.arange(len(counters))
    if how.words == 4:
        counters[:, 2] = 3
    return np.asarray(random.hash(key, counters, impl=name, target=target)).reshape(-1)


def _packed(target: object) -> Iterator[Answer]:
    right = _whole(known.PACKED, np.uint32)
    got = random.bits(random.key(0), right.shape, stream="packed", target=target)
    yield Answer("the packed stream of key(0)", got, right)


def _carried(target: object) -> Iterator[Answer]:
    """Draws across 2^32 elements carry into the high word of the counter."""
    first, count = (1 << 32) - 8, 16
    numbers = np.arange(count, dtype=np.uint64) + np.uint64(first)
    counter = [numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)]
    x0, x1 = hash_numpy(impl("threefry2x32"), counter, [0, 7])
    got = random.bits(random.key(7), (count,), offset=first, target=target)
    yield Answer("bits of key(7) across 2^32", got, x0 ^ x1)


def _dropout(target: object) -> Iterator[Answer]:
    x = np.arange(1, 17, dtype=np.float32)
    for rate, text in known.DROPOUT.items():
        kept = np.array([float(word) for word in text.split()], np.float32)
        right = kept / np.float32(1 - rate)
        key = random.key(0)
        got = nn.dropout(x, rate, key=key, target=target)
        yield Answer(f"dropout(1..16, {rate}, key(0))", got, right)
        again = nn.dropout_grad(x, rate, key=key, target=target)
        yield Answer(f"dropout_grad(1..16, {rate}, key(0))", again, right)


_TABLE: Final = tuple(f"random.{name}" for name in _QUESTIONS if name != "key")
GROUPS: Final = (
    Group("Random123, 36 vectors", ("random.hash",), _published(known.RANDOM123)),
    Group("Random123, repeated key words", ("random.hash",), _repeated),
    Group("Random123, Philox", ("random.hash",), _published(known.PHILOX)),
    Group("JAX, tables of four seeds", _TABLE, _jax),
    Group("JAX, other implementations", ("random.bits", "random.fold_in"), _jax_impls),
    Group("2^20 bits by SHA-256", ("random.bits",), _stream("bits")),
    Group("2^20 uniforms by SHA-256", ("random.uniform",), _stream("uniform")),
    Group("Swift for TensorFlow", ("random.bits",), _swift),
    Group("TFLite", ("random.hash",), _tflite),
    Group("packed stream", ("random.bits",), _packed),
    Group("counter across 2^32", ("random.bits",), _carried),
    Group("dropout", ("nn.dropout", "nn.dropout_grad"), _dropout),
)

"""The definitions themselves, executed by the interpreter against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ops import find, operators
from tensorlang.ops.random.draw import Chunks
from tensorlang.ops.random.impls import hash_numpy, impl

IMPLS = ("threefry2x32", "threefry4x32-13", "threefry2x64", "threefry4x64-13")
PHILOX = ("philox2x32", "philox4x32-7")


def draw(op: str, dtype: str, count: int, *scalars: Any, **given: Any) -> np.ndarray:
    """Interpret a draw: key words 1, 2, ...; the counter starts at `start`."""
    start, rows = given.pop("start", 0), given.pop("rows", 0)
    chosen = find(op)
    how = impl(given.get("key", "threefry2x32"))
    shapes = ((rows, how.key_words) if rows else (how.key_words,)), (count,)
    workload = chosen.workload(*shapes, dtypes=dtype, **given)
    func, sizes = chosen.function(workload), chosen.sizes(workload)
    keys = np.arange(1, how.key_words * (rows or 1) + 1, dtype=how.dtype)
    out = np.zeros((rows, count) if rows else count, func.params[-1].buffer.dtype.numpy)
    names = [var.name for var in func.scalars]

    def launch(keys: np.ndarray, part: np.ndarray, *numbers: Any) -> None:
        own = sizes | ({} if rows else {names[-1]: len(part)})
        run(func, keys, part, **dict(zip(names, numbers, strict=False)) | own)

    if start or not count:
        parts = Chunks.of(launch, workload)
        parts(keys, out, start * parts.per_hash, 0, *scalars)
    else:
        launch(keys.reshape(rows, -1) if rows else keys, out, 0, 0, *scalars)
    return out


def blocks(name: str, count: int, start: int = 0, key: int = 1) -> np.ndarray:
    """The words of `count` hashes of the counters from `start` on, one a row."""
    how = impl(name)
    index = np.arange(start, start + count, dtype=np.uint64)
    if how.bits == 32:
        counter = [(index >> np.uint64(32)).astype(np.uint32), index.astype(np.uint32)]
    else:
        counter = [np.zeros_like(index), index]
    zeros = [np.zeros_like(counter[0])] * (how.words - 2)
    keys = list(range(key, key + how.key_words))
    return np.stack(hash_numpy(how, [*counter, *zeros], keys), axis=1)


@pytest.mark.parametrize("name", [*IMPLS, *PHILOX])
def test_the_jax_stream_folds_the_words_of_a_hash(name):
    how = impl(name)
    words = blocks(name, 9)
    folded = np.bitwise_xor.reduce(words, axis=1)
    expected = folded.astype(f"u{how.bits // 8}")
    assert (draw("random.bits", f"u{how.bits}", 9, key=name) == expected).all()
    assert (draw("random.bits", "u8", 9, key=name) == expected.astype(np.uint8)).all()


@pytest.mark.parametrize("name", [*IMPLS, *PHILOX])
@pytest.mark.parametrize("count", [0, 1, 7, 16])
def test_the_packed_stream_is_the_words_in_order(name, count):
    how = impl(name)
    words = blocks(name, count).reshape(-1)
    for dtype in ("u8", "u16", f"u{how.bits}"):
        drawn = draw("random.bits", dtype, count, key=name, stream="packed")
        expected = words.view(f"u{int(dtype[1:]) // 8}")[:count]
        assert (drawn == expected).all()


def test_two_words_make_a_packed_64_bit_element():
    words = blocks("threefry4x32", 3).reshape(-1, 2).astype(np.uint64)
    drawn = draw("random.bits", "u64", 5, key="threefry4x32", stream="packed")
    expected = (words[:, 0] << np.uint64(32)) | words[:, 1]
    assert (drawn == expected[:5]).all()


@pytest.mark.parametrize("stream", ["jax", "packed"])
@pytest.mark.parametrize("start", [2**32 - 3, 5 * 2**32 - 1, 2**64 - 9])
def test_the_counter_carries(stream, start):
    words = blocks("threefry2x32", 8, start=start)
    drawn = draw("random.bits", "u32", 8, start=start, stream=stream)
    expected = words[:, 0] ^ words[:, 1] if stream == "jax" else words.reshape(-1)[:8]
    assert (drawn == expected).all()


def test_each_key_of_a_batch_has_its_own_stream():
    drawn = draw("random.bits", "u32", 5, rows=3)
    for row in range(3):
        words = blocks("threefry2x32", 5, key=1 + 2 * row)
        assert (drawn[row] == words[:, 0] ^ words[:, 1]).all()


def test_a_uniform_is_23_bits_over_2_to_the_23():
    bits = draw("random.bits", "u32", 64)
    drawn = draw("random.uniform", "f32", 64)
    assert (drawn == (bits >> 9) * np.float32(2.0**-23)).all()


@pytest.mark.parametrize("steps", [0, 1, 2**22, 2**23])
def test_bernoulli_compares_integers(steps):
    drawn = draw("random.bernoulli", "f32", 64, steps)
    uniform = draw("random.uniform", "f32", 64)
    assert (drawn == (uniform < steps * 2.0**-23)).all()


@pytest.mark.parametrize(
    ("dtype", "width", "digits"), [("f32", 64, 24), ("f64", 64, 53), ("f16", 32, 11)]
)
def test_a_fine_uniform_is_its_bits_cut_to_the_types_digits(dtype, width, digits):
    bits = draw("random.bits", f"u{width}", 200)
    drawn = draw("random.uniform", dtype, 200, 0.0, 1.0, resolution="high")
    for number, value in zip(bits.tolist(), drawn.tolist(), strict=True):
        spare = max(number.bit_length() - digits, 0)
        assert value == (number >> spare << spare) / 2**width


@pytest.mark.parametrize(
    "op", [op for op in operators() if op.id.startswith(("random.", "nn.dropout"))]
)
def test_every_definition_verifies_and_survives_its_own_text(op):
    func = op.function(op.default)
    verify(func)
    assert parse(show(func)) == func
    if "stream" not in op.default.named:
        return
    packed = op.workload(stream="packed")
    batch = [
        (9, *s) if d[0] != "s" else s
        for s, d in zip(packed.shapes, packed.dtypes, strict=True)
    ]
    several = () if op.id == "nn.dropout_train" else (packed.with_shapes(*batch),)
    for workload in (packed, *several):
        made = op.function(workload)
        verify(made)
        assert parse(show(made)) == made


def test_definition_of_bits(golden):
    op = find("random.bits")
    golden(show(op.function(op.workload(key="threefry2x32-5"))))


def test_definition_of_packed_uniform_for_a_batch(golden):
    op = find("random.uniform")
    given = {"key": "threefry2x32-2", "stream": "packed"}
    golden(show(op.function(op.workload((3, 2), (1000,), **given))))


def test_definition_of_dropout_train(golden):
    op = find("nn.dropout_train")
    golden(show(op.function(op.workload(state="threefry2x32-2"))))

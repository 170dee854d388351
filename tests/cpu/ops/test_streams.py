"""Slices of a stream are the same however they are drawn: offsets, sizes, keys."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import KeyReuseError
from tensorlang.ops import random
from tensorlang.ops.random.impls import hash_numpy, impl

IMPLS = (
    *("threefry2x32", "threefry4x32", "threefry2x64", "threefry4x64-13"),
    *("philox2x32", "philox4x32-7", "philox4x64"),
)
SIZES = (0, 1, 2, 3, 7, 31, 63, 64, 65, 127, 1000, 4097, 65537)


def stream(key, count, start=0):
    """The words of the hashes of a Threefry2x32 key, one row each."""
    index = np.arange(count, dtype=np.uint64) + np.uint64(start % 2**64)
    counter = [(index >> np.uint64(32)).astype("u4"), index.astype("u4")]
    return np.stack(hash_numpy(impl("threefry2x32"), counter, list(key.words)), axis=1)


@pytest.mark.parametrize("layout", ["jax", "packed"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("name", IMPLS)
def test_a_shorter_draw_is_the_start_of_a_longer(name, dtype, layout):
    key = random.key(3, impl=name)
    longest = random.bits(key.clone(), (SIZES[-1],), dtype, stream=layout)
    for size in SIZES[:-1]:
        drawn = random.bits(key.clone(), (size,), dtype, stream=layout)
        assert (drawn == longest[:size]).all()


@pytest.mark.parametrize("layout", ["jax", "packed"])
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
@pytest.mark.parametrize("name", ["threefry2x32", "threefry4x32", "threefry2x64"])
def test_an_offset_draws_a_slice(name, dtype, layout):
    key = random.key(3, impl=name)
    whole = random.bits(key.clone(), (5000,), dtype, stream=layout)
    for offset in (0, 1, 2, 3, 5, 8, 17, 1000, 4999, 5000):
        for size in (0, 1, 5, 70, 1000):
            part = random.bits(
                key.clone(), (size,), dtype, stream=layout, offset=offset
            )
            held = whole[offset : offset + size]
            assert (part[: len(held)] == held).all()


@pytest.mark.parametrize("start", [2**32 - 500, 2**32, 7 * 2**32 - 1, 2**64 - 1000])
def test_the_counter_is_carried_across_2_to_the_32(start):
    key = random.key(5)
    words = stream(key, 1000, start)
    drawn = random.bits(key.clone(), (1000,), offset=start)
    assert (drawn == words[:, 0] ^ words[:, 1]).all()


def test_a_packed_offset_is_carried_too():
    key = random.key(5)
    words = stream(key, 1000, 2**32 - 500).reshape(-1)
    drawn = random.bits(
        key.clone(), (1999,), offset=2 * (2**32 - 500) + 1, stream="packed"
    )
    assert (drawn == words[1:]).all()


@pytest.mark.parametrize("shape", [(), (1,), (6,), (2, 3), (1, 2, 3)])
def test_the_shape_does_not_change_the_stream(shape):
    flat = random.bits(random.key(1), (6,))
    drawn = random.bits(random.key(1), shape)
    assert drawn.shape == shape
    assert (drawn.reshape(-1) == flat[: drawn.size]).all()


def test_packed_narrow_bits_are_the_bytes_of_the_words():
    words = random.bits(random.key(1), (1000,), stream="packed")
    for dtype in ("uint8", "uint16"):
        size = 4000 // np.dtype(dtype).itemsize
        narrow = random.bits(random.key(1), (size,), dtype, stream="packed")
        assert narrow.tobytes() == words.astype("<u4").tobytes()


def test_packed_wide_bits_join_words_first_one_high():
    words = random.bits(random.key(1), (1000,), stream="packed").astype("u8")
    wide = random.bits(random.key(1), (500,), "uint64", stream="packed")
    assert (wide == (words[0::2] << np.uint64(32) | words[1::2])).all()


@pytest.mark.parametrize("layout", ["jax", "packed"])
def test_distributions_draw_from_the_same_bits(layout):
    bits = random.bits(random.key(1), (999,), stream=layout)
    uniform = random.uniform(random.key(1), (999,), stream=layout)
    assert (uniform == (bits >> 9) * np.float32(2**-23)).all()
    coin = random.bernoulli(random.key(1), 0.3, (999,), stream=layout)
    assert (coin == (uniform < np.float32(0.3))).all()


# ------------------------------------------------------------------- many keys


@pytest.mark.parametrize("layout", ["jax", "packed"])
@pytest.mark.parametrize("size", [0, 1, 5, 64, 1000])
def test_a_batch_of_keys_draws_each_keys_stream(size, layout):
    keys = random.split(random.key(9), 5)
    drawn = random.normal(keys, (size,), stream=layout)
    assert drawn.shape == (5, size)
    for row, key in zip(drawn, keys, strict=True):
        alone = random.normal(key.clone(), (size,), stream=layout)
        assert row.tobytes() == alone.tobytes()


def test_a_batch_of_keys_with_an_offset():
    keys = random.split(random.key(9), (2, 3))
    drawn = random.bits(keys.clone(), (7,), offset=5, stream="packed")
    whole = random.bits(keys, (12,), stream="packed")
    assert drawn.shape == (2, 3, 7)
    assert (drawn == whole[..., 5:]).all()


def test_a_batch_is_consumed_by_a_draw():
    keys = random.split(random.key(9), 3)
    random.bits(keys[1], (2,))
    with pytest.raises(
        KeyReuseError, match="element 1 of the key batch was drawn from"
    ):
        random.bits(keys, (2,))
    random.bits(keys[0], (2,))


def test_splitting_many_keys_splits_each():
    keys = random.split(random.key(9), 4)
    grid = random.split(keys.clone(), 3)
    assert grid.shape == (4, 3)
    for row, key in zip(grid, keys, strict=True):
        assert (random.key_data(row) == random.key_data(random.split(key, 3))).all()


@pytest.mark.parametrize("name", IMPLS)
def test_child_i_is_the_key_folded_with_i(name):
    key = random.key(9, impl=name)
    children = random.key_data(random.split(key.clone(), 5))
    for number in range(5):
        assert (random.key_data(random.fold_in(key, number)) == children[number]).all()
    many = random.fold_in(random.key(9, impl=name), np.arange(5))
    assert (random.key_data(many) == children).all()


def test_numbers_of_64_bits_fold():
    key = random.key(9)
    number = 2**40 + 7
    expected = stream(key, 1, number)[0]
    assert (random.key_data(random.fold_in(key, number)) == expected).all()


def test_a_batch_folds_one_number_each():
    keys = random.split(random.key(9), 4)
    folded = random.fold_in(keys, np.array([3, 1, 4, 1]))
    for made, key, number in zip(folded, keys.clone(), (3, 1, 4, 1), strict=True):
        assert (
            random.key_data(made) == random.key_data(random.fold_in(key, number))
        ).all()


def test_129_splits_deep():
    """The chain of second children, by the reference hash too; no key comes twice."""
    key, words, seen = random.key(0), [0, 0], set()
    for _ in range(129):
        left, key = random.split(key)
        words = [int(w[0]) for w in hash_numpy(impl("threefry2x32"), [0, 1], words)]
        assert random.key_data(key).tolist() == words
        seen |= {tuple(random.key_data(left).tolist()), tuple(words)}
    assert len(seen) == 258


def test_a_key_draws_by_its_value_not_by_its_address():
    first = random.bits(random.key(4), (100,))
    spare = np.zeros(1 << 16, np.uint8)  # moves later buffers elsewhere
    second = random.bits(random.wrap_key_data(np.array([0, 4], np.uint32)), (100,))
    assert (first == second).all()
    assert (first != random.bits(random.key(5), (100,))).any()
    assert not spare.any()


# ---------------------------------------------------------------------- out and in


@pytest.mark.parametrize("shape", [(16,), (4, 4), (), (0,)])
def test_out_is_filled_and_returned(shape):
    out = np.full(shape, 7, np.uint32)
    for _ in range(2):  # the short way is the second call's
        assert random.bits(random.key(1), shape, "uint32", out=out) is out
        assert (out == random.bits(random.key(1), shape)).all()


def test_out_may_be_strided():
    base = np.zeros((8, 6), np.float32)
    random.normal(random.key(1), (3, 8), out=base.T[::2])
    assert (base.T[::2] == random.normal(random.key(1), (3, 8))).all()
    assert not base.T[1::2].any()


def test_a_torch_tensor_is_filled():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    out = torch.zeros(5)
    assert random.uniform(random.key(1), (5,), out=out) is out
    assert (out.numpy() == random.uniform(random.key(1), (5,))).all()


# ----------------------------------------------------------------- stateful keys


def test_a_stateful_key_never_repeats():
    holder = random.StatefulKey(3)
    first, second = (random.bits(holder, (10,)) for _ in range(2))
    base = random.key(3)
    assert (first == random.bits(random.fold_in(base, 0), (10,))).all()
    assert (second == random.bits(random.fold_in(base, 1), (10,))).all()


def test_a_clone_of_a_stateful_key_goes_on_apart():
    import pickle

    holder = random.StatefulKey(3)
    random.bits(holder, (10,))
    twins = [holder.clone(), pickle.loads(pickle.dumps(holder)), holder]
    drawn = [random.bits(twin, (10,)).tolist() for twin in twins]
    assert drawn[0] == drawn[1] == drawn[2]


def test_a_failed_call_takes_no_key_from_a_stateful_key():
    holder = random.StatefulKey(3)
    with pytest.raises(ValueError, match=r"random\.bits draws u8"):
        random.bits(holder, (10,), "float32")
    assert (
        random.bits(holder, (4,)) == random.bits(random.fold_in(random.key(3), 0), (4,))
    ).all()

"""Keys: their words, and the rules by which they are used up."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, ElementError, KeyReuseError
from tensorlang.ops.random.keys import Key, clone, key, key_data, wrap_key_data
from tensorlang.ops.random.stateful import StatefulKey
from tensorlang.ops.random.states import Intervals


def batch(count: int = 4, *shape: int) -> Key:
    words = np.arange(2 * count, dtype=np.uint32).reshape(*(shape or (count,)), 2)
    return wrap_key_data(words)


def fold(made: Key, *numbers: int) -> None:
    made.fold(np.asarray(numbers if len(numbers) != 1 else numbers[0]))


def states(made: Key) -> list[str]:
    return made.states.reshape(-1).tolist()


# ------------------------------------------------------------------- making keys


@pytest.mark.parametrize(
    ("seed", "bits", "words"),
    [
        (0, 64, [0, 0]),
        (42, 64, [0, 42]),
        (2**32 - 1, 64, [0, 2**32 - 1]),
        (2**32, 64, [1, 0]),
        (0x0123456789ABCDEF, 64, [0x01234567, 0x89ABCDEF]),
        (2**64 - 1, 64, [2**32 - 1, 2**32 - 1]),
        (-1, 64, [2**32 - 1, 2**32 - 1]),
        (-1, 32, [0, 2**32 - 1]),
        (2**31 - 1 + 100, 32, [0, 2147483747]),
        (2**32 + 5, 32, [0, 5]),
        (np.int64(7), 64, [0, 7]),
    ],
)
def test_a_seed_fills_the_key(seed, bits, words):
    assert key_data(key(seed, bits=bits)).tolist() == words


@pytest.mark.parametrize(
    ("impl", "words"),
    [
        ("threefry4x32", [2624366954, 3783175782, 4228967636, 1381410776]),
        ("philox4x32", [1713891541, 3781805453]),
        ("philox2x32", [4280135257]),
    ],
)
def test_other_impls_hash_their_seed(impl, words):
    assert key_data(key(0, impl=impl)).tolist() == words


@pytest.mark.parametrize(
    ("impl", "dtype", "count"),
    [
        ("threefry2x32-13", np.uint32, 2),
        ("threefry2x64", np.uint64, 2),
        ("threefry4x64-13", np.uint64, 4),
    ],
)
def test_key_words_have_the_hashes_type(impl, dtype, count):
    data = key_data(key(5, impl=impl))
    assert data.dtype == dtype
    assert data.shape == (count,)
    assert wrap_key_data(data, impl=impl).impl == impl


@pytest.mark.parametrize(
    ("seed", "says"),
    [
        (2**64, "the seed 18446744073709551616 does not fit 64 bits"),
        (-(2**63) - 1, "does not fit 64 bits"),
        (1.0, "a seed is an integer, not 1.0"),
        ("0", "a seed is an integer, not '0'"),
        (True, "a seed is an integer, not True"),
        (None, "a seed is an integer, not None"),
        (np.arange(2), "a seed is an integer"),
    ],
)
def test_what_is_no_seed(seed, says):
    with pytest.raises(ArgumentError, match=re.escape(says)):
        key(seed)


def test_bits_of_a_seed_are_32_or_64():
    with pytest.raises(ArgumentError, match="32 or 64 bits of its seed, not 16"):
        key(0, bits=16)


@pytest.mark.parametrize(
    "data",
    [
        np.zeros(2, np.int32),
        np.zeros(3, np.uint32),
        np.zeros((), np.uint32),
        np.zeros((2, 4), np.uint32),
        [0, 0],
    ],
)
def test_key_data_of_another_kind_is_refused(data):
    with pytest.raises(ArgumentError, match=r"uint32\[\.\.\., 2\], not"):
        wrap_key_data(data)


def test_wrapped_data_is_a_copy():
    data = np.zeros(2, np.uint32)
    made = wrap_key_data(data)
    data[0] = 1
    key_data(made)[0] = 1
    assert key_data(made).tolist() == [0, 0]


@pytest.mark.parametrize("function", [key_data, clone])
def test_only_keys_have_data_and_clones(function):
    with pytest.raises(ArgumentError, match="takes a Key, not ndarray"):
        function(np.zeros(2, np.uint32))


# ------------------------------------------------------------------- one key


def test_a_fresh_key_is_consumed_once():
    made = key(0)
    assert states(made) == ["fresh"]
    made.consume("drawn from")
    assert states(made) == ["consumed"]
    with pytest.raises(KeyReuseError):
        made.consume("drawn from")


def test_the_error_names_both_uses_by_file_and_line():
    made = key(0)
    made.consume("drawn from")
    first = test_the_error_names_both_uses_by_file_and_line.__code__.co_firstlineno + 2
    with pytest.raises(KeyReuseError) as caught:
        made.consume("split")
    text = str(caught.value)
    assert f"key was drawn from at {__file__}:{first}" in text
    assert f"is split again at {__file__}:{first + 3}" in text
    assert "split the key and use each child once" in text


def test_looking_at_a_key_is_no_use():
    made = key(0)
    key_data(made)
    repr(made)
    _ = made.shape, made.ndim, made.size, made.states
    assert states(made) == ["fresh"]


def test_a_clone_is_fresh():
    made = key(0)
    made.consume("drawn from")
    again = made.clone()
    assert states(again) == ["fresh"]
    assert states(clone(made)) == ["fresh"]
    again.consume("drawn from")
    assert states(made.clone()) == ["fresh"]


def test_a_folded_key_folds_again_with_other_numbers():
    made = key(0)
    fold(made, 1)
    fold(made, 2)
    fold(made, 0)
    assert states(made) == ["folded"]


@pytest.mark.parametrize("verb", ["drawn from", "split"])
def test_a_folded_key_is_neither_drawn_from_nor_split(verb):
    made = key(0)
    fold(made, 1)
    with pytest.raises(KeyReuseError, match=rf"key was folded at .* is {verb} again"):
        made.consume(verb)
    assert states(made) == ["folded"]


def test_a_consumed_key_is_not_folded():
    made = key(0)
    made.consume("split")
    with pytest.raises(KeyReuseError, match=r"key was split at .* is folded again"):
        fold(made, 1)


@pytest.mark.parametrize("numbers", [[5, 5], [1, 2, 3, 2], [0, 1, 2, 3, 1]])
def test_a_number_is_folded_once(numbers):
    made = key(0)
    for number in numbers[:-1]:
        fold(made, number)
    with pytest.raises(KeyReuseError, match="into a key again, first done at"):
        fold(made, numbers[-1])


def test_numbers_in_an_array_are_each_folded():
    made = key(0)
    fold(made, 1, 2, 3, 9)
    fold(made, 4, 8)
    with pytest.raises(KeyReuseError, match=r"a number in 8\.\.9 into a key again"):
        fold(made, 8, 9)


def test_an_array_does_not_hold_a_number_twice():
    with pytest.raises(KeyReuseError, match="same number twice in its data"):
        fold(key(0), 3, 4, 3)


def test_a_long_loop_of_folds_keeps_little():
    made = key(0)
    for step in range(3000):
        fold(made, step)
    assert len(made._ledger.uses) < 1100
    assert len(made._ledger.folds[0].lows) == 1
    with pytest.raises(KeyReuseError):
        made.consume("drawn from")


def test_a_refused_use_changes_nothing():
    made = key(0)
    fold(made, 1)
    for _ in range(3):
        with pytest.raises(KeyReuseError, match="was folded"):
            made.consume("drawn from")
    fold(made, 2)


# --------------------------------------------------------------- copies of a key


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_same_key(copied):
    made = key(0)
    twin = copied(made)
    twin.consume("drawn from")
    assert states(made) == ["consumed"]
    with pytest.raises(KeyReuseError):
        made.consume("drawn from")


@pytest.mark.parametrize("use", ["nothing", "consume", "fold"])
def test_a_pickle_keeps_the_state(use):
    made = key(7, impl="threefry4x32")
    if use == "consume":
        made.consume("drawn from")
    if use == "fold":
        fold(made, 1)
    back = pickle.loads(pickle.dumps(made))
    assert key_data(back).tolist() == key_data(made).tolist()
    assert back.impl == made.impl
    assert states(back) == states(made)
    if use != "nothing":
        with pytest.raises(KeyReuseError, match="before it was pickled"):
            back.consume("drawn from")


def test_a_pickled_batch_keeps_each_state():
    made = batch(4)
    made[1].consume("drawn from")
    fold(made[2], 5)
    back = pickle.loads(pickle.dumps(made[1:]))
    assert states(back) == ["consumed", "folded", "fresh"]
    back[2].consume("drawn from")


# ----------------------------------------------------------------------- batches


def test_a_batch_unpacks():
    left, right = batch(2)
    assert key_data(left).tolist() == [0, 1]
    assert key_data(right).tolist() == [2, 3]


def test_elements_have_their_own_states():
    made = batch(4)
    made[1].consume("drawn from")
    made[-1].consume("drawn from")
    assert states(made) == ["fresh", "consumed", "fresh", "consumed"]
    made[0].consume("drawn from")
    with pytest.raises(KeyReuseError, match="element 1 of the key batch"):
        made[1].consume("drawn from")


def test_a_batch_is_consumed_whole():
    made = batch(3)
    made.consume("drawn from")
    assert states(made) == ["consumed"] * 3
    for element in made:
        with pytest.raises(KeyReuseError):
            element.consume("drawn from")


def test_a_batch_with_a_used_element_is_not_consumed_at_all():
    made = batch(3)
    made[2].consume("drawn from")
    with pytest.raises(KeyReuseError, match="element 2 of the key batch was drawn"):
        made.consume("split")
    assert states(made) == ["fresh", "fresh", "consumed"]


@pytest.mark.parametrize(
    ("index", "hit"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2, 4]),
        ([3, 0], [0, 3]),
        (np.array([True, False, False, True, True, False]), [0, 3, 4]),
        (..., [0, 1, 2, 3, 4, 5]),
    ],
)
def test_views_share_states(index, hit):
    made = batch(6)
    made[index].consume("drawn from")
    assert [n for n, state in enumerate(states(made)) if state == "consumed"] == hit


@pytest.mark.parametrize("index", [slice(1, 3), [4, 1], 5, (slice(2, None),)])
def test_a_view_holds_the_words_of_its_elements(index):
    made = batch(6)
    assert key_data(made[index]).tolist() == key_data(made)[index].tolist()


def test_a_view_of_a_view():
    made = batch(6)
    inner = made[2:][1:3]
    inner[0].consume("drawn from")
    assert states(made) == ["fresh"] * 3 + ["consumed"] + ["fresh"] * 2


def test_an_element_taken_twice_is_refused():
    made = batch(4)
    with pytest.raises(KeyReuseError, match="more than once in the batch drawn from"):
        made[[1, 1]].consume("drawn from")
    assert states(made) == ["fresh"] * 4


def test_shapes_of_batches():
    made = batch(6, 2, 3)
    assert (made.shape, made.ndim, made.size, len(made)) == ((2, 3), 2, 6, 2)
    assert made[1].shape == (3,)
    assert made[1, 2].shape == ()
    assert made[:, 1].shape == (2,)
    assert [row.shape for row in made] == [(3,), (3,)]
    made[1, 2].consume("drawn from")
    assert made.states.tolist() == [["fresh"] * 3, ["fresh", "fresh", "consumed"]]


def test_reshaped_keys_are_the_same_keys():
    made = batch(6)
    grid = made.reshape(2, 3)
    grid[1, 0].consume("drawn from")
    assert states(made) == ["fresh"] * 3 + ["consumed"] + ["fresh"] * 2
    assert grid.ravel().shape == (6,)
    assert grid.reshape((3, 2)).shape == (3, 2)
    assert key_data(grid.reshape(-1)).tolist() == key_data(made).tolist()


def test_a_batch_of_one_reshapes_to_a_key():
    made = batch(1)
    single = made.reshape(())
    assert single.shape == ()
    single.consume("drawn from")
    assert states(made) == ["consumed"]


def test_an_empty_batch():
    made = wrap_key_data(np.zeros((0, 2), np.uint32))
    made.consume("drawn from")
    made.consume("drawn from")
    assert made.size == 0
    assert list(made) == []


def test_a_batch_folds_together_and_apart():
    made = batch(3)
    fold(made, 1)
    fold(made, 2)
    assert states(made) == ["folded"] * 3
    with pytest.raises(KeyReuseError, match="folds 2 into a key again"):
        fold(made, 2)
    with pytest.raises(KeyReuseError):
        made[0].consume("drawn from")


@pytest.mark.parametrize("attempt", [len, iter, lambda k: k[0]])
def test_a_single_key_has_no_elements(attempt):
    with pytest.raises((TypeError, IndexError), match="single key"):
        attempt(key(0))


@pytest.mark.parametrize("index", [4, -5, (0, 0), "a", 1.5, [0, 7], {}, slice("a")])
def test_elements_that_are_not_there(index):
    assert issubclass(ElementError, IndexError)
    with pytest.raises(ElementError, match=r"keys of shape \(4,\) have no elements \["):
        _ = batch(4)[index]


def test_the_words_of_a_key_are_no_axis():
    with pytest.raises(IndexError):
        _ = batch(4, 2, 2)[0, 0, 0]


def test_how_keys_print():
    made = batch(3)
    assert repr(key(0)) == "<Key threefry2x32, fresh>"
    made[1].consume("drawn from")
    assert repr(made) == "<Key threefry2x32, shape=(3,), consumed and fresh>"


# ------------------------------------------------------- threads and the switch


def test_one_of_many_threads_gets_the_key():
    for _ in range(50):
        made, won, gate = key(0), [], threading.Barrier(4)

        def race(made=made, won=won, gate=gate):
            gate.wait()
            try:
                made.consume("drawn from")
            except KeyReuseError:
                return
            won.append(1)

        threads = [threading.Thread(target=race) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [1]


def test_one_switch_turns_the_check_off():
    program = (
        "from tensorlang.ops.random.keys import key\n"
        "k = key(0)\n"
        "k.consume('drawn from'); k.consume('drawn from')\n"
        "print(k.states)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TENSORLANG_KEY_CHECK": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "fresh"


# ----------------------------------------------------------------- stateful keys


def test_a_stateful_key_uses_its_base_up():
    base = key(0)
    StatefulKey(base)
    with pytest.raises(KeyReuseError, match="made stateful"):
        base.consume("drawn from")


def test_a_stateful_key_holds_one_key():
    with pytest.raises(ArgumentError, match="one key, not a batch"):
        StatefulKey(batch(2))


# ------------------------------------------------------------ the runs of numbers


def test_intervals_hold_what_was_added():
    seen, plain = Intervals(), set()
    generator = np.random.default_rng(3)
    for _ in range(500):
        low = int(generator.integers(0, 300))
        high = low + int(generator.integers(1, 4))
        expected = bool(plain & set(range(low, high)))
        assert (seen.held(low, high) is not None) == expected
        if not expected:
            seen.add(low, high, "here")
            plain |= set(range(low, high))

"""The hashes on NumPy words: every published known answer, and the names."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ops.random import known_answers as known
from tensorlang.ops.random import verification
from tensorlang.ops.random.impls import elements_per_hash, hash_numpy, impl

THREEFRY = [
    (name, counter.split(), key.split(), answer.split())
    for name, answers in known.RANDOM123.items()
    for (counter, key), answer in zip(verification.inputs(name), answers, strict=True)
]
PI = [
    *(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
    *(0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89),
]
ONES = 0xFFFFFFFF

# name, counter, key, answer: Random123's kat_vectors
PHILOX = [
    ("philox2x32", [0, 0], [0], "ff1dae59 6cd10df2"),
    ("philox2x32", [ONES] * 2, [ONES], "2c3f628b ab4fd7ad"),
    ("philox2x32", PI[:2], PI[2:3], "dd7ce038 f62a4c12"),
    ("philox4x32-7", [0] * 4, [0] * 2, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    ("philox4x32-7", [ONES] * 4, [ONES] * 2, "5207ddc2 45165e59 4d8ee751 8c52f662"),
    ("philox4x32-7", PI[:4], PI[4:6], "4dfccaba 190a87f0 c47362ba b6b5242a"),
    ("philox4x32", [0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("philox4x32", [ONES] * 4, [ONES] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("philox4x32", PI[:4], PI[4:6], "d16cfe09 94fdcceb 5001e420 24126ea1"),
    (
        "philox4x64",
        [0] * 4,
        [0] * 2,
        "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b",
    ),
]


def numbers(words: list[str]) -> list[int]:
    return [int(word, 16) for word in words]


def hashed(name: str, counter: list[int], key: list[int]) -> list[int]:
    return [int(word[0]) for word in hash_numpy(impl(name), counter, key)]


def test_there_are_36_threefry_vectors():
    assert len(THREEFRY) == 36


@pytest.mark.parametrize(("name", "counter", "key", "answer"), THREEFRY)
def test_threefry_known_answers(name, counter, key, answer):
    assert hashed(name, numbers(counter), numbers(key)) == numbers(answer)


@pytest.mark.parametrize(("name", "counter", "key", "answer"), PHILOX)
def test_philox_known_answers(name, counter, key, answer):
    assert hashed(name, counter, key) == numbers(answer.split())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("threefry4x32", 874101813),
        ("threefry2x64", 17578122881062615727),
        ("philox4x32", 1721865298),
    ],
)
def test_random123s_engine_after_1000_outputs(name, answer):
    """Its counter counts up before each block; a block's words come last one first."""
    how = impl(name)
    block, at = divmod(1000, how.words)
    words = hashed(name, [block + 1] + [0] * (how.words - 1), [0] * how.key_words)
    assert words[how.words - 1 - at] == answer


def test_arrays_hash_as_their_elements_do():
    counters = np.arange(7, dtype=np.uint32)
    both = hash_numpy(impl("threefry2x32"), [np.zeros_like(counters), counters], [1, 2])
    for at in range(7):
        alone = hashed("threefry2x32", [0, at], [1, 2])
        assert [int(word[at]) for word in both] == alone


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("threefry2x32", "threefry2x32"),
        ("threefry2x32-20", "threefry2x32"),
        ("threefry2x32-13", "threefry2x32-13"),
        ("threefry4x64-72", "threefry4x64-72"),
        ("philox4x32-10", "philox4x32"),
        ("philox4x32-7", "philox4x32-7"),
    ],
)
def test_names_are_canonical(given, canonical):
    assert impl(given).name == canonical
    assert impl(canonical) == impl(given)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("threefry", "'threefry' is no random implementation"),
        ("threefry3x32", "use threefry or philox with 2x32"),
        ("Threefry2x32", "no random implementation"),
        ("threefry2x32-", "no random implementation"),
        ("threefry2x32 -5", "no random implementation"),
        ("threefry2x32-0", "threefry2x32 is defined for 1 to 32 rounds, not 0"),
        ("threefry2x32-33", "1 to 32 rounds, not 33"),
        ("threefry4x64-73", "1 to 72 rounds, not 73"),
        ("philox4x32-17", "1 to 16 rounds, not 17"),
    ],
)
def test_other_names_are_refused(name, says):
    with pytest.raises(ArgumentError, match=says):
        impl(name)


@pytest.mark.parametrize(
    ("name", "stream", "width", "elements"),
    [
        ("threefry2x32", "jax", 8, 1),
        ("threefry2x32", "packed", 32, 2),
        ("threefry2x32", "packed", 64, 1),
        ("threefry2x32", "packed", 8, 8),
        ("threefry4x32", "packed", 32, 4),
        ("threefry4x64", "packed", 32, 8),
        ("threefry4x64", "packed", 64, 4),
    ],
)
def test_elements_of_one_hash(name, stream, width, elements):
    assert elements_per_hash(impl(name), stream, width) == elements

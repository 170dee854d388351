"""`out=` of the operators that draw indices."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import math, random


def test_permutation_into_an_array() -> None:
    key = random.key(0)
    out = np.empty(50, np.int32)
    assert random.permutation(key.clone(), 50, out=out) is out
    assert (out == random.permutation(key.clone(), 50)).all()


def test_permutation_over_its_own_array() -> None:
    key, x = random.key(0), np.arange(24.0).reshape(4, 6)
    expected = random.permutation(key.clone(), x, axis=1)
    assert random.permutation(key.clone(), x, axis=1, out=x) is x
    assert (x == expected).all()


def test_categorical_into_a_strided_array() -> None:
    key, logits = random.key(3), np.zeros((5, 4), np.float32)
    spaced = np.full(10, -1, np.int32)
    random.categorical(key.clone(), logits, out=spaced[::2])
    assert (spaced[::2] == random.categorical(key, logits)).all()
    assert (spaced[1::2] == -1).all()


def test_categorical_into_an_array() -> None:
    key = random.key(0)
    logits = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    out = np.empty(5, np.int32)
    assert random.categorical(key.clone(), logits, out=out) is out
    assert (out == random.categorical(key.clone(), logits)).all()


def test_an_out_that_does_not_fit_uses_no_key() -> None:
    key = random.key(0)
    with pytest.raises(ShapeError, match="out has shape"):
        random.permutation(key, 50, out=np.empty(51, np.int32))
    with pytest.raises(DTypeError, match="out is float64"):
        random.permutation(key, 50, out=np.empty(50))
    assert key.states == "fresh"


def test_an_out_whose_elements_share_memory_is_refused() -> None:
    held, x = np.zeros(10, np.float32), np.ones((8, 3), np.float32)
    sliding = np.lib.stride_tricks.sliding_window_view(held, 3, writeable=True)
    repeated = np.lib.stride_tricks.as_strided(held, (8, 3), (0, 4))
    for out in (sliding, repeated):
        with pytest.raises(ArgumentError, match="elements share memory"):
            math.exp(x, out=out)
        with pytest.raises(ArgumentError, match="elements share memory"):
            math.sum(x[None], axis=0, out=out)
    assert not held.any()


def test_an_out_in_any_order_is_filled() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for out in (
        np.zeros((6, 4), np.float32).T,
        np.zeros((4, 12), np.float32)[:, ::2],
        np.zeros((4, 6), np.float32)[::-1, ::-1],
        np.zeros((8, 7), np.float32)[::2, 1:],
    ):
        assert math.negative(x, out=out) is out
        np.testing.assert_array_equal(out, -x)

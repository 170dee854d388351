"""Keys that were folded keep account of it, through pickles, batches and elements."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tensorlang.errors import KeyReuseError
from tensorlang.ops import random


def test_a_pickled_key_remembers_what_was_folded_into_it() -> None:
    base = random.key(0)
    random.fold_in(base, 5)
    back = pickle.loads(pickle.dumps(base))
    with pytest.raises(KeyReuseError, match="folds 5 into a key again"):
        random.fold_in(back, 5)
    random.fold_in(back, 6)


def test_pickled_batches_remember_their_folds_too() -> None:
    batch = random.split(random.key(0), 4)
    random.fold_in(batch[1], 7)
    random.fold_in(batch[2:], 8)
    back = pickle.loads(pickle.dumps(batch))
    for element, number in ((1, 7), (2, 8), (3, 8)):
        with pytest.raises(KeyReuseError, match=f"folds {number} into a key again"):
            random.fold_in(back[element], number)
    random.fold_in(back[0], 8)


def test_folds_of_a_batch_and_of_its_elements_are_one_account() -> None:
    batch = random.split(random.key(0), 4)
    random.fold_in(batch, 5)
    with pytest.raises(KeyReuseError, match="folds 5 into a key again"):
        random.fold_in(batch[2], 5)
    random.fold_in(batch[2], 6)
    with pytest.raises(KeyReuseError, match="folds 6 into a key again"):
        random.fold_in(batch[1:], 6)


def test_the_words_of_a_key_cannot_be_written() -> None:
    for made in (random.key(0), random.split(random.key(0), 3), random.key(0).clone()):
        with pytest.raises(ValueError, match="read-only"):
            made.words[...] = 5


def test_a_number_for_each_key_counts_for_that_key() -> None:
    batch = random.split(random.key(0), 3)
    random.fold_in(batch, np.array([5, 6, 7]))
    random.fold_in(batch, np.array([7, 5, 6]))
    with pytest.raises(KeyReuseError, match="folds 6 into a key again"):
        random.fold_in(batch, np.array([1, 6, 2]))
    random.fold_in(batch[0], 6)


def test_an_element_and_a_slice_of_one_are_one_account() -> None:
    batch = random.split(random.key(0), 4)
    random.fold_in(batch[1], 5)
    with pytest.raises(KeyReuseError, match="folds 5 into a key again"):
        random.fold_in(batch[1:2], 5)

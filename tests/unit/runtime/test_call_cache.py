"""A known call is what the careful way would make of it; others are not known."""

import numpy as np
import pytest

from tensorlang.errors import DTypeError
from tensorlang.runtime import calling
from tensorlang.runtime.call_cache import CallCache
from tensorlang.runtime.signature import BufferSpec, ScalarSpec, Signature

SIGNATURE = Signature(
    "f",
    (BufferSpec("x", "f32", "in", ("n", 4)), BufferSpec("y", "f32", "out", ("n",))),
    (ScalarSpec("a", "i32", bound=False), ScalarSpec("n", "i64", bound=True)),
)


def arrays(n=3):
    return np.ones((n, 4), np.float32), np.zeros(n, np.float32)


@pytest.fixture
def known():
    made = CallCache(SIGNATURE)
    args = (*arrays(), 5)
    assert made.call(args) is None
    made.keep(args, calling.prepare(SIGNATURE, args))
    return made


def test_the_same_again_with_other_arrays_and_scalars(known):
    args = (*arrays(), 7)
    found, careful = known.call(args), calling.prepare(SIGNATURE, args)
    assert all(a is b for a, b in zip(found.arrays, careful.arrays, strict=True))
    assert found.scalars == careful.scalars == {"a": 7, "n": 3}
    assert found.back == []


def test_what_differs_is_looked_at(known):
    x, y = arrays()
    assert known.call((*arrays(4), 5)) is None
    assert known.call((x.astype(np.float64), y, 5)) is None
    assert known.call((np.ones((3, 8), np.float32)[:, ::2], y, 5)) is None
    assert known.call((x, [0.0] * 3, 5)) is None
    assert known.call((x, y)) is None
    y.flags.writeable = False
    assert known.call((x, y, 5)) is None


def test_overlaps_are_looked_at(known):
    x, _ = arrays()
    assert known.call((x, x.reshape(-1)[9:], 5)) is None


def test_scalars_are_checked(known):
    with pytest.raises(DTypeError, match="whole number"):
        known.call((*arrays(), 0.5))


def test_what_was_copied_is_not_kept():
    made = CallCache(SIGNATURE)
    x, y = np.ones((3, 8), np.float32)[:, ::2], np.zeros(3, np.float32)
    for _ in range(2):
        assert made.call((x, y, 5)) is None
        made.keep((x, y, 5), calling.prepare(SIGNATURE, (x, y, 5)))

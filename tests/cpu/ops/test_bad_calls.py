# ruff: noqa: ARG005 - some of the calls need no key
"""Mistakes: each a typed error whose sentence says what was wrong, and no key used."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    KeyReuseError,
    OperatorError,
    ShapeError,
    TargetError,
)
from tensorlang.ops import algorithm, find, nn, operator, random

X = np.ones(4, np.float32)
WORDS = np.empty(4, np.uint32)
HUGE = 10**400
KEYS = random.split(random.key(8), 3)


def read_only():
    array = np.ones(4, np.uint32)
    array.setflags(write=False)
    return array


# the call on a fresh key, the error, and words of its message
BAD = [
    (lambda k: random.bits(0, (4,)), ArgumentError, "key is a Key, not int"),
    (lambda k: random.bits(k.words, (4,)), ArgumentError, "not ndarray; make one with"),
    (lambda k: random.bits(k, -1), ShapeError, "whole numbers from 0 on, not -1"),
    (lambda k: random.bits(k, (2, -3)), ShapeError, "from 0 on, not (2, -3)"),
    (lambda k: random.bits(k, 2.5), ShapeError, "whole numbers from 0 on, not 2.5"),
    (lambda k: random.bits(k, (2.0,)), ShapeError, "whole numbers from 0 on, not (2.0"),
    (lambda k: random.bits(k, "4"), ShapeError, "whole numbers from 0 on, not '4'"),
    (lambda k: random.bits(k, True), ShapeError, "not True"),
    (lambda k: random.bits(k, (1 << 62,)), ShapeError, "cannot be allocated"),
    (lambda k: random.bits(k, (1 << 40,) * 3), ShapeError, "cannot be allocated"),
    (lambda k: random.bits(k, (4,), "int32"), DTypeError, "draws u8, u16, u32, u64"),
    (lambda k: random.bits(k, (4,), "words"), DTypeError, "'words' is not an element"),
    (lambda k: random.bits(k, (4,), offset=-1), ArgumentError, "2^64, not -1"),
    (lambda k: random.bits(k, (4,), offset=2**64), ArgumentError, "0 <= offset < 2^64"),
    (lambda k: random.bits(k, (4,), offset=1.5), ArgumentError, "not 1.5"),
    (
        lambda k: random.bits(k, (4,), stream="fast"),
        ArgumentError,
        "'packed', not 'fast'",
    ),
    (lambda k: random.bits(k, (4,), target="tpu"), TargetError, "tpu"),
    (
        lambda k: random.bits(k, (4,), out=np.ones(5, np.uint32)),
        ShapeError,
        "out has shape (5,), the result (4,)",
    ),
    (
        lambda k: random.bits(k, (4,), out=np.ones(4, np.int32)),
        DTypeError,
        "out is int32, the result is uint32",
    ),
    (
        lambda k: random.bits(k, (4,), out=read_only()),
        ArgumentError,
        "out is read-only",
    ),
    (lambda k: random.bits(k, (4,), out=[0] * 4), ArgumentError, "out is a list"),
    (lambda k: random.bits(k, (0, 1 << 62)), ShapeError, "cannot be allocated"),
    (lambda k: random.bits(k, (4,), stream=X), ArgumentError, "'packed', not"),
    (lambda k: random.bits(k, (4,), stream=[], out=WORDS), ArgumentError, "not []"),
    (lambda k: random.bits(k, (4,), [1], out=WORDS), DTypeError, "not an element type"),
    (lambda k: random.bits(k, (4,), target=[], out=WORDS), TargetError, "no target"),
    (lambda k: random.bits(k, (4,), target={}), TargetError, "{} is no target"),
    (lambda k: random.permutation(k, 4, target=[]), TargetError, "[] is no target"),
    (lambda k: random.split(k, target=[]), TargetError, "[] is no target"),
    (lambda k: random.uniform(k, 3, minval=HUGE), ArgumentError, "minval is larger"),
    (lambda k: random.uniform(k, 3, minval=X), ArgumentError, "minval is a number"),
    (
        lambda k: random.uniform(k, 3, resolution=X),
        ArgumentError,
        "is 'usual' or 'high'",
    ),
    (
        lambda k: random.uniform(k, 3, maxval=float("inf")),
        ArgumentError,
        "f32 does not hold the range from 0.0 to inf",
    ),
    (
        lambda k: random.uniform(k, 3, minval=-3e38, maxval=3e38),
        ArgumentError,
        "f32 does not hold the range",
    ),
    (
        lambda k: random.uniform(k, 3, "float16", maxval=1e6),
        ArgumentError,
        "f16 does not hold the range",
    ),
    (lambda k: random.bernoulli(k, HUGE, 3), ArgumentError, "p is larger than all"),
    (
        lambda k: random.truncated_normal(k, HUGE, 100.0, 3),
        ArgumentError,
        "lower is larger than all floats",
    ),
    (lambda k: random.uniform(k, (4,), "int32"), DTypeError, "draws f16, bf16, f32"),
    (
        lambda k: random.uniform(k, (4,), minval=2.0, maxval=1.0),
        ArgumentError,
        "minval 2.0 is above maxval 1.0",
    ),
    (
        lambda k: random.uniform(k, (4,), minval="0"),
        ArgumentError,
        "minval is a number, not '0'",
    ),
    (
        lambda k: random.uniform(k, (4,), maxval=float("nan")),
        ArgumentError,
        "maxval is a number, not nan",
    ),
    (
        lambda k: random.uniform(k, (4,), resolution="fine"),
        ArgumentError,
        "is 'usual' or 'high', not 'fine'",
    ),
    (lambda k: random.normal(k, (4,), "uint32"), DTypeError, "random.normal draws"),
    (
        lambda k: random.truncated_normal(k, 1.0, 1.0, (4,)),
        ArgumentError,
        "lower 1.0 is not below upper 1.0",
    ),
    (lambda k: random.bernoulli(k, -0.1, (4,)), ArgumentError, "p is in [0, 1], not"),
    (lambda k: random.bernoulli(k, 1.5, (4,)), ArgumentError, "not 1.5"),
    (lambda k: random.bernoulli(k, "half", (4,)), ArgumentError, "p is a number"),
    (lambda k: random.bernoulli(k, X, (4,)), ArgumentError, "takes one probability"),
    (
        lambda k: random.randint(k, (4,), 5, 5),
        ArgumentError,
        "minval < maxval <= 2147483648, not 5 and 5",
    ),
    (
        lambda k: random.randint(k, (4,), 0, 300, "uint8"),
        ArgumentError,
        "u8 needs 0 <= minval < maxval <= 256",
    ),
    (lambda k: random.randint(k, (4,), 0.5, 3), ArgumentError, "minval is a whole"),
    (lambda k: random.randint(k, (4,), 0, 3, "float32"), DTypeError, "draws i8, i16"),
    (lambda k: random.permutation(k, -1), ArgumentError, "0 <= n < 2^31, not -1"),
    (lambda k: random.permutation(k, X, axis=1), ArgumentError, "has no axis 1"),
    (lambda k: random.permutation(k, np.array(["a"])), DTypeError, "shuffles numbers"),
    (lambda k: random.permutation(KEYS, 4), ArgumentError, "one key, not a batch"),
    (lambda k: random.categorical(k, X.astype(int)), DTypeError, "takes f32"),
    (lambda k: random.categorical(k, X, axis=2), ArgumentError, "axis 2 does not"),
    (
        lambda k: random.categorical(k, np.ones((2, 4), "f4"), shape=(3,)),
        ShapeError,
        "must end in that",
    ),
    (lambda k: random.categorical(k, np.ones((2, 0), "f4")), ShapeError, "be a class"),
    (lambda k: random.permutation(k, 4, axis=1), ArgumentError, "axis 1 does not"),
    *(
        (
            lambda k, a=axis, f=draw: f(k, X, axis=a),
            ArgumentError,
            "axis is a whole num",
        )
        for axis in ("a", 1j, b"a", [1], np.array(0.5), True, None)
        for draw in (random.permutation, random.categorical)
    ),
    (lambda k: random.split(k, (0, 1 << 62)), ShapeError, "cannot be allocated"),
    (lambda k: random.split(7), ArgumentError, "key is a Key, not int"),
    (lambda k: random.split(k, -2), ShapeError, "from 0 on, not -2"),
    (lambda k: random.split(k, 1 << 32), ShapeError, "fewer than 2^32 keys"),
    (lambda k: random.fold_in(k, -1), ArgumentError, "0 <= data < 2^64, not -1"),
    (lambda k: random.fold_in(k, 2**64), ArgumentError, "0 <= data < 2^64"),
    (lambda k: random.fold_in(k, 1.0), ArgumentError, "whole numbers"),
    (lambda k: random.fold_in(k, "a"), ArgumentError, "whole numbers"),
    (
        lambda k: random.fold_in(KEYS.clone(), np.arange(4)),
        ShapeError,
        "(4,) for keys of shape (3,)",
    ),
    (
        lambda k: random.hash(np.zeros(3, "u4"), np.zeros((1, 2), "u4")),
        ArgumentError,
        "key of threefry2x32 is u32[n, 2], not u32 of shape (3,)",
    ),
    (
        lambda k: random.hash(np.zeros((3, 2), "u4"), np.zeros((1, 2), "u4")),
        ShapeError,
        "3 keys for 1 counters",
    ),
    (lambda k: nn.dropout(X, -0.1, key=k), ArgumentError, "0 <= rate < 1, not -0.1"),
    (lambda k: nn.dropout(X, 1, key=k), ArgumentError, "0 <= rate < 1, not 1;"),
    (lambda k: nn.dropout(X, 1.5, key=k), ArgumentError, "share that is dropped"),
    (lambda k: nn.dropout(X, float("nan"), key=k), ArgumentError, "not nan"),
    (lambda k: nn.dropout(X, True, key=k), ArgumentError, "rate is a number, not True"),
    (lambda k: nn.dropout(X, "half", key=k), ArgumentError, "rate is a number"),
    (
        lambda k: nn.dropout(X, 0.5, key=3),
        ArgumentError,
        "key is a Key, not int",
    ),
    (lambda k: nn.dropout([1.0], 0.5, key=k), ArgumentError, "not an array"),
    (lambda k: nn.dropout(X.astype("i4"), 0.5, key=k), DTypeError, "not i32; cast it"),
    (lambda k: nn.dropout(X.astype("c8"), 0.5, key=k), DTypeError, "complex64"),
    (lambda k: nn.dropout(X, 0.5, key=KEYS), ShapeError, "do not lead x of shape (4,)"),
    (
        lambda k: nn.dropout(X, 0.5, key=k, out=np.ones(4)),
        DTypeError,
        "out is float64, the result is float32",
    ),
    (lambda k: nn.dropout_train(X, KEYS, 0.5), ArgumentError, "one Key as its state"),
    (
        lambda k: nn.dropout_grad(X, 0.5, key=random.StatefulKey(k.clone())),
        ArgumentError,
        "the Key that was used before, not StatefulKey",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "says"), BAD, ids=[str(n) for n in range(len(BAD))]
)
def test_a_bad_call_says_what_is_wrong_and_uses_no_key(call, error, says):
    key = random.key(1)
    with pytest.raises(error, match=re.escape(says)):
        call(key)
    assert key.states == "fresh"
    assert set(KEYS.states.tolist()) == {"fresh"}


USES = {
    "bits": lambda k: random.bits(k, (3,)),
    "uniform": lambda k: random.uniform(k, (3,)),
    "normal": lambda k: random.normal(k, (3,)),
    "truncated_normal": lambda k: random.truncated_normal(k, -1.0, 1.0, (3,)),
    "bernoulli": lambda k: random.bernoulli(k, 0.5, (3,)),
    "randint": lambda k: random.randint(k, (3,), 0, 5),
    "permutation": lambda k: random.permutation(k, 5),
    "shuffle": lambda k: random.permutation(k, X),
    "exponential": lambda k: random.exponential(k, (3,)),
    "gumbel": lambda k: random.gumbel(k, (3,)),
    "categorical": lambda k: random.categorical(k, X),
    "split": random.split,
    "dropout": lambda k: nn.dropout(X, 0.5, key=k),
    "dropout_train": lambda k: nn.dropout_train(X, k, 0.5),
}


@pytest.mark.parametrize("second", [*USES.values()], ids=[*USES])
def test_a_used_key_is_refused_by_everything(second):
    key = random.key(1)
    random.bits(key, (3,))
    with pytest.raises(KeyReuseError) as caught:
        second(key)
    places = re.findall(r"test_bad_calls\.py:(\d+)", str(caught.value))
    assert len(places) == 2
    assert len(set(places)) == 2


@pytest.mark.parametrize("use", [*USES.values()], ids=[*USES])
def test_everything_uses_a_key_up(use):
    key = random.key(1)
    use(key)
    assert key.states == "consumed"


@pytest.mark.parametrize("use", [*USES.values()], ids=[*USES])
def test_a_folded_key_is_refused_by_everything(use):
    key = random.key(1)
    random.fold_in(key, 3)
    with pytest.raises(KeyReuseError, match="key was folded at"):
        use(key)
    random.fold_in(key, 4)


# ---------------------------------------------------------------------- operators


def test_an_unknown_operator_names_its_neighbours():
    with pytest.raises(OperatorError, match=r"did you mean .*random\.bits"):
        find("random.bit")


def test_a_module_that_is_not_there():
    with pytest.raises(OperatorError, match="'no_such_module:op' cannot be imported"):
        find("no_such_module:op")


@pytest.mark.parametrize("name", ["a b:c", "os:path; x", ":x", "os:"])
def test_what_is_no_place_of_an_operator(name):
    with pytest.raises(OperatorError, match="is not of the form module:name"):
        find(name)


def test_something_else_than_an_operator():
    with pytest.raises(OperatorError, match="'math:pi' is a float, not an operator"):
        find("math:pi")


@pytest.mark.parametrize("name", ["", "my op", "1.x", "a..b", "x*/"])
def test_a_name_that_is_none(name):
    with pytest.raises(OperatorError, match="is not a name such as"):
        operator(name)


def test_a_name_that_is_taken():
    with pytest.raises(OperatorError, match=r"two operators are called 'random\.bits'"):
        operator("random.bits")(lambda x: x)


def test_an_algorithm_that_is_there_already():
    with pytest.raises(OperatorError, match="has an algorithm 'direct' already"):
        algorithm(find("random.bits"), "direct")


def test_an_algorithm_that_is_not_there():
    op = find("random.bits")
    with pytest.raises(OperatorError, match="has no algorithm 'magic'; it has direct"):
        op.function(op.default, "magic")


@pytest.mark.parametrize("of", [65, 70])
def test_more_dimensions_than_an_array_has(of):
    with pytest.raises(ShapeError, match=f"{of} dimensions has more than the 64"):
        nn.reshape(np.ones(1, np.float32), (1,) * of)


@pytest.mark.parametrize("slope", [1e300, -3.5e38, np.float64(1e39)])
def test_a_scalar_that_rounds_to_an_infinity(slope):
    x = np.array([-1.0, 0.0, 2.0], np.float32)
    with pytest.raises(DTypeError, match=r"an infinity in f32; give math\.inf"):
        nn.leaky_relu(x, slope)
    wide = nn.leaky_relu(x.astype(np.float64), slope)
    np.testing.assert_array_equal(wide, [-slope, 0, 2])
    np.testing.assert_array_equal(nn.leaky_relu(x[::2], math.inf), [-math.inf, 2])
    np.testing.assert_array_equal(nn.leaky_relu(x, 3e38), np.float32([-3e38, 0, 2]))

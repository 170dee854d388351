"""A key is a linear resource: a second use is an error when a graph is built (A)."""

import re

import pytest

from tensorlang import graph
from tensorlang.errors import KeyReuseError
from tensorlang.graph import Graph, TensorSpec
from tensorlang.ops import math, nn, random

X = TensorSpec(("batch", 4))


def _program(body):
    def whole(x, key):
        return body(x, key)

    return graph.trace(whole, (X, graph.KeySpec()), names=("x", "key"))


def test_a_key_used_twice_names_both_uses() -> None:
    with pytest.raises(KeyReuseError) as found:
        _program(
            lambda x, key: (nn.dropout(x, 0.5, key=key), nn.dropout(x, 0.5, key=key))
        )
    places = re.findall(r"test_keys.py:(\d+)", str(found.value))
    assert len(places) == 2
    assert "'key' is drawn from at" in str(found.value)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (lambda _, k: random.split(k), "is split at"),
        (lambda _, k: random.normal(k, (3,)), "is drawn from at"),
        (lambda _, k: random.fold_in(k, 1), "is folded at"),
        (lambda x, k: nn.dropout_train(x, k, 0.5)[0], "is drawn from at"),
        (lambda x, k: nn.dense(x, graph.input((3, 4)), dropout=0.5, key=k), "drawn"),
    ],
)
def test_any_second_use_is_one(second, says) -> None:
    with pytest.raises(KeyReuseError, match=says):
        _program(lambda x, k: (nn.dropout(x, 0.5, key=k), second(x, k)))


def test_the_elements_of_a_batch_are_keys_of_their_own() -> None:
    def fine(x, key):
        left, right = random.split(key)
        return nn.dropout(nn.dropout(x, 0.5, key=left), 0.5, key=right)

    def twice(x, key):
        keys = random.split(key)
        return nn.dropout(nn.dropout(x, 0.5, key=keys[0]), 0.5, key=keys[0])

    def whole(x, key):
        keys = random.split(key)
        return nn.dropout(x, 0.5, key=keys[0]), random.normal(keys, (3,))

    assert len(_program(fine).nodes) == 5
    for wrong in (twice, whole):
        with pytest.raises(KeyReuseError):
            _program(wrong)


def test_folding_again_needs_another_number() -> None:
    def folded(first, second):
        return lambda _, k: tuple(
            random.normal(random.fold_in(k, n), (3,)) for n in (first, second)
        )

    assert _program(folded(1, 2))
    with pytest.raises(KeyReuseError, match="folded"):
        _program(folded(1, 1))


def test_one_use_on_each_branch_is_one_use() -> None:
    def branches(x, key):
        return graph.cond(
            math.sum(x),
            lambda: nn.dropout(x, 0.5, key=key),
            lambda: nn.dropout(x, 0.1, key=key),
        )

    assert _program(branches)
    with pytest.raises(KeyReuseError):
        _program(lambda x, k: (branches(x, k), random.normal(k, (3,))))


def test_a_loop_does_not_use_a_key_from_outside() -> None:
    with pytest.raises(KeyReuseError, match="again in each iteration; carry it"):
        _program(lambda x, k: graph.loop(3, lambda _, c: nn.dropout(c, 0.5, key=k), x))


def test_a_loop_may_carry_a_key() -> None:
    def body(_, x, key):
        after, now = random.split(key)
        return nn.dropout(x, 0.5, key=now), after

    assert _program(lambda x, k: graph.loop(3, body, x, k))


def test_a_function_that_is_given_a_key_uses_it() -> None:
    @graph.function
    def dropped(x, key):
        return nn.dropout(x, 0.5, key=key)

    with pytest.raises(KeyReuseError, match="given to a function"):
        _program(lambda x, k: (dropped(x, k), dropped(x, k)))


def test_a_gradient_replays_a_key() -> None:
    assert _program(
        lambda x, k: (nn.dropout(x, 0.5, key=k), nn.dropout_grad(x, 0.5, key=k))
    )


def test_a_concrete_key_stands_in_one_program() -> None:
    held = random.key(3)
    x = graph.input(X)
    assert Graph([x], nn.dropout(x, 0.5, key=held))
    with pytest.raises(KeyReuseError):
        nn.dropout(x, 0.5, key=held)


def test_a_vgg_head_with_keys_passed_by_hand() -> None:
    def head(x, key):
        left, right = random.split(key)
        h = nn.dense(nn.batch_flatten(x), _w(4096, 512 * 7 * 7), activation="relu")
        h = nn.dropout(h, 0.5, key=left)
        h = nn.dense(h, _w(4096, 4096), activation="relu")
        h = nn.dropout(h, 0.5, key=right)
        return nn.dense(h, _w(10, 4096))

    def _w(*shape):
        return graph.Weight(TensorSpec(shape), str(shape))

    made = graph.trace(head, (TensorSpec(("batch", 512, 7, 7)), graph.KeySpec()))
    assert str(made.outputs[0].spec) == "f32[batch, 10]"

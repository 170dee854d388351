"""Recurrent networks along sequences: what their steps give, one by one."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.recurrent import steps
from tensorlang.ops import find, nn, pin

RNG = np.random.default_rng(7)
GATES = {"nn.lstm": 4, "nn.gru": 3, "nn.rnn": 1}
OPTIONS = {
    "nn.lstm": [{}, {"order": "iofg"}],
    "nn.gru": [{}, {"order": "zrn", "reset_after": False}],
    "nn.rnn": [{"activation": "relu"}, {"activation": "sigmoid"}],
}
DEFAULTS = {
    "nn.lstm": {"order": "ifgo", "peepholes": None},
    "nn.gru": {"order": "rzn", "reset_after": True, "b": None},
    "nn.rnn": {},
}


def given(id, length, batch, size, dtype):
    """Arrays of a call by name."""
    gates = GATES[id]
    shapes = {"gates": (length, batch, gates * size), "r": (gates * size, size)}
    shapes |= dict.fromkeys(("h", "c")[: 1 + (id == "nn.lstm")], (batch, size))
    return {
        name: RNG.uniform(-1, 1, shape).astype(dtype) / dtype(max(size, 1) ** 0.5)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize(
    ("dtype", "epsilon", "sizes"),
    [("f8", 1e-13, (3, 13, 70)), ("f4", 1e-5, (4, 3, 16)), ("f2", 1e-2, (2, 8, 5))],
)
@pytest.mark.parametrize("id", GATES)
def test_it_is_its_steps(id, dtype, epsilon, sizes) -> None:
    arrays = given(id, *sizes, np.dtype(dtype).type)
    length, batch, _ = sizes
    for n, own in enumerate(OPTIONS[id]):
        some = RNG.integers(0, length + 1, batch) if n else None
        options = {"lengths": some, "reverse": bool(n), **own}
        wide = {name: array.astype("f8") for name, array in arrays.items()}
        wanted = steps(id, DEFAULTS[id] | wide | options)
        for mine, right in zip(find(id)(**arrays, **options), wanted, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine, right, rtol=0, atol=epsilon)


@pytest.mark.parametrize("rows", [2, 13])
@pytest.mark.parametrize("id", GATES)
def test_a_state_of_no_units(id, rows) -> None:
    with pin(f"{id}:gate_rows=5"):
        first, *last = find(id)(**given(id, 3, rows, 0, np.float32))
    assert first.shape == (3, rows, 0)
    assert {each.shape for each in last} == {(rows, 0)}


@pytest.mark.parametrize("id", GATES)
def test_tiles_of_one_row(id) -> None:
    arrays = given(id, 2, 11, 5, np.float32)
    wanted = find(id)(**arrays)
    with pin(f"{id}:gate_rows=1"):
        found = find(id)(**arrays)
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-5)


def gradients_of(id, arrays, options, seeds):
    """The gradients of all arrays but lengths, in f64."""

    def body(*inputs):
        named = dict(zip(arrays, inputs[: len(arrays)], strict=True))
        made = find(id)(**named, **options)[: len(seeds)]
        wrt = [value for name, value in named.items() if name != "lengths"]
        return tuple(graph.gradients(made, wrt, inputs[len(arrays) :]))

    everything = [*arrays.values(), *seeds]
    specs = [graph.TensorSpec(a.shape, a.dtype) for a in everything]
    return graph.trace(body, specs)(*everything)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("id", ["nn.lstm", "nn.gru"])
def test_gradients_of_what_is_saved_are_those_of_the_steps(id, reverse, whole) -> None:
    length, batch, size = 4, 7, 9
    arrays = given(id, length, batch, size, np.float64)
    options = {"reverse": reverse}
    if reverse:
        options["order"] = {"nn.lstm": "iofg", "nn.gru": "zrn"}[id]
    if id == "nn.gru":
        arrays["b"] = RNG.normal(size=3 * size)
    elif not whole:
        arrays["peepholes"] = RNG.normal(size=3 * size)
    if not whole:
        arrays["lengths"] = RNG.integers(0, length + 1, batch)
    shapes = [(length, batch, size), *[(batch, size)] * (1 + (id == "nn.lstm"))]
    seeds = [RNG.normal(size=shape) for shape in shapes]
    wanted = gradients_of(id, arrays, options, seeds)
    found = gradients_of(id, arrays, options | {"saves": True}, seeds)
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=0, atol=1e-12)


def test_what_does_not_fit() -> None:
    arrays = given("nn.gru", 2, 3, 4, np.float32)
    with pytest.raises(ShapeError, match=r"\[length, batch, 4 \* size\]"):
        nn.lstm(**arrays, c=arrays["h"])
    with pytest.raises(ShapeError, match="lengths have shape"):
        nn.gru(**arrays, lengths=np.array([1, 2]))
    with pytest.raises(ShapeError, match="b has shape"):
        nn.gru(**arrays, b=arrays["h"])
    with pytest.raises(ArgumentError, match="is saved for reset_after=True"):
        nn.gru(**arrays, reset_after=False, saves=True)
    with pytest.raises(ArgumentError, match="reset_after=True"):
        nn.gru(**arrays, b=np.zeros(12, "f4"), reset_after=False)


def test_what_does_not_fit_of_gradients() -> None:
    arrays = given("nn.lstm", 2, 3, 4, np.float32)
    *_, states, cells, gates = nn.lstm(**arrays, saves=True)
    right = {"r": arrays["r"], "states": states, "cells": cells, "gates": gates}
    for wrong in (
        {"gates": gates[:, :, :-1]},
        {"cells": cells[1:]},
        {"dy": states},
        {"dh": states[0, :1]},
        {"peepholes": states[0, 0]},
        {"r": arrays["r"][1:]},
    ):
        with pytest.raises(ShapeError):
            nn.lstm_gates_grad(**right | wrong)

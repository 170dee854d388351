"""Winograd's convolutions against float64."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import erf

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import Const, compute, f32, function, run, show
from tensorlang.ops import nn
from tensorlang.ops.kernels.building import schedule
from tensorlang.ops.nn import convolution_problem, winograd
from tensorlang.ops.nn.winograd_matrices import F2, TRANSFORMS
from tensorlang.ops.nn.winograd_products import product
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs

FREE = 1e-3
# m, images, outputs, padding, activation (with a bias)
GRID = [
    (2, (2, 16, 8, 8), 32, 1, None),  # whole tiles and vectors
    (2, (2, 17, 6, 5), 4, (0, 2, 3, 1), "gelu"),  # padding of its own on each side
    (4, (3, 5, 9, 14), 7, "same", "relu"),  # ragged in all of them
    (4, (1, 20, 13, 61), 40, 0, None),  # blocks of a row of tiles
    (4, (1, 1, 1, 1), 33, 2, "tanh"),  # a pixel
]


def images(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def workload(x, w, padding=1, *others, **given):
    shapes = (x.shape, w.shape, *[b.shape for b in others])
    given = {"padding": padding, "tolerance": FREE} | given
    return nn.conv2d.workload(*shapes, **given)


@cache
def kernel(of, algorithm, bits=0):
    target = targets.get("llvm")
    made = replace(target, vector_bits=bits, vector_registers=16) if bits else target
    return build(schedule(nn.conv2d, of, made, algorithm, Knobs()), target)


def exact(x, w, padding=1):
    """The sums in float64."""
    sides = convolution_problem.of(
        nn.conv2d.workload(x.shape, w.shape, padding=padding)
    ).padding
    before, behind = (sides[0], sides[2]), (sides[1], sides[3])
    x = np.pad(
        x.astype(np.float64), ((0, 0), (0, 0), *zip(before, behind, strict=True))
    )
    seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.einsum("ncijyx,ocyx->noij", seen, w.astype(np.float64))


def error(got, wanted):
    """As a tolerance is meant: relative to a result or the mean one."""
    sizes = np.maximum(np.abs(wanted), np.abs(wanted).mean())
    return (np.abs(got - wanted) / sizes).max()


ACTIVATED = {
    None: lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "tanh": np.tanh,
    "gelu": lambda y: y * 0.5 * (1 + np.vectorize(erf, otypes=[float])(y / 2**0.5)),
}


@pytest.mark.parametrize("m", TRANSFORMS)
def test_the_matrices_make_a_correlation(m):
    t = TRANSFORMS[m]
    x, w = np.random.default_rng(m).standard_normal((2, t.points))
    made = np.array(t.result) @ (np.array(t.weight) @ w[:3] * (np.array(t.image) @ x))
    np.testing.assert_allclose(made, np.correlate(x, w[:3]), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("m", TRANSFORMS)
@pytest.mark.parametrize("name", ["image", "weight", "result"])
def test_shared_parts_make_the_same_product(m, name):
    matrix = getattr(TRANSFORMS[m], name)
    values = images(len(matrix[0]))
    given = [Const(float(value), f32) for value in values]
    made = compute((1,), lambda _: tuple(product(matrix, given)), "y")
    outputs = [np.zeros(1, np.float32) for _ in matrix]
    run(function("product", [], list(made)), *outputs)
    wanted = np.array(matrix) @ values
    np.testing.assert_allclose(np.concatenate(outputs), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", GRID, ids=str)
def test_results_are_within_the_tolerance(case):
    m, shape, outputs, padding, activation = case
    x, w, b = images(*shape), images(outputs, shape[1], 3, 3, seed=1), images(outputs)
    others = (b,) if activation else ()
    of = workload(x, w, padding, *others, activation=activation)
    made = kernel(of, winograd.NAMES[m])
    for batch in (shape[0], 1, 3, 0):
        x = images(batch, *shape[1:], seed=batch)
        sums = exact(x, w, padding)
        y = np.full(sums.shape, np.nan, np.float32)
        made.launch(x, w, *others, y)
        if activation:
            sums += b[:, None, None]
        wanted = ACTIVATED[activation](sums)
        assert batch == 0 or error(y, wanted) < TRANSFORMS[m].tolerance / 4


def test_machines_of_shorter_vectors_have_tiles_of_their_own():
    x, w = images(1, 16, 7, 9), images(32, 16, 3, 3, seed=1)
    y = np.empty((1, 32, 7, 9), np.float32)
    made = kernel(workload(x, w), "winograd23", bits=256)
    made.launch(x, w, y)
    assert error(y, exact(x, w)) < F2.tolerance / 4
    assert "vectorized(16)" not in show(made.ir)


@pytest.mark.parametrize("m", TRANSFORMS)
def test_no_error_is_above_the_bound(m):
    """For images and weights that make terms cancel, too."""
    channels, t = 48, TRANSFORMS[m]
    signs = np.sign(images(1, channels, 12, 12))
    alike = np.full((1, channels, 12, 12), 1 / 3, np.float32)
    weights = [images(16, channels, 3, 3, seed=2), np.sign(images(16, channels, 3, 3))]
    made = kernel(workload(signs, weights[0]), winograd.NAMES[m])
    for x in (signs, alike, 1e30 * signs, 1e-30 * images(1, channels, 12, 12)):
        for w in weights:
            y = np.empty((1, 16, 12, 12), np.float32)
            made.launch(x, w, y)
            most = np.abs(x).max() * np.abs(w).max().astype(np.float64)
            allowed = t.bound(channels) * most * 9 * channels
            assert np.abs(y - exact(x, w)).max() < allowed


def test_what_is_not_finite_stays_in_its_tiles():
    x, w = images(1, 48, 12, 12), images(16, 48, 3, 3, seed=1)
    x[0, 3, 1, 1] = np.nan
    y = np.empty((1, 16, 12, 12), np.float32)
    kernel(workload(x, w), "winograd43").launch(x, w, y)
    assert np.isnan(y[0, :, 0:3, 0:3]).all()
    assert np.isfinite(y[0, :, 4:]).all()
    assert np.isfinite(y[0, :, :, 4:]).all()


def test_the_schedule_touches_nothing_but_its_own():
    """The interpreter checks bounds, races, and reads of what nothing wrote."""
    x, w = images(1, 3, 5, 6), images(3, 3, 3, 3, seed=1)
    of = workload(x, w)
    scheduled = schedule(nn.conv2d, of, targets.get("llvm"), "winograd23", Knobs())
    y = np.zeros((1, 3, 5, 6), np.float32)
    run(scheduled.function, x, w, y)
    assert error(y, exact(x, w)) < F2.tolerance / 4

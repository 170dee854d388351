"""Adam in place: near float64, and nothing outside of its arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ir import show
from tensorlang.runtime import build

SCALARS = {"rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "scale": 0.5, "eps": 1e-8}


def arrays(n):
    rng = np.random.default_rng(n)
    grad, param, m = (rng.standard_normal(n, dtype=np.float32) for _ in range(3))
    return grad, param, m, rng.random(n, dtype=np.float32)


def reference(grad, param, m, v):
    grad, param, m, v = (a.astype(np.float64) for a in (grad, param, m, v))
    m = 0.9 * m + 0.1 * grad
    v = 0.999 * v + 0.001 * grad**2
    return param - 1e-3 * m / (np.sqrt(v / 0.5) + 1e-8), m, v


@pytest.mark.parametrize("n", [0, 1, 15, 64, 65, 300])
def test_adam_of_any_size(load, results, n):
    example = load("adam")
    given = arrays(n)
    func = example.streaming(example.adam(), chunk=64).function
    for found in results(func, *given, **SCALARS):
        for now, expected in zip(found, reference(*given), strict=True):
            np.testing.assert_allclose(now, expected, rtol=3e-6, atol=1e-6)


def test_every_way_of_adam_gives_the_same_bits(load, results):
    """Every operation is strict, so there is nothing to differ by."""
    example = load("adam")
    plain, streamed = example.adam(), example.streaming(example.adam(), chunk=64)
    found = results(plain, *arrays(200), **SCALARS)
    found += results(streamed.function, *arrays(200), **SCALARS)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_adam_refuses_what_it_cannot_update(load):
    kernel = build(load("adam").adam(), store=False)
    grad, param, m, v = arrays(8)
    m.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(grad, param, m, v, *SCALARS.values())


def test_scheduled_adam_text(load, golden):
    example = load("adam")
    golden(show(example.streaming(example.adam()).function) + "\n")

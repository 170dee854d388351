"""Adam in place: one fused pass over parameters and both moments.

    python examples/adam.py

An unfused step reads and writes whole arrays many times and is memory bound. Here each
element of the parameter and its moments is read and written once, in place: an `inout`
parameter may be updated if each element is read before it is written at the same index,
which is checked.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015.
"""

from __future__ import annotations

import numpy as np

from tensorlang import build
from tensorlang.ir import (
    Expr,
    Function,
    compute,
    function,
    intrinsic,
    named,
    placeholder,
    scalar,
    size,
)
from tensorlang.scheduling import Schedule


def adam() -> Function:
    """param, m and v [n] updated in place from grad [n], all f32.

    `rate` is the learning rate over 1 - beta1**step, `scale` is 1 - beta2**step.
    """
    n = size("n")
    grad = placeholder((n,), "f32", "grad")
    param, m, v = (placeholder((n,), "f32", name) for name in ("param", "m", "v"))
    rate, beta1, beta2, scale, eps = (
        scalar(name) for name in ("rate", "beta1", "beta2", "scale", "eps")
    )

    def update(i: Expr) -> tuple[Expr, Expr, Expr]:
        g = grad[i]
        new_m = named("new_m", beta1 * m[i] + (1.0 - beta1) * g)
        new_v = named("new_v", beta2 * v[i] + (1.0 - beta2) * (g * g))
        step = rate * new_m / (intrinsic("sqrt", new_v / scale) + eps)
        return param[i] - step, new_m, new_v

    new = compute((n,), update, ("next_param", "next_m", "next_v"))
    pairs = tuple(zip((param, m, v), new, strict=True))
    scalars = (rate, beta1, beta2, scale, eps)
    return function("adam", [grad], [], inplace=pairs, scalars=scalars)


def streaming(func: Function, chunk: int = 4096, lanes: int = 16) -> Schedule:
    """Parallel chunks of vectors; only the tail, split off, is masked."""
    s = Schedule(func)
    whole, rest = s.partition("i", f"n // {chunk} * {chunk}")
    outer, _, lane = s.split(whole, [None, chunk // lanes, lanes])
    s.parallel(outer)
    s.vectorize(lane)
    _, lane = s.split(rest, [None, lanes])
    s.vectorize(lane)
    return s


def main() -> None:
    """One step on 1,000,003 parameters, compared with float64."""
    kernel = build(streaming(adam()).function)
    rng = np.random.default_rng(0)
    n = 1_000_003
    grad, param, m = (rng.standard_normal(n, dtype=np.float32) for _ in range(3))
    v = rng.random(n, dtype=np.float32)
    expected = param - 1e-3 * (0.9 * m + 0.1 * grad) / (
        np.sqrt((0.999 * v + 0.001 * grad.astype(np.float64) ** 2) / 0.5) + 1e-8
    )
    kernel(grad, param, m, v, 1e-3, 0.9, 0.999, 0.5, 1e-8)
    print(f"largest error {np.abs(param - expected).max():.1e}")


if __name__ == "__main__":
    main()

"""Peers for random numbers and dropout: JAX, PyTorch, NumPy, tinygrad, Numba.

Each function returns a complete call, or raises ImportError if its package is missing.
"into" writes into an existing array, "fresh" allocates its result.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorlang import lazy

with lazy.modules(__name__):  # optional
    import jax
    import numba
    import tinygrad
    import torch


Call = Callable[[], object]


def jax_random(work: str, n: int) -> Call:
    """A jitted `jax.random` function on key(0); a new result, ready on return."""
    key = jax.random.key(0)
    body: dict[str, Callable[[jax.Array], jax.Array]] = {
        "bits32": lambda k: jax.random.bits(k, (n,), "uint32"),
        "uniform": lambda k: jax.random.uniform(k, (n,)),
        "normal": lambda k: jax.random.normal(k, (n,)),
        "split": lambda k: jax.random.key_data(jax.random.split(k, n)),
        "bernoulli": lambda k: jax.random.bernoulli(k, 0.5, (n,)),
        "randint": lambda k: jax.random.randint(k, (n,), 0, 10),
        "permutation": lambda k: jax.random.permutation(k, n),
        "exponential": lambda k: jax.random.exponential(k, (n,)),
        "gumbel": lambda k: jax.random.gumbel(k, (n,)),
        "truncated_normal": lambda k: jax.random.truncated_normal(k, -2, 2, (n,)),
    }
    jitted = jax.jit(body[work])
    return lambda: jitted(key).block_until_ready()


def jax_dropout(x: np.ndarray, rate: float) -> Call:
    """Dropout as in JAX libraries: bernoulli, then where."""

    def dropout(key: jax.Array, x: jax.Array) -> jax.Array:
        keep = jax.random.bernoulli(key, 1 - rate, x.shape)
        return jax.numpy.where(keep, x / (1 - rate), 0)

    key, device_x, jitted = jax.random.key(0), jax.numpy.asarray(x), jax.jit(dropout)
    return lambda: jitted(key, device_x).block_until_ready()


def torch_random(work: str, n: int, threads: int) -> Call:
    """PyTorch's generator (Mersenne Twister) into an existing tensor."""
    torch.set_num_threads(threads)
    if work == "bits32":
        bits = torch.empty(n, dtype=torch.int32)
        draw: Call = bits.random_
        return draw
    out = torch.empty(n)
    fill: Call = {"uniform": out.uniform_, "normal": out.normal_}[work]
    return fill


def torch_dropout(x: np.ndarray, rate: float, threads: int) -> Call:
    """`torch.nn.functional.dropout` in training mode; a new result."""
    torch.set_num_threads(threads)
    tensor = torch.from_numpy(x)
    return lambda: torch.nn.functional.dropout(tensor, rate, training=True)


def numpy_random(work: str, n: int) -> Call:
    """NumPy's fastest bit generator for this (SFC64), into an existing array."""
    generator = np.random.Generator(np.random.SFC64(0))
    if work == "bits32":
        return lambda: generator.integers(0, 2**32, n, np.uint32)
    out = np.empty(n, np.float32)
    methods: dict[str, Callable[..., np.ndarray]] = {
        "uniform": generator.random,
        "normal": generator.standard_normal,
    }
    method = methods[work]
    return lambda: method(dtype=np.float32, out=out)


def tinygrad_uniform(n: int) -> Call:
    """Threefry in tinygrad: both words of each hash, jitted, on one core.

    tinygrad compiles with clang: the newest one on the PATH is used.
    """
    os.environ.setdefault("DEV", "CPU")
    compilers = (f"clang-{version}" for version in range(22, 14, -1))
    os.environ.setdefault("CC", next(filter(shutil.which, compilers), "clang"))
    rand = tinygrad.TinyJit(lambda: tinygrad.Tensor.rand(n).realize())

    def call() -> object:
        out = rand()
        tinygrad.Device[tinygrad.Device.DEFAULT].synchronize()
        return out

    return call


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _numba_hash() -> Any:
    """Threefry2x32-20, unrolled and inlined by Numba."""
    lines = ["def threefry(k0, k1, x0, x1):"]
    lines += ["    k2 = np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA))"]
    lines += ["    x0 = np.uint32(x0 + k0)", "    x1 = np.uint32(x1 + k1)"]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            lines += [
                "    x0 = np.uint32(x0 + x1)",
                f"    left, right = np.uint32({rotation}), np.uint32({32 - rotation})",
                "    x1 = np.uint32((x1 << left) | (x1 >> right))",
                "    x1 = np.uint32(x1 ^ x0)",
            ]
        first, second = ("k1", "k2", "k0")[group % 3], ("k2", "k0", "k1")[group % 3]
        lines += [
            f"    x0 = np.uint32(x0 + {first})",
            f"    x1 = np.uint32(x1 + np.uint32({second} + np.uint32({group + 1})))",
        ]
    lines += ["    return x0, x1"]
    scope: dict[str, object] = {"np": np}
    exec("\n".join(lines), scope)  # noqa: S102 - our own text, twenty unrolled rounds
    return numba.njit(inline="always")(scope["threefry"])


def _parallel(function: Callable[..., None]) -> Any:
    """A Numba function with `prange` parallelised."""
    return numba.njit(parallel=True)(function)


def numba_random(work: str, n: int, threads: int) -> Call:
    """Our stream, hand-written in Numba with prange, into an existing array."""
    numba.set_num_threads(threads)
    threefry = _numba_hash()
    u32, resolution = np.uint32, np.float32(2**-23)

    @_parallel
    def bits32(out: np.ndarray, k0: np.uint32, k1: np.uint32) -> None:
        for i in numba.prange(out.shape[0]):
            a, b = threefry(k0, k1, u32(0), u32(i))
            out[i] = a ^ b

    @_parallel
    def uniform(out: np.ndarray, k0: np.uint32, k1: np.uint32) -> None:
        for i in numba.prange(out.shape[0]):
            a, b = threefry(k0, k1, u32(0), u32(i))
            out[i] = np.float32((a ^ b) >> u32(9)) * resolution

    @_parallel
    def split(out: np.ndarray, k0: np.uint32, k1: np.uint32) -> None:
        for i in numba.prange(out.shape[0]):
            a, b = threefry(k0, k1, u32(0), u32(i))
            out[i, 0] = a
            out[i, 1] = b

    kernel = {"bits32": bits32, "uniform": uniform, "split": split}[work]
    shape = (n, 2) if work == "split" else (n,)
    out = np.empty(shape, np.float32 if work == "uniform" else np.uint32)
    return lambda: kernel(out, u32(0), u32(0))


def numba_dropout(x: np.ndarray, rate: float, threads: int) -> Call:
    """A hand-written fused loop: hash, compare, scale, store."""
    numba.set_num_threads(threads)
    threefry = _numba_hash()
    u32 = np.uint32
    threshold = u32(round((1 - rate) * 2**23))
    scale = np.float32(1 / (1 - rate))

    @_parallel
    def dropout(x: np.ndarray, out: np.ndarray, k0: np.uint32, k1: np.uint32) -> None:
        for i in numba.prange(out.shape[0]):
            a, b = threefry(k0, k1, u32(0), u32(i))
            keep = ((a ^ b) >> u32(9)) < threshold
            out[i] = x[i] * scale if keep else np.float32(0)

    out = np.empty_like(x)
    return lambda: dropout(x, out, u32(0), u32(0))


def torch_adam(n: int, threads: int) -> Call:
    """A step of `torch.optim.Adam(fused=True)` on one tensor of n elements."""
    torch.set_num_threads(threads)
    param = torch.nn.Parameter(torch.randn(n))
    param.grad = torch.randn(n)
    step: Call = torch.optim.Adam([param], lr=1e-3, fused=True).step
    return step

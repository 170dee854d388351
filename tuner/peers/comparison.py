"""Peers of an operator: which functions compute the same, and how to call them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.ops.nn.convolution_problem import convolution
from tensorlang.ops.nn.winograd_packing import CONVOLUTION
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime.arrays import buffers
from tensorlang.tuner.peers import layers as layer_peers
from tensorlang.tuner.peers import random as peers

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

Call: TypeAlias = Callable[[], object]
# maps the numbers of elements and threads to a call
Maker: TypeAlias = Callable[[int, int], Call]

INSTALL: Final = "pip install 'tensorlang[bench]'"
PEERS: Final = ("numpy", "jax", "torch", "numba", "tinygrad")
RATE: Final = 0.5
LAYERS: Final = frozenset(
    (
        *("nn.dense", "nn.dense_int8", "nn.conv2d"),
        *("nn.softmax", "nn.layer_norm", "nn.gelu"),
    )
)
# attribute values that a peer's layer supports
_PLAIN: Final[dict[str, tuple[object, ...]]] = {
    "layout": (None, "oi", "NCHW"),
    "activation": (None, "none"),
    "approximate": (None, "none"),
    "how": (None, "none"),
    "dilation": (None, (1, 1)),
}


@frozen
class Side:
    """A call to be timed, and whether it allocates its result."""

    name: str
    call: Call
    fresh: bool


def _jax(work: str) -> tuple[bool, Maker]:
    return True, lambda n, _: peers.jax_random(work, n)


def _torch(work: str) -> tuple[bool, Maker]:
    return False, lambda n, threads: peers.torch_random(work, n, threads)


def _numba(work: str) -> tuple[bool, Maker]:
    return False, lambda n, threads: peers.numba_random(work, n, threads)


def _numpy(work: str, *, fresh: bool = False) -> tuple[bool, Maker]:
    return fresh, lambda n, _: peers.numpy_random(work, n)


def _normal(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n, np.float32)


# operator -> (dtype, peer -> (whether it allocates its result, how to call it))
COUNTERPARTS: Final[dict[str, tuple[str, Mapping[str, tuple[bool, Maker]]]]] = {
    "random.bits": (
        "u32",
        {
            "numpy": _numpy("bits32", fresh=True),
            "jax": _jax("bits32"),
            "torch": _torch("bits32"),
            "numba": _numba("bits32"),
        },
    ),
    "random.uniform": (
        "f32",
        {
            "numpy": _numpy("uniform"),
            "jax": _jax("uniform"),
            "torch": _torch("uniform"),
            "numba": _numba("uniform"),
            "tinygrad": (True, lambda n, _: peers.tinygrad_uniform(n)),
        },
    ),
    "random.normal": (
        "f32",
        {"numpy": _numpy("normal"), "jax": _jax("normal"), "torch": _torch("normal")},
    ),
    "random.split": ("u32", {"jax": _jax("split"), "numba": _numba("split")}),
    "nn.dropout": (
        "f32",
        {
            "jax": (True, lambda n, _: peers.jax_dropout(_normal(n), RATE)),
            "torch": (
                True,
                lambda n, threads: peers.torch_dropout(_normal(n), RATE, threads),
            ),
            "numba": (
                False,
                lambda n, threads: peers.numba_dropout(_normal(n), RATE, threads),
            ),
        },
    ),
    "random.randint": ("i32", {"jax": _jax("randint")}),
    "random.permutation": ("i32", {"jax": _jax("permutation")}),
    **{
        f"random.{work}": ("f32", {"jax": _jax(work)})
        for work in ("bernoulli", "exponential", "gumbel", "truncated_normal")
    },
}


def checked(names: list[str]) -> list[str]:
    """Validate peer names; ArgumentError if one is unknown."""
    for name in names:
        if name not in PEERS:
            raise ArgumentError(
                f"--vs {name!r} is not a peer; the peers are {', '.join(PEERS)} "
                f"({INSTALL} brings them)"
            )
    return names


def our_calls(kernel: Kernel, op: Operator, workload: Workload) -> dict[bool, Call]:
    """Calls of our kernel: into existing arrays (False), with a new result (True)."""
    arrays, scalars = arguments(op, workload)
    written = [spec.role == "out" for spec in kernel.signature.buffers]

    def fresh() -> object:
        made = [
            buffers.empty(array.shape, array.dtype) if out else array
            for array, out in zip(arrays, written, strict=True)
        ]
        kernel.launch(*made, *scalars)
        return made

    return {False: lambda: kernel.launch(*arrays, *scalars), True: fresh}


def peer_side(name: str, op: Operator, workload: Workload, threads: int) -> Side:
    """A peer's call for the same computation.

    Raises:
        ArgumentError: it has no such function, or is not installed.
    """
    if op.id in LAYERS:
        return _layer(name, op, workload, threads)
    dtype, known = COUNTERPARTS.get(op.id, ("", {}))
    if name not in known:
        listed = ", ".join(known) or "none that is known here"
        raise ArgumentError(f"{op.id} has no counterpart in {name}; it has: {listed}")
    usual = op.workload(*workload.shapes, dtypes=dtype)
    if usual.dtypes != workload.dtypes or usual.attributes != workload.attributes:
        raise ArgumentError(
            f"{name} has a counterpart of {op.id} for {dtype} and its default "
            "attributes only"
        )
    fresh, make = known[name]
    try:
        call = make(math.prod(workload.shapes[0]), threads)
    except ImportError as problem:
        raise ArgumentError(
            f"{name} cannot be imported ({problem}); {INSTALL} brings it"
        ) from None
    return Side(name, call, fresh)


def _layer(name: str, op: Operator, workload: Workload, threads: int) -> Side:
    """A peer's layer on the same arrays as ours."""
    makers: dict[str, Callable[[], Call]] = {
        "torch": lambda: layer_peers.torch_call(op.id, arrays, given, threads),
        "jax": lambda: layer_peers.jax_call(op.id, arrays, given),
        "numpy": lambda: layer_peers.numpy_call(op.id, arrays, given),
    }
    has = {"torch": LAYERS, "jax": layer_peers.JAX_HAS, "numpy": layer_peers.NUMPY_HAS}
    known = [peer for peer in makers if op.id in has[peer]]
    if name not in known:
        listed = ", ".join(known)
        raise ArgumentError(f"{op.id} has no counterpart in {name}; it has: {listed}")
    given = workload.named
    if op.id == CONVOLUTION:
        how = convolution(op.id, given, *workload.shapes).windows
        given |= {
            name: getattr(how, name) for name in ("stride", "padding", "dilation")
        }
    changed = [n for n, usual in _PLAIN.items() if given.get(n) not in usual]
    if changed:
        said = ", ".join(f"{n}={given[n]}" for n in changed)
        raise ArgumentError(f"{op.id} with {said} has no counterpart in {name}")
    arrays = arguments(op, workload)[0][: len(workload.shapes)]
    try:
        call = makers[name]()
    except ImportError as problem:
        raise ArgumentError(
            f"{name} cannot be imported ({problem}); {INSTALL} brings it"
        ) from None
    return Side(name, call, fresh=True)

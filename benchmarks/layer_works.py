"""Layers, optimizers and their gradients against PyTorch, JAX, NumPy and limits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import ml_dtypes
import numpy as np

from benchmarks import limits
from benchmarks.work import Peer, Work, Works
from tensorlang.ops import nn, optim, random
from tensorlang.tuner.peers import layers as layer_peers
from tensorlang.tuner.peers import random as peers

# rows, columns, depth; minimum ratio of the fastest peer; minimum fractions of peak,
# packed in the call and prepacked
DENSE: Final = (
    ((1024, 1024, 1024), 1.0, 0.90, 0.94),
    ((2048, 2048, 2048), 1.0, 0.90, 0.94),
    ((64, 512, 784), 1.5, None, None),
    ((128, 1024, 1024), 1.25, None, None),
    ((256, 4096, 1024), 1.1, None, None),
)
PARAMETERS: Final = 1 << 24
VECTORS: Final = (((1, 8192, 8192), "float32"), ((1, 16384, 8192), "bfloat16"))
# operator, options, shapes, minimum ratio of the fastest peer
ROWS: Final[
    tuple[tuple[str, dict[str, Any], tuple[tuple[int, ...], ...], float], ...]
] = (
    ("nn.softmax", {}, ((512, 4096),), 1.2),
    ("nn.layer_norm", {}, ((512, 4096), (4096,), (4096,)), 1.1),
    ("nn.gelu", {}, ((PARAMETERS,),), 1.3),
    ("nn.max_pool2d", {"kernel": 2}, ((8, 64, 112, 112),), 1.0),
)
_RATE: Final = 0.1


def works(threads: int) -> Works:
    """All works measured with this many threads."""
    for shape, fastest, packing, before in DENSE:
        name = "dense " + "x".join(map(str, shape))
        yield (
            f"{name}, packing included",
            partial(_dense, threads, shape, fastest, packing),
        )
        yield f"{name}, prepacked", partial(_prepacked, threads, shape, before)
    for shape, dtype in VECTORS:
        name = "dense " + "x".join(map(str, shape))
        yield f"{name} {dtype}", partial(_vector, threads, shape, dtype)
    yield "dense 1024x1024x1024 bfloat16", partial(_bf16, threads)
    yield "dense 512x1024x1024 + bias + gelu + dropout", partial(_fused, threads)
    yield f"adam, {PARAMETERS} parameters, in place", partial(_adam, threads)
    for op, options, shapes, fastest in ROWS:
        name = f"{op.partition('.')[2]} " + "x".join(map(str, shapes[0]))
        yield name, partial(_rows, threads, op, options, shapes, fastest)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal f32 numbers, the same for each shape."""
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def moved(*arrays: np.ndarray[Any, Any]) -> int:
    """Bytes of arrays that a call reads or writes once."""
    return sum(array.nbytes for array in arrays)


def rivals(
    op: str,
    arrays: tuple[np.ndarray[Any, Any], ...],
    given: Mapping[str, Any],
    threads: int,
    *,
    compiled: bool = False,
) -> tuple[Peer, ...]:
    """PyTorch, JAX and NumPy, each with new results."""
    torch = partial(layer_peers.torch_call, op, arrays, given, threads)
    found = [Peer("torch", torch)]
    if compiled:
        found.append(Peer("torch.compile", partial(torch, compiled=True)))
    if op in layer_peers.JAX_HAS:
        found.append(Peer("jax", partial(layer_peers.jax_call, op, arrays, given)))
    if op in layer_peers.NUMPY_HAS:
        found.append(Peer("numpy", partial(layer_peers.numpy_call, op, arrays, given)))
    return tuple(found)


def _dense(
    threads: int, shape: tuple[int, int, int], fastest: float, floor: float | None
) -> Work:
    m, n, k = shape
    x, w, y = normal(m, k), normal(n, k), np.empty((m, n), np.float32)
    floating = 2 * m * n * k
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        rivals("nn.dense", (x, w), {}, threads),
        (limits.multiply_adds(floating, threads, floor),),
        fastest,
        floating,
        moved(x, w, y),
    )


def _prepacked(threads: int, shape: tuple[int, int, int], floor: float | None) -> Work:
    m, n, k = shape
    x, w, y = normal(m, k), normal(n, k), np.empty((m, n), np.float32)
    packed, floating = nn.prepack(nn.dense, w), 2 * m * n * k
    onednn = partial(layer_peers.onednn_prepacked, x, w, threads)
    return Work(
        "nn.dense",
        lambda: nn.dense(x, packed),
        lambda: nn.dense(x, packed, out=y),
        (Peer("oneDNN prepacked", onednn, floor=0.97),),
        (limits.multiply_adds(floating, threads, floor),),
        None,
        floating,
        moved(x, w, y),
    )


def _vector(threads: int, shape: tuple[int, int, int], dtype: str) -> Work:
    m, n, k = shape
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, w = normal(m, k).astype(kind), normal(n, k).astype(kind)
    y = np.empty((m, n), kind)
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        rivals("nn.dense", (x, w), {}, threads),
        (limits.read(n * k * kind.itemsize // 4, 0.9),),
        1.0,
        2 * m * n * k,
        moved(x, w, y),
    )


def _bf16(threads: int) -> Work:
    size, kind = 1024, np.dtype(ml_dtypes.bfloat16)
    x, w = (normal(size, size + n)[:, :size].astype(kind) for n in (0, 1))
    y, floating = np.empty((size, size), kind), 2 * size**3
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        rivals("nn.dense", (x, w), {}, threads),
        (limits.multiply_adds(floating, threads, rate=2),),
        1.0,
        floating,
        moved(x, w, y),
    )


def _fused(threads: int) -> Work:
    m, n, k = 512, 1024, 1024
    x, w, b, y = normal(m, k), normal(n, k), normal(n), np.empty((m, n), np.float32)
    key, how = random.key(0), {"activation": "gelu", "dropout": _RATE}
    op = "dense, gelu, dropout"
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w, b, key=key.clone(), **how),
        lambda: nn.dense(x, w, b, key=key.clone(), **how, out=y),
        tuple(
            Peer(peer.name, peer.make, floor=1.5)
            for peer in rivals(op, (x, w, b), {"dropout": _RATE}, threads)
        ),
        (limits.multiply_adds(2 * m * n * k, threads),),
        1.5,
        2 * m * n * k,
        moved(x, w, b, y),
    )


def _adam(threads: int) -> Work:
    held = [normal(PARAMETERS) for _ in range(3)] + [np.ones(PARAMETERS, np.float32)]

    def step() -> object:
        return optim.adam(*held, step=3)

    return Work(
        "optim.adam",
        None,
        step,
        (
            Peer(
                "torch fused",
                partial(peers.torch_adam, PARAMETERS, threads),
                False,
                0.97,
            ),
        ),
        (limits.update(PARAMETERS, 0.95),),
    )


def _rows(
    threads: int,
    op: str,
    options: dict[str, Any],
    shapes: tuple[tuple[int, ...], ...],
    fastest: float,
) -> Work:
    arrays = tuple(normal(*shape) for shape in shapes)
    call = partial(getattr(nn, op.partition(".")[2]), *arrays, **options)
    y = np.empty_like(call())
    return Work(
        op,
        call,
        partial(call, out=y),
        rivals(op, arrays, {}, threads, compiled=True),
        (),
        fastest,
    )

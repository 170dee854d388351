"""Layers, optimizers and their gradients beside PyTorch, JAX, NumPy and the limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import ml_dtypes
import numpy as np

from benchmarks import limits
from benchmarks.work import Call, Peer, Work, Works
from tensorlang.ops import nn, optim, random
from tensorlang.tuner import layer_peers, peers

Case = tuple[tuple[int, ...], tuple[int, ...], int, int, int]
# rows, columns, depth; then the floors: of the fastest peer, packed by us and before
DENSE: Final = (
    ((1024, 1024, 1024), 1.0, 0.90, 0.94),
    ((2048, 2048, 2048), 1.0, 0.90, 0.94),
    ((64, 512, 784), 1.5, None, None),
    ((128, 1024, 1024), 1.25, None, None),
    ((256, 4096, 1024), 1.1, None, None),
)
# image, weight, stride, padding, groups
CONV: Final[tuple[Case, ...]] = (
    ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((1, 128, 28, 28), (128, 128, 3, 3), 1, 1, 1),
    ((1, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    ((1, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1),
    ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    ((1, 64, 56, 56), (256, 64, 1, 1), 1, 0, 1),
    ((1, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128),
)
WINOGRAD: Final = (CONV[0], CONV[1], CONV[4])
PARAMETERS: Final = 1 << 24
VECTORS: Final = (((1, 8192, 8192), "float32"), ((1, 16384, 8192), "bfloat16"))
# operator, options, shapes, floor of the fastest peer
ROWS: Final[
    tuple[tuple[str, dict[str, Any], tuple[tuple[int, ...], ...], float], ...]
] = (
    ("nn.softmax", {}, ((512, 4096),), 1.2),
    ("nn.layer_norm", {}, ((512, 4096), (4096,), (4096,)), 1.1),
    ("nn.gelu", {}, ((PARAMETERS,),), 1.3),
    ("nn.max_pool2d", {"kernel": 2}, ((8, 64, 112, 112),), 1.0),
)
_RATE: Final = 0.1
_ALLOWED: Final = 1e-3  # relative error


def works(threads: int) -> Works:
    """Everything that is measured with this many threads."""
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
    for case in CONV:
        yield f"conv {_title(case)}", partial(_conv, threads, case)
    for case in WINOGRAD:
        name = f"conv {_title(case)}, within {_ALLOWED:g} (Winograd)"
        yield name, partial(_winograd, threads, case)
        yield f"{name}, prepacked", partial(_winograd, threads, case, packed=True)
    for case in CONV[:-1]:
        for grad in ("conv2d_grad_data", "conv2d_grad_weight"):
            yield f"{grad} {_title(case)}", partial(_conv_gradient, threads, case, grad)
    yield f"adam, {PARAMETERS} parameters, in place", partial(_adam, threads)
    for op, options, shapes, fastest in ROWS:
        name = f"{op.partition('.')[2]} " + "x".join(map(str, shapes[0]))
        yield name, partial(_rows, threads, op, options, shapes, fastest)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


def _bytes(*arrays: np.ndarray[Any, Any]) -> int:
    """The bytes of arrays that one call reads or writes, each once."""
    return sum(array.nbytes for array in arrays)


def _rivals(
    op: str,
    arrays: tuple[np.ndarray[Any, Any], ...],
    given: Mapping[str, Any],
    threads: int,
    *,
    compiled: bool = False,
) -> tuple[Peer, ...]:
    """PyTorch, JAX and NumPy, each returning fresh arrays."""
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
    x, w, y = _normal(m, k), _normal(n, k), np.empty((m, n), np.float32)
    floating = 2 * m * n * k
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        _rivals("nn.dense", (x, w), {}, threads),
        (limits.multiply_adds(floating, threads, floor),),
        fastest,
        floating,
        _bytes(x, w, y),
    )


def _prepacked(threads: int, shape: tuple[int, int, int], floor: float | None) -> Work:
    m, n, k = shape
    x, w, y = _normal(m, k), _normal(n, k), np.empty((m, n), np.float32)
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
        _bytes(x, w, y),
    )


def _vector(threads: int, shape: tuple[int, int, int], dtype: str) -> Work:
    m, n, k = shape
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    x, w = _normal(m, k).astype(kind), _normal(n, k).astype(kind)
    y = np.empty((m, n), kind)
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        _rivals("nn.dense", (x, w), {}, threads),
        (limits.read(n * k * kind.itemsize // 4, 0.9),),
        1.0,
        2 * m * n * k,
        _bytes(x, w, y),
    )


def _bf16(threads: int) -> Work:
    size, kind = 1024, np.dtype(ml_dtypes.bfloat16)
    x, w = (_normal(size, size + n)[:, :size].astype(kind) for n in (0, 1))
    y, floating = np.empty((size, size), kind), 2 * size**3
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w),
        lambda: nn.dense(x, w, out=y),
        _rivals("nn.dense", (x, w), {}, threads),
        (limits.multiply_adds(floating, threads, rate=2),),
        1.0,
        floating,
        _bytes(x, w, y),
    )


def _fused(threads: int) -> Work:
    m, n, k = 512, 1024, 1024
    x, w, b, y = _normal(m, k), _normal(n, k), _normal(n), np.empty((m, n), np.float32)
    key, how = random.key(0), {"activation": "gelu", "dropout": _RATE}
    op = "dense, gelu, dropout"
    return Work(
        "nn.dense",
        lambda: nn.dense(x, w, b, key=key.clone(), **how),
        lambda: nn.dense(x, w, b, key=key.clone(), **how, out=y),
        tuple(
            Peer(peer.name, peer.make, floor=1.5)
            for peer in _rivals(op, (x, w, b), {"dropout": _RATE}, threads)
        ),
        (limits.multiply_adds(2 * m * n * k, threads),),
        1.5,
        2 * m * n * k,
        _bytes(x, w, b, y),
    )


def _title(case: Case) -> str:
    image, weight, stride, _, _ = case
    kind = "depthwise " if weight[1] == 1 else ""
    step = f" s{stride}" if stride > 1 else ""
    size = "x".join(map(str, image))
    return f"{kind}{weight[2]}x{weight[3]}{step} {size} to {weight[0]}"


def _how(case: Case) -> dict[str, Any]:
    return {"stride": case[2], "padding": case[3], "groups": case[4]}


def _conv(threads: int, case: Case) -> Work:
    x, w, how = _normal(*case[0]), _normal(*case[1]), _how(case)
    y = np.empty(nn.conv2d(x, w, **how).shape, np.float32)
    floating = 2 * y.size * math.prod(case[1][1:])
    return Work(
        "nn.conv2d",
        lambda: nn.conv2d(x, w, **how),
        lambda: nn.conv2d(x, w, **how, out=y),
        _rivals("nn.conv2d", (x, w), how, threads),
        (limits.multiply_adds(floating, threads),),
        0.97,
        floating,
        _bytes(x, w, y),
    )


def _winograd(threads: int, case: Case, *, packed: bool = False) -> Work:
    """Fewer products than the plain sum has: no limit is stated in those."""
    x, w, how = _normal(*case[0]), _normal(*case[1]), _how(case)
    given = nn.prepack(nn.conv2d, w, tolerance=_ALLOWED) if packed else w
    allowed = partial(nn.conv2d, x, given, **how, tolerance=_ALLOWED)
    y = np.empty(allowed().shape, np.float32)
    return Work(
        "nn.conv2d",
        allowed,
        partial(allowed, out=y),
        _rivals("nn.conv2d", (x, w), how, threads),
        (),
        1.5,
        moved=_bytes(x, w, y),
    )


def _conv_gradient(threads: int, case: Case, grad: str) -> Work:
    x, w, how = _normal(*case[0]), _normal(*case[1]), _how(case)
    dy = _normal(*nn.conv2d(x, w, **how).shape)
    size, window = case[0][2:], case[1][2:]
    calls: dict[str, Call] = {
        "conv2d_grad_data": lambda: nn.conv2d_grad_data(dy, w, size, **how),
        "conv2d_grad_weight": lambda: nn.conv2d_grad_weight(dy, x, window, **how),
    }
    torch = partial(layer_peers.torch_call, f"nn.{grad}", (dy, x, w), how, threads)
    floating = 2 * dy.size * math.prod(case[1][1:])
    return Work(
        f"nn.{grad}",
        calls[grad],
        None,
        (Peer("torch", torch),),
        (limits.multiply_adds(floating, threads),),
        1.0,
        floating,
        _bytes(x, w, dy),
    )


def _adam(threads: int) -> Work:
    held = [_normal(PARAMETERS) for _ in range(3)] + [np.ones(PARAMETERS, np.float32)]

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
    arrays = tuple(_normal(*shape) for shape in shapes)
    call = partial(getattr(nn, op.partition(".")[2]), *arrays, **options)
    y = np.empty_like(call())
    return Work(
        op,
        call,
        partial(call, out=y),
        _rivals(op, arrays, {}, threads, compiled=True),
        (),
        fastest,
    )

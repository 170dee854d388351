"""Layers of PyTorch, JAX and NumPy, on the same arrays as ours.

Each function takes NumPy arrays and our attributes and returns a complete call with a
new result, or raises ImportError if its package is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang import lazy

with lazy.modules(__name__):  # optional
    import jax
    import torch

Call: TypeAlias = Callable[[], object]
Arrays: TypeAlias = Sequence[np.ndarray]
Given: TypeAlias = Mapping[str, Any]
Operands: TypeAlias = Sequence[Any]  # arrays of one library
# maps the library, its arrays and our attributes to the result
Body: TypeAlias = Callable[[ModuleType, Operands, Given], object]


def torch_call(
    op: str,
    arrays: Arrays,
    given: Given,
    threads: int,
    *,
    compiled: bool = False,
    channels_last: bool = False,
) -> Call:
    """PyTorch's function, eager or through `torch.compile`."""
    torch.set_num_threads(threads)
    tensors = [_tensor(array) for array in arrays]
    if channels_last:
        tensors = [t.contiguous(memory_format=torch.channels_last) for t in tensors]
    body = _TORCH[op]

    def run(*given_tensors: torch.Tensor) -> object:
        return body(torch.nn.functional, given_tensors, given)

    chosen = torch.compile(run) if compiled else run

    def call() -> object:
        with torch.inference_mode():
            return chosen(*tensors)

    return call


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def onednn_prepacked(x: np.ndarray, w: np.ndarray, threads: int) -> Call:
    """A oneDNN matrix product with a prepacked weight (private in PyTorch)."""
    torch.set_num_threads(threads)
    tensor, weight = torch.from_numpy(x), torch.from_numpy(w)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, len(x))  # noqa: SLF001
    linear = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 - no public API
    return lambda: linear(tensor, packed, None, "none", [], "")


def jax_call(op: str, arrays: Arrays, given: Given) -> Call:
    """JAX's function, jitted; its number of threads cannot be set."""
    moved = [jax.numpy.asarray(array) for array in arrays]
    jitted = jax.jit(lambda *a: _JAX[op](jax, a, given))
    return lambda: jax.block_until_ready(jitted(*moved))


def numpy_call(op: str, arrays: Arrays, given: Given) -> Call:
    """NumPy's function or a short expression, if there is one."""
    if op not in _NUMPY:
        raise ImportError(f"NumPy has no {op}")
    return lambda: _NUMPY[op](arrays, given)


def _same(pair: int | Sequence[int]) -> int:
    """The single value of a symmetric attribute."""
    return pair if isinstance(pair, int) else pair[0]


def _groups(arrays: Operands) -> int:
    return int(arrays[0].shape[1] // arrays[1].shape[1])


def _torch_conv(f: ModuleType, a: Operands, g: Given) -> object:
    stride, padding = _same(g.get("stride", 1)), _same(g.get("padding", 0))
    return f.conv2d(a[0], a[1], None, stride, padding, 1, _groups(a))


def _torch_conv_grad(which: int) -> Body:
    """`aten.convolution_backward` for only the image (0) or the weight (1)."""

    def body(_: ModuleType, a: Operands, g: Given) -> object:
        dy, x, w = a
        stride, padding = _same(g.get("stride", 1)), _same(g.get("padding", 0))
        wanted = [which == 0, which == 1, False]
        return torch.ops.aten.convolution_backward(
            dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0],
            x.shape[1] // w.shape[1], wanted,
        )[which]  # fmt: skip

    return body


def _torch_fused(f: ModuleType, a: Operands, g: Given) -> object:
    return f.dropout(f.gelu(f.linear(*a)), g["dropout"], training=True)


def _torch_attention(f: ModuleType, a: Operands, g: Given) -> object:
    q, k, v = a
    return f.scaled_dot_product_attention(
        q, k, v, is_causal=g["causal"], enable_gqa=q.shape[1] != k.shape[1]
    )


def _torch_int8(_: ModuleType, a: Operands, __: Given) -> object:
    x, w, scales = a
    return torch._int_mm(x, w.T) * scales  # noqa: SLF001 - has no public name


_TORCH: Final[dict[str, Body]] = {
    "nn.dense": lambda f, a, _: f.linear(*a),
    "nn.dense_int8": _torch_int8,
    "nn.conv2d": _torch_conv,
    "nn.conv2d_grad_data": _torch_conv_grad(0),
    "nn.conv2d_grad_weight": _torch_conv_grad(1),
    "nn.softmax": lambda f, a, _: f.softmax(a[0], -1),
    "nn.layer_norm": lambda f, a, _: f.layer_norm(a[0], a[0].shape[-1:], *a[1:]),
    "nn.gelu": lambda f, a, _: f.gelu(a[0]),
    "nn.max_pool2d": lambda f, a, _: f.max_pool2d(a[0], 2),
    "nn.attention": _torch_attention,
    "nn.log_softmax": lambda f, a, _: f.log_softmax(a[0], -1),
    "nn.rms_norm": lambda f, a, _: f.rms_norm(a[0], a[0].shape[-1:], a[1], 1e-6),
    "nn.dense_grad": lambda _, a, __: (a[0] @ a[2], a[0].T @ a[1]),
    "math.matmul": lambda _, a, __: a[0] @ a[1],
    "sum of rows": lambda _, a, __: a[0].sum(1),
    "sum of columns": lambda _, a, __: a[0].sum(0),
    "add, a row": lambda _, a, __: a[0] + a[1],
    "exp": lambda _, a, __: a[0].exp(),
    "dense, gelu, dropout": _torch_fused,
}


def _jax_conv(jax: ModuleType, a: Operands, g: Given) -> object:
    stride, padding = _same(g.get("stride", 1)), _same(g.get("padding", 0))
    return jax.lax.conv_general_dilated(
        a[0],
        a[1],
        (stride, stride),
        [(padding, padding)] * 2,
        feature_group_count=_groups(a),
    )


def _jax_norm(jax: ModuleType, a: Operands, _: Given) -> object:
    x, weight, bias = a
    mean = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * weight + bias


def _jax_pool(jax: ModuleType, a: Operands, _: Given) -> object:
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(
        a[0], -np.inf, jax.lax.max, window, window, "VALID"
    )  # fmt: skip


def _jax_fused(jax: ModuleType, a: Operands, g: Given) -> object:
    x, w, b = a
    y = jax.nn.gelu(x @ w.T + b, approximate=False)
    keep = jax.random.bernoulli(jax.random.key(0), 1 - g["dropout"], y.shape)
    return jax.numpy.where(keep, y / (1 - g["dropout"]), 0)


_JAX: Final[dict[str, Body]] = {
    "nn.dense": lambda _, a, __: a[0] @ a[1].T,
    "nn.conv2d": _jax_conv,
    "nn.softmax": lambda jax, a, _: jax.nn.softmax(a[0], -1),
    "nn.layer_norm": _jax_norm,
    "nn.gelu": lambda jax, a, _: jax.nn.gelu(a[0], approximate=False),
    "nn.max_pool2d": _jax_pool,
    "nn.log_softmax": lambda jax, a, _: jax.nn.log_softmax(a[0], -1),
    "nn.dense_grad": lambda _, a, __: (a[0] @ a[2], a[0].T @ a[1]),
    "math.matmul": lambda _, a, __: a[0] @ a[1],
    "sum of rows": lambda _, a, __: a[0].sum(1),
    "sum of columns": lambda _, a, __: a[0].sum(0),
    "add, a row": lambda _, a, __: a[0] + a[1],
    "exp": lambda jax, a, _: jax.numpy.exp(a[0]),
    "dense, gelu, dropout": _jax_fused,
}

_NUMPY: Final[dict[str, Callable[[Arrays, Given], object]]] = {
    "nn.dense": lambda a, _: a[0] @ a[1].T,
    "nn.dense_grad": lambda a, _: (a[0] @ a[2], a[0].T @ a[1]),
    "math.matmul": lambda a, _: a[0] @ a[1],
    "sum of rows": lambda a, _: a[0].sum(1),
    "sum of columns": lambda a, _: a[0].sum(0),
    "add, a row": lambda a, _: a[0] + a[1],
    "exp": lambda a, _: np.exp(a[0]),
}
JAX_HAS: Final = frozenset(_JAX)
NUMPY_HAS: Final = frozenset(_NUMPY)

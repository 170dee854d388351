"""The machine code of every operator's call, to compare versions of the library.

    python benchmarks/inventory.py write before.json          # in the older checkout
    python benchmarks/inventory.py write after.json           # in the newer one
    python -m benchmarks.versions before.json after.json --base older/.venv/bin/python

A row is a call of the public API, with a digest of the machine code it would run and
the cost of generating that (schedule, lower, render, compile). Calls with equal code
need no measurement. This file only imports the public API, so that it runs in any
checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from ml_dtypes import bfloat16

from tensorlang.ops import math, nn, optim, random

F32 = np.float32


class Call(NamedTuple):
    """A call of an operator: its label in the table, and its arguments."""

    label: str
    operator: Any
    args: tuple[Any, ...]
    named: dict[str, Any]


def array(*shape: int, dtype: Any = F32) -> np.ndarray[Any, Any]:
    """Ordinary values of a dtype: small integers, floats around 1, bools."""
    generator = np.random.default_rng(len(shape))
    if np.dtype(dtype) == bool:
        return generator.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(1, 9, shape).astype(dtype)
    return (generator.standard_normal(shape, F32) * 0.25 + 1).astype(dtype)


_UNARY = [
    "negative",
    "abs",
    "sign",
    "square",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "erf",
    "sin",
    "cos",
    "tanh",
    "floor",
    "ceil",
]
_BINARY = ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum"]
_COMPARED = [
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
]
_ACTIVATIONS = ["relu", "leaky_relu", "gelu", "silu", "sigmoid", "softplus", "tanh"]
_FOLDS = [
    "sum",
    "prod",
    "mean",
    "max",
    "min",
    "any",
    "all",
    "logsumexp",
    "argmax",
    "argmin",
    "var",
]
_BIG = (1 << 22,)
_ROWS = ((512, 4096), (3, 1001), (64, 33, 65))


def elementwise() -> Iterator[Call]:
    """Elementwise operators and their gradients, in several dtypes and broadcasts."""
    for module, names in ((math, _UNARY), (nn, _ACTIVATIONS)):
        for name in names:
            op, grad = getattr(module, name), getattr(module, f"{name}_grad")
            for dtype in (F32, np.float64, np.float16, bfloat16):
                x = array(*_BIG, dtype=dtype)
                yield Call(f"{op.id} {x.dtype} {x.size}", op, (x,), {})
                yield Call(f"{grad.id} {x.dtype} {x.size}", grad, (x, x), {})
    for name in _BINARY + _COMPARED:
        op, grad = getattr(math, name), getattr(math, f"{name}_grad", None)
        for a, b in (
            (array(*_BIG), array(*_BIG)),
            (array(*_BIG), 0.5),
            (array(512, 4096), array(4096)),
            (array(512, 4096), array(512, 1)),
            (array(32, 64, 28, 28), array(64, 1, 1)),
            (array(*_BIG, dtype=bfloat16), array(*_BIG, dtype=bfloat16)),
        ):
            shown = f"{a.dtype} {a.shape} {getattr(b, 'shape', b)}"
            yield Call(f"{op.id} {shown}", op, (a, b), {})
            if grad is not None:
                yield Call(f"{grad.id} {shown}", grad, (a, a, b), {})
    i = array(*_BIG, dtype=np.int32)
    for name in ("floor_divide", "trunc_divide", "remainder", "add", "multiply"):
        op = getattr(math, name)
        yield Call(f"{op.id} int32", op, (i, i), {})
    cond = array(*_BIG, dtype=bool)
    x = array(*_BIG)
    yield Call("math.where", math.where, (cond, x, x), {})
    yield Call("math.where_grad", math.where_grad, (x, cond, x, x), {})
    yield Call("math.clip", math.clip, (x, 0.5, 1.5), {})
    yield Call("math.clip_grad", math.clip_grad, (x, x, 0.5, 1.5), {})
    yield Call("math.logical_not", math.logical_not, (cond,), {})
    for name in ("isnan", "isinf"):
        yield Call(f"math.{name}", getattr(math, name), (x,), {})


def rows() -> Iterator[Call]:
    """Row operators: reductions, softmax, norms, losses, scans and sorts."""
    for shape in _ROWS:
        x = array(*shape)
        for name in _FOLDS:
            op, grad = getattr(math, name), getattr(math, f"{name}_grad", None)
            for axis in (None, -1, 0):
                yield Call(f"{op.id} {shape} {axis}", op, (x, axis), {})
                if grad is not None:
                    dy = np.ones(math.sum.shape(shape, axis=axis), F32)
                    yield Call(f"{grad.id} {shape} {axis}", grad, (dy, x, axis), {})
        for name in ("softmax", "log_softmax"):
            op, grad = getattr(nn, name), getattr(nn, f"{name}_grad")
            for axis in (-1, 0):
                yield Call(f"{op.id} {shape} {axis}", op, (x, axis), {})
                yield Call(f"{grad.id} {shape} {axis}", grad, (x, x, axis), {})
        for axis in (-1, 0):
            yield Call(f"math.cumsum {shape} {axis}", math.cumsum, (x, axis), {})
            yield Call(
                f"math.cumsum_grad {shape} {axis}", math.cumsum_grad, (x, x, axis), {}
            )
            for op in (math.sort, math.argsort):
                yield Call(f"{op.id} {shape} {axis}", op, (x, axis), {})
            yield Call(
                f"math.sort_grad {shape} {axis}", math.sort_grad, (x, x, axis), {}
            )
        w = array(shape[-1])
        yield Call(f"nn.layer_norm {shape}", nn.layer_norm, (x, w, w), {})
        yield Call(f"nn.layer_norm_grad {shape}", nn.layer_norm_grad, (x, x, w), {})
        yield Call(f"nn.rms_norm {shape}", nn.rms_norm, (x, w), {})
        yield Call(f"nn.rms_norm_grad {shape}", nn.rms_norm_grad, (x, x, w), {})
        for op, grad in ((nn.mse, nn.mse_grad),):
            yield Call(f"{op.id} {shape}", op, (x, x), {})
            yield Call(
                f"{grad.id} {shape}", grad, (F32(1) * np.ones((), F32), x, x), {}
            )
    for n, classes in ((512, 1000), (64, 10)):
        logits, labels = array(n, classes), array(n, dtype=np.int64)
        one = np.ones((), F32)
        yield Call(f"nn.cross_entropy {n}", nn.cross_entropy, (logits, labels), {})
        grad = nn.cross_entropy_grad
        yield Call(f"nn.cross_entropy_grad {n}", grad, (one, logits, labels), {})
    for dtype in (np.float16, bfloat16, np.float64):
        x = array(512, 4096, dtype=dtype)
        for op in (math.sum, nn.softmax, math.max):
            yield Call(f"{op.id} {x.dtype}", op, (x, -1), {})
        yield Call(f"nn.layer_norm {x.dtype}", nn.layer_norm, (x,), {})


_PRODUCTS = (
    *((64, 512, 784), (1024, 1024, 1024), (1, 1000, 512), (96, 640, 900), (7, 13, 17)),
    *((256, 4096, 1024), (33, 777, 1025), (128, 10, 84), (2048, 64, 64)),
)


def products() -> Iterator[Call]:
    """Dense layers, their gradients and batched products."""
    for m, n, k in _PRODUCTS:
        x, w, b, dy = array(m, k), array(n, k), array(n), array(m, n)
        yield Call(f"nn.dense {m}x{n}x{k}", nn.dense, (x, w), {})
        yield Call(
            f"nn.dense gelu {m}x{n}x{k}", nn.dense, (x, w, b), {"activation": "gelu"}
        )
        yield Call(
            f"nn.dense io {m}x{n}x{k}",
            nn.dense,
            (x, np.ascontiguousarray(w.T)),
            {"layout": "io"},
        )
        packed = nn.prepack(nn.dense, w)
        yield Call(f"nn.dense packed {m}x{n}x{k}", nn.dense, (x, packed, b), {})
        yield Call(f"nn.dense_grad {m}x{n}x{k}", nn.dense_grad, (dy, x, w), {})
        for dtype in (bfloat16, np.float16, np.float64):
            half = (x.astype(dtype), w.astype(dtype))
            yield Call(f"nn.dense {half[0].dtype} {m}x{n}x{k}", nn.dense, half, {})
    x, w = array(64, 784), array(512, 784)
    dropped = {"dropout": 0.1, "key": random.key(0), "activation": "relu"}
    yield Call("nn.dense dropout", nn.dense, (x, w), dropped)
    yield Call("nn.dense residual", nn.dense, (x, w), {"residual": array(64, 512)})
    for a, b in (
        ((8, 128, 64), (8, 64, 128)),
        ((12, 197, 64), (12, 64, 197)),
        ((512, 512), (512, 512)),
        ((1000, 3, 3), (1000, 3, 3)),
    ):
        x, y = array(*a), array(*b)
        dy = array(*a[:-1], b[-1])
        yield Call(f"math.matmul {a} {b}", math.matmul, (x, y), {})
        yield Call(f"math.matmul_grad {a} {b}", math.matmul_grad, (dy, x, y), {})


# images N, C, H, W; filters O, I, KH, KW; non-default options
_CONVOLUTIONS: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    ((1, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    ((1, 64, 56, 56), (256, 64, 1, 1), {}),
    ((1, 128, 56, 56), (128, 128, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
    ((1, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    ((1, 1024, 14, 14), (512, 1024, 1, 1), {"stride": 2}),
    ((8, 64, 28, 28), (64, 64, 3, 3), {"padding": 1}),
    ((1, 96, 112, 112), (96, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 96}),
    ((1, 144, 56, 56), (144, 1, 3, 3), {"padding": 1, "groups": 144}),
    ((64, 1, 28, 28), (6, 1, 5, 5), {"padding": 2}),
    ((1, 32, 20, 20), (32, 8, 3, 3), {"padding": 1, "groups": 4}),
    ((1, 16, 33, 31), (24, 16, 3, 3), {"dilation": 2}),
)


def convolutions() -> Iterator[Call]:
    """Convolutions in both layouts, gradients, transposed and Winograd convolutions."""
    for images, filters, how in _CONVOLUTIONS:
        x, w = array(*images), array(*filters)
        label = f"{images} {filters} {how}"
        for layout in ("NCHW", "NHWC"):
            laid = x if layout == "NCHW" else np.moveaxis(x, 1, -1).copy()
            shape = nn.conv2d.shape(laid.shape, w.shape, layout=layout, **how)
            dy, given = array(*shape), how | {"layout": layout}
            yield Call(f"nn.conv2d {layout} {label}", nn.conv2d, (laid, w), given)
            size = images[2:]
            for op, args in (
                (nn.conv2d_grad_data, (dy, w, size)),
                (nn.conv2d_grad_weight, (dy, laid, filters[2:])),
            ):
                yield Call(f"{op.id} {layout} {label}", op, args, given)
        half = (x.astype(bfloat16), w.astype(bfloat16))
        yield Call(f"nn.conv2d bfloat16 {label}", nn.conv2d, half, how)
    bias = {"activation": "relu", "padding": 1}
    x, w = array(1, 64, 56, 56), array(64, 64, 3, 3)
    yield Call("nn.conv2d relu", nn.conv2d, (x, w, array(64)), bias)
    winograd = {"padding": 1, "tolerance": 1e-3}
    yield Call("nn.conv2d winograd", nn.conv2d, (x, w), winograd)
    packed = nn.prepack(nn.conv2d, w, tolerance=1e-3)
    yield Call("nn.conv2d winograd packed", nn.conv2d, (x, packed), winograd)
    yield Call("nn.conv1d", nn.conv1d, (array(4, 64, 1000), array(64, 64, 3)), {})
    x, w = array(1, 16, 16, 28, 28), array(32, 16, 3, 3, 3)
    yield Call("nn.conv3d", nn.conv3d, (x, w), {"padding": 1})
    for x, w, how in (
        (array(4, 64, 14, 14), array(64, 32, 4, 4), {"stride": 2, "padding": 1}),
        (array(1, 16, 9, 9), array(16, 8, 3, 3), {}),
    ):
        op, grad = nn.conv2d_transpose, nn.conv2d_transpose_grad
        dy = array(*op.shape(x.shape, w.shape, **how))
        yield Call(f"{op.id} {x.shape}", op, (x, w), how)
        yield Call(f"{grad.id} {x.shape}", grad, (dy, x, w), how)


def images() -> Iterator[Call]:
    """Pooling, batch norm, joins, slices and data movement."""
    for shape in ((1, 64, 112, 112), (64, 6, 28, 28), (2, 3, 13, 11)):
        x = array(*shape)
        for kind in ("max", "avg"):
            op, grad = getattr(nn, f"{kind}_pool2d"), getattr(nn, f"{kind}_pool2d_grad")
            for args in ((2,), (3, 2, 1)):
                dy = array(*op(x, *args).shape)
                yield Call(f"{op.id} {shape} {args}", op, (x, *args), {})
                yield Call(f"{grad.id} {shape} {args}", grad, (dy, x, *args), {})
            op = getattr(nn, f"adaptive_{kind}_pool2d")
            yield Call(f"{op.id} {shape}", op, (x, 3), {})
            op, grad = (
                getattr(nn, f"global_{kind}_pool{end}") for end in ("", "_grad")
            )
            yield Call(f"{op.id} {shape}", op, (x,), {})
            yield Call(f"{grad.id} {shape}", grad, (array(*op(x).shape), x), {})
        c = array(shape[1])
        op, grad = nn.batch_norm, nn.batch_norm_grad
        yield Call(f"{op.id} {shape}", op, (x, c, c, c, c), {})
        yield Call(f"{grad.id} {shape}", grad, (x, x, c, c, c), {})
        op, grad = nn.batch_norm_train, nn.batch_norm_train_grad
        yield Call(f"{op.id} {shape}", op, (x, c.copy(), c.copy(), c, c), {})
        yield Call(f"{grad.id} {shape}", grad, (x, x, c), {})
        yield Call(f"nn.concatenate {shape}", nn.concatenate, ([x, x], 1), {})
        yield Call(f"nn.stack {shape}", nn.stack, ([x, x], 1), {})
        around = ((0, 0), (0, 0), (1, 1), (2, 3))
        yield Call(f"nn.pad {shape}", nn.pad, (x, around), {})
        begin, end, step = (0, 0, 1, 0), (None, None, -1, None), (1, 1, 1, 2)
        yield Call(f"nn.slice {shape}", nn.slice, (x, begin, end, step), {})
        dy = nn.slice(x, begin, end, step)
        yield Call(
            f"nn.slice_grad {shape}", nn.slice_grad, (dy, x, begin, end, step), {}
        )
        yield (
            Call(f"nn.split {shape}", nn.split, (x, (1, shape[1] - 1), 1), {})
            if (shape[1] > 1)
            else None
        )
        for axes in ((0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)):
            yield Call(f"nn.transpose {shape} {axes}", nn.transpose, (x, axes), {})
    table = array(5000, 256)
    for ids in (array(64, 33, dtype=np.int64), array(4096, dtype=np.int32)):
        yield Call(f"nn.embedding {ids.shape}", nn.embedding, (ids, table), {})
        dy = array(*ids.shape, 256)
        yield Call(
            f"nn.embedding_grad {ids.shape}", nn.embedding_grad, (dy, ids, table), {}
        )


def drawn() -> Iterator[Call]:
    """Random numbers, dropout, keys."""
    for stream in ("jax", "packed"):
        for bits in ("uint8", "uint16", "uint32", "uint64"):
            how = {"dtype": bits, "stream": stream}
            yield Call(
                f"random.bits {bits} {stream}",
                random.bits,
                (random.key(0), (1 << 22,)),
                how,
            )
        for kind in ("float32", "float64", "float16"):
            how = {"dtype": kind, "stream": stream}
            for name in ("uniform", "normal", "exponential", "gumbel"):
                op = getattr(random, name)
                label = f"random.{name} {kind} {stream}"
                yield Call(label, op, (random.key(0), (1 << 20,)), how)
        x = array(1 << 22)
        for op in (nn.dropout, nn.dropout_grad):
            how = {"key": random.key(0), "stream": stream}
            yield Call(f"{op.id} {stream}", op, (x, 0.5), how)
    for impl in ("threefry4x64-13", "philox4x32", "threefry4x32"):
        key = random.key(0, impl=impl)
        yield Call(f"random.bits {impl}", random.bits, (key, (1 << 20,)), {})
    key = random.key(0)
    yield Call("random.randint", random.randint, (key, (1 << 20,), 0, 10), {})
    yield Call("random.bernoulli", random.bernoulli, (key, 0.3, (1 << 20,)), {})
    yield Call("random.split", random.split, (key, 1 << 16), {})
    yield Call("random.fold_in", random.fold_in, (key, 7), {})
    yield Call("random.permutation", random.permutation, (key, 1 << 16), {})
    yield Call("random.categorical", random.categorical, (key, array(512, 1000)), {})
    how: dict[str, Any] = {"shape": (1 << 20,)}
    yield Call(
        "random.truncated_normal", random.truncated_normal, (key, -1.0, 1.0), how
    )


def steps() -> Iterator[Call]:
    """Optimizers, in place."""
    for dtype in (F32, bfloat16):
        p, g, m, v = (array(1 << 20, dtype=dtype) for _ in range(4))
        for name in ("adam", "adamw", "adamax"):
            op = getattr(optim, name)
            yield Call(f"{op.id} {p.dtype}", op, (p, g, m, v), {"step": 3})
        yield Call(f"optim.sgd {p.dtype}", optim.sgd, (p, g), {"lr": 0.1})
        yield Call(f"optim.adagrad {p.dtype}", optim.adagrad, (p, g, v), {"lr": 0.1})
        yield Call(f"optim.rmsprop {p.dtype}", optim.rmsprop, (p, g, v), {"lr": 0.1})


def calls(only: str = "") -> Iterator[Call]:
    """All calls whose label contains `only`."""
    for group in (*(elementwise, rows, products, convolutions, images, drawn, steps),):
        for call in group():
            if call is not None and only in call.label:
                yield call


# ------------------------------------------------------------------------- writing


def fresh(call: Call) -> Call:
    """The call with fresh keys, which are single-use."""
    args = tuple(a.clone() if hasattr(a, "clone") else a for a in call.args)
    named = {k: v.clone() if hasattr(v, "clone") else v for k, v in call.named.items()}
    return call._replace(args=args, named=named)


def run(call: Call) -> Any:
    """Make the call."""
    made = fresh(call)
    return made.operator(*made.args, **made.named)


_NAMES = re.compile(r"[.%@A-Za-z_$][\w.$@]*")
_DIRECTIVES = re.compile(
    r"^\s*(\.(file|ident|section|globl|type|size|p2align|loc|cfi).*)?$"
)


def digest(assembly: str) -> str:
    """A digest of the instructions, independent of symbol and label names."""
    kept = [
        re.sub(r"\b(?:tl_|fn_)?[A-Za-z_.$][\w.$]*(?=:|\()", "", line.partition("#")[0])
        for line in assembly.splitlines()
        if not _DIRECTIVES.match(line)
    ]
    labels: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return labels.setdefault(found[0], f".L{len(labels)}")

    text = re.sub(r"\.L[\w$.]+", numbered, "\n".join(kept))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def row(call: Call, target: str) -> dict[str, Any]:
    """What a call runs, and the seconds to generate it."""
    named = call.named if target == "llvm" else call.named | {"target": target}
    start = time.perf_counter()
    found = call.operator.kernel(*call.args, **named)
    kernel = getattr(found, "kernel", found)
    seconds = time.perf_counter() - start
    code = kernel.asm if target == "llvm" else kernel.source
    return {"first": round(seconds, 4), "code": digest(code), "lines": code.count("\n")}


def write(path: str, only: str = "", target: str = "llvm") -> None:
    """Write the table of this checkout as JSON."""
    table: dict[str, Any] = {}
    for call in calls(only):
        try:
            table[call.label] = row(call, target)
        except Exception as problem:  # noqa: BLE001 - an error is a row, too
            table[call.label] = {"refused": f"{type(problem).__name__}: {problem}"}
        print(call.label, table[call.label], file=sys.stderr)
    with open(path, "w") as file:  # noqa: PTH123 - no further import needed
        json.dump(table, file, indent=1)


def serve() -> None:
    """Time calls on request: reads a line with a label, answers a line with seconds."""
    # requests mostly follow the table's order, so continue from the last one
    following, found = calls(), None
    for line in sys.stdin:
        label, _, count = line.strip().rpartition("\t")
        if found is None or found.label != label:
            found = next((call for call in following if call.label == label), None)
            if found is None:
                following = calls()
                found = next(call for call in following if call.label == label)
            run(found)
        times = int(count)
        start = time.perf_counter()
        for _ in range(times):
            run(found)
        print((time.perf_counter() - start) / times, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TENSORLANG_KEY_CHECK", "1")
    {"write": write, "serve": serve}[sys.argv[1]](*sys.argv[2:])

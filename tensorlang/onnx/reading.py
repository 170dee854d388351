"""What each operator of ONNX is among ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.graph.network import training
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Key, Value
from tensorlang.onnx.constants import FOLDED, folded, shape_of
from tensorlang.onnx.functions import DOMAIN
from tensorlang.onnx.kinds import REDUCTIONS, SAME
from tensorlang.onnx.programs import Call
from tensorlang.ops import find, math, nn, random

Reader: TypeAlias = Callable[[Call], Any]


def has(node: Any) -> bool:
    """Whether we read nodes of this kind."""
    if node.domain == DOMAIN:
        return node.op_type in OURS
    return node.domain in {"", "ai.onnx"} and (
        node.op_type in READERS or node.op_type in FOLDED
    )


def applied(call: Call, domain: str) -> Any:
    """What a node gives: a value, an array that is known now, or a tuple of them."""
    if domain == DOMAIN:
        return OURS[call.kind](call)
    if call.kind in FOLDED and not any(isinstance(x, Value) for x in call.inputs):
        return folded(call)
    if call.kind not in READERS:
        raise call.refuse("we have it for constants only")
    return READERS[call.kind](call)


def _same(op: Any) -> Reader:
    def read(call: Call) -> Any:
        return op(*[_number(x) for x in call.inputs])

    return read


def _number(x: Any) -> Any:
    """A constant of one element as a number, which takes the type of the other side."""
    if isinstance(x, np.ndarray) and not x.ndim and x.dtype.kind in "iuf":
        return x.item()
    return x


def _reduced(op: Any) -> Reader:
    def read(call: Call) -> Any:
        given = call.given.get("axes")
        axes = call.known(1, "axes") if given is None else given
        none = axes is None or not len(axes)
        if none and call.given.get("noop_with_empty_axes"):
            return call.inputs[0]
        over = None if none else tuple(int(a) for a in axes)
        return op(call.inputs[0], over, bool(call.given.get("keepdims", 1)))

    return read


def _gemm(call: Call) -> Any:
    a, b, c = call.inputs[0], call.inputs[1], call.input(2)
    if call.given.get("transA"):
        a = nn.transpose(a, (1, 0))
    layout = "oi" if call.given.get("transB") else "io"
    scales = call.given.get("alpha", 1.0), call.given.get("beta", 1.0)
    if scales == (1.0, 1.0) and (c is None or c.ndim == 1):
        return nn.dense(a, b, c, layout=layout)
    y = math.multiply(nn.dense(a, b, layout=layout), float(scales[0]))
    return y if c is None else math.add(y, math.multiply(c, float(scales[1])))


def _matmul(call: Call) -> Any:
    a, b = call.inputs
    if isinstance(b, Value) and b.ndim == 2 and a.ndim > 2:
        return nn.dense(a, b, layout="io")
    return math.matmul(a, b)


def _padded(call: Call, rank: int, value: float | None) -> tuple[Any, Any]:
    """The images and the padding that is left to the operator."""
    x, auto = call.inputs[0], call.given.get("auto_pad", "NOTSET")
    if auto in {"SAME_UPPER", "VALID"}:
        return x, "same" if auto == "SAME_UPPER" else "valid"
    if auto != "NOTSET":
        raise call.refuse(f"auto_pad {auto} is not among ours")
    pads = call.given.get("pads", [0] * 2 * rank)
    low, high = tuple(pads[:rank]), tuple(pads[rank:])
    if low == high:
        return x, low
    around = [(0, 0), (0, 0), *zip(low, high, strict=True)]
    if value is None:
        raise call.refuse("an average over uneven padding is not among ours")
    return nn.pad(x, around, value), (0,) * rank


def _conv(call: Call) -> Any:
    x, w = call.inputs[:2]
    rank = w.ndim - 2
    x, padding = _padded(call, rank, 0.0)
    return find(f"nn.conv{rank}d")(
        x,
        w,
        call.input(2),
        stride=tuple(call.given.get("strides", (1,) * rank)),
        padding=padding,
        dilation=tuple(call.given.get("dilations", (1,) * rank)),
        groups=call.given.get("group", 1),
    )


def _pool(name: str) -> Reader:
    most = name == "max_pool"

    def read(call: Call) -> Any:
        window = tuple(call.given["kernel_shape"])
        rank = len(window)
        x, padding = _padded(call, rank, -np.inf if most else None)
        more = (
            {"dilation": tuple(call.given.get("dilations", (1,) * rank))}
            if most
            else {"count_include_pad": bool(call.given.get("count_include_pad", 0))}
        )
        return find(f"nn.{name}{rank}d")(
            x,
            window,
            tuple(call.given.get("strides", (1,) * rank)),
            padding=padding,
            ceil_mode=bool(call.given.get("ceil_mode", 0)),
            **more,
        )

    return read


def _along(op: Any) -> Reader:
    return lambda call: op(call.inputs[0], int(call.given.get("axis", -1)))


def _layer_norm(call: Call) -> Any:
    x = call.inputs[0]
    if call.given.get("axis", -1) not in {-1, x.ndim - 1}:
        raise call.refuse("we have norms of the last dimension alone")
    eps = call.given.get("epsilon", 1e-5)
    return nn.layer_norm(x, call.inputs[1], call.input(2), _float(eps))


def _float(value: float) -> float:
    """A number that a file keeps in 32 bits, as it was meant: 1e-05, not 9.99e-06."""
    return float(str(np.float32(value)))


def _batch_norm(call: Call) -> Any:
    x, w, b, mean, var = call.inputs
    if call.given.get("training_mode"):
        raise call.refuse("we have its use alone; export the model in use")
    return nn.batch_norm(
        x, mean, var, w, b, eps=_float(call.given.get("epsilon", 1e-5))
    )


def _dropout(call: Call) -> Any:
    """In training, by a key of its own; in use, and where it never trains, nothing."""
    x = call.inputs[0]
    rate, mode = call.known(1, "the rate"), call.known(2, "training_mode")
    share = 0.5 if rate is None else _float(rate)
    if not training() or not (mode is not None and mode) or not share:
        return x
    return nn.dropout(x, share, key=call.program.next_key())


def _flatten(call: Call) -> Any:
    x, axis = call.inputs[0], call.given.get("axis", 1)
    if axis == 1:
        return nn.batch_flatten(x)
    first: Any = 1
    for extent in x.shape[:axis]:
        first = first * extent
    return nn.reshape(x, (first, -1))


def _reshape(call: Call) -> Any:
    x = call.inputs[0]
    wanted = list(call.known(1, "the shape"))
    keep = not call.given.get("allowzero", 0)
    shape = [
        x.shape[at] if keep and not isinstance(n, Dim) and n == 0 else n
        for at, n in enumerate(wanted)
    ]
    tail = x.shape[1:]
    plain = all(not isinstance(n, Dim) for n in tail)
    if plain and len(shape) == 2 and _is(shape[0], x.shape[0]) and x.ndim > 1:
        count = int(np.prod([int(n) for n in tail]))
        if shape[1] in {-1, count}:
            return nn.batch_flatten(x)
    return nn.reshape(x, tuple(_completed(shape, x)))


def _is(a: Any, b: Any) -> bool:
    return bool(a == b)


def _completed(shape: list[Any], x: Any) -> list[Any]:
    """The shape with its -1 as a number or a name, where the others say it."""
    plain = [n if isinstance(n, Dim) else int(n) for n in shape]
    open_ = [n for n in x.shape if isinstance(n, Dim)]
    held = [n for n in plain if isinstance(n, Dim)]
    if -1 not in plain or held != open_:
        return plain
    has_ = int(np.prod([n for n in x.shape if not isinstance(n, Dim)], dtype=int))
    rest = int(
        np.prod([n for n in plain if not isinstance(n, Dim) and n != -1], dtype=int)
    )
    return [has_ // max(rest, 1) if n == -1 else n for n in plain]


def _moved(call: Call) -> Any:
    """Squeeze and Unsqueeze: a dimension of one element comes or goes."""
    x = call.inputs[0]
    given = call.given.get("axes")
    axes = [int(a) for a in (call.known(1, "axes") if given is None else given)]
    shape = list(x.shape)
    if call.kind == "Squeeze":
        gone = {a % x.ndim for a in axes}
        return nn.reshape(x, tuple(n for at, n in enumerate(shape) if at not in gone))
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return nn.reshape(x, tuple(shape))


def _transpose(call: Call) -> Any:
    return nn.transpose(call.inputs[0], tuple(call.given["perm"]))


def _gather(call: Call) -> Any:
    table, ids = call.inputs[:2]
    if call.given.get("axis", 0) != 0 or not isinstance(ids, Value) or table.ndim != 2:
        raise call.refuse("we gather rows of a table alone")
    return nn.embedding(ids, table)


def _element(call: Call) -> Any:
    """An element of keys, or rows of a table."""
    x = call.inputs[0]
    if isinstance(x, Key):
        return x[int(call.known(1, "the index"))]
    return _gather(call)


def _clip(call: Call) -> Any:
    low, high = (call.known(at, "a bound") for at in (1, 2))
    bounds = (None if b is None else float(b) for b in (low, high))
    return math.clip(call.inputs[0], *bounds)


def _cast(call: Call) -> Any:
    from tensorlang.onnx.files import library  # noqa: PLC0415 - of the onnx extra

    x = call.inputs[0]
    wanted = library().helper.tensor_dtype_to_np_dtype(call.given["to"])
    if x.spec.numpy != wanted:
        raise call.refuse(f"we have no cast of {x.spec} to {wanted}")
    return x


def _gelu(call: Call) -> Any:
    return nn.gelu(call.inputs[0], call.given.get("approximate", "none"))


def _leaky(call: Call) -> Any:
    return nn.leaky_relu(call.inputs[0], _float(call.given.get("alpha", 0.01)))


def _concat(call: Call) -> Any:
    return nn.concatenate(call.inputs, call.given["axis"])


def _constant(call: Call) -> Any:
    return folded(call)


READERS: Final[dict[str, Reader]] = {
    **{kind: _same(find(id)) for id, kind in SAME.items() if id != "let"},
    **{kind: _reduced(find(id)) for id, kind in REDUCTIONS.items()},
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "GlobalAveragePool": lambda call: nn.global_avg_pool(call.inputs[0]),
    "Softmax": _along(nn.softmax),
    "LogSoftmax": _along(nn.log_softmax),
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    "Tanh": _same(nn.tanh),
    "Softplus": lambda call: nn.softplus(call.inputs[0]),
    "LeakyRelu": _leaky,
    "Gelu": _gelu,
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Squeeze": _moved,
    "Unsqueeze": _moved,
    "Transpose": _transpose,
    "Concat": _concat,
    "Gather": _element,
    "Clip": _clip,
    "Cast": _cast,
    "Identity": lambda call: call.inputs[0],
    "Shape": shape_of,
}


def _own_norm(call: Call) -> Any:
    x, mean, var, w, b = call.inputs[:5]
    axes = call.given["axes"]
    (axis,) = set(range(len(axes) + 1)) - set(axes)
    given = {"eps": _float(call.given["eps"]), "axis": axis}
    if not training():
        return nn.batch_norm(x, mean, var, w, b, **given), mean, var
    momentum = _float(call.given["momentum"])
    return nn.batch_norm_train(x, mean, var, w, b, momentum=momentum, **given)


def _own_dropout_train(call: Call) -> Any:
    x, state = call.inputs[:2]
    if not training():
        return x, state
    return nn.dropout_train(x, state, float(call.given["rate"]))


def _own_dropout(call: Call) -> Any:
    x, key = call.inputs[:2]
    return nn.dropout(x, float(call.given["rate"]), key=key)


def _rms_norm(call: Call) -> Any:
    return nn.rms_norm(call.inputs[0], call.inputs[1], _float(call.given["eps"]))


OURS: Final[dict[str, Reader]] = {
    "dense": lambda call: nn.dense(*call.inputs),
    "dense_without_bias": lambda call: nn.dense(*call.inputs),
    "gelu": lambda call: nn.gelu(call.inputs[0]),
    "gelu_tanh": lambda call: nn.gelu(call.inputs[0], "tanh"),
    "silu": lambda call: nn.silu(call.inputs[0]),
    "rms_norm": _rms_norm,
    "batch_norm_train": _own_norm,
    "split": lambda call: random.split(call.inputs[0], call.given["num"]),
    "dropout": _own_dropout,
    "dropout_train": _own_dropout_train,
}

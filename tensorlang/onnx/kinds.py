"""How each of our operators is written in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node
from tensorlang.onnx.writing import TRAINING, Writer, argument
from tensorlang.ops.nn.dropout import scalars

Kind: TypeAlias = Callable[[Writer, Node], Any]


def _plain(kind: str, **attributes: Any) -> Kind:
    """A node of the same arrays; a number among them takes the type of an array."""

    def write(writer: Writer, node: Node) -> Any:
        like = next(arg for arg in reversed(node.args) if hasattr(arg, "spec"))
        names = [writer.name(arg, like) for arg in node.args]
        return writer.emit(kind, *names, **attributes)

    return write


def _negated(kind: str) -> Kind:
    def write(writer: Writer, node: Node) -> Any:
        return writer.emit("Not", _plain(kind)(writer, node))

    return write


def _along(kind: str) -> Kind:
    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", -1)
        return writer.emit(kind, writer.name(node.args[0]), axis=axis)

    return write


def _reduced(kind: str) -> Kind:
    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", None)
        keep = int(argument(node, 2, "keepdims", False))
        axes = (axis,) if isinstance(axis, int) else axis
        given = [] if axes is None else [writer.whole(*axes)]
        return writer.emit(kind, writer.name(node.args[0]), *given, keepdims=keep)

    return write


def _activated(writer: Writer, y: str, activation: str | None) -> str:
    if activation is None:
        return y
    if activation in {"silu", "gelu", "gelu_tanh"}:
        return str(writer.call(activation, y))
    return str(writer.emit(_ACTIVATIONS[activation], y))


_ACTIVATIONS: Final = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def _dense(writer: Writer, node: Node) -> Any:
    x, w = node.args[:2]
    b = argument(node, 2, "b", None)
    given = node.kwargs
    if given.get("dropout"):
        raise GraphError(f"{node.place}: write dropout apart from dense to save it")
    names = [writer.name(each) for each in (x, w, b) if each is not None]
    turned = given.get("layout", "oi") == "oi"
    if x.ndim == 2:
        y = writer.emit("Gemm", *names, transB=int(turned))
    elif turned:
        y = writer.call("dense" if b is not None else "dense_without_bias", *names)
    else:
        y = writer.emit("MatMul", *names[:2])
        y = writer.emit("Add", y, names[2]) if b is not None else y
    y = _activated(writer, y, given.get("activation"))
    rest = given.get("residual")
    return y if rest is None else writer.emit("Add", y, writer.name(rest))


def _several(given: Any, rank: int) -> list[int]:
    return [given] * rank if isinstance(given, int) else list(given)


def _pads(padding: Any, rank: int) -> dict[str, Any]:
    """Padding as ONNX has it: all lower ends, then all upper ones."""
    if isinstance(padding, str):
        return {"auto_pad": "SAME_UPPER" if padding == "same" else "VALID"}
    each = [(p, p) if isinstance(p, int) else p for p in _several(padding, rank)]
    return {"pads": [low for low, _ in each] + [high for _, high in each]}


def _channels_first(node: Node, layout: Any) -> None:
    if layout is not None and str(layout).index("C") != 1:
        raise GraphError(f"{node.place}: ONNX has channels first, not {layout}")


def _conv(rank: int) -> Kind:
    def write(writer: Writer, node: Node) -> Any:
        names = ("stride", "padding", "dilation", "groups", "layout", "activation")
        defaults = (1, 0, 1, 1, None, None)
        stride, padding, dilation, groups, layout, activation = (
            argument(node, at, name, default)
            for at, (name, default) in enumerate(zip(names, defaults, strict=True), 3)
        )
        _channels_first(node, layout)
        b = argument(node, 2, "b", None)
        arrays = [*node.args[:2], *([] if b is None else [b])]
        y = writer.emit(
            "Conv",
            *map(writer.name, arrays),
            strides=_several(stride, rank),
            dilations=_several(dilation, rank),
            group=groups,
            **_pads(padding, rank),
        )
        return _activated(writer, y, activation)

    return write


def _pool(kind: str, rank: int) -> Kind:
    most = kind == "MaxPool"
    names = ["stride", "padding", *(["dilation"] if most else []), "ceil_mode"]
    names += [] if most else ["count_include_pad", "divisor"]
    defaults = {"padding": 0, "dilation": 1, "count_include_pad": True}

    def write(writer: Writer, node: Node) -> Any:
        given = {
            name: argument(node, at, name, defaults.get(name))
            for at, name in enumerate([*names, "layout"], 2)
        }
        _channels_first(node, given["layout"])
        if given.get("divisor") is not None:
            raise GraphError(f"{node.place}: ONNX pools have no divisor of their own")
        window = _several(argument(node, 1, "kernel", None), rank)
        more: dict[str, Any] = (
            {"dilations": _several(given["dilation"], rank)}
            if most
            else {"count_include_pad": int(given["count_include_pad"])}
        )
        return writer.emit(
            kind,
            writer.name(node.args[0]),
            kernel_shape=window,
            strides=_several(given["stride"] or window, rank),
            ceil_mode=int(bool(given["ceil_mode"])),
            **_pads(given["padding"], rank),
            **more,
        )

    return write


def _flatten(writer: Writer, node: Node) -> Any:
    return writer.emit("Flatten", writer.name(node.args[0]), axis=1)


def _reshape(writer: Writer, node: Node) -> Any:
    (x, *_), shape = node.args, node.results[0].shape
    open_ = [at for at, extent in enumerate(shape) if isinstance(extent, Dim)]
    if len(open_) > 1 and [shape[at] for at in open_] != [x.shape[at] for at in open_]:
        raise GraphError(f"{node.place}: ONNX reshapes to one open size, not {shape}")
    sign = 0 if len(open_) > 1 else -1
    numbers = [sign if isinstance(extent, Dim) else extent for extent in shape]
    return writer.emit("Reshape", writer.name(x), writer.whole(*numbers))


def _transpose(writer: Writer, node: Node) -> Any:
    x = node.args[0]
    axes = argument(node, 1, "axes", None) or tuple(range(x.ndim))[::-1]
    return writer.emit("Transpose", writer.name(x), perm=[a % x.ndim for a in axes])


def _gelu(writer: Writer, node: Node) -> Any:
    how = argument(node, 1, "approximate", "none")
    name = "gelu" if how == "none" else "gelu_tanh"
    return writer.call(name, writer.name(node.args[0]))


def _silu(writer: Writer, node: Node) -> Any:
    return writer.call("silu", writer.name(node.args[0]))


def _softplus(writer: Writer, node: Node) -> Any:
    if (argument(node, 1, "beta", 1.0), argument(node, 2, "threshold", 20.0)) != (
        1,
        20,
    ):
        raise GraphError(f"{node.place}: ONNX has softplus of beta 1 alone")
    return writer.emit("Softplus", writer.name(node.args[0]))


def _leaky(writer: Writer, node: Node) -> Any:
    slope = argument(node, 1, "negative_slope", 0.01)
    return writer.emit("LeakyRelu", writer.name(node.args[0]), alpha=slope)


def _ones(x: Any, extent: Any) -> Any:
    return np.ones(extent, x.spec.numpy)


def _layer_norm(writer: Writer, node: Node) -> Any:
    x, weight = node.args[0], argument(node, 1, "weight", None)
    bias, eps = argument(node, 2, "bias", None), argument(node, 3, "eps", 1e-5)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    names = [w] if bias is None else [w, writer.name(bias)]
    return writer.emit(
        "LayerNormalization", writer.name(x), *names, axis=-1, epsilon=eps
    )


def _rms_norm(writer: Writer, node: Node) -> Any:
    x, weight = node.args[0], argument(node, 1, "weight", None)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    eps = float(argument(node, 2, "eps", 1e-6))
    return writer.call("rms_norm", writer.name(x), w, eps=eps)


def _norm_arrays(writer: Writer, node: Node) -> tuple[list[str], int]:
    """Names of image, moments, weight and bias; and the axis of channels."""
    x, mean, var = node.args[:3]
    channels = mean.shape
    weight, bias = argument(node, 3, "weight", None), argument(node, 4, "bias", None)
    w = _ones(x, channels) if weight is None else weight
    b = _ones(x, channels) * 0 if bias is None else bias
    return [writer.name(v, x) for v in (x, mean, var, w, b)], node.kwargs.get("axis", 1)


def _batch_norm(writer: Writer, node: Node) -> Any:
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    if axis != 1:
        raise GraphError(f"{node.place}: ONNX has batch norms of axis 1, not {axis}")
    eps = node.kwargs.get("eps", 1e-5)
    return writer.emit("BatchNormalization", x, w, b, mean, var, epsilon=eps)


def _batch_norm_train(writer: Writer, node: Node) -> Any:
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    rank = node.args[0].ndim
    axes = [at for at in range(rank) if at != axis % rank]
    return writer.call(
        "batch_norm_train",
        *(x, mean, var, w, b, TRAINING),
        results=3,
        axes=axes,
        inner=axes,
        momentum=float(node.kwargs.get("momentum", 0.1)),
        eps=float(node.kwargs.get("eps", 1e-5)),
    )


def _rate(node: Node, rate: float) -> dict[str, Any]:
    if argument(node, 9, "stream", "jax") != "jax":
        raise GraphError(f"{node.place}: ONNX is written for dropout's stream 'jax'")
    limit, keep = scalars(rate, node.args[0].spec.numpy)
    return {"rate": repr(rate), "limit": limit, "keep": keep}


def _dropout(writer: Writer, node: Node) -> Any:
    given = _rate(node, float(argument(node, 1, "rate", None)))
    key = writer.name(node.kwargs["key"])
    always = writer.constant(np.array(True))
    return writer.call("dropout", writer.name(node.args[0]), key, always, **given)


def _dropout_train(writer: Writer, node: Node) -> Any:
    given = _rate(node, float(argument(node, 2, "rate", None)))
    names = map(writer.name, node.args[:2])
    return writer.call("dropout_train", *names, TRAINING, results=2, **given)


def _split(writer: Writer, node: Node) -> Any:
    num = argument(node, 1, "num", 2)
    if not isinstance(num, int) or node.args[0].shape:
        raise GraphError(
            f"{node.place}: ONNX is written for splits of one key in a row"
        )
    return writer.call("split", writer.name(node.args[0]), num=num)


def _element(writer: Writer, node: Node) -> Any:
    at = writer.constant(np.array(node.args[1], np.int64))
    return writer.emit("Gather", writer.name(node.args[0]), at, axis=0)


def _embedding(writer: Writer, node: Node) -> Any:
    ids, table = node.args[:2]
    return writer.emit("Gather", writer.name(table), writer.name(ids), axis=0)


def _matmul(writer: Writer, node: Node) -> Any:
    names = []
    for value, flag in zip(node.args[:2], ("transpose_a", "transpose_b"), strict=True):
        name = writer.name(value)
        if node.kwargs.get(flag):
            axes = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            name = writer.emit("Transpose", name, perm=axes)
        names.append(name)
    return writer.emit("MatMul", *names)


def _concatenate(writer: Writer, node: Node) -> Any:
    names = map(writer.name, node.args[0])
    return writer.emit("Concat", *names, axis=argument(node, 1, "axis", 0))


def _square(writer: Writer, node: Node) -> Any:
    name = writer.name(node.args[0])
    return writer.emit("Mul", name, name)


def _rsqrt(writer: Writer, node: Node) -> Any:
    return writer.emit("Reciprocal", writer.emit("Sqrt", writer.name(node.args[0])))


def _global_avg(writer: Writer, node: Node) -> Any:
    _channels_first(node, argument(node, 1, "layout", None))
    return writer.emit("GlobalAveragePool", writer.name(node.args[0]))


SAME: Final = {
    "math.add": "Add",
    "math.subtract": "Sub",
    "math.multiply": "Mul",
    "math.divide": "Div",
    "math.power": "Pow",
    "math.maximum": "Max",
    "math.minimum": "Min",
    "math.equal": "Equal",
    "math.less": "Less",
    "math.less_equal": "LessOrEqual",
    "math.greater": "Greater",
    "math.greater_equal": "GreaterOrEqual",
    "math.logical_not": "Not",
    "math.where": "Where",
    "math.negative": "Neg",
    "math.abs": "Abs",
    "math.sign": "Sign",
    "math.exp": "Exp",
    "math.log": "Log",
    "math.sqrt": "Sqrt",
    "math.reciprocal": "Reciprocal",
    "math.sin": "Sin",
    "math.cos": "Cos",
    "math.erf": "Erf",
    "math.floor": "Floor",
    "math.ceil": "Ceil",
    "math.tanh": "Tanh",
    "nn.relu": "Relu",
    "nn.sigmoid": "Sigmoid",
    "nn.tanh": "Tanh",
    "let": "Identity",
}
REDUCTIONS: Final = {
    "math.sum": "ReduceSum",
    "math.mean": "ReduceMean",
    "math.max": "ReduceMax",
    "math.min": "ReduceMin",
    "math.prod": "ReduceProd",
    "math.logsumexp": "ReduceLogSumExp",
}
KINDS: Final[dict[str, Kind]] = {
    **{id: _plain(kind) for id, kind in SAME.items()},
    **{id: _reduced(kind) for id, kind in REDUCTIONS.items()},
    **{f"nn.conv{rank}d": _conv(rank) for rank in (1, 2, 3)},
    **{f"nn.max_pool{rank}d": _pool("MaxPool", rank) for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": _pool("AveragePool", rank) for rank in (1, 2, 3)},
    "math.not_equal": _negated("Equal"),
    "math.matmul": _matmul,
    "math.square": _square,
    "math.rsqrt": _rsqrt,
    "nn.dense": _dense,
    "nn.gelu": _gelu,
    "nn.silu": _silu,
    "nn.softplus": _softplus,
    "nn.leaky_relu": _leaky,
    "nn.softmax": _along("Softmax"),
    "nn.log_softmax": _along("LogSoftmax"),
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.batch_norm": _batch_norm,
    "nn.batch_norm_train": _batch_norm_train,
    "nn.batch_flatten": _flatten,
    "nn.reshape": _reshape,
    "nn.transpose": _transpose,
    "nn.concatenate": _concatenate,
    "nn.embedding": _embedding,
    "nn.global_avg_pool": _global_avg,
    "nn.dropout": _dropout,
    "nn.dropout_train": _dropout_train,
    "random.split": _split,
    "element": _element,
}

"""Elementwise operators, reductions, products and activations, in ONNX."""

from __future__ import annotations

from typing import Any, Final

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node
from tensorlang.onnx.writer import Kind, Writer, argument


def plain(kind: str, **attributes: Any) -> Kind:
    """A node of the same arrays; a number among them takes the type of an array."""

    def write(writer: Writer, node: Node) -> Any:
        like = next(arg for arg in reversed(node.args) if hasattr(arg, "spec"))
        names = [writer.name(arg, like) for arg in node.args]
        return writer.emit(kind, *names, **attributes)

    return write


def negated(kind: str) -> Kind:
    """What another node gives, negated."""

    def write(writer: Writer, node: Node) -> Any:
        return writer.emit("Not", plain(kind)(writer, node))

    return write


def along(kind: str) -> Kind:
    """A node along an axis."""

    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", -1)
        return writer.emit(kind, writer.name(node.args[0]), axis=axis)

    return write


def reduced(kind: str) -> Kind:
    """A reduction over axes."""

    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", None)
        keep = int(argument(node, 2, "keepdims", False))
        axes = (axis,) if isinstance(axis, int) else axis
        given = [] if axes is None else [writer.whole(*axes)]
        return writer.emit(kind, writer.name(node.args[0]), *given, keepdims=keep)

    return write


def activated(writer: Writer, y: str, activation: str | None) -> str:
    """An activation behind a product; none where it is None."""
    if activation is None:
        return y
    if activation in {"silu", "gelu", "gelu_tanh"}:
        return str(writer.call(activation, y))
    return str(writer.emit(_ACTIVATIONS[activation], y))


_ACTIVATIONS: Final = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def dense(writer: Writer, node: Node) -> Any:
    """A product with a weight, its bias, activation and residual."""
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
    y = activated(writer, y, given.get("activation"))
    rest = given.get("residual")
    return y if rest is None else writer.emit("Add", y, writer.name(rest))


def matmul(writer: Writer, node: Node) -> Any:
    """A product of matrices, either of them transposed first."""
    names = []
    for value, flag in zip(node.args[:2], ("transpose_a", "transpose_b"), strict=True):
        name = writer.name(value)
        if node.kwargs.get(flag):
            axes = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            name = writer.emit("Transpose", name, perm=axes)
        names.append(name)
    return writer.emit("MatMul", *names)


def square(writer: Writer, node: Node) -> Any:
    """A number times itself."""
    name = writer.name(node.args[0])
    return writer.emit("Mul", name, name)


def rsqrt(writer: Writer, node: Node) -> Any:
    """One over the root."""
    return writer.emit("Reciprocal", writer.emit("Sqrt", writer.name(node.args[0])))


def gelu(writer: Writer, node: Node) -> Any:
    """GELU, by a function that stands in the file."""
    how = argument(node, 1, "approximate", "none")
    name = "gelu" if how == "none" else "gelu_tanh"
    return writer.call(name, writer.name(node.args[0]))


def own(name: str) -> Kind:
    """A function of one array that stands in the file."""
    return lambda writer, node: writer.call(name, writer.name(node.args[0]))


def softplus(writer: Writer, node: Node) -> Any:
    """Softplus of beta 1."""
    if (argument(node, 1, "beta", 1.0), argument(node, 2, "threshold", 20.0)) != (
        1,
        20,
    ):
        raise GraphError(f"{node.place}: ONNX has softplus of beta 1 alone")
    return writer.emit("Softplus", writer.name(node.args[0]))


def leaky(writer: Writer, node: Node) -> Any:
    """Leaky ReLU with its slope."""
    slope = argument(node, 1, "negative_slope", 0.01)
    return writer.emit("LeakyRelu", writer.name(node.args[0]), alpha=slope)


def place(kind: str) -> Kind:
    """Where the largest or least number of an axis is."""

    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", None)
        if axis is None:
            raise GraphError(f"{node.place}: {kind} of ONNX is along one axis")
        keep = int(argument(node, 2, "keepdims", False))
        return writer.emit(kind, writer.name(node.args[0]), axis=axis, keepdims=keep)

    return write


def clip(writer: Writer, node: Node) -> Any:
    """The numbers between two bounds."""
    x, names = node.args[0], ("low", "high")
    bounds = [argument(node, at, name, None) for at, name in enumerate(names, 1)]
    given = ["" if bound is None else writer.name(bound, x) for bound in bounds]
    return writer.emit("Clip", writer.name(x), *given)

"""Matrix products."""

from __future__ import annotations

from typing import Final

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.values import Node, Tensor
from tensorlang.onnx.folding import to_value
from tensorlang.onnx.reading import Results, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import math, nn

_ACTIVATIONS: Final = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "hard_swish": "HardSwish",
}
_EINSUM: Final = ("subscripts", "a", "b")


@reads("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float,
    beta: float,
    transA: bool,  # noqa: N803 - ONNX's name
    transB: bool,  # noqa: N803 - the same
    broadcast: int = 1,
) -> Results:
    """Scaled matrix product with an addend."""
    del broadcast
    a, b = to_value(a), to_value(b)
    if (a.ndim, b.ndim) != (2, 2):
        raise ShapeError(f"a product of {a.spec} and {b.spec}; both must be matrices")
    a = nn.transpose(a, (1, 0)) if transA else a
    layout = "oi" if transB else "io"
    width = b.shape[0 if transB else 1]
    if (alpha, beta) == (1.0, 1.0) and (c is None or c.shape == (width,)):
        return nn.dense(a, b, c, layout=layout)
    y = nn.dense(a, b, layout=layout)
    y = y if alpha == 1.0 else math.multiply(y, alpha)
    if c is None or not beta:  # NaNs and infinities in `c` are then ignored too
        return y
    made = math.add(y, c if beta == 1.0 else math.multiply(to_value(c), beta))
    if made.shape != y.shape:
        raise ShapeError(f"C of shape {c.shape} does not broadcast to {y.spec}")
    return made


@reads("MatMul")
def matmul(a: Tensor, b: Tensor) -> Results:
    """Matrix product; a dense layer if the right operand is a weight matrix."""
    a, b = to_value(a), to_value(b)
    if not (a.ndim and b.ndim):
        raise ShapeError(
            f"a product of {a.spec} and {b.spec}; scalars are not supported"
        )
    rows = nn.reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    columns = nn.reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    if columns.ndim == 2 and rows.ndim > 2:
        made = nn.dense(rows, columns, layout="io")
    else:
        made = math.matmul(rows, columns)
    shape = made.shape[:-1] if b.ndim == 1 else made.shape
    shape = (*shape[: made.ndim - 2], *shape[made.ndim - 1 :]) if a.ndim == 1 else shape
    return made if shape == made.shape else nn.reshape(made, shape)


@reads("Einsum")
def einsum(*operands: Tensor, equation: str) -> Results:
    """Sum of products of one operand or two."""
    return math.einsum(equation, *map(to_value, operands))


def activated(writer: Writer, y: str, activation: str | None) -> str:
    """Apply an activation to a product, if any."""
    if activation is None:
        return y
    if activation in {"silu", "gelu", "gelu_tanh"}:
        return writer.call(activation, y)
    return writer.emit(_ACTIVATIONS[activation], y)


@writes("nn.dense")
def write_dense(writer: Writer, node: Node) -> str:
    """Product with a weight, with bias, activation and residual."""
    x, w = node.args[:2]
    b = argument(node, 2, "b", None)
    given = node.kwargs
    if given.get("dropout"):
        raise GraphError(f"{node.place}: apply dropout outside of dense to save it")
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


@writes("math.matmul")
def write_matmul(writer: Writer, node: Node) -> str:
    """Matrix product, with optionally transposed operands."""
    names = []
    for value, flag in zip(node.args[:2], ("transpose_a", "transpose_b"), strict=True):
        name = writer.name(value)
        if node.kwargs.get(flag) and value.ndim > 1:
            axes = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            name = writer.emit("Transpose", name, perm=axes)
        names.append(name)
    return writer.emit("MatMul", *names)


@writes("math.einsum")
def write_einsum(writer: Writer, node: Node) -> str:
    """Sum of products of one operand or two."""
    equation, *given = (argument(node, n, x, None) for n, x in enumerate(_EINSUM))
    operands = [each for each in given if each is not None]
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    dots = [
        each.ndim - len(term.replace("...", ""))
        for term, each in zip(terms, operands, strict=True)
        if "..." in term
    ]
    if len({*dots}) > 1:
        raise GraphError(
            f"{node.place}: ONNX does not broadcast '...' of {dots[0]} dimensions with "
            f"'...' of {dots[1]}; reshape an operand of einsum to save it"
        )
    return writer.emit("Einsum", *map(writer.name, operands), equation=equation)

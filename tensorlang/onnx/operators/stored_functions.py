"""Readers and writers of the functions stored in files of tensorlang."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.scopes import training
from tensorlang.graph.values import Key, Node, Tensor
from tensorlang.onnx.functions import DOMAIN, TRAINING
from tensorlang.onnx.reading import Ints, Read, Results, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import Operator, math, nn, random
from tensorlang.ops.nn.dropout import scalars

# functions of one array
_PLAIN: Final = {"expm1": math.expm1, "log1p": math.log1p, "silu": nn.silu}


def _reader(op: Operator) -> Read:
    return lambda x: op(x)  # noqa: PLW0108 - its signature is inspected


def _writer(name: str) -> Write:
    return lambda writer, node: writer.call(name, writer.name(node.args[0]))


for _name, _op in _PLAIN.items():
    reads(_name, domain=DOMAIN)(_reader(_op))
    writes(_op.id)(_writer(_name))


@reads("dense", domain=DOMAIN)
def dense(x: Tensor, w: Tensor, b: Tensor) -> Results:
    """A dense layer over any number of leading dimensions."""
    return nn.dense(x, w, b)


@reads("dense_without_bias", domain=DOMAIN)
def dense_without_bias(x: Tensor, w: Tensor) -> Results:
    """A dense layer without bias."""
    return nn.dense(x, w)


@reads("gelu", domain=DOMAIN)
def gelu(x: Tensor) -> Results:
    """Exact GELU."""
    return nn.gelu(x)


@reads("gelu_tanh", domain=DOMAIN)
def gelu_tanh(x: Tensor) -> Results:
    """GELU with the tanh approximation."""
    return nn.gelu(x, "tanh")


@reads("rms_norm", domain=DOMAIN)
def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Results:
    """RMS norm."""
    return nn.rms_norm(x, weight, eps)


@reads("batch_norm_train", domain=DOMAIN)
def batch_norm_train(  # noqa: PLR0917 - the function's order
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
    asked: Tensor,
    *,
    axes: Ints,
    inner: Ints,
    momentum: float,
    eps: float,
) -> Results:
    """Batch norm that depends on the training input, which our programs know."""
    del asked
    listed = axes if isinstance(axes, (list, tuple)) else ()
    left = set(range(x.ndim)) - set(listed)
    if axes != inner or len(left) != 1:
        raise GraphError(f"axes={axes}, inner={inner} of {x.ndim} dimensions")
    given = {"eps": eps, "axis": left.pop()}
    if not training():
        return nn.batch_norm(x, mean, var, weight, bias, **given), mean, var
    return nn.batch_norm_train(x, mean, var, weight, bias, momentum=momentum, **given)


@reads("split", domain=DOMAIN)
def split(key: Key, *, num: int) -> Results:
    """Split a key; in inference there is none."""
    return None if key is None else random.split(key, num)


@writes("random.split")
def write_split(writer: Writer, node: Node) -> str:
    """Split a key."""
    num = argument(node, 1, "num", 2)
    if not isinstance(num, int) or node.args[0].shape:
        raise GraphError(
            f"{node.place}: ONNX export supports splits of one key into a row"
        )
    return writer.call("split", writer.name(node.args[0]), num=num)


@writes("element")
def write_element(writer: Writer, node: Node) -> str:
    """One key of a batch."""
    at = writer.constant(np.array(node.args[1], np.int64))
    return writer.emit("Gather", writer.name(node.args[0]), at, axis=0)


@reads("dropout", domain=DOMAIN)
def dropout(
    x: Tensor, key: Key, asked: Tensor, *, rate: str, limit: int, keep: float
) -> Results:
    """Dropout with a given key."""
    del asked
    return nn.dropout(x, _rate(x, rate, limit, keep), key=key)


@reads("dropout_train", domain=DOMAIN)
def dropout_train(
    x: Tensor, state: Key, asked: Tensor, *, rate: str, limit: int, keep: float
) -> Results:
    """Dropout that depends on the training input, which our programs know."""
    del asked
    known = _rate(x, rate, limit, keep)
    return nn.dropout_train(x, state, known) if training() else (x, state)


def _rate(x: Tensor, rate: str, limit: int, keep: float) -> float:
    """The rate, which must match `limit` and `keep`."""
    try:
        known, kept = float(rate), np.float32(float(keep))
    except (ValueError, TypeError):
        raise GraphError(f"rate={rate!r} or keep={keep!r} is not a number") from None
    steps, divisor = scalars(known, x.spec.numpy)
    if (steps, np.float32(divisor)) != (limit, kept):
        raise GraphError(f"limit={limit} and keep={keep} are not those of rate={rate}")
    return known


def _dropout_attributes(node: Node, rate: float) -> dict[str, str | float]:
    if argument(node, 9, "stream", "jax") != "jax":
        raise GraphError(
            f"{node.place}: ONNX export supports dropout's stream 'jax' only"
        )
    limit, keep = scalars(rate, node.args[0].spec.numpy)
    return {"rate": repr(rate), "limit": limit, "keep": keep}


@writes("nn.dropout")
def write_dropout(writer: Writer, node: Node) -> str:
    """Dropout with a given key."""
    given = _dropout_attributes(node, float(argument(node, 1, "rate", None)))
    key = writer.name(node.kwargs["key"])
    always = writer.constant(np.array(True))
    return writer.call("dropout", writer.name(node.args[0]), key, always, **given)


@writes("nn.dropout_train")
def write_dropout_train(writer: Writer, node: Node) -> list[str]:
    """Dropout that depends on the training input and threads its state."""
    given = _dropout_attributes(node, float(argument(node, 2, "rate", None)))
    names = map(writer.name, node.args[:2])
    return writer.call_all("dropout_train", *names, TRAINING, results=2, **given)

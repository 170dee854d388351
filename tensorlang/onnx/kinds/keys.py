"""Keys, and what draws by them, in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node
from tensorlang.onnx.functions import TRAINING
from tensorlang.onnx.writer import Writer, argument
from tensorlang.ops.nn.dropout import scalars


def _rate(node: Node, rate: float) -> dict[str, Any]:
    if argument(node, 9, "stream", "jax") != "jax":
        raise GraphError(f"{node.place}: ONNX is written for dropout's stream 'jax'")
    limit, keep = scalars(rate, node.args[0].spec.numpy)
    return {"rate": repr(rate), "limit": limit, "keep": keep}


def dropout(writer: Writer, node: Node) -> Any:
    """Dropout by a key that is given."""
    given = _rate(node, float(argument(node, 1, "rate", None)))
    key = writer.name(node.kwargs["key"])
    always = writer.constant(np.array(True))
    return writer.call("dropout", writer.name(node.args[0]), key, always, **given)


def dropout_train(writer: Writer, node: Node) -> Any:
    """Dropout that asks whether it is trained, and threads its state."""
    given = _rate(node, float(argument(node, 2, "rate", None)))
    names = map(writer.name, node.args[:2])
    return writer.call("dropout_train", *names, TRAINING, results=2, **given)


def split(writer: Writer, node: Node) -> Any:
    """Keys from a key."""
    num = argument(node, 1, "num", 2)
    if not isinstance(num, int) or node.args[0].shape:
        raise GraphError(
            f"{node.place}: ONNX is written for splits of one key in a row"
        )
    return writer.call("split", writer.name(node.args[0]), num=num)


def element(writer: Writer, node: Node) -> Any:
    """One key of several."""
    at = writer.constant(np.array(node.args[1], np.int64))
    return writer.emit("Gather", writer.name(node.args[0]), at, axis=0)

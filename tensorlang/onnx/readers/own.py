"""The functions that our own files hold, as the operators that they are."""

from __future__ import annotations

from typing import Any, Final

from tensorlang.graph.network import training
from tensorlang.onnx.calls import Call, Reader
from tensorlang.onnx.readers.plain import meant
from tensorlang.ops import math, nn, random


def _norm(call: Call) -> Any:
    x, mean, var, w, b = call.inputs[:5]
    axes = call.given["axes"]
    (axis,) = set(range(len(axes) + 1)) - set(axes)
    given = {"eps": meant(call.given["eps"]), "axis": axis}
    if not training():
        return nn.batch_norm(x, mean, var, w, b, **given), mean, var
    momentum = meant(call.given["momentum"])
    return nn.batch_norm_train(x, mean, var, w, b, momentum=momentum, **given)


def _dropout_train(call: Call) -> Any:
    x, state = call.inputs[:2]
    if not training():
        return x, state
    return nn.dropout_train(x, state, float(call.given["rate"]))


def _dropout(call: Call) -> Any:
    x, key = call.inputs[:2]
    return nn.dropout(x, float(call.given["rate"]), key=key)


def _rms_norm(call: Call) -> Any:
    return nn.rms_norm(call.inputs[0], call.inputs[1], meant(call.given["eps"]))


OURS: Final[dict[str, Reader]] = {
    "dense": lambda call: nn.dense(*call.inputs),
    "dense_without_bias": lambda call: nn.dense(*call.inputs),
    "gelu": lambda call: nn.gelu(call.inputs[0]),
    "gelu_tanh": lambda call: nn.gelu(call.inputs[0], "tanh"),
    "expm1": lambda call: math.expm1(call.inputs[0]),
    "log1p": lambda call: math.log1p(call.inputs[0]),
    "silu": lambda call: nn.silu(call.inputs[0]),
    "rms_norm": _rms_norm,
    "batch_norm_train": _norm,
    "split": lambda call: random.split(call.inputs[0], call.given["num"]),
    "dropout": _dropout,
    "dropout_train": _dropout_train,
}

"""Norms and dropout of ONNX as ours."""

from __future__ import annotations

from typing import Any

from tensorlang.graph.network import training
from tensorlang.onnx.calls import Call
from tensorlang.onnx.readers.plain import meant
from tensorlang.ops import nn


def layer_norm(call: Call) -> Any:
    """A norm of the last dimension."""
    x = call.inputs[0]
    if call.given.get("axis", -1) not in {-1, x.ndim - 1}:
        raise call.refuse("we have norms of the last dimension alone")
    eps = call.given.get("epsilon", 1e-5)
    return nn.layer_norm(x, call.inputs[1], call.input(2), meant(eps))


def batch_norm(call: Call) -> Any:
    """A batch norm in use."""
    x, w, b, mean, var = call.inputs
    if call.given.get("training_mode"):
        raise call.refuse("we have its use alone; export the model in use")
    return nn.batch_norm(x, mean, var, w, b, eps=meant(call.given.get("epsilon", 1e-5)))


def dropout(call: Call) -> Any:
    """In training, by a key of its own; in use, and where it never trains, nothing."""
    x = call.inputs[0]
    rate, mode = call.known(1, "the rate"), call.known(2, "training_mode")
    share = 0.5 if rate is None else meant(rate)
    if not training() or not (mode is not None and mode) or not share:
        return x
    return call.program.dropped(x, share)

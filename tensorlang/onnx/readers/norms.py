"""Norms and dropout of ONNX as ours."""

from __future__ import annotations

from typing import Any

from tensorlang import graph
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
    """A batch norm: by its running moments in use, and by the batch's in training."""
    x, w, b, mean, var = call.inputs
    eps = meant(call.given.get("epsilon", 1e-5))
    if call.given.get("training_mode") and training():
        return _trained(call, eps)
    return nn.batch_norm(x, mean, var, w, b, eps=eps), mean, var


def _trained(call: Call, eps: float) -> Any:
    """By the moments of the batch; the running ones go on as PyTorch's do."""
    x, w, b, mean, var = call.inputs
    places = [call.program.moments.get(name) for name in call.names[3:]]
    kept = meant(call.given.get("momentum", 0.9))
    given = {"momentum": meant(1 - kept), "eps": eps}
    y, *after = nn.batch_norm_train(x, mean, var, w, b, **given)
    for place, value in zip(places, after, strict=True):
        if place is None:
            raise call.refuse("its running moments are to be arrays of the file")
        graph.write(place, value)
    return (y, *after)


def dropout(call: Call) -> Any:
    """In training, by a key of its own; in use, and where it never trains, nothing."""
    x = call.inputs[0]
    rate, mode = call.known(1, "the rate"), call.known(2, "training_mode")
    share = 0.5 if rate is None else meant(rate)
    if not training() or not (mode is not None and mode) or not share:
        return x
    return call.program.dropped(x, share)
